// The reference dot product against the integer formulas of the formats, with inputs whose sums are
// exact in double, and against its own definition.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "quant/quant.h"
#include "quant_vectors.h"

#define N_BLOCKS 5
#define N_MAX (N_BLOCKS * MAX_BLOCK_VALUES)

static void small_integers(float *x, size_t n) {
    for (size_t i = 0; i < n; i++) x[i] = (float)((int)(i * 37 % 31) - 15);
}

// d sum q x
static void q8_0_is_the_integer_sum(void **state) {
    (void)state;
    uint8_t blocks[N_BLOCKS * 34];
    float x[N_BLOCKS * 32];
    small_integers(x, N_BLOCKS * 32);
    random_blocks(LP_TYPE_Q8_0, blocks, N_BLOCKS);
    double want = 0.0;
    for (int b = 0; b < N_BLOCKS; b++) {
        const uint8_t *block = blocks + 34 * b;
        long sum = 0;
        for (int j = 0; j < 32; j++) sum += (long)(int8_t)block[2 + j] * (long)x[32 * b + j];
        want += (double)lp_f16_to_f32((uint16_t)(block[0] | block[1] << 8)) * (double)sum;
    }
    assert_true(lp_dot_ref(LP_TYPE_Q8_0, blocks, x, N_BLOCKS * 32) == want);
}

// d sum_g s_g sum_32 q x - dmin sum_g m_g sum_32 x
static void q4_k_is_the_integer_sum(void **state) {
    (void)state;
    uint8_t blocks[N_BLOCKS * 144];
    float x[N_BLOCKS * 256];
    small_integers(x, N_BLOCKS * 256);
    random_blocks(LP_TYPE_Q4_K, blocks, N_BLOCKS);
    double want = 0.0, size = 0.0;
    for (int b = 0; b < N_BLOCKS; b++) {
        const uint8_t *block = blocks + 144 * b, *s = block + 4, *qs = block + 16;
        long scaled = 0, mins = 0;
        for (int g = 0; g < 8; g++) {
            int scale = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | (s[g - 4] >> 6) << 4;
            int min = g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | (s[g] >> 6) << 4;
            for (int l = 0; l < 32; l++) {
                long xi = (long)x[256 * b + 32 * g + l], q = qs[32 * (g / 2) + l];
                scaled += scale * (g & 1 ? q >> 4 : q & 15) * xi;
                mins += min * xi;
            }
        }
        double d = lp_f16_to_f32((uint16_t)(block[0] | block[1] << 8));
        double dmin = lp_f16_to_f32((uint16_t)(block[2] | block[3] << 8));
        want += d * (double)scaled - dmin * (double)mins;
        size += fabs(d) * 63 * 15 * 256 * 15 + fabs(dmin) * 63 * 256 * 15;
    }
    // each weight is rounded to float32 once, by the difference of its two products
    assert_true(fabs(lp_dot_ref(LP_TYPE_Q4_K, blocks, x, N_BLOCKS * 256) - want) <= size * 0x1p-24);
}

static void f32_sums_in_double(void **state) {
    (void)state;
    static const float w[4] = {1e8f, 1.0f, -1e8f, 3e38f}, x[4] = {1e8f, 1.0f, 1e8f, 1e-38f};
    double want = 1e16 + 1.0 - 1e16 + (double)3e38f * (double)1e-38f; // 1e16 + 1 is not exact: 1e16
    assert_true(lp_dot_ref(LP_TYPE_F32, w, x, 4) == want);
}

// In every type: the sum over the dequantised values, for rows that are no multiple of 256 too
static void every_type_follows_its_dequantiser(void **state) {
    (void)state;
    static uint8_t blocks[N_BLOCKS * MAX_BLOCK_BYTES];
    static float w[N_MAX], x[N_MAX];
    for (size_t i = 0; i < N_MAX; i++) x[i] = sinf((float)i) * ldexpf(1.0f, (int)(i % 7));
    for (uint32_t id = 0; id < LP_TYPE_COUNT; id++) {
        const struct lp_type_info *info = lp_type_info(id);
        // skipped: types whose random bits hold NaN or overflow
        if (!info || !info->dequant || id == LP_TYPE_F32 || id == LP_TYPE_BF16 ||
            id == LP_TYPE_Q8_K || id == LP_TYPE_MXFP4 || id == LP_TYPE_F8_E4M3)
            continue;
        random_blocks(info->id, blocks, N_BLOCKS);
        for (size_t n_blocks = 0; n_blocks <= N_BLOCKS; n_blocks++) {
            size_t n = n_blocks * info->block_values;
            info->dequant(blocks, w, n);
            double want = 0.0;
            for (size_t i = 0; i < n; i++) want += (double)w[i] * (double)x[i];
            if (lp_dot_ref(info->id, blocks, x, n) != want) fail_msg("%s", info->name);
        }
    }
}

static void nan_reaches_the_result(void **state) {
    (void)state;
    uint8_t block[34] = {0};
    float x[32] = {0};
    put_u16(block, 0x7e00);
    assert_true(isnan(lp_dot_ref(LP_TYPE_Q8_0, block, x, 32)));
    assert_true(isnan(lp_dot_ref(LP_TYPE_I32, block, x, 4))); // has no float values
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(q8_0_is_the_integer_sum),
        cmocka_unit_test(q4_k_is_the_integer_sum),
        cmocka_unit_test(f32_sums_in_double),
        cmocka_unit_test(every_type_follows_its_dequantiser),
        cmocka_unit_test(nan_reaches_the_result),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
