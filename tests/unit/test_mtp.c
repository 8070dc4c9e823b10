// The MTP layer: its drafts against torch's (mtp_vectors.h), however the tokens are cut into steps and
// spans; rejected rows; later drafts against the formula computed here in double; refusals.
#include "lp_test.h"

#include <math.h>
#include <unistd.h>

#include "model/runner.h"
#include "mtp_vectors.h"

#define MINI "models/mini-glm-dsa.gguf"
#define N_CASES ((int)(sizeof mtp_cases / sizeof mtp_cases[0]))
#define MAX_ROWS 512
#define CONTEXT 2048
#define POOL 4096
#define MAX_WIDTH 4096 // n_vocab, 2 * n_embd
#define TOLERANCE 2e-4 // of log-probabilities; measured: 3.3e-5
#define CLEAR 1e-3     // a lead of the most probable draft that rounding cannot turn over
#define MAX_DRAFTS 4
#ifdef __SANITIZE_ADDRESS__
#define LONGEST 300 // tokens of a case that are run: behind top_k (256), but not for minutes
#define N_RUN 3
#else
#define LONGEST CONTEXT
#define N_RUN N_CASES
#endif

struct fixture {
    struct lp_gguf *gguf;
    struct lp_device *dev;
    struct lp_model *model;
    struct lp_kv *kv;
    struct lp_runner *runner;
    struct lp_step_settings settings;
    bool never[MAX_WIDTH];
};

static struct fixture mini;

static void open_fixture(struct fixture *f, const char *path) {
    struct lp_err err = {0};
    struct lp_kv_layer layers[LP_MAX_LAYERS];
    *f = (struct fixture){0};
    assert_int_equal(lp_gguf_open(&f->gguf, path, &err), LP_OK);
    assert_int_equal(lp_backend_ref.open(&f->dev, NULL, &err), LP_OK);
    assert_int_equal(
        lp_model_load(&f->model, f->gguf, f->dev,
                      &(struct lp_load){.n_threads = 1, .check_bytes = LP_CHECK_WHOLE_BYTES}, &err),
        LP_OK);
    assert_true(f->model->has_mtp);
    assert_true(f->model->h.n_vocab <= MAX_WIDTH && 2 * f->model->h.n_embd <= MAX_WIDTH);
    lp_model_kv_layers(f->model, true, layers);
    assert_int_equal(lp_kv_new(&f->kv, f->dev, layers, lp_model_kv_count(f->model, true),
                               LP_TYPE_F32, POOL, &err),
                     LP_OK);
    assert_int_equal(lp_runner_new(&f->runner, f->model, f->kv, MAX_ROWS, CONTEXT, true, &err),
                     LP_OK);
}

static void close_fixture(struct fixture *f) {
    lp_runner_free(f->runner);
    lp_kv_free(f->kv);
    lp_model_free(f->model);
    lp_backend_ref.close(f->dev);
    lp_gguf_close(f->gguf);
}

// One sequence's part of a step and of the drafts behind it.
struct part {
    struct lp_page_table *pages;
    int64_t n_past;
    int32_t n_rows, kept;
    const int32_t *tokens; // [n_rows + 1]: the token behind the last row too, or -1
    bool drafting;
};

static void run_parts(struct fixture *f, const struct part *parts, int32_t n_parts, int32_t n_draft,
                      int32_t *drafts) {
    static int32_t tokens[MAX_ROWS], next[MAX_ROWS];
    struct lp_span spans[8] = {0};
    int32_t kept[8];
    bool drafting[8];
    struct lp_err err = {0};
    struct lp_step step = {.tokens = tokens, .spans = spans, .n_spans = n_parts};
    for (int32_t i = 0; i < n_parts; i++) {
        const struct part *p = &parts[i];
        spans[i] = (struct lp_span){.sequence = (uint64_t)i,
                                    .pages = p->pages,
                                    .n_past = p->n_past,
                                    .first_row = step.n_rows,
                                    .n_rows = p->n_rows};
        assert_int_equal(
            lp_page_table_grow(p->pages, f->kv, p->n_past + p->n_rows + 1 + n_draft, &err), LP_OK);
        for (int32_t t = 0; t < p->n_rows; t++) {
            tokens[step.n_rows + t] = p->tokens[t];
            next[step.n_rows + t] = p->tokens[t + 1];
        }
        kept[i] = p->kept;
        drafting[i] = p->drafting;
        step.n_rows += p->n_rows;
    }
    struct lp_draft draft = {.step = &step,
                             .kept = kept,
                             .next_tokens = next,
                             .drafting = drafting,
                             .n_draft = n_draft,
                             .never = f->never,
                             .drafts = drafts};
    assert_int_equal(lp_runner_step(f->runner, &step, &f->settings, &err), LP_OK);
    assert_int_equal(lp_runner_draft(f->runner, &draft, &f->settings, &err), LP_OK);
}

