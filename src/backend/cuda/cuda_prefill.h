// Expanded attention over many queries by the matrix units: what its two kernels (mma.sync, wgmma) are
// told. mla_expanded (cuda_attention.cu) makes keys and values of a group of heads, these attend.
#ifndef LP_BACKEND_CUDA_CUDA_PREFILL_H
#define LP_BACKEND_CUDA_CUDA_PREFILL_H

#include "backend/cuda/cuda_device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct lp_cuda_prefill { // of a group of heads; a kernel's argument
    const float *q;      // [n_queries, heads, nope + 64] of the group's first head
    int64_t q_stride;
    const uint16_t *keys, *values; // [heads, n_keys, nope], [heads, n_keys, v_dim], at 16 bytes
    // The cache, whose rows hold the rotated part of 64 values at rope_offset bytes.
    const uint8_t *base;
    const int32_t *pages;
    size_t row_bytes, page_bytes, rope_offset;
    int32_t page_tokens, slot_offset;
    bool whole_chunks; // rotated parts lie at multiples of 16 bytes
    int32_t first_pos, n_queries, n_keys, n_heads;
    int32_t nope, v_dim;
    float scale;
    float *out; // [n_queries, heads, v_dim] of the group's first head
    int64_t out_stride;
};

// Starts the kernel on a stream. type: BF16 or F16, of cache, keys and values. _mma: mma.sync, sm_80 and
// later; _wgmma: sm_90a.
typedef cudaError_t (*lp_cuda_prefill_start)(const struct lp_cuda_prefill *, lp_type, cudaStream_t);
cudaError_t lp_cuda_prefill_mma(const struct lp_cuda_prefill *p, lp_type type, cudaStream_t stream);
cudaError_t lp_cuda_prefill_wgmma(const struct lp_cuda_prefill *p, lp_type type,
                                  cudaStream_t stream);

// The kernel that the registry chooses (cuda_attn_kernels.c); NULL: the plain one.
lp_cuda_prefill_start lp_cuda_prefill_chosen(const struct lp_cuda_device *dev, lp_type type);
// Whether the kernels take heads of these sizes; an operation.
bool lp_cuda_prefill_shape(int32_t nope, int32_t rope, int32_t v_dim);
bool lp_cuda_prefill_fits(const struct lp_op_mla_expanded *op);
// Keys and values of heads first ... first + n - 1 into scratch (cuda_expand.cu), at most head_group_16 of
// them; then their attention.
cudaError_t lp_cuda_expand_heads(struct lp_cuda_device *dev, const struct lp_op_mla_expanded *op,
                                 int64_t first, int64_t n);
cudaError_t lp_cuda_prefill_heads(struct lp_cuda_device *dev, const struct lp_op_mla_expanded *op,
                                  int64_t first, int64_t n, lp_cuda_prefill_start start);

#ifdef __cplusplus
}
#endif

#endif
