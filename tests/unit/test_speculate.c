// The switch of drafting against simulated steps, whose speed is known.
#include "lp_test.h"

#include "base/log.h"
#include "base/rng.h"
#include "engine/speculate.h"

struct machine {     // a step's time and what it gives
    double plain_s;  // one token
    double verify_s; // with drafts
    double make_s;   // making the next drafts; part of both while drafting is on
    double accepted; // drafts that come true, on average (0 to 4)
    double noise;    // of the times, relative
    double prompts;  // share of the steps that have prompt tokens
};

struct result {
    int64_t off_after; // steps until the first switch; -1: never
    int64_t n_off, n_drafted, n_calibrated;
};

static struct result simulate(struct lp_speculation *s, const struct machine *m, int64_t n_steps,
                              uint64_t seed) {
    struct result r = {.off_after = -1};
    struct lp_rng rng;
    lp_rng_init(&rng, seed);
    for (int64_t i = 0; i < n_steps; i++) {
        bool calibrate, drafts = lp_speculation_wants(s, &calibrate);
        assert_false(drafts && calibrate);
        assert_true(drafts || calibrate || !s->on);
        r.n_drafted += drafts;
        r.n_calibrated += calibrate;
        r.n_off += !drafts && !calibrate;
        if (lp_rng_unit(&rng) < m->prompts) continue; // is not noted
        if (!drafts && !calibrate) continue;
        double factor = 1 + m->noise * (2 * lp_rng_unit(&rng) - 1);
        double tokens =
            drafts ? 1 + (m->accepted > 0 ? 2 * m->accepted * lp_rng_unit(&rng) : 0) : 1;
        double step_s = ((drafts ? m->verify_s : m->plain_s) + m->make_s) * factor;
        lp_speculation_note(s, drafts, tokens, step_s, m->make_s * factor);
        if (!s->on && r.off_after < 0) r.off_after = i + 1;
    }
    return r;
}

static void losing_is_turned_off_soon(void **state) {
    (void)state;
    const struct machine machines[] = {
        {.plain_s = 0.010, .verify_s = 0.030, .make_s = 0.002, .accepted = 0.5, .noise = 0.2},
        {.plain_s = 0.010, .verify_s = 0.011, .make_s = 0.001, .accepted = 0, .noise = 0.2},
        {.plain_s = 0.010, .verify_s = 0.010, .make_s = 0.010, .accepted = 0.5, .noise = 0.2}};
    for (size_t k = 0; k < sizeof machines / sizeof machines[0]; k++)
        for (uint64_t seed = 1; seed <= 50; seed++) {
            struct lp_speculation s;
            lp_speculation_init(&s, 3);
            struct result r = simulate(&s, &machines[k], 1000, seed);
            assert_in_range(r.off_after, 1, 200);
            assert_int_equal(s.n_switches, 1);
            assert_false(s.on);
        }
}

static void winning_stays_on(void **state) {
    (void)state;
    const struct machine machines[] = {
        {.plain_s = 0.010, .verify_s = 0.012, .make_s = 0.001, .accepted = 1.5, .noise = 0.2},
        {.plain_s = 0.010, .verify_s = 0.020, .make_s = 0.004, .accepted = 3, .noise = 0.2},
        // Not far from the edge: 1.6 tokens in 1.3 times the time.
        {.plain_s = 0.010, .verify_s = 0.012, .make_s = 0.001, .accepted = 0.6, .noise = 0.1}};
    for (size_t k = 0; k < sizeof machines / sizeof machines[0]; k++)
        for (uint64_t seed = 1; seed <= 50; seed++) {
            struct lp_speculation s;
            lp_speculation_init(&s, 3);
            struct result r = simulate(&s, &machines[k], 5000, seed);
            assert_int_equal(r.off_after, -1);
            assert_int_equal(s.n_switches, 0);
            assert_int_equal(r.n_off, 0);
            assert_in_range(r.n_calibrated, 5000 / 40,
                            5000 / 25); // few steps are lost to measuring
        }
}

static void what_was_off_is_tried_again(void **state) {
    (void)state;
    const struct machine bad = {.plain_s = 1, .verify_s = 3, .make_s = 0.1, .accepted = 0.5};
    const struct machine good = {.plain_s = 1, .verify_s = 1.1, .make_s = 0.1, .accepted = 2};
    struct lp_speculation s;
    lp_speculation_init(&s, 2);
    struct result r = simulate(&s, &bad, 300, 1);
    assert_false(s.on);
    r = simulate(&s, &good, 10000, 2);
    assert_true(s.on);
    assert_int_equal(s.n_switches, 2);
    assert_in_range(r.n_off, 1000, 5000);
    // Where it goes on losing, what is lost to trying is little.
    lp_speculation_init(&s, 2);
    r = simulate(&s, &bad, 100000, 3);
    assert_true(s.n_switches > 10);
    assert_in_range(r.n_drafted, 1, 100000 / 20);
}

