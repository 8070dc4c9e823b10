// Codes of an FP8 cache as 16-bit floats: eight neighbours of a block at a time, from words.
//
// A code's exponent and mantissa, put into those of a float16, are its value / 256, subnormals included; so
// a block's scale goes in as 256 d (finite: d is a largest float32 / 448 at most). The two codes that are NaN
// would be 1.875: no cache has them, since a block of values that are not finite has codes of 0
// and a scale of NaN.
#ifndef LP_BACKEND_CUDA_CUDA_F8_CUH
#define LP_BACKEND_CUDA_CUDA_F8_CUH

#include "backend/cuda/cuda_mma.cuh"

#define LP_CUDA_F8_BLOCK 132 // bytes: a scale, then 128 codes (quant/blocks.h)

// Codes 0, 1 or (high) 2, 3 of a word as two F16, each its value / 256.
static __device__ __forceinline__ uint32_t lp_cuda_f8_halves(uint32_t four, bool high) {
    const uint32_t wide = __byte_perm(four, 0, high ? 0x3424 : 0x1404); // in the upper bytes
    return (wide >> 1 & 0x3f803f80u) | (wide & 0x80008000u);
}

// Where code i of a row lies, i in whole blocks; and the scale of its block, of a row at a multiple of 4.
static __device__ __forceinline__ const uint32_t *lp_cuda_f8_codes(const uint8_t *row, int i) {
    return (const uint32_t *)(row + i / 128 * LP_CUDA_F8_BLOCK + 4 + i % 128);
}
static __device__ __forceinline__ float lp_cuda_f8_scale(const uint8_t *row, int i) {
    return *(const float *)(row + i / 128 * LP_CUDA_F8_BLOCK);
}

// Eight codes as BF16: code times scale, rounded once.
static __device__ __forceinline__ uint4 lp_cuda_f8_widen(uint32_t first, uint32_t second,
                                                         float scale_256) {
    uint32_t out[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float low, high;
        lp_cuda_unpack2<LP_TYPE_F16>(lp_cuda_f8_halves(i < 2 ? first : second, i % 2), &low, &high);
        out[i] = lp_cuda_pack2<LP_TYPE_BF16>(low * scale_256, high * scale_256);
    }
    return make_uint4(out[0], out[1], out[2], out[3]);
}

#endif
