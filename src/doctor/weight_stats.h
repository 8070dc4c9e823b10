// What one pass over the values of every tensor sees: size, spread, non-finite and constant parts,
// a digest of each matrix. Of a sample nothing is said about what was not looked at.
#ifndef LP_DOCTOR_WEIGHT_STATS_H
#define LP_DOCTOR_WEIGHT_STATS_H

#include "gguf/gguf.h"

struct lp_matrix_stats { // one matrix of a tensor: an expert, a head, or all of it
    uint64_t n_values, n_nonzero;
    double sum_squares;
    uint64_t digest; // of the bytes looked at
    bool has_spread; // two values differ
    float first;     // a value, for those without spread
};

struct lp_value_place {
    uint64_t matrix, row, column;
};

#define LP_GROUP_VALUES 32 // whose largest size is counted; a row's last group may be shorter

struct lp_tensor_stats {
    const struct lp_gguf_tensor *tensor;
    uint64_t n_matrices, n_rows; // n_rows: of one matrix
    struct lp_matrix_stats *matrices;
    uint64_t n_rows_seen, n_constant_rows, n_equal_rows; // equal: to the row before
    uint64_t run_rows;                                   // the longest run of either
    struct lp_value_place run_start;
    uint64_t n_nonfinite;              // groups with NaN or infinity
    struct lp_value_place nonfinite;   // the first
    uint64_t n_groups, exponents[256]; // groups by the exponent (biased, float32) of their largest
    struct lp_value_place largest;
    uint32_t largest_bits;
    uint64_t n_blocks, n_odd_scales; // blocks; those with a scale of a sign no quantiser writes
    struct lp_value_place odd_scale; // one of them
    // The longest run of zero groups that does not consist of whole rows; 0: none
    uint64_t hole_groups;
    struct lp_value_place hole;
};

struct lp_weight_stats {
    struct lp_tensor_stats *tensors; // [n], in the file's order
    uint64_t n, total_bytes, seen_bytes;
    uint64_t row_step; // 1 of so many rows was looked at, in tensors of more than one row
};

// budget_bytes 0: everything; else about that much (every vector, and at least one row of each
// matrix). Errors: MEMORY.
lp_status lp_weight_stats_make(struct lp_weight_stats *out, const struct lp_gguf *gguf,
                               uint64_t budget_bytes, int n_threads, struct lp_err *err);
void lp_weight_stats_release(struct lp_weight_stats *stats);

double lp_matrix_rms(const struct lp_matrix_stats *m); // 0 for one without values
double lp_tensor_rms(const struct lp_tensor_stats *t);
struct lp_damage {
    uint64_t n_groups; // far too large
    int exponents;     // how many powers of two the largest lies above the middle
};
// Whether some groups are so much larger than all others that only damaged bytes explain it.
bool lp_tensor_damage(const struct lp_tensor_stats *t, struct lp_damage *out);
// The exponent (biased) of the middle group among those that are not all zero; -1: there are none.
int lp_tensor_median_exponent(const struct lp_tensor_stats *t);

#endif
