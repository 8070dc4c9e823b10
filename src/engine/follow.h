// Inside engine: models and engines that several ranks have together. Rank 0 is called; the others
// (follow.c) open, make and close what it does, at its word, under the numbers that it gives them.
#ifndef LP_ENGINE_FOLLOW_H
#define LP_ENGINE_FOLLOW_H

#include "dist/order.h"
#include "limpid.h"

#define LP_RANKS_MOST 8 // models, and engines, at a time

// What a rank does in rank 0's examination, whose request it reads (doctor/ranks_exam.h).
typedef void (*lp_ranks_exam)(limpid_ranks *ranks, struct lp_order_reader *request);

struct limpid_ranks {
    struct lp_comm *comm;
    struct lp_order order;
    bool used[2][LP_RANKS_MOST]; // numbers of models and of engines that are in use
    // rank 1 and up
    limpid_model *models[LP_RANKS_MOST];
    limpid_engine *engines[LP_RANKS_MOST];
    lp_ranks_exam on_exam; // the program's; NULL: none
};

enum lp_ranks_what { LP_RANKS_MODEL, LP_RANKS_ENGINE };

// Rank 0, before it does the same. *number: of the model or engine. Errors: LIMIT, MEMORY, IO.
lp_status lp_ranks_open(limpid_ranks *ranks, const char *path, const limpid_model_options *options,
                        int32_t *number, struct lp_err *err);
lp_status lp_ranks_make(limpid_ranks *ranks, int32_t model, const limpid_engine_options *options,
                        int32_t *number, struct lp_err *err);
void lp_ranks_close(limpid_ranks *ranks, enum lp_ranks_what what, int32_t number);
// All ranks: whether all have done it. The first that has not says why, on all of them.
lp_status lp_ranks_agree(limpid_ranks *ranks, lp_status status, struct lp_err *err);

// Behind that of opening: whether all have the same file and kernels. Errors: INVALID (names a rank that has not).
lp_status lp_ranks_compare(limpid_ranks *ranks, const limpid_model *model, struct lp_err *err);

// The threads of this process, where several on a host share its cores.
int lp_ranks_threads(const limpid_ranks *ranks, int n_cpus);

#endif
