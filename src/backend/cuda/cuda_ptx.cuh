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

// For kernels that lp_cuda_start_early starts: waits until the kernels before this one have ended. What
// they write must not be touched above.
static __device__ inline void lp_cuda_wait_for_input(void) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// In the kernel before: once all its blocks have come here, the next one may start.
static __device__ inline void lp_cuda_let_next_start(void) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
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

// ---- pairs of float16 in a word, the first one low

static __device__ inline uint32_t lp_cuda_half2(float low, float high) { // nearest even
    uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
static __device__ inline uint32_t lp_cuda_half2_add(uint32_t a, uint32_t b) {
    uint32_t sum;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
    return sum;
}
static __device__ inline uint32_t lp_cuda_half2_fma(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t sum;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
    return sum;
}

// ---- asynchronous products of a warpgroup (sm_90a): c[64 x N] += a[64 x 16] b[16 x N], float16 into
// float32. a and c are in registers: warp w of the group has rows 16w ... 16w + 15 in the fragments of
// m16n8k16; c[4j ... 4j + 3] belong to columns 8j ... 8j + 7. b is in shared memory.

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define LP_CUDA_HAS_WGMMA 1

// The tile at `p` (a multiple of 1024 in shared memory): column n is the 128 bytes (64 values) from
// p + 128 n, its pieces of 16 bytes at places i ^ (n % 8). The 16 values from 16 k on: + 2k.
static __device__ inline uint64_t lp_cuda_wgmma_tile(const void *p) {
    const uint64_t at = (uint64_t)__cvta_generic_to_shared(p);
    return (at >> 4 & 0x3fff) | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}
// Before the first product of a group of them: registers that were written are seen by it.
static __device__ inline void lp_cuda_wgmma_fence(void) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
static __device__ inline void lp_cuda_wgmma_commit(void) {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until all but the last LEFT groups are done.
template <int LEFT> static __device__ inline void lp_cuda_wgmma_wait(void) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}
// Before a barrier: what this thread wrote to shared memory is seen by products behind it.
static __device__ inline void lp_cuda_wgmma_publish(void) {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

#include "backend/cuda/cuda_wgmma.cuh"

#else
#define LP_CUDA_HAS_WGMMA 0
#endif

#endif
