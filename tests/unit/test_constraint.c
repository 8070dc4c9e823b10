#include "lp_test.h"

#include "engine/constraint.h"

// Tokens 0 to 255: the bytes. Then the end token, a stop token of the request, a marker.
enum { END = 256, STOP, MARKER, N_VOCAB };

static bool token_bytes(void *user, int32_t id, struct lp_bytes *out) {
    char byte = (char)id;
    (void)user;
    return id < 256 && lp_bytes_append(out, &byte, 1);
}

static struct lp_token_trie *trie;
static bool never[N_VOCAB];

static int make_trie(void **state) {
    (void)state;
    never['c'] = true;
    return lp_token_trie_new(&trie, N_VOCAB, token_bytes, NULL, NULL, NULL);
}

static int free_trie(void **state) {
    (void)state;
    lp_token_trie_free(trie);
    return 0;
}

static struct lp_constraint *constraint_of(const char *gbnf, int32_t after, const int32_t *ends,
                                           size_t n_ends, size_t n_finals) {
    struct lp_constraint_params params = {.after = after,
                                          .n_vocab = N_VOCAB,
                                          .never = never,
                                          .ends = ends,
                                          .n_ends = n_ends,
                                          .n_finals = n_finals};
    struct lp_constraint *c;
    assert_int_equal(lp_grammar_compile(&params.grammar, LP_GRAMMAR_GBNF, lp_str_from(gbnf), trie,
                                        NULL, NULL, NULL),
                     LP_OK);
    assert_int_equal(lp_constraint_new(&c, &params, NULL), LP_OK);
    lp_grammar_put(params.grammar);
    return c;
}

// The ids that may come next are these, and no others; -1 ends the list.
static void check_allowed(struct lp_constraint *c, const int32_t *ids) {
    bool is_over, want[N_VOCAB] = {false};
    struct lp_err err;
    if (lp_constraint_next(c, &is_over, &err)) fail_msg("%s", err.text);
    assert_false(is_over);
    for (; *ids >= 0; ids++) want[*ids] = true;
    for (int32_t id = 0; id < N_VOCAB; id++)
        if ((lp_constraint_allowed(c)[id / 32] >> id % 32 & 1) != want[id])
            fail_msg("token %d", id);
}
#define IDS(...)                                                                                   \
    (const int32_t[]) {                                                                            \
        __VA_ARGS__, -1                                                                            \
    }

static void take(struct lp_constraint *c, int32_t id) {
    struct lp_err err;
    if (lp_constraint_accept(c, id, &err)) fail_msg("%s", err.text);
}

static void the_end_comes_when_it_is_whole(void **state) {
    (void)state;
    struct lp_constraint *c = constraint_of("root ::= \"a\" \"b\"?", -1, IDS(STOP, END), 2, 2);
    check_allowed(c, IDS('a'));
    take(c, 'a');
    check_allowed(c, IDS('b', STOP, END));
    take(c, 'b');
    check_allowed(c, IDS(STOP, END));
    take(c, END);
    lp_constraint_free(c);
}

static void without_end_tokens_it_is_over(void **state) {
    (void)state;
    struct lp_constraint *c = constraint_of("root ::= \"a\" \"b\"?", -1, IDS(END), 1, 0);
    bool is_over;
    take(c, 'a');
    check_allowed(c, IDS('b')); // END may not come (ignore_eos)
    take(c, 'b');
    assert_int_equal(lp_constraint_next(c, &is_over, NULL), LP_OK);
    assert_true(is_over);
    lp_constraint_free(c);
}

static void behind_a_marker_only(void **state) {
    (void)state;
    struct lp_constraint *c = constraint_of("root ::= \"a\"", MARKER, IDS(STOP, END), 2, 2);
    for (int i = 0; i < 3; i++) {
        bool is_over;
        assert_int_equal(lp_constraint_next(c, &is_over, NULL), LP_OK);
        for (int32_t id = 0; id < N_VOCAB; id++) // all but what is never generated, and the ends
            assert_int_equal(lp_constraint_allowed(c)[id / 32] >> id % 32 & 1,
                             id != 'c' && id != STOP && id != END);
        take(c, 'x');
    }
    take(c, MARKER);
    check_allowed(c, IDS('a'));
    lp_constraint_free(c);
}

static void a_stop_token_of_text_waits_for_the_end(void **state) {
    (void)state;
    struct lp_constraint *c = constraint_of("root ::= [ab]{2}", -1, IDS('a', END), 2, 2);
    check_allowed(c, IDS('b'));
    take(c, 'b');
    take(c, 'b');
    check_allowed(c, IDS('a', END));
    lp_constraint_free(c);
    c = constraint_of("root ::= \"aa\"", -1, IDS('a', END), 2, 2);
    struct lp_err err;
    bool is_over;
    assert_int_equal(lp_constraint_next(c, &is_over, &err), LP_STATUS_INVALID);
    assert_non_null(strstr(err.text, "stop tokens"));
    lp_constraint_free(c);
}

static void what_is_not_allowed_is_an_error(void **state) {
    (void)state;
    struct lp_constraint *c = constraint_of("root ::= \"a\"", -1, IDS(END), 1, 1);
    struct lp_err err;
    assert_int_equal(lp_constraint_accept(c, 'x', &err), LP_STATUS_INVALID);
    assert_non_null(strstr(err.text, "does not allow"));
    check_allowed(c, IDS('a'));
    lp_constraint_free(c);
    lp_constraint_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_end_comes_when_it_is_whole),
        cmocka_unit_test(without_end_tokens_it_is_over),
        cmocka_unit_test(behind_a_marker_only),
        cmocka_unit_test(a_stop_token_of_text_waits_for_the_end),
        cmocka_unit_test(what_is_not_allowed_is_an_error),
    };
    return cmocka_run_group_tests(tests, make_trie, free_trie);
}
