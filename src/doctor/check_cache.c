// Stage "cache": a prompt in chunks, in scattered pages, beside other sequences, behind cached
// prefixes, restored from disk and through the scheduler must come to what it comes to whole: bit
// for bit in the deterministic formulation, logits and all that is cached.
#include "doctor/check_cache.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "doctor/walk.h"
#include "kv/kv_types.h"
#include "model/runner.h"

#define FULL_TOKENS 150 // over two borders of pages
#define MIN_TOKENS 12
#define LEAST_CONTEXT 64 // a page, and room for two sequences
#define LEAST_VOCAB 8    // prompts must differ
#define SPARE_TOKENS 64
#define QUICK_S 3.0 // that all runs may take
#define FULL_S 10.0
#define QUICK_RUNS 16.0 // prompts that are run, about
#define FULL_RUNS 28.0
#define SHORT_TOP_K 40

bool lp_cache_has_time(struct lp_cache_exam *c, const char *check) {
    if (lp_clock_ns() < c->deadline_ns) return true;
    size_t used = strlen(c->left_out);
    snprintf(c->left_out + used, sizeof c->left_out - used, "%s%s", used ? ", " : "", check);
    return false;
}

void lp_cache_ok(struct lp_cache_exam *c, const char *check, const char *text) {
    lp_report_check(c->exam->report,
                    &(struct lp_check_note){.stage = LP_STAGE_CACHE,
                                            .outcome = LP_CHECK_OK,
                                            .name = check,
                                            .figure = "the same bits",
                                            .bound = "the same bits",
                                            .value = NAN,
                                            .limit = NAN},
                    "%s", text);
}

void lp_cache_accuse(struct lp_cache_exam *c, const struct lp_cache_fault *f) {
    lp_report_check(
        c->exam->report,
        &(struct lp_check_note){.stage = LP_STAGE_CACHE,
                                .outcome = c->accused ? LP_CHECK_FOLLOWS : LP_CHECK_FAULT,
                                .name = f->check,
                                .figure = f->figure,
                                .bound = "the same bits",
                                .value = NAN,
                                .limit = NAN},
        "%s", f->text);
    if (!c->accused)
        lp_report_fault(c->exam->report, LP_STAGE_CACHE, f->check, f->layer, f->what,
                        "The engine is at fault: %s. %s", f->text, f->advice);
    c->accused = true;
}

// ---- running

static void on_layer(void *user, int32_t layer, const float *h, const int32_t *selected,
                     const int32_t *n_selected, int64_t ids_stride) {
    struct lp_cache_exam *c = user;
    struct lp_device *dev = c->exam->fast;
    int64_t n_embd = c->model.weights->h.n_embd;
    (void)selected, (void)n_selected, (void)ids_stride;
    if (layer >= 0)
        dev->backend->read(dev, c->hidden + layer * n_embd, h + c->row * n_embd,
                           (size_t)n_embd * sizeof *h);
}

static lp_status step(struct lp_cache_exam *c, limpid_engine *e, const struct lp_span *spans,
                      int32_t n_spans, int32_t asked, const int32_t *tokens, int64_t n_rows,
                      struct lp_err *err) {
    struct lp_step_settings settings = e->settings;
    bool bad;
    int32_t row = (int32_t)(spans[asked].first_row + spans[asked].n_rows - 1);
    struct lp_step s = {.tokens = tokens,
                        .spans = spans,
                        .n_spans = n_spans,
                        .n_rows = n_rows,
                        .logit_rows = &row,
                        .n_logit_rows = 1,
                        .logits = c->got,
                        .bad = &bad};
    settings.trace = NULL;
    settings.watch = on_layer;
    settings.watch_user = c;
    c->row = row;
    return lp_runner_step(e->runner, &s, &settings, err);
}

