// Quantised block formats of GGUF: one row per type (types.c), looked up by id.
//
// A row of n values is n / block_values blocks without padding; rows are contiguous. Layouts and
// formulas: blocks.h and docs/gguf.md. All functions here are plain C; the fast versions live in
// the backends and are tested against these.
#ifndef LP_QUANT_QUANT_H
#define LP_QUANT_QUANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

// id in GGUF files, name, values per block, bytes per block. F8_E4M3 is in memory only (folders of
// FP8 weights that are run in place, and an FP8 cache): no file holds it, and the reader refuses its id.
#define LP_TYPE_LIST(X)                                                                            \
    X(F32, 0, 1, 4)                                                                                \
    X(F16, 1, 1, 2)                                                                                \
    X(Q4_0, 2, 32, 18)                                                                             \
    X(Q4_1, 3, 32, 20)                                                                             \
    X(Q5_0, 6, 32, 22)                                                                             \
    X(Q5_1, 7, 32, 24)                                                                             \
    X(Q8_0, 8, 32, 34)                                                                             \
    X(Q8_1, 9, 32, 36)                                                                             \
    X(Q2_K, 10, 256, 84)                                                                           \
    X(Q3_K, 11, 256, 110)                                                                          \
    X(Q4_K, 12, 256, 144)                                                                          \
    X(Q5_K, 13, 256, 176)                                                                          \
    X(Q6_K, 14, 256, 210)                                                                          \
    X(Q8_K, 15, 256, 292)                                                                          \
    X(IQ2_XXS, 16, 256, 66)                                                                        \
    X(IQ2_XS, 17, 256, 74)                                                                         \
    X(IQ3_XXS, 18, 256, 98)                                                                        \
    X(IQ1_S, 19, 256, 50)                                                                          \
    X(IQ4_NL, 20, 32, 18)                                                                          \
    X(IQ3_S, 21, 256, 110)                                                                         \
    X(IQ2_S, 22, 256, 82)                                                                          \
    X(IQ4_XS, 23, 256, 136)                                                                        \
    X(I8, 24, 1, 1)                                                                                \
    X(I16, 25, 1, 2)                                                                               \
    X(I32, 26, 1, 4)                                                                               \
    X(I64, 27, 1, 8)                                                                               \
    X(F64, 28, 1, 8)                                                                               \
    X(IQ1_M, 29, 256, 56)                                                                          \
    X(BF16, 30, 1, 2)                                                                              \
    X(TQ1_0, 34, 256, 54)                                                                          \
    X(TQ2_0, 35, 256, 66)                                                                          \
    X(MXFP4, 39, 32, 17)                                                                           \
    X(NVFP4, 40, 64, 36)                                                                           \
    X(Q1_0, 41, 128, 18)                                                                           \
    X(Q2_0, 42, 64, 18)                                                                            \
    X(F8_E4M3, 43, 128, 132)

typedef enum lp_type {
#define LP_TYPE_ENUM(name, id, values, bytes) LP_TYPE_##name = id,
    LP_TYPE_LIST(LP_TYPE_ENUM)
#undef LP_TYPE_ENUM
        LP_TYPE_COUNT = 44
} lp_type;

struct lp_type_info {
    lp_type id;
    const char *name; // "Q4_K"
    uint32_t block_values, block_bytes;
    bool in_memory_only; // of no file: F8_E4M3
    bool is_weight;      // may be the type of a weight matrix (not I8..I64, F64, Q8_1, Q8_K)
    // n values (a multiple of block_values) from blocks to float32, exactly as the format defines
    // them. NULL for the integer types and F64.
    void (*dequant)(const void *blocks, float *out, size_t n);
    // n float32 values to blocks, with the format's reference rounding. NULL where limpid has no
    // quantiser (all but F32, F16, BF16, Q8_0, Q8_1, Q8_K, Q4_0, Q5_0, Q4_K, Q5_K, Q6_K, IQ4_NL,
    // IQ4_XS, F8_E4M3).
    void (*quantize)(const float *in, void *blocks, size_t n);
};

// The row of a type id, or NULL for an id that is unknown or was removed.
const struct lp_type_info *lp_type_info(uint32_t id);

// Why an id without a row is refused: "type 31 (Q4_0_4_4, removed from GGUF; re-convert the file)",
// "type 137 (IQ2_K, made by ik_llama.cpp) ...", "type 99 is unknown". Never NULL; static storage or
// `buffer`.
const char *lp_type_explain(uint32_t id, char *buffer, size_t buffer_bytes);

// Bytes of a row of n values: false when n is no multiple of the block or the size overflows.
bool lp_type_row_bytes(lp_type type, uint64_t n, uint64_t *bytes);

// Quantises n_rows rows of n_in values (a multiple of the block) each. importance: [n_in], not
// negative, how much the squared error of a column counts (the mean square of the activations that
// meet it), or NULL: none known. All zeros over a block, or any that is not finite, count as none
// known there. False for a type without a quantiser. Rounding formats ignore the importance.
bool lp_quantize_rows(lp_type type, const float *in, void *blocks, int64_t n_rows, int64_t n_in,
                      const float *importance);

// Looks for a scale, or a value of a float type, that is NaN or infinite in n values (a multiple of
// the block). Returns the index of the first block (value, for the float types) at fault, or -1.
// For block types it reads the scale fields only.
int64_t lp_type_find_nonfinite(lp_type type, const void *blocks, size_t n);

// sum_i w[i] * x[i] over n values: w dequantised exactly, product and sum in double. The definition
// that every dot kernel is tested against.
double lp_dot_ref(lp_type type, const void *blocks, const float *x, size_t n);

float lp_f16_to_f32(uint16_t bits);  // exact, with subnormals, infinities and NaN
uint16_t lp_f32_to_f16(float value); // nearest even
static inline float lp_bf16_to_f32(uint16_t bits) {
    union {
        uint32_t u;
        float f;
    } v = {(uint32_t)bits << 16};
    return v.f;
}
static inline uint16_t lp_f32_to_bf16(float value) { // nearest even; NaN stays NaN
    union {
        float f;
        uint32_t u;
    } v = {value};
    if ((v.u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((v.u >> 16) | 0x40);
    return (uint16_t)((v.u + 0x7fff + ((v.u >> 16) & 1)) >> 16);
}

#endif
