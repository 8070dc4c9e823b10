// Expert choice: exact cases with values from the definition by hand, random rows against ref and
// against a formula in double, ties, NaN, groups, and the same bits for any number of rows and
// threads.
#include "attn_fixture.h"

struct router_case {
    int32_t n_experts, n_used, n_groups, n_groups_used;
    enum lp_gating gating;
    enum lp_group_score group_score;
    bool bias, normalise;
    float scale;
};

static const struct router_case cases[] = {
    {1, 1, 1, 1, LP_GATING_SOFTMAX, LP_GROUP_MAX, false, false, 1.0f},
    {8, 2, 1, 1, LP_GATING_SOFTMAX, LP_GROUP_MAX, false, true, 1.0f},
    {64, 6, 1, 1, LP_GATING_SOFTMAX, LP_GROUP_MAX, false, false, 1.0f},
    {160, 6, 8, 3, LP_GATING_SOFTMAX, LP_GROUP_MAX, false, false, 16.0f},
    {256, 8, 8, 4, LP_GATING_SIGMOID, LP_GROUP_TOP2_SUM, true, true, 2.5f},
    {256, 8, 1, 1, LP_GATING_SIGMOID, LP_GROUP_TOP2_SUM, true, true, 2.5f},
    {32, 4, 1, 1, LP_GATING_SOFTMAX_SELECTED, LP_GROUP_MAX, true, false, 1.0f},
    {12, 3, 12, 5, LP_GATING_SIGMOID, LP_GROUP_TOP2_SUM, true, false, 1.0f}, // groups of one
};

static void route(struct lp_device *dev, const struct router_case *c, const float *logits,
                  int64_t stride, int64_t n_rows, const float *bias, int32_t *ids, float *weights) {
    struct lp_op_router op = {.logits = logits,
                              .logits_stride = stride,
                              .n_rows = n_rows,
                              .bias = c->bias ? bias : NULL,
                              .n_experts = c->n_experts,
                              .n_used = c->n_used,
                              .n_groups = c->n_groups,
                              .n_groups_used = c->n_groups_used,
                              .gating = c->gating,
                              .group_score = c->group_score,
                              .normalise = c->normalise,
                              .scale = c->scale,
                              .ids = ids,
                              .weights = weights};
    dev->backend->router(dev, &op);
}

static struct lp_reserve reserve(const struct router_case *c, int64_t n_rows) {
    return (struct lp_reserve){.n_rows = n_rows,
                               .max_width = c->n_experts,
                               .n_experts = c->n_experts,
                               .n_used = c->n_used};
}

// The weights of given ids, in double.
static void expected_weights(const struct router_case *c, const float *z, const int32_t *ids,
                             double *w) {
    double max = -INFINITY, sum = 0, total = 0;
    for (int32_t e = 0; e < c->n_experts; e++)
        if (z[e] > max) max = z[e];
    for (int32_t e = 0; e < c->n_experts; e++) sum += exp(z[e] - max);
    for (int32_t j = 0; j < c->n_used; j++) {
        double x = z[ids[j]];
        w[j] = c->gating == LP_GATING_SIGMOID ? 1 / (1 + exp(-x)) : exp(x - max) / sum;
        total += w[j];
    }
    bool divide = c->normalise || c->gating == LP_GATING_SOFTMAX_SELECTED;
    for (int32_t j = 0; j < c->n_used; j++) w[j] *= c->scale / (divide ? total : 1);
}

#define ROWS 37
static void test_random(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct router_case *c = &cases[i];
        struct lp_rng rng;
        struct devices d;
        lp_rng_init(&rng, 700 + i);
        struct lp_reserve need = reserve(c, ROWS);
        open_devices(&d, &need);
        int64_t stride = c->n_experts + 1, n = ROWS * c->n_used;
        float *logits = random_floats(&rng, ROWS * stride, 1.5f),
              *bias = random_floats(&rng, c->n_experts, 0.1f);
        int32_t *ref_ids = new_array(n, sizeof *ref_ids), *ids = new_array(n, sizeof *ids);
        float *first = new_output(ROWS, c->n_used), *weights = new_output(ROWS, c->n_used);
        route(d.dev[0], c, logits, stride, ROWS, bias, ref_ids, first);
        for (int64_t r = 0; r < ROWS; r++) {
            double w[8];
            expected_weights(c, logits + r * stride, ref_ids + r * c->n_used, w);
            for (int32_t j = 0; j < c->n_used; j++)
                assert_true(fabs(first[r * c->n_used + j] - w[j]) <= 1e-6 * fabs(w[j]));
        }
        for (int k = 1; k < N_DEVICES; k++) {
            route(d.dev[k], c, logits, stride, ROWS, bias, ids, weights);
            assert_guards(weights, ROWS, c->n_used, c->n_used);
            assert_memory_equal(ids, ref_ids, (size_t)n * sizeof *ids);
            assert_close(weights, first, ROWS, c->n_used, c->n_used, "router");
        }
        memcpy(first, weights, (size_t)n * sizeof *weights);
        for (int64_t r = 0; r < ROWS; r++)
            route(d.dev[1], c, logits + r * stride, stride, 1, bias, ids + r * c->n_used,
                  weights + r * c->n_used);
        assert_same_bits(weights, first, n, "one row a call");
        assert_memory_equal(ids, ref_ids, (size_t)n * sizeof *ids);
        void *blocks[] = {logits, bias, ref_ids, ids, first, weights};
        for (int b = 0; b < 6; b++) lp_free(blocks[b]);
        close_devices(&d);
    }
}

