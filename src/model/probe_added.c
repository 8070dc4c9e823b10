// What a part of a layer adds to the residual stream, for a probe: operations add to the stream in
// place, so the part runs once more on zeros, and the stream is put back as it was.
#include "attention/attn_probe.h"
#include "base/alloc.h"
#include "model/runner.h"

// h = zeros; what add adds; shown.
static void show_added(struct lp_runner *r, enum lp_probe_point point, int32_t layer,
                       const struct lp_attn_step *attn, lp_adder add, const float *zeros) {
    struct lp_device *dev = r->model->dev;
    int64_t n_embd = r->model->h.n_embd;
    struct lp_attn_step alone = *attn;
    struct lp_step_settings settings = {.force = attn->force, .deterministic = attn->deterministic};
    alone.probe = NULL;
    alone.trace = NULL;
    dev->backend->write(dev, r->h, zeros, (size_t)(attn->n_rows * n_embd) * sizeof *zeros);
    add(r, layer, &alone, &settings);
    lp_attn_probe(attn, point, layer, r->h, n_embd);
}

void lp_runner_probe_added(struct lp_runner *r, enum lp_probe_point point, int32_t layer,
                           const struct lp_attn_step *attn, lp_adder add) {
    struct lp_device *dev = r->model->dev;
    size_t bytes = (size_t)(attn->n_rows * r->model->h.n_embd) * sizeof(float);
    if (!lp_probe_wants_spans(attn->probe, attn->spans, attn->n_spans, point, layer)) return;
    void *kept = dev->backend->alloc(dev, bytes);
    float *zeros = lp_alloc(bytes, 1);
    if (kept && zeros) {
        dev->backend->copy(dev, kept, r->h, bytes);
        show_added(r, point, layer, attn, add, zeros);
        dev->backend->copy(dev, r->h, kept, bytes);
    } else {
        attn->probe->failed = true;
    }
    if (kept) dev->backend->free(dev, kept);
    lp_free(zeros);
}
