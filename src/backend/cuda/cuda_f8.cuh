// Codes of an FP8 cache as 16-bit floats: eight neighbours of a block at a time, from words.
//
// From sm_89 on an instruction makes them float16. Before, a code's exponent and mantissa, put into those of a
// float16, are its value / 256, subnormals included; so a block's scale goes in times LP_CUDA_F8_UNIT (finite: d
// is the largest float32 / 448 at most). The two codes that are NaN are in no cache: a block of
// values that are not finite has codes of 0 and a scale of NaN.
#ifndef LP_BACKEND_CUDA_CUDA_F8_CUH
#define LP_BACKEND_CUDA_CUDA_F8_CUH

#include "backend/cuda/cuda_mma.cuh"

#define LP_CUDA_F8_BLOCK 132 // bytes: a scale, then 128 codes (quant/blocks.h)

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#define LP_CUDA_F8_UNIT 1.0f
#else
#define LP_CUDA_F8_UNIT 256.0f
#endif

// Codes 0, 1 or (high) 2, 3 of a word as two F16, each its value / LP_CUDA_F8_UNIT.
static __device__ __forceinline__ uint32_t lp_cuda_f8_halves(uint32_t four, bool high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    uint32_t halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((uint16_t)(high ? four >> 16 : four)));
    return halves;
#else
    const uint32_t wide = __byte_perm(four, 0, high ? 0x3424 : 0x1404); // in the upper bytes
    return (wide >> 1 & 0x3f803f80u) | (wide & 0x80008000u);
#endif
}

// Where code i of a row lies, i in whole blocks; and the scale of its block, of a row at a multiple of 4.
static __device__ __forceinline__ const uint32_t *lp_cuda_f8_codes(const uint8_t *row, int i) {
    return (const uint32_t *)(row + i / 128 * LP_CUDA_F8_BLOCK + 4 + i % 128);
}
static __device__ __forceinline__ float lp_cuda_f8_scale(const uint8_t *row, int i) {
    return *(const float *)(row + i / 128 * LP_CUDA_F8_BLOCK);
}

// Eight codes as BF16: code times scale, rounded once. unit: the scale times LP_CUDA_F8_UNIT.
static __device__ __forceinline__ uint4 lp_cuda_f8_widen(uint32_t first, uint32_t second,
                                                         float unit) {
    uint32_t out[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float low, high;
        lp_cuda_unpack2<LP_TYPE_F16>(lp_cuda_f8_halves(i < 2 ? first : second, i % 2), &low, &high);
        out[i] = lp_cuda_pack2<LP_TYPE_BF16>(low * unit, high * unit);
    }
    return make_uint4(out[0], out[1], out[2], out[3]);
}

#endif
