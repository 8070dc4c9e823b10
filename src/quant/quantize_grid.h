// What the integers of a group stand for, and the nearest of them, in lanes: -L .. L - 1 of Q4_0,
// Q5_0 and Q6_K, or the codebook of IQ4_NL and IQ4_XS (lp_codebooks_iq4_nl).
//
// The index of the nearest entry of the codebook is the number of midpoints that are below v. Where
// there are permutations they are searched as a binary tree in heap order (node 1 is the middle
// one, the children of n are 2n and 2n + 1); elsewhere all fifteen are compared. The same
// comparisons decide, so that the result is the same.
#ifndef LP_QUANT_QUANTIZE_GRID_H
#define LP_QUANT_QUANTIZE_GRID_H

#include "quant/quantize_lanes.h"

// For a linear grid: its L. Always a constant where it is used, so that the compiler sees one grid.
enum grid { GRID_CODEBOOK = 0, GRID_Q4 = 8, GRID_Q5 = 16, GRID_Q6 = 32 };

static const float book_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};

#if defined(__AVX2__)

static const float book_nodes[16] = {0,     -4.5f, -57.0f,  45.5f,  -93.5f, -28.5f,
                                     19.0f, 79.0f, -115.5f, -74.0f, -42.0f, -16.0f,
                                     7.0f,  31.5f, 61.0f,   101.0f};

// The index plus 16
static inline __m256i book_index_8(__m256 v) {
    __m256 upper = _mm256_loadu_ps(book_nodes), leaves = _mm256_loadu_ps(book_nodes + 8);
    __m256i node = _mm256_set1_epi32(1);
    for (int level = 0; level < 4; level++) {
        __m256 middle = _mm256_permutevar8x32_ps(level < 3 ? upper : leaves, node);
        __m256i above = _mm256_castps_si256(_mm256_cmp_ps(v, middle, _CMP_GT_OQ));
        node = _mm256_sub_epi32(_mm256_add_epi32(node, node), above);
    }
    return node;
}
static inline __m256 book_round_8(__m256 v) {
    __m256i index = book_index_8(v);
    __m256 low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(book_values), index);
    __m256 high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(book_values + 8), index);
    // bit 3 of the index to the sign
    return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)));
}
static inline vf book_round(vf v) {
    return (vf){book_round_8(v.a), book_round_8(v.b)};
}
static inline void book_store_index(uint8_t out[LP_LANES], vf v) {
    __m256 sixteen = _mm256_set1_ps(16.0f);
    v_store_u8(out, (vf){_mm256_sub_ps(_mm256_cvtepi32_ps(book_index_8(v.a)), sixteen),
                         _mm256_sub_ps(_mm256_cvtepi32_ps(book_index_8(v.b)), sixteen)});
}

#else

static inline vf book_count(vf v, const float steps[15]) {
    vf sum = v_zero();
    for (int k = 0; k < 15; k++) {
        vm above = v_gt(v, v_set1(0.5f * (book_values[k] + book_values[k + 1])));
        sum = v_add(sum, v_pick(above, v_set1(steps ? steps[k] : 1.0f), v_zero()));
    }
    return sum;
}
static inline vf book_round(vf v) {
    static const float steps[15] = {23, 21, 18, 16, 14, 13, 12, 11, 12, 12, 13, 15, 16, 20, 24};
    return v_add(v_set1(book_values[0]), book_count(v, steps));
}
static inline void book_store_index(uint8_t out[LP_LANES], vf v) {
    v_store_u8(out, book_count(v, NULL));
}

#endif

static inline float grid_lowest(enum grid grid) {
    return grid == GRID_CODEBOOK ? book_values[0] : -(float)grid;
}
static inline float grid_highest(enum grid grid) {
    return grid == GRID_CODEBOOK ? book_values[15] : (float)grid - 1.0f;
}

// The nearest value of the grid (inside the grid, of two equally near ones any)
static inline vf grid_round(vf v, enum grid grid) {
    if (grid == GRID_CODEBOOK) return book_round(v);
    return v_nearest(v_clamp(v, v_set1(grid_lowest(grid)), v_set1(grid_highest(grid))));
}

// Its index, from 0
static inline void grid_store_index(uint8_t out[LP_LANES], vf v, enum grid grid) {
    if (grid == GRID_CODEBOOK)
        book_store_index(out, v);
    else
        v_store_u8(out, v_sub(grid_round(v, grid), v_set1(grid_lowest(grid))));
}

#endif