static void tokens_of(const struct mtp_case *c, int32_t *out) { // and -1 behind them
    for (int32_t t = 0; t < c->n_tokens; t++) out[t] = c->tokens[t];
    out[c->n_tokens] = -1;
}

static bool is_clear(const struct mtp_case *c, int64_t t) {
    return c->logprobs[2 * t] - c->logprobs[2 * t + 1] > CLEAR;
}

// The rows that have just gone through the layer, [first, first + n) of the case, against torch.
static void check_rows(struct fixture *f, const struct mtp_case *c, int64_t first, int64_t n) {
    struct lp_runner *r = f->runner;
    int64_t n_embd = f->model->h.n_embd, n_vocab = f->model->h.n_vocab;
    for (int64_t t = 0; t < n; t++) {
        const int16_t *ids = c->ids + 2 * (first + t);
        double sum = 0;
        int64_t best = 0;
        lp_runner_norm(r, r->h + t * n_embd, n_embd, f->model->mtp.head_norm, r->logit_x, n_embd,
                       1);
        lp_runner_head(r, &f->model->mtp.head, r->logit_x, 1);
        for (int64_t v = 0; v < n_vocab; v++) {
            sum += exp((double)r->logits[v]);
            if (r->logits[v] > r->logits[best]) best = v;
        }
        for (int i = 0; i < 2; i++) {
            double off = r->logits[ids[i]] - log(sum) - (double)c->logprobs[2 * (first + t) + i];
            if (!(fabs(off) < TOLERANCE))
                fail_msg("position %lld: log-probability of %d is off by %g",
                         (long long)(first + t), ids[i], off);
        }
        if (is_clear(c, first + t)) assert_int_equal(best, ids[0]);
    }
}

// A whole case in steps of at most `chunk` tokens: every row's distribution, every step's draft.
static void run_case(struct fixture *f, const struct mtp_case *c, int32_t chunk) {
    static int32_t tokens[CONTEXT];
    struct lp_page_table pages = {0};
    int32_t n_tokens = c->n_tokens < LONGEST ? c->n_tokens : LONGEST;
    tokens_of(c, tokens);
    tokens[n_tokens] = -1;
    for (int32_t done = 0, n; done < n_tokens; done += n) {
        n = n_tokens - done < chunk ? n_tokens - done : chunk;
        bool known = done + n < n_tokens; // the last token has none behind it: left out
        int32_t draft = -1;
        struct part part = {.pages = &pages,
                            .n_past = done,
                            .n_rows = n,
                            .kept = n,
                            .tokens = tokens + done,
                            .drafting = known};
        run_parts(f, &part, 1, 1, &draft);
        if (known && is_clear(c, done + n - 1)) assert_int_equal(draft, c->ids[2 * (done + n - 1)]);
        check_rows(f, c, done, known ? n : n - 1);
    }
    lp_page_table_release(&pages, f->kv);
}

static void drafts_what_torch_drafts(void **state) {
    (void)state;
    for (int i = 0; i < N_RUN; i++) run_case(&mini, &mtp_cases[i], MAX_ROWS);
}

static void the_cut_into_steps_changes_nothing(void **state) {
    (void)state;
    run_case(&mini, &mtp_cases[2], 1);
    run_case(&mini, &mtp_cases[1], 5);
    run_case(&mini, &mtp_cases[3], 37);
}

