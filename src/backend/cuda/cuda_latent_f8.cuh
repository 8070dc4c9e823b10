// Tiles of an FP8 cache for the kernels over latents: codes come through registers, since they are BF16 numbers
// once they are in shared memory (cuda_f8.cuh).
#ifndef LP_BACKEND_CUDA_CUDA_LATENT_F8_CUH
#define LP_BACKEND_CUDA_CUDA_LATENT_F8_CUH

#include "backend/cuda/cuda_f8.cuh"
#include "backend/cuda/cuda_latent.cuh"

// The numbers that tiles of a cache are multiplied as.
template <int CACHE> struct lp_latent_math {
    static constexpr int type = CACHE == LP_TYPE_F8_E4M3 ? LP_TYPE_BF16 : CACHE;
};

#define LP_LATENT_F8_ROPE (LP_CUDA_LATENT / 128 * LP_CUDA_F8_BLOCK) // byte of the rotated part
#define LP_LATENT_F8_HALF 4                                         // panels: two blocks of a row

// Chunk threadIdx % 8 of four panels of N rows: of each two words of codes, and the scales of two blocks.
template <int N> struct lp_latent_codes {
    uint32_t words[N][LP_LATENT_F8_HALF][2];
    float scales[N][2];
};

template <int FIRST, int N>
static __device__ __forceinline__ void lp_latent_load_codes(struct lp_latent_codes<N> *c,
                                                            const struct lp_latent_loader<N> &l) {
    const int at = FIRST * 64 + (int)threadIdx.x % 8 * 8;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const bool there = l.n_bytes[i] > 0;
#pragma unroll
        for (int p = 0; p < LP_LATENT_F8_HALF; p++) {
            const uint32_t *from = lp_cuda_f8_codes(l.rows[i], at + p * 64);
            c->words[i][p][0] = there ? from[0] : 0;
            c->words[i][p][1] = there ? from[1] : 0;
        }
#pragma unroll
        for (int k = 0; k < 2; k++)
            c->scales[i][k] = there ? lp_cuda_f8_scale(l.rows[i], (FIRST / 2 + k) * 128) : 0.0f;
    }
}

template <int FIRST, int N>
static __device__ __forceinline__ void lp_latent_store_codes(const struct lp_latent_codes<N> &c,
                                                             uint8_t *tile) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        uint8_t *to = tile + FIRST * LP_LATENT_PANEL_BYTES +
                      lp_cuda_tile_at(lp_latent_row_of<N>(i), threadIdx.x % 8);
#pragma unroll
        for (int p = 0; p < LP_LATENT_F8_HALF; p++)
            *(uint4 *)(to + p * LP_LATENT_PANEL_BYTES) =
                lp_cuda_f8_widen(c.words[i][p][0], c.words[i][p][1], 256.0f * c.scales[i][p / 2]);
    }
}

// The rotated part: BF16 already.
template <int N>
static __device__ __forceinline__ void lp_latent_move_rope(const struct lp_latent_loader<N> &l,
                                                           bool whole_chunks, uint8_t *tile) {
    uint4 x[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        const uint8_t *from = l.rows[i] + LP_LATENT_F8_ROPE + threadIdx.x % 8 * 16;
        const uint32_t *words = (const uint32_t *)from;
        x[i] = make_uint4(0, 0, 0, 0);
        if (l.n_bytes[i] > 0)
            x[i] = whole_chunks ? *(const uint4 *)from
                                : make_uint4(words[0], words[1], words[2], words[3]);
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        *(uint4 *)(tile + 8 * LP_LATENT_PANEL_BYTES +
                   lp_cuda_tile_at(lp_latent_row_of<N>(i), threadIdx.x % 8)) = x[i];
}

// A whole tile
template <int N>
static __device__ __forceinline__ void lp_latent_widen(const struct lp_latent_loader<N> &l,
                                                       bool whole_chunks, uint8_t *tile) {
    struct lp_latent_codes<N> codes;
    lp_latent_load_codes<0>(&codes, l);
    lp_latent_store_codes<0>(codes, tile);
    lp_latent_load_codes<LP_LATENT_F8_HALF>(&codes, l);
    lp_latent_store_codes<LP_LATENT_F8_HALF>(codes, tile);
    lp_latent_move_rope(l, whole_chunks, tile);
}

// The second half of the rows, which is read next, on its way to the L2 cache.
template <int N>
static __device__ __forceinline__ void lp_latent_prefetch(const struct lp_latent_loader<N> &l) {
    const int at = 2 * LP_CUDA_F8_BLOCK + (int)threadIdx.x % 8 * 128;
#pragma unroll
    for (int i = 0; i < N; i++)
        if (at < LP_LATENT_F8_ROPE + 128 && l.n_bytes[i] > 0)
            asm volatile("prefetch.global.L2 [%0];" ::"l"(l.rows[i] + at));
}

#endif