struct exact_case {
    struct router_case c;
    float logits[8], bias[8];
    int32_t ids[4];
};

static const struct exact_case exact[] = {
    // ties: the lower index
    {{8, 4, 1, 1, LP_GATING_SIGMOID, LP_GROUP_MAX, false, true, 1.0f},
     {1, 2, 2, 0, 2, 1, 0, 0},
     {0},
     {1, 2, 4, 0}},
    // the bias decides who, not how much
    {{8, 2, 1, 1, LP_GATING_SIGMOID, LP_GROUP_MAX, true, true, 1.0f},
     {3, 2, 1, 0, 0, 0, 0, 0},
     {0, 0, 0, 0, 0, 0, 0, 9},
     {7, 0}},
    // two of four groups by their largest: (6, -9) and (5, -9), although (4, 4) has the larger sum
    {{8, 3, 4, 2, LP_GATING_SOFTMAX_SELECTED, LP_GROUP_MAX, false, false, 1.0f},
     {4, 4, 5, -9, 6, -9, 4, 4},
     {0},
     {4, 2, 3}},
    // by the sum of the two largest: groups 0 and 3
    {{8, 3, 4, 2, LP_GATING_SOFTMAX_SELECTED, LP_GROUP_TOP2_SUM, false, false, 1.0f},
     {4, 4, 5, -9, 6, -9, 4, 4},
     {0},
     {0, 1, 6}},
    // equal groups: the lower ones
    {{8, 3, 4, 2, LP_GATING_SOFTMAX_SELECTED, LP_GROUP_MAX, false, false, 1.0f},
     {0, 1, 2, 2, 2, 0, 1, 2},
     {0},
     {2, 3, 4}},
    // NaN is chosen first, in its group too
    {{8, 2, 4, 1, LP_GATING_SIGMOID, LP_GROUP_TOP2_SUM, false, false, 1.0f},
     {9, 9, 0, 0, 1, NAN, 3, 3},
     {0},
     {5, 4}},
};

static void test_exact(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof exact / sizeof exact[0]; i++) {
        struct devices d;
        struct lp_reserve need = reserve(&exact[i].c, 1);
        open_devices(&d, &need);
        for (int k = 0; k < N_DEVICES; k++) {
            int32_t ids[4] = {-7, -7, -7, -7};
            float weights[4];
            route(d.dev[k], &exact[i].c, exact[i].logits, 8, 1, exact[i].bias, ids, weights);
            for (int32_t j = 0; j < exact[i].c.n_used; j++)
                if (ids[j] != exact[i].ids[j])
                    fail_msg("case %zu, device %d, place %d: expert %d, expected %d", i, k, j,
                             ids[j], exact[i].ids[j]);
            for (int32_t j = exact[i].c.n_used; j < 4; j++) assert_int_equal(ids[j], -7);
        }
        close_devices(&d);
    }
}

// A NaN logit makes a weight of its row NaN (B4).
static void test_nan_reaches_weights(void **state) {
    (void)state;
    for (size_t i = 1; i < sizeof cases / sizeof cases[0]; i++) {
        const struct router_case *c = &cases[i];
        struct devices d;
        struct lp_rng rng;
        lp_rng_init(&rng, 3);
        struct lp_reserve need = reserve(c, 1);
        open_devices(&d, &need);
        float *logits = random_floats(&rng, c->n_experts, 1.0f),
              *bias = random_floats(&rng, c->n_experts, 0.1f);
        logits[c->n_experts / 2] = NAN;
        for (int k = 0; k < N_DEVICES; k++) {
            int32_t ids[8], n_nan = 0;
            float weights[8];
            route(d.dev[k], c, logits, c->n_experts, 1, bias, ids, weights);
            for (int32_t j = 0; j < c->n_used; j++) n_nan += isnan(weights[j]) != 0;
            assert_true(n_nan > 0);
        }
        lp_free(logits);
        lp_free(bias);
        close_devices(&d);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_nan_reaches_weights),
    };
    return cmocka_run_group_tests_name("router", tests, NULL, NULL);
}
