// Inside doctor: another engine's dump beside this one's values (check_against.c).
//
// A claim is one array of the dump and the probe point that it should equal. Claims are measured
// while the same tokens run, position by position, so that of this engine's values nothing is kept.
#ifndef LP_DOCTOR_AGAINST_H
#define LP_DOCTOR_AGAINST_H

#include "backend/probe.h"
#include "base/bytes.h"
#include "doctor/dump_read.h"
#include "doctor/lab.h"

#define LP_CLAIM_NAME_BYTES 64

struct lp_claim {
    enum lp_probe_point point;
    int32_t layer; // -1: outside the layers
    const struct lp_dump_array *array;
    int64_t first_value, row_values; // of position 0; of one position
    int64_t keys;                    // of a row per key: how many it has room for; else 0
    char name[LP_CLAIM_NAME_BYTES];  // what the dump calls it
    bool in_stream;                  // the residual stream: embedding or a layer's output
    bool doubtful;                   // a last hidden state, which may be normed or not

    // Measured. Sums of squares by position, [n]: of the difference, of the dump's values; of the
    // same for what the layers since the stream before it added (in_stream).
    double *diff, *norm, *added_diff, *added_norm;
    double *reordered[2];    // as diff, with the rotary pairs in either other order; or NULL
    double ours, both, dump; // sums over all: ours^2, ours * dump, dump^2
    bool seen;
};

struct lp_claims {
    struct lp_claim *list; // in order of computation
    size_t n, capacity;
    int32_t *tokens;                 // [n_tokens]
    int64_t n_tokens, n_dump_tokens; // n_tokens: of these so many are run
    struct lp_bytes ignored;         // names of arrays that are none of ours
    int32_t n_ignored;
    char refusal[512]; // why the dump cannot be compared; "" where it can
};

// against_claims.c. What of a dump can be compared with this model. A dump of another model,
// vocabulary or tokenisation is no error: it has a refusal. Errors: MEMORY.
lp_status lp_claims_make(struct lp_claims *out, const struct lp_dump *dump,
                         const struct lp_model *model, int64_t max_tokens, struct lp_err *err);
void lp_claims_release(struct lp_claims *claims);

// against_run.c. Runs the tokens and measures every claim, anew. Errors: MEMORY, LIMIT.
lp_status lp_claims_measure(struct lp_claims *claims, struct lp_lab *lab, struct lp_err *err);
// Where rotated values lie in a row's heads of a point: their first value and width; false: nowhere.
bool lp_claim_rotated(const struct lp_model *model, const struct lp_claim *claim, int64_t *first,
                      int64_t *width);

// against_judge.c: arithmetic alone.
// Root of diff over norm at a position: 0 where both are 0, infinite where one is not finite.
double lp_claim_relative(const double *diff, const double *norm, int64_t position);
double lp_claims_median(double *values, int64_t n); // sorts them; NaN for none

struct lp_against_bound { // how much two right engines may differ
    double most;          // by the file's weights: their precision, of what one layer adds
    double expected;      // of this dump, from the layers that agree best
    double share;         // of the positions: so many out of bounds are a fault
};
struct lp_against_bound lp_against_bound(const struct lp_claims *claims, double weight_bits);
// Which positions of claim `i` of the stream are out of bounds, [n_tokens]. Whether that is a fault
// (bound.share of them, or nearly all behind some position) rather than single ties decided otherwise.
bool lp_against_judge_stream(const struct lp_claims *claims, const struct lp_claim *claim,
                             const struct lp_claim *before, struct lp_against_bound bound,
                             bool *bad);
// The same of an operation, by its own values; before: the stream that goes into its layer, or NULL.
bool lp_against_judge_op(const struct lp_claims *claims, const struct lp_claim *claim,
                         const struct lp_claim *before, struct lp_against_bound bound, bool *bad);
bool lp_against_is_fault(const bool *bad, int64_t n, double share);

#endif
