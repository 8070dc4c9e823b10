// The inner functions for any machine: vectors of four through the compiler's vector extension,
// which every target has in some form; products and sums rounded separately; exp from the C
// library.
#include "backend/cpu/cpu_lanes.h"

#include <math.h>
#include <string.h>

#define LANES 4
typedef float vf __attribute__((vector_size(16)));

static inline vf v_zero(void) {
    return (vf){0, 0, 0, 0};
}
static inline vf v_set1(float x) {
    return (vf){x, x, x, x};
}
static inline vf v_load(const float *p) {
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void v_store(float *p, vf v) {
    memcpy(p, &v, sizeof v);
}
static inline vf v_load_n(const float *p, int n, float fill) {
    float lanes[LANES];
    for (int i = 0; i < LANES; i++) lanes[i] = i < n ? p[i] : fill;
    return v_load(lanes);
}
static inline void v_store_n(float *p, vf v, int n) {
    for (int i = 0; i < n; i++) p[i] = v[i];
}
static inline vf v_add(vf a, vf b) {
    return a + b;
}
static inline vf v_mul(vf a, vf b) {
    return a * b;
}
static inline vf v_div(vf a, vf b) {
    return a / b;
}
static inline vf v_fma(vf a, vf b, vf c) {
    return a * b + c;
}
static inline vf v_max(vf a, vf b) {
    for (int i = 0; i < LANES; i++) b[i] = a[i] > b[i] ? a[i] : b[i];
    return b;
}
static inline float v_sum(vf v) {
    return (v[0] + v[1]) + (v[2] + v[3]);
}
static inline void v_sum4(const vf *v, float *out) {
    for (int i = 0; i < 4; i++) out[i] = v_sum(v[i]);
}
static inline vf v_exp(vf v) {
    return (vf){expf(v[0]), expf(v[1]), expf(v[2]), expf(v[3])};
}

static inline void transpose_block(const float *in, ptrdiff_t ld_in, float *out, ptrdiff_t ld_out) {
    for (int r = 0; r < 8; r++)
        for (int c = 0; c < 8; c++) out[c * ld_out + r] = in[r * ld_in + c];
}

static void load_f16(const void *row, float *out, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint16_t bits;
        memcpy(&bits, (const char *)row + 2 * i, 2);
        out[i] = lp_f16_to_f32(bits);
    }
}
static void load_bf16(const void *row, float *out, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint16_t bits;
        memcpy(&bits, (const char *)row + 2 * i, 2);
        out[i] = lp_bf16_to_f32(bits);
    }
}
static void store_f16(const float *in, void *row, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint16_t bits = lp_f32_to_f16(in[i]);
        memcpy((char *)row + 2 * i, &bits, 2);
    }
}
static void store_bf16(const float *in, void *row, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint16_t bits = lp_f32_to_bf16(in[i]);
        memcpy((char *)row + 2 * i, &bits, 2);
    }
}
static void load_q8_0(const void *row, float *out, size_t n) {
    lp_type_info(LP_TYPE_Q8_0)->dequant(row, out, n);
}
static void store_q8_0(const float *in, void *row, size_t n) {
    lp_type_info(LP_TYPE_Q8_0)->quantize(in, row, n);
}

static void load_f8(const void *row, float *out, size_t n) {
    lp_type_info(LP_TYPE_F8_E4M3)->dequant(row, out, n);
}

#include "backend/cpu/cpu_lanes_body.h"

LP_CPU_LANES_TABLE(plain);
