// The indexer's sieve for AMX over a model of the tile instructions (amx_model.h): it must give the bits of
// the one for VNNI. Skipped without AVX-512 VNNI, and where clang compiles it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backend/cpu/cpu_features.h"
#include "backend/cpu/cpu_sieve.h"
#include "base/alloc.h"
#include "base/rng.h"

#if defined(__x86_64__) && !defined(__clang__) // which has no push_options
#include "amx_model.h"

// Only the kernels may use these instructions, not what looks whether the machine has them.
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")
#define LP_AMX_MODEL
#define lp_cpu_sieve_amx sieve_model
#include "backend/cpu/cpu_sieve_amx.c"
#pragma GCC pop_options

#define MAX_HEADS 70
#define MAX_WIDTH 256

static float *random_row(struct lp_rng *rng, int64_t n) {
    float *x = lp_alloc_aligned((size_t)n, sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++) x[i] = lp_rng_normal(rng);
    return x;
}

static void check_scores(int n_heads, int width, struct lp_rng *rng) {
    static int8_t bytes_q[MAX_HEADS * MAX_WIDTH];
    static int32_t start[MAX_HEADS];
    static float weights[MAX_HEADS], padded[MAX_WIDTH];
    struct lp_cpu_sieve_query query = {.q = bytes_q, .start = start, .w = weights};
    const int64_t ld = lp_cpu_sieve_width(width);
    float *q = random_row(rng, (int64_t)n_heads * width), *w = random_row(rng, n_heads),
          *rows = random_row(rng, LP_CPU_SIEVE_KEYS * ld);
    for (int64_t k = 0; k < LP_CPU_SIEVE_KEYS; k++)
        for (int64_t i = width; i < ld; i++) rows[k * ld + i] = 0;
    void *piece = lp_alloc_aligned(lp_cpu_sieve_block_bytes(width), 1);
    assert_non_null(piece);
    const struct lp_cpu_sieve_block block = lp_cpu_sieve_block_at(piece, width);
    assert_true(lp_cpu_sieve_vnni.pack_query(q, w, n_heads, width, padded, &query));
    for (int k = 0; k < LP_CPU_SIEVE_KEYS; k += LP_CPU_SIEVE_PACK)
        lp_cpu_sieve_vnni.pack_keys(rows + k * ld, ld, k, LP_CPU_SIEVE_PACK, width, &block);
    float a[LP_CPU_SIEVE_KEYS], b[LP_CPU_SIEVE_KEYS];
    sieve_model.score(&query, &block, n_heads, width, 0.3f, a);
    lp_cpu_sieve_vnni.score(&query, &block, n_heads, width, 0.3f, b);
    assert_memory_equal(a, b, sizeof a);
    lp_free(q), lp_free(w), lp_free(rows), lp_free(piece);
}

static void tiles_give_the_bits_of_vnni(void **state) {
    (void)state;
    if ((lp_cpu_features_detect() & LP_CPU_LEVEL_VNNI) != LP_CPU_LEVEL_VNNI) skip();
    static const int heads[] = {1, 31, 32, 33, 64, 70}, widths[] = {8, 100, 128, 129, 256};
    struct lp_rng rng;
    lp_rng_init(&rng, 5);
    for (size_t h = 0; h < sizeof heads / sizeof heads[0]; h++)
        for (size_t w = 0; w < sizeof widths / sizeof widths[0]; w++)
            check_scores(heads[h], widths[w], &rng);
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
