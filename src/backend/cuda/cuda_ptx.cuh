// Instructions that CUDA C has no name for, from sm_80 on: asynchronous copies into shared memory and
// the tensor cores' integer products.
#ifndef LP_BACKEND_CUDA_CUDA_PTX_CUH
#define LP_BACKEND_CUDA_CUDA_PTX_CUH

#include <stdint.h>

// Copies the first n_bytes (0 to 16) of 16 at `from` to shared memory, zeros for the rest. Both aligned
// to 16. Past the L1 cache: for what is read once.
static __device__ inline void lp_cuda_copy16(void *to, const void *from, int n_bytes) {
    const unsigned at = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(n_bytes)
                 : "memory");
}
// Ends a group of this thread's copies (it may be empty).
static __device__ inline void lp_cuda_copy_commit(void) {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until all but the last LEFT groups of this thread have arrived. Other threads see them after a
// barrier.
template <int LEFT> static __device__ inline void lp_cuda_copy_wait(void) {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

static __device__ inline float
lp_cuda_f16_fast(uint32_t low_bits) { // as lp_cuda_f16, of bits 15..0
    float value;
    asm("{.reg .b16 h, u; mov.b32 {h, u}, %1; cvt.f32.f16 %0, h;}" : "=f"(value) : "r"(low_bits));
    return value;
}

// c[16 x 8] += a[16 x K] b[K x 8], int8 times int8. Lane l, g = l / 4, q = l % 4, of a warp holds
//   a[0]: row g, columns 4q .. 4q + 3      a[1]: row g + 8       a[2], a[3]: the same, columns + 16
//   b[0]: column g, rows 4q .. 4q + 3      b[1]: rows + 16
//   c[0], c[1]: row g, columns 2q, 2q + 1  c[2], c[3]: row g + 8
static __device__ inline void lp_cuda_mma_s8_k32(int (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                                 uint32_t b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// K = 16: a[0], a[1] and b[0] alone
static __device__ inline void lp_cuda_mma_s8_k16(int (&c)[4], uint32_t a0, uint32_t a1,
                                                 uint32_t b0) {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
        "{%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a0), "r"(a1), "r"(b0));
}

#endif