lp_status lp_cache_run(struct lp_cache_exam *c, limpid_engine *e, struct lp_page_table *table,
                       const int32_t *tokens, int64_t from, int64_t n, int64_t chunk,
                       struct lp_err *err) {
    lp_status status = LP_OK;
    for (int64_t at = from, part; at < n && !status; at += part) {
        part = n - at < chunk ? n - at : chunk;
        status = lp_engine_grow(e, table, at + part, err);
        struct lp_span span = {.pages = table, .n_past = at, .n_rows = part};
        if (!status) status = step(c, e, &span, 1, 0, tokens + at, part, err);
    }
    return status;
}

#define SCRUB 0x5a

// One kind of one layer, past the functions that are under examination.
static void scrub_kind(limpid_engine *e, int32_t layer, int kind, const int32_t *pages, int64_t n,
                       const uint8_t *bytes) {
    struct lp_device *dev = e->model->dev;
    struct lp_page_table none = {0};
    struct lp_cache_view view = lp_kv_view(e->kv, layer, (enum lp_kv_kind)kind, &none);
    for (int64_t i = 0; view.base && view.page_bytes > 0 && i < n; i++)
        dev->backend->write(dev, (uint8_t *)view.base + (size_t)pages[i] * view.page_bytes, bytes,
                            view.page_bytes);
}

lp_status lp_cache_scrub(limpid_engine *e, struct lp_err *err) {
    int64_t n = lp_kv_n_free(e->kv);
    size_t n_bytes = lp_kv_page_bytes(e->kv); // more than any kind of any layer has
    int32_t *pages = lp_alloc((size_t)n, sizeof *pages);
    uint8_t *bytes = lp_alloc(n_bytes, 1);
    bool ok = pages && bytes;
    if (ok) memset(bytes, SCRUB, n_bytes);
    for (int64_t i = 0; ok && i < n; i++) pages[i] = lp_kv_page_take(e->kv);
    for (int32_t l = 0; ok && l < e->model->weights->h.n_layers; l++)
        for (int kind = 0; kind < LP_KV_N_KINDS; kind++) scrub_kind(e, l, kind, pages, n, bytes);
    for (int64_t i = n; ok && i-- > 0;) lp_kv_page_put(e->kv, pages[i]);
    lp_free(pages);
    lp_free(bytes);
    return ok ? LP_OK : lp_err_memory(err, n_bytes, "the examination of the cache");
}

// ---- comparing

// The first layer behind which the last token's residual stream differs; -1: none.
static int32_t first_stream(const struct lp_cache_exam *c) {
    int64_t n_embd = c->model.weights->h.n_embd;
    for (int32_t l = 0; l < c->model.weights->h.n_layers; l++)
        if (memcmp(c->hidden + l * n_embd, c->expected_hidden + l * n_embd,
                   (size_t)n_embd * sizeof(float)) != 0)
            return l;
    return -1;
}

// What is said of positions that were taken from the cache.
static void explain_cached(const struct lp_cache_exam *c, struct lp_cache_difference d, char *out,
                           size_t n_bytes) {
    char text[192], same[64];
    d.layer = c->thin->numbers[d.layer];
    lp_cache_difference_text(text, sizeof text, &d);
    lp_cache_difference_same(same, sizeof same, &d);
    if (same[0])
        snprintf(out, n_bytes,
                 "%s are not those of the whole run, while the %s are: they are not "
                 "kept or not restored",
                 text, same);
    else
        snprintf(out, n_bytes,
                 "%s are not those of the whole run: they are not restored as they "
                 "were, or are another text's",
                 text);
}

static bool is_page_mixup(const struct lp_cache_difference *d) {
    return d->belongs_to >= 0 && (d->belongs_to - d->first) % LP_KV_PAGE_TOKENS == 0;
}

// The layer that made a difference in what was computed: rows of a later layer are made of what the
// layer before gave, unless only its indexer keys differ, which it makes itself.
static int32_t culprit_of(const struct lp_cache_difference *d, int32_t stream) {
    bool own = d->kinds[LP_KV_INDEX] && !d->kinds[LP_KV_LATENT];
    return d->layer < 0 ? stream : d->layer == 0 || own ? d->layer : d->layer - 1;
}

