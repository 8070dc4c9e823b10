// What this CPU and its operating system can run, and the named levels a user may cap it to.
#ifndef LP_BACKEND_CPU_CPU_FEATURES_H
#define LP_BACKEND_CPU_CPU_FEATURES_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

// Instruction sets as bits; a kernel's registry row names those it needs. Each is set only when
// both the CPU and the system have it: on x86 cpuid, and xgetbv (the registers are saved on a
// context switch), and for AMX the system's permission; on ARM the list that the system hands to
// every program (AT_HWCAP).
enum lp_cpu_bit {
    LP_CPU_AVX2 = 1 << 0,
    LP_CPU_FMA = 1 << 1,
    LP_CPU_F16C = 1 << 2,
    LP_CPU_AVX512F = 1 << 3,
    LP_CPU_AVX512BW = 1 << 4,
    LP_CPU_AVX512VL = 1 << 5,
    LP_CPU_AVX512DQ = 1 << 6,
    LP_CPU_AVX512VNNI = 1 << 7,
    LP_CPU_NEON = 1 << 8,    // ARM's vectors of 128 bits: every aarch64 machine
    LP_CPU_DOTPROD = 1 << 9, // sdot
    LP_CPU_I8MM = 1 << 10,   // smmla
    LP_CPU_AMX_TILE = 1 << 11,
    LP_CPU_AMX_INT8 = 1 << 12,
    LP_CPU_AVX512VBMI = 1 << 13,
    LP_CPU_AVX512BF16 = 1 << 14,
    LP_CPU_AMX_BF16 = 1 << 15,
};

// What the levels stand for, lowest first: of one kind of machine each holds the ones before it.
#define LP_CPU_LEVEL_PLAIN 0u
#define LP_CPU_LEVEL_AVX2 (LP_CPU_AVX2 | LP_CPU_FMA | LP_CPU_F16C)
#define LP_CPU_LEVEL_AVX512                                                                        \
    (LP_CPU_LEVEL_AVX2 | LP_CPU_AVX512F | LP_CPU_AVX512BW | LP_CPU_AVX512VL | LP_CPU_AVX512DQ)
#define LP_CPU_LEVEL_VNNI (LP_CPU_LEVEL_AVX512 | LP_CPU_AVX512VNNI)
#define LP_CPU_LEVEL_VBMI (LP_CPU_LEVEL_VNNI | LP_CPU_AVX512VBMI)
#define LP_CPU_LEVEL_BF16 (LP_CPU_LEVEL_VBMI | LP_CPU_AVX512BF16)
#define LP_CPU_LEVEL_AMX (LP_CPU_LEVEL_BF16 | LP_CPU_AMX_TILE | LP_CPU_AMX_INT8 | LP_CPU_AMX_BF16)
#define LP_CPU_LEVEL_NEON LP_CPU_NEON
#define LP_CPU_LEVEL_DOTPROD (LP_CPU_LEVEL_NEON | LP_CPU_DOTPROD)
#define LP_CPU_LEVEL_I8MM (LP_CPU_LEVEL_DOTPROD | LP_CPU_I8MM)

// All bits this machine has.
uint32_t lp_cpu_features_detect(void);

// The bits to use: those of `level` ("auto" or NULL: of the highest level that `have` covers;
// "generic" is another name of "plain"); *name becomes that level's name. A level that is unknown, or
// that `have` does not cover, is an INVALID error naming those that are available.
lp_status lp_cpu_features_choose(uint32_t have, const char *level, uint32_t *bits,
                                 const char **name, struct lp_err *err);

// "avx2 fma" for a set of bits, into buffer; returns buffer.
const char *lp_cpu_features_text(uint32_t bits, char *buffer, size_t buffer_bytes);

#endif