// Steps as verification makes them: the sequence's next token with wrong drafts behind it, of which
// some rows stay, while other sequences do something else in the same step.
static void rejected_rows_leave_no_trace(void **state) {
    (void)state;
    enum { START = 58, END = 72, N_WRONG = 3 };
    static int32_t tokens[3][CONTEXT], mixed[N_WRONG + 4];
    struct lp_page_table pages[3] = {0};
    const struct mtp_case *long_ = &mtp_cases[3], *other = &mtp_cases[1];
    tokens_of(long_, tokens[0]);
    tokens_of(other, tokens[1]);
    tokens_of(&mtp_cases[2], tokens[2]);
    int32_t drafts[3] = {-1, -1, -1};
    struct part parts[3] = {{&pages[2], 0, 5, 0, tokens[2], false}, // all of it rejected
                            {&pages[0], 0, START, START, tokens[0], true},
                            {&pages[1], 0, 7, 7, tokens[1], false}};
    run_parts(&mini, parts, 3, 1, drafts);
    assert_int_equal(drafts[1], long_->ids[2 * (START - 1)]);
    assert_true(drafts[0] == -1 && drafts[2] == -1);
    int32_t at = START, at_other = 7;
    for (int32_t kept = 1; at + kept <= END; kept = kept % 3 + 1) { // page borders at 63, 64, 65
        for (int32_t t = 0; t < N_WRONG + 3; t++) // `kept` right tokens, and the one behind them
            mixed[t] = t <= kept ? tokens[0][at + t] : 100 + t;
        struct part both[2] = {{&pages[1], at_other, 2, 2, tokens[1] + at_other, true},
                               {&pages[0], at, kept + N_WRONG - 1, kept, mixed, true}};
        run_parts(&mini, both, 2, 1, drafts);
        at += kept;
        at_other += 2;
        if (is_clear(long_, at - 1)) assert_int_equal(drafts[1], long_->ids[2 * (at - 1)]);
        if (is_clear(other, at_other - 1))
            assert_int_equal(drafts[0], other->ids[2 * (at_other - 1)]);
    }
    for (int i = 0; i < 3; i++) lp_page_table_release(&pages[i], mini.kv);
}

static void a_page_depends_on_its_own_tokens(void **state) {
    (void)state;
    enum { N = LP_KV_PAGE_TOKENS };
    static int32_t tokens[CONTEXT];
    struct lp_page_table pages[2] = {0};
    const char *row[2][2]; // the last row of the first page, the first one of the second
    size_t row_bytes = 0;
    for (int i = 0; i < 2; i++) {
        tokens_of(&mtp_cases[3], tokens);
        tokens[N] += i; // the token behind the page
        run_parts(&mini, &(struct part){&pages[i], 0, N, N, tokens, false}, 1, 0, NULL);
        struct lp_cache_view v =
            lp_kv_view(mini.kv, mini.model->h.n_layers, LP_KV_LATENT, &pages[i]);
        assert_int_equal(v.slot_offset, 1);
        row_bytes = v.row_bytes;
        row[i][0] = (char *)v.base + v.page_bytes * (size_t)v.pages[0] + (N - 1) * v.row_bytes;
        row[i][1] = (char *)v.base + v.page_bytes * (size_t)v.pages[1];
    }
    assert_memory_equal(row[0][0] - (N - 2) * row_bytes, row[1][0] - (N - 2) * row_bytes,
                        (N - 1) * row_bytes); // slots 1 to 63
    assert_memory_not_equal(row[0][1], row[1][1], row_bytes);
    for (int i = 0; i < 2; i++) lp_page_table_release(&pages[i], mini.kv);
}

// ---- later drafts, by the formula

static void hand_norm(const double *x, const float *w, double eps, int64_t n, double *y) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    for (int64_t i = 0; i < n; i++) y[i] = (double)w[i] * x[i] / sqrt(sum / (double)n + eps);
}

static double hand_dot(const struct lp_weight *w, int64_t row, const double *x) {
    static float values[MAX_WIDTH];
    double sum = 0;
    lp_type_info(w->type)->dequant((const uint8_t *)w->data + (size_t)row * w->row_bytes, values,
                                   (size_t)w->n_in);
    for (int64_t i = 0; i < w->n_in; i++) sum += (double)values[i] * x[i];
    return sum;
}

