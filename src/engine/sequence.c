// Sequences: tokens appended in steps of at most `chunk`, watched if the caller wants.
#include <string.h>

#include "base/alloc.h"
#include "engine/engine.h"
#include "engine/probes.h"

limpid_status limpid_sequence_new(limpid_sequence **out, limpid_engine *engine, limpid_error *err) {
    limpid_sequence *s = lp_alloc(1, sizeof *s);
    if (!s) return lp_public(lp_err_memory(lp_err_of(err), sizeof *s, "a sequence"));
    s->engine = engine;
    pthread_mutex_lock(&engine->lock);
    s->number = engine->next_sequence++;
    pthread_mutex_unlock(&engine->lock);
    *out = s;
    return LIMPID_OK;
}

void limpid_sequence_free(limpid_sequence *s) {
    if (!s) return;
    lp_engine_take_turn(s->engine);
    lp_page_table_release(&s->pages, s->engine->kv);
    lp_engine_give_turn(s->engine);
    lp_free(s->tokens);
    lp_free(s);
}

int64_t limpid_sequence_length(const limpid_sequence *s) {
    return s->n_tokens;
}

void limpid_sequence_truncate(limpid_sequence *s, int64_t n_tokens) {
    if (n_tokens < 0) n_tokens = 0;
    if (n_tokens >= s->n_tokens) return;
    s->n_tokens = n_tokens;
    lp_engine_take_turn(s->engine);
    lp_page_table_truncate(&s->pages, s->engine->kv, n_tokens);
    lp_engine_give_turn(s->engine);
}

static lp_status make_room(limpid_sequence *s, int64_t n_tokens, struct lp_err *err) {
    if (n_tokens > s->engine->n_context)
        return lp_err_set(err, LP_STATUS_LIMIT,
                          "the sequence would have %lld tokens, the context is %lld (--ctx)",
                          (long long)n_tokens, (long long)s->engine->n_context);
    if (n_tokens > s->capacity) {
        int64_t capacity = s->capacity ? 2 * s->capacity : 256;
        if (capacity < n_tokens) capacity = n_tokens;
        int32_t *tokens = lp_realloc(s->tokens, (size_t)capacity, sizeof *tokens);
        if (!tokens)
            return lp_err_memory(err, (size_t)capacity * sizeof *tokens, "a sequence's tokens");
        s->tokens = tokens;
        s->capacity = capacity;
    }
    return LP_OK;
}

// Carries a step's position and row count to the public watch, and device data to the host.
struct watcher {
    const limpid_watch *watch;
    limpid_engine *engine;
    int64_t first, n_rows, n_logits; // n_logits: rows of engine->logits
    float *hidden;                   // host copy, [chunk, n_embd]
    int32_t *ids, *counts;
    bool failed;
};

static bool to_host(struct watcher *w, void **host, const void *from, size_t bytes) {
    struct lp_device *dev = w->engine->model->dev;
    void *grown = lp_realloc(*host, bytes, 1);
    if (!grown) {
        w->failed = true;
        return false;
    }
    *host = grown;
    dev->backend->read(dev, grown, from, bytes);
    return true;
}

static void on_layer(void *user, int32_t layer, const float *h, const int32_t *selected,
                     const int32_t *n_selected, int64_t stride) {
    struct watcher *w = user;
    const struct lp_hparams *hp = &w->engine->model->weights->h;
    if (w->watch->hidden &&
        to_host(w, (void **)&w->hidden, h, (size_t)w->n_rows * (size_t)hp->n_embd * sizeof *h))
        w->watch->hidden(w->watch->user, layer, w->first, w->n_rows, w->hidden);
    if (!w->watch->selected || layer < 0 || !hp->top_k ||
        w->engine->settings.force == LP_ROUTE_DENSE)
        return;
    if (!selected) {
        w->watch->selected(w->watch->user, layer, w->first, w->n_rows, NULL, NULL, 0);
        return;
    }
    if (to_host(w, (void **)&w->ids, selected,
                (size_t)w->n_rows * (size_t)stride * sizeof *selected) &&
        to_host(w, (void **)&w->counts, n_selected, (size_t)w->n_rows * sizeof *n_selected))
        w->watch->selected(w->watch->user, layer, w->first, w->n_rows, w->ids, w->counts, stride);
}

