// Routed experts that stay on disk and come into a cache of slots as they are needed, for models
// larger than memory. The rest of the model is kept in memory.
//
// A mixture layer does, for the rows of a step:
//
//     n = lp_expert_cache_begin(cache, layer, ids, n_rows)   the first n rows can run now; reads of
//                                                            all their missing experts are under way
//     the experts operation on these n rows, with lp_expert_cache_source(cache, layer)
//     lp_expert_cache_end(cache)
//     lp_expert_cache_guess(cache, layer + 1, guessed ids, n_rows)
//                                                            reads for later, while the disk is idle;
//                                                            before the operation if begin read nothing
//
// and again for the rows behind them: n is less than n_rows only where the experts of all rows do
// not fit into the slots at once. Each row's result is that of a model in memory, bit for bit: the
// weights are the same bytes, and no row's result depends on the rows beside it (rule B2).
//
// Each expert of a layer is one of these:
//
//     absent --begin, guess--> loading --reader--> ready --another takes its slot--> absent
//                                 \--reader--> void (a read failed, or a guess was dropped)
//
//   1. Slots change hands, and a matrix its place (lp_weight.mats), only in begin and guess: never
//      while an operation runs. A slot that a step uses stays until end.
//   2. While an expert is absent, its place is the mapped file: right, but slow, and nothing reads
//      it. From `loading` on its place is the slot.
//   3. After a failure the slot holds any bytes: the operation runs on them, and the step then fails
//      (lp_expert_cache_failure).
//
// Which slot is taken: a free one, or that of the expert used least of late (expert_policy.h),
// guesses for the coming layer last.
//
// Of a model that several ranks run, each has the experts that are whole on it (model->part), a cache of its own for
// them, and a budget of its own; ids are those of the model, and others' are passed over.
//
// Threads: begin, guess, end, failure and stats by the thread that runs steps; the source by any
// worker of an operation.
#ifndef LP_MODEL_EXPERT_CACHE_H
#define LP_MODEL_EXPERT_CACHE_H

#include "base/direct_read.h"
#include "model/expert_layout.h"
#include "model/expert_policy.h"

struct lp_model;
struct lp_expert_cache;

struct lp_expert_options {
    uint64_t budget_bytes;    // for the dense part and the cache
    const char *profile;      // a file (expert_profile.h), or NULL; of rank 1: PROFILE.rank1 ...
    enum lp_direct_way way;   // AUTO; others for tests
    enum lp_expert_rule rule; // DECAY; RECENT to compare with
    bool no_guesses;          // to compare with
};

// For a model that was loaded on a device of host memory. Changes the places of its experts; the
// model frees it. *out NULL: the budget holds all of what is here, which stays as it is. Errors:
// INVALID (too small a budget: says the least), UNSUPPORTED, IO, MEMORY, LIMIT.
lp_status lp_expert_cache_new(struct lp_expert_cache **out, struct lp_model *model,
                              const struct lp_expert_options *options, struct lp_err *err);
// Writes the profile, if there is one to write. NULL is allowed.
void lp_expert_cache_free(struct lp_expert_cache *cache);

// ids: host, [n_rows, n_used of the model]
int64_t lp_expert_cache_begin(struct lp_expert_cache *cache, int32_t layer, const int32_t *ids,
                              int64_t n_rows);
void lp_expert_cache_end(struct lp_expert_cache *cache);
const struct lp_expert_source *lp_expert_cache_source(struct lp_expert_cache *cache, int32_t layer);

// The layer may need these experts next. ids: [n_rows, n_used], best first. NULL: those that were used
// most of late, for a step of n_rows.
void lp_expert_cache_guess(struct lp_expert_cache *cache, int32_t layer, const int32_t *ids,
                           int64_t n_rows);
bool lp_expert_cache_guesses(const struct lp_expert_cache *cache); // whether they are wanted
bool lp_expert_cache_is_idle(struct lp_expert_cache *cache);       // nothing is being read

// Whether a read has failed since the last lp_expert_cache_failure, which says why (IO) once.
bool lp_expert_cache_has_failed(struct lp_expert_cache *cache);
lp_status lp_expert_cache_failure(struct lp_expert_cache *cache, struct lp_err *err);

struct lp_expert_stats {
    int32_t n_slots, n_items;                        // experts that fit; of all layers together
    uint64_t dense_bytes, cache_bytes, expert_bytes; // in memory; in memory; on disk
    // Experts that steps needed, once per step and layer: in the cache from an earlier step; read
    // ahead of the step (or still being read); read because the step asked.
    uint64_t n_hits, n_ahead, n_misses;
    uint64_t n_guesses, n_right_guesses; // of one layer by the one before, for steps of few tokens
    uint64_t n_reads, read_bytes;        // experts whose read has ended; bytes from the disk
    uint64_t wait_ns;                    // while at least one thread waited for an expert
    const char *way;                     // "io_uring" or "pread"
};
struct lp_expert_stats lp_expert_cache_get_stats(struct lp_expert_cache *cache);

#endif
