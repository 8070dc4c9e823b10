// The formats of the 8-bit kernels (cuda_q8_formats.cuh) whose values are entries of a grid: IQ1, IQ2, IQ3.
// Layouts: quant/blocks.h. A word is half an entry of eight values or a whole one of four, with signs.
#ifndef LP_BACKEND_CUDA_CUDA_Q8_GRID_CUH
#define LP_BACKEND_CUDA_CUDA_Q8_GRID_CUH

#include "backend/cuda/cuda_common.cuh"
#include "backend/cuda/cuda_q8_small.cuh"
#include "quant/codebooks.h"

// The grid of the one format of this file, filled once a process (which has one GPU)
static __device__ uint32_t lp_cuda_grid[2 * 2048];

static inline void lp_cuda_grid_fill(struct lp_cuda_device *dev, const void *grid, size_t bytes) {
    static bool filled;
    if (filled || dev->error) return;
    filled = lp_cuda_note(dev, cudaMemcpyToSymbol(lp_cuda_grid, grid, bytes),
                          "the grid of a weight type");
}

// Of this file's own grid: members of a format are the same function in all files.
template <class F> static void lp_cuda_grid_prepare(struct lp_cuda_device *dev) {
    size_t bytes;
    const void *grid = F::grid(&bytes);
    lp_cuda_grid_fill(dev, grid, bytes);
}

// The values, none of them 0, with a sign for each set bit of 3 .. 0
static __device__ inline uint32_t lp_cuda_signed(uint32_t values, uint32_t bits) {
    const uint32_t ones = lp_cuda_spread(bits), all = ones * 255;
    return (values ^ all) + ones;
}
// Seven signs and their parity
static __device__ inline uint32_t lp_cuda_even_signs(uint32_t code) {
    return code | (__popc(code) & 1) << 7;
}

// d times an eighth or a quarter times an odd number
struct lp_cuda_odd_head {
    uint32_t d, nibbles[2]; // of group g: bits 4g .. of nibbles[half]
};

template <int SHARE> struct lp_cuda_odd_scales : lp_cuda_format {
    static constexpr bool SUPER = true;
    typedef lp_cuda_odd_head head_type;
    static __device__ float d(const head_type &h) { return lp_cuda_f16_fast(h.d) * (1.0f / SHARE); }
    static __device__ float scale(const head_type &h, int g, int half) {
        return (float)(2 * (h.nibbles[half] >> 4 * g & 15) + 1);
    }
};

// A nibble a group, for both halves: the top bits of the words from AT on, STRIDE bytes apart
template <int AT, int STRIDE, class R>
static __device__ inline lp_cuda_odd_head lp_cuda_top_nibbles(const R &r) {
    lp_cuda_odd_head h;
    h.d = r.at(0, 0);
    h.nibbles[0] = 0;
#pragma unroll
    for (int g = 0; g < 8; g++) h.nibbles[0] |= r.at(AT + STRIDE * g, 0) >> 28 << 4 * g;
    h.nibbles[1] = h.nibbles[0];
    return h;
}

// Nibbles of bytes: the low ones are of the first halves
static __device__ inline void lp_cuda_split_nibbles(uint32_t a, uint32_t b, uint32_t (&out)[2]) {
    out[0] = out[1] = 0;
#pragma unroll
    for (int g = 0; g < 8; g++) {
        const uint32_t byte = (g < 4 ? a : b) >> 8 * (g % 4);
        out[0] |= (byte & 15) << 4 * g;
        out[1] |= (byte >> 4 & 15) << 4 * g;
    }
}

