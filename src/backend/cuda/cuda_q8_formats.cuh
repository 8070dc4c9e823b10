// How the 8-bit kernels read a superblock (256 values of a row) of each weight type, from shared memory.
//
// A format F has
//   BYTES                     of a superblock
//   HALVES, HAS_MIN, SUPER    a scale a half group; minimums; a factor d (and dmin) a superblock
//   HALF_MIN                  of HAS_MIN: a minimum a half group
//   head(r)                   what scale and low need, in registers
//   scale(head, g, half), low(head, g, half), d(head), dmin(head)
//   word(r, g, half, k)       values 16 half + 4k ... + 3 of group g, as int8. g and half are constants
//                             after unrolling, k may vary among lanes
// where r is one of the two readers. at(off, k) is the word at off + 4k; off is a constant.
#ifndef LP_BACKEND_CUDA_CUDA_Q8_FORMATS_CUH
#define LP_BACKEND_CUDA_CUDA_Q8_FORMATS_CUH

#include "backend/cuda/cuda_ptx.cuh"
#include "quant/blocks.h"

// Chips whose blocks may have the shared memory that the kernels take; for others their code is empty.
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ < 900 || __CUDA_ARCH__ >= 1200)
#define LP_CUDA_ROOM 0
#else
#define LP_CUDA_ROOM 1
#endif

// A superblock at a multiple of 16 of which all is read: 16 bytes at once; k must be a constant.
struct lp_cuda_quads {
    const uint8_t *base;
    __device__ explicit lp_cuda_quads(const uint8_t *p) : base(p) {}
    __device__ uint32_t aligned(int at) const {
        const uint4 q = *(const uint4 *)(base + (at & ~15));
        const int i = at >> 2 & 3;
        return i == 0 ? q.x : i == 1 ? q.y : i == 2 ? q.z : q.w;
    }
    __device__ uint32_t at(int off, int k) const {
        const int first = (off & ~3) + 4 * k;
        if (off % 4 == 0) return aligned(first);
        return __funnelshift_r(aligned(first), aligned(first + 4), 8 * (off & 3));
    }
};

// A superblock at any address: word by word. May touch the 8 bytes behind it.
template <bool ALIGNED> struct lp_cuda_words {
    const uint8_t *base; // a multiple of 4
    unsigned shift;
    __device__ explicit lp_cuda_words(const uint8_t *p)
        : base(ALIGNED ? p : p - ((uintptr_t)p & 3)),
          shift(ALIGNED ? 0 : 8 * (unsigned)((uintptr_t)p & 3)) {}
    __device__ uint32_t raised(int at) const {
        const uint32_t low = *(const uint32_t *)(base + at);
        return ALIGNED ? low : __funnelshift_r(low, *(const uint32_t *)(base + at + 4), shift);
    }
    __device__ uint32_t at(int off, int k) const {
        const int first = (off & ~3) + 4 * k;
        if (off % 4 == 0) return raised(first);
        return __funnelshift_r(raised(first), raised(first + 4), 8 * (off & 3));
    }
};

// Every byte minus `by`: bytes below 128, by at most 128
static __device__ inline uint32_t lp_cuda_lower(uint32_t bytes, uint32_t by) {
    return ((bytes | 0x80808080u) - by * 0x01010101u) ^ 0x80808080u;
}
static __device__ inline float lp_cuda_byte(uint32_t word, int i) {
    return (float)(word >> 8 * i & 255);
}
static __device__ inline float lp_cuda_signed_byte(uint32_t word, int i) {
    return (float)(int8_t)(word >> 8 * i);
}

// What a format has unless it says otherwise
struct lp_cuda_format {
    static constexpr bool FLOATS = false; // 16-bit floats (cuda_wide.cuh)
    static constexpr float RAISE =
        64.0f; // of weights as float16, so that small scales are normal numbers
    static constexpr bool HALVES = false, HAS_MIN = false, HALF_MIN = false, SUPER = false;
    template <class H> static __device__ float d(const H &) { return 1; }
    template <class H> static __device__ float dmin(const H &) { return 0; }
    template <class H> static __device__ float low(const H &, int, int) { return 0; }
};

// ---- Q4_K, Q5_K

struct lp_cuda_k_head {
    uint32_t d, scales[2], mins[2]; // d and dmin; a byte a group
};

