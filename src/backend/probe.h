// A look at named intermediates while a step runs: q, latents, scores, router logits ... on any
// layer and backend. A probe is asked for each point whether it wants it; without a probe a point
// costs one predictable branch. A probe never changes what is computed. Points: probe_points.def.
// Users: limpid_watch (limpid dump --probe, POST /debug/probe), the doctor.
//
// Most points show a buffer of the step. What fused kernels never hold (scores, probabilities,
// indexer scores, keys and values of heads in MLA) is computed on the host, in double, row by row
// and only for the rows that are wanted, from the queries, cache rows and weights that the kernel
// was given.
#ifndef LP_BACKEND_PROBE_H
#define LP_BACKEND_PROBE_H

#include "backend/backend.h"

enum lp_probe_point {
#define POINT(id, name, need, is_int, shape, meaning) LP_PROBE_##id,
#include "backend/probe_points.def"
#undef POINT
    LP_N_PROBE_POINTS
};

enum lp_probe_need { // what must be there for a point to have values
    LP_PROBE_NEED_ALWAYS,
    LP_PROBE_NEED_MLA,
    LP_PROBE_NEED_GQA,
    LP_PROBE_NEED_Q_RANK,         // MLA with a query latent
    LP_PROBE_NEED_ABSORBED,       // MLA that took the absorbed route
    LP_PROBE_NEED_KEYS,           // GQA, or MLA that took the expanded route
    LP_PROBE_NEED_INDEXER,        // a layer with an indexer, its own or shared, not --route dense
    LP_PROBE_NEED_INDEXER_FULL,   // its own
    LP_PROBE_NEED_SELECTION_FULL, // and more keys than top_k, so that there is something to select
    LP_PROBE_NEED_DENSE,          // dense FFN
    LP_PROBE_NEED_MOE,
    LP_PROBE_NEED_SHARED, // MoE with a shared expert
};

struct lp_probe_value {
    enum lp_probe_point point;
    int32_t layer;     // -1: outside the layers (embedding, head)
    uint64_t sequence; // whose rows these are
    int64_t first_pos; // position of the first row
    int64_t n_rows;
    const void *data; // device memory unless host is set; float, or int32_t where is_int
    bool is_int, host;
    int64_t row_stride; // in values
    int32_t n_dims;     // of a row: 1 or 2
    int64_t dims[2];    // where a dimension is n_keys: keys that this row may see; n_rows is then 1
    int64_t dim_stride; // values from one to the next of dims[0], with two dimensions
};

struct lp_probe {
    // Whether a value is wanted of any of the positions first_pos ... first_pos + n_rows - 1.
    bool (*wants)(void *user, enum lp_probe_point point, int32_t layer, int64_t first_pos,
                  int64_t n_rows);
    void (*take)(void *user, const struct lp_probe_value *value); // valid during the call
    // The route that attention took for these positions of a layer (static text); or NULL.
    void (*route)(void *user, int32_t layer, int64_t first_pos, int64_t n_rows, const char *route);
    void *user;
    bool failed; // set by a point that had no memory: the step then ends with MEMORY
};

static inline bool lp_probe_wants(const struct lp_probe *probe, enum lp_probe_point point,
                                  int32_t layer, int64_t first_pos, int64_t n_rows) {
    return probe && probe->wants(probe->user, point, layer, first_pos, n_rows);
}

// Rows first ... first + n - 1 of a value as a dense host array, [n, dims...] of 4-byte values.
// False without memory (for the stretches between strided rows of a device).
bool lp_probe_read(struct lp_device *dev, const struct lp_probe_value *value, int64_t first,
                   int64_t n, void *out);
// Values of a row.
int64_t lp_probe_row_values(const struct lp_probe_value *value);

const char *lp_probe_name(enum lp_probe_point point);    // "attn.q"
const char *lp_probe_shape(enum lp_probe_point point);   // of a row: "n_heads, head_dim"
const char *lp_probe_meaning(enum lp_probe_point point); // one line
bool lp_probe_is_int(enum lp_probe_point point);
bool lp_probe_in_layer(enum lp_probe_point point); // false: embedding, final norm, logits
enum lp_probe_need lp_probe_need(enum lp_probe_point point);
// What it takes, as the end of "only ...": "on the absorbed route (--route absorbed)"; "" always.
const char *lp_probe_need_text(enum lp_probe_need need);
bool lp_probe_find(const char *name, enum lp_probe_point *out);

#endif
