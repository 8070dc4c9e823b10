// limpid_probes: which rows of which points of which layers are looked at, and their way from a
// step to the caller. A set is used by one sequence at a time.
#include "engine/probes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "engine/engine.h"
#include "engine/probe_spec.h"
#include "model/probe_shape.h"

#define BLOCK_VALUES ((int64_t)1 << 18) // that are handed over at a time, or one row

struct item {
    enum lp_probe_point point;
    int32_t layer;
    int64_t (*ranges)[2];
    size_t n_ranges, capacity;
    int64_t n_rows, n_found;
    int32_t n_dims;
    int64_t dims[2];
};

struct limpid_probes {
    const struct lp_hparams *h;
    struct item *items; // by layer, then in order of computation; those outside first and last
    size_t n_items;
    int32_t *index; // [n_layers + 1][LP_N_PROBE_POINTS]: item of a point of layer - 1; -1: none
    limpid_probe_route *routes;
    size_t n_routes, route_capacity;

    // while a step runs
    struct lp_probe probe;
    struct lp_device *dev;
    const limpid_watch *watch;
    uint32_t *block, *row; // [block_values], [row_values]
    size_t block_values, row_values;
};

// ---- the set ----

static int32_t *slot(const limpid_probes *p, enum lp_probe_point point, int32_t layer) {
    return &p->index[(int64_t)(layer + 1) * LP_N_PROBE_POINTS + point];
}

static struct item *item_of(const limpid_probes *p, enum lp_probe_point point, int32_t layer) {
    if (layer >= p->h->n_layers) return NULL; // the MTP layer
    int32_t i = *slot(p, point, layer);
    return i < 0 ? NULL : &p->items[i];
}

static bool spec_has_layer(const struct lp_probe_spec *spec, enum lp_probe_point point,
                           int32_t layer) {
    if (!spec->points[point]) return false;
    return spec->every_layer ||
           (layer >= 0 && layer >= spec->first_layer && layer <= spec->last_layer);
}

// What was asked for by name and is nowhere is a mistake.
static lp_status check_spec(const struct lp_hparams *h, const struct lp_probe_spec *spec,
                            const char *text, struct lp_err *err) {
    enum lp_probe_point asked = LP_PROBE_EMBED;
    for (int p = 0; p < LP_N_PROBE_POINTS; p++) {
        if (!spec->points[p]) continue;
        asked = (enum lp_probe_point)p;
        for (int32_t layer = -1; layer < h->n_layers; layer++)
            if (spec_has_layer(spec, asked, layer) && lp_probe_layer_has(h, asked, layer))
                return LP_OK;
    }
    if (!lp_probe_in_layer(asked))
        return lp_err_set(err, LP_STATUS_INVALID,
                          "probe '%.200s': %s lies outside the layers; leave layer= out", text,
                          lp_probe_name(asked));
    return lp_err_set(
        err, LP_STATUS_INVALID, "probe '%.200s': %s is there only %s%s", text,
        spec->by_name ? lp_probe_name(asked) : "that", lp_probe_need_text(lp_probe_need(asked)),
        spec->every_layer ? ", which this model has not" : ", which this layer is not");
}

static lp_status add_ranges(struct item *item, const struct lp_probe_spec *spec,
                            struct lp_err *err) {
    size_t n = item->n_ranges + (size_t)spec->n_ranges;
    if (n > item->capacity) {
        void *grown = lp_realloc(item->ranges, 2 * n, sizeof *item->ranges);
        if (!grown) return lp_err_memory(err, 2 * n * sizeof *item->ranges, "probes");
        item->ranges = grown;
        item->capacity = 2 * n;
    }
    for (int32_t i = 0; i < spec->n_ranges; i++) {
        item->ranges[item->n_ranges][0] = spec->ranges[i].first;
        item->ranges[item->n_ranges++][1] = spec->ranges[i].last;
    }
    return LP_OK;
}