template <class R> static __device__ inline lp_cuda_k_head lp_cuda_k_head_of(const R &r) {
    lp_cuda_k_head h;
    const uint32_t a = r.at(4, 0), b = r.at(8, 0), c = r.at(12, 0);
    h.d = r.at(0, 0);
    h.scales[0] = a & 0x3f3f3f3fu;
    h.scales[1] = (c & 0x0f0f0f0fu) | (a >> 2 & 0x30303030u);
    h.mins[0] = b & 0x3f3f3f3fu;
    h.mins[1] = (c >> 4 & 0x0f0f0f0fu) | (b >> 2 & 0x30303030u);
    return h;
}

struct lp_cuda_q4_k : lp_cuda_format {
    static constexpr int BYTES = LP_BLOCK_BYTES_Q4_K;
    static constexpr bool HAS_MIN = true, SUPER = true;
    typedef lp_cuda_k_head head_type;
    template <class R> static __device__ head_type head(const R &r) { return lp_cuda_k_head_of(r); }
    static __device__ float d(const head_type &h) { return lp_cuda_f16_fast(h.d); }
    static __device__ float dmin(const head_type &h) { return lp_cuda_f16_fast(h.d >> 16); }
    static __device__ float scale(const head_type &h, int g, int) {
        return lp_cuda_byte(h.scales[g / 4], g % 4);
    }
    static __device__ float low(const head_type &h, int g, int) {
        return lp_cuda_byte(h.mins[g / 4], g % 4);
    }
    template <class R> static __device__ uint32_t word(const R &r, int g, int half, int k) {
        return r.at(16 + 32 * (g / 2) + 16 * half, k) >> 4 * (g & 1) & 0x0f0f0f0fu;
    }
};

struct lp_cuda_q5_k : lp_cuda_q4_k {
    static constexpr int BYTES = LP_BLOCK_BYTES_Q5_K;
    template <class R> static __device__ uint32_t word(const R &r, int g, int half, int k) {
        const uint32_t fifth = r.at(16 + 16 * half, k) >> g & 0x01010101u;
        return (r.at(48 + 32 * (g / 2) + 16 * half, k) >> 4 * (g & 1) & 0x0f0f0f0fu) | fifth << 4;
    }
};

// ---- Q6_K: groups 0 .. 3 are in the first half of ql and qh, 4 .. 7 in the second

struct lp_cuda_q6_k_head {
    uint32_t d, scales[4];
};

struct lp_cuda_q6_k : lp_cuda_format {
    static constexpr int BYTES = LP_BLOCK_BYTES_Q6_K;
    static constexpr bool HALVES = true, SUPER = true;
    typedef lp_cuda_q6_k_head head_type;
    template <class R> static __device__ head_type head(const R &r) {
        head_type h;
        h.d = r.at(208, 0);
#pragma unroll
        for (int i = 0; i < 4; i++) h.scales[i] = r.at(192, i);
        return h;
    }
    static __device__ float d(const head_type &h) {
        return lp_cuda_f16_fast(h.d);
    }
    static __device__ float scale(const head_type &h, int g, int half) {
        return lp_cuda_signed_byte(h.scales[g / 2], 2 * (g & 1) + half);
    }
    template <class R> static __device__ uint32_t word(const R &r, int g, int half, int k) {
        const int n = g / 4, i = g % 4;
        const uint32_t q = r.at(64 * n + 32 * (i & 1) + 16 * half, k) >> 4 * (i / 2) & 0x0f0f0f0fu;
        const uint32_t high = r.at(128 + 32 * n + 16 * half, k) >> 2 * i & 0x03030303u;
        return lp_cuda_lower(q | high << 4, 32);
    }
};

// ---- blocks of 32: a scale a group

template <int BLOCK> struct lp_cuda_group_scales : lp_cuda_format { // BLOCK: bytes of one
    static constexpr int BYTES = 8 * BLOCK;
    struct head_type {
        float scales[8];
    };
    template <class R> static __device__ head_type head(const R &r) {
        head_type h;
#pragma unroll
        for (int g = 0; g < 8; g++) h.scales[g] = lp_cuda_f16_fast(r.at(BLOCK * g, 0));
        return h;
    }
    static __device__ float scale(const head_type &h, int g, int) {
        return h.scales[g];
    }
};

struct lp_cuda_q8_0 : lp_cuda_group_scales<LP_BLOCK_BYTES_Q8_0> {
    template <class R> static __device__ uint32_t word(const R &r, int g, int half, int k) {
        return r.at(LP_BLOCK_BYTES_Q8_0 * g + 2 + 16 * half, k);
    }
};

#endif
