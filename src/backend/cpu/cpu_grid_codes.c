// The IQ grids, coded; made from the grids themselves when the first device opens.
#include "backend/cpu/cpu_grid_codes.h"

#include <pthread.h>
#include <stdbool.h>

#include "quant/codebooks.h"

struct lp_cpu_grid_codes lp_cpu_grid_codes;

// Values first, first + step, ... have the symbols 0, 1, ...; rounded down, so that steps may differ
// by a little.
struct symbols {
    int first, step;
};

static unsigned symbol_of(struct symbols s, uint64_t entry, int j) {
    return (unsigned)(((int8_t)(entry >> 8 * j) - s.first) / s.step);
}

static void code_octets(const uint64_t *grid, int n, struct symbols s, uint8_t *code0,
                        uint8_t *code1) {
    for (int i = 0; i < n; i++) {
        code0[i] = code1[i] = 0;
        for (int j = 0; j < 4; j++) {
            code0[i] |= (uint8_t)(symbol_of(s, grid[i], j) << 2 * j);
            code1[i] |= (uint8_t)(symbol_of(s, grid[i], j + 4) << 2 * j);
        }
    }
}

static void code_quartets(const uint32_t *grid, int n, struct symbols s, uint8_t *code0,
                          uint8_t *code1) {
    for (int i = 0; i < n; i++) {
        code0[i] = code1[i] = 0;
        for (int j = 0; j < 4; j++) {
            unsigned symbol = symbol_of(s, grid[i], j);
            code0[i] |= (uint8_t)((symbol & 3) << 2 * j);
            code1[i] |= (uint8_t)(symbol >> 2 << j);
        }
    }
}

static void fill_values(const int8_t *values, int n_symbols, bool delta, uint8_t *table) {
    for (int i = 0; i < 64; i++) {
        int v = values[i & (n_symbols - 1)], sign = i >> LP_CPU_GRID_SIGN_BIT & 1 ? -1 : 1;
        table[i] = (uint8_t)(128 + (delta ? 8 * v + sign : sign * v));
    }
}

static void fill(void) {
    static const int8_t iq2_values[] = {8, 25, 43, 0}, iq1_values[] = {-1, 0, 1, 0},
                        iq3xxs_values[] = {4, 12, 20, 28, 36, 44, 52, 62},
                        iq3s_values[] = {1, 3, 5, 7, 9, 11, 13, 15};
    const struct symbols iq2 = {8, 17}, iq1 = {-1, 1}, iq3xxs = {4, 8}, iq3s = {1, 2};
    struct lp_cpu_grid_codes *c = &lp_cpu_grid_codes;
    code_octets(lp_codebooks_iq2xxs, 256, iq2, c->iq2xxs[0], c->iq2xxs[1]);
    code_octets(lp_codebooks_iq2xs, 512, iq2, c->iq2xs[0], c->iq2xs[1]);
    code_octets(lp_codebooks_iq2s, 1024, iq2, c->iq2s[0], c->iq2s[1]);
    code_octets(lp_codebooks_iq1s, 2048, iq1, c->iq1s[0], c->iq1s[1]);
    code_quartets(lp_codebooks_iq3xxs, 256, iq3xxs, c->iq3xxs[0], c->iq3xxs[1]);
    code_quartets(lp_codebooks_iq3s, 512, iq3s, c->iq3s[0], c->iq3s[1]);
    fill_values(iq2_values, 4, false, c->iq2_values);
    fill_values(iq1_values, 4, true, c->iq1_values);
    fill_values(iq3xxs_values, 8, false, c->iq3xxs_values);
    fill_values(iq3s_values, 8, false, c->iq3s_values);
}

void lp_cpu_grid_codes_fill(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill);
}