static int by_first(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

// Ascending runs that do not touch.
static void merge_ranges(struct item *item) {
    size_t n = 0;
    qsort(item->ranges, item->n_ranges, sizeof *item->ranges, by_first);
    for (size_t i = 0; i < item->n_ranges; i++) {
        int64_t *last = n ? &item->ranges[n - 1][1] : NULL;
        if (last && item->ranges[i][0] <= *last + 1) {
            if (item->ranges[i][1] > *last) *last = item->ranges[i][1];
            continue;
        }
        memmove(item->ranges[n++], item->ranges[i], sizeof *item->ranges);
    }
    item->n_ranges = n;
    item->n_rows = 0;
    for (size_t i = 0; i < n; i++) item->n_rows += item->ranges[i][1] - item->ranges[i][0] + 1;
}

static void size_rows(const struct lp_hparams *h, struct item *item) {
    int64_t n_keys = item->ranges[item->n_ranges - 1][1] + 1;
    if (item->point == LP_PROBE_INDEX_TOPK && h->top_k < n_keys) n_keys = h->top_k;
    item->n_dims = lp_probe_dims(h, item->point, item->layer, item->dims);
    for (int i = 0; i < item->n_dims; i++)
        if (item->dims[i] == LP_PROBE_N_KEYS) item->dims[i] = n_keys;
}

// One item for a point of a layer, with the ranges of all texts that ask for it.
static lp_status add_item(limpid_probes *p, const struct lp_probe_spec *specs, size_t n_specs,
                          enum lp_probe_point point, int32_t layer, struct lp_err *err) {
    struct item *item = &p->items[p->n_items];
    if (!lp_probe_layer_has(p->h, point, layer)) return LP_OK;
    for (size_t i = 0; i < n_specs; i++) {
        if (!spec_has_layer(&specs[i], point, layer)) continue;
        lp_status status = add_ranges(item, &specs[i], err);
        if (status) return status;
    }
    if (!item->n_ranges) return LP_OK;
    item->point = point;
    item->layer = layer;
    merge_ranges(item);
    size_rows(p->h, item);
    *slot(p, point, layer) = (int32_t)p->n_items++;
    return LP_OK;
}

static lp_status add_items(limpid_probes *p, const struct lp_probe_spec *specs, size_t n_specs,
                           struct lp_err *err) {
    size_t n = (size_t)(p->h->n_layers + 1) * LP_N_PROBE_POINTS;
    p->items = lp_alloc(n + 1, sizeof *p->items);
    p->index = lp_alloc(n, sizeof *p->index);
    if (!p->items || !p->index) return lp_err_memory(err, n * sizeof *p->items, "probes");
    for (size_t i = 0; i < n; i++) p->index[i] = -1;
    lp_status status = add_item(p, specs, n_specs, LP_PROBE_EMBED, -1, err);
    for (int32_t layer = 0; layer < p->h->n_layers; layer++)
        for (int point = 0; point < LP_N_PROBE_POINTS && !status; point++)
            status = add_item(p, specs, n_specs, (enum lp_probe_point)point, layer, err);
    if (!status) status = add_item(p, specs, n_specs, LP_PROBE_FINAL_NORM, -1, err);
    if (!status) status = add_item(p, specs, n_specs, LP_PROBE_LOGITS, -1, err);
    return status;
}

static lp_status read_specs(limpid_probes *p, const char *const *texts, size_t n_specs,
                            int64_t n_tokens, struct lp_err *err) {
    struct lp_probe_spec *specs = lp_alloc(n_specs, sizeof *specs);
    lp_status status = specs ? LP_OK : lp_err_memory(err, n_specs * sizeof *specs, "probes");
    for (size_t i = 0; i < n_specs && !status; i++) {
        status = lp_probe_spec_parse(&specs[i], texts[i], p->h->n_layers, n_tokens, err);
        if (!status) status = check_spec(p->h, &specs[i], texts[i], err);
    }
    if (!status) status = add_items(p, specs, n_specs, err);
    lp_free(specs);
    return status;
}

limpid_status limpid_probes_new(limpid_probes **out, const limpid_model *model,
                                const char *const *specs, size_t n_specs, int64_t n_tokens,
                                limpid_error *err_) {
    struct lp_err *err = lp_err_of(err_);
    if (!model->weights)
        return lp_public(
            lp_err_set(err, LP_STATUS_INVALID,
                       "a model that was opened with vocab_only has nothing to probe"));
    if (n_tokens < 1 || n_specs < 1)
        return lp_public(
            lp_err_set(err, LP_STATUS_INVALID, "probes need at least one token and one text"));
    limpid_probes *p = lp_alloc(1, sizeof *p);
    if (!p) return lp_public(lp_err_memory(err, sizeof *p, "probes"));
    p->h = &model->weights->h;
    lp_status status = read_specs(p, specs, n_specs, n_tokens, err);
    if (status)
        limpid_probes_free(p);
    else
        *out = p;
    return lp_public(status);
}

void limpid_probes_free(limpid_probes *p) {
    if (!p) return;
    for (size_t i = 0; i <= p->n_items && p->items; i++) lp_free(p->items[i].ranges);
    lp_free(p->items);
    lp_free(p->index);
    lp_free(p->routes);
    lp_free(p->block);
    lp_free(p->row);
    lp_free(p);
}

size_t limpid_probes_count(const limpid_probes *p) {
    return p->n_items;
}

limpid_probe limpid_probes_get(const limpid_probes *p, size_t i) {
    const struct item *item = &p->items[i];
    return (limpid_probe){.name = lp_probe_name(item->point),
                          .layer = item->layer,
                          .is_int = lp_probe_is_int(item->point),
                          .n_rows = item->n_rows,
                          .ranges = item->ranges[0],
                          .n_ranges = item->n_ranges,
                          .n_dims = item->n_dims,
                          .dims = {item->dims[0], item->dims[1]},
                          .n_found = item->n_found,
                          .needs = lp_probe_need_text(lp_probe_need(item->point))};
}

size_t limpid_probes_count_routes(const limpid_probes *p) {
    return p->n_routes;
}
limpid_probe_route limpid_probes_get_route(const limpid_probes *p, size_t i) {
    return p->routes[i];
}

// ---- a step ----

static bool wants(void *user, enum lp_probe_point point, int32_t layer, int64_t first, int64_t n) {
    const struct item *item = item_of(user, point, layer);
    for (size_t i = 0; item && i < item->n_ranges; i++)
        if (item->ranges[i][0] < first + n && item->ranges[i][1] >= first) return true;
    return false;
}

bool lp_probes_wants_logits(const limpid_probes *p, int64_t position) {
    void *user = (void *)(uintptr_t)p;
    return p && (wants(user, LP_PROBE_LOGITS, -1, position, 1) ||
                 wants(user, LP_PROBE_FINAL_NORM, -1, position, 1));
}

static bool grow(uint32_t **block, size_t *capacity, size_t n) {
    if (n <= *capacity) return true;
    lp_free(*block);
    *block = lp_alloc(n, sizeof **block);
    *capacity = *block ? n : 0;
    return *block != NULL;
}

static uint32_t filler(const struct item *item) {
    union {
        float f;
        int32_t i;
        uint32_t u;
    } v = {.f = item->point == LP_PROBE_ATTN_PROBS ? 0.0f : -INFINITY};
    if (lp_probe_is_int(item->point)) v.i = -1;
    return v.u;
}

// The only row of a value to the item's width: filled up, or without its empty end.
static bool read_ragged(limpid_probes *p, const struct item *item, const struct lp_probe_value *v) {
    int64_t n = v->n_dims == 2 ? v->dims[0] : 1, from = v->dims[v->n_dims - 1],
            to = item->dims[item->n_dims - 1], shared = from < to ? from : to;
    if (!grow(&p->row, &p->row_values, (size_t)(n * from)) ||
        !grow(&p->block, &p->block_values, (size_t)(n * to)) ||
        !lp_probe_read(p->dev, v, 0, 1, p->row))
        return false;
    for (int64_t i = 0; i < n; i++) {
        memcpy(p->block + i * to, p->row + i * from, (size_t)shared * sizeof *p->row);
        for (int64_t j = shared; j < to; j++) p->block[i * to + j] = filler(item);
    }
    return true;
}

// Rows first ... first + n - 1 of the value, which are the item's from `at` on.
static bool hand_over(limpid_probes *p, struct item *item, const struct lp_probe_value *v,
                      int64_t first, int64_t n, int64_t at) {
    size_t i = (size_t)(item - p->items);
    int64_t width = item->dims[0] * (item->n_dims == 2 ? item->dims[1] : 1), take;
    bool ragged = v->dims[v->n_dims - 1] != item->dims[item->n_dims - 1];
    for (int64_t done = 0; done < n; done += take) {
        take = width < BLOCK_VALUES ? BLOCK_VALUES / width : 1;
        if (take > n - done) take = n - done;
        bool ok = ragged ? read_ragged(p, item, v)
                         : grow(&p->block, &p->block_values, (size_t)(take * width)) &&
                               lp_probe_read(p->dev, v, first + done, take, p->block);
        if (!ok) return false;
        p->watch->probed(p->watch->user, i, at + done, take, p->block);
    }
    item->n_found += n;
    return true;
}

static void take(void *user, const struct lp_probe_value *v) {
    limpid_probes *p = user;
    struct item *item = item_of(p, v->point, v->layer);
    int64_t at = 0; // the item's row at the beginning of a range
    for (size_t i = 0; item && i < item->n_ranges; i++) {
        int64_t first = item->ranges[i][0], last = item->ranges[i][1];
        int64_t from = first > v->first_pos ? first : v->first_pos,
                end = v->first_pos + v->n_rows - 1, to = last < end ? last : end;
        if (from <= to &&
            !hand_over(p, item, v, from - v->first_pos, to - from + 1, at + from - first))
            p->probe.failed = true;
        at += last - first + 1;
    }
}

static bool has_layer(const limpid_probes *p, int32_t layer) {
    for (int point = 0; point < LP_N_PROBE_POINTS; point++)
        if (item_of(p, (enum lp_probe_point)point, layer)) return true;
    return false;
}

// Runs of one name on a layer become one.
static void note_route(void *user, int32_t layer, int64_t first, int64_t n, const char *name) {
    limpid_probes *p = user;
    if (!has_layer(p, layer)) return;
    for (size_t i = 0; i < p->n_routes; i++) {
        limpid_probe_route *r = &p->routes[i];
        if (r->layer != layer || r->first + r->n != first || strcmp(r->name, name) != 0) continue;
        r->n += n;
        return;
    }
    if (p->n_routes == p->route_capacity) {
        size_t capacity = p->route_capacity ? 2 * p->route_capacity : 64;
        limpid_probe_route *grown = lp_realloc(p->routes, capacity, sizeof *grown);
        if (!grown) {
            p->probe.failed = true;
            return;
        }
        p->routes = grown;
        p->route_capacity = capacity;
    }
    p->routes[p->n_routes++] = (limpid_probe_route){layer, first, n, name};
}

struct lp_probe *lp_probes_begin(limpid_probes *p, struct lp_device *dev,
                                 const limpid_watch *watch) {
    p->probe = (struct lp_probe){.wants = wants, .take = take, .route = note_route, .user = p};
    p->dev = dev;
    p->watch = watch;
    return &p->probe;
}
