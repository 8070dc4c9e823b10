// The searching quantisers of all instruction sets give the same bytes, and a block's bytes depend
// on the block alone.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/rng.h"
#include "quant/quantize_search.h"

enum { N = 256 * 40, N_IN = 256 * 5, MOST_BYTES = N / 256 * 210 };

static const lp_type types[] = {LP_TYPE_Q4_0, LP_TYPE_Q5_0,   LP_TYPE_Q4_K,  LP_TYPE_Q5_K,
                                LP_TYPE_Q6_K, LP_TYPE_IQ4_NL, LP_TYPE_IQ4_XS};
#define N_TYPES (sizeof types / sizeof types[0])

// Ordinary numbers of many sizes, and blocks of zeros, constants, halves, outliers, huge and tiny
// values, NaN and infinity among them
static void fill(float *x, uint64_t seed) {
    struct lp_rng rng;
    lp_rng_init(&rng, seed);
    for (int i = 0; i < N; i++) {
        int kind = i / 96 % 12;
        float normal = lp_rng_normal(&rng), size = ldexpf(1.0f, i / 96 % 47 - 28);
        x[i] = kind == 3   ? 0.0f
               : kind == 5 ? 0.7f
               : kind == 7 ? size * 0.5f * (float)(i % 17 - 9)
                           : size * normal;
        if (kind == 8 && i % 29 == 0) x[i] *= 50.0f;
        if (kind == 9) x[i] *= 1e30f;
        if (kind == 10) x[i] *= 1e-30f;
    }
    x[256 * 11 + 77] = NAN;
    x[256 * 19 + 5] = -INFINITY;
}

static void fill_importance(float *w, uint64_t seed) {
    struct lp_rng rng;
    lp_rng_init(&rng, seed);
    for (int i = 0; i < N_IN; i++) w[i] = expf(2.0f * lp_rng_normal(&rng));
    for (int i = 300; i < 350; i++) w[i] = 0.0f;
    w[700] = NAN;
    w[1000] = 1e30f;
}

static void instruction_sets_agree(void **state) {
    (void)state;
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2")) skip();
    static float x[N], w[N_IN];
    static uint8_t plain[MOST_BYTES], avx2[MOST_BYTES];
    for (uint64_t seed = 1; seed <= 4; seed++) {
        fill(x, seed);
        fill_importance(w, seed);
        struct lp_quantize_job job = {x, seed & 1 ? w : NULL, N_IN, N};
        for (size_t t = 0; t < N_TYPES; t++) {
            memset(plain, 0xaa, sizeof plain);
            memset(avx2, 0xaa, sizeof avx2);
            lp_quantize_search_plain[types[t]](&job, plain);
            lp_quantize_search_avx2[types[t]](&job, avx2);
            assert_memory_equal(plain, avx2, sizeof plain);
        }
    }
#else
    skip();
#endif
}

static void a_block_depends_on_itself(void **state) {
    (void)state;
    static float x[N], w[N_IN];
    static uint8_t whole[MOST_BYTES], one[210];
    fill(x, 9);
    fill_importance(w, 9);
    for (size_t t = 0; t < N_TYPES; t++) {
        const struct lp_type_info *info = lp_type_info(types[t]);
        size_t values = info->block_values, bytes = info->block_bytes;
        struct lp_quantize_job job = {x, w, N_IN, N};
        lp_quantize_search_plain[types[t]](&job, whole);
        for (size_t i = 0; i < N / values; i++) {
            struct lp_quantize_job part = {x + i * values, w + i * values % N_IN, values, values};
            lp_quantize_search_plain[types[t]](&part, one);
            assert_memory_equal(one, whole + i * bytes, bytes);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(instruction_sets_agree),
        cmocka_unit_test(a_block_depends_on_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
