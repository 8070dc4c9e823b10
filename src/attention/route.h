// The route decision: which form of MLA runs for the tokens of one sequence in one step. A pure
// function of the work (query count, visible keys, top-k, head sizes) and of the settings; nothing
// else asks whether a step is "prefill" or "decode". Its answer is what the trace records.
#ifndef LP_ATTENTION_ROUTE_H
#define LP_ATTENTION_ROUTE_H

#include <stdbool.h>
#include <stdint.h>

enum lp_route_force { // --route
    LP_ROUTE_AUTO,
    LP_ROUTE_EXPANDED, // always multi-head over expanded keys and values
    LP_ROUTE_ABSORBED, // always multi-query over latents
    LP_ROUTE_DENSE,    // as auto, but ignore the indexer: every earlier key is seen
    LP_ROUTE_N_FORCES,
};

struct lp_route_work {
    int64_t n_query;                   // this sequence's tokens in the step
    int64_t n_kv;                      // keys after the step: cached + n_query
    int32_t top_k;                     // of the indexer; 0 = the model has none
    int32_t nope, rope, latent, v_dim; // per head
    bool deterministic;                // one formulation only
    bool selects_latents;              // lp_backend
    enum lp_route_force force;
};

struct lp_route {
    bool expanded; // else absorbed
    bool select;   // only the indexer's keys are seen (n_kv > top_k)
    const char *
        name; // "expanded", "absorbed", "sparse" (absorbed + select), "expanded-sparse", "dense..."
    const char *reason; // static text
};

struct lp_route lp_route_choose(const struct lp_route_work *work);

#define LP_ROUTE_GQA "gqa" // the name of the one route of grouped-query attention
// The name of a route as static text, of one that another process has sent; NULL: there is none of that name.
const char *lp_route_find_name(const char *name);

// "auto", "expanded", "absorbed", "dense"; false for anything else.
bool lp_route_force_parse(const char *name, enum lp_route_force *out);

#endif
