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

// Chunk threadIdx % 8 of the two panels of a block of N rows. Where there is no key, a row is what lies in the first page,
// which nobody may have written: its codes, of which some are NaN, and its scale count as 0.
template <int N> struct lp_latent_codes {
    uint32_t words[N][2][2];
    float scales[N];
};
template <int N> struct lp_latent_ropes { // of the rotated part: BF16 already
    uint4 chunks[N];
};

template <int BLOCK, int N>
static __device__ __forceinline__ void lp_latent_load_codes(struct lp_latent_codes<N> *c,
                                                            const struct lp_latent_loader<N> &l) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        const uint8_t *block = l.rows[i] + BLOCK * LP_CUDA_F8_BLOCK;
        const uint32_t *codes = (const uint32_t *)(block + 4 + threadIdx.x % 8 * 8);
        c->scales[i] = *(const float *)block;
#pragma unroll
        for (int p = 0; p < 2; p++) {
            c->words[i][p][0] = codes[16 * p];
            c->words[i][p][1] = codes[16 * p + 1];
        }
    }
}

template <int BLOCK, int N>
static __device__ __forceinline__ void
lp_latent_store_codes(const struct lp_latent_codes<N> &c, const int (&n_bytes)[N], uint8_t *tile) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        uint8_t *to = tile + 2 * BLOCK * LP_LATENT_PANEL_BYTES +
                      lp_cuda_tile_at(lp_latent_row_of<N>(i), threadIdx.x % 8);
        const bool there = n_bytes[i] > 0;
        const float unit = there ? LP_CUDA_F8_UNIT * c.scales[i] : 0.0f;
#pragma unroll
        for (int p = 0; p < 2; p++)
            *(uint4 *)(to + p * LP_LATENT_PANEL_BYTES) =
                lp_cuda_f8_widen(there ? c.words[i][p][0] : 0, there ? c.words[i][p][1] : 0, unit);
    }
}

template <int N>
static __device__ __forceinline__ void lp_latent_load_ropes(struct lp_latent_ropes<N> *r,
                                                            const struct lp_latent_loader<N> &l,
                                                            bool whole_chunks) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        const uint8_t *from = l.rows[i] + LP_LATENT_F8_ROPE + threadIdx.x % 8 * 16;
        const uint32_t *words = (const uint32_t *)from;
        r->chunks[i] = whole_chunks ? *(const uint4 *)from
                                    : make_uint4(words[0], words[1], words[2], words[3]);
    }
}

template <int N>
static __device__ __forceinline__ void
lp_latent_store_ropes(const struct lp_latent_ropes<N> &r, const int (&n_bytes)[N], uint8_t *tile) {
#pragma unroll
    for (int i = 0; i < N; i++)
        *(uint4 *)(tile + 8 * LP_LATENT_PANEL_BYTES +
                   lp_cuda_tile_at(lp_latent_row_of<N>(i), threadIdx.x % 8)) =
            n_bytes[i] ? r.chunks[i] : make_uint4(0, 0, 0, 0);
}

// A whole tile
template <int N>
static __device__ __forceinline__ void lp_latent_widen(const struct lp_latent_loader<N> &l,
                                                       bool whole_chunks, uint8_t *tile) {
    struct lp_latent_codes<N> first, second;
    struct lp_latent_ropes<N> ropes;
    lp_latent_load_codes<0>(&first, l);
    lp_latent_load_codes<1>(&second, l);
    lp_latent_store_codes<0>(first, l.n_bytes, tile);
    lp_latent_load_codes<2>(&first, l);
    lp_latent_store_codes<1>(second, l.n_bytes, tile);
    lp_latent_load_codes<3>(&second, l);
    lp_latent_store_codes<2>(first, l.n_bytes, tile);
    lp_latent_load_ropes(&ropes, l, whole_chunks);
    lp_latent_store_codes<3>(second, l.n_bytes, tile);
    lp_latent_store_ropes(ropes, l.n_bytes, tile);
}

// The second half of the rows, which is read next, on its way to the L2 cache.
template <int N>
static __device__ __forceinline__ void lp_latent_prefetch(const struct lp_latent_loader<N> &l) {
    const int at = 2 * LP_CUDA_F8_BLOCK + (int)threadIdx.x % 8 * 128;
#pragma unroll
    for (int i = 0; i < N; i++)
        if (at < LP_LATENT_F8_ROPE + 128)
            asm volatile("prefetch.global.L2 [%0];" ::"l"(l.rows[i] + at));
}

#endif
