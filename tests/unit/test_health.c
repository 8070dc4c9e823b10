// The figures of what a model says, on scores made by hand.
#include "lp_test.h"

#include <math.h>

#include "doctor/health.h"

#define FLOOR (-4.0)

static struct lp_passage two[2] = {{.name = "a", .n_tokens = 5, .first_scored = 2},
                                   {.name = "b", .n_tokens = 4, .first_scored = 3}};
static const struct lp_passages passages = {.list = two, .n = 2, .n_tokens = 9, .n_scored = 4};

static void test_measure(void **state) {
    (void)state;
    float logprob[] = {0, -1, -2, -4}, entropy[] = {0, 1, NAN, 2};
    int32_t rank[] = {0, 0, 5, 30};
    struct lp_scores scores = {
        .n = 4, .logprob = logprob, .rank = rank, .entropy = entropy, .n_bad = 1, .max_logit = 7};
    struct lp_health h;
    lp_health_measure(&passages, &scores, FLOOR, 100, &h);
    assert_float_equal(h.mean_logprob, -1.75, 1e-9);
    assert_float_equal(h.first, 0.5, 1e-9);
    assert_float_equal(h.ten, 0.75, 1e-9);
    assert_float_equal(h.bad, 0.25, 1e-9);
    assert_float_equal(h.entropy, 1 / log(100), 1e-9); // of the finite ones
    // text a: mean -1, 1 - 1/4; text b: at the floor. Fewer texts than are asked for: all count.
    assert_float_equal(h.skill, (0.75 + 0) / 2, 1e-9);
    assert_float_equal(h.median_skill, 0.375, 1e-9);
    assert_int_equal(h.n_texts, 2);
}

static void test_skills_take_the_best(void **state) {
    (void)state;
    struct lp_passage list[5];
    float logprob[] = {-4, -1, -2, -3, 0}, entropy[5] = {0};
    int32_t rank[5] = {0};
    for (int i = 0; i < 5; i++) list[i] = (struct lp_passage){.n_tokens = 2, .first_scored = 1};
    struct lp_passages p = {.list = list, .n = 5, .n_tokens = 10, .n_scored = 5};
    struct lp_scores scores = {.n = 5, .logprob = logprob, .rank = rank, .entropy = entropy};
    struct lp_health h;
    lp_health_measure(&p, &scores, FLOOR, 100, &h);
    assert_float_equal(h.skill, (1 + 0.75 + 0.5) / 3, 1e-9);
    assert_float_equal(h.median_skill, 0.5, 1e-9);
}

static void test_gain(void **state) {
    (void)state;
    // Half the surprise at every token: log 2, the same in each text, so its error is nil.
    float before[] = {-1, -2, -0.5f, -4}, after[] = {-0.5f, -1, -0.25f, -2};
    struct lp_gain gain = lp_health_gain(&passages, before, after);
    assert_float_equal(gain.mean, log(2), 1e-6);
    gain = lp_health_gain(&passages, before, before);
    assert_float_equal(gain.mean, 0, 1e-12);
    assert_float_equal(gain.z, 0, 1e-12);
    // Text a (three tokens) halves, text b doubles: means log 2 and -log 2; per token (3 - 1) / 4.
    float mixed[] = {-0.5f, -1, -0.25f, -8};
    gain = lp_health_gain(&passages, before, mixed);
    assert_float_equal(gain.mean, log(2) / 2, 1e-6);
    assert_float_equal(gain.z, 0, 1e-6);
    // Certainty beyond 1e-6 does not count.
    assert_float_equal(lp_health_doubt(-1e-9), log(1e-6), 1e-9);
    assert_float_equal(lp_health_doubt(-1), 0, 1e-12);
}

static void test_gain_z(void **state) {
    (void)state;
    // Three texts of one token with gains 1, 2, 3: mean 2, standard error 1 / sqrt 3.
    struct lp_passage list[3];
    for (int i = 0; i < 3; i++) list[i] = (struct lp_passage){.n_tokens = 2, .first_scored = 1};
    struct lp_passages p = {.list = list, .n = 3, .n_tokens = 6, .n_scored = 3};
    float before[] = {-1, -1, -1}, after[] = {-expf(-1), -expf(-2), -expf(-3)};
    struct lp_gain gain = lp_health_gain(&p, before, after);
    assert_float_equal(gain.mean, 2, 1e-6);
    assert_float_equal(gain.z, 2 * sqrt(3), 1e-5);
}

static void test_circles(void **state) {
    (void)state;
    const int32_t none[] = {1, 2, 3, 4, 5}, one[] = {1, 2, 7, 7, 7, 7}, two_[] = {9, 1, 2, 1, 2, 1};
    struct lp_circles c = lp_health_circles(none, 5);
    assert_int_equal(c.distinct, 5);
    assert_int_equal(c.period, 0);
    c = lp_health_circles(one, 6);
    assert_int_equal(c.distinct, 3);
    assert_int_equal(c.period, 1);
    assert_int_equal(c.repeated, 4);
    c = lp_health_circles(two_, 6);
    assert_int_equal(c.period, 2);
    assert_int_equal(c.repeated, 5);
    assert_int_equal(lp_health_circles(none, 0).distinct, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_measure), cmocka_unit_test(test_skills_take_the_best),
        cmocka_unit_test(test_gain), cmocka_unit_test(test_gain_z), cmocka_unit_test(test_circles)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
