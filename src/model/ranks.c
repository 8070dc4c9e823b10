// Inside a step over ranks: sums, the stream from stage to stage, logits from the shares of the vocabulary.
#include "model/ranks.h"

#include <string.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "model/runner.h"
#include "model/shard.h"

bool lp_ranks_follows(const struct lp_runner *r) {
    return r->model->ranks && lp_comm_rank(r->model->ranks) > 0;
}

uint64_t lp_ranks_wait_ns(const struct lp_runner *r) {
    return r->model->ranks ? lp_comm_wait_ns(r->model->ranks) : 0;
}

void lp_ranks_begin_count(struct lp_runner *r) {
    r->ranks.rows_sent = 0;
    r->ranks.sent_from_bytes = r->model->ranks ? lp_comm_sent_bytes(r->model->ranks) : 0;
}

uint64_t lp_ranks_sent_bytes(const struct lp_runner *r) {
    return r->model->ranks ? lp_comm_sent_bytes(r->model->ranks) - r->ranks.sent_from_bytes : 0;
}

// ---- buffers

static int64_t largest_share(const struct lp_model *m) {
    int64_t most = 0;
    for (int32_t t = 0; t < m->part.n_tensor; t++) {
        const struct lp_range range = lp_shard_vocab_of(m, t);
        if (range.n > most) most = range.n;
    }
    return most;
}

static bool take_buffers(struct lp_runner *r) {
    struct lp_runner_ranks *x = &r->ranks;
    const struct lp_model *m = r->model;
    const size_t rows = (size_t)r->max_rows, logit_rows = (size_t)r->logit_rows,
                 size = (size_t)lp_comm_size(m->ranks);
    const struct lp_backend *backend = m->dev->backend;
    const int64_t share = lp_shard_vocab(m).n;
    if (!backend->host_memory) {
        x->staged = lp_alloc(rows * (size_t)m->h.n_embd, sizeof *x->staged);
        x->logits = lp_alloc(logit_rows * (size_t)m->h.n_vocab, sizeof *x->logits);
        if (!x->staged || !x->logits) return false;
    }
    if (share) {
        x->part = backend->alloc(m->dev, logit_rows * (size_t)share * sizeof *x->part);
        if (!x->part) return false;
    }
    x->part_on_host = lp_alloc(logit_rows * (size_t)largest_share(m), sizeof *x->part_on_host);
    x->page_bytes = lp_alloc(size, sizeof *x->page_bytes);
    x->bad = lp_alloc(rows, sizeof *x->bad);
    x->window = lp_alloc(rows, sizeof *x->window);
    x->gathered = lp_alloc(size, sizeof *x->gathered);
    x->own = lp_alloc(rows, sizeof *x->own);
    x->spans_of = lp_alloc(2 * size, sizeof *x->spans_of);
    if (!x->part_on_host || !x->page_bytes || !x->bad || !x->window || !x->gathered || !x->own ||
        !x->spans_of)
        return false;
    x->reports = lp_alloc(size, LP_RANKS_REPORT_BYTES);
    x->times = lp_alloc(size, sizeof *x->times);
    if (!x->reports || !x->times) return false;
    if (!lp_ranks_follows(r)) return true;
    x->tables = lp_alloc(rows, sizeof *x->tables);
    x->spans = lp_alloc(rows, sizeof *x->spans);
    x->tokens = lp_alloc(rows, sizeof *x->tokens);
    x->logit_rows = lp_alloc(rows, sizeof *x->logit_rows);
    return x->tables && x->spans && x->tokens && x->logit_rows;
}

lp_status lp_ranks_init(struct lp_runner *r, int32_t owner, struct lp_err *err) {
    if (!r->model->ranks) return LP_OK;
    r->ranks.owner = owner;
    r->ranks.wait_from_ns = lp_comm_wait_ns(r->model->ranks);
    if (!take_buffers(r)) return lp_err_memory(err, 0, "what ranks exchange");
    return lp_ranks_experts_init(r, err);
}

