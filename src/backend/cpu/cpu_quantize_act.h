// Activations to 8 bits: what the versions for each instruction set share.
//
// 32 values a scale: d = amax / 127, q = nearest even of x * (127 / amax).
//
// What is not ordinary goes through a slow path: a group with NaN or infinity becomes d = NaN, q = 0,
// so that every output that reads it is NaN (rule B4); a group so small that 127 / amax overflows
// is scaled up first. Its d is then a float32 subnormal rounded up, so that |q| stays within 127.
#ifndef LP_BACKEND_CPU_CPU_QUANTIZE_ACT_H
#define LP_BACKEND_CPU_CPU_QUANTIZE_ACT_H

#include <math.h>
#include <string.h>

#include "backend/cpu/cpu_matmul.h"

#define TINY 0x1p-110f // below: the slow path

static inline void set_scale(struct lp_act_quad *out, int g, float d, int sum_low, int sum_high) {
    out->d[g] = d;
    out->sum[g] = (float)(sum_low + sum_high);
    out->half[g] = -128 * sum_low;
    out->half[g + 4] = -128 * sum_high;
}

static inline void quantize_unusual(const float *x, float amax, struct lp_act_quad *out, int g) {
    int sums[2] = {0, 0};
    memset(out->q + 32 * g, 0, 32);
    if (!isfinite(amax)) {
        set_scale(out, g, NAN, 0, 0);
        return;
    }
    float d = amax / 127.0f;
    if (d * 127.0f < amax) d = nextafterf(d, 1.0f);
    if (d > 0.0f)
        for (int i = 0; i < 32; i++) {
            float q = rintf((x[i] * 0x1p100f) / (d * 0x1p100f));
            q = q > 127.0f ? 127.0f : q < -127.0f ? -127.0f : q;
            out->q[32 * g + i] = (int8_t)q;
            sums[i / 16] += (int)q;
        }
    set_scale(out, g, d, sums[0], sums[1]);
}

// Whether a group goes through the slow path.
static inline bool is_unusual(float amax) {
    return !(amax >= TINY && amax <= 0x1.fffffep127f);
}

#endif
