#include "model/ranks_probe.h"

#include <string.h>

#include "attention/route.h"
#include "base/alloc.h"
#include "model/runner.h"
#include "model/shard.h"

#define PIECE_BYTES ((size_t)1 << 20)

// ---- what is wanted

static int64_t slot_of(int32_t layer, int32_t point) {
    return (int64_t)(layer + 1) * LP_N_PROBE_POINTS + point;
}

// The runs of a span's rows that the probe wants of a point.
static void put_runs(struct lp_bytes *list, const struct lp_probe *probe, enum lp_probe_point point,
                     int32_t layer, const struct lp_span *span) {
    if (!lp_probe_wants(probe, point, layer, span->n_past, span->n_rows)) return;
    for (int64_t row = 0; row < span->n_rows;) {
        struct lp_ranks_probe_run run = {point, layer, span->n_past + row, 0};
        while (row < span->n_rows && lp_probe_wants(probe, point, layer, span->n_past + row, 1)) {
            row++;
            run.n_rows++;
        }
        if (run.n_rows > 0)
            lp_bytes_append(list, &run, sizeof run);
        else
            row++;
    }
}

static void list_wanted(struct lp_runner *r, const struct lp_step *step) {
    struct lp_ranks_probe *x = &r->ranks.probe;
    lp_bytes_clear(&x->list);
    for (int32_t layer = -1; layer < r->model->h.n_layers; layer++)
        for (int point = 0; point < LP_N_PROBE_POINTS; point++)
            for (int32_t i = 0; i < step->n_spans; i++)
                if (lp_probe_in_layer((enum lp_probe_point)point) == (layer >= 0))
                    put_runs(&x->list, x->asked, (enum lp_probe_point)point, layer,
                             &step->spans[i]);
}

static bool wants_listed(void *user, enum lp_probe_point point, int32_t layer, int64_t first_pos,
                         int64_t n_rows) {
    const struct lp_runner *r = user;
    const struct lp_ranks_probe *x = &r->ranks.probe;
    if (layer >= r->model->h.n_layers) return false; // the MTP layer
    const int64_t slot = slot_of(layer, point);
    for (int64_t i = x->first[slot]; i < x->first[slot + 1]; i++) {
        const struct lp_ranks_probe_run *run = &x->wanted[i];
        if (run->first_pos < first_pos + n_rows && first_pos < run->first_pos + run->n_rows)
            return true;
    }
    return false;
}

static bool wants_asked(void *user, enum lp_probe_point point, int32_t layer, int64_t first_pos,
                        int64_t n_rows) {
    const struct lp_runner *r = user;
    return lp_probe_wants(r->ranks.probe.asked, point, layer, first_pos, n_rows);
}

// ---- what is shown

#define ROUTE_BYTES 24

struct record { // and behind it its values, [n_rows, dims ...] of 4 bytes each; of a route its name
    int32_t point; // LP_N_PROBE_POINTS: a route
    int32_t layer; // -1: it has been handed over
    uint64_t sequence;
    int64_t first_pos, n_rows;
    int32_t is_int, n_dims;
    int64_t dims[2];
    uint64_t n_bytes;
};

static void keep_record(struct lp_runner *r, const struct record *record, const void *values) {
    struct lp_ranks_probe *x = &r->ranks.probe;
    lp_bytes_append(&x->records, record, sizeof *record);
    lp_bytes_append(&x->records, values, (size_t)record->n_bytes);
    x->own.failed |= x->records.failed;
}

// Rows first ... of a value that are wanted, and what lies between them.
static struct lp_range wanted_rows(struct lp_ranks_probe *x, const struct lp_probe_value *v) {
    int64_t first = 0, end = v->n_rows;
    while (first < end && !lp_probe_wants(&x->own, v->point, v->layer, v->first_pos + first, 1))
        first++;
    while (end > first && !lp_probe_wants(&x->own, v->point, v->layer, v->first_pos + end - 1, 1))
        end--;
    return (struct lp_range){first, end - first};
}