void lp_ranks_release(struct lp_runner *r) {
    struct lp_runner_ranks *x = &r->ranks;
    for (int64_t i = 0; x->tables && i < r->max_rows; i++)
        lp_page_table_unmirror(&x->tables[i], r->kv);
    if (x->part) r->model->dev->backend->free(r->model->dev, x->part);
    lp_free(x->staged);
    lp_free(x->logits);
    lp_free(x->part_on_host);
    lp_free(x->page_bytes);
    lp_free(x->reports);
    lp_free(x->times);
    lp_free(x->tables);
    lp_free(x->spans);
    lp_free(x->tokens);
    lp_free(x->logit_rows);
    lp_free(x->bad);
    lp_free(x->window);
    lp_free(x->gathered);
    lp_free(x->own);
    lp_free(x->spans_of);
    lp_ranks_experts_release(&x->experts);
    lp_ranks_probe_release(r);
    lp_bytes_release(&x->order.bytes);
}

// ---- the stream

static size_t stream_floats(const struct lp_runner *r, int64_t n_rows) {
    return (size_t)(n_rows * r->model->h.n_embd);
}

// The stream where the host can reach it; put_back: what it has made of it there.
static float *on_host(struct lp_runner *r, int64_t n_rows) {
    struct lp_device *dev = r->model->dev;
    if (dev->backend->host_memory) return r->h;
    dev->backend->read(dev, r->ranks.staged, r->h, stream_floats(r, n_rows) * sizeof *r->h);
    return r->ranks.staged;
}

static void put_back(struct lp_runner *r, const float *from, int64_t n_rows) {
    struct lp_device *dev = r->model->dev;
    if (from != r->h) dev->backend->write(dev, r->h, from, stream_floats(r, n_rows) * sizeof *r->h);
}

void lp_ranks_begin_sum(struct lp_runner *r, int64_t n_rows) {
    struct lp_device *dev = r->model->dev;
    if (!r->model->neighbours || r->model->part.tensor == 0) return;
    if (r->model->device_group) {
        dev->backend->clear(dev, r->h, stream_floats(r, n_rows) * sizeof *r->h);
        return;
    }
    float *zeros = dev->backend->host_memory ? r->h : r->ranks.staged;
    memset(zeros, 0, stream_floats(r, n_rows) * sizeof *zeros);
    put_back(r, zeros, n_rows);
}

// Where ranks have sequences, each gets the sums of its own rows.
static void sum_on_devices(struct lp_runner *r, int64_t n_rows) {
    const struct lp_backend *backend = r->model->dev->backend;
    struct lp_device_group *group = r->model->device_group;
    if (r->model->part.data_attention)
        backend->group_sum_parts(r->model->dev, group, r->h, r->ranks.gathered);
    else
        backend->group_sum(r->model->dev, group, r->h, stream_floats(r, n_rows));
}

static void sum_on_hosts(struct lp_runner *r, int64_t n_rows) {
    float *stream = on_host(r, n_rows);
    if (LP_FAULT("rank-loses-part"))
        memset(stream, 0, stream_floats(r, n_rows) / 2 * sizeof *stream);
    if (r->model->part.data_attention)
        lp_comm_sum_parts(r->model->neighbours, stream, r->ranks.gathered);
    else
        lp_comm_sum(r->model->neighbours, stream, stream_floats(r, n_rows));
    if (LP_FAULT("rank-own-stream")) stream[0] += 1e-3f;
    put_back(r, stream, n_rows);
}

void lp_ranks_end_sum(struct lp_runner *r, int64_t n_rows, struct lp_step_clock *clock) {
    if (!r->model->neighbours) return;
    lp_step_lap(clock, LP_STEP_PART_OTHER);
    if (r->model->device_group)
        sum_on_devices(r, n_rows);
    else
        sum_on_hosts(r, n_rows);
    lp_step_lap(clock, LP_STEP_PART_RANKS);
}

// ---- data-parallel attention

