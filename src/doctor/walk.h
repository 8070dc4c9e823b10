// Several sequences through an examined model, step by step as the examiner likes: with a cache of
// its own type and a device of its own choice. Between new and free the model runs on that device,
// with this many selected keys; afterwards it is as it was.
#ifndef LP_DOCTOR_WALK_H
#define LP_DOCTOR_WALK_H

#include "doctor/exam.h"

#define LP_WALK_SEQUENCES 3

// How many keys the layers with an indexer select, for an experiment. Runners that were made
// before keep the size of their buffers: a larger number is for new ones. Nothing happens without
// an indexer, or for n < 1.
struct lp_walk_top_k {      // as it was
    struct lp_model *model; // NULL: nothing was changed
    int32_t whole, layers[LP_MAX_LAYERS];
};
void lp_walk_set_top_k(struct lp_walk_top_k *old, struct lp_model *model, int32_t n);
void lp_walk_restore_top_k(const struct lp_walk_top_k *old);

struct lp_walk_options {
    struct lp_device *dev; // the model's own, or a shadow of it
    lp_type kv_type;
    int64_t max_context, max_rows; // of each sequence; of a step
    int32_t top_k;                 // of every layer with an indexer; 0 = as the model has it
};

struct lp_walk {
    struct lp_model *model;
    struct lp_kv *kv;
    struct lp_runner *runner;
    struct lp_page_table tables[LP_WALK_SEQUENCES];
    int64_t n_past[LP_WALK_SEQUENCES];
    int64_t max_context, max_rows;
    struct lp_device *old_dev;
    struct lp_walk_top_k top_k;
};

// Errors: INVALID (the cache type does not fit the model), MEMORY. Release after an error too.
lp_status lp_walk_init(struct lp_walk *walk, struct lp_model *model,
                       const struct lp_walk_options *options, struct lp_err *err);
void lp_walk_release(struct lp_walk *walk);

// A part of a step: n tokens of one sequence behind those that it has.
struct lp_walk_part {
    int32_t sequence;
    int64_t n;
};
// One step of at most LP_WALK_SEQUENCES parts, in the order of their rows. tokens: [n] of the first
// part, then of the next. logits: [n_vocab] of the last row, or NULL. Non-finite logits are no
// error. Errors: LIMIT, MEMORY.
lp_status lp_walk_step(struct lp_walk *walk, const struct lp_walk_part *parts, int32_t n_parts,
                       const int32_t *tokens, const struct lp_step_settings *settings,
                       float *logits, struct lp_err *err);
// Forgets what sequences have.
void lp_walk_restart(struct lp_walk *walk);

// Fills the unused end of a table's copy on the device with its first page, so that an engine that
// reads past a table reads something wrong and does not crash.
void lp_walk_pad(const struct lp_page_table *table, struct lp_device *dev);

// n tokens to run: English text in the file's vocabulary, repeated, or without a tokenizer
// pseudo-random ids. Errors: MEMORY. Free with lp_free.
lp_status lp_walk_prompt(int32_t **tokens, const struct lp_exam *exam, int64_t n,
                         struct lp_err *err);

// Why a stage cannot run anything: a sentence, or NULL when it can.
const char *lp_walk_obstacle(const struct lp_exam *exam);

#endif