// Steps with prompts are not compared; they must not keep drafting from being used, or judged.
static void prompts_beside_answers(void **state) {
    (void)state;
    const struct machine bad = {
        .plain_s = 1, .verify_s = 3, .make_s = 0.1, .accepted = 0.5, .prompts = 0.5};
    const struct machine always = {
        .plain_s = 1, .verify_s = 1.1, .make_s = 0.1, .accepted = 2, .prompts = 1};
    struct lp_speculation s;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        lp_speculation_init(&s, 3);
        struct result r = simulate(&s, &bad, 2000, seed);
        assert_in_range(r.off_after, 1, 1000);
        for (int64_t lead = 0; lead < 40; lead++) { // wherever it stood when the prompts came
            const struct machine good = {.plain_s = 1, .verify_s = 1.1, .accepted = 2};
            lp_speculation_init(&s, 3);
            simulate(&s, &good, lead, seed);
            r = simulate(&s, &always, 1000, seed);
            assert_true(r.n_drafted > 900);
        }
    }
}

// One unlucky step behind many plain ones says nothing yet.
static void one_step_is_no_judgement(void **state) {
    (void)state;
    struct lp_speculation s;
    bool calibrate;
    lp_speculation_init(&s, 3);
    for (int i = 0; i < 100;
         i++) { // nothing could be drafted: the sequences lack the layer's state
        lp_speculation_wants(&s, &calibrate);
        lp_speculation_note(&s, false, 1, 0.01, 0);
    }
    lp_speculation_wants(&s, &calibrate);
    lp_speculation_note(&s, true, 1, 0.02, 0.001);
    assert_true(s.on);
}

static void without_drafts_it_is_never_on(void **state) {
    (void)state;
    struct lp_speculation s;
    bool calibrate = true;
    lp_speculation_init(&s, 0);
    for (int i = 0; i < 10000; i++) {
        assert_false(lp_speculation_wants(&s, &calibrate));
        assert_false(calibrate);
        assert_false(s.on);
    }
    assert_int_equal(s.n_switches, 0);
}

// How acceptance falls from place to place, and that a poor first place is told of once.
static void acceptance_is_counted_by_place(void **state) {
    (void)state;
    struct lp_speculation s;
    lp_speculation_init(&s, 3);
    lp_speculation_count(&s, 3, 2);
    lp_speculation_count(&s, 2, 0);
    lp_speculation_count(&s, 0, 0); // nothing was drafted
    lp_speculation_count(&s, 3, 3);
    const uint64_t drafted[] = {3, 3, 2, 0}, accepted[] = {2, 2, 1, 0};
    assert_memory_equal(s.drafted_at, drafted, sizeof drafted);
    assert_memory_equal(s.accepted_at, accepted, sizeof accepted);
    assert_int_equal(s.n_drafted, 8);
    assert_int_equal(s.n_accepted, 5);
    assert_false(s.has_warned);
}

static void seldom_right_first_drafts_are_warned_of(void **state) {
    (void)state;
    struct lp_speculation s;
    lp_speculation_init(&s, 1);
    for (int i = 0; i < 1000; i++) lp_speculation_count(&s, 1, i % 5 < 2); // 40 of 100
    assert_false(s.has_warned);
    lp_speculation_init(&s, 2);
    for (int i = 0; i < 199; i++) lp_speculation_count(&s, 2, i % 3 == 0);
    assert_false(s.has_warned); // too few to say
    lp_speculation_count(&s, 2, 0);
    assert_true(s.has_warned);
}

static int quiet(void **state) {
    (void)state;
    lp_log_set_level(LP_LOG_ERROR);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(losing_is_turned_off_soon),
                                       cmocka_unit_test(winning_stays_on),
                                       cmocka_unit_test(what_was_off_is_tried_again),
                                       cmocka_unit_test(prompts_beside_answers),
                                       cmocka_unit_test(one_step_is_no_judgement),
                                       cmocka_unit_test(without_drafts_it_is_never_on),
                                       cmocka_unit_test(acceptance_is_counted_by_place),
                                       cmocka_unit_test(seldom_right_first_drafts_are_warned_of)};
    return cmocka_run_group_tests(tests, quiet, NULL);
}
