#include "model/host_experts.h"

#include <string.h>

#include "base/alloc.h"

static uint64_t expert_bytes(const struct lp_bound *bound) {
    static const enum lp_slot slots[] = {LP_SLOT_GATE_EXPS, LP_SLOT_UP_EXPS, LP_SLOT_GATE_UP_EXPS,
                                         LP_SLOT_DOWN_EXPS};
    uint64_t n = 0;
    for (size_t i = 0; i < sizeof slots / sizeof slots[0]; i++)
        if (bound->tensor[slots[i]]) n += bound->tensor[slots[i]]->n_bytes;
    return n;
}

uint64_t lp_host_experts_bytes(const struct lp_model *m) {
    uint64_t n = 0;
    for (int32_t l = 0; l < m->h.n_layers + m->binding.has_mtp; l++)
        n += expert_bytes(&m->binding.blocks[l]);
    return n;
}

void lp_host_experts_divide(struct lp_model *m, uint64_t n_bytes, uint64_t *device_bytes) {
    uint64_t taken = 0;
    bool full = false;
    for (int32_t l = 0; l < m->h.n_layers + m->binding.has_mtp; l++) {
        uint64_t bytes = expert_bytes(&m->binding.blocks[l]);
        full = full || bytes > n_bytes - taken;
        m->layers[l].host_experts = full && bytes > 0;
        if (!full) taken += bytes;
        m->n_host_layers += m->layers[l].host_experts;
    }
    *device_bytes = taken;
}

lp_status lp_host_experts_init(struct lp_host_experts *out, const struct lp_model *m,
                               int64_t max_rows, float *sum, struct lp_err *err) {
    const struct lp_hparams *h = &m->h;
    const size_t rows = (size_t)max_rows, n_embd = (size_t)h->n_embd, n_used = (size_t)h->n_used;
    *out = (struct lp_host_experts){.dev = m->expert_dev, .sum = sum};
    if (!m->n_host_layers) return LP_OK;
    out->x = lp_alloc(rows * n_embd, sizeof *out->x);
    out->y = lp_alloc(rows * n_embd, sizeof *out->y);
    out->ids = lp_alloc(rows * n_used, sizeof *out->ids);
    out->weights = lp_alloc(rows * n_used, sizeof *out->weights);
    if (!out->x || !out->y || !out->ids || !out->weights)
        return lp_err_memory(err, 2 * rows * (n_embd + n_used) * 4, "the experts' rows");
    const int64_t widest = h->n_embd > h->expert_ff ? h->n_embd : h->expert_ff;
    const struct lp_reserve need = {.n_rows = max_rows,
                                    .max_width = widest,
                                    .n_experts = h->n_experts,
                                    .n_used = h->n_used,
                                    .expert_width = h->expert_ff,
                                    .n_embd = h->n_embd};
    return out->dev->backend->reserve(out->dev, &need, err);
}

void lp_host_experts_release(struct lp_host_experts *e) {
    lp_free(e->x);
    lp_free(e->y);
    lp_free(e->ids);
    lp_free(e->weights);
    *e = (struct lp_host_experts){0};
}

void lp_host_experts_fetch(struct lp_host_experts *e, const struct lp_model *m, const float *x,
                           const int32_t *ids, const float *weights, int64_t n_rows) {
    const struct lp_backend *backend = m->dev->backend;
    const size_t rows = (size_t)n_rows, n_used = (size_t)m->h.n_used;
    backend->read(m->dev, e->x, x, rows * (size_t)m->h.n_embd * sizeof *x);
    backend->read(m->dev, e->ids, ids, rows * n_used * sizeof *ids);
    backend->read(m->dev, e->weights, weights, rows * n_used * sizeof *weights);
}

// A device that has failed gives -1, and the router where it finds too few experts.
static bool all_there(const struct lp_host_experts *e, const struct lp_model *m, int64_t n_rows) {
    for (int64_t i = 0; i < n_rows * m->h.n_used; i++)
        if (e->ids[i] < 0 || e->ids[i] >= m->h.n_experts) return false;
    return true;
}

static void add_sum(struct lp_host_experts *e, const struct lp_model *m, float *h, int64_t n_rows) {
    const struct lp_backend *backend = m->dev->backend;
    const int64_t n_embd = m->h.n_embd;
    backend->write(m->dev, e->sum, e->y, (size_t)(n_rows * n_embd) * sizeof *e->y);
    backend->add(m->dev, &(struct lp_op_add){.y = h,
                                             .x = e->sum,
                                             .y_stride = n_embd,
                                             .x_stride = n_embd,
                                             .n_rows = n_rows,
                                             .width = (int32_t)n_embd});
}

void lp_host_experts_add(struct lp_host_experts *e, const struct lp_model *m, int32_t layer,
                         float *h, int64_t n_rows) {
    const struct lp_ffn *w = &m->layers[layer].experts;
    const int64_t n_embd = m->h.n_embd;
    const size_t n_bytes = (size_t)(n_rows * n_embd) * sizeof *e->y;
    if (!all_there(e, m, n_rows)) {
        memset(e->y, 0xff, n_bytes); // NaN: the step's check of its rows finds it
        add_sum(e, m, h, n_rows);
        return;
    }
    memset(e->y, 0, n_bytes);
    e->dev->backend->experts(e->dev, &(struct lp_op_experts){.gate = &w->gate,
                                                             .up = &w->up,
                                                             .down = &w->down,
                                                             .x = e->x,
                                                             .x_stride = n_embd,
                                                             .n_rows = n_rows,
                                                             .ids = e->ids,
                                                             .weights = e->weights,
                                                             .n_used = m->h.n_used,
                                                             .y = e->y,
                                                             .y_stride = n_embd});
    add_sum(e, m, h, n_rows);
}
