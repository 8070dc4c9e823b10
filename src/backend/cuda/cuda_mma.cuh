// The instructions behind the fast kernels, one function each: asynchronous copies into shared memory,
// matrix products of a warp (mma.sync, sm_80 and later) and of four warps (wgmma, sm_90a alone).
//
// A tile in shared memory is panels of 64 values by any number of rows, a multiple of 8: a row is 128
// bytes, and its 16-byte chunks are permuted by the row's number (lp_cuda_tile_at). That is the layout
// of 128-byte swizzling which wgmma reads, and eight rows of a chunk lie in different banks.
#ifndef LP_BACKEND_CUDA_CUDA_MMA_CUH
#define LP_BACKEND_CUDA_CUDA_MMA_CUH

#include <stdint.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "backend/cuda/cuda_common.cuh"

// wgmma exists in code for sm_90a alone; elsewhere kernels that use it have no body.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define LP_CUDA_HAS_WGMMA 1
#endif

#define LP_CUDA_PANEL 64 // values of a panel's row

// The block's dynamic shared memory, from its first multiple of 1024 on.
#define LP_CUDA_SHARED_PAD 1024
#define LP_CUDA_SHARED(name)                                                                       \
    extern __shared__ uint8_t name##_raw[];                                                        \
    uint8_t *const name = name##_raw + (-lp_cuda_shared_at(name##_raw) & 1023)

static __device__ __forceinline__ uint32_t lp_cuda_shared_at(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}

// Byte of the chunk (0..7) of a row of a panel.
static __device__ __forceinline__ uint32_t lp_cuda_tile_at(uint32_t row, uint32_t chunk) {
    return row * 128 + ((chunk ^ (row & 7)) << 4);
}

// ---- asynchronous copies: 16 bytes to shared memory, of which n_bytes (0 or 16) are read

static __device__ __forceinline__ void lp_cuda_copy16(uint32_t to, const void *from, int n_bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(n_bytes)
                 : "memory");
}
// The same from any multiple of 4.
static __device__ __forceinline__ void lp_cuda_copy16_of_4(uint32_t to, const void *from,
                                                           int n_bytes) {
#pragma unroll
    for (int i = 0; i < 16; i += 4)
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to + i),
                     "l"((const uint8_t *)from + i), "r"(n_bytes / 4)
                     : "memory");
}
static __device__ __forceinline__ void lp_cuda_copy_commit(void) {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int N>
static __device__ __forceinline__ void lp_cuda_copy_wait(void) { // at most N groups are left
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// ---- barriers 1 ... 15 of n_threads threads (a multiple of 32), of which some need not wait

static __device__ __forceinline__ void lp_cuda_barrier_wait(int barrier, int n_threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(n_threads) : "memory");
}
static __device__ __forceinline__ void lp_cuda_barrier_arrive(int barrier, int n_threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(n_threads) : "memory");
}

// ---- barriers in shared memory (sm_90): a phase ends when n arrivals were counted; the waiter names
// the phase by its parity, 0 for the first

static __device__ __forceinline__ void lp_cuda_phase_init(uint32_t at, int n) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(n) : "memory");
}
// One arrival, when the copies that this thread has started so far are there.
static __device__ __forceinline__ void lp_cuda_phase_arrive_copied(uint32_t at) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(at) : "memory");
}
// One arrival, of what this thread has stored itself.
static __device__ __forceinline__ void lp_cuda_phase_arrive(uint32_t at) {
    asm volatile("{\n.reg .b64 phase;\nmbarrier.arrive.shared::cta.b64 phase, [%0];\n}" ::"r"(at)
                 : "memory");
}
static __device__ __forceinline__ void lp_cuda_phase_wait(uint32_t at, uint32_t parity) {
#if defined(LP_CUDA_HAS_WGMMA)
    uint32_t done;
    do {
        asm volatile("{\n.reg .pred done;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, done;\n}"
                     : "=r"(done)
                     : "r"(at), "r"(parity)
                     : "memory");
    } while (!done);
#endif
}

// ---- 16-bit types

