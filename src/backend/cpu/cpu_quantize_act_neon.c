// Activations to 8 bits for NEON (cpu_quantize_act.h): the same bits as the AVX2 version.
#if defined(__aarch64__)
#include <arm_neon.h>
#include <string.h>

#include "backend/cpu/cpu_quantize_act.h"

// 16 values, rounded to nearest even; |x| <= 127 and a little.
static inline int8x16_t round_16(const float32x4_t *v, float inverse) {
    int16x4_t q[4];
    for (int k = 0; k < 4; k++) q[k] = vqmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(v[k], inverse)));
    return vcombine_s8(vqmovn_s16(vcombine_s16(q[0], q[1])), vqmovn_s16(vcombine_s16(q[2], q[3])));
}

static void quantize_group(const float *x, struct lp_act_quad *out, int g) {
    float32x4_t v[8];
    uint32x4_t largest = vdupq_n_u32(0);
    for (int k = 0; k < 8; k++) {
        v[k] = vld1q_f32(x + 4 * k);
        // As integers the bits order like the magnitudes, with NaN above infinity: none is lost.
        largest = vmaxq_u32(largest, vreinterpretq_u32_f32(vabsq_f32(v[k])));
    }
    uint32_t bits = vmaxvq_u32(largest);
    float amax;
    memcpy(&amax, &bits, sizeof amax);
    if (is_unusual(amax)) {
        quantize_unusual(x, amax, out, g);
        return;
    }
    float inverse = 127.0f / amax;
    int8x16_t low = round_16(v, inverse), high = round_16(v + 4, inverse);
    vst1q_s8(out->q + 32 * g, low);
    vst1q_s8(out->q + 32 * g + 16, high);
    set_scale(out, g, amax / 127.0f, vaddlvq_s8(low), vaddlvq_s8(high));
}

void lp_cpu_quantize_act_neon(const float *x, int64_t n, struct lp_act_quad *out) {
    for (; n >= LP_QUAD_VALUES; n -= LP_QUAD_VALUES, x += LP_QUAD_VALUES, out++)
        for (int g = 0; g < 4; g++) quantize_group(x + 32 * g, out, g);
    if (n <= 0) return;
    float whole[LP_QUAD_VALUES] = {0};
    memcpy(whole, x, (size_t)n * sizeof *x);
    for (int g = 0; g < 4; g++) quantize_group(whole + 32 * g, out, g);
}

#endif
