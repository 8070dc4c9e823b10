#include "lp_test.h"

#include <time.h>

#include "base/alloc.h"
#include "grammar/grammar_parts.h"

// Tokens 0 to 255: the bytes. Then these; the last two are control tokens.
static const char *const TEXTS[] = {"ab",   "\"}",  "\":",  "aaaaaaaaaaaaaaaaaaaa",
                                    "[[[[", "]]]]", "call", "other"};
enum { N_TEXTS = 8, CALL = 256 + 6, OTHER, N_VOCAB };

static bool token_bytes(void *user, int32_t id, struct lp_bytes *out) {
    (void)user;
    char byte = (char)id;
    return id < 256 ? lp_bytes_append(out, &byte, 1) : lp_bytes_puts(out, TEXTS[id - 256]);
}

static struct lp_token_trie *trie;

static int make_trie(void **state) {
    (void)state;
    static bool is_control[N_VOCAB];
    is_control[CALL] = is_control[OTHER] = true;
    return lp_token_trie_new(&trie, N_VOCAB, token_bytes, NULL, is_control, NULL);
}

static int free_trie(void **state) {
    (void)state;
    lp_token_trie_free(trie);
    return 0;
}

static struct lp_grammar *gbnf(const char *text) {
    struct lp_grammar *g;
    struct lp_err err;
    if (lp_grammar_compile(&g, LP_GRAMMAR_GBNF, lp_str_from(text), trie, NULL, NULL, &err))
        fail_msg("%s", err.text);
    return g;
}

static struct lp_matcher *matcher_of(struct lp_grammar *g) {
    struct lp_matcher *m;
    assert_int_equal(lp_matcher_new(&m, g, NULL), LP_OK);
    return m;
}

static bool allows(struct lp_matcher *m, int32_t id) {
    const uint32_t *mask = lp_matcher_mask(m);
    assert_non_null(mask);
    return mask[id / 32] >> id % 32 & 1;
}

static size_t n_allowed(struct lp_matcher *m) {
    size_t n = 0;
    for (int32_t id = 0; id < N_VOCAB; id++) n += allows(m, id);
    return n;
}

static void accept_text(struct lp_matcher *m, const char *text) {
    for (; *text; text++) {
        if (!allows(m, (unsigned char)*text) || !lp_matcher_accept(m, (unsigned char)*text))
            fail_msg("'%s' is not allowed", text);
    }
}

// ---- control tokens ----

static lp_gb_node text(struct lp_gb *b, const char *t) {
    return lp_gb_text(b, lp_str_from(t));
}

static void control_tokens_are_no_text(void **state) {
    (void)state; // ([a-z]* <call> "x")? and the text "call" is not the token
    struct lp_gb *b = lp_gb_new();
    lp_gb_rule root = lp_gb_declare(b, "root");
    lp_gb_node letter = lp_gb_class(b, (struct lp_gb_range[]){{'a', 'z'}}, 1, false);
    lp_gb_node parts[] = {lp_gb_repeat(b, letter, 0, -1), lp_gb_token(b, CALL), text(b, "x")};
    lp_gb_define(b, root, lp_gb_optional(b, lp_gb_sequence(b, parts, 3)));
    struct lp_grammar *g;
    assert_int_equal(lp_gb_finish(b, root, trie, &g, NULL), LP_OK);
    lp_gb_free(b);
    struct lp_matcher *m = matcher_of(g);
    assert_true(lp_matcher_can_end(m));
    assert_true(allows(m, CALL) && allows(m, 'a') && allows(m, 256) && !allows(m, OTHER));
    assert_false(lp_matcher_accept(m, OTHER));
    accept_text(m, "call");
    assert_false(lp_matcher_can_end(m));
    assert_true(lp_matcher_accept(m, CALL));
    assert_true(allows(m, 'x') && n_allowed(m) == 1);
    assert_false(lp_matcher_accept(m, CALL));
    accept_text(m, "x");
    assert_true(lp_matcher_can_end(m) && n_allowed(m) == 0);
    assert_false(lp_grammar_matches(g, lp_str_from("callx")));
    lp_matcher_free(m);
    lp_grammar_put(g);
}