// The draft from H [n_embd] at `position` and the token behind it; H becomes the next one.
static int32_t hand_draft(struct fixture *f, struct lp_page_table *pages, int64_t position,
                          int32_t token, double *H, double *lead) {
    const struct lp_mtp *w = &f->model->mtp;
    struct lp_runner *r = f->runner;
    int64_t n = f->model->h.n_embd;
    double x[MAX_WIDTH], e[MAX_WIDTH], eps = f->model->h.eps;
    float row[MAX_WIDTH];
    lp_type_info(w->embd.type)
        ->dequant((const uint8_t *)w->embd.data + (size_t)token * w->embd.row_bytes, row,
                  (size_t)n);
    for (int64_t i = 0; i < n; i++) e[i] = row[i];
    hand_norm(e, w->enorm, eps, n, x);
    hand_norm(H, w->hnorm, eps, n, x + n);
    for (int64_t i = 0; i < n; i++) r->h[i] = (float)hand_dot(&w->eh_proj, i, x);
    struct lp_span span = {.pages = pages, .n_past = position, .n_rows = 1};
    lp_runner_upload(r, &token, &span, 1, 1);
    struct lp_attn_step attn = lp_runner_attention(r, &span, 1, 1, &f->settings);
    lp_runner_layer(r, f->model->h.n_layers, &attn, &f->settings);
    for (int64_t i = 0; i < n; i++) e[i] = r->h[i];
    hand_norm(e, w->head_norm, eps, n, H);
    int32_t best = 0;
    double first = -INFINITY, second = -INFINITY;
    for (int32_t v = 0; v < f->model->h.n_vocab; v++) {
        double logit = hand_dot(&w->head, v, H);
        if (logit > first) {
            second = first;
            first = logit;
            best = v;
        } else if (logit > second)
            second = logit;
    }
    *lead = first - second;
    return best;
}

// n_past tokens, then n_draft drafts: by one call, and one at a time from the hidden state of the
// step on.
static void check_later_drafts(struct fixture *f, const int32_t *tokens, int32_t n_past) {
    struct lp_page_table pages[2] = {0};
    int32_t drafts[MAX_DRAFTS], token = tokens[n_past];
    int64_t n = f->model->h.n_embd;
    double H[MAX_WIDTH], h[MAX_WIDTH], lead;
    struct part part = {&pages[0], 0, n_past, n_past, tokens, true};
    run_parts(f, &part, 1, MAX_DRAFTS, drafts);
    // The other sequence: its last row is left out of the call, its hidden state is taken before.
    struct lp_err err = {0};
    part = (struct part){&pages[1], 0, n_past - 1, n_past - 1, tokens, false};
    run_parts(f, &part, 1, MAX_DRAFTS, NULL);
    struct lp_span span = {.pages = &pages[1], .n_past = n_past - 1, .n_rows = 1};
    struct lp_step step = {
        .tokens = tokens + n_past - 1, .spans = &span, .n_spans = 1, .n_rows = 1};
    assert_int_equal(lp_page_table_grow(&pages[1], f->kv, n_past + MAX_DRAFTS, &err), LP_OK);
    assert_int_equal(lp_runner_step(f->runner, &step, &f->settings, &err), LP_OK);
    for (int64_t i = 0; i < n; i++) h[i] = f->runner->h[i];
    hand_norm(h, f->model->output_norm, f->model->h.eps, n, H);
    for (int32_t j = 0; j < MAX_DRAFTS; j++) {
        int32_t best = hand_draft(f, &pages[1], n_past - 1 + j, token, H, &lead);
        assert_true(lead > CLEAR);
        assert_int_equal(drafts[j], best);
        token = best;
    }
    for (int i = 0; i < 2; i++) lp_page_table_release(&pages[i], f->kv);
}

static void later_drafts_take_the_normed_output(void **state) {
    (void)state;
    static int32_t tokens[CONTEXT];
    tokens_of(&mtp_cases[3], tokens);
    static const int32_t lengths[] = {20, 63, 64, 258}; // the page border; behind top_k
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        if (lengths[i] < LONGEST - 50) check_later_drafts(&mini, tokens, lengths[i]);
}