template <int TYPE> static __device__ __forceinline__ uint32_t lp_cuda_pack2(float low, float high);
template <> __device__ __forceinline__ uint32_t lp_cuda_pack2<LP_TYPE_BF16>(float low, float high) {
    uint32_t out;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
    return out;
}
template <> __device__ __forceinline__ uint32_t lp_cuda_pack2<LP_TYPE_F16>(float low, float high) {
    uint32_t out;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
    return out;
}
template <int TYPE>
static __device__ __forceinline__ void lp_cuda_unpack2(uint32_t pair, float *low, float *high);
template <>
__device__ __forceinline__ void lp_cuda_unpack2<LP_TYPE_BF16>(uint32_t pair, float *low,
                                                              float *high) {
    *low = __uint_as_float(pair << 16);
    *high = __uint_as_float(pair & 0xffff0000u);
}
template <>
__device__ __forceinline__ void lp_cuda_unpack2<LP_TYPE_F16>(uint32_t pair, float *low,
                                                             float *high) {
    const float2 both = __half22float2(*(const __half2 *)&pair);
    *low = both.x;
    *high = both.y;
}

// 2^x for softmax weights, in one instruction: 2^-22 of the result, and 0 below 2^-126.
static __device__ __forceinline__ float lp_cuda_exp2(float x) {
    float out;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
    return out;
}

// The power of two that brings a row's largest magnitude to 2^13 ... 2^14, where F16 is in its range; 1
// where it is not finite.
static __device__ __forceinline__ float lp_cuda_power_to_range(float largest) {
    if (!(largest > 0) || largest == INFINITY) return 1.0f;
    int power = 13 - ((int)(__float_as_uint(largest) >> 23) - 127);
    power = max(-100, min(100, power));
    return __uint_as_float((uint32_t)(power + 127) << 23);
}

// ---- products of a warp: c[16, 8] += a[16, 16] b[16, 8]

// Four matrices of 8 rows by 16 bytes; lanes 8 i ... 8 i + 7 give the rows of matrix i.
static __device__ __forceinline__ void lp_cuda_load_matrices(uint32_t (&m)[4], uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(at)
                 : "memory");
}
static __device__ __forceinline__ void lp_cuda_load_transposed(uint32_t (&m)[4], uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(at)
                 : "memory");
}
template <int TYPE>
static __device__ __forceinline__ void lp_cuda_mma(float *c, const uint32_t (&a)[4], uint32_t b0,
                                                   uint32_t b1);
