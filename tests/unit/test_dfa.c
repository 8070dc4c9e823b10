#include "lp_test.h"

#include "base/alloc.h"
#include "grammar/grammar_parts.h"

static struct lp_grammar *gbnf(const char *text) {
    struct lp_grammar *g;
    struct lp_err err;
    if (lp_grammar_compile(&g, LP_GRAMMAR_GBNF, lp_str_from(text), NULL, NULL, NULL, &err))
        fail_msg("%s", err.text);
    return g;
}

static uint32_t step_text(struct lp_dfa *d, uint32_t set, const char *text) {
    lp_dfa_begin(d);
    for (; *text && set; text++) set = lp_dfa_step(d, set, (uint8_t)*text);
    return set;
}

static void the_same_place_is_the_same_set(void **state) {
    (void)state;
    struct lp_grammar *g =
        gbnf("root ::= (\"a\" x | \"b\" x | \"(\" root \")\")*\nx ::= \"x\" \"y\"?");
    struct lp_dfa *d = &g->dfa;
    assert_int_equal(step_text(d, d->start, "axy"), step_text(d, d->start, "bxyaxy"));
    assert_int_equal(step_text(d, d->start, "(ax"), step_text(d, d->start, "bx(bxax"));
    assert_int_not_equal(step_text(d, d->start, "(ax"), step_text(d, d->start, "((ax"));
    assert_int_equal(step_text(d, d->start, "((ax)"), step_text(d, d->start, "(ax()"));
    assert_int_equal(step_text(d, d->start, "(ay"), LP_SET_DEAD);
    assert_int_equal(step_text(d, LP_SET_DEAD, "a"), LP_SET_DEAD);
    assert_int_equal(d->failure, LP_DFA_OK);
    size_t n = d->sets.n_sets;
    step_text(d, d->start, "(ax(bxy)");
    step_text(d, d->start, "(ax(bxy)");
    size_t grown = d->sets.n_sets;
    step_text(d, d->start, "(ax(bxy)");
    assert_true(grown >= n && d->sets.n_sets == grown);
    lp_grammar_put(g);
}

static void holders_survive_trimming(void **state) {
    (void)state;
    struct lp_grammar *g = gbnf("root ::= \"[\" [a-z]{5,900} root? \"]\"");
    struct lp_dfa *d = &g->dfa;
    struct lp_dfa_holder holders[3];
    static const char *const texts[] = {"", "[abcdefg", "[abcdef[aaaaa]"};
    static const char *const rests[] = {"[aaaaa]", "[bbbbb]]", "]"};
    for (int i = 0; i < 3; i++) {
        lp_dfa_hold(d, &holders[i]);
        holders[i].set = step_text(d, holders[i].set, texts[i]);
    }
    for (int n = 0; n < 800; n++) step_text(d, holders[1].set, "a");
    size_t before = lp_config_sets_bytes(&d->sets);
    lp_dfa_drop(d, &holders[0]);
    lp_dfa_hold(d, &holders[0]);
    assert_true(lp_dfa_trim(d));
    assert_true(lp_config_sets_bytes(&d->sets) <= before);
    for (int i = 0; i < 3; i++) {
        uint32_t end = step_text(d, holders[i].set, rests[i]);
        assert_true(end > LP_SET_DEAD && d->sets.sets[end].can_end);
    }
    lp_dfa_drop(d, &holders[1]);
    lp_dfa_drop(d, &holders[2]);
    lp_dfa_drop(d, &holders[0]);
    assert_null(d->holders);
    lp_grammar_put(g);
}

static void a_failed_trim_changes_nothing(void **state) {
    (void)state;
    struct lp_grammar *g = gbnf("root ::= \"[\" [a-z]{5,900} root? \"]\"");
    struct lp_dfa *d = &g->dfa;
    struct lp_dfa_holder holder;
    lp_dfa_hold(d, &holder);
    holder.set = step_text(d, holder.set, "[abcdef[aaaaa");
    bool done = false;
    for (size_t n = 1; !done; n++) {
        uint32_t before = holder.set;
        lp_alloc_fail_after(n);
        done = lp_dfa_trim(d);
        lp_alloc_fail_after(0);
        if (!done) assert_int_equal(holder.set, before);
        uint32_t end = step_text(d, holder.set, "]]");
        assert_true(d->sets.sets[end].can_end);
    }
    lp_dfa_drop(d, &holder);
    lp_grammar_put(g);
}

// A long text with a count makes a set for each number; memory stays bounded.
static void memory_stays_bounded(void **state) {
    (void)state;
    struct lp_grammar *g =
        gbnf("root ::= (\"[\" ([a-m] | [n-z]){0,9999} \"]\" | \"{\" [a-z]{0,8000} \"}\")*");
    struct lp_bytes text = {0};
    for (int i = 0; i < 20; i++) {
        lp_bytes_puts(&text, i % 2 ? "{" : "[");
        for (int n = 0; n < 7000 + i; n++) lp_bytes_puts(&text, n % 3 ? "a" : "z");
        lp_bytes_puts(&text, i % 2 ? "}" : "]");
        assert_true(lp_grammar_matches(g, lp_bytes_view(&text)));
        assert_true(lp_config_sets_bytes(&g->dfa.sets) < (size_t)20 << 20);
    }
    lp_bytes_release(&text);
    lp_grammar_put(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_place_is_the_same_set),
        cmocka_unit_test(holders_survive_trimming),
        cmocka_unit_test(a_failed_trim_changes_nothing),
        cmocka_unit_test(memory_stays_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