static void explain_computed(const struct lp_cache_exam *c, const struct lp_cache_difference *d,
                             const struct lp_cache_way *way, int32_t stream, char *out,
                             size_t n_bytes) {
    struct lp_cache_difference named = *d;
    int32_t culprit = culprit_of(d, stream);
    char text[192] = "";
    if (culprit >= 0) culprit = c->thin->numbers[culprit];
    if (d->layer >= 0) {
        named.layer = c->thin->numbers[d->layer];
        lp_cache_difference_text(text, sizeof text, &named);
    }
    if (d->layer >= 0 && d->belongs_to >= 0)
        snprintf(out, n_bytes, "%s differ; position %lld holds what belongs to position %lld%s",
                 text, (long long)d->first, (long long)d->belongs_to,
                 is_page_mixup(d) ? ": pages have changed places in the page table" : "");
    else if (culprit < 0)
        snprintf(out, n_bytes,
                 "all that is cached is equal, and every layer's output; the logits "
                 "are not: the head");
    else if (d->layer < 0)
        snprintf(out, n_bytes,
                 "all that is cached is equal; what reads it differs from layer %d on", culprit);
    else if (d->only_rotated && d->layer == 0)
        snprintf(out, n_bytes,
                 "%s differ in their rotated part alone: the tokens%s were given "
                 "wrong positions",
                 text, way->cached ? " behind the prefix" : "");
    else if (d->layer == 0)
        snprintf(out, n_bytes, "%s differ: other tokens, or their rows went to other places", text);
    else
        snprintf(out, n_bytes, "%s differ, those of the layers before do not: layer %d %s", text,
                 culprit,
                 culprit == named.layer ? "caches something else" : "attends to something else");
}

// What differs is known: says it.
static void accuse_way(struct lp_cache_exam *c, const struct lp_cache_way *way,
                       const struct lp_cache_difference *cached,
                       const struct lp_cache_difference *computed, double apart) {
    char explained[512], text[800], logits[64] = "logits are not finite";
    int32_t stream = first_stream(c);
    int32_t layer = cached->layer >= 0 ? cached->layer : culprit_of(computed, stream);
    bool mixed_up = cached->layer < 0 && is_page_mixup(computed);
    if (isfinite(apart)) snprintf(logits, sizeof logits, "logits differ by %.2g, relative", apart);
    if (cached->layer >= 0)
        explain_cached(c, *cached, explained, sizeof explained);
    else
        explain_computed(c, computed, way, stream, explained, sizeof explained);
    snprintf(text, sizeof text,
             "a prompt of %lld tokens %s does not come to what it comes to whole (%s): %s",
             (long long)c->n, way->how, logits, explained);
    lp_cache_accuse(c, &(struct lp_cache_fault){way->check, mixed_up ? "page table" : way->what,
                                                apart != 0 ? "other logits" : "another state",
                                                layer >= 0 ? c->thin->numbers[layer] : -1, text,
                                                "The file is not at fault; report this."});
}

lp_status lp_cache_compare(struct lp_cache_exam *c, limpid_engine *e,
                           const struct lp_page_table *table, const struct lp_cache_way *way,
                           bool *same, struct lp_err *err) {
    const struct lp_model *m = c->model.weights;
    struct lp_cache_state state;
    lp_type type = lp_kv_type(e->kv);
    lp_status status = lp_cache_state_read(&state, e->kv, table, c->n, err);
    if (status) return status;
    struct lp_cache_difference cached =
        lp_cache_state_compare(&c->state, &state, m, type, 0, way->cached);
    struct lp_cache_difference computed =
        lp_cache_state_compare(&c->state, &state, m, type, way->cached, c->n - way->cached);
    lp_cache_state_release(&state);
    bool equal = memcmp(c->expected, c->got, (size_t)m->h.n_vocab * sizeof(float)) == 0;
    *same = equal && cached.layer < 0 && computed.layer < 0;
    if (!*same)
        accuse_way(c, way, &cached, &computed,
                   lp_lab_difference(c->got, c->expected, m->h.n_vocab));
    return LP_OK;
}

