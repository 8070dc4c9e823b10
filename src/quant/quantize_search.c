// Quantisers that look for good scales: Q4_0, Q4_K, Q6_K. All three minimise
//
//     E = sum_i w_i (x_i - y_i)^2,   w_i = rms(x) + |x_i|
//
// where y is what the block will dequantise to. The weight says that an error on a large value
// costs more, since large weights meet large activations more often than chance. The steps:
//
//   1. per group: several trial step sizes; each gives integers, and these give the least-squares
//      scale (and minimum) in closed form; keep the best
//   2. per block: the group scales as small integers times an f16; near integers are tried too
//   3. the f16 factors once more by least squares over the block, then step 2 again, while E falls
//
// Everything runs on x / max|x|, so that squares neither overflow nor vanish. Sums are kept in
// eight lanes, which fixes their order and lets the compiler use SIMD without fast-math.
#include <math.h>

#include "quant/blocks.h"
#include "quant/quantize.h"

#define LANES 8

// Nearest integer, ties to even, for |v| < 2^22
static inline float nearest(float v) {
    return (v + 0x1.8p23f) - 0x1.8p23f;
}

static inline float clamp(float v, float low, float high) {
    v = v > low ? v : low;
    return v < high ? v : high;
}

static float sum_lanes(const float v[LANES]) {
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

// ---- normalisation

struct values {
    float x[256]; // input / largest
    float w[256];
    float largest; // max |input|
};

enum input_kind { INPUT_NORMAL, INPUT_ZERO, INPUT_NONFINITE };

static enum input_kind normalise(struct values *v, const float *in, int n) {
    bool finite = true;
    float largest = 0.0f;
    for (int i = 0; i < n; i++) {
        finite &= isfinite(in[i]) != 0;
        largest = fabsf(in[i]) > largest ? fabsf(in[i]) : largest;
    }
    if (!finite) return INPUT_NONFINITE;
    if (largest < 0x1p-40f) return INPUT_ZERO; // less than any f16
    double squares = 0.0;
    for (int i = 0; i < n; i++) {
        v->x[i] = in[i] / largest;
        squares += (double)v->x[i] * v->x[i];
    }
    float rms = (float)sqrt(squares / n);
    for (int i = 0; i < n; i++) v->w[i] = rms + fabsf(v->x[i]);
    v->largest = largest;
    return INPUT_NORMAL;
}

// A scale of the normalised values as the f16 of the block, and what that f16 stands for. A
// subnormal is rounded up: too large a scale costs a little accuracy, too small a one clips, or
// loses all when it is zero. False if it is past the range of f16 (then *bits is infinity).
static bool store_scale(const struct values *v, float scale, uint16_t *bits, float *stored) {
    float wanted = scale * v->largest;
    *bits = lp_f32_to_f16(wanted);
    if ((*bits & 0x7c00) == 0 && fabsf(lp_f16_to_f32(*bits)) < fabsf(wanted)) ++*bits;
    *stored = lp_f16_to_f32(*bits) / v->largest;
    return (*bits & 0x7c00) != 0x7c00;
}

static float inverse_of(float scale) {
    return scale != 0.0f ? 1.0f / scale : 0.0f;
}

// ---- symmetric groups: y = scale q, q = -levels .. levels - 1

static inline float quantum(float x, float inverse, float levels) {
    return nearest(clamp(x * inverse, -levels, levels - 1.0f));
}

// E of a group of n (a multiple of 8) values
static float symmetric_error(const float *x, const float *w, int n, float scale, float levels) {
    float inverse = inverse_of(scale), sum[LANES] = {0};
    for (int i = 0; i < n; i += LANES)
        for (int l = 0; l < LANES; l++) {
            float diff = x[i + l] - scale * quantum(x[i + l], inverse, levels);
            sum[l] += w[i + l] * diff * diff;
        }
    return sum_lanes(sum);
}

static float symmetric_fit(const float *x, const float *w, int n, float levels) {
    float extreme = 0.0f, best_scale = 0.0f, best_gain = 0.0f;
    for (int i = 0; i < n; i++)
        if (fabsf(x[i]) > fabsf(extreme)) extreme = x[i];
    if (fabsf(extreme) < 0x1p-40f) return 0.0f;
    for (int trial = -9; trial <= 9; trial++) {
        // the extreme value lands near -levels, the side with one level more
        float inverse = -(levels + 0.1f * (float)trial) / extreme;
        float xq[LANES] = {0}, qq[LANES] = {0};
        for (int i = 0; i < n; i += LANES)
            for (int l = 0; l < LANES; l++) {
                float q = quantum(x[i + l], inverse, levels);
                xq[l] += w[i + l] * x[i + l] * q;
                qq[l] += w[i + l] * q * q;
            }
        float sum_xq = sum_lanes(xq), sum_qq = sum_lanes(qq);
        if (!(sum_qq > 0.0f)) continue;
        // E at the best scale for these integers is sum w x^2 minus this
        float gain = sum_xq * sum_xq / sum_qq;
        if (gain > best_gain) {
            best_gain = gain;
            best_scale = sum_xq / sum_qq;
        }
    }
    return best_scale;
}

void lp_quantize_q4_0(const float *in, void *blocks, size_t n) {
    struct lp_block_q4_0 *b = blocks;
    struct values v;
    for (size_t i = 0; i < n / 32; i++, b++, in += 32) {
        memset(b->qs, 0x88, sizeof b->qs); // all zero
        enum input_kind kind = normalise(&v, in, 32);
        b->d = kind == INPUT_NONFINITE ? 0x7e00 : 0;
        if (kind != INPUT_NORMAL) continue;
        uint16_t bits;
        float scale;
        bool fits = store_scale(&v, symmetric_fit(v.x, v.w, 32, 8.0f), &bits, &scale);
        b->d = bits;
        if (!fits) continue;
        float inverse = inverse_of(scale);
        for (int j = 0; j < 16; j++) {
            int low = (int)quantum(v.x[j], inverse, 8.0f) + 8;
            int high = (int)quantum(v.x[j + 16], inverse, 8.0f) + 8;
            b->qs[j] = (uint8_t)(low | high << 4);
        }
    }
}

// ---- Q6_K: sixteen symmetric groups of 16, scales -128 .. 127 times d

struct q6_k_plan {
    uint16_t d_bits;
    float d;
    int scales[16];
    float error;
};

// For a given d, the integer scale of each group: the nearest to its own best scale, or a neighbour
static void q6_k_choose(const struct values *v, const float fitted[16], struct q6_k_plan *plan) {
    plan->error = 0.0f;
    for (int g = 0; g < 16; g++) {
        const float *x = v->x + 16 * g, *w = v->w + 16 * g;
        int middle = (int)nearest(clamp(fitted[g] * inverse_of(plan->d), -128.0f, 127.0f));
        float best = INFINITY;
        for (int s = middle > -128 ? middle - 1 : -128; s <= middle + 1 && s <= 127; s++) {
            float error = symmetric_error(x, w, 16, plan->d * (float)s, 32.0f);
            if (error >= best) continue;
            best = error;
            plan->scales[g] = s;
        }
        plan->error += best;
    }
}

// The d of least E for the plan's integers
static float q6_k_refit(const struct values *v, const struct q6_k_plan *plan) {
    double xa = 0.0, aa = 0.0;
    for (int i = 0; i < 256; i++) {
        float s = (float)plan->scales[i / 16];
        float a = s * quantum(v->x[i], inverse_of(plan->d * s), 32.0f);
        xa += (double)v->w[i] * v->x[i] * a;
        aa += (double)v->w[i] * a * a;
    }
    return aa > 0.0 ? (float)(xa / aa) : plan->d;
}

static void q6_k_pack(const struct values *v, const struct q6_k_plan *plan,
                      struct lp_block_q6_k *b) {
    memset(b, 0, sizeof *b);
    b->d = plan->d_bits;
    for (int g = 0; g < 16; g++) b->scales[g] = (int8_t)plan->scales[g];
    for (int i = 0; i < 256; i++) {
        int half = i / 128, k = i / 32 % 4, l = i % 32;
        float inverse = inverse_of(plan->d * (float)plan->scales[i / 16]);
        int q = (int)quantum(v->x[i], inverse, 32.0f) + 32;
        b->ql[64 * half + 32 * (k & 1) + l] |= (uint8_t)((q & 15) << 4 * (k / 2));
        b->qh[32 * half + l] |= (uint8_t)(q >> 4 << 2 * k);
    }
}

static void q6_k_block(const struct values *v, struct lp_block_q6_k *b) {
    float fitted[16], extreme = 0.0f;
    for (int g = 0; g < 16; g++) {
        fitted[g] = symmetric_fit(v->x + 16 * g, v->w + 16 * g, 16, 32.0f);
        if (fabsf(fitted[g]) > fabsf(extreme)) extreme = fitted[g];
    }
    struct q6_k_plan plan = {.d = 0.0f};
    if (!store_scale(v, extreme / -128.0f, &plan.d_bits, &plan.d)) {
        memset(b, 0, sizeof *b);
        b->d = plan.d_bits;
        return;
    }
    q6_k_choose(v, fitted, &plan);
    for (int round = 0; round < 2; round++) {
        struct q6_k_plan next = plan;
        if (!store_scale(v, q6_k_refit(v, &plan), &next.d_bits, &next.d)) break;
        if (next.d_bits == plan.d_bits) break;
        q6_k_choose(v, fitted, &next);
        if (next.error >= plan.error) break;
        plan = next;
    }
    q6_k_pack(v, &plan, b);
}

void lp_quantize_q6_k(const float *in, void *blocks, size_t n) {
    struct lp_block_q6_k *b = blocks;
    struct values v;
    for (size_t i = 0; i < n / 256; i++, b++, in += 256) {
        enum input_kind kind = normalise(&v, in, 256);
        if (kind == INPUT_NORMAL) {
            q6_k_block(&v, b);
            continue;
        }
        memset(b, 0, sizeof *b);
        b->d = kind == INPUT_NONFINITE ? 0x7e00 : 0;
    }
}

// ---- Q4_K: eight groups of 32 with a minimum, y = scale q - min, q = 0 .. 15, scale, min >= 0

static inline float step_of(float x, float min, float inverse) {
    return nearest(clamp((x + min) * inverse, 0.0f, 15.0f));
}

static float affine_error(const float *x, const float *w, float scale, float min) {
    float inverse = inverse_of(scale), sum[LANES] = {0};
    for (int i = 0; i < 32; i += LANES)
        for (int l = 0; l < LANES; l++) {
            float diff = x[i + l] - (scale * step_of(x[i + l], min, inverse) - min);
            sum[l] += w[i + l] * diff * diff;
        }
    return sum_lanes(sum);
}

struct affine {
    float scale, min;
};

// The least-squares scale and min for the integers that a trial scale and min give, and E less
// sum w x^2 of that solution. False when the integers do not determine a scale.
static bool affine_solve(const float *x, const float *w, struct affine trial, struct affine *out,
                         double *error) {
    float inverse = inverse_of(trial.scale);
    float s_w[LANES] = {0}, s_x[LANES] = {0}, s_q[LANES] = {0}, s_qq[LANES] = {0},
          s_xq[LANES] = {0};
    for (int i = 0; i < 32; i += LANES)
        for (int l = 0; l < LANES; l++) {
            float wi = w[i + l], xi = x[i + l], q = step_of(xi, trial.min, inverse);
            s_w[l] += wi;
            s_x[l] += wi * xi;
            s_q[l] += wi * q;
            s_qq[l] += wi * q * q;
            s_xq[l] += wi * xi * q;
        }
    double sw = sum_lanes(s_w), sx = sum_lanes(s_x), sq = sum_lanes(s_q), sqq = sum_lanes(s_qq);
    double sxq = sum_lanes(s_xq), determinant = sw * sqq - sq * sq;
    if (!(determinant > 0.0)) return false;
    double scale = (sw * sxq - sx * sq) / determinant, min = (sq * sxq - sqq * sx) / determinant;
    if (min < 0.0) { // the format cannot shift upwards: best scale alone
        min = 0.0;
        scale = sxq / sqq;
    }
    if (!(scale > 0.0)) return false;
    *out = (struct affine){(float)scale, (float)min};
    *error = scale * (scale * sqq - 2.0 * (sxq + min * sq)) + min * (2.0 * sx + min * sw);
    return true;
}

static struct affine affine_fit(const float *x, const float *w) {
    float low = 0.0f, high = x[0]; // low: the format has no min below zero
    for (int i = 0; i < 32; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    if (high - low < 0x1p-40f) return (struct affine){0.0f, -low};
    struct affine best = {(high - low) / 15.0f, -low};
    double best_error = INFINITY, error;
    // Relative error on normal numbers: 0.0705 with these 11 trials, 0.0704 with 21, 0.0709 with 6.
    for (int trial = -6; trial <= 4; trial++) {
        struct affine fit = {(high - low) / (15.0f + 0.5f * (float)trial), -low};
        for (int round = 0; round < 2; round++) { // the second starts from the first's solution
            if (!affine_solve(x, w, fit, &fit, &error)) break;
            if (error >= best_error) continue;
            best_error = error;
            best = fit;
        }
    }
    return best;
}

struct q4_k_plan {
    uint16_t d_bits, dmin_bits;
    float d, dmin;
    int scales[8], mins[8];
    float error;
};

static int code_63(float value, float unit) {
    return (int)nearest(clamp(value * inverse_of(unit), 0.0f, 63.0f));
}

// For given d and dmin, the 6-bit scale and min of each group: the nearest to its own best, or
// neighbours
static void q4_k_choose(const struct values *v, const struct affine fitted[8],
                        struct q4_k_plan *plan) {
    plan->error = 0.0f;
    for (int g = 0; g < 8; g++) {
        const float *x = v->x + 32 * g, *w = v->w + 32 * g;
        int scale = code_63(fitted[g].scale, plan->d), min = code_63(fitted[g].min, plan->dmin);
        float best = INFINITY;
        for (int s = scale > 0 ? scale - 1 : 0; s <= scale + 1 && s <= 63; s++)
            for (int m = min > 0 ? min - 1 : 0; m <= min + 1 && m <= 63; m++) {
                float error = affine_error(x, w, plan->d * (float)s, plan->dmin * (float)m);
                if (error >= best) continue;
                best = error;
                plan->scales[g] = s;
                plan->mins[g] = m;
            }
        plan->error += best;
    }
}

// The d and dmin of least E for the plan's integers: x ~ d a - dmin c, a = scale q, c = min
static struct affine q4_k_refit(const struct values *v, const struct q4_k_plan *plan) {
    double xa = 0.0, xc = 0.0, aa = 0.0, ac = 0.0, cc = 0.0;
    for (int i = 0; i < 256; i++) {
        float scale = (float)plan->scales[i / 32], c = (float)plan->mins[i / 32];
        double w = v->w[i], x = v->x[i];
        double a = scale * step_of(v->x[i], plan->dmin * c, inverse_of(plan->d * scale));
        xa += w * x * a;
        xc += w * x * c;
        aa += w * a * a;
        ac += w * a * c;
        cc += w * c * c;
    }
    struct affine old = {plan->d, plan->dmin};
    if (!(cc > 0.0)) return aa > 0.0 ? (struct affine){(float)(xa / aa), 0.0f} : old;
    double determinant = aa * cc - ac * ac;
    if (!(determinant > 0.0)) return old;
    double d = (xa * cc - xc * ac) / determinant, dmin = (xa * ac - xc * aa) / determinant;
    return d > 0.0 && dmin > 0.0 ? (struct affine){(float)d, (float)dmin} : old;
}

static bool q4_k_store(const struct values *v, struct affine unit, struct q4_k_plan *plan) {
    bool d_fits = store_scale(v, unit.scale, &plan->d_bits, &plan->d);
    return store_scale(v, unit.min, &plan->dmin_bits, &plan->dmin) && d_fits;
}

static void q4_k_pack(const struct values *v, const struct q4_k_plan *plan,
                      struct lp_block_q4_k *b) {
    memset(b, 0, sizeof *b);
    b->d = plan->d_bits;
    b->dmin = plan->dmin_bits;
    for (int j = 0; j < 4; j++) {
        int s = plan->scales[j], m = plan->mins[j], s4 = plan->scales[j + 4],
            m4 = plan->mins[j + 4];
        b->scales[j] = (uint8_t)(s | s4 >> 4 << 6);
        b->scales[j + 4] = (uint8_t)(m | m4 >> 4 << 6);
        b->scales[j + 8] = (uint8_t)((s4 & 15) | (m4 & 15) << 4);
    }
    for (int i = 0; i < 256; i++) {
        int g = i / 32;
        float inverse = inverse_of(plan->d * (float)plan->scales[g]);
        int q = (int)step_of(v->x[i], plan->dmin * (float)plan->mins[g], inverse);
        b->qs[32 * (g / 2) + i % 32] |= (uint8_t)(q << 4 * (g & 1));
    }
}

static void q4_k_block(const struct values *v, struct lp_block_q4_k *b) {
    struct affine fitted[8], unit = {0.0f, 0.0f};
    for (int g = 0; g < 8; g++) {
        fitted[g] = affine_fit(v->x + 32 * g, v->w + 32 * g);
        unit.scale = fitted[g].scale > unit.scale ? fitted[g].scale : unit.scale;
        unit.min = fitted[g].min > unit.min ? fitted[g].min : unit.min;
    }
    struct q4_k_plan plan = {.d = 0.0f};
    if (!q4_k_store(v, (struct affine){unit.scale / 63.0f, unit.min / 63.0f}, &plan)) {
        memset(b, 0, sizeof *b);
        b->d = plan.d_bits;
        b->dmin = plan.dmin_bits;
        return;
    }
    q4_k_choose(v, fitted, &plan);
    for (int round = 0; round < 2; round++) {
        struct q4_k_plan next = plan;
        if (!q4_k_store(v, q4_k_refit(v, &plan), &next)) break;
        if (next.d_bits == plan.d_bits && next.dmin_bits == plan.dmin_bits) break;
        q4_k_choose(v, fitted, &next);
        if (next.error >= plan.error) break;
        plan = next;
    }
    q4_k_pack(v, &plan, b);
}

void lp_quantize_q4_k(const float *in, void *blocks, size_t n) {
    struct lp_block_q4_k *b = blocks;
    struct values v;
    for (size_t i = 0; i < n / 256; i++, b++, in += 256) {
        enum input_kind kind = normalise(&v, in, 256);
        if (kind == INPUT_NORMAL) {
            q4_k_block(&v, b);
            continue;
        }
        memset(b, 0, sizeof *b);
        b->d = kind == INPUT_NONFINITE ? 0x7e00 : 0;
    }
}