static void grouped_query_layer_with_its_own_embedding_and_head(void **state) {
    (void)state;
    static struct fixture f;
    int32_t tokens[24];
    open_fixture(&f, "tests/golden/glm45.gguf");
    assert_ptr_not_equal(f.model->mtp.embd.data, f.model->token_embd.data);
    assert_ptr_not_equal(f.model->mtp.head.data, f.model->output.data);
    for (int i = 0; i < 24; i++) tokens[i] = (i * 37 + 11) % (int32_t)f.model->h.n_vocab;
    check_later_drafts(&f, tokens, 20);
    struct lp_route_counts counts = lp_runner_route_counts(f.runner);
    // two prompts and a single row through all layers and, but for that row, once through the MTP
    // layer; then three later drafts by the call and four by hand
    assert_int_equal(counts.gqa, 3 * f.model->h.n_layers + 2 + 3 + 4);
    assert_int_equal(counts.expanded + counts.absorbed + counts.sparse + counts.dense, 0);
    close_fixture(&f);
}

// ---- what else the call promises

static void never_drafts_a_masked_token(void **state) {
    (void)state;
    static int32_t tokens[CONTEXT];
    const struct mtp_case *c = &mtp_cases[0];
    struct lp_page_table pages = {0};
    int32_t draft = -1, n = 10;
    tokens_of(c, tokens);
    mini.never[c->ids[2 * (n - 1)]] = true;
    run_parts(&mini, &(struct part){&pages, 0, n, n, tokens, true}, 1, 1, &draft);
    mini.never[c->ids[2 * (n - 1)]] = false;
    assert_int_equal(draft, c->ids[2 * (n - 1) + 1]);
    lp_page_table_release(&pages, mini.kv);
}

static void counts_routes_and_keeps_the_step_number(void **state) {
    (void)state;
    static int32_t tokens[CONTEXT];
    struct lp_page_table pages = {0};
    int32_t draft[2], n_layers = mini.model->h.n_layers;
    struct lp_err err = {0};
    char text[1 << 12], path[] = "/tmp/limpid-mtp-XXXXXX";
    tokens_of(&mtp_cases[3], tokens);
    uint64_t n_steps = mini.runner->n_steps;
    assert_int_equal(close(mkstemp(path)), 0);
    struct lp_route_counts a = lp_runner_route_counts(mini.runner), b, c;
    run_parts(&mini, &(struct part){&pages, 0, 270, 270, tokens, false}, 1, 0, NULL);
    b = lp_runner_route_counts(mini.runner);
    assert_int_equal(b.sparse - a.sparse, n_layers + 1);
    assert_int_equal(lp_trace_open(&mini.settings.trace, path, &err), LP_OK);
    run_parts(&mini, &(struct part){&pages, 270, 3, 0, tokens + 270, false}, 1, 2, NULL);
    c = lp_runner_route_counts(mini.runner);
    assert_int_equal(c.sparse - b.sparse, n_layers); // no row stays: the MTP layer does not run
    run_parts(&mini, &(struct part){&pages, 270, 3, 3, tokens + 270, true}, 1, 2, draft);
    assert_int_equal(lp_runner_route_counts(mini.runner).sparse - c.sparse, n_layers + 2);
    assert_int_equal(mini.runner->n_steps - n_steps, 3);
    assert_int_equal(lp_trace_close(mini.settings.trace, &err), LP_OK);
    mini.settings.trace = NULL;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    int n_drafts = 0, n_step_events = 0;
    char layer[32], number[32];
    snprintf(layer, sizeof layer, "\"layer\":%d,", n_layers);
    snprintf(number, sizeof number, "\"step\":%llu,", (unsigned long long)n_steps + 2);
    while (fgets(text, sizeof text, file)) {
        n_step_events += strstr(text, "\"event\":\"step\"") != NULL;
        if (!strstr(text, "attention") || !strstr(text, layer)) continue;
        n_drafts++;
        assert_non_null(strstr(text, number));
        assert_non_null(strstr(text, "\"indexer\":\"full\""));
    }
    fclose(file);
    remove(path);
    assert_int_equal(n_drafts, 2);
    assert_int_equal(n_step_events, 2);
    lp_page_table_release(&pages, mini.kv);
}

