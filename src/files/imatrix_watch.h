// Sums of x^2 over the inputs of every matrix, while a model runs on a device (imatrix.h).
//
// The device gets a copy of its backend's table in which products go through the watch; all others,
// and what a backend calls by itself, stay as they are. Where an input is seen:
//
//   matmul         x of the operation; the indexer's matrices share theirs with attn_q_b and
//                  attn_q_a (where every key is seen, its own products do not run)
//   head_matmul    x of each head (attn_k_b: q_nope of the head; attn_v_b: the head's sum of
//                  latents), in the absorbed form of attention: the caller forces it
//   rms_norm       the normed latents, where keys and values come from one fused attn_kv_b; its
//                  halves are counted as attn_k_b and attn_v_b too, so that the matrix is of use
//                  for a file that has these
//   experts        x of gate and up by expert; that of down is computed once more, expert by
//                  expert, since kernels never hold it
//
// Only weights that are named "blk." count, and the output matrix where the caller wants it.
#ifndef LP_FILES_IMATRIX_WATCH_H
#define LP_FILES_IMATRIX_WATCH_H

#include "files/imatrix.h"
#include "model/model.h"

struct lp_imatrix_watch;

// The model runs on `model->dev`, in host memory; steps have at most max_rows rows. Free before the
// device is closed. Errors: INVALID (no host memory), MEMORY.
lp_status lp_imatrix_watch_new(struct lp_imatrix_watch **out, struct lp_model *model,
                               int64_t max_rows, bool with_output, struct lp_err *err);
void lp_imatrix_watch_free(struct lp_imatrix_watch *watch); // NULL is allowed

// NUMERIC or MEMORY where a sum is not finite or something could not be counted; names the weight.
lp_status lp_imatrix_watch_check(const struct lp_imatrix_watch *watch, struct lp_err *err);

// Until now; valid until the watch counts again. *out: free with lp_free.
lp_status lp_imatrix_watch_sums(const struct lp_imatrix_watch *watch, struct lp_imatrix_sums **out,
                                size_t *n, struct lp_err *err);
// Experts that no token has met, and all.
void lp_imatrix_watch_experts(const struct lp_imatrix_watch *watch, int64_t *n_unmet, int64_t *n);

#endif
