// The values of one weight matrix of a checkpoint, in whichever form it is stored:
//
//   plain     NAME.weight of BF16, F16 or F32
//   FP8       NAME.weight F8_E4M3 [out, in] and NAME.weight_scale_inv (DeepSeek, transformers'
//             fine-grained fp8) or NAME.weight_scale (compressed-tensors, fbgemm, ModelOptimizer)
//             of F32, BF16, F16 or F8_E8M0 (2^(e - 127)): [ceil(out/b0), ceil(in/b1)] with the
//             block b0 x b1 of quantization_config, or one value, or [out, 1]: w = q * scale
//   NVFP4     ModelOptimizer (NVFP4QTensor): NAME.weight U8 [out, in/2] (low nibble first),
//             NAME.weight_scale F8_E4M3 [out, in/16], NAME.weight_scale_2 F32, one value:
//             w = q * scale * scale_2
//             compressed-tensors (nvfp4-pack-quantized, pack_fp4_to_uint8): NAME.weight_packed,
//             NAME.weight_scale, NAME.weight_global_scale: w = q * scale / global_scale
//   INT4      compressed-tensors (pack-quantized, pack_to_int32; Kimi K2 Thinking):
//             NAME.weight_packed I32 [out, ceil(in/8)] (lowest nibble first, value + 8),
//             NAME.weight_scale [out, ceil(in/group)] of F32, BF16 or F16 (the group from
//             quantization_config), NAME.weight_shape I32 or I64 {out, in}: w = (q - 8) * scale
//
// Products are taken in float32, left to right as written; q * scale of NVFP4 is exact.
// Stacks of experts (one array [experts, out, in]) have the same forms, under NAME.weight or under
// NAME alone with "_scale_inv" ("_scales_inv" in early transformers 5) and so on behind it; every
// array of theirs has the experts as its first dimension, and no INT4 stack needs a shape.
#ifndef LP_HF_HF_VALUES_H
#define LP_HF_HF_VALUES_H

#include "hf/hf_folder.h"
#include "quant/quant.h"

enum lp_hf_form { LP_HF_PLAIN, LP_HF_FP8, LP_HF_NVFP4, LP_HF_INT4 };

struct lp_hf_matrix {
    enum lp_hf_form form;
    char name[200];              // of the array that holds the values, for messages
    int64_t n_mats, n_out, n_in; // n_mats 1, but for an array that stacks experts [E, out, in]
    // of the folder's weights, which outlive this; scale NULL: plain; scale_2: of NVFP4, or NULL
    const struct lp_st_array *values, *scale, *scale_2;
    bool divide;                 // by scale_2 (compressed-tensors)
    int64_t block_out, block_in; // values that share one scale
    bool is_exact; // the scales are such that a block type holds the values: see lp_hf_matrix_type
};

// Looks up a matrix (or a vector: n_out 1) by its name without ".weight" and checks that all
// arrays of its form are there with the right dtypes and shapes, so that no other function here can
// fail. `name` with no array at all: *found false. What has no ".weight" (mlp.experts.gate_up_proj,
// a bias) is found under its own name. Reads the scales of NVFP4 and INT4. Errors: FORMAT,
// UNSUPPORTED (a dtype or scheme that is not listed), naming the array.
lp_status lp_hf_matrix_find(struct lp_hf_matrix *out, bool *found,
                            const struct lp_hf_folder *folder, const char *name,
                            struct lp_err *err);

// Rows first .. first + n - 1 of matrix `mat` as float32: out[n * n_in]. This and the others:
// threads may call.
void lp_hf_matrix_rows(const struct lp_hf_matrix *m, int64_t mat, int64_t first, int64_t n,
                       float *out);

// The GGUF type that holds the values of the matrix exactly (its own precision, quantised where it
// is):
//   plain   F32, F16 or BF16
//   FP8     in memory F8_E4M3 where rows are whole blocks of 128 and each has one scale, else F32;
//           for_file BF16 (rounded: the only inexact case)
//   NVFP4   NVFP4 and a factor; BF16 and a factor where rows are no multiple of 64 or a scale of
//           the array is negative or NaN (which the GGUF type does not have)
//   INT4    Q4_0 where every scale of the array is a float16, and rows and groups are multiples of
//           32; else F32
lp_type lp_hf_matrix_type(const struct lp_hf_matrix *m, bool for_file);
// NVFP4: the float32 that the values of those types are to be multiplied by; else 1. For
// ModelOptimizer value * factor is the formula to the bit; compressed-tensors divides, so that its
// factor 1 / global_scale is rounded once (exact for powers of two).
float lp_hf_matrix_factor(const struct lp_hf_matrix *m, int64_t mat);

// Rows as blocks of lp_hf_matrix_type(m, for_file), without the factor: n rows of
// lp_type_row_bytes(type, n_in).
void lp_hf_matrix_pack(const struct lp_hf_matrix *m, bool for_file, int64_t mat, int64_t first,
                       int64_t n, void *out);

#endif