// The rows of a step that need logits. want: -1 = none, 0 = the last, 1 = all; and those of probes.
static int64_t choose_rows(const limpid_sequence *s, int64_t n, int want,
                           const limpid_probes *probes, int32_t *rows) {
    int64_t n_logits = 0;
    for (int64_t i = 0; i < n; i++)
        if (want > 0 || (want == 0 && i == n - 1) ||
            lp_probes_wants_logits(probes, s->n_tokens + i))
            rows[n_logits++] = (int32_t)i;
    return n_logits;
}

// One step: tokens [done, done + n) of the call.
static lp_status run_step(limpid_sequence *s, const int32_t *tokens, int64_t n, int want,
                          struct watcher *w, int32_t *rows, struct lp_err *err) {
    limpid_engine *e = s->engine;
    if (s->pages.n_pages == 0) s->pages.part = lp_engine_roomiest_part(e);
    lp_status status = lp_engine_grow(e, &s->pages, s->n_tokens + n, err);
    if (status) return status;
    int64_t n_logits = choose_rows(s, n, want, w->watch ? w->watch->probes : NULL, rows);
    status = lp_engine_reserve_logits(e, n_logits, err);
    if (status) return status;
    struct lp_span span = {
        .sequence = s->number, .pages = &s->pages, .n_past = s->n_tokens, .n_rows = n};
    struct lp_step step = {.tokens = tokens,
                           .spans = &span,
                           .n_spans = 1,
                           .n_rows = n,
                           .logit_rows = rows,
                           .n_logit_rows = n_logits,
                           .logits = e->logits};
    struct lp_step_settings settings = e->settings;
    w->first = s->n_tokens;
    w->n_rows = n;
    w->n_logits = n_logits;
    if (w->watch && w->watch->probes)
        settings.probe = lp_probes_begin(w->watch->probes, e->model->dev, w->watch);
    const bool sees_layers = w->watch && (w->watch->hidden || w->watch->selected);
    if (sees_layers) {
        settings.watch = on_layer;
        settings.watch_user = w;
    }
    lp_trace_emit_chunk(e->trace,
                        &(struct lp_trace_chunk){.step = (int64_t)lp_runner_next_step(e->runner),
                                                 .sequence = (int64_t)s->number,
                                                 .n_past = (int32_t)s->n_tokens,
                                                 .n_prompt = (int32_t)n});
    status = lp_runner_step(e->runner, &step, &settings, err);
    if (!status && w->failed) status = lp_err_memory(err, 0, "a copy of hidden states");
    if (status) return status;
    if (w->watch && w->watch->logits && n_logits)
        w->watch->logits(w->watch->user, s->n_tokens + n - n_logits, n_logits, e->logits);
    memcpy(s->tokens + s->n_tokens, tokens, (size_t)n * sizeof *tokens);
    s->n_tokens += n;
    return LP_OK;
}

limpid_status limpid_sequence_append(limpid_sequence *s, const int32_t *tokens, size_t n_tokens,
                                     const limpid_watch *watch, float *last_logits,
                                     limpid_error *err_) {
    struct lp_err *err = lp_err_of(err_);
    limpid_engine *e = s->engine;
    int64_t before = s->n_tokens, n = (int64_t)n_tokens;
    if (n_tokens > INT32_MAX)
        return lp_public(lp_err_set(err, LP_STATUS_LIMIT, "%zu tokens are too many", n_tokens));
    struct watcher w = {.watch = watch, .engine = e};
    int32_t *rows = lp_alloc((size_t)e->chunk, sizeof *rows);
    lp_status status = rows ? make_room(s, s->n_tokens + n, err)
                            : lp_err_memory(err, 4 * (size_t)e->chunk, "rows");
    bool all = watch && watch->logits;
    for (int64_t done = 0, take; done < n && !status; done += take) {
        take = n - done < e->chunk ? n - done : e->chunk;
        bool last = done + take == n;
        int want = all ? 1 : last && last_logits ? 0 : -1;
        lp_engine_take_turn(e); // for one step: others want theirs
        status = run_step(s, tokens + done, take, want, &w, rows, err);
        if (!status && last && last_logits) {
            size_t n_vocab = (size_t)e->model->weights->h.n_vocab;
            memcpy(last_logits, e->logits + (size_t)(w.n_logits - 1) * n_vocab,
                   n_vocab * sizeof *last_logits);
        }
        lp_engine_give_turn(e);
    }
    if (status) { // nothing of a failed append stays
        lp_engine_take_turn(e);
        s->n_tokens = before;
        lp_page_table_truncate(&s->pages, e->kv, before);
        lp_engine_give_turn(e);
    }
    lp_free(rows);
    lp_free(w.hidden);
    lp_free(w.ids);
    lp_free(w.counts);
    return lp_public(status);
}