struct lp_cuda_iq2_xxs : lp_cuda_odd_scales<8> {
    static constexpr int BYTES = LP_BLOCK_BYTES_IQ2_XXS;
    static const void *grid(size_t *bytes) {
        return *bytes = sizeof lp_codebooks_iq2xxs, lp_codebooks_iq2xxs;
    }
    template <class R> static __device__ head_type head(const R &r) {
        return lp_cuda_top_nibbles<6, 8>(r);
    }
    template <class R> static __device__ uint32_t word(const R &r, int g, int half, int k) {
        const int l = 2 * half + (k >> 1);
        const uint32_t index = r.at(2 + 8 * g, 0) >> 8 * l & 255,
                       code = r.at(6 + 8 * g, 0) >> 7 * l & 127;
        return lp_cuda_signed(lp_cuda_grid[2 * index + (k & 1)],
                              lp_cuda_even_signs(code) >> 4 * (k & 1) & 15);
    }
};

struct lp_cuda_iq2_xs : lp_cuda_odd_scales<8> {
    static constexpr int BYTES = LP_BLOCK_BYTES_IQ2_XS;
    static constexpr bool HALVES = true;
    static const void *grid(size_t *bytes) {
        return *bytes = sizeof lp_codebooks_iq2xs, lp_codebooks_iq2xs;
    }
    template <class R> static __device__ head_type head(const R &r) {
        head_type h;
        h.d = r.at(0, 0);
        lp_cuda_split_nibbles(r.at(66, 0), r.at(70, 0), h.nibbles);
        return h;
    }
    template <class R> static __device__ uint32_t word(const R &r, int g, int half, int k) {
        const uint32_t both = r.at(2 + 8 * g + 4 * half, 0) >> 16 * (k >> 1), index = both & 511,
                       code = both >> 9 & 127;
        return lp_cuda_signed(lp_cuda_grid[2 * index + (k & 1)],
                              lp_cuda_even_signs(code) >> 4 * (k & 1) & 15);
    }
};

struct lp_cuda_iq2_s : lp_cuda_odd_scales<8> {
    static constexpr int BYTES = LP_BLOCK_BYTES_IQ2_S;
    static constexpr bool HALVES = true;
    static const void *grid(size_t *bytes) {
        return *bytes = sizeof lp_codebooks_iq2s, lp_codebooks_iq2s;
    }
    template <class R> static __device__ head_type head(const R &r) {
        head_type h;
        h.d = r.at(0, 0);
        lp_cuda_split_nibbles(r.at(74, 0), r.at(78, 0), h.nibbles);
        return h;
    }
    template <class R> static __device__ uint32_t word(const R &r, int g, int half, int k) {
        const int l = 2 * half + (k >> 1);
        const uint32_t high = r.at(66 + 4 * (g / 4), 0) >> (8 * (g % 4) + 2 * l) & 3,
                       index = (r.at(2 + 4 * g, 0) >> 8 * l & 255) | high << 8,
                       signs = r.at(34 + 4 * g, 0) >> (8 * l + 4 * (k & 1)) & 15;
        return lp_cuda_signed(lp_cuda_grid[2 * index + (k & 1)], signs);
    }
};

struct lp_cuda_iq3_xxs : lp_cuda_odd_scales<4> {
    static constexpr int BYTES = LP_BLOCK_BYTES_IQ3_XXS;
    static const void *grid(size_t *bytes) {
        return *bytes = sizeof lp_codebooks_iq3xxs, lp_codebooks_iq3xxs;
    }
    template <class R> static __device__ head_type head(const R &r) {
        return lp_cuda_top_nibbles<66, 4>(r);
    }
    template <class R> static __device__ uint32_t word(const R &r, int g, int half, int k) {
        const uint32_t index = r.at(2 + 8 * g + 4 * half, 0) >> 8 * k & 255,
                       code = r.at(66 + 4 * g, 0) >> 7 * (2 * half + (k >> 1)) & 127;
        return lp_cuda_signed(lp_cuda_grid[index], lp_cuda_even_signs(code) >> 4 * (k & 1) & 15);
    }
};

