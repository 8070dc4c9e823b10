// Which layer made a sequence's numbers non-finite. A step reports only that logits are (`bad` of
// lp_step); this runs the sequence's rows once more, alone, and looks at the residual stream after
// the embedding and after every layer.
#include "model/runner.h"

#include "base/alloc.h"

struct search {
    struct lp_runner *r;
    const struct lp_step_settings *settings; // the caller's
    const struct lp_span *span;
    float *row; // host, [max(n_embd, n_vocab)]
    bool found;
    int32_t layer;    // -1: the embedding
    int64_t position; // of the first bad row there
};

static void look_at_layer(void *user, int32_t layer, const float *h, const int32_t *selected,
                          const int32_t *n_selected, int64_t ids_stride) {
    struct search *s = user;
    struct lp_device *dev = s->r->model->dev;
    int64_t n_embd = s->r->model->h.n_embd;
    if (s->settings->watch)
        s->settings->watch(s->settings->watch_user, layer, h, selected, n_selected, ids_stride);
    for (int64_t t = 0; t < s->span->n_rows && !s->found; t++) {
        dev->backend->read(dev, s->row, h + t * n_embd, (size_t)n_embd * sizeof *s->row);
        if (lp_runner_find_nonfinite(s->row, n_embd) < 0) continue;
        s->found = true;
        s->layer = layer;
        s->position = s->span->n_past + t;
    }
}

// The position of the first row whose logits are not finite; -1: none.
static int64_t look_at_logits(struct search *s) {
    struct lp_runner *r = s->r;
    struct lp_device *dev = r->model->dev;
    int64_t n_embd = r->model->h.n_embd, n_vocab = r->model->h.n_vocab;
    for (int64_t first = 0, n; first < s->span->n_rows; first += n) {
        int64_t left = s->span->n_rows - first;
        n = left < r->logit_rows ? left : r->logit_rows;
        lp_runner_norm(r, r->h + first * n_embd, n_embd, r->model->output_norm, r->logit_x, n_embd,
                       n);
        lp_runner_head(r, &r->model->output, r->logit_x, n);
        for (int64_t i = 0; i < n; i++) {
            dev->backend->read(dev, s->row, r->logits + i * n_vocab,
                               (size_t)n_vocab * sizeof *s->row);
            if (lp_runner_find_nonfinite(s->row, n_vocab) >= 0) return s->span->n_past + first + i;
        }
    }
    return -1;
}

static lp_status report(struct search *s, struct lp_err *err) {
    static const char remedy[] = "the weights or a kernel are at fault: try --backend ref";
    unsigned long long step = s->r->step;
    if (s->found && s->layer < 0)
        return lp_err_set(err, LP_STATUS_NUMERIC,
                          "non-finite numbers in step %llu at position %lld, first in the "
                          "embedding of its token; %s",
                          step, (long long)s->position, remedy);
    if (s->found)
        return lp_err_set(err, LP_STATUS_NUMERIC,
                          "non-finite numbers in step %llu at position %lld, first in the output "
                          "of layer %d; %s",
                          step, (long long)s->position, s->layer, remedy);
    if (s->r->model->ranks)
        return lp_err_set(err, LP_STATUS_NUMERIC,
                          "non-finite logits in step %llu between positions %lld and %lld, in the "
                          "output norm or head, or not reproducible; %s",
                          step, (long long)s->span->n_past,
                          (long long)(s->span->n_past + s->span->n_rows - 1), remedy);
    int64_t position = look_at_logits(s);
    if (position >= 0)
        return lp_err_set(err, LP_STATUS_NUMERIC,
                          "non-finite numbers in step %llu at position %lld, first in the output "
                          "norm or head; %s",
                          step, (long long)position, remedy);
    return lp_err_set(err, LP_STATUS_NUMERIC,
                      "non-finite logits in step %llu between positions %lld and %lld, not "
                      "reproducible: the numbers were finite on a second run; memory or a race in "
                      "a kernel may be at fault",
                      step, (long long)s->span->n_past,
                      (long long)(s->span->n_past + s->span->n_rows - 1));
}

lp_status lp_runner_find_bad(struct lp_runner *r, const struct lp_span *span, const int32_t *tokens,
                             const struct lp_step_settings *settings, struct lp_err *err) {
    const struct lp_hparams *h = &r->model->h;
    int64_t width = h->n_embd > h->n_vocab ? h->n_embd : h->n_vocab;
    struct lp_span alone = *span;
    alone.first_row = 0;
    struct search s = {.r = r, .settings = settings, .span = &alone};
    s.row = lp_alloc((size_t)width, sizeof *s.row);
    if (!s.row) return lp_err_memory(err, (size_t)width * sizeof *s.row, "a copy of a row");
    struct lp_step_settings watched = *settings;
    watched.trace = NULL; // the step has been traced
    watched.watch = look_at_layer;
    watched.watch_user = &s;
    struct lp_step step = {.tokens = tokens, .spans = &alone, .n_spans = 1, .n_rows = span->n_rows};
    struct lp_route_counts routes = r->routes;
    uint64_t number = r->step, n_steps = r->n_steps;
    lp_status status = lp_runner_step(r, &step, &watched, err);
    r->routes = routes; // a second look is no step
    r->step = number;
    r->n_steps = n_steps;
    if (!status) status = report(&s, err);
    lp_free(s.row);
    return status;
}
