// Importance matrices: for every weight matrix, how large the activations are that meet each of its
// columns. A quantiser weighs the error of a column by it (lp_quantize_rows).
//
// Two forms of file, both read and written here:
//
//   GGUF (general.type "imatrix"): imatrix.datasets, imatrix.chunk_count, imatrix.chunk_size, and
//       for each weight NAME two tensors of F32
//         NAME.in_sum2  {n_in, n_mats}   sum of x^2 over the inputs x of the matrix, per column
//         NAME.counts   {1, n_mats}      how many inputs that were
//       (one count for all matrices of a stack is read too; NAME.in_sum is not needed)
//   older: i32 n_entries; each i32 name_bytes, name, i32 n_calls, i32 n_values, f32 [n_values]: sums
//       that are to be divided by n_calls; then, or not, i32 n_chunks, i32 bytes, dataset
//
// Matrices of a stack are experts, or heads (attn_k_b, attn_v_b).
#ifndef LP_FILES_IMATRIX_H
#define LP_FILES_IMATRIX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/status.h"

// ---- reading

struct lp_imatrix_entry {
    struct lp_str name;          // of the weight: "blk.3.ffn_up_exps.weight"
    uint64_t n_values, n_counts; // n_counts divides n_values
    const uint8_t *sums;         // [n_values] float32, unaligned
    const uint8_t *counts;       // [n_counts] float32, unaligned; NULL: n_calls for all
    int32_t n_calls;
};

struct lp_imatrix;

// Maps the file; entries are views into it. Errors: IO, FORMAT (names the entry, the value and what
// is expected), MEMORY.
lp_status lp_imatrix_open(struct lp_imatrix **out, const char *path, struct lp_err *err);
// The same from memory that outlives the result. `name` is what messages call it.
lp_status lp_imatrix_parse(struct lp_imatrix **out, const uint8_t *data, uint64_t n_bytes,
                           const char *name, struct lp_err *err);
void lp_imatrix_close(struct lp_imatrix *m); // NULL is allowed

uint64_t lp_imatrix_n_entries(const struct lp_imatrix *m);
const struct lp_imatrix_entry *lp_imatrix_at(const struct lp_imatrix *m, uint64_t i);
const struct lp_imatrix_entry *lp_imatrix_find(const struct lp_imatrix *m, struct lp_str name);
struct lp_str lp_imatrix_dataset(const struct lp_imatrix *m); // the last one; empty where not said
uint32_t lp_imatrix_n_chunks(const struct lp_imatrix *m);     // 0 where not said

// Whether the entry is of a stack of n_mats matrices with n_in columns (or of one matrix, whose
// values then hold for all).
bool lp_imatrix_fits(const struct lp_imatrix_entry *e, uint64_t n_in, uint64_t n_mats);
// Errors: FORMAT for a sum or count that is negative or not finite, which no activations have.
lp_status lp_imatrix_check(const struct lp_imatrix_entry *e, struct lp_err *err);
// Mean squares of the columns of matrix `mat` of an entry that fits: out[n_in]. False where none
// are known: nothing met the matrix, or a value is negative or not finite.
bool lp_imatrix_means(const struct lp_imatrix_entry *e, uint64_t n_in, uint64_t n_mats,
                      uint64_t mat, float *out);

// ---- writing

struct lp_imatrix_sums {
    const char *name;
    int64_t n_in, n_mats;
    const double *sums;   // [n_mats, n_in]
    const double *counts; // [n_mats]
};

struct lp_imatrix_about {
    const char *dataset; // what the activations were of
    uint32_t n_chunks, chunk_tokens;
};

// Writes a file of either form, entries by name. What stood at the path stays until it is whole;
// overwrite: it may stand there. In the older form a matrix that nothing met has 1 for all columns,
// and a stack of such matrices is left out. Errors: as lp_new_file's.
lp_status lp_imatrix_write(const char *path, bool older_form, bool overwrite,
                           const struct lp_imatrix_sums *sums, size_t n,
                           const struct lp_imatrix_about *about, struct lp_err *err);

#endif
