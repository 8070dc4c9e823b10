// What this machine can do, measured: memory read bandwidth and the peaks of multiply-adds of 8-bit
// integers, 16-bit integers, float32 and bfloat16, over all threads. Benchmarks measure it beside
// every rate, in the same run, so that other load on the machine shows in both.
//
// Own threads, kept for the whole run; one caller at a time.
#ifndef LP_CLI_LIMITS_H
#define LP_CLI_LIMITS_H

#include <stddef.h>

#include "base/status.h"

struct lp_limits;

struct lp_limits_figures {
    double read_bytes_s;  // summing a buffer far larger than the caches, front to back
    double int_madds_s;   // 8-bit multiply-adds from registers
    double int16_madds_s; // 16-bit ones
    double float_madds_s; // float32 ones
    double bf16_madds_s;  // bfloat16 ones; 0 where the CPU has none of its own
};

// cpu_level: as --cpu; the peaks are those of the instruction sets that the kernels may use.
// Allocates and fills lp_limits_buffer_bytes. Errors: INVALID, MEMORY, LIMIT (threads).
lp_status lp_limits_new(struct lp_limits **out, int n_threads, const char *cpu_level,
                        struct lp_err *err);
void lp_limits_free(struct lp_limits *limits); // NULL is allowed
size_t lp_limits_buffer_bytes(const struct lp_limits *limits);

// One measurement: the best of a few passes, together some 50 ms.
struct lp_limits_figures lp_limits_measure(struct lp_limits *limits);

#endif
