// CPU detection. An instruction set counts only when the operating system saves its registers too,
// which XCR0 tells: bits 1, 2 for the 256-bit registers, 5, 6, 7 for masks and the 512-bit ones, 17,
// 18 for the tiles of AMX, which Linux gives to a process that asks for them.
#include "backend/cpu/cpu_features.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ARCH_REQUEST_XCOMP 0x1023 // ARCH_REQ_XCOMP_PERM of asm/prctl.h, in kernels since 5.16
#define XCOMP_TILE_DATA 18

static bool may_use_tiles(void) {
    return syscall(SYS_arch_prctl, ARCH_REQUEST_XCOMP, XCOMP_TILE_DATA) == 0;
}

static uint64_t xcr0(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

uint32_t lp_cpu_features_detect(void) {
    uint32_t a, b, c, d, bits = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
    bool osxsave = c >> 27 & 1, avx = c >> 28 & 1, fma = c >> 12 & 1, f16c = c >> 29 & 1;
    if (!osxsave || !avx) return 0;
    uint64_t saved = xcr0();
    if ((saved & 0x06) != 0x06) return 0;
    if (fma) bits |= LP_CPU_FMA;
    if (f16c) bits |= LP_CPU_F16C;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return bits;
    if (b >> 5 & 1) bits |= LP_CPU_AVX2;
    if ((saved & 0xe6) != 0xe6) return bits;
    if (b >> 16 & 1) bits |= LP_CPU_AVX512F;
    if (b >> 17 & 1) bits |= LP_CPU_AVX512DQ;
    if (b >> 30 & 1) bits |= LP_CPU_AVX512BW;
    if (b >> 31 & 1) bits |= LP_CPU_AVX512VL;
    if (c >> 11 & 1) bits |= LP_CPU_AVX512VNNI;
    if (c >> 1 & 1) bits |= LP_CPU_AVX512VBMI;
    uint32_t a1, b1, c1, d1;
    if (__get_cpuid_count(7, 1, &a1, &b1, &c1, &d1) && a1 >> 5 & 1) bits |= LP_CPU_AVX512BF16;
    if ((saved & 0x60000) == 0x60000 && d >> 24 & 1 && may_use_tiles()) {
        bits |= LP_CPU_AMX_TILE;
        if (d >> 25 & 1) bits |= LP_CPU_AMX_INT8;
        if (d >> 22 & 1) bits |= LP_CPU_AMX_BF16;
    }
    return bits;
}
#elif defined(__aarch64__)
#include <sys/auxv.h>

// Bits of the system's lists (asm/hwcap.h of Linux).
#define HWCAP_BIT_ASIMD (1ul << 1)
#define HWCAP_BIT_ASIMDDP (1ul << 20)
#define HWCAP2_BIT_I8MM (1ul << 13)

uint32_t lp_cpu_features_detect(void) {
    unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
    uint32_t bits = 0;
    if (first & HWCAP_BIT_ASIMD) bits |= LP_CPU_NEON;
    if (first & HWCAP_BIT_ASIMDDP) bits |= LP_CPU_DOTPROD;
    if (second & HWCAP2_BIT_I8MM) bits |= LP_CPU_I8MM;
    return bits;
}
#else
uint32_t lp_cpu_features_detect(void) {
    return 0;
}
#endif

static const struct level {
    const char *name;
    uint32_t bits;
} levels[] = {
    {"plain", LP_CPU_LEVEL_PLAIN}, {"avx2", LP_CPU_LEVEL_AVX2}, {"avx512", LP_CPU_LEVEL_AVX512},
    {"vnni", LP_CPU_LEVEL_VNNI},   {"vbmi", LP_CPU_LEVEL_VBMI}, {"bf16", LP_CPU_LEVEL_BF16},
    {"amx", LP_CPU_LEVEL_AMX},     {"neon", LP_CPU_LEVEL_NEON}, {"dotprod", LP_CPU_LEVEL_DOTPROD},
    {"i8mm", LP_CPU_LEVEL_I8MM},
};
#define N_LEVELS (sizeof levels / sizeof levels[0])

// "plain, avx2": the levels that `have` covers
static void list_levels(uint32_t have, char *out, size_t out_bytes) {
    size_t used = 0;
    out[0] = 0;
    for (size_t i = 0; i < N_LEVELS && used < out_bytes; i++)
        if ((levels[i].bits & ~have) == 0)
            used += (size_t)snprintf(out + used, out_bytes - used, "%s%s", used ? ", " : "",
                                     levels[i].name);
}

lp_status lp_cpu_features_choose(uint32_t have, const char *level, uint32_t *bits,
                                 const char **name, struct lp_err *err) {
    bool any = !level || strcmp(level, "auto") == 0;
    if (!any && strcmp(level, "generic") == 0) level = levels[0].name;
    const struct level *chosen = NULL;
    for (size_t i = 0; i < N_LEVELS; i++) {
        if ((levels[i].bits & ~have) != 0) continue;
        if (any || strcmp(level, levels[i].name) == 0) chosen = &levels[i];
    }
    if (chosen) {
        *bits = chosen->bits;
        *name = chosen->name;
        return LP_OK;
    }
    bool known = false;
    for (size_t i = 0; i < N_LEVELS; i++) known |= strcmp(level, levels[i].name) == 0;
    char available[96];
    list_levels(have, available, sizeof available);
    return lp_err_set(err, LP_STATUS_INVALID, "CPU level \"%s\" is %s; available: auto, %s", level,
                      known ? "not supported by this machine" : "unknown", available);
}

const char *lp_cpu_features_text(uint32_t bits, char *buffer, size_t buffer_bytes) {
    static const char *const names[] = {
        "avx2", "fma",     "f16c", "avx512f",  "avx512bw", "avx512vl",   "avx512dq",   "avx512vnni",
        "neon", "dotprod", "i8mm", "amx_tile", "amx_int8", "avx512vbmi", "avx512bf16", "amx_bf16"};
    size_t used = 0;
    if (buffer_bytes) buffer[0] = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && used < buffer_bytes; i++)
        if (bits >> i & 1)
            used += (size_t)snprintf(buffer + used, buffer_bytes - used, "%s%s", used ? " " : "",
                                     names[i]);
    return buffer;
}