// ---- ways without the prefix cache

static lp_status check_chunk(struct lp_cache_exam *c, int64_t chunk, bool scattered, bool *same,
                             struct lp_err *err) {
    struct lp_page_table table = {0}, holes[2] = {{0}, {0}};
    char how[64];
    struct lp_cache_way way = {"in chunks", "chunking", how, 0};
    if (scattered) way = (struct lp_cache_way){"in scattered pages", "paged cache", how, 0};
    snprintf(how, sizeof how, "in chunks of %lld%s", (long long)chunk,
             scattered ? " in scattered pages" : "");
    lp_status status = lp_cache_scrub(c->engine, err);
    // Pages that are taken in turns and given back in this order come out in another.
    for (int i = 0; i < 4 && scattered && !status; i++)
        status = lp_engine_grow(c->engine, &holes[i % 2], (i / 2 + 1) * LP_KV_PAGE_TOKENS, err);
    lp_page_table_release(&holes[0], c->engine->kv);
    lp_page_table_release(&holes[1], c->engine->kv);
    if (!status) status = lp_cache_run(c, c->engine, &table, c->prompt, 0, c->n, chunk, err);
    if (!status) status = lp_cache_compare(c, c->engine, &table, &way, same, err);
    lp_page_table_release(&table, c->engine->kv);
    return status;
}

static lp_status check_chunks(struct lp_cache_exam *c, struct lp_err *err) {
    static const int64_t chunks[] = {65, 7, 64, 63, 1};
    bool same = true, quick = c->exam->options->quick;
    int n = quick ? 2 : 5, done = 0;
    lp_status status = LP_OK;
    for (int i = 0; i < n && same && !status; i++) {
        if (done > 0 && !lp_cache_has_time(c, "more chunks")) break;
        int64_t chunk = chunks[i] < c->n ? chunks[i] : (c->n + 1) / 2;
        status = check_chunk(c, chunk, false, &same, err);
        done++;
    }
    if (!status && same)
        lp_cache_ok(c, "in chunks", "chunks of 65, 7 and others, with growing pages");
    same = true;
    if (status || !lp_cache_has_time(c, "in scattered pages")) return status;
    status = check_chunk(c, 50, true, &same, err);
    if (!status && same) lp_cache_ok(c, "in scattered pages", "pages in another order");
    return status;
}

// Beside another sequence in the same steps, first or second.
static lp_status check_place(struct lp_cache_exam *c, bool first, bool *same, struct lp_err *err) {
    struct lp_page_table mine = {0}, other = {0};
    int64_t done = 0, n_other = 0;
    int32_t *tokens = lp_alloc((size_t)c->n * 2, sizeof *tokens);
    lp_status status = tokens ? lp_cache_scrub(c->engine, err)
                              : lp_err_memory(err, (size_t)c->n * 8, "the tokens of a step");
    while (!status && done < c->n) {
        int64_t left = c->n - done, a = done == 0 ? (left + 1) / 2 : left, b = a / 2 + 1;
        int64_t at_mine = first ? 0 : b, at_other = first ? a : 0;
        memcpy(tokens + at_mine, c->prompt + done, (size_t)a * sizeof *tokens);
        for (int64_t i = 0; i < b; i++) tokens[at_other + i] = c->prompt[c->n - 1 - i];
        status = lp_engine_grow(c->engine, &mine, done + a, err);
        if (!status) status = lp_engine_grow(c->engine, &other, n_other + b, err);
        struct lp_span spans[2] = {
            {.sequence = 1, .pages = &mine, .n_past = done, .first_row = at_mine, .n_rows = a},
            {.sequence = 2,
             .pages = &other,
             .n_past = n_other,
             .first_row = at_other,
             .n_rows = b}};
        struct lp_span in_order[2] = {spans[first ? 0 : 1], spans[first ? 1 : 0]};
        if (!status) {
            lp_walk_pad(&mine, c->exam->fast);
            lp_walk_pad(&other, c->exam->fast);
        }
        if (!status) status = step(c, c->engine, in_order, 2, first ? 0 : 1, tokens, a + b, err);
        done += a;
        n_other += b;
    }
    struct lp_cache_way way = {"beside another sequence", "batching",
                               first ? "in steps with another sequence behind it"
                                     : "in steps with another sequence before it",
                               0};
    if (!status) status = lp_cache_compare(c, c->engine, &mine, &way, same, err);
    lp_page_table_release(&mine, c->engine->kv);
    lp_page_table_release(&other, c->engine->kv);
    lp_free(tokens);
    return status;
}

