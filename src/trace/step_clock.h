// Where the time of steps goes, by kind of operation. The code that runs a step says after each
// operation what it was; the time since the last such word is added to that kind. So the kinds add
// up to the steps, with nothing counted twice, at the price of one look at the clock an operation.
//
// One thread at a time, the one that runs the step. A NULL clock counts nothing. The operations must
// have ended when their word is said: a device that runs behind its caller would have to be waited
// for.
#ifndef LP_TRACE_STEP_CLOCK_H
#define LP_TRACE_STEP_CLOCK_H

#include <stdint.h>

// Every kind once: X(enum, name in tables and files, meaning).
#define LP_STEP_PARTS(X)                                                                           \
    X(ATTEND_EXPANDED, "attention_expanded", "attention over expanded keys and values")            \
    X(ATTEND_ABSORBED, "attention_absorbed", "attention over latents")                             \
    X(ATTEND_EXPANDED_SPARSE, "attention_expanded_sparse", "expanded, over chosen keys")           \
    X(ATTEND_SPARSE, "attention_sparse", "attention over chosen latents")                          \
    X(ATTEND_GQA, "attention_gqa", "grouped-query attention")                                      \
    X(INDEX_SELECT, "index_select", "the indexer's scores and its choice")                         \
    X(INDEX_PROJECT, "index_project", "the indexer's queries and keys")                            \
    X(PROJECT, "project", "projections of attention")                                              \
    X(ROUTER, "router", "the router's product and its choice")                                     \
    X(EXPERTS, "experts", "routed experts")                                                        \
    X(SHARED, "shared", "shared experts")                                                          \
    X(DENSE, "dense", "dense feed-forward layers")                                                 \
    X(HEAD, "head", "logits")                                                                      \
    X(WAIT, "wait", "waiting for weights from disk")                                               \
    X(RANKS, "ranks", "exchanges with other ranks, and waiting for them")                          \
    X(OTHER, "other", "norms, rotations, cache writes, the rest")

enum lp_step_part {
#define X(name, text, meaning) LP_STEP_PART_##name,
    LP_STEP_PARTS(X)
#undef X
        LP_STEP_N_PARTS
};

struct lp_step_clock {
    uint64_t last_ns;                // when the last operation ended
    uint64_t ns[LP_STEP_N_PARTS];    // since the clock was made zero
    uint64_t calls[LP_STEP_N_PARTS]; // operations
};

const char *lp_step_part_name(enum lp_step_part part);    // "index_select"
const char *lp_step_part_meaning(enum lp_step_part part); // a few words for people

// What passed before now belongs to nobody.
void lp_step_clock_start(struct lp_step_clock *clock);
// An operation has ended.
void lp_step_clock_take(struct lp_step_clock *clock, enum lp_step_part part);
// ns of what was taken for `from` belong to `to`; no more than there is.
void lp_step_clock_move(struct lp_step_clock *clock, enum lp_step_part from, enum lp_step_part to,
                        uint64_t ns);
// *out = a - b.
void lp_step_clock_difference(struct lp_step_clock *out, const struct lp_step_clock *a,
                              const struct lp_step_clock *b);

static inline void lp_step_lap(struct lp_step_clock *clock, enum lp_step_part part) {
    if (clock) lp_step_clock_take(clock, part);
}

#endif