void lp_ranks_divide_rows(struct lp_runner *r, const struct lp_span *spans, int32_t n_spans) {
    struct lp_runner_ranks *x = &r->ranks;
    const struct lp_sharding *part = &r->model->part;
    if (!part->data_attention) return;
    for (int32_t i = 0; i < part->n_tensor; i++) x->gathered[i] = 0;
    x->n_own = 0;
    x->own_rows = (struct lp_range){0};
    for (int32_t i = 0; i < n_spans; i++) {
        const int32_t owner = spans[i].pages->part;
        x->gathered[owner] += stream_floats(r, spans[i].n_rows);
        if (owner != part->tensor) continue;
        if (x->n_own == 0) x->own_rows.first = spans[i].first_row;
        x->own[x->n_own] = spans[i];
        x->own[x->n_own++].first_row = x->own_rows.n;
        x->own_rows.n += spans[i].n_rows;
    }
}

struct lp_attn_step lp_ranks_own_part(const struct lp_runner *r, const struct lp_attn_step *attn,
                                      int64_t *first_row) {
    const struct lp_runner_ranks *x = &r->ranks;
    struct lp_attn_step own = *attn;
    *first_row = 0;
    if (!r->model->part.data_attention) return own;
    *first_row = x->own_rows.first;
    own.routes = NULL; // lp_runner_layer counts and traces those of all ranks
    own.trace = NULL;
    own.spans = x->own;
    own.n_spans = x->n_own;
    own.n_rows = x->own_rows.n;
    own.positions += x->own_rows.first;
    if (own.row_pages) own.row_pages += x->own_rows.first;
    return own;
}

void lp_ranks_begin_attention(struct lp_runner *r, int64_t n_rows) {
    if (!r->model->part.data_attention) lp_ranks_begin_sum(r, n_rows);
}

void lp_ranks_end_attention(struct lp_runner *r, int64_t n_rows, struct lp_step_clock *clock) {
    if (!r->model->part.data_attention) lp_ranks_end_sum(r, n_rows, clock);
}

static uint64_t rows_of_gather(const struct lp_runner *r) {
    return (uint64_t)r->ranks.own_rows.n * (uint64_t)(r->model->part.n_tensor - 1);
}

void lp_ranks_gather_stream(struct lp_runner *r, int64_t n_rows, struct lp_step_clock *clock) {
    struct lp_device *dev = r->model->dev;
    if (!r->model->part.data_attention) return;
    lp_step_lap(clock, LP_STEP_PART_OTHER);
    r->ranks.rows_sent += rows_of_gather(r);
    if (r->model->device_group) {
        dev->backend->group_gather(dev, r->model->device_group, r->h, r->ranks.gathered);
    } else {
        float *stream = on_host(r, n_rows);
        lp_comm_gather(r->model->neighbours, stream, r->ranks.gathered);
        put_back(r, stream, n_rows);
    }
    lp_step_lap(clock, LP_STEP_PART_RANKS);
}

void lp_ranks_count_recorded(struct lp_runner *r) {
    if (!r->model->part.data_attention) return;
    const uint64_t n_gathers = (uint64_t)lp_shard_layers(r->model).n + 1; // and behind the last
    r->ranks.rows_sent += n_gathers * rows_of_gather(r);
}

// ---- from stage to stage: each rank to the one of its number in the next

// n values of 4 bytes from device to device, in the group of all.
static void pass_on_devices(struct lp_runner *r, void *data, size_t n, int32_t to, int32_t from) {
    struct lp_device *dev = r->model->dev;
    if (to >= 0) dev->backend->group_send(dev, r->model->stage_group, to, data, n);
    if (from >= 0) dev->backend->group_take(dev, r->model->stage_group, from, data, n);
}

