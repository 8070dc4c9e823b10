// What this CPU and its operating system can run, and the named levels a user may cap it to.
#ifndef LP_BACKEND_CPU_CPU_FEATURES_H
#define LP_BACKEND_CPU_CPU_FEATURES_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

// Instruction sets as bits; a kernel's registry row names those it needs. Each is set only when
// both the CPU (cpuid) and the kernel (xgetbv: the registers are saved on a context switch) have
// it.
enum lp_cpu_bit {
    LP_CPU_AVX2 = 1 << 0,
    LP_CPU_FMA = 1 << 1,
    LP_CPU_F16C = 1 << 2,
    LP_CPU_AVX512F = 1 << 3,
    LP_CPU_AVX512BW = 1 << 4,
    LP_CPU_AVX512VL = 1 << 5,
    LP_CPU_AVX512DQ = 1 << 6,
    LP_CPU_AVX512VNNI = 1 << 7,
};

// What the levels stand for, lowest first: each holds the ones before it.
#define LP_CPU_LEVEL_PLAIN 0u
#define LP_CPU_LEVEL_AVX2 (LP_CPU_AVX2 | LP_CPU_FMA | LP_CPU_F16C)
#define LP_CPU_LEVEL_AVX512                                                                        \
    (LP_CPU_LEVEL_AVX2 | LP_CPU_AVX512F | LP_CPU_AVX512BW | LP_CPU_AVX512VL | LP_CPU_AVX512DQ)
#define LP_CPU_LEVEL_VNNI (LP_CPU_LEVEL_AVX512 | LP_CPU_AVX512VNNI)

// All bits this machine has.
uint32_t lp_cpu_features_detect(void);

// The bits to use: the highest level not above `level` ("auto" or NULL: the highest there is) that
// `have` covers; *name becomes that level's name. A level that is unknown, or that `have` does not
// cover, is an INVALID error naming those that are available.
lp_status lp_cpu_features_choose(uint32_t have, const char *level, uint32_t *bits,
                                 const char **name, struct lp_err *err);

// "avx2 fma" for a set of bits, into buffer; returns buffer.
const char *lp_cpu_features_text(uint32_t bits, char *buffer, size_t buffer_bytes);

#endif
