// The matrix kernels for AMX over a model of the tile instructions (amx_model.h). They must give the
// bits of the VNNI kernels, which check_matmul.c compares with double precision. Skipped without AVX-512
// VNNI, in which the rest of these kernels is written, and where clang compiles it.
#include "mat_fixture.h"

#include "backend/cpu/cpu_features.h"
#include "backend/cpu/cpu_matmul.h"

#if defined(__x86_64__) && !defined(__clang__) // which has no push_options
#include "amx_model.h"

// Only the kernels may use these instructions, not what looks whether the machine has them.
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")
#define LP_AMX_TILES
#define DIRECT_X 2 // as in cpu_matmul_amx.c
#include "backend/cpu/cpu_q8_iq.h"
#include "backend/cpu/cpu_q8_k.h"
#include "backend/cpu/cpu_q8_q32.h"

// Each kind of products, with and without strips of their own. (All types take minutes to compile with
// the sanitizers.)
#define MODEL_LIST(X)                                                                              \
    X(q8_0, Q8_0) X(q2_k, Q2_K) X(q4_k, Q4_K) X(q6_k, Q6_K) X(iq2_xxs, IQ2_XXS) X(nvfp4, NVFP4)
#define KERNEL(stem, type) LP_Q8_KERNEL(model, stem)
MODEL_LIST(KERNEL)
#undef KERNEL
#pragma GCC pop_options

#define MAX_X 40

// Weights with n_rows rows for n_x activation rows, one after the other or in no order.
static void check_block(const struct lp_cpu_mat_kernel *model, const struct lp_cpu_mat_kernel *vnni,
                        lp_type type, int64_t n_in, int n_rows, int n_x, int step,
                        struct lp_rng *rng) {
    struct lp_weight w = new_weight(type, n_in, n_rows, 1, -1, rng);
    const int64_t n_quads = lp_cpu_quads(n_in);
    float *x = random_floats(rng, n_in);
    struct lp_act_quad *quads =
        lp_alloc_aligned((size_t)(MAX_X * n_quads), sizeof(struct lp_act_quad));
    assert_non_null(quads);
    const void *rows[MAX_X];
    for (int t = 0; t < n_x; t++) {
        struct lp_act_quad *to = quads + (int64_t)(t * step % MAX_X) * n_quads;
        for (int64_t i = 0; i < n_in; i++) x[i] = lp_rng_normal(rng) * (float)(1 + t % 5);
        lp_cpu_quantize_act(x, n_in, to);
        rows[t] = to;
    }
    float a[MAX_X * LP_MAT_ROWS], b[MAX_X * LP_MAT_ROWS];
    model->block(lp_type_info((uint32_t)type), w.data, w.row_bytes, n_rows, rows, n_x, n_in, NULL,
                 a);
    vnni->block(lp_type_info((uint32_t)type), w.data, w.row_bytes, n_rows, rows, n_x, n_in, NULL,
                b);
    for (int t = 0; t < n_x; t++)
        if (memcmp(a + t * LP_MAT_ROWS, b + t * LP_MAT_ROWS, (size_t)n_rows * sizeof *a) != 0)
            fail_msg("%s, %d rows, %lld values, activation row %d of %d: other bits than %s",
                     model->name, n_rows, (long long)n_in, t, n_x, vnni->name);
    free_weight(&w);
    lp_free(x), lp_free(quads);
}

static void check_type(const struct lp_cpu_mat_kernel *model, const struct lp_cpu_mat_kernel *vnni,
                       lp_type type) {
    static const int counts[] = {1, 8, 9, 16, 17, 33, MAX_X};
    struct lp_rng rng;
    lp_rng_init(&rng, (uint64_t)type);
    assert_true(lp_cpu_mat_selfcheck(model, lp_type_info((uint32_t)type)));
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        check_block(model, vnni, type, 256, 16, counts[i], 7, &rng);
        check_block(model, vnni, type, 768, 16, counts[i], 1, &rng);
        check_block(model, vnni, type, 1280, 1 + (int)(lp_rng_u64(&rng) % 16), counts[i],
                    1 + 2 * (int)(lp_rng_u64(&rng) % 2), &rng);
    }
}

static void tiles_give_the_bits_of_vnni(void **state) {
    (void)state;
    if ((lp_cpu_features_detect() & LP_CPU_LEVEL_VNNI) != LP_CPU_LEVEL_VNNI) skip();
#define CHECK(stem, type)                                                                          \
    check_type(&lp_cpu_mat_model_##stem, &lp_cpu_mat_vnni_##stem, LP_TYPE_##type);
    MODEL_LIST(CHECK)
}

#else

static void tiles_give_the_bits_of_vnni(void **state) {
    (void)state;
    skip();
}

#endif

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(tiles_give_the_bits_of_vnni)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