// Rows of the selection from first_row on, through the hosts.
static void pass_rows(struct lp_runner *r, int64_t first_row, int64_t n_rows, int32_t to,
                      int32_t from) {
    struct lp_device *dev = r->model->dev;
    const struct {
        int32_t *data;
        size_t n_bytes;
    } parts[] = {{r->mla.selected + first_row * r->mla.ids_stride,
                  (size_t)(n_rows * r->mla.ids_stride) * sizeof(int32_t)},
                 {r->mla.n_selected + first_row, (size_t)n_rows * sizeof(int32_t)}};
    for (int i = 0; i < 2; i++) {
        void *host = dev->backend->host_memory ? parts[i].data : lp_alloc(parts[i].n_bytes, 1);
        if (host != parts[i].data && to >= 0)
            dev->backend->read(dev, host, parts[i].data, parts[i].n_bytes);
        if (to >= 0) lp_comm_send(r->model->ranks, to, host, parts[i].n_bytes);
        if (from >= 0) lp_comm_take(r->model->ranks, from, host, parts[i].n_bytes);
        if (host == parts[i].data) continue;
        if (from >= 0) dev->backend->write(dev, parts[i].data, host, parts[i].n_bytes);
        lp_free(host);
    }
}

// What the next stage's first layers keep to.
static void pass_selection(struct lp_runner *r, int64_t n_rows, int32_t to, int32_t from) {
    if (!r->model->stage_group) {
        pass_rows(r, 0, n_rows, to, from);
        return;
    }
    pass_on_devices(r, r->mla.selected, (size_t)(n_rows * r->mla.ids_stride), to, from);
    pass_on_devices(r, r->mla.n_selected, (size_t)n_rows, to, from);
}

void lp_ranks_take_stream(struct lp_runner *r, int64_t n_rows, bool selected,
                          struct lp_step_clock *clock) {
    const struct lp_model *m = r->model;
    const int32_t from = m->ranks ? lp_comm_rank(m->ranks) - m->part.n_tensor : -1;
    if (lp_shard_is_first_stage(m)) return;
    lp_step_lap(clock, LP_STEP_PART_OTHER);
    if (m->stage_group) {
        pass_on_devices(r, r->h, stream_floats(r, n_rows), -1, from);
    } else {
        float *stream = m->dev->backend->host_memory ? r->h : r->ranks.staged;
        lp_comm_take(m->ranks, from, stream, stream_floats(r, n_rows) * sizeof *stream);
        put_back(r, stream, n_rows);
    }
    if (selected) pass_selection(r, n_rows, -1, from);
    lp_step_lap(clock, LP_STEP_PART_RANKS);
}

void lp_ranks_give_stream(struct lp_runner *r, int64_t n_rows, bool selected,
                          struct lp_step_clock *clock) {
    const struct lp_model *m = r->model;
    if (lp_shard_is_last_stage(m)) return;
    lp_step_lap(clock, LP_STEP_PART_OTHER);
    const int32_t to = lp_comm_rank(m->ranks) + m->part.n_tensor;
    if (m->stage_group)
        pass_on_devices(r, r->h, stream_floats(r, n_rows), to, -1);
    else
        lp_comm_send(m->ranks, to, on_host(r, n_rows), stream_floats(r, n_rows) * sizeof(float));
    if (selected) pass_selection(r, n_rows, to, -1);
    lp_step_lap(clock, LP_STEP_PART_RANKS);
}

void lp_ranks_show_selection(struct lp_runner *r, bool watched) {
    const struct lp_runner_ranks *x = &r->ranks;
    const struct lp_sharding *part = &r->model->part;
    if (!part->data_attention || !(watched || x->watched)) return;
    if (part->tensor > 0) {
        if (x->own_rows.n > 0) pass_rows(r, 0, x->own_rows.n, 0, -1);
        return;
    }
    int64_t row = x->own_rows.n; // rank 0's are the first of all
    for (int32_t from = 1; from < part->n_tensor; from++) {
        const int64_t n = (int64_t)x->gathered[from] / r->model->h.n_embd;
        if (n > 0) pass_rows(r, row, n, -1, from);
        row += n;
    }
}

