// What a user asks a probe for, as text: "layer=3,op=attn.scores,first=2" (docs/probes.md).
#ifndef LP_ENGINE_PROBE_SPEC_H
#define LP_ENGINE_PROBE_SPEC_H

#include "backend/probe.h"

#define LP_PROBE_SPEC_MAX_RANGES 16

struct lp_probe_range { // positions, both ends included
    int64_t first, last;
};

struct lp_probe_spec {
    bool every_layer; // no layer= was given, or layer=all
    int32_t first_layer, last_layer;
    bool points[LP_N_PROBE_POINTS];
    bool by_name; // op= is one name, not a pattern
    struct lp_probe_range ranges[LP_PROBE_SPEC_MAX_RANGES];
    int32_t n_ranges;
};

// Reads a text for a model of n_layers and a sequence of n_tokens (at least one of each). INVALID
// names the key, its value and what would do; an unknown op comes with those that may be meant.
lp_status lp_probe_spec_parse(struct lp_probe_spec *out, const char *text, int32_t n_layers,
                              int64_t n_tokens, struct lp_err *err);

#endif