static lp_status check_beside(struct lp_cache_exam *c, struct lp_err *err) {
    bool same = true;
    if (!lp_cache_has_time(c, "beside another sequence")) return LP_OK;
    lp_status status = check_place(c, false, &same, err);
    if (!status && same) status = check_place(c, true, &same, err);
    if (!status && same)
        lp_cache_ok(c, "beside another sequence", "before and behind it in the same steps");
    return status;
}

// ---- cache types

// How far the logits with a cache of this type are from those with f32. Rounding alone may swap an
// expert or a selected key, and random weights make much of that: only what is not finite is a
// fault.
static void report_type(struct lp_cache_exam *c, lp_type type) {
    int64_t n_vocab = c->model.weights->h.n_vocab;
    double d = lp_lab_difference(c->got, c->expected, n_vocab);
    bool bad = !isfinite(d) && lp_runner_find_nonfinite(c->expected, n_vocab) < 0;
    const char *name = lp_kv_type_name(type);
    char check[64], figure[32];
    snprintf(check, sizeof check, "%s cache against F32", name);
    snprintf(figure, sizeof figure, "%.3g", d);
    lp_report_check(c->exam->report,
                    &(struct lp_check_note){.stage = LP_STAGE_CACHE,
                                            .outcome = bad ? LP_CHECK_FAULT : LP_CHECK_OK,
                                            .name = check,
                                            .figure = figure,
                                            .bound = "finite",
                                            .value = d,
                                            .limit = NAN},
                    "logits of the last of %lld tokens, relative difference", (long long)c->n);
    if (bad)
        lp_report_fault(
            c->exam->report, LP_STAGE_CACHE, check, -1, "half-precision overflow",
            "With a cache of type %s the logits are not finite, with F32 they are: what a "
            "layer caches is beyond its range. Run with --kv bf16 or --kv f32.",
            name);
}

static lp_status check_types(struct lp_cache_exam *c, struct lp_err *err) {
    static const lp_type types[] = {LP_TYPE_F32, LP_TYPE_F16, LP_TYPE_BF16, LP_TYPE_Q8_0,
                                    LP_TYPE_F8_E4M3};
    lp_status status = LP_OK;
    int n = c->exam->options->quick ? 2 : 5;
    for (int i = 0; i < n && !status; i++) {
        struct lp_walk walk;
        struct lp_walk_options options = {
            .dev = c->exam->fast, .kv_type = types[i], .max_context = c->n, .max_rows = c->n};
        struct lp_step_settings settings = {0};
        if (!lp_cache_has_time(c, "cache types")) return LP_OK;
        status = lp_walk_init(&walk, c->model.weights, &options, err);
        bool fits = status != LP_STATUS_INVALID; // rows that are no whole blocks
        if (!fits) status = LP_OK;
        if (fits && !status)
            status = lp_walk_step(&walk, &(struct lp_walk_part){0, c->n}, 1, c->prompt, &settings,
                                  i == 0 ? c->expected : c->got, err);
        lp_walk_release(&walk);
        if (i > 0 && fits && !status) report_type(c, types[i]);
    }
    return status;
}