// The first rank of a stage behind rank 0's.
static bool speaks_for_stage(const struct lp_runner *r) {
    return r->model->part.tensor == 0 && !lp_shard_is_first_stage(r->model);
}

void lp_ranks_show_begin(struct lp_runner *r) {
    const int32_t n_layers = (int32_t)lp_shard_layers(r->model).n;
    if ((r->ranks.watched || r->ranks.probe.on) && speaks_for_stage(r))
        lp_comm_send(r->model->ranks, 0, &n_layers, sizeof n_layers);
}

void lp_ranks_show_layer(struct lp_runner *r, int64_t n_rows, bool selected) {
    if (!r->ranks.watched || !speaks_for_stage(r)) return;
    lp_comm_send(r->model->ranks, 0, on_host(r, n_rows), stream_floats(r, n_rows) * sizeof(float));
    if (selected) pass_rows(r, 0, n_rows, 0, -1);
}

static void watch_other_layer(struct lp_runner *r, int32_t from, int32_t layer, int64_t n_rows,
                              bool selected, const struct lp_step_settings *settings) {
    const struct lp_model *m = r->model;
    float *stream = m->dev->backend->host_memory ? r->h : r->ranks.staged;
    lp_comm_take(m->ranks, from, stream, stream_floats(r, n_rows) * sizeof *stream);
    if (lp_comm_failed(m->ranks, NULL)) return;
    put_back(r, stream, n_rows);
    if (selected) pass_rows(r, 0, n_rows, -1, from);
    settings->watch(settings->watch_user, layer, r->h, selected ? r->mla.selected : NULL,
                    r->mla.n_selected, r->mla.ids_stride);
}

void lp_ranks_watch_others(struct lp_runner *r, int64_t n_rows, bool selected,
                           const struct lp_step_settings *settings) {
    const struct lp_model *m = r->model;
    const struct lp_range own = lp_shard_layers(m);
    int32_t layer = (int32_t)(own.first + own.n);
    if ((!settings->watch && !r->ranks.probe.on) || lp_ranks_follows(r)) return;
    for (int32_t stage = 1; stage < m->part.n_stages; stage++) {
        const int32_t from = stage * m->part.n_tensor;
        int32_t n_layers = 0;
        lp_comm_take(m->ranks, from, &n_layers, sizeof n_layers);
        for (; n_layers > 0 && layer < m->h.n_layers; n_layers--, layer++) {
            if (settings->watch) watch_other_layer(r, from, layer, n_rows, selected, settings);
            lp_ranks_probe_other_layer(r, stage);
            if (lp_comm_failed(m->ranks, NULL)) return;
        }
    }
}

// The spans' parts that lie in rows [first, end), with rows counted from there.
static int32_t cut_spans(const struct lp_step *step, int64_t first, int64_t end,
                         struct lp_span *out) {
    int32_t n = 0;
    for (int32_t i = 0; i < step->n_spans; i++) {
        const struct lp_span *s = &step->spans[i];
        const int64_t from = s->first_row > first ? s->first_row : first,
                      to = s->first_row + s->n_rows < end ? s->first_row + s->n_rows : end;
        if (from >= to) continue;
        out[n] = *s;
        out[n].n_past += from - s->first_row;
        out[n].first_row = from - first;
        out[n++].n_rows = to - from;
    }
    return n;
}

void lp_ranks_run_windows(struct lp_runner *r, const struct lp_step *step,
                          const struct lp_step_settings *settings) {
    float *stream = r->h;
    for (int64_t first = 0, n; first < step->n_rows; first += n) {
        const int64_t left = step->n_rows - first;
        n = left < r->ranks.window_rows ? left : r->ranks.window_rows;
        struct lp_step window = {
            .tokens = step->tokens + first, .spans = r->ranks.window, .n_rows = n};
        window.n_spans = cut_spans(step, first, first + n, r->ranks.window);
        r->h = stream + first * r->model->h.n_embd;
        lp_runner_run_rows(r, &window, settings);
    }
    r->h = stream;
    lp_runner_place_rows(r, step->spans, step->n_spans); // messages name the step's positions
}

