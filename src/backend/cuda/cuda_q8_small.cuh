// More formats of the 8-bit kernels (cuda_q8_formats.cuh): Q2_K, Q3_K, and the types of small blocks.
// Layouts: quant/blocks.h.
#ifndef LP_BACKEND_CUDA_CUDA_Q8_SMALL_CUH
#define LP_BACKEND_CUDA_CUDA_Q8_SMALL_CUH

#include "backend/cuda/cuda_dequant.cuh"
#include "backend/cuda/cuda_q8_formats.cuh"

// Bits 3 .. 0 of `bits` to bit 0 of the four bytes
static __device__ inline uint32_t lp_cuda_spread(uint32_t bits) {
    return bits * 0x00204081u & 0x01010101u;
}

// Four entries of a table of 16 bytes: of the low nibbles of index's bytes, whose high ones are 0
static __device__ inline uint32_t lp_cuda_lookup16(uint32_t index, const uint32_t (&table)[4]) {
    const uint32_t low = index & 0x07070707u, pairs = low | low >> 4,
                   select = __byte_perm(pairs, 0, 0x4420),
                   first = __byte_perm(table[0], table[1], select),
                   second = __byte_perm(table[2], table[3], select),
                   upper = (index >> 3 & 0x01010101u) * 255;
    return first ^ ((first ^ second) & upper);
}

// ---- Q2_K: a scale and a minimum of 4 bits a half group; Q3_K: a scale

struct lp_cuda_q2_k : lp_cuda_format {
    static constexpr int BYTES = LP_BLOCK_BYTES_Q2_K;
    static constexpr bool HALVES = true, HAS_MIN = true, HALF_MIN = true, SUPER = true;
    struct head_type {
        uint32_t d, scales[4];
    };
    template <class R> static __device__ head_type head(const R &r) {
        head_type h;
        h.d = r.at(80, 0);
#pragma unroll
        for (int i = 0; i < 4; i++) h.scales[i] = r.at(4 * i, 0);
        return h;
    }
    static __device__ float d(const head_type &h) {
        return lp_cuda_f16_fast(h.d);
    }
    static __device__ float dmin(const head_type &h) {
        return lp_cuda_f16_fast(h.d >> 16);
    }
    static __device__ float scale(const head_type &h, int g, int half) {
        return (float)(h.scales[g / 2] >> 8 * (2 * (g & 1) + half) & 15);
    }
    static __device__ float low(const head_type &h, int g, int half) {
        return (float)(h.scales[g / 2] >> (8 * (2 * (g & 1) + half) + 4) & 15);
    }
    template <class R> static __device__ uint32_t word(const R &r, int g, int half, int k) {
        return r.at(16 + 32 * (g / 4) + 16 * half, k) >> 2 * (g % 4) & 0x03030303u;
    }
};

struct lp_cuda_q3_k : lp_cuda_format {
    static constexpr int BYTES = LP_BLOCK_BYTES_Q3_K;
    static constexpr bool HALVES = true, SUPER = true;
    struct head_type {
        uint32_t d, scales[4]; // scales: plus 32
    };
    template <class R> static __device__ head_type head(const R &r) {
        head_type h;
        const uint32_t a = r.at(96, 0), b = r.at(100, 0), c = r.at(104, 0);
        h.d = r.at(108, 0);
        h.scales[0] = (a & 0x0f0f0f0fu) | (c << 4 & 0x30303030u);
        h.scales[1] = (b & 0x0f0f0f0fu) | (c << 2 & 0x30303030u);
        h.scales[2] = (a >> 4 & 0x0f0f0f0fu) | (c & 0x30303030u);
        h.scales[3] = (b >> 4 & 0x0f0f0f0fu) | (c >> 2 & 0x30303030u);
        return h;
    }
    static __device__ float d(const head_type &h) { return lp_cuda_f16_fast(h.d); }
    static __device__ float scale(const head_type &h, int g, int half) {
        return lp_cuda_byte(h.scales[g / 2], 2 * (g & 1) + half) - 32.0f;
    }
    template <class R> static __device__ uint32_t word(const R &r, int g, int half, int k) {
        const uint32_t q = r.at(32 + 32 * (g / 4) + 16 * half, k) >> 2 * (g % 4) & 0x03030303u,
                       third = r.at(16 * half, k) >> g & 0x01010101u;
        return lp_cuda_lower(q | third << 2, 4);
    }
};

// ---- blocks of 32, nibbles: values 0 .. 15 are the low ones. AT: of the nibbles in a block

template <int BLOCK, int AT> struct lp_cuda_nibbles : lp_cuda_group_scales<BLOCK> {
    template <class R> static __device__ uint32_t nibbles(const R &r, int g, int half, int k) {
        return r.at(BLOCK * g + AT, k) >> 4 * half & 0x0f0f0f0fu;
    }
};

// The same with a minimum, which is added: dmin is -1
template <int BLOCK, int AT> struct lp_cuda_nibbles_min : lp_cuda_nibbles<BLOCK, AT> {
    static constexpr bool HAS_MIN = true;
    struct head_type {
        uint32_t both[8]; // d and m
    };
    template <class R> static __device__ head_type head(const R &r) {
        head_type h;
#pragma unroll
        for (int g = 0; g < 8; g++) h.both[g] = r.at(BLOCK * g, 0);
        return h;
    }
    static __device__ float scale(const head_type &h, int g, int) {
        return lp_cuda_f16_fast(h.both[g]);
    }
    static __device__ float low(const head_type &h, int g, int) {
        return lp_cuda_f16_fast(h.both[g] >> 16);
    }
    static __device__ float dmin(const head_type &) {
        return -1;
    }
};

