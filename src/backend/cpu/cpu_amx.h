// The tile registers of AMX, whose shapes are a thread's state: each user of them sets the shapes that
// it wants before it uses them, which costs nothing where they are set already.
#ifndef LP_CPU_AMX_H
#define LP_CPU_AMX_H

#include <immintrin.h>
#include <stdint.h>

// What LDTILECFG reads (Intel's Software Developer's Manual, volume 2)
struct lp_cpu_amx_shapes {
    uint8_t palette, start_row, zeros[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

extern const struct lp_cpu_amx_shapes lp_cpu_amx_whole; // eight tiles of 16 rows of 64 bytes
extern _Thread_local const struct lp_cpu_amx_shapes *lp_cpu_amx_set; // what this thread's tiles are

// shapes: static. (GCC takes the instruction to read eight bytes only, and would not store the rest of an
// array on the stack.)
static inline void lp_cpu_amx_configure(const struct lp_cpu_amx_shapes *shapes) {
    if (lp_cpu_amx_set == shapes) return;
    _tile_loadconfig(shapes);
    lp_cpu_amx_set = shapes;
}

#endif
