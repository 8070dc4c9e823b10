// The 16-bit products for AMX over a model of the tile instructions (amx_model.h): they must give the bits
// of those for VNNI. Skipped without AVX-512 VNNI, and where clang compiles it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backend/cpu/cpu_features.h"
#include "backend/cpu/cpu_fixed16.h"
#include "base/alloc.h"
#include "base/rng.h"

#if defined(__x86_64__) && !defined(__clang__) // which has no push_options
#include "amx_model.h"

// Only the kernels may use these instructions, not what looks whether the machine has them.
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")
#define LP_AMX_MODEL
#define lp_cpu_fixed16_amx fixed_model
#include "backend/cpu/cpu_fixed16_amx.c"
#pragma GCC pop_options

static float *random_row(struct lp_rng *rng, int64_t n) {
    float *x = lp_alloc_aligned((size_t)n, sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++) x[i] = lp_rng_normal(rng) * (float)(1 + i % 7);
    return x;
}

// c of m x n from what is rounded by the table itself; the scales' bits too.
static void product(const struct lp_cpu_fixed16 *table, int m, int n, int k, const float *a,
                    const float *b, bool add, float *c, float *scales) {
    int16_t *rows = lp_alloc_aligned((size_t)(m * k), sizeof *rows);
    int32_t *columns = lp_alloc_aligned((size_t)(k / 2 * (n + 16)), sizeof *columns);
    assert_true(rows && columns);
    table->round_rows(a, k, m, k, rows, k, scales);
    table->round_columns(b, n, k, n, columns, n + 16, scales + m);
    table->multiply(m, n, k, rows, k, scales, columns, n + 16, scales + m, c, n, add);
    lp_free(rows), lp_free(columns);
}

static void check_product(int m, int n, int k, bool extreme, struct lp_rng *rng) {
    float *a = random_row(rng, (int64_t)m * k), *b = random_row(rng, (int64_t)k * n),
          *c = random_row(rng, (int64_t)m * n), *d = random_row(rng, (int64_t)m * n),
          *scales = random_row(rng, m + n), *others = random_row(rng, m + n);
    for (int i = 0; i < m && extreme; i++) // all of a run's norm in one value, of either sign
        for (int j = 0; j < k; j++) a[i * k + j] = j % 128 == i % 128 ? (i % 2 ? 3e4f : -3e4f) : 0;
    for (int j = 0; j < n && extreme; j++)
        for (int i = 0; i < k; i++) b[i * n + j] = i % 128 == j % 128 ? (j % 3 ? 2e4f : -2e4f) : 0;
    for (int i = 0; i < m * n; i++) d[i] = c[i];
    for (int add = 0; add < 2; add++) {
        product(&fixed_model, m, n, k, a, b, add, c, scales);
        product(&lp_cpu_fixed16_vnni, m, n, k, a, b, add, d, others);
        assert_memory_equal(scales, others, (size_t)(m + n) * sizeof *scales);
        assert_memory_equal(c, d, (size_t)m * (size_t)n * sizeof *c);
    }
    lp_free(a), lp_free(b), lp_free(c), lp_free(d), lp_free(scales), lp_free(others);
}

static void tiles_give_the_bits_of_vnni(void **state) {
    (void)state;
    if ((lp_cpu_features_detect() & LP_CPU_LEVEL_VNNI) != LP_CPU_LEVEL_VNNI) skip();
    static const int rows[] = {1, 15, 16, 37}, ks[] = {64, 128, 192, 512};
    struct lp_rng rng;
    lp_rng_init(&rng, 7);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (size_t j = 0; j < sizeof ks / sizeof ks[0]; j++) {
            check_product(rows[i], 64, ks[j], false, &rng);
            check_product(rows[i], 128, ks[j], true, &rng);
        }
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
