// The scheduler: which sequences run in this step, and how many tokens of each.
//
//            submit              admit                    last token
//   (new) ----------> WAITING ----------> RUNNING ---------------------> ENDED
//                        ^                   |  |                           ^
//                        +--- pre-empted ----+  +-- cancelled, failed ------+
//
// A sequence has tokens (prompt, then answer) and knows how many of them are computed. What is left
// to compute is all that tells prompts from answers: one token (and drafts) or many.
//
//   S1. A step takes first one token of every running sequence that has one left, then drafts (at
//       most half of the rest, where prompts run), then prompt tokens, at most max_batch_tokens in
//       all.
//   S2. Of the budget for prompts the senior prompt gets at least half, the others share the rest
//       equally: a long prompt neither stops others nor is stopped by them.
//   S3. Seniority: higher priority, then earlier arrival. It never changes.
//   S4. When pages are short, cached prefixes go first, then the pages of the most junior running
//       sequence (pre-emption: it waits again, its tokens are kept and computed anew). Nobody takes
//       pages from a senior, so the most senior sequence always advances: no deadlock, no livelock.
//       In a cache of several parts all this is so in each of them.
//   S5. A waiting sequence is admitted in order of seniority when there are pages for all its
//       tokens, or when nothing runs. If nothing runs and the first one cannot be admitted, it
//       fails: the engine is never idle with a queue.
//   S6. The choices of a request wait until the first one's prompt is computed, and share it.
//   S9. A sequence runs in one part of the cache, chosen as it is admitted among those that have pages for
//       it: by what is known of its tokens there, and the pages that nobody uses.
#ifndef LP_ENGINE_SCHED_H
#define LP_ENGINE_SCHED_H

#include <stdbool.h>
#include <stdint.h>

#include "kv/prefix.h"
#include "limpid.h"

struct limpid_engine;
struct limpid_request;

#define LP_MAX_DRAFT LIMPID_MAX_DRAFT

enum lp_seq_state { LP_SEQ_NEW, LP_SEQ_WAITING, LP_SEQ_RUNNING, LP_SEQ_ENDED };

// One choice of a request.
struct lp_seq {
    struct limpid_request *request;
    uint64_t number; // for the trace
    int32_t choice;
    enum lp_seq_state state;
    struct lp_seq *next; // in the waiting list
    int32_t *tokens;     // prompt, then answer; [capacity]
    int64_t n_tokens, capacity, n_prompt;
    int64_t n_computed;  // in the cache
    int64_t n_scheduled; // rows of this step, drafts with them
    int32_t n_draft;     // drafts[0..) are run behind the last token in this step
    int32_t drafts[LP_MAX_DRAFT];
    bool draft_whole;  // the MTP layer's state of all computed tokens is there
    bool was_admitted; // n_cached is known
    int64_t n_cached, n_cached_disk;
    int64_t n_drafted, n_accepted, n_preempted;
    uint64_t admitted_ns, token_ns; // token_ns: of the last token
    struct lp_page_table pages;
    struct lp_sampler *sampler;
    struct lp_output *output;         // text and end of the answer (output.c)
    struct lp_constraint *constraint; // what the answer must match, or NULL
    uint64_t constraint_ns;           // that looking at it took the last time
};

struct lp_sched {
    struct lp_seq *waiting;  // most senior first
    struct lp_seq **running; // [max_seqs], most senior first
    int32_t n_running;
    int64_t n_waiting;
    uint64_t n_preempted;
    int64_t n_answers;       // of the last plan: running sequences with one token left
    struct lp_seq **prompts; // [max_seqs], scratch of a plan, as are the next two
    int64_t *want, *got;
    // [parts of the cache], scratch of a plan too: pages that running sequences have still to take
    int64_t *promised;
};

lp_status lp_sched_init(struct lp_sched *sched, int32_t max_seqs, int32_t n_parts,
                        struct lp_err *err);
void lp_sched_release(struct lp_sched *sched);

void lp_sched_enqueue(struct lp_sched *sched, struct lp_seq *seq); // NEW or pre-empted -> WAITING
// WAITING or RUNNING -> ENDED: off the lists, its pages given back.
void lp_sched_remove(struct limpid_engine *engine, struct lp_seq *seq);

// Decides the step: running[i]->n_scheduled (0 = not in this step), tables grown for it. Returns
// the number of rows; 0 = nothing to do. drafts: verify those that are there. *refused: a sequence
// that cannot run (S5: no pages and nobody to take them from; or no memory), for the caller to fail
// with *err; or NULL.
int64_t lp_sched_plan(struct limpid_engine *engine, bool drafts, struct lp_seq **refused,
                      struct lp_err *err);

// Whether a running sequence has one token left: a step that could verify drafts.
bool lp_sched_has_answers(const struct lp_sched *sched);

// S9. What a part of the cache is worth to a sequence: n_known of its tokens are known there, and n_room of the
// part's pages are nobody's. The largest is chosen.
int64_t lp_sched_part_worth(int64_t n_known, int64_t n_room);

// Splits a budget among prompts that want want[0..n) tokens, the most senior first (S2).
void lp_sched_share(int64_t budget, const int64_t *want, int32_t n, int64_t *got);

#endif
