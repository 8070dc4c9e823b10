// Two arrays that should be equal: how far apart they are, and where. The places are told as a
// person would look for them: rows, heads, columns, and the pattern among them.
#ifndef LP_DOCTOR_DIFF_H
#define LP_DOCTOR_DIFF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lp_diff_shape { // packed: [n_rows, n_groups, width]; a group is a head
    int64_t n_rows, n_groups, width;
};

struct lp_diff {
    // Of the worst row and group: rms of the difference, over the rms of the row's expected values
    // (at least a hundredth of that of all rows). Infinite where one is finite and the other is
    // not.
    double error;
    int64_t row, group, column; // where the largest difference in there is
    float got, want;
};

// before: what both arrays were added to, or NULL. Then only what was added counts, and the
// rounding of the sum is no difference.
struct lp_diff lp_diff_measure(const float *got, const float *want, const float *before,
                               struct lp_diff_shape shape);

// How many rows of groups differ by more than the bound.
int64_t lp_diff_count(const float *got, const float *want, const float *before,
                      struct lp_diff_shape shape, double bound);

// Where differences above the bound are: "only rows from 32 on; only head 2". Empty: everywhere, or
// nowhere. first_row is what row 0 is called. Needs memory; without, the text is empty.
void lp_diff_where(char *out, size_t n_bytes, const float *got, const float *want,
                   const float *before, struct lp_diff_shape shape, double bound,
                   const char *row_name, int64_t first_row);

// The pattern of the set flags: "only rows 3 to 5", "only rows from 32 on", "only every 2nd row
// from 1 on", "only row 7", "12 of 40 rows, 3 to 39"; empty where most are set without a pattern,
// or none.
void lp_diff_pattern(char *out, size_t n_bytes, const bool *flags, int64_t n, const char *name,
                     int64_t first);

#endif