static void keep_value(void *user, const struct lp_probe_value *v) {
    struct lp_runner *r = user;
    struct lp_ranks_probe *x = &r->ranks.probe;
    if (!lp_probe_in_layer(v->point)) { // rank 0 has it whole
        if (!x->asked) return;
        x->asked->take(x->asked->user, v);
        x->own.failed |= x->asked->failed;
        return;
    }
    const struct lp_range rows = wanted_rows(x, v);
    const size_t n = (size_t)(rows.n * lp_probe_row_values(v));
    const struct record record = {.point = v->point,
                                  .layer = v->layer,
                                  .sequence = v->sequence,
                                  .first_pos = v->first_pos + rows.first,
                                  .n_rows = rows.n,
                                  .is_int = v->is_int,
                                  .n_dims = v->n_dims,
                                  .dims = {v->dims[0], v->dims[1]},
                                  .n_bytes = n * 4};
    if (n == 0) return;
    uint32_t *values = lp_alloc(n, sizeof *values);
    if (values && lp_probe_read(r->model->dev, v, rows.first, rows.n, values))
        keep_record(r, &record, values);
    else
        x->own.failed = true;
    lp_free(values);
}

static void keep_route(void *user, int32_t layer, int64_t first_pos, int64_t n_rows,
                       const char *route) {
    char name[ROUTE_BYTES] = {0};
    memcpy(name, route, strnlen(route, sizeof name - 1));
    keep_record(user,
                &(struct record){.point = LP_N_PROBE_POINTS,
                                 .layer = layer,
                                 .first_pos = first_pos,
                                 .n_rows = n_rows,
                                 .n_bytes = sizeof name},
                name);
}

// ---- before the step

static lp_status begin(struct lp_runner *r, struct lp_err *err) {
    struct lp_ranks_probe *x = &r->ranks.probe;
    x->on = true;
    x->own = (struct lp_probe){.wants = x->asked ? wants_asked : wants_listed,
                               .take = keep_value,
                               .route = keep_route,
                               .user = r};
    lp_bytes_release(&x->records); // of a step that has failed
    if (!x->piece) x->piece = lp_alloc(PIECE_BYTES, 1);
    return x->piece ? LP_OK : lp_err_memory(err, PIECE_BYTES, "what ranks show to probes");
}

lp_status lp_ranks_probe_ask(struct lp_runner *r, const struct lp_step *step,
                             struct lp_probe *probe, struct lp_order *order, struct lp_err *err) {
    struct lp_ranks_probe *x = &r->ranks.probe;
    const size_t n_tensor = (size_t)r->model->part.n_tensor;
    if (r->model->part.sends_rows)
        return lp_err_set(err, LP_STATUS_UNSUPPORTED,
                          "probes do not work where rows go to the ranks of their experts "
                          "(--attention-parallel data, experts whole) yet; use --shard-experts "
                          "split or --attention-parallel heads");
    x->asked = probe;
    probe->failed = false;
    if (!x->others) x->others = lp_alloc(n_tensor, sizeof *x->others);
    if (!x->at) x->at = lp_alloc(n_tensor, sizeof *x->at);
    lp_status status = begin(r, err);
    list_wanted(r, step);
    if (status || !x->others || !x->at || x->list.failed) {
        lp_bytes_release(&x->list);
        return lp_err_memory(err, 0, "what a probe wants of ranks");
    }
    const int64_t n = (int64_t)(x->list.len / sizeof *x->wanted);
    lp_order_put(order, &n, sizeof n);
    if (n > 0) lp_order_put(order, x->list.data, x->list.len);
    return LP_OK;
}

