// What two models have in common and where they differ: metadata, tensors, shapes, types, and how
// far apart the values are. Any two that limpid opens: a file, a split set, a folder.
//
// Errors of a tensor are taken over all values, dequantised, in double precision, but for the pairs
// of which one is not finite:
//     rms       sqrt(sum (a - b)^2 / sum a^2)         relative to A, the source
//     cosine    sum a b / sqrt(sum a^2 sum b^2)
//     largest   max |a - b|
#ifndef LP_FILES_COMPARE_H
#define LP_FILES_COMPARE_H

#include "gguf/gguf.h"

enum lp_compare_state {
    LP_COMPARE_EQUAL,  // the same bytes, or the same values in another type
    LP_COMPARE_VALUES, // other values
    LP_COMPARE_SHAPE,
    LP_COMPARE_ONLY_A,
    LP_COMPARE_ONLY_B,
};

struct lp_compare_key {
    struct lp_str key;
    const struct lp_gguf_kv *a, *b; // NULL where it is missing
};

struct lp_compare_tensor {
    struct lp_str name;
    const struct lp_gguf_tensor *a, *b; // NULL where it is missing
    enum lp_compare_state state;
    // Of LP_COMPARE_EQUAL and LP_COMPARE_VALUES; NaN where a type has no values (I32), rms infinite
    // where A is zero.
    double rms, cosine, largest;
    uint64_t n_nonfinite; // pairs with a NaN or infinity that the other does not have
};

struct lp_compare {
    struct lp_compare_key *keys; // those that differ, in the order of A, then what B alone has
    size_t n_keys, n_equal_keys;
    struct lp_compare_tensor *tensors; // all, in the order of A, then what B alone has
    size_t n_tensors;
};

struct lp_compare_options {
    int n_threads;  // 0 = all CPUs
    bool no_values; // compare names, shapes and types only: equal shapes are LP_COMPARE_EQUAL
};

// a and b outlive the result; after an error there is nothing to release. Errors: MEMORY.
lp_status lp_compare_make(struct lp_compare *out, const struct lp_gguf *a, const struct lp_gguf *b,
                          const struct lp_compare_options *options, struct lp_err *err);
void lp_compare_release(struct lp_compare *compare);
bool lp_compare_is_empty(const struct lp_compare *compare); // no key, shape, type or value differs

// The figures from their sums: error = sum (a - b)^2, a = sum a^2, b = sum b^2, product = sum a b.
double lp_compare_rms(double error, double a);
double lp_compare_cosine(double product, double a, double b); // both zero: 1; one of them: 0

#endif