struct lp_cuda_iq3_s : lp_cuda_odd_scales<1> {
    static constexpr int BYTES = LP_BLOCK_BYTES_IQ3_S;
    static const void *grid(size_t *bytes) {
        return *bytes = sizeof lp_codebooks_iq3s, lp_codebooks_iq3s;
    }
    template <class R> static __device__ head_type head(const R &r) {
        head_type h;
        h.d = r.at(0, 0);
        h.nibbles[0] = h.nibbles[1] = r.at(106, 0);
        return h;
    }
    template <class R> static __device__ uint32_t word(const R &r, int g, int half, int k) {
        const uint32_t high = r.at(66 + 4 * (g / 4), 0) >> (8 * (g % 4) + 4 * half + k) & 1,
                       index = (r.at(2 + 8 * g + 4 * half, 0) >> 8 * k & 255) | high << 8,
                       signs = r.at(74 + 4 * g, 0) >> (16 * half + 4 * k) & 15;
        return lp_cuda_signed(lp_cuda_grid[index], signs);
    }
};

// ---- IQ1: -1, 0 or 1, plus or minus an eighth: eight times that. bits: the entry's three high bits of
// the index and, above them, whether the eighth is taken off

static __device__ inline uint32_t lp_cuda_iq1_word(uint32_t low, uint32_t bits, int k) {
    const uint32_t eight = lp_cuda_grid[2 * (low | (bits & 7) << 8) + (k & 1)] << 3 & 0xf8f8f8f8u;
    return bits & 8 ? __vsub4(eight, 0x01010101u) : eight | 0x01010101u;
}

struct lp_cuda_iq1_s : lp_cuda_odd_scales<8> {
    static constexpr int BYTES = LP_BLOCK_BYTES_IQ1_S;
    static const void *grid(size_t *bytes) {
        return *bytes = sizeof lp_codebooks_iq1s, lp_codebooks_iq1s;
    }
    template <class R> static __device__ head_type head(const R &r) {
        head_type h;
        h.d = r.at(0, 0);
        h.nibbles[0] = 0;
#pragma unroll
        for (int g = 0; g < 8; g++)
            h.nibbles[0] |= (r.at(34 + 4 * (g / 2), 0) >> (16 * (g & 1) + 12) & 7) << 4 * g;
        h.nibbles[1] = h.nibbles[0];
        return h;
    }
    template <class R> static __device__ uint32_t word(const R &r, int g, int half, int k) {
        const int l = 2 * half + (k >> 1);
        const uint32_t qh = r.at(34 + 4 * (g / 2), 0) >> 16 * (g & 1);
        return lp_cuda_iq1_word(r.at(2 + 4 * g, 0) >> 8 * l & 255,
                                (qh >> 3 * l & 7) | (qh >> 12 & 8), k);
    }
};

struct lp_cuda_iq1_m : lp_cuda_odd_scales<8> {
    static constexpr int BYTES = LP_BLOCK_BYTES_IQ1_M;
    static constexpr bool HALVES = true;
    static const void *grid(size_t *bytes) {
        return *bytes = sizeof lp_codebooks_iq1s, lp_codebooks_iq1s;
    }
    template <class R> static __device__ head_type head(const R &r) {
        head_type h;
        const uint32_t a = r.at(48, 0), b = r.at(52, 0);
        h.d = (a >> 12 & 15) | (a >> 28) << 4 | (b >> 12 & 15) << 8 | (b >> 28) << 12;
        h.nibbles[0] = h.nibbles[1] = 0;
#pragma unroll
        for (int i = 0; i < 16; i++) { // halves of groups: 3 bits each, four in 16 bits
            const uint32_t bits = (i < 8 ? a : b) >> (16 * (i / 4 % 2) + 3 * (i % 4)) & 7;
            h.nibbles[i % 2] |= bits << 4 * (i / 2);
        }
        return h;
    }
    template <class R> static __device__ uint32_t word(const R &r, int g, int half, int k) {
        const int l = 2 * half + (k >> 1);
        return lp_cuda_iq1_word(r.at(4 * g, 0) >> 8 * l & 255,
                                r.at(32 + 4 * (g / 2), 0) >> (16 * (g & 1) + 4 * l) & 15, k);
    }
};

#endif
