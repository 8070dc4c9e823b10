// A model of the tile instructions of AMX in plain C, that follows Intel's description of them (Software
// Developer's Manual, volume 2: TILELOADD, TILESTORED, TDPBSSD and its kin, TDPBF16PS). What includes it
// compiles the kernels themselves behind it, so that they run on machines that lack AMX. To be included
// behind cmocka.
#ifndef TESTS_AMX_MODEL_H
#define TESTS_AMX_MODEL_H

#include <immintrin.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static _Thread_local struct amx_tile {
    int rows, row_bytes;
    uint8_t data[16][64];
} amx_tiles[8];

static inline void tile_loadconfig(const void *config) {
    const uint8_t *bytes = config;
    assert_int_equal(bytes[0], 1); // palette
    for (int i = 0; i < 8; i++) {
        uint16_t row_bytes;
        memcpy(&row_bytes, bytes + 16 + 2 * i, sizeof row_bytes);
        amx_tiles[i].row_bytes = row_bytes;
        amx_tiles[i].rows = bytes[48 + i];
        assert_true(row_bytes <= 64 && amx_tiles[i].rows <= 16);
    }
}
static inline void tile_zero(int i) {
    memset(amx_tiles[i].data, 0, sizeof amx_tiles[i].data);
}
static inline void tile_load(int i, const void *from, size_t stride) {
    assert_true(amx_tiles[i].rows > 0);
    tile_zero(i);
    for (int r = 0; r < amx_tiles[i].rows; r++)
        memcpy(amx_tiles[i].data[r], (const uint8_t *)from + (size_t)r * stride,
               (size_t)amx_tiles[i].row_bytes);
}
static inline void tile_store(int i, void *to, size_t stride) {
    for (int r = 0; r < amx_tiles[i].rows; r++)
        memcpy((uint8_t *)to + (size_t)r * stride, amx_tiles[i].data[r],
               (size_t)amx_tiles[i].row_bytes);
}
// c[m][n] += sum of a[m][4k + i] b[k][4n + i], in 32 bits that wrap; signed or not as said
static inline void multiply_bytes(int c, int a, int b, bool signed_a, bool signed_b) {
    assert_int_equal(amx_tiles[c].rows, amx_tiles[a].rows);
    assert_int_equal(amx_tiles[c].row_bytes, amx_tiles[b].row_bytes);
    assert_int_equal(amx_tiles[a].row_bytes, 4 * amx_tiles[b].rows);
    for (int m = 0; m < amx_tiles[c].rows; m++)
        for (int n = 0; n < amx_tiles[c].row_bytes / 4; n++) {
            uint32_t sum;
            memcpy(&sum, amx_tiles[c].data[m] + 4 * n, sizeof sum);
            for (int k = 0; k < amx_tiles[b].rows; k++)
                for (int i = 0; i < 4; i++) {
                    const uint8_t x = amx_tiles[a].data[m][4 * k + i],
                                  y = amx_tiles[b].data[k][4 * n + i];
                    sum += (uint32_t)((signed_a ? (int8_t)x : x) * (signed_b ? (int8_t)y : y));
                }
            memcpy(amx_tiles[c].data[m] + 4 * n, &sum, sizeof sum);
        }
}
static inline void tile_dpbssd(int c, int a, int b) {
    multiply_bytes(c, a, b, true, true);
}
static inline void tile_dpbsud(int c, int a, int b) {
    multiply_bytes(c, a, b, true, false);
}
static inline void tile_dpbusd(int c, int a, int b) {
    multiply_bytes(c, a, b, false, true);
}
static inline void tile_dpbuud(int c, int a, int b) {
    multiply_bytes(c, a, b, false, false);
}
// c[m][n] += sum of a[m][2k + i] b[k][2n + i], numbers of bfloat16. The sums over i = 0 and over i = 1 are
// two chains of multiply-adds; bfloat16 below the normal numbers counts as 0.
static inline float bf16_value(const uint8_t *at) {
    uint16_t half;
    memcpy(&half, at, sizeof half);
    const uint32_t bits =
        (half & 0x7f80) == 0 ? (uint32_t)(half & 0x8000) << 16 : (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
static inline void tile_dpbf16ps(int c, int a, int b) {
    assert_int_equal(amx_tiles[c].rows, amx_tiles[a].rows);
    assert_int_equal(amx_tiles[c].row_bytes, amx_tiles[b].row_bytes);
    assert_int_equal(amx_tiles[a].row_bytes, 4 * amx_tiles[b].rows);
    for (int m = 0; m < amx_tiles[c].rows; m++)
        for (int n = 0; n < amx_tiles[c].row_bytes / 4; n++) {
            float sum, parts[2] = {0, 0};
            for (int k = 0; k < amx_tiles[b].rows; k++)
                for (int i = 0; i < 2; i++)
                    parts[i] = fmaf(bf16_value(amx_tiles[a].data[m] + 4 * k + 2 * i),
                                    bf16_value(amx_tiles[b].data[k] + 4 * n + 2 * i), parts[i]);
            memcpy(&sum, amx_tiles[c].data[m] + 4 * n, sizeof sum);
            sum += parts[0] + parts[1];
            memcpy(amx_tiles[c].data[m] + 4 * n, &sum, sizeof sum);
        }
}

#undef _tile_loadconfig
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbssd
#undef _tile_dpbsud
#undef _tile_dpbusd
#undef _tile_dpbuud
#undef _tile_dpbf16ps
#define _tile_loadconfig tile_loadconfig
#define _tile_zero tile_zero
#define _tile_loadd tile_load
#define _tile_stored tile_store
#define _tile_dpbssd tile_dpbssd
#define _tile_dpbsud tile_dpbsud
#define _tile_dpbusd tile_dpbusd
#define _tile_dpbuud tile_dpbuud
#define _tile_dpbf16ps tile_dpbf16ps

#endif
