// The kernel registry: which implementations of an operation exist, what each needs, and which one
// is chosen. Candidates are rows of a table; the order of the table is the preference. Choosing,
// forcing (tests, bisecting) and explaining are one mechanism, for every backend.
#ifndef LP_BACKEND_KERNELS_H
#define LP_BACKEND_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "quant/quant.h"

#define LP_KERNEL_ANY_TYPE LP_TYPE_COUNT

struct lp_kernel {
    const char *op;   // "matmul"
    const char *name; // "avx2_q4_k": what traces, inspect and the log print
    lp_type type;     // the weight type it takes, or LP_KERNEL_ANY_TYPE
    uint32_t needs;   // feature bits, of the meaning the backend gives them (LP_CPU_*)
    const void *impl; // the backend's own description of the functions
};

struct lp_kernel_query {
    const char *op;
    lp_type type;
    uint32_t features;    // what the device has
    const char *forced;   // only a candidate of this name fits; NULL = any
    const bool *rejected; // [n] candidates that failed their self-check, or NULL
    const char *(*features_text)(uint32_t bits, char *buffer, size_t buffer_bytes); // for explain
};

// Index of the first candidate that fits, or -1.
int lp_kernel_choose(const struct lp_kernel *table, size_t n, const struct lp_kernel_query *query);

// One line about every candidate of the operation and type: "avx2_q4_k: chosen; vnni_q4_k: needs
// avx512f avx512vnni". Cut to the buffer; returns buffer.
const char *lp_kernel_explain(const struct lp_kernel *table, size_t n,
                              const struct lp_kernel_query *query, char *buffer,
                              size_t buffer_bytes);

#endif