template <>
__device__ __forceinline__ void lp_cuda_mma<LP_TYPE_BF16>(float *c, const uint32_t (&a)[4],
                                                          uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void lp_cuda_mma<LP_TYPE_F16>(float *c, const uint32_t (&a)[4],
                                                         uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// ---- products of four warps: c[64, N] += a[64, 16] b[16, N], both in shared memory

// Where a matrix begins, as wgmma wants it. A panel whose rows run along the result's rows or columns
// ("k-major"): group_bytes are those of 8 rows; panel_bytes do not matter. A panel whose rows run
// along k: panel_bytes lead to the next 64 columns.
static __device__ __forceinline__ uint64_t lp_cuda_wgmma_matrix(uint32_t at, uint32_t panel_bytes,
                                                                uint32_t group_bytes) {
    return (uint64_t)((at & 0x3ffff) >> 4) | (uint64_t)(panel_bytes >> 4) << 16 |
           (uint64_t)(group_bytes >> 4) << 32 | (uint64_t)1 << 62; // 128-byte swizzling
}

// What ordinary stores and cp.async put into shared memory becomes visible to wgmma; before the
// barrier that the readers pass.
static __device__ __forceinline__ void lp_cuda_wgmma_publish(void) {
#if defined(LP_CUDA_HAS_WGMMA)
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
static __device__ __forceinline__ void lp_cuda_wgmma_begin(void) {
#if defined(LP_CUDA_HAS_WGMMA)
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
static __device__ __forceinline__ void lp_cuda_wgmma_commit(void) {
#if defined(LP_CUDA_HAS_WGMMA)
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
template <int N> static __device__ __forceinline__ void lp_cuda_wgmma_wait(void) {
#if defined(LP_CUDA_HAS_WGMMA)
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
#endif
}

// Registers of each thread of the calling four warps: more or fewer than the kernel began with.
template <int N> static __device__ __forceinline__ void lp_cuda_more_registers(void) {
#if defined(LP_CUDA_HAS_WGMMA)
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
#endif
}
template <int N> static __device__ __forceinline__ void lp_cuda_fewer_registers(void) {
#if defined(LP_CUDA_HAS_WGMMA)
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
#endif
}

#define LP_F4(c, i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define LP_F16(c, i) LP_F4(c, i), LP_F4(c, i + 4), LP_F4(c, i + 8), LP_F4(c, i + 12)
#define LP_F64(c, i) LP_F16(c, i), LP_F16(c, i + 16), LP_F16(c, i + 32), LP_F16(c, i + 48)

#define LP_REGS_32                                                                                 \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,"  \
    "%25,%26,%27,%28,%29,%30,%31}"
#define LP_REGS_64                                                                                 \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,"  \
    "%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
    "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}"
#define LP_REGS_128                                                                                \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,"  \
    "%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
    "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,%65,%66,%67,%68,%69,%70," \
    "%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93," \
    "%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,"    \
    "%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127}"

#if defined(LP_CUDA_HAS_WGMMA)
#define LP_WGMMA_64(kind)                                                                          \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %34, 0;\n"                                  \
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32." kind "." kind " " LP_REGS_32        \
                 ", %32, %33, add, 1, 1, 0, 0;\n}"                                                 \
                 : LP_F16(c, 0), LP_F16(c, 16)                                                     \
                 : "l"(a), "l"(b), "r"((int)adds))
#define LP_WGMMA_256(kind)                                                                         \
    asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32." kind "." kind " " LP_REGS_128      \
                 ", %128, %129, 1, 1, 1, 0, 1;"                                                    \
                 : LP_F64(c, 0), LP_F64(c, 64)                                                     \
                 : "l"(a), "l"(b))
#define LP_WGMMA_128(kind)                                                                         \
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." kind "." kind " " LP_REGS_64       \
                 ", %64, %65, 1, 1, 1, 0, 1;"                                                      \
                 : LP_F64(c, FIRST)                                                                \
                 : "l"(a), "l"(b))
#define LP_WGMMA_ROWS_128(kind)                                                                    \
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." kind "." kind " " LP_REGS_64       \
                 ", {%64,%65,%66,%67}, %68, 1, 1, 1, 1;"                                           \
                 : LP_F64(c, 0)                                                                    \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
#define LP_WGMMA_ROWS_256(kind)                                                                    \
    asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32." kind "." kind " " LP_REGS_128      \
                 ", {%128,%129,%130,%131}, %132, 1, 1, 1, 1;"                                      \
                 : LP_F64(c, 0), LP_F64(c, 64)                                                     \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
#else
#define LP_WGMMA_ROWS_128(kind) (void)c, (void)a, (void)b
#define LP_WGMMA_ROWS_256(kind) (void)c, (void)a, (void)b
#define LP_WGMMA_64(kind) (void)c, (void)a, (void)b, (void)adds
#define LP_WGMMA_128(kind) (void)c, (void)a, (void)b
#define LP_WGMMA_256(kind) (void)c, (void)a, (void)b
#endif

// 64 columns; both matrices k-major. adds false: c = a b.
template <int TYPE>
static __device__ __forceinline__ void lp_cuda_wgmma_64(float (&c)[32], uint64_t a, uint64_t b,
                                                        bool adds) {
    if (TYPE == LP_TYPE_BF16)
        LP_WGMMA_64("bf16");
    else
        LP_WGMMA_64("f16");
}
// 256 columns; b's rows run along k.
template <int TYPE>
static __device__ __forceinline__ void lp_cuda_wgmma_256(float (&c)[128], uint64_t a, uint64_t b) {
    if (TYPE == LP_TYPE_BF16)
        LP_WGMMA_256("bf16");
    else
        LP_WGMMA_256("f16");
}

// 128 of 256 columns, c[FIRST] and the 63 behind it: for kernels whose threads begin with fewer registers than
// an instruction of 256 columns has operands.
template <int TYPE, int FIRST>
static __device__ __forceinline__ void lp_cuda_wgmma_128(float (&c)[128], uint64_t a, uint64_t b) {
    if (TYPE == LP_TYPE_BF16)
        LP_WGMMA_128("bf16");
    else
        LP_WGMMA_128("f16");
}

// The same with a in registers, as lp_cuda_mma has it, a warp 16 rows; 128 or 256 columns.
template <int TYPE>
static __device__ __forceinline__ void lp_cuda_wgmma_rows(float (&c)[64], const uint32_t *a,
                                                          uint64_t b) {
    if (TYPE == LP_TYPE_BF16)
        LP_WGMMA_ROWS_128("bf16");
    else
        LP_WGMMA_ROWS_128("f16");
}
template <int TYPE>
static __device__ __forceinline__ void lp_cuda_wgmma_rows(float (&c)[128], const uint32_t *a,
                                                          uint64_t b) {
    if (TYPE == LP_TYPE_BF16)
        LP_WGMMA_ROWS_256("bf16");
    else
        LP_WGMMA_ROWS_256("f16");
}

#undef LP_WGMMA_ROWS_128
#undef LP_WGMMA_ROWS_256
#undef LP_WGMMA_64
#undef LP_WGMMA_128
#undef LP_WGMMA_256

#endif
