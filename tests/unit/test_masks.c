// Masks against a matcher that tries each token by itself (grammar_naive.h).
#include "lp_test.h"

#include "grammar/grammar_parts.h"
#include "grammar_naive.h"

enum { N_TOKENS = 400 };

struct vocab {
    char texts[N_TOKENS][32];
    int n;
};

static bool token_bytes(void *user, int32_t id, struct lp_bytes *out) {
    return lp_bytes_puts(out, ((struct vocab *)user)->texts[id]);
}

static void add_token(struct vocab *v, const char *text) {
    if (v->n < N_TOKENS) snprintf(v->texts[v->n++], sizeof v->texts[0], "%s", text);
}

// Every byte that the grammars know, alone; then texts of 2 to 6 and of 17 to 26 bytes of them.
static void make_vocab(struct vocab *v, struct lp_rng *rng) {
    static const char *const bytes[] = {"a",    "b",    "c",    "(",    ")",    "\xC3",
                                        "\xA9", "\xA8", "\xE2", "\x82", "\xAC", "\xF0",
                                        "\x9F", "\x98", "\x80", "x",    "\xFF", "\xC0"};
    static const char *const parts[] = {
        "a", "b", "c", "(", ")", "ab", "x", "((", "abab", "\xC3\xA9", "\xE2\x82\xAC", "\xC3"};
    v->n = 0;
    add_token(v, ""); // of no bytes: never allowed
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) add_token(v, bytes[i]);
    while (v->n < N_TOKENS) {
        char text[32] = "";
        size_t want =
            naive_pick(rng, 6) ? 2 + (size_t)naive_pick(rng, 5) : 17 + (size_t)naive_pick(rng, 8);
        int repeat =
            naive_pick(rng, 2) ? naive_pick(rng, 12) : -1; // long runs are likelier to match
        while (strlen(text) < want)
            strcat(text, parts[repeat >= 0 && naive_pick(rng, 8) ? repeat : naive_pick(rng, 12)]);
        add_token(v, text);
    }
}

static bool has(const uint32_t *mask, int32_t id) {
    return mask[id / 32] >> id % 32 & 1;
}

static const char *bytes_of(const char *text, int len) {
    static char out[4 * N_TEXT + 1];
    for (int i = 0; i < len; i++) snprintf(out + 4 * i, 5, "\\x%02X", (unsigned char)text[i]);
    return out;
}

// One text from its beginning, each token drawn from the mask. Returns how many masks were
// compared.
static int follow(struct naive *naive, struct lp_grammar *g, const struct vocab *v,
                  struct lp_rng *rng, uint64_t seed) {
    char text[2 * N_TEXT];
    int len = 0, n_masks = 0;
    struct lp_matcher *m;
    assert_int_equal(lp_matcher_new(&m, g, NULL), LP_OK);
    while (len < 36) {
        const uint32_t *mask = lp_matcher_mask(m);
        bool can_end = naive_matches(naive, text, len);
        int allowed[N_TOKENS], n = 0;
        if (lp_matcher_can_end(m) != can_end && !g->dfa.was_cut)
            fail_msg("seed %llu: can end: %d, behind %s", (unsigned long long)seed, can_end,
                     bytes_of(text, len));
        if (!g->dfa.was_cut)
            assert_true(lp_grammar_matches(g, (struct lp_str){text, (size_t)len}) == can_end);
        if (!mask)
            fail_msg("seed %llu: %s, behind %s", (unsigned long long)seed, lp_matcher_failure(m),
                     bytes_of(text, len));
        for (int id = 0; id < v->n; id++) {
            int bytes = (int)strlen(v->texts[id]);
            memcpy(text + len, v->texts[id], (size_t)bytes);
            bool want = bytes > 0 && naive_may_begin(naive, text, len + bytes);
            // A grammar that is too ambiguous to follow allows less, never more.
            if (has(mask, id) != want && !(want && g->dfa.was_cut)) {
                print_message("seed %llu: token %s should be %d", (unsigned long long)seed,
                              bytes_of(v->texts[id], bytes), want);
                fail_msg(" behind %s", bytes_of(text, len));
            }
            if (has(mask, id)) allowed[n++] = id;
        }
        n_masks++;
        if (n == 0) break;
        int id = allowed[naive_pick(rng, n)];
        for (int other = 0; other < 20; other++) { // accept agrees with the mask, and refuses
            int wrong = naive_pick(rng, v->n);
            if (!has(mask, wrong) && !g->dfa.was_cut && lp_matcher_accept(m, wrong))
                fail_msg("seed %llu: token %d is not in the mask, but accepted",
                         (unsigned long long)seed, wrong);
        }
        if (!lp_matcher_accept(m, id)) {
            assert_true(g->dfa.was_cut);
            break;
        }
        memcpy(text + len, v->texts[id], strlen(v->texts[id]));
        len += (int)strlen(v->texts[id]);
    }
    lp_matcher_free(m);
    return n_masks;
}

static void masks_agree_with_trying_each_token(void **state) {
    (void)state;
    static struct naive naive;
    static struct vocab vocab;
    const char *from = getenv("LIMPID_TEST_SEED"), *count = getenv("LIMPID_TEST_COUNT");
    uint64_t first = from ? strtoull(from, NULL, 10) : 1;
    uint64_t n = count ? strtoull(count, NULL, 10) : 20;
    int n_masks = 0, n_cut = 0;
    for (uint64_t seed = first; seed < first + n; seed++) {
        struct lp_rng rng;
        struct lp_token_trie *trie;
        struct lp_grammar *g;
        struct lp_err err;
        lp_rng_init(&rng, seed);
        make_vocab(&vocab, &rng);
        naive_make(&naive, seed);
        assert_int_equal(lp_token_trie_new(&trie, vocab.n, token_bytes, &vocab, NULL, NULL), LP_OK);
        if (naive_build(&naive, trie, &g, &err))
            fail_msg("seed %llu: %s", (unsigned long long)seed, err.text);
        for (int i = 0; i < 6; i++) n_masks += follow(&naive, g, &vocab, &rng, seed);
        n_cut += g->dfa.was_cut;
        lp_grammar_put(g);
        lp_token_trie_free(trie);
    }
    print_message("%d masks of %d tokens; %d grammars too ambiguous\n", n_masks, N_TOKENS, n_cut);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(masks_agree_with_trying_each_token)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