static void what_the_vocabulary_cannot_write_is_left_out(void **state) {
    (void)state;
    struct lp_gb *b = lp_gb_new();
    lp_gb_rule root = lp_gb_declare(b, "root");
    lp_gb_node wrong = lp_gb_sequence(b, (lp_gb_node[]){text(b, "ab"), lp_gb_token(b, 'a')}, 2);
    lp_gb_define(b, root, lp_gb_choice(b, (lp_gb_node[]){wrong, text(b, "ac")}, 2));
    struct lp_grammar *g;
    assert_int_equal(lp_gb_finish(b, root, trie, &g, NULL), LP_OK);
    lp_gb_free(b);
    struct lp_matcher *m = matcher_of(g);
    accept_text(m, "a"); // "ab" would lead nowhere: 'a' is no control token
    assert_true(n_allowed(m) == 1 && allows(m, 'c'));
    lp_matcher_free(m);
    lp_grammar_put(g);
}

static void ids_out_of_range_are_refused(void **state) {
    (void)state;
    struct lp_grammar *g = gbnf("root ::= .*");
    struct lp_matcher *m = matcher_of(g);
    assert_false(lp_matcher_accept(m, -1));
    assert_false(lp_matcher_accept(m, N_VOCAB));
    assert_false(lp_matcher_accept(m, CALL));
    assert_false(allows(m, 0xF8) || allows(m, 0xC0) || allows(m, 0x80)); // begin no character
    lp_matcher_free(m);
    lp_grammar_put(g);
}

// ---- counts, deep stacks ----

// A string of at most 5000: far from its end every mask is that of an unbounded one, and near to it
// exact to the byte.
static void long_counts_have_few_masks(void **state) {
    (void)state;
    struct lp_grammar *g = gbnf("root ::= \"\\\"\" [a-z]{0,5000} \"\\\"\"");
    struct lp_matcher *m = matcher_of(g);
    accept_text(m, "\"");
    for (int n = 0; n <= 5000; n++) {
        assert_true(allows(m, 'a') == (n < 5000));
        assert_true(allows(m, 256) == (n + 2 <= 5000));
        assert_true(allows(m, 259) == (n + 20 <= 5000));
        assert_true(allows(m, '"'));
        if (n < 5000) assert_true(lp_matcher_accept(m, 'a'));
    }
    size_t n_masks = 0;
    for (struct lp_mask *mask = g->masks.newest; mask; mask = mask->older)
        n_masks += mask->slot != LP_MASK_ALL;
    assert_in_range(n_masks, 1, 100);
    lp_matcher_free(m);
    lp_grammar_put(g);
}

static void brackets_nest_to_the_bound(void **state) {
    (void)state;
    struct lp_grammar *g = gbnf("root ::= \"[\" root \"]\" | \"x\"");
    struct lp_matcher *m = matcher_of(g);
    int depth = 0;
    while (allows(m, '[')) {
        accept_text(m, "[");
        depth++;
    }
    assert_in_range(depth, LP_GRAMMAR_MAX_DEPTH - 2, LP_GRAMMAR_MAX_DEPTH);
    assert_true(allows(m, 'x'));
    accept_text(m, "x");
    for (; depth >= 4; depth -= 4) {
        assert_true(allows(m, 256 + 5));
        assert_true(lp_matcher_accept(m, 256 + 5));
    }
    while (depth-- > 0) accept_text(m, "]");
    assert_true(lp_matcher_can_end(m) && n_allowed(m) == 0);
    lp_matcher_free(m);
    lp_grammar_put(g);
}

// ---- sharing ----

static void masks_are_shared_and_stay_while_looked_at(void **state) {
    (void)state;
    struct lp_grammar *g = gbnf("root ::= [a-z]* \"!\" [0-9]*");
    struct lp_matcher *m = matcher_of(g), *other = matcher_of(g);
    lp_grammar_put(g); // the matchers hold it
    const uint32_t *mask = lp_matcher_mask(m);
    assert_ptr_equal(mask, lp_matcher_mask(other));
    uint32_t before[(N_VOCAB + 31) / 32];
    memcpy(before, mask, sizeof before);
    lp_masks_clear(&g->masks); // as when others need the room
    accept_text(other, "ab!12");
    assert_memory_equal(before, mask, sizeof before);
    assert_ptr_equal(mask, lp_matcher_mask(m));
    lp_matcher_free(m);
    lp_matcher_free(other);
}