static void refuses_what_cannot_be_drafted(void **state) {
    (void)state;
    struct lp_page_table pages = {0};
    struct lp_err err = {0};
    int32_t tokens[4] = {1, 2, 3, 4}, next[4] = {2, 3, 4, -1}, kept = 4, drafts[4];
    bool drafting = true;
    struct lp_span span = {.pages = &pages, .n_rows = 4};
    struct lp_step step = {.tokens = tokens, .spans = &span, .n_spans = 1, .n_rows = 4};
    struct lp_draft d = {&step, &kept, next, &drafting, 2, mini.never, drafts};
    assert_int_equal(lp_page_table_grow(&pages, mini.kv, 6, &err), LP_OK);
    assert_int_equal(lp_runner_step(mini.runner, &step, &mini.settings, &err), LP_OK);
    struct lp_route_counts before = lp_runner_route_counts(mini.runner);
    assert_int_equal(lp_runner_draft(mini.runner, &d, &mini.settings, &err), LP_STATUS_INVALID);
    assert_non_null(strstr(err.text, "next token is not known"));
    next[3] = (int32_t)mini.model->h.n_vocab;
    assert_int_equal(lp_runner_draft(mini.runner, &d, &mini.settings, &err), LP_STATUS_INVALID);
    assert_non_null(strstr(err.text, "token id 3584 behind position 3"));
    next[3] = 5;
    next[1] = -1;
    assert_int_equal(lp_runner_draft(mini.runner, &d, &mini.settings, &err), LP_STATUS_INVALID);
    next[1] = 3;
    kept = 5;
    assert_int_equal(lp_runner_draft(mini.runner, &d, &mini.settings, &err), LP_STATUS_INVALID);
    kept = 4;
    d.n_draft = 3; // the third would lie in slot 6
    assert_int_equal(lp_runner_draft(mini.runner, &d, &mini.settings, &err), LP_STATUS_INVALID);
    assert_non_null(strstr(err.text, "reaches to 6 tokens, the MTP layer needs 7"));
    d.n_draft = CONTEXT;
    assert_int_equal(lp_runner_draft(mini.runner, &d, &mini.settings, &err), LP_STATUS_LIMIT);
    struct lp_route_counts after = lp_runner_route_counts(mini.runner);
    assert_memory_equal(&before, &after, sizeof after); // nothing has run
    d.n_draft = 2;
    assert_int_equal(lp_runner_draft(mini.runner, &d, &mini.settings, &err), LP_OK);
    struct lp_runner *plain;
    assert_int_equal(lp_runner_new(&plain, mini.model, mini.kv, 4, 64, false, &err), LP_OK);
    assert_int_equal(lp_runner_draft(plain, &d, &mini.settings, &err), LP_STATUS_INVALID);
    lp_runner_free(plain);
    lp_page_table_release(&pages, mini.kv);
}

static void a_model_without_the_layer_cannot_draft(void **state) {
    (void)state;
    struct lp_gguf *gguf;
    struct lp_model *model;
    struct lp_runner *runner;
    struct lp_err err = {0};
    assert_int_equal(lp_gguf_open(&gguf, "tests/golden/ds3.gguf", &err), LP_OK);
    assert_int_equal(
        lp_model_load(&model, gguf, mini.dev,
                      &(struct lp_load){.n_threads = 1, .check_bytes = LP_CHECK_WHOLE_BYTES}, &err),
        LP_OK);
    assert_false(model->has_mtp);
    assert_int_equal(lp_runner_new(&runner, model, NULL, 4, 64, true, &err), LP_STATUS_INVALID);
    assert_non_null(strstr(err.text, "no MTP layer"));
    lp_model_free(model);
    lp_gguf_close(gguf);
}

static int set_up(void **state) {
    (void)state;
    open_fixture(&mini, MINI);
    return 0;
}
static int tear_down(void **state) {
    (void)state;
    close_fixture(&mini);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drafts_what_torch_drafts),
        cmocka_unit_test(the_cut_into_steps_changes_nothing),
        cmocka_unit_test(rejected_rows_leave_no_trace),
        cmocka_unit_test(a_page_depends_on_its_own_tokens),
        cmocka_unit_test(later_drafts_take_the_normed_output),
        cmocka_unit_test(grouped_query_layer_with_its_own_embedding_and_head),
        cmocka_unit_test(never_drafts_a_masked_token),
        cmocka_unit_test(counts_routes_and_keeps_the_step_number),
        cmocka_unit_test(refuses_what_cannot_be_drafted),
        cmocka_unit_test(a_model_without_the_layer_cannot_draft)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
