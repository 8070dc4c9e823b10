// What the tests of the matrix operations share: weights of every type from arbitrary bytes with
// sane scales, the activation rounding of 8-bit kernels in plain C, outputs with guards.
#ifndef TESTS_MAT_FIXTURE_H
#define TESTS_MAT_FIXTURE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/backend.h"
#include "base/alloc.h"
#include "base/rng.h"
#include "quant/blocks.h"

// The backend that is checked: cpu, or with TESTS_CUDA that of an NVIDIA GPU, which knows no levels.
#if defined(TESTS_CUDA)
#include "cuda_staged.h"
#define CHECKED_BACKEND cuda_staged
#define ONE_LEVEL 1
#else
#define CHECKED_BACKEND lp_backend_cpu
#define ONE_LEVEL EMULATED
#endif

#define GUARD 12345.0f

// An emulator of another processor takes some 20 times as long, and runs each test on several CPUs: on
// each of them the best level alone, and a part of the shapes.
#if defined(TESTS_EMULATED)
#define EMULATED 1
#else
#define EMULATED 0
#endif

// Where the f16 scales of a block lie (-1: none).
struct scale_fields {
    lp_type type;
    int d, second;
};
#define D_ONLY(type, block)                                                                        \
    { LP_TYPE_##type, offsetof(struct block, d), -1 }
#define D_AND(type, block, field)                                                                  \
    { LP_TYPE_##type, offsetof(struct block, d), offsetof(struct block, field) }
static const struct scale_fields scale_fields[] = {
    D_ONLY(Q4_0, lp_block_q4_0),       D_AND(Q4_1, lp_block_q4_1, m),
    D_ONLY(Q5_0, lp_block_q5_0),       D_AND(Q5_1, lp_block_q5_1, m),
    D_ONLY(Q8_0, lp_block_q8_0),       D_AND(Q2_K, lp_block_q2_k, dmin),
    D_ONLY(Q3_K, lp_block_q3_k),       D_AND(Q4_K, lp_block_q4_k, dmin),
    D_AND(Q5_K, lp_block_q5_k, dmin),  D_ONLY(Q6_K, lp_block_q6_k),
    D_ONLY(IQ2_XXS, lp_block_iq2_xxs), D_ONLY(IQ2_XS, lp_block_iq2_xs),
    D_ONLY(IQ3_XXS, lp_block_iq3_xxs), D_ONLY(IQ1_S, lp_block_iq1_s),
    D_ONLY(IQ4_NL, lp_block_iq4_nl),   D_ONLY(IQ3_S, lp_block_iq3_s),
    D_ONLY(IQ2_S, lp_block_iq2_s),     D_ONLY(IQ4_XS, lp_block_iq4_xs),
    D_ONLY(TQ1_0, lp_block_tq1_0),     D_ONLY(TQ2_0, lp_block_tq2_0),
    D_ONLY(Q1_0, lp_block_q1_0),       D_ONLY(Q2_0, lp_block_q2_0),
};
#undef D_ONLY
#undef D_AND

static inline void put_scale(uint8_t *block, int offset, struct lp_rng *rng) {
    float size = (float)(0.01 + 0.03 * lp_rng_unit(rng));
    uint16_t bits = lp_f32_to_f16(lp_rng_u64(rng) & 1 ? size : -size);
    memcpy(block + offset, &bits, sizeof bits);
}

// Gives every block of n bytes scales of 0.01 to 0.04 in size (values up to 448: 0.0001 ...).
static inline void fix_scales(lp_type type, uint8_t *data, size_t n_bytes, struct lp_rng *rng) {
    const struct lp_type_info *info = lp_type_info((uint32_t)type);
    for (size_t at = 0; at < n_bytes; at += info->block_bytes) {
        for (size_t i = 0; i < sizeof scale_fields / sizeof scale_fields[0]; i++) {
            if (scale_fields[i].type != type) continue;
            put_scale(data + at, scale_fields[i].d, rng);
            if (scale_fields[i].second >= 0) put_scale(data + at, scale_fields[i].second, rng);
        }
        if (type == LP_TYPE_F8_E4M3) {
            float d = (float)(0.0001 + 0.0003 * lp_rng_unit(rng));
            memcpy(data + at, &d, sizeof d);
            for (int i = 4; i < 132; i++) // no NaN
                if ((data[at + (size_t)i] & 0x7f) == 0x7f) data[at + (size_t)i] ^= 1;
        }
        if (type == LP_TYPE_MXFP4) data[at] = (uint8_t)(120 + lp_rng_u64(rng) % 5);
        if (type == LP_TYPE_IQ1_M) // the f16's nibbles in the tops of four u16: 0x2800
            for (int i = 0; i < 4; i++) {
                uint8_t *top = data + at + offsetof(struct lp_block_iq1_m, scales) + 2 * i + 1;
                *top = (uint8_t)((*top & 15) | ((0x2800 >> 4 * i) & 15) << 4);
            }
    }
}

// A weight whose block bytes are random, or all `fill` (>= 0). Float types: normal values, or where
// fill is given the value (float)fill. Exactly as large as it must be, so that ASan sees a read
// past.
static inline struct lp_weight new_weight(lp_type type, int64_t n_in, int64_t n_out, int64_t n_mats,
                                          int fill, struct lp_rng *rng) {
    const struct lp_type_info *info = lp_type_info((uint32_t)type);
    uint64_t row_bytes;
    assert_true(lp_type_row_bytes(type, (uint64_t)n_in, &row_bytes));
    size_t n_bytes = (size_t)(row_bytes * (uint64_t)(n_out * n_mats));
    uint8_t *data = lp_alloc(n_bytes, 1);
    assert_non_null(data);
    for (size_t i = 0; i < n_bytes; i++)
        data[i] = (uint8_t)(fill >= 0 ? (uint64_t)fill : lp_rng_u64(rng));
    if (info->block_values == 1)
        for (int64_t i = 0; i < n_in * n_out * n_mats; i++) {
            float value = fill >= 0 ? (float)fill : lp_rng_normal(rng);
            info->quantize(&value, data + (size_t)i * info->block_bytes, 1);
        }
    else
        fix_scales(type, data, n_bytes, rng);
    return (struct lp_weight){.data = data,
                              .type = type,
                              .n_in = n_in,
                              .n_out = n_out,
                              .n_mats = n_mats,
                              .row_bytes = row_bytes,
                              .mat_bytes = row_bytes * (size_t)n_out,
                              .name = {"test", 4}};
}

static inline float *new_floats(int64_t n, float value) {
    float *x = lp_alloc((size_t)n, sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++) x[i] = value;
    return x;
}

static inline const uint8_t *row_of(const struct lp_weight *w, int64_t mat, int64_t row) {
    return lp_weight_mat(w, mat) + (size_t)row * w->row_bytes;
}

static inline void free_weight(struct lp_weight *w) {
    for (int64_t m = 0; w->mats && m < w->n_mats; m++) lp_free((void *)w->mats[m]);
    lp_free((void *)w->mats);
    lp_free((void *)w->scales);
    lp_free((void *)w->data);
    *w = (struct lp_weight){0};
}

// Matrices in blocks of their own, not in order, at odd addresses, each with a factor.
static inline void scatter(struct lp_weight *w, struct lp_rng *rng) {
    const uint8_t **mats = lp_alloc((size_t)w->n_mats, sizeof *mats);
    float *scales = new_floats(w->n_mats, 0);
    for (int64_t i = 0; i < w->n_mats; i++) {
        int64_t m = w->n_mats - 1 - i;
        uint8_t *block = lp_alloc(w->mat_bytes + 1, 1);
        memcpy(block + 1, lp_weight_mat(w, m), w->mat_bytes);
        mats[m] = block;
        scales[m] = (float)(lp_rng_u64(rng) & 1 ? -1 : 1) * (0.1f + (float)lp_rng_unit(rng));
    }
    lp_free((void *)w->data);
    w->data = NULL;
    w->mats = mats;
    w->mats_offset = 1;
    w->scales = scales;
}

static inline float *random_floats(struct lp_rng *rng, int64_t n) {
    float *x = new_floats(n, 0);
    for (int64_t i = 0; i < n; i++) x[i] = lp_rng_normal(rng);
    return x;
}

// ---- what an 8-bit kernel makes of a row: d = amax / 127, x ~ d * nearest_even(x * (127 / amax))

static inline bool rounds_activations(const struct lp_device *dev, lp_type type) {
    if (!lp_weight_may_round(type)) return false;
    return !strstr(dev->backend->matmul_kernel(dev, type), "dequant");
}

// Rounded values into out; half_step[i]: the largest error that the rounding may make.
static inline void round_row(const float *x, int64_t n, float *out, float *half_step) {
    for (int64_t g = 0; g < n; g += 32) {
        int64_t end = g + 32 < n ? g + 32 : n;
        float amax = 0;
        for (int64_t i = g; i < end; i++) amax = fmaxf(amax, fabsf(x[i]));
        float d = amax / 127.0f, inverse = amax > 0 ? 127.0f / amax : 0;
        for (int64_t i = g; i < end; i++) {
            // 127 / amax overflows for subnormal groups: only the loose bound holds for those
            out[i] = isfinite(inverse) ? d * nearbyintf(x[i] * inverse) : x[i];
            half_step[i] = amax / 253.9f;
        }
    }
}

struct expected {
    double value, size;  // sum w x, sum |w x|, with the matrix's factor in both
    double exact, loose; // of the unrounded row; how far rounding may move the sum
};

// Row of weights times an activation row in double, with the activations as the device's kernel
// sees them.
static inline struct expected expect_dot(const struct lp_device *dev, const struct lp_weight *w,
                                         int64_t mat, int64_t row, const float *x) {
    float *values = new_floats(3 * w->n_in, 0), *rounded = values + w->n_in,
          *half = rounded + w->n_in;
    lp_type_info((uint32_t)w->type)->dequant(row_of(w, mat, row), values, (size_t)w->n_in);
    memcpy(rounded, x, (size_t)w->n_in * sizeof *x);
    if (rounds_activations(dev, w->type)) round_row(x, w->n_in, rounded, half);
    struct expected e = {0};
    for (int64_t i = 0; i < w->n_in; i++) {
        e.value += (double)values[i] * rounded[i];
        e.size += fabs((double)values[i] * rounded[i]);
        e.exact += (double)values[i] * x[i];
        e.loose += fabs((double)values[i]) * half[i];
    }
    lp_free(values);
    double factor = lp_weight_scale(w, mat);
    return (struct expected){e.value * factor, e.size * fabs(factor), e.exact * factor,
                             e.loose * fabs(factor)};
}

// ---- devices

static inline struct lp_device *open_cpu(int n_threads, const char *level,
                                         const struct lp_reserve *need) {
    struct lp_device *dev = NULL;
    struct lp_err err = {0};
    struct lp_device_options options = {.n_threads = n_threads, .cpu_level = level};
    assert_int_equal(CHECKED_BACKEND.open(&dev, &options, &err), LP_OK);
    assert_int_equal(CHECKED_BACKEND.reserve(dev, need, &err), LP_OK);
    return dev;
}

static inline struct lp_device *open_ref(const struct lp_reserve *need) {
    struct lp_device *ref = NULL;
    assert_int_equal(lp_backend_ref.open(&ref, NULL, NULL), LP_OK);
    assert_int_equal(ref->backend->reserve(ref, need, NULL), LP_OK);
    return ref;
}

// Largest difference of a row over its largest value, the worst of all rows.
static inline double worst(const float *got, const float *want, int64_t n_rows, int64_t stride,
                           int64_t width) {
    double most = 0;
    for (int64_t t = 0; t < n_rows; t++) {
        double size = 1e-30, off = 0;
        for (int64_t i = 0; i < width; i++) {
            double d = fabs((double)got[t * stride + i] - want[t * stride + i]);
            size = fmax(size, fabs(want[t * stride + i]));
            if (!(d <= off)) off = d;
        }
        if (!(off / size <= most)) most = off / size;
    }
    return most;
}

#define FOR_WEIGHT_TYPES(info)                                                                     \
    for (uint32_t id_ = 0; id_ < LP_TYPE_COUNT; id_++)                                             \
        for (const struct lp_type_info *info = lp_type_info(id_); info && info->is_weight;         \
             info = NULL)

#endif
