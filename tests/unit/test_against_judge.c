// What counts as a fault between two engines, on streams whose differences are known.
#include <math.h>

#include "lp_test.h"

#include "doctor/against.h"

#define N 40
#define LAYERS 8
#define WIDTH 16.0 // norm of the stream; each layer adds a quarter of it

struct stream {
    struct lp_claim list[LAYERS + 1];
    double sums[LAYERS + 1][4][N];
    struct lp_claims claims;
};

// Layer l differs from the dump by own[l] of what it adds, and passes on what came in.
static void make(struct stream *s, const double *own) {
    memset(s, 0, sizeof *s);
    s->claims.list = s->list;
    s->claims.n = LAYERS + 1;
    s->claims.n_tokens = N;
    for (int i = 0; i <= LAYERS; i++) {
        struct lp_claim *c = &s->list[i];
        *c = (struct lp_claim){.point = i ? LP_PROBE_LAYER_OUT : LP_PROBE_EMBED,
                               .layer = i - 1,
                               .in_stream = true,
                               .seen = true,
                               .diff = s->sums[i][0],
                               .norm = s->sums[i][1],
                               .added_diff = s->sums[i][2],
                               .added_norm = s->sums[i][3]};
        for (int p = 0; p < N; p++) {
            double added = WIDTH / 4, error = i ? own[i - 1] * added : 0,
                   before = i ? s->sums[i - 1][0][p] : 0;
            c->norm[p] = WIDTH * WIDTH;
            c->added_norm[p] = i ? added * added : c->norm[p];
            c->added_diff[p] = error * error;
            c->diff[p] = before + error * error;
        }
    }
}

// The layer that is accused, or -1.
static int accused(struct stream *s, double bits) {
    bool bad[N];
    struct lp_against_bound bound = lp_against_bound(&s->claims, bits);
    for (int i = 0; i <= LAYERS; i++)
        if (lp_against_judge_stream(&s->claims, &s->list[i], i ? &s->list[i - 1] : NULL, bound,
                                    bad))
            return i - 1;
    return -1;
}

static void precision_is_seen_from_the_layers(void **state) {
    (void)state;
    struct stream s;
    const double exact[LAYERS] = {1e-6, 3e-6, 2e-6, 1e-6, 4e-6, 9e-6, 2e-6, 1e-6};
    const double bf16[LAYERS] = {4e-3, 9e-3, 7e-3, 5e-3, 2e-2, 9e-3, 8e-3, 7e-3};
    const double q4[LAYERS] = {5e-2, 9e-2, 8e-2, 6e-2, 7e-2, 9e-2, 0.12, 0.1};
    make(&s, exact);
    assert_int_equal(accused(&s, 16), -1);
    make(&s, bf16);
    assert_int_equal(accused(&s, 16), -1);
    make(&s, q4);
    assert_int_equal(accused(&s, 4.5), -1);
    const double too_much[LAYERS] = {0.11, 0.12, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1};
    make(&s, too_much);
    assert_int_equal(accused(&s, 16), 0); // from 16 bits a weight that is no rounding
    const double everywhere[LAYERS] = {0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3};
    make(&s, everywhere);
    assert_int_equal(accused(&s, 4.5), 0);
}

static void a_layer_that_stands_out_is_accused(void **state) {
    (void)state;
    for (int layer = 0; layer < LAYERS; layer++) {
        struct stream s;
        double own[LAYERS];
        for (int i = 0; i < LAYERS; i++) own[i] = 2e-6;
        own[layer] = 5e-3; // small, but the others are exact
        make(&s, own);
        assert_int_equal(accused(&s, 16), layer);
        for (int i = 0; i < LAYERS; i++) own[i] = 8e-3;
        own[layer] = 1.0;
        make(&s, own);
        assert_int_equal(accused(&s, 16), layer);
    }
}

static void what_came_in_may_grow(void **state) {
    (void)state;
    struct stream s;
    double own[LAYERS] = {0};
    for (int i = 0; i < LAYERS; i++) own[i] = 2e-6;
    own[3] = 0.5;
    for (int i = 4; i < LAYERS; i++) own[i] = 0.4; // behind the fault all layers differ
    make(&s, own);
    assert_int_equal(accused(&s, 16), 3);
    bool bad[N];
    struct lp_against_bound bound = lp_against_bound(&s.claims, 16);
    assert_false(lp_against_judge_stream(&s.claims, &s.list[5], &s.list[4], bound, bad));
}

static void single_positions_are_no_fault(void **state) {
    (void)state;
    bool bad[N] = {false};
    assert_false(lp_against_is_fault(bad, N, 0.25));
    bad[3] = bad[17] = bad[30] = true;
    assert_false(lp_against_is_fault(bad, N, 0.25));
    for (int p = 0; p < 10; p++) bad[p * 3] = true; // a quarter
    assert_true(lp_against_is_fault(bad, N, 0.25));
    memset(bad, 0, sizeof bad);
    for (int p = N - 4; p < N; p++) bad[p] = true; // all from a position on
    assert_true(lp_against_is_fault(bad, N, 0.25));
    bad[1] = true;
    assert_true(lp_against_is_fault(bad, N, 0.25));
    memset(bad, 0, sizeof bad);
    for (int p = N - 3; p < N; p++) bad[p] = true;
    assert_false(lp_against_is_fault(bad, N, 0.25));
    bool one = true;
    assert_true(lp_against_is_fault(&one, 1, 0.5));
}

static void what_is_not_finite_is_a_fault(void **state) {
    (void)state;
    struct stream s;
    const double exact[LAYERS] = {1e-6, 1e-6, 1e-6, 1e-6, 1e-6, 1e-6, 1e-6, 1e-6};
    make(&s, exact);
    for (int p = 0; p < N; p++) s.list[5].diff[p] = s.list[5].added_diff[p] = INFINITY;
    assert_int_equal(accused(&s, 16), 4);
    const double diff[] = {0, 4, 4, INFINITY}, norm[] = {0, 16, 0, 1};
    assert_true(lp_claim_relative(diff, norm, 0) == 0);
    assert_true(lp_claim_relative(diff, norm, 1) == 0.5);
    assert_true(isinf(lp_claim_relative(diff, norm, 2)));
    assert_true(isinf(lp_claim_relative(diff, norm, 3)));
    double values[] = {3, 1, 2};
    assert_true(lp_claims_median(values, 3) == 2);
    assert_true(isnan(lp_claims_median(values, 0)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(precision_is_seen_from_the_layers),
        cmocka_unit_test(a_layer_that_stands_out_is_accused),
        cmocka_unit_test(what_came_in_may_grow),
        cmocka_unit_test(single_positions_are_no_fault),
        cmocka_unit_test(what_is_not_finite_is_a_fault),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