// Where the runs of each point begin; they come in its order. False: they do not.
static bool index_wanted(struct lp_ranks_probe *x, int32_t n_layers) {
    const int64_t n_slots = slot_of(n_layers, 0);
    int64_t slot = 0;
    for (int64_t i = 0; i < x->n_wanted; i++) {
        const struct lp_ranks_probe_run *run = &x->wanted[i];
        if (run->layer < -1 || run->layer >= n_layers || run->point < 0 ||
            run->point >= LP_N_PROBE_POINTS || slot_of(run->layer, run->point) + 1 < slot)
            return false;
        while (slot <= slot_of(run->layer, run->point)) x->first[slot++] = i;
    }
    while (slot <= n_slots) x->first[slot++] = x->n_wanted;
    return true;
}

lp_status lp_ranks_probe_follow(struct lp_runner *r, struct lp_order_reader *from,
                                struct lp_err *err) {
    struct lp_ranks_probe *x = &r->ranks.probe;
    const int32_t n_layers = r->model->h.n_layers;
    int64_t n = 0;
    lp_order_get(from, &n, sizeof n);
    lp_free(x->wanted);
    x->wanted = NULL;
    const bool fits =
        !from->failed && n >= 0 && (uint64_t)n <= (from->n - from->at) / sizeof *x->wanted;
    if (fits) x->wanted = lp_alloc((size_t)n, sizeof *x->wanted);
    if (!x->first) x->first = lp_alloc((size_t)slot_of(n_layers, 0) + 1, sizeof *x->first);
    if (fits && (!x->wanted || !x->first))
        return lp_err_memory(err, (size_t)n * sizeof *x->wanted, "what a probe wants");
    x->n_wanted = n;
    if (fits) lp_order_get(from, x->wanted, (size_t)n * sizeof *x->wanted);
    if (!fits || !index_wanted(x, n_layers))
        return lp_err_set(err, LP_STATUS_IO,
                          "what rank 0 says of a probe is no list of points: the ranks run "
                          "different builds of limpid");
    return begin(r, err);
}

struct lp_probe *lp_ranks_probe_of(struct lp_runner *r, struct lp_probe *probe) {
    return r->ranks.probe.on ? &r->ranks.probe.own : probe;
}

// ---- behind a layer: records to rank 0

static void send_records(struct lp_runner *r) {
    struct lp_bytes *records = &r->ranks.probe.records;
    struct lp_comm *ranks = r->model->ranks;
    const uint64_t n = records->failed ? 0 : records->len; // rank 0 is told by the report
    lp_comm_send(ranks, 0, &n, sizeof n);
    for (uint64_t at = 0, some; at < n; at += some) {
        some = n - at < PIECE_BYTES ? n - at : PIECE_BYTES;
        lp_comm_send(ranks, 0, records->data + at, (size_t)some);
    }
}

static void take_records(struct lp_runner *r, int32_t from, struct lp_bytes *out) {
    struct lp_ranks_probe *x = &r->ranks.probe;
    uint64_t n = 0;
    lp_bytes_clear(out);
    lp_comm_take(r->model->ranks, from, &n, sizeof n);
    for (uint64_t at = 0, some; at < n && !lp_comm_failed(r->model->ranks, NULL); at += some) {
        some = n - at < PIECE_BYTES ? n - at : PIECE_BYTES;
        lp_comm_take(r->model->ranks, from, x->piece, (size_t)some);
        lp_bytes_append(out, x->piece, (size_t)some);
    }
    if (!out->failed) return;
    x->own.failed = true;
    lp_bytes_release(out);
}

// ---- rank 0: parts put together

enum how { SAME, DIVIDED, ADDED };

static enum how how_of(enum lp_probe_point point) {
    static const char *const divided[] = {"n_heads", "n_kv_heads", "n_ff", "shared_ff"};
    const char *shape = lp_probe_shape(point);
    const size_t n = strcspn(shape, ", ");
    for (size_t i = 0; i < sizeof divided / sizeof *divided; i++)
        if (lp_str_is((struct lp_str){shape, n}, divided[i])) return DIVIDED;
    switch (point) {
    case LP_PROBE_ATTN_PROJ:
    case LP_PROBE_FFN_EXPERTS_OUT:
    case LP_PROBE_FFN_SHARED_OUT:
    case LP_PROBE_FFN_OUT:
        return ADDED;
    default:
        return SAME;
    }
}

