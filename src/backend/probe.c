// The list of points, and values from device memory to the host.
#include "backend/probe.h"

#include <string.h>

#include "base/alloc.h"

static const struct {
    const char *name, *shape, *meaning;
    enum lp_probe_need need;
    bool is_int;
} points[LP_N_PROBE_POINTS] = {
#define POINT(id, name, need, is_int, shape, meaning)                                              \
    {name, shape, meaning, LP_PROBE_NEED_##need, is_int},
#include "backend/probe_points.def"
#undef POINT
};

const char *lp_probe_name(enum lp_probe_point point) {
    return points[point].name;
}
const char *lp_probe_shape(enum lp_probe_point point) {
    return points[point].shape;
}
const char *lp_probe_meaning(enum lp_probe_point point) {
    return points[point].meaning;
}
bool lp_probe_is_int(enum lp_probe_point point) {
    return points[point].is_int;
}
bool lp_probe_in_layer(enum lp_probe_point point) {
    return point != LP_PROBE_EMBED && point != LP_PROBE_FINAL_NORM && point != LP_PROBE_LOGITS;
}
enum lp_probe_need lp_probe_need(enum lp_probe_point point) {
    return points[point].need;
}

const char *lp_probe_need_text(enum lp_probe_need need) {
    static const char *const texts[] = {
        [LP_PROBE_NEED_ALWAYS] = "",
        [LP_PROBE_NEED_MLA] = "with latent attention (MLA)",
        [LP_PROBE_NEED_GQA] = "with grouped-query attention",
        [LP_PROBE_NEED_Q_RANK] = "with a query latent (attn_q_a)",
        [LP_PROBE_NEED_ABSORBED] = "on the absorbed route (--route absorbed)",
        [LP_PROBE_NEED_KEYS] = "with grouped-query attention, or on the expanded route (--route "
                               "expanded)",
        [LP_PROBE_NEED_INDEXER] = "on layers with an indexer, and not with --route dense",
        [LP_PROBE_NEED_INDEXER_FULL] = "on layers with an indexer of their own",
        [LP_PROBE_NEED_SELECTION_FULL] =
            "on layers with an indexer of their own, in steps that see more than top_k keys, and "
            "not with --route dense",
        [LP_PROBE_NEED_DENSE] = "on layers with a dense FFN",
        [LP_PROBE_NEED_MOE] = "on layers with experts",
        [LP_PROBE_NEED_SHARED] = "on layers with a shared expert",
    };
    return texts[need];
}

bool lp_probe_find(const char *name, enum lp_probe_point *out) {
    for (int i = 0; i < LP_N_PROBE_POINTS; i++)
        if (strcmp(points[i].name, name) == 0) {
            *out = (enum lp_probe_point)i;
            return true;
        }
    return false;
}

int64_t lp_probe_row_values(const struct lp_probe_value *value) {
    return value->n_dims == 2 ? value->dims[0] * value->dims[1] : value->dims[0];
}

// A row's values, which lie at `from` as the value says, one behind the other.
static void pack_row(const struct lp_probe_value *v, const uint32_t *from, uint32_t *to) {
    int64_t n = v->n_dims == 2 ? v->dims[0] : 1, width = v->dims[v->n_dims - 1];
    for (int64_t i = 0; i < n; i++)
        memcpy(to + i * width, from + i * v->dim_stride, (size_t)width * sizeof *to);
}

bool lp_probe_read(struct lp_device *dev, const struct lp_probe_value *v, int64_t first, int64_t n,
                   void *out) {
    const uint32_t *data = (const uint32_t *)v->data + first * v->row_stride;
    int64_t row = lp_probe_row_values(v);
    bool in_place = v->host || dev->backend->host_memory;
    // Of a row: from its first value to its last.
    int64_t reach = v->n_dims == 2 ? (v->dims[0] - 1) * v->dim_stride + v->dims[1] : v->dims[0];
    uint32_t *stretch = in_place ? NULL : lp_alloc((size_t)reach, sizeof *stretch);
    if (!in_place && !stretch) return false;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t *from = data + i * v->row_stride;
        if (stretch) dev->backend->read(dev, stretch, from, (size_t)reach * sizeof *stretch);
        pack_row(v, stretch ? stretch : from, (uint32_t *)out + i * row);
    }
    lp_free(stretch);
    return true;
}
