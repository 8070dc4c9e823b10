#include "quant/random_blocks.h"

#include <math.h>

#include "lp_test.h"

#define N 16384

// The root mean square of what comes out, by the dequantisers, which have tests of their own.
static void every_type_has_the_deviation(void **state) {
    (void)state;
    static uint8_t blocks[N * 4];
    static float values[N];
    for (uint32_t id = 0; id < LP_TYPE_COUNT; id++) {
        const struct lp_type_info *info = lp_type_info(id);
        if (!info || !info->is_weight) continue;
        for (float std = 0.005f; std < 1; std *= 10) {
            struct lp_rng rng;
            double squares = 0, sum = 0;
            lp_rng_init(&rng, id);
            assert_true(lp_random_blocks((lp_type)id, std, &rng, blocks, N));
            assert_int_equal(lp_type_find_nonfinite((lp_type)id, blocks, N), -1);
            info->dequant(blocks, values, N);
            for (size_t i = 0; i < N; i++) {
                assert_true(isfinite(values[i]));
                squares += (double)values[i] * values[i];
                sum += values[i];
            }
            double rms = sqrt(squares / N);
            assert_true(fabs(sum / N) < 0.1 * std); // no mean: 13 deviations of N values
            // an 8-bit scale comes within a factor of sqrt(2); NVFP4's range ends at 2^-7
            bool coarse = id == LP_TYPE_MXFP4 || id == LP_TYPE_NVFP4;
            if (coarse && std < 0.01f) continue;
            assert_true(rms > std * (coarse ? 0.69 : 0.9) && rms < std * (coarse ? 1.45 : 1.1));
        }
    }
}

static void a_seed_gives_the_same_bytes(void **state) {
    (void)state;
    uint8_t a[4 * 210], b[4 * 210];
    struct lp_rng rng;
    lp_rng_init(&rng, 7);
    assert_true(lp_random_blocks(LP_TYPE_Q6_K, 0.02f, &rng, a, 1024));
    lp_rng_init(&rng, 7);
    assert_true(lp_random_blocks(LP_TYPE_Q6_K, 0.02f, &rng, b, 1024));
    assert_memory_equal(a, b, sizeof a);
}

static void what_is_no_weight_is_refused(void **state) {
    (void)state;
    uint8_t blocks[4096];
    struct lp_rng rng;
    lp_rng_init(&rng, 7);
    assert_false(lp_random_blocks(LP_TYPE_I32, 1, &rng, blocks, 256));
    assert_false(lp_random_blocks(LP_TYPE_Q8_K, 1, &rng, blocks, 256));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_has_the_deviation),
        cmocka_unit_test(a_seed_gives_the_same_bytes),
        cmocka_unit_test(what_is_no_weight_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