// ---- the stage

lp_status lp_cache_engine(limpid_engine **out, struct lp_cache_exam *c, const char *dir,
                          struct lp_err *err) {
    limpid_engine_options o = limpid_engine_default_options();
    int64_t n_context = c->n + SPARE_TOKENS;
    if (n_context > c->model.weights->h.n_context) n_context = c->model.weights->h.n_context;
    o.n_context = n_context;
    o.n_kv_tokens = 4 * n_context;
    o.chunk = n_context;
    o.max_batch_tokens = 2 * n_context;
    o.max_seqs = 4;
    o.deterministic = true;
    o.cache_dir = dir;
    limpid_error why = {0};
    limpid_status status = limpid_engine_new(out, &c->model, &o, &why);
    return status ? lp_err_set(err, (lp_status)status, "%s", why.text) : LP_OK;
}

// How many tokens fit into the time, by how long some take.
static lp_status choose_length(struct lp_cache_exam *c, struct lp_err *err) {
    bool quick = c->exam->options->quick;
    int64_t most = FULL_TOKENS, context = c->model.weights->h.n_context;
    struct lp_page_table table = {0};
    if (most > context - MIN_TOKENS) most = context - MIN_TOKENS; // room for what comes behind it
    c->n = most < MIN_TOKENS ? most : MIN_TOKENS;
    // The first run touches the weights and is not timed.
    lp_status status = lp_cache_run(c, c->engine, &table, c->prompt, 0, c->n, c->n, err);
    // Processor time, so that the same prompt is chosen beside other programs.
    uint64_t start = lp_clock_thread_ns();
    if (!status) status = lp_cache_run(c, c->engine, &table, c->prompt, 0, c->n, c->n, err);
    double token_s = (double)(lp_clock_thread_ns() - start) * 1e-9 / (double)c->n;
    lp_page_table_release(&table, c->engine->kv);
    double seconds = quick ? QUICK_S : FULL_S;
    double fit = seconds / (token_s * (quick ? QUICK_RUNS : FULL_RUNS));
    if (fit > (double)c->n) c->n = fit < (double)most ? (int64_t)fit : most;
    c->deadline_ns = lp_clock_ns() + (uint64_t)(seconds * 4e9);
    if (c->exam->options->on_stage)
        c->exam->options->on_stage(c->exam->options->user, LP_STAGE_CACHE,
                                   token_s * (double)c->n * (quick ? QUICK_RUNS : FULL_RUNS));
    return status;
}

static lp_status run_whole(struct lp_cache_exam *c, struct lp_err *err) {
    const struct lp_hparams *h = &c->model.weights->h;
    struct lp_page_table table = {0};
    lp_status status = lp_cache_run(c, c->engine, &table, c->prompt, 0, c->n, c->n, err);
    if (!status) status = lp_cache_state_read(&c->state, c->engine->kv, &table, c->n, err);
    lp_page_table_release(&table, c->engine->kv);
    memcpy(c->expected, c->got, (size_t)h->n_vocab * sizeof *c->got);
    memcpy(c->expected_hidden, c->hidden, (size_t)(h->n_layers * h->n_embd) * sizeof *c->hidden);
    return status;
}

static lp_status take_buffers(struct lp_cache_exam *c, struct lp_err *err) {
    const struct lp_hparams *h = &c->model.weights->h;
    size_t n_hidden = (size_t)(h->n_layers * h->n_embd);
    c->model.never = lp_alloc((size_t)h->n_vocab, sizeof *c->model.never);
    c->expected = lp_alloc((size_t)h->n_vocab, sizeof *c->expected);
    c->got = lp_alloc((size_t)h->n_vocab, sizeof *c->got);
    c->expected_hidden = lp_alloc(n_hidden, sizeof *c->expected_hidden);
    c->hidden = lp_alloc(n_hidden, sizeof *c->hidden);
    if (!c->model.never || !c->expected || !c->got || !c->expected_hidden || !c->hidden)
        return lp_err_memory(err, 8 * n_hidden, "the examination of the cache");
    return lp_walk_prompt(&c->prompt, c->exam, FULL_TOKENS + SPARE_TOKENS, err);
}