// The record at *at, and *at behind it; NULL: there is none. Its values.
static const char *next_record(const struct lp_bytes *from, size_t *at, struct record *out) {
    if (from->len - *at < sizeof *out) return NULL;
    memcpy(out, from->data + *at, sizeof *out);
    *at += sizeof *out;
    if (out->n_bytes > from->len - *at) return NULL;
    const char *values = from->data + *at;
    *at += (size_t)out->n_bytes;
    return values;
}

static void mark_done(struct lp_bytes *records, size_t behind, const struct record *record) {
    struct record done = *record;
    done.layer = -1;
    memcpy(records->data + behind - record->n_bytes - sizeof done, &done, sizeof done);
}

static bool is_same(const struct record *a, const struct record *b) {
    return a->point == b->point && a->layer == b->layer && a->sequence == b->sequence &&
           a->first_pos == b->first_pos && a->n_rows == b->n_rows;
}

// Another rank's record of the same rows, taken out. Ranks show in the same order, so that it is the next, unless a
// rank has nothing of some points.
static const char *find_record(struct lp_bytes *records, size_t *at, const struct record *like,
                               struct record *out) {
    const size_t from = *at;
    for (int pass = 0; pass < 2; pass++, *at = 0) {
        const char *values;
        while ((pass == 0 || *at < from) && (values = next_record(records, at, out)))
            if (is_same(like, out)) {
                mark_done(records, *at, out);
                return values;
            }
    }
    *at = from;
    return NULL;
}

struct whole { // a value that is put together
    struct record record;
    float *values; // [n_rows, dims ...]
    bool failed;
};

static int64_t row_values(const struct record *x) {
    return x->n_dims == 2 ? x->dims[0] * x->dims[1] : x->dims[0];
}

// The columns or heads of another rank behind those that are there.
static void append_part(struct whole *w, const struct record *part, const float *values) {
    const int64_t n = row_values(&w->record), more = row_values(part), all = n + more;
    float *grown = lp_alloc((size_t)(all * part->n_rows), sizeof *grown);
    w->failed |= !grown;
    for (int64_t row = 0; grown && row < part->n_rows; row++) {
        memcpy(grown + row * all, w->values + row * n, (size_t)n * sizeof *grown);
        memcpy(grown + row * all + n, values + row * more, (size_t)more * sizeof *grown);
    }
    lp_free(w->values);
    w->values = grown;
    w->record.dims[0] += part->dims[0];
}

static void add_part(struct whole *w, const struct record *part, const float *values) {
    for (int64_t i = 0; i < part->n_rows * row_values(part); i++) w->values[i] += values[i];
}

static void give_value(struct lp_ranks_probe *x, const struct whole *w) {
    const struct record *record = &w->record;
    x->asked->take(x->asked->user,
                   &(struct lp_probe_value){.point = (enum lp_probe_point)record->point,
                                            .layer = record->layer,
                                            .sequence = record->sequence,
                                            .first_pos = record->first_pos,
                                            .n_rows = record->n_rows,
                                            .data = w->values,
                                            .is_int = record->is_int,
                                            .host = true,
                                            .row_stride = row_values(record),
                                            .n_dims = record->n_dims,
                                            .dims = {record->dims[0], record->dims[1]},
                                            .dim_stride = record->dims[1]});
    x->own.failed |= x->asked->failed;
}

static void give_route(struct lp_ranks_probe *x, const struct record *record, const char *name) {
    const char *route = lp_route_find_name(name);
    if (x->asked->route && route)
        x->asked->route(x->asked->user, record->layer, record->first_pos, record->n_rows, route);
    x->own.failed |= x->asked->failed;
}

