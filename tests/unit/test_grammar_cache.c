#include "lp_test.h"

#include "engine/grammar_cache.h"
#include "tokenizer_build.h"

static struct vocab vocab;
static struct lp_tokenizer *tok;
static bool *never;
static int32_t n_vocab;

static int open_vocab(void **state) {
    (void)state;
    vocab_mini(&vocab);
    tok = make(&vocab);
    n_vocab = (int32_t)lp_tokenizer_n_tokens(tok) + 5; // rows of the output matrix past it
    never = lp_alloc((size_t)n_vocab, 1);
    for (int32_t id = 0; id < n_vocab; id++) never[id] = lp_tokenizer_is_unused(tok, id);
    return 0;
}

static int close_vocab(void **state) {
    (void)state;
    lp_free(never);
    lp_tokenizer_free(tok);
    vocab_release(&vocab);
    return 0;
}

static struct lp_grammar_cache *new_cache(void) {
    struct lp_grammar_cache *cache;
    assert_int_equal(lp_grammar_cache_new(&cache, tok, never, n_vocab, NULL), LP_OK);
    return cache;
}

static struct lp_grammar *take(struct lp_grammar_cache *cache, const char *kind,
                               const char *source) {
    struct lp_grammar *g;
    struct lp_err err;
    if (lp_grammar_cache_take(cache, kind, lp_str_from(source), &g, &err)) fail_msg("%s", err.text);
    return g;
}

static void the_same_source_is_compiled_once(void **state) {
    (void)state;
    struct lp_grammar_cache *cache = new_cache();
    struct lp_grammar *a = take(cache, "choice", "[\"a\"]"), *b = take(cache, "choice", "[\"a\"]");
    struct lp_grammar *c = take(cache, "choice", "[\"b\"]"), *d = take(cache, "json_schema", "{}");
    assert_ptr_equal(a, b);
    assert_ptr_not_equal(a, c);
    assert_ptr_not_equal(c, d);
    assert_true(lp_grammar_matches(c, lp_str_from("b")));
    // Those that were not asked for lately go; who holds one keeps it.
    for (int i = 0; i < 100; i++) {
        char source[32];
        snprintf(source, sizeof source, "[\"choice %d\"]", i);
        lp_grammar_put(take(cache, "choice", source));
        lp_grammar_put(take(cache, "choice", "[\"a\"]"));
    }
    struct lp_grammar *kept = take(cache, "choice", "[\"a\"]"),
                      *fresh = take(cache, "choice", "[\"b\"]");
    assert_ptr_equal(kept, a);
    assert_ptr_not_equal(fresh, c);
    assert_true(lp_grammar_matches(c, lp_str_from("b")));
    struct lp_grammar *const all[] = {a, b, c, kept, fresh};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) lp_grammar_put(all[i]);
    lp_grammar_put(d);
    lp_grammar_cache_free(cache);
}

static bool has(const uint32_t *mask, int32_t id) {
    return mask[id / 32] >> id % 32 & 1;
}

// Any text: all tokens that are whole characters, and no control, end or unused token.
static void masks_are_over_the_vocabulary(void **state) {
    (void)state;
    struct lp_grammar_cache *cache = new_cache();
    struct lp_grammar *g = take(cache, "gbnf", "root ::= .*");
    struct lp_matcher *m;
    assert_int_equal(lp_matcher_new(&m, g, NULL), LP_OK);
    const uint32_t *mask = lp_matcher_mask(m);
    int32_t n_special = 0;
    for (int32_t id = 0; id < n_vocab; id++) {
        bool special =
            never[id] || lp_tokenizer_is_special(tok, id) || lp_tokenizer_is_stop(tok, id);
        n_special += special;
        if (special) assert_false(has(mask, id));
    }
    assert_in_range(n_special, 5, 100);
    struct lp_ids ids = encode(tok, lp_str_from("The caf\xC3\xA9 has 12 \xF0\x9F\x98\x80."), 0);
    for (size_t i = 0; i < ids.n; i++) assert_true(lp_matcher_accept(m, ids.data[i]));
    assert_true(lp_matcher_can_end(m));
    lp_free(ids.data);
    lp_matcher_free(m);
    lp_grammar_put(g);
    lp_grammar_cache_free(cache);
}

static void errors_reach_the_caller(void **state) {
    (void)state;
    struct lp_grammar_cache *cache = new_cache();
    struct lp_grammar *g = NULL;
    struct lp_err err;
    assert_int_equal(lp_grammar_cache_take(cache, "yaml", lp_str_from(""), &g, &err),
                     LP_STATUS_INVALID);
    assert_non_null(strstr(err.text, "'yaml'"));
    assert_int_equal(lp_grammar_cache_take(cache, "gbnf", lp_str_from("root"), &g, &err),
                     LP_STATUS_INVALID);
    assert_int_equal(lp_grammar_cache_take(cache, "gbnf", lp_str_from("root ::= <a>"), &g, &err),
                     LP_STATUS_UNSUPPORTED);
    lp_grammar_cache_free(cache);
    lp_grammar_cache_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_source_is_compiled_once),
        cmocka_unit_test(masks_are_over_the_vocabulary),
        cmocka_unit_test(errors_reach_the_caller),
    };
    return cmocka_run_group_tests(tests, open_vocab, close_vocab);
}