void lp_ranks_share_ids(struct lp_runner *r, int32_t *ids, int64_t n) {
    if (r->model->ranks) lp_comm_share(r->model->ranks, ids, (size_t)n * sizeof *ids);
}

// ---- logits

// Columns [range) of rows of the whole vocabulary.
static void put_columns(const struct lp_runner *r, const float *part, struct lp_range range,
                        int64_t n_rows, float *whole) {
    for (int64_t i = 0; i < n_rows; i++)
        memcpy(whole + i * r->model->h.n_vocab + range.first, part + i * range.n,
               (size_t)range.n * sizeof *part);
}

// This rank's columns, on the host.
static const float *make_part(struct lp_runner *r, const struct lp_weight *w, const float *x,
                              int64_t n_rows) {
    struct lp_device *dev = r->model->dev;
    struct lp_runner_ranks *ranks = &r->ranks;
    if (w->n_out == 0) return ranks->part_on_host;
    dev->backend->matmul(dev, &(struct lp_op_matmul){.w = w,
                                                     .x = x,
                                                     .x_stride = w->n_in,
                                                     .y = ranks->part,
                                                     .y_stride = w->n_out,
                                                     .n_rows = n_rows});
    if (dev->backend->host_memory) return ranks->part;
    dev->backend->read(dev, ranks->part_on_host, ranks->part,
                       (size_t)(n_rows * w->n_out) * sizeof *ranks->part);
    return ranks->part_on_host;
}

void lp_ranks_head(struct lp_runner *r, const struct lp_weight *w, const float *x, int64_t n_rows) {
    const struct lp_model *m = r->model;
    struct lp_device *dev = m->dev;
    const bool leads = !lp_ranks_follows(r);
    float *whole = dev->backend->host_memory ? r->logits : r->ranks.logits;
    if (lp_shard_is_last_stage(m)) {
        const struct lp_range own = lp_shard_vocab(m);
        const float *part = make_part(r, w, x, n_rows);
        if (leads)
            put_columns(r, part, own, n_rows, whole);
        else
            lp_comm_send(m->ranks, 0, part, (size_t)(n_rows * own.n) * sizeof *part);
    }
    if (!leads) return;
    for (int32_t t = 0; t < m->part.n_tensor; t++) {
        const int32_t from = (m->part.n_stages - 1) * m->part.n_tensor + t;
        const struct lp_range range = lp_shard_vocab_of(m, t);
        if (from == 0) continue;
        lp_comm_take(m->ranks, from, r->ranks.part_on_host,
                     (size_t)(n_rows * range.n) * sizeof *whole);
        put_columns(r, r->ranks.part_on_host, range, n_rows, whole);
    }
    if (whole != r->logits)
        dev->backend->write(dev, r->logits, whole, (size_t)(n_rows * m->h.n_vocab) * sizeof *whole);
}

void lp_ranks_bad_rows(struct lp_runner *r, int64_t n_rows, bool *bad) {
    const struct lp_model *m = r->model;
    const int32_t from = (m->part.n_stages - 1) * m->part.n_tensor;
    const int64_t n_embd = m->h.n_embd;
    if (!m->ranks || m->part.n_stages == 1) return;
    if (!lp_ranks_follows(r)) {
        lp_comm_take(m->ranks, from, r->ranks.bad, (size_t)n_rows * sizeof *r->ranks.bad);
        for (int64_t i = 0; bad && i < n_rows; i++) bad[i] = r->ranks.bad[i];
    } else if (lp_comm_rank(m->ranks) == from) {
        const float *stream = on_host(r, n_rows);
        for (int64_t i = 0; i < n_rows; i++)
            r->ranks.bad[i] = lp_runner_find_nonfinite(stream + i * n_embd, n_embd) >= 0;
        lp_comm_send(m->ranks, 0, r->ranks.bad, (size_t)n_rows * sizeof *r->ranks.bad);
    }
}
