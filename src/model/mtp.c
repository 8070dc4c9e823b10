// Drafts by the next-token-prediction layer (docs/attention.md, "MTP"), after a step, from its
// hidden states: for the rows that stay
//
//   u_t = W_eh [norm_e(embedding(x_t+1)), norm_h(H_t)];  m_t = layer(u_t) at position t
//
// and from the last one of a span that drafts, x_t+2 = argmax head(norm_head(m_t)), again and again
// with H_t+1 = norm_head(m_t). The rows of all spans that take part are packed: they lie one behind
// the other in the runner's buffers, whatever gaps rejected rows have left in the step.
//
// In a pipeline the layer and the head are the last stage's, where the step has left its hidden states. Rank 0 gets the
// logits and chooses; it and the ranks of stages before the last have no rows, but keep the same list of spans, so
// that all know how many ids come and whether another round follows.
#include "model/runner.h"

#include <string.h>

#include "model/shard.h"

// The rows of a span that go through the layer: those kept, less the last one if what follows it is
// not known yet.
static int64_t rows_of(const struct lp_draft *d, int32_t i) {
    int64_t kept = d->kept[i];
    return kept > 0 && d->next_tokens[d->step->spans[i].first_row + kept - 1] < 0 ? kept - 1 : kept;
}

static lp_status check_span(const struct lp_runner *r, const struct lp_draft *d, int32_t i,
                            struct lp_err *err) {
    const struct lp_span *span = &d->step->spans[i];
    if (d->kept[i] < 0 || d->kept[i] > span->n_rows)
        return lp_err_set(err, LP_STATUS_INVALID, "a span keeps %d rows, but has %lld", d->kept[i],
                          (long long)span->n_rows);
    int64_t n = rows_of(d, i);
    for (int64_t t = 0; t < n; t++) {
        int32_t id = d->next_tokens[span->first_row + t];
        if (id < 0 || id >= r->model->h.n_vocab)
            return lp_err_set(
                err, LP_STATUS_INVALID,
                "token id %d behind position %lld is out of range, the model has %lld "
                "tokens",
                id, (long long)(span->n_past + t), (long long)r->model->h.n_vocab);
    }
    bool drafts = d->drafting[i] && d->n_draft > 0;
    if (drafts && (n == 0 || n < d->kept[i]))
        return lp_err_set(err, LP_STATUS_INVALID,
                          "cannot draft behind position %lld: its next token is not known",
                          (long long)(span->n_past + d->kept[i] - 1));
    int64_t last = span->n_past + n + (drafts ? d->n_draft - 1 : 0); // positions after all drafts
    if (n > 0 && last > r->max_context)
        return lp_err_set(err, LP_STATUS_LIMIT,
                          "the sequence would have %lld tokens, the context is %lld",
                          (long long)last, (long long)r->max_context);
    if (n > 0 && last + 1 > span->pages->n_tokens)
        return lp_err_set(
            err, LP_STATUS_INVALID,
            "the page table of a span reaches to %lld tokens, the MTP layer needs %lld",
            (long long)span->pages->n_tokens, (long long)last + 1);
    return LP_OK;
}

static lp_status check(const struct lp_runner *r, const struct lp_draft *d, struct lp_err *err) {
    if (!r->mtp_tokens)
        return lp_err_set(err, LP_STATUS_INVALID, "this runner was made without drafts");
    if (d->n_draft < 0 || d->step->n_spans > r->max_rows)
        return lp_err_set(err, LP_STATUS_INVALID,
                          "%d drafts for %d spans; expected 0 or more, at most %lld spans",
                          d->n_draft, d->step->n_spans, (long long)r->max_rows);
    lp_status status = LP_OK;
    for (int32_t i = 0; i < d->step->n_spans && !status; i++) status = check_span(r, d, i, err);
    return status;
}

struct packed {
    int32_t n_spans;
    int64_t n_rows;
};

// y = RMSNorm(h), n_rows of them from first_row on; where they are.
static void norm_hidden(struct lp_runner *r, const float *w, int64_t first_row, int64_t n_rows,
                        float *y) {
    const int64_t n_embd = r->model->h.n_embd;
    if (lp_shard_is_last_stage(r->model))
        lp_runner_norm(r, r->h + first_row * n_embd, n_embd, w, y, n_embd, n_rows);
}

// The rows that take part: their spans, next tokens, and in x their H = output_norm(h).
static struct packed pack(struct lp_runner *r, const struct lp_draft *d) {
    struct packed p = {0};
    int64_t n_embd = r->model->h.n_embd;
    for (int32_t i = 0; i < d->step->n_spans; i++) {
        struct lp_span span = d->step->spans[i];
        int64_t from = span.first_row;
        span.n_rows = rows_of(d, i);
        if (span.n_rows == 0) continue;
        norm_hidden(r, r->model->output_norm, from, span.n_rows, r->x + p.n_rows * n_embd);
        memcpy(r->mtp_tokens + p.n_rows, d->next_tokens + from,
               (size_t)span.n_rows * sizeof *r->mtp_tokens);
        span.first_row = p.n_rows;
        r->mtp_owner[p.n_spans] = i;
        r->mtp_spans[p.n_spans++] = span;
        p.n_rows += span.n_rows;
    }
    return p;
}