static lp_status run_ways(struct lp_cache_exam *c, struct lp_err *err) {
    c->n = FULL_TOKENS; // the engine is made for the longest
    lp_status status = lp_cache_engine(&c->engine, c, NULL, err);
    if (!status) status = choose_length(c, err);
    if (!status) status = run_whole(c, err);
    if (!status) status = check_chunks(c, err);
    if (!status) status = check_beside(c, err);
    if (!status) status = lp_cache_check_prefix(c, err);
    if (!status) status = lp_cache_check_disk(c, err);
    if (!status) status = lp_cache_check_requests(c, err);
    return status;
}

static lp_status examine(struct lp_cache_exam *c, struct lp_err *err) {
    struct lp_exam *exam = c->exam;
    struct lp_model *weights = &c->thin->model;
    struct lp_walk_top_k top_k; // so that keys are selected
    struct lp_err why = {0};
    c->model = (struct limpid_model){.gguf = exam->gguf,
                                     .tokenizer = exam->tokenizer,
                                     .dev = exam->fast,
                                     .weights = weights,
                                     .name = "",
                                     .n_threads = exam->options->n_threads};
    lp_walk_set_top_k(&top_k, weights, weights->h.top_k > SHORT_TOP_K ? SHORT_TOP_K : 0);
    lp_status status = take_buffers(c, &why);
    if (!status) status = run_ways(c, &why);
    if (status && status != LP_STATUS_MEMORY) { // the engine refuses what it can do
        lp_cache_accuse(c, &(struct lp_cache_fault){"steps of the engine", "paged cache",
                                                    lp_status_name(status), -1, why.text,
                                                    "Report this."});
        status = LP_OK;
    }
    if (status) lp_err_set(err, status, "%s", why.text);
    lp_walk_restore_top_k(&top_k);
    limpid_engine_free(c->engine, NULL);
    if (!status) status = check_types(c, err);
    if (!status && c->left_out[0])
        lp_report_say(exam->report, LP_STAGE_CACHE, LP_CHECK_SKIPPED, "left out for time", "%s",
                      c->left_out);
    return status;
}

lp_status lp_check_cache(struct lp_exam *exam, struct lp_err *err) {
    const char *obstacle = lp_walk_obstacle(exam);
    if (obstacle) {
        lp_report_say(exam->report, LP_STAGE_CACHE, LP_CHECK_SKIPPED, "cache", "%s", obstacle);
        return LP_OK;
    }
    if (exam->h.n_context < LEAST_CONTEXT || exam->h.n_vocab < LEAST_VOCAB) {
        lp_report_say(exam->report, LP_STAGE_CACHE, LP_CHECK_SKIPPED, "cache",
                      "a context of %lld tokens and a vocabulary of %lld: at least %d and %d are "
                      "needed",
                      (long long)exam->h.n_context, (long long)exam->h.n_vocab, LEAST_CONTEXT,
                      LEAST_VOCAB);
        return LP_OK;
    }
    struct lp_cache_exam *c = lp_alloc(1, sizeof *c);
    if (!c) return lp_err_memory(err, sizeof *c, "the examination of the cache");
    c->exam = exam;
    lp_status status =
        lp_thin_new(&c->thin, lp_lab_model(exam->fast_lab), exam->options->quick, err);
    if (!status) status = examine(c, err);
    lp_cache_state_release(&c->state);
    void *blocks[] = {c->model.never,     c->expected, c->got,
                      c->expected_hidden, c->hidden,   c->prompt};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) lp_free(blocks[i]);
    lp_thin_free(c->thin);
    lp_free(c);
    return status;
}