// Forgetting all sets, as when there are too many, changes nothing for those who are at one.
static void trimming_keeps_places(void **state) {
    (void)state;
    static const char *const source =
        "root ::= (\"[\" root \"]\" | [ab]{3,200} | \"c\" root \"b\")*";
    struct lp_grammar *g = gbnf(source), *trim_me = gbnf(source);
    struct lp_matcher *m = matcher_of(g), *trimmed = matcher_of(trim_me),
                      *start = matcher_of(trim_me);
    for (const char *t = "c[aaa[bab][aba]a"; *t; t++) {
        lp_masks_clear(&trim_me->masks);
        assert_true(lp_dfa_trim(&trim_me->dfa));
        for (int32_t id = 0; id < N_VOCAB; id++) assert_true(allows(m, id) == allows(trimmed, id));
        assert_true(lp_matcher_accept(m, (unsigned char)*t));
        assert_true(lp_matcher_accept(trimmed, (unsigned char)*t));
        assert_true(lp_matcher_can_end(m) == lp_matcher_can_end(trimmed));
    }
    lp_matcher_free(m);
    accept_text(start, "aaa");
    lp_matcher_free(trimmed);
    lp_matcher_free(start);
    lp_grammar_put(g);
    lp_grammar_put(trim_me);
}

// ---- failures ----

static void too_ambiguous_grammars_are_cut_in_time(void **state) {
    (void)state; // 2^n ways through n brackets
    struct lp_grammar *g = gbnf("root ::= \"[\" root x root | \"[\" root y root | \"a\"\n"
                                "x ::= \"1\"?\ny ::= \"2\"?");
    struct lp_matcher *m = matcher_of(g);
    clock_t start = clock();
    int depth = 0, n = 0;
    // Where the ways become too many they are given up one after the other; an end is always left.
    for (; n < 400 && !lp_matcher_can_end(m); n++) {
        int32_t id = n < 30 && allows(m, '[') ? '[' : 'a';
        depth += id == '[';
        assert_true(lp_matcher_accept(m, id));
    }
    if (!lp_matcher_can_end(m)) fail_msg("%d steps, %d brackets", n, depth);
    assert_true(g->dfa.was_cut && depth > 5 && lp_matcher_can_end(m));
    assert_true((double)(clock() - start) / CLOCKS_PER_SEC < 60);
    lp_matcher_free(m);
    lp_grammar_put(g);
}

static void survives_any_allocation_failure(void **state) {
    (void)state;
    bool done = false;
    for (size_t n = 1; !done; n++) {
        struct lp_grammar *g =
            gbnf("root ::= \"[\" [a-c]{2,300} root? \"]\" | \"\\\"\" .* \"\\\"\"");
        struct lp_matcher *m = NULL;
        lp_alloc_fail_after(n);
        if (lp_matcher_new(&m, g, NULL) == LP_OK) {
            bool ok = lp_matcher_mask(m) != NULL && lp_matcher_accept(m, '[');
            if (!ok) assert_non_null(strstr(lp_matcher_failure(m), "memory"));
            done = ok && lp_matcher_mask(m);
        }
        lp_alloc_fail_after(0);
        if (m && !done)
            assert_non_null(lp_matcher_mask(m)); // it goes on when there is memory again
        lp_matcher_free(m);
        lp_grammar_put(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(control_tokens_are_no_text),
        cmocka_unit_test(what_the_vocabulary_cannot_write_is_left_out),
        cmocka_unit_test(ids_out_of_range_are_refused),
        cmocka_unit_test(long_counts_have_few_masks),
        cmocka_unit_test(brackets_nest_to_the_bound),
        cmocka_unit_test(masks_are_shared_and_stay_while_looked_at),
        cmocka_unit_test(trimming_keeps_places),
        cmocka_unit_test(too_ambiguous_grammars_are_cut_in_time),
        cmocka_unit_test(survives_any_allocation_failure),
    };
    return cmocka_run_group_tests(tests, make_trie, free_trie);
}
