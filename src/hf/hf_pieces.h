// Tensors of a plan cut into pieces of about a million values, which threads take one after the
// other.
#ifndef LP_HF_HF_PIECES_H
#define LP_HF_HF_PIECES_H

#include "hf/hf.h"

struct lp_hf_piece {
    uint64_t tensor; // index in the plan
    int64_t first, n;
    bool is_last; // of its tensor
};

// Rows of a tensor: ne[1] * ne[2] * ne[3].
static inline int64_t lp_hf_n_rows(const struct lp_hf_tensor *t) {
    return (int64_t)(t->ne[1] * t->ne[2] * t->ne[3]);
}
// All pieces of the tensors for which chosen[i] is true (NULL: all), in order. *max_values: of the
// largest piece. *out: lp_free. Errors: MEMORY.
lp_status lp_hf_pieces_make(struct lp_hf_piece **out, uint64_t *n, uint64_t *max_values,
                            const struct lp_hf_plan *plan, const bool *chosen, struct lp_err *err);

// Calls fn for every piece, from n_threads threads (0 = all CPUs) of which each has its own
// `worker` number below lp_hf_n_threads; pieces begin in order. The first failure ends it.
struct lp_hf_work {
    lp_status (*fn)(void *data, int worker, const struct lp_hf_piece *piece, struct lp_err *err);
    void *data;
    int n_threads;
};
int lp_hf_n_threads(int n_threads);
lp_status lp_hf_pieces_run(const struct lp_hf_work *work, const struct lp_hf_piece *pieces,
                           uint64_t n, struct lp_err *err);

#endif
