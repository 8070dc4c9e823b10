// The grids of the IQ formats (quant/codebooks.h) in two bytes an entry, small enough to be looked up
// by byte permutations. Every value of a grid is one of a few: its place among them, from the
// smallest, is its symbol.
//
//   8 values an entry, symbols 0 to 2:  code[0] holds those of values 0 to 3, value j at bits 2j;
//                                       code[1] the same of values 4 to 7
//   4 values an entry, symbols 0 to 7:  code[0] holds the low two bits of each, value j at bits 2j;
//                                       code[1] the third, value j at bit j
#ifndef LP_BACKEND_CPU_CPU_GRID_CODES_H
#define LP_BACKEND_CPU_CPU_GRID_CODES_H

#include <stdint.h>

struct lp_cpu_grid_codes {
    _Alignas(64) uint8_t iq2xxs[2][256];
    uint8_t iq2xs[2][512], iq2s[2][1024], iq1s[2][2048]; // symbols of 8, 25, 43; -1, 0, 1
    uint8_t iq3xxs[2][256], iq3s[2][512];                // of 4, 12, ... 52, 62; 1, 3, ... 15
    // values[i] = 128 + the value whose symbol is in the low two bits (iq3: three) of i, negative
    // where bit LP_CPU_GRID_SIGN_BIT is set; of iq1 8 values + 1, or - 1 where that bit is set
    _Alignas(64) uint8_t iq2_values[64];
    uint8_t iq1_values[64], iq3xxs_values[64], iq3s_values[64];
};
#define LP_CPU_GRID_SIGN_BIT 5

// Zeros until lp_cpu_grid_codes_fill has returned.
extern struct lp_cpu_grid_codes lp_cpu_grid_codes;

// Fills the tables, once; any thread.
void lp_cpu_grid_codes_fill(void);

#endif