// H in x, tokens and spans on the host -> m in h, and the layer's cache rows. Stages before the last do nothing.
static void run_layer(struct lp_runner *r, const struct packed *p,
                      const struct lp_step_settings *settings) {
    struct lp_device *dev = r->model->dev;
    const struct lp_mtp *w = &r->model->mtp;
    int64_t n_embd = r->model->h.n_embd, stride = 2 * n_embd;
    if (!lp_shard_is_last_stage(r->model)) return;
    lp_runner_upload(r, r->mtp_tokens, r->mtp_spans, p->n_spans, p->n_rows);
    dev->backend->embed(dev, &(struct lp_op_embed){.table = &w->embd,
                                                   .ids = r->tokens,
                                                   .out = r->pair,
                                                   .out_stride = stride,
                                                   .n_rows = p->n_rows});
    lp_runner_norm(r, r->pair, stride, w->enorm, r->pair, stride, p->n_rows);
    lp_runner_norm(r, r->x, n_embd, w->hnorm, r->pair + n_embd, stride, p->n_rows);
    dev->backend->matmul(dev, &(struct lp_op_matmul){.w = &w->eh_proj,
                                                     .x = r->pair,
                                                     .x_stride = stride,
                                                     .y = r->h,
                                                     .y_stride = n_embd,
                                                     .n_rows = p->n_rows});
    struct lp_attn_step attn =
        lp_runner_attention(r, r->mtp_spans, p->n_spans, p->n_rows, settings);
    lp_step_trace_begin(r, &attn, r->model->h.n_layers, 1);
    lp_runner_layer(r, r->model->h.n_layers, &attn, settings);
    lp_ranks_gather_stream(r, p->n_rows, settings->clock);
}

// Keeps of each drafting span its last row, as a span of one row behind it: in x the next H =
// head_norm(m).
static struct packed keep_last_rows(struct lp_runner *r, const struct lp_draft *d,
                                    const struct packed *p) {
    int64_t n_embd = r->model->h.n_embd;
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_spans; i++) {
        struct lp_span span = r->mtp_spans[i];
        int64_t last = span.first_row + span.n_rows - 1;
        if (!d->drafting[r->mtp_owner[i]]) continue;
        norm_hidden(r, r->model->mtp.head_norm, last, 1, r->x + n * n_embd);
        span.n_past += span.n_rows;
        span.first_row = n;
        span.n_rows = 1;
        r->mtp_owner[n] = r->mtp_owner[i];
        r->mtp_spans[n++] = span;
    }
    return (struct packed){n, n};
}

// Of a NaN nothing is larger, so the first id that may be drafted stands where all are.
static int32_t largest(const float *logits, const bool *never, int64_t n_vocab) {
    int64_t best = -1;
    for (int64_t v = 0; v < n_vocab; v++)
        if (!never[v] && (best < 0 || logits[v] > logits[best])) best = v;
    return best < 0 ? 0 : (int32_t)best;
}

// Draft number j of every span from the rows in x; they are also the tokens of the next rows.
static void choose(struct lp_runner *r, const struct lp_draft *d, int32_t j, int64_t n_rows) {
    struct lp_device *dev = r->model->dev;
    int64_t n_embd = r->model->h.n_embd, n_vocab = r->model->h.n_vocab;
    for (int64_t first = 0, n; first < n_rows; first += n) {
        n = n_rows - first < r->logit_rows ? n_rows - first : r->logit_rows;
        lp_runner_head(r, &r->model->mtp.head, r->x + first * n_embd, n);
        for (int64_t i = 0; i < n && !lp_ranks_follows(r); i++) {
            dev->backend->read(dev, r->mtp_logits, r->logits + i * n_vocab,
                               (size_t)n_vocab * sizeof *r->mtp_logits);
            r->mtp_tokens[first + i] = largest(r->mtp_logits, d->never, n_vocab);
        }
        lp_ranks_share_ids(r, r->mtp_tokens + first, n);
        for (int64_t i = 0; i < n; i++)
            d->drafts[(int64_t)r->mtp_owner[first + i] * d->n_draft + j] = r->mtp_tokens[first + i];
    }
}

static lp_status run_draft(struct lp_runner *r, const struct lp_draft *d,
                           const struct lp_step_settings *settings, struct lp_err *err) {
    lp_step_clock_start(settings->clock);
    struct packed p = pack(r, d);
    if (p.n_rows == 0) return LP_OK;
    run_layer(r, &p, settings);
    for (int32_t j = 0; j < d->n_draft; j++) {
        p = keep_last_rows(r, d, &p);
        lp_step_lap(settings->clock, LP_STEP_PART_OTHER);
        if (p.n_rows == 0) break;
        const uint64_t waited_ns = lp_ranks_wait_ns(r);
        choose(r, d, j, p.n_rows);
        lp_step_lap(settings->clock, LP_STEP_PART_HEAD);
        lp_step_clock_move(settings->clock, LP_STEP_PART_HEAD, LP_STEP_PART_RANKS,
                           lp_ranks_wait_ns(r) - waited_ns);
        if (j + 1 < d->n_draft) run_layer(r, &p, settings);
    }
    lp_step_trace_operations(r, settings);
    lp_status status = lp_runner_lack(r, err);
    return status ? status : lp_runner_device_failure(r, err);
}

lp_status lp_runner_draft(struct lp_runner *r, const struct lp_draft *d,
                          const struct lp_step_settings *settings, struct lp_err *err) {
    lp_status status = check(r, d, err);
    if (!status) status = lp_ranks_give_draft(r, d, settings, err);
    if (status) return status;
    status = run_draft(r, d, settings, err);
    return lp_ranks_end_step(r, status, err);
}
