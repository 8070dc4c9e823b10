// Inside the stage "ranks": what rank 0 (check_ranks.c) and the others (ranks_attend.c) do together.
//
// Rank 0's request is an order; from there on all do the same, in this order:
//   1. open the file and the devices, each on its own host
//   2. lp_ranks_hash: what each host's file holds
//   3. the stage "kernels", on the other ranks (rank 0 has had it)
//   4. lp_ranks_run_open: the model divided among them
//   5. lp_ranks_run_operations: each operation of each rank against ref, in real steps
//   6. lp_ranks_run_streams: the same steps as they are, and what is between the layers kept
// and collect their figures on rank 0 behind 3, 5 and 6. A step that one of them cannot do ends it for
// all (lp_ranks_agree).
#ifndef LP_DOCTOR_RANKS_EXAM_H
#define LP_DOCTOR_RANKS_EXAM_H

#include "doctor/exam.h"
#include "doctor/walk.h"
#include "engine/follow.h"

#define LP_RANKS_EXAM_TOKENS 24 // of all steps
#define LP_RANKS_EXAM_STEPS 3
#define LP_RANKS_EXAM_ROWS                                                                         \
    { 17, 1, 6 } // of each

struct lp_ranks_request { // the order's bytes
    int32_t n_threads, pipeline;
    int32_t shard_experts, quick;
    double limit_s;
    char path[4096], backend[32], cpu_level[64];
};

struct lp_ranks_figures { // of one rank; texts are empty where there is nothing to say
    int64_t n_kernels, n_wrong_kernels; // checks of the stage "kernels"
    int64_t n_operations, n_wrong_operations;
    double worst; // error of an operation over its bound
    int32_t wrong_layer;
    char kernel[320], operation[400], worst_place[160];
};

// As many tokens of one sequence as the model's context has room for.
int64_t lp_ranks_exam_tokens(const struct lp_hparams *h);

struct lp_ranks_run {
    struct lp_exam *exam;
    limpid_ranks *ranks;
    struct lp_model *model;   // this rank's part
    struct lp_device *shadow; // while operations are compared
    struct lp_walk walk;      // on rank 0 and, in a run of the whole model, alone there
    int64_t at, n_rows;       // of the step that runs: its first token, how many
    const float *forced;      // as streams: what goes into each layer; or NULL
    const int32_t *prompt;    // rank 0
    float *streams; // [n_layers + 1, n_tokens, n_embd]: behind the embedding and each layer
    float *logits;  // rank 0: [LP_RANKS_EXAM_STEPS, n_vocab], of each step's last token
    struct lp_ranks_figures figures;
};

// Collective, but for the last two. Errors: those of loading; IO (a rank has failed).
lp_status lp_ranks_run_open(struct lp_ranks_run *run, struct lp_err *err);
lp_status lp_ranks_run_operations(struct lp_ranks_run *run, struct lp_err *err);
lp_status lp_ranks_run_streams(struct lp_ranks_run *run, struct lp_err *err);
// Rank 0 alone: the same steps through the whole model, into each layer of which goes what went into the
// ranks' (`forced`).
lp_status lp_ranks_run_whole(struct lp_ranks_run *run, struct lp_model *whole, struct lp_err *err);
void lp_ranks_run_release(struct lp_ranks_run *run);

// A number for each tensor of the file: [lp_gguf_n_tensors].
void lp_ranks_hash(const struct lp_exam *exam, uint64_t *out);

// The other ranks' part in it (limpid_ranks.on_exam).
void lp_ranks_attend(limpid_ranks *ranks, struct lp_order_reader *request);

#endif