struct lp_cuda_q4_0 : lp_cuda_nibbles<LP_BLOCK_BYTES_Q4_0, 2> {
    template <class R> static __device__ uint32_t word(const R &r, int g, int half, int k) {
        return lp_cuda_lower(nibbles(r, g, half, k), 8);
    }
};

struct lp_cuda_q4_1 : lp_cuda_nibbles_min<LP_BLOCK_BYTES_Q4_1, 4> {
    template <class R> static __device__ uint32_t word(const R &r, int g, int half, int k) {
        return nibbles(r, g, half, k);
    }
};

struct lp_cuda_q5_0 : lp_cuda_nibbles<LP_BLOCK_BYTES_Q5_0, 6> {
    template <class R> static __device__ uint32_t word(const R &r, int g, int half, int k) {
        const uint32_t fifth = lp_cuda_spread(r.at(22 * g + 2, 0) >> (16 * half + 4 * k) & 15);
        return lp_cuda_lower(nibbles(r, g, half, k) | fifth << 4, 16);
    }
};

struct lp_cuda_q5_1 : lp_cuda_nibbles_min<LP_BLOCK_BYTES_Q5_1, 8> {
    template <class R> static __device__ uint32_t word(const R &r, int g, int half, int k) {
        const uint32_t fifth = lp_cuda_spread(r.at(24 * g + 4, 0) >> (16 * half + 4 * k) & 15);
        return nibbles(r, g, half, k) | fifth << 4;
    }
};

// ---- values from a table of 16

static __device__ inline uint32_t lp_cuda_iq4_value(uint32_t index) {
    const uint32_t table[4] = {0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u};
    return lp_cuda_lookup16(index, table);
}

static __device__ inline uint32_t lp_cuda_fp4_value(uint32_t index) { // twice E2M1
    const uint32_t table[4] = {0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu};
    return lp_cuda_lookup16(index, table);
}

struct lp_cuda_iq4_nl : lp_cuda_nibbles<LP_BLOCK_BYTES_IQ4_NL, 2> {
    template <class R> static __device__ uint32_t word(const R &r, int g, int half, int k) {
        return lp_cuda_iq4_value(nibbles(r, g, half, k));
    }
};

struct lp_cuda_iq4_xs : lp_cuda_format {
    static constexpr int BYTES = LP_BLOCK_BYTES_IQ4_XS;
    static constexpr bool SUPER = true;
    struct head_type {
        uint32_t d, low; // d and the scales' bits 5, 4; their bits 3 .. 0
    };
    template <class R> static __device__ head_type head(const R &r) {
        head_type h;
        h.d = r.at(0, 0);
        h.low = r.at(4, 0);
        return h;
    }
    static __device__ float d(const head_type &h) { return lp_cuda_f16_fast(h.d); }
    static __device__ float scale(const head_type &h, int g, int) {
        return (float)(int)((h.low >> 4 * g & 15) | (h.d >> (16 + 2 * g) & 3) << 4) - 32.0f;
    }
    template <class R> static __device__ uint32_t word(const R &r, int g, int half, int k) {
        return lp_cuda_iq4_value(r.at(8 + 16 * g, k) >> 4 * half & 0x0f0f0f0fu);
    }
};

struct lp_cuda_mxfp4 : lp_cuda_nibbles<LP_BLOCK_BYTES_MXFP4, 1> {
    template <class R> static __device__ head_type head(const R &r) {
        head_type h;
#pragma unroll
        for (int g = 0; g < 8; g++) h.scales[g] = lp_cuda_mxfp4_scale((uint8_t)r.at(17 * g, 0));
        return h;
    }
    template <class R> static __device__ uint32_t word(const R &r, int g, int half, int k) {
        return lp_cuda_fp4_value(nibbles(r, g, half, k));
    }
};

// Four blocks of 64: a scale a half group, whose values 0 .. 7 are the low nibbles of eight bytes
struct lp_cuda_nvfp4 : lp_cuda_format {
    static constexpr float RAISE = 8.0f; // scales go up to 224, and the largest is among them
    static constexpr int BYTES = 4 * LP_BLOCK_BYTES_NVFP4;
    static constexpr bool HALVES = true;
    struct head_type {
        uint32_t scales[4];
    };
    template <class R> static __device__ head_type head(const R &r) {
        head_type h;
#pragma unroll
        for (int i = 0; i < 4; i++) h.scales[i] = r.at(LP_BLOCK_BYTES_NVFP4 * i, 0);
        return h;
    }
    static __device__ float scale(const head_type &h, int g, int half) {
        return lp_cuda_nvfp4_scale((uint8_t)(h.scales[g / 2] >> 8 * (2 * (g & 1) + half)));
    }
    template <class R> static __device__ uint32_t word(const R &r, int g, int half, int k) {
        const int at = LP_BLOCK_BYTES_NVFP4 * (g / 2) + 4 + 16 * (g & 1) + 8 * half;
        return lp_cuda_fp4_value(r.at(at, k & 1) >> 4 * (k >> 1) & 0x0f0f0f0fu);
    }
};

#endif
