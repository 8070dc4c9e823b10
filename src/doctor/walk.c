// Sequences through a model on a device of the examiner's choice.
#include "doctor/walk.h"

#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "kv/kv_types.h"

void lp_walk_set_top_k(struct lp_walk_top_k *old, struct lp_model *m, int32_t n) {
    *old = (struct lp_walk_top_k){.whole = m->h.top_k};
    if (m->h.top_k <= 0 || n < 1) return;
    old->model = m;
    m->h.top_k = n;
    for (int32_t l = 0; l < m->h.n_layers; l++) {
        old->layers[l] = m->layers[l].mla.top_k;
        m->layers[l].mla.top_k = n;
    }
}

void lp_walk_restore_top_k(const struct lp_walk_top_k *old) {
    struct lp_model *m = old->model;
    if (!m) return;
    m->h.top_k = old->whole;
    for (int32_t l = 0; l < m->h.n_layers; l++) m->layers[l].mla.top_k = old->layers[l];
}

lp_status lp_walk_init(struct lp_walk *walk, struct lp_model *model,
                       const struct lp_walk_options *o, struct lp_err *err) {
    *walk = (struct lp_walk){.model = model,
                             .max_context = o->max_context,
                             .max_rows = o->max_rows,
                             .old_dev = model->dev};
    model->dev = o->dev;
    if (model->h.arch->attention != LP_ATTENTION_MLA &&
        lp_kv_heads_check(o->kv_type, model->h.head_dim, model->h.v_dim, err))
        return LP_STATUS_INVALID;
    lp_walk_set_top_k(&walk->top_k, model, o->top_k);
    int32_t n = lp_model_kv_count(model, false);
    struct lp_kv_layer *layers = lp_alloc((size_t)n, sizeof *layers);
    if (!layers) return lp_err_memory(err, (size_t)n * sizeof *layers, "the layers of the cache");
    lp_model_kv_layers(model, false, layers);
    int64_t pages = LP_WALK_SEQUENCES * lp_kv_pages_of(o->max_context);
    lp_status status =
        lp_kv_new(&walk->kv, o->dev, layers, n, o->kv_type, pages * LP_KV_PAGE_TOKENS, err);
    lp_free(layers);
    return status ? status
                  : lp_runner_new(&walk->runner, model, walk->kv, o->max_rows, o->max_context,
                                  false, err);
}

void lp_walk_restart(struct lp_walk *walk) {
    for (int i = 0; i < LP_WALK_SEQUENCES; i++) {
        if (walk->kv) lp_page_table_release(&walk->tables[i], walk->kv);
        walk->n_past[i] = 0;
    }
}

void lp_walk_release(struct lp_walk *walk) {
    if (!walk->model) return;
    lp_walk_restart(walk);
    lp_runner_free(walk->runner);
    lp_kv_free(walk->kv);
    walk->model->dev = walk->old_dev;
    lp_walk_restore_top_k(&walk->top_k);
    *walk = (struct lp_walk){0};
}

void lp_walk_pad(const struct lp_page_table *table, struct lp_device *dev) {
    for (int64_t i = table->n_pages; i > 0 && i < table->capacity; i++)
        dev->backend->write(dev, table->device_pages + i, table->pages, sizeof *table->pages);
}

lp_status lp_walk_step(struct lp_walk *walk, const struct lp_walk_part *parts, int32_t n_parts,
                       const int32_t *tokens, const struct lp_step_settings *settings,
                       float *logits, struct lp_err *err) {
    struct lp_span spans[LP_WALK_SEQUENCES];
    int64_t n_rows = 0;
    lp_status status = LP_OK;
    for (int32_t i = 0; i < n_parts && !status; i++) {
        int32_t sequence = parts[i].sequence;
        int64_t n_past = walk->n_past[sequence];
        spans[i] = (struct lp_span){.sequence = (uint64_t)sequence,
                                    .pages = &walk->tables[sequence],
                                    .n_past = n_past,
                                    .first_row = n_rows,
                                    .n_rows = parts[i].n};
        n_rows += parts[i].n;
        status = lp_page_table_grow(&walk->tables[sequence], walk->kv, n_past + parts[i].n, err);
        if (!status) lp_walk_pad(&walk->tables[sequence], walk->model->dev);
    }
    if (status) return status;
    int32_t row = (int32_t)(n_rows - 1);
    bool bad;
    struct lp_step step = {.tokens = tokens,
                           .spans = spans,
                           .n_spans = n_parts,
                           .n_rows = n_rows,
                           .logit_rows = &row,
                           .n_logit_rows = logits ? 1 : 0,
                           .logits = logits,
                           .bad = &bad};
    status = lp_runner_step(walk->runner, &step, settings, err);
    for (int32_t i = 0; i < n_parts && !status; i++) walk->n_past[parts[i].sequence] += parts[i].n;
    return status;
}

// ---- what they read

static const char paragraph[] =
    "The river that runs through the old town rises in the hills to the north, where it is little "
    "more than a stream. In spring, when the snow melts, it carries stones and branches down to "
    "the mill; in summer children wade across it near the bridge. On Mondays there is a market "
    "beside the water: bread, cheese, apples, 12 kinds of honey and, once a year, a man who sells "
    "clocks. Nobody knows where he comes from, and nobody has ever seen him leave. ";

static lp_status encode(int32_t *out, int64_t n, const struct lp_tokenizer *tokenizer, bool *enough,
                        struct lp_err *err) {
    int32_t *ids = NULL;
    size_t n_ids = 0, capacity = 0;
    struct lp_str text = {paragraph, sizeof paragraph - 1};
    lp_status status = lp_tokenizer_encode(tokenizer, text, 0, &ids, &n_ids, &capacity, err);
    *enough = !status && n_ids >= 16;
    for (int64_t i = 0; *enough && i < n; i++) out[i] = ids[(size_t)i % n_ids];
    lp_free(ids);
    return status;
}

lp_status lp_walk_prompt(int32_t **tokens, const struct lp_exam *exam, int64_t n,
                         struct lp_err *err) {
    int32_t *out = lp_alloc((size_t)n, sizeof *out);
    bool is_text = false;
    lp_status status = out ? LP_OK : lp_err_memory(err, (size_t)n * sizeof *out, "a prompt");
    if (!status && exam->tokenizer) status = encode(out, n, exam->tokenizer, &is_text, err);
    int64_t n_vocab = exam->h.n_vocab;
    for (int64_t i = 0; is_text && i < n; i++) is_text = out[i] < n_vocab;
    struct lp_rng rng;
    lp_rng_init(&rng, 5);
    for (int64_t i = 0; !status && !is_text && i < n; i++)
        out[i] = (int32_t)(lp_rng_u64(&rng) % (uint64_t)n_vocab);
    if (status)
        lp_free(out);
    else
        *tokens = out;
    return status;
}

const char *lp_walk_obstacle(const struct lp_exam *exam) {
    if (exam->weights_bad) return "the weights hold NaN or infinity";
    if (!exam->fast_lab) return "the model cannot be run";
    return NULL;
}
