// What two models have in common and where they differ: metadata, tensors, shapes, types, and how
// far apart the values are. Any two that limpid opens: a file, a split set, a folder.
//
// Errors of a tensor are taken over all values, dequantised, in double precision:
//     rms       sqrt(sum (a - b)^2 / sum a^2)         relative to A, the source
//     cosine    sum a b / sqrt(sum a^2 sum b^2)
//     largest   max |a - b|
#ifndef LP_FILES_DIFF_H
#define LP_FILES_DIFF_H

#include "gguf/gguf.h"

enum lp_diff_state {
    LP_DIFF_EQUAL,  // the same bytes, or the same values in another type
    LP_DIFF_VALUES, // other values
    LP_DIFF_SHAPE,
    LP_DIFF_ONLY_A,
    LP_DIFF_ONLY_B,
};

struct lp_diff_key {
    struct lp_str key;
    const struct lp_gguf_kv *a, *b; // NULL where it is missing
};

struct lp_diff_tensor {
    struct lp_str name;
    const struct lp_gguf_tensor *a, *b; // NULL where it is missing
    enum lp_diff_state state;
    double rms, cosine, largest; // LP_DIFF_EQUAL, LP_DIFF_VALUES; NaN where values are not finite
    uint64_t n_nonfinite; // values of either that are NaN or infinite, where the other's differ
};

struct lp_diff {
    struct lp_diff_key *keys; // those that differ, in the order of A, then what B alone has
    size_t n_keys, n_equal_keys;
    struct lp_diff_tensor *tensors; // all, in the order of A, then what B alone has
    size_t n_tensors;
};

struct lp_diff_options {
    int n_threads;  // 0 = all CPUs
    bool no_values; // compare names, shapes and types only
};

// a and b outlive the result. Errors: MEMORY.
lp_status lp_diff_make(struct lp_diff *out, const struct lp_gguf *a, const struct lp_gguf *b,
                       const struct lp_diff_options *options, struct lp_err *err);
void lp_diff_release(struct lp_diff *diff);
bool lp_diff_is_empty(const struct lp_diff *diff); // no key, shape, type or value differs

#endif