// A record of the first rank of a stage that has it, with those of the ranks behind it.
static void join_parts(struct lp_ranks_probe *x, struct lp_bytes *const *parts, int32_t first,
                       int32_t n_parts, const struct record *record, const char *values) {
    const bool is_route = record->point >= LP_N_PROBE_POINTS;
    const enum how how = is_route ? SAME : how_of((enum lp_probe_point)record->point);
    struct whole w = {*record, lp_alloc((size_t)record->n_bytes, 1), false};
    struct record other;
    w.failed = !w.values;
    if (w.values) memcpy(w.values, values, (size_t)record->n_bytes);
    for (int32_t i = first + 1; i < n_parts; i++) {
        const void *part = find_record(parts[i], &x->at[i], record, &other);
        if (!part || w.failed) continue;
        if (how == DIVIDED) append_part(&w, &other, part);
        if (how == ADDED) add_part(&w, &other, part);
    }
    if (w.failed)
        x->own.failed = true;
    else if (is_route)
        give_route(x, record, (const char *)w.values);
    else
        give_value(x, &w);
    lp_free(w.values);
}

static void hand_over(struct lp_ranks_probe *x, struct lp_bytes *const *parts, int32_t n_parts) {
    struct record record;
    const char *values;
    for (int32_t i = 0; i < n_parts; i++) x->at[i] = 0;
    for (int32_t i = 0; i < n_parts; i++)
        for (size_t at = 0; (values = next_record(parts[i], &at, &record));)
            if (record.layer >= 0) join_parts(x, parts, i, n_parts, &record, values);
}

static void take_layer(struct lp_runner *r, int32_t stage) {
    struct lp_ranks_probe *x = &r->ranks.probe;
    const int32_t n = r->model->part.n_tensor;
    struct lp_bytes *parts[LP_COMM_MAX_SIZE];
    for (int32_t i = 0; i < n; i++) {
        parts[i] = stage == 0 && i == 0 ? &x->records : &x->others[i];
        if (parts[i] != &x->records) take_records(r, stage * n + i, parts[i]);
    }
    if (!lp_comm_failed(r->model->ranks, NULL)) hand_over(x, parts, n);
}

void lp_ranks_probe_layer(struct lp_runner *r) {
    struct lp_ranks_probe *x = &r->ranks.probe;
    if (!x->on) return;
    if (lp_ranks_follows(r))
        send_records(r);
    else
        take_layer(r, 0);
    if (x->records.failed)
        lp_bytes_release(&x->records);
    else
        lp_bytes_clear(&x->records);
}

void lp_ranks_probe_other_layer(struct lp_runner *r, int32_t stage) {
    if (r->ranks.probe.on) take_layer(r, stage);
}

void lp_ranks_probe_final_norm(struct lp_runner *r, int64_t n_rows) {
    const struct lp_model *m = r->model;
    struct lp_device *dev = m->dev;
    const int32_t from = (m->part.n_stages - 1) * m->part.n_tensor;
    const size_t n_bytes = (size_t)(n_rows * m->h.n_embd) * sizeof(float);
    if (!r->ranks.probe.on || from == 0) return;
    if (!lp_ranks_follows(r)) {
        lp_comm_take(m->ranks, from, r->host_rows, n_bytes);
        dev->backend->write(dev, r->logit_x, r->host_rows, n_bytes);
    } else if (lp_comm_rank(m->ranks) == from) {
        dev->backend->read(dev, r->host_rows, r->logit_x, n_bytes);
        lp_comm_send(m->ranks, 0, r->host_rows, n_bytes);
    }
}

void lp_ranks_probe_release(struct lp_runner *r) {
    struct lp_ranks_probe *x = &r->ranks.probe;
    for (int32_t i = 0; x->others && i < r->model->part.n_tensor; i++)
        lp_bytes_release(&x->others[i]);
    lp_bytes_release(&x->list);
    lp_bytes_release(&x->records);
    lp_free(x->others);
    lp_free(x->at);
    lp_free(x->wanted);
    lp_free(x->first);
    lp_free(x->piece);
}
