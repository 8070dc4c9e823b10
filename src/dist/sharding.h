// Which part of a model a rank holds and computes.
//
// Ranks form stages, one behind the other, of equally many ranks. A stage has a run of the layers. In
// it every rank takes all tokens, with some of the attention heads, of the rows and columns of the dense
// FFNs, and of the routed experts: what they add to the residual stream is summed over them, twice a layer.
//
// With data-parallel attention (one stage) every rank has all heads, and runs attention for the sequences whose
// cache it holds; between layers it has the stream's rows of these alone. For a FFN the rows of all are gathered, and
// each rank gets the sums of its own. Where it has experts whole, rows go to the ranks of their experts alone
// (model/ranks_experts.h), and a layer's shared expert is on every rank.
#ifndef LP_DIST_SHARDING_H
#define LP_DIST_SHARDING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct lp_range {
    int64_t first, n;
};

// Of n things in units of `step`, the last of which may be cut short, what part number `part` of n_parts
// gets: runs in order that differ by a unit at most. A part may be empty.
struct lp_range lp_share(int64_t n, int64_t step, int32_t n_parts, int32_t part);

enum lp_shard_experts {
    LP_SHARD_EXPERTS_AUTO,
    LP_SHARD_EXPERTS_SPLIT, // each rank has a part of every expert
    LP_SHARD_EXPERTS_WHOLE, // each rank has some experts
};
bool lp_shard_experts_parse(const char *name,
                            enum lp_shard_experts *out); // "auto", "split", "whole"

enum lp_attention_parallel {
    LP_ATTENTION_PARALLEL_AUTO, // by heads; of a command that knows what memory there is, what fits (cli/)
    LP_ATTENTION_PARALLEL_HEADS,
    LP_ATTENTION_PARALLEL_DATA,
};
bool lp_attention_parallel_parse(const char *name,
                                 enum lp_attention_parallel *out); // "auto", "heads", "data"

struct lp_sharding { // of one rank
    int32_t n_stages, stage;
    int32_t n_tensor, tensor; // ranks of a stage, and the number among them
    bool whole_experts;
    bool data_attention;    // attention is divided by sequences, not by heads
    bool sends_rows;        // of it, with whole experts: to the ranks of their experts alone
    struct lp_range layers; // of the stage
};

// n_stages: 0 = 1. The layers are divided so that stages have about the same number of bytes.
// Errors: INVALID (names the nearest number of stages that will do).
lp_status lp_sharding_make(struct lp_sharding *out, int32_t rank, int32_t n_ranks, int32_t n_stages,
                           const uint64_t *layer_bytes, int32_t n_layers, struct lp_err *err);

// What ranks of a stage exchange in a layer with experts, in a word: "none" (there is one rank), "sums" (of all rows),
// "rows" (all to all, and the sums of each rank's own), "experts" (rows to the ranks of their experts, and sums back).
const char *lp_sharding_exchange(const struct lp_sharding *part);

#endif
