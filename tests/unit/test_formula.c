// Attention by its formula against the two forms of ref, which are written apart from it: the same
// for every head, query and storage order of the key projection, with and without a selection.
#include "lp_test.h"

#include <math.h>

#include "backend/backend.h"
#include "base/rng.h"
#include "doctor/formula.h"

#define HEADS 3
#define NOPE 6
#define ROPE 4
#define LATENT 10
#define V_DIM 7
#define KEYS 9
#define WIDTH (LATENT + ROPE)

static float latents[4 * KEYS * WIDTH]; // pages in another order, with gaps
static const int32_t pages[] = {2, 0, 3};

static struct lp_weight weight(const float *data, int64_t n_in, int64_t n_out) {
    size_t row = (size_t)n_in * sizeof(float);
    return (struct lp_weight){.data = data,
                              .type = LP_TYPE_F32,
                              .n_in = n_in,
                              .n_out = n_out,
                              .n_mats = HEADS,
                              .row_bytes = row,
                              .mat_bytes = row * (size_t)n_out,
                              .name = {"test", 4}};
}

static struct lp_cache_view view_of(void) {
    return (struct lp_cache_view){.base = latents,
                                  .type = LP_TYPE_F32,
                                  .width = WIDTH,
                                  .page_tokens = 4,
                                  .row_bytes = WIDTH * sizeof(float),
                                  .page_bytes = 4 * WIDTH * sizeof(float),
                                  .pages = pages};
}

static void check_mla(bool transposed, const int32_t *ids, int32_t n) {
    struct lp_device *dev = NULL;
    struct lp_reserve need = {.n_rows = 1,
                              .n_context = KEYS,
                              .max_width = 64,
                              .n_heads = HEADS,
                              .latent = LATENT,
                              .rope = ROPE,
                              .nope = NOPE,
                              .v_dim = V_DIM};
    struct lp_rng rng;
    float k_up[HEADS * NOPE * LATENT], v_up[HEADS * V_DIM * LATENT], q[HEADS * (NOPE + ROPE)];
    float out[HEADS * V_DIM];
    lp_rng_init(&rng, 7);
    for (size_t i = 0; i < sizeof latents / 4; i++) latents[i] = lp_rng_normal(&rng);
    for (size_t i = 0; i < sizeof k_up / 4; i++) k_up[i] = lp_rng_normal(&rng);
    for (size_t i = 0; i < sizeof v_up / 4; i++) v_up[i] = lp_rng_normal(&rng);
    for (size_t i = 0; i < sizeof q / 4; i++) q[i] = lp_rng_normal(&rng);
    struct lp_mla_layer w = {.k_up = transposed ? weight(k_up, NOPE, LATENT)
                                                : weight(k_up, LATENT, NOPE),
                             .v_up = weight(v_up, LATENT, V_DIM),
                             .k_transposed = transposed,
                             .n_heads = HEADS,
                             .nope = NOPE,
                             .rope_dim = ROPE,
                             .latent = LATENT,
                             .v_dim = V_DIM};
    struct lp_cache_view cache = view_of();
    struct lp_op_mla_expanded op = {.q = q,
                                    .q_stride = HEADS * (NOPE + ROPE),
                                    .cache = &cache,
                                    .k_up = &w.k_up,
                                    .k_transposed = transposed,
                                    .v_up = &w.v_up,
                                    .visible = {.first_pos = KEYS - 1, .n_queries = 1},
                                    .n_heads = HEADS,
                                    .nope = NOPE,
                                    .rope = ROPE,
                                    .latent = LATENT,
                                    .v_dim = V_DIM,
                                    .scale = 0.3f,
                                    .out = out,
                                    .out_stride = HEADS * V_DIM};
    if (ids) {
        op.visible.ids = ids;
        op.visible.counts = &n;
        op.visible.k = n;
    }
    assert_int_equal(lp_backend_ref.open(&dev, NULL, NULL), LP_OK);
    assert_int_equal(lp_backend_ref.reserve(dev, &need, NULL), LP_OK);
    lp_backend_ref.mla_expanded(dev, &op);
    for (int32_t h = 0; h < HEADS; h++) {
        double got[V_DIM];
        struct lp_formula_keys keys = {.latents = cache, .ids = ids, .n = ids ? n : KEYS};
        assert_true(lp_formula_mla(got, &w, h, q + h * (NOPE + ROPE), &keys, 0.3f));
        for (int d = 0; d < V_DIM; d++) assert_true(fabs(got[d] - out[h * V_DIM + d]) < 1e-5);
    }
    lp_backend_ref.close(dev);
}

static void mla_is_what_ref_expands(void **state) {
    (void)state;
    static const int32_t some[] = {0, 3, 4, 8};
    check_mla(false, NULL, 0);
    check_mla(true, NULL, 0);
    check_mla(true, some, 4);
}

static void gqa_is_what_ref_attends(void **state) {
    (void)state;
    struct lp_device *dev = NULL;
    struct lp_reserve need = {.n_rows = 1, .n_context = KEYS, .max_width = 64, .v_dim = 7};
    struct lp_rng rng;
    float values[4 * 4 * 14], q[4 * 5], out[4 * 7];
    lp_rng_init(&rng, 8);
    for (size_t i = 0; i < sizeof latents / 4; i++) latents[i] = lp_rng_normal(&rng);
    for (size_t i = 0; i < sizeof values / 4; i++) values[i] = lp_rng_normal(&rng);
    for (size_t i = 0; i < sizeof q / 4; i++) q[i] = lp_rng_normal(&rng);
    // Two key/value heads of 5 and 7 values for four heads.
    struct lp_gqa_layer w = {.n_heads = 4, .n_kv_heads = 2, .head_dim = 5, .v_dim = 7};
    struct lp_cache_view k = view_of(), v = view_of();
    k.width = 10;
    v.base = values;
    v.width = 14;
    v.row_bytes = 14 * sizeof(float);
    v.page_bytes = 4 * v.row_bytes;
    struct lp_op_gqa op = {.q = q,
                           .q_stride = 20,
                           .k = &k,
                           .v = &v,
                           .visible = {.first_pos = KEYS - 1, .n_queries = 1},
                           .n_heads = 4,
                           .n_kv_heads = 2,
                           .head_dim = 5,
                           .v_dim = 7,
                           .scale = 0.5f,
                           .out = out,
                           .out_stride = 28};
    assert_int_equal(lp_backend_ref.open(&dev, NULL, NULL), LP_OK);
    assert_int_equal(lp_backend_ref.reserve(dev, &need, NULL), LP_OK);
    lp_backend_ref.gqa(dev, &op);
    for (int32_t h = 0; h < 4; h++) {
        double got[7];
        struct lp_formula_keys keys = {.keys = k, .values = v, .n = KEYS};
        assert_true(lp_formula_gqa(got, &w, h, q + h * 5, &keys, 0.5f));
        for (int d = 0; d < 7; d++) assert_true(fabs(got[d] - out[h * 7 + d]) < 1e-5);
    }
    lp_backend_ref.close(dev);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mla_is_what_ref_expands),
        cmocka_unit_test(gqa_is_what_ref_attends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
