// One step: the rows that the scheduler planned go through the model, their logits become tokens,
// and the MTP layer drafts the next ones.
//
//   rows of a step:   [seq a: last token, drafts] [seq b: last token] [seq c: prompt 512..767]
//   logit rows:        one for each of a's rows    one                 none, unless it ends the prompt
//
// Verification: the token behind a row is sampled from the row's logits exactly as without drafts.
// While it equals the draft in the next row, that row's logits are right and the next token follows
// from them; the first difference makes the rows behind it void (their state is written over
// later). So drafts change how many tokens a step gives, and never which.
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "engine/request.h"

#define STEP_GRAMMAR_NS 50000000u // that a step spends on costly grammars, and then one more
#define COSTLY_GRAMMAR_NS 1000000u

struct part { // one sequence's share of the step
    struct lp_seq *seq;
    limpid_request *request; // NULL: has been ended with another part; seq is gone
    int64_t first_row, n_rows, first_logit, n_logits;
    int32_t kept; // rows that stay
    bool ended, failed;
    bool has_bad; // numbers that were to be used are not finite
};

struct lp_batch {
    int64_t n_rows, n_logits;
    int32_t n_parts;
    int32_t *tokens, *logit_rows, *next_tokens; // [max_batch_tokens]
    bool *bad, *bad_rows;                       // [max_batch_tokens], of logit rows, of all rows
    bool *greedy;                               // [max_batch_tokens], of logit rows
    int32_t *largest;                           // the same: lp_step.largest
    struct lp_step_draw *draws;                 // the same
    const struct lp_top_row **tops;             // the same: lp_step.tops
    struct lp_span *spans;                      // [max_seqs], and so on
    struct part *parts;
    int32_t *kept, *drafts; // drafts: [max_seqs, LP_MAX_DRAFT]
    bool *drafting;
    // For the stats
    int64_t n_answer, n_draft, n_prompt, n_given;
    uint64_t grammar_ns; // of this step
};

lp_status lp_batch_new(struct lp_batch **out, const limpid_engine *e, struct lp_err *err) {
    struct lp_batch *b = lp_alloc(1, sizeof *b);
    size_t rows = (size_t)e->max_batch_tokens, seqs = (size_t)e->max_seqs;
    if (!b) return lp_err_memory(err, sizeof *b, "the batch");
    b->tokens = lp_alloc(rows, sizeof *b->tokens);
    b->logit_rows = lp_alloc(rows, sizeof *b->logit_rows);
    b->next_tokens = lp_alloc(rows, sizeof *b->next_tokens);
    b->bad = lp_alloc(rows, sizeof *b->bad);
    b->bad_rows = lp_alloc(rows, sizeof *b->bad_rows);
    b->greedy = lp_alloc(rows, sizeof *b->greedy);
    b->largest = lp_alloc(rows, sizeof *b->largest);
    b->draws = lp_alloc(rows, sizeof *b->draws);
    b->tops = lp_alloc(rows, sizeof *b->tops);
    b->spans = lp_alloc(seqs, sizeof *b->spans);
    b->parts = lp_alloc(seqs, sizeof *b->parts);
    b->kept = lp_alloc(seqs, sizeof *b->kept);
    b->drafts = lp_alloc(seqs, LP_MAX_DRAFT * sizeof *b->drafts);
    b->drafting = lp_alloc(seqs, sizeof *b->drafting);
    if (b->tokens && b->logit_rows && b->next_tokens && b->bad && b->bad_rows && b->greedy &&
        b->largest && b->draws && b->tops && b->spans && b->parts && b->kept && b->drafts &&
        b->drafting) {
        *out = b;
        return LP_OK;
    }
    lp_batch_free(b);
    return lp_err_memory(err, rows * 4 * sizeof *b->tokens, "the batch");
}

void lp_batch_free(struct lp_batch *b) {
    if (!b) return;
    void *blocks[] = {b->tokens, b->logit_rows, b->next_tokens, b->bad,     b->bad_rows,
                      b->greedy, b->largest,    b->draws,       b->tops,    b->spans,
                      b->parts,  b->kept,       b->drafts,      b->drafting};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) lp_free(blocks[i]);
    lp_free(b);
}

// ---- rows

static bool wants_prompt_logits(const struct lp_seq *seq) {
    return seq->request->options.prompt_logprobs && seq->choice == 0 &&
           seq->n_computed < seq->n_prompt && seq->n_tokens == seq->n_prompt;
}

// Whether a token of each of its logit rows is all that is wanted of them.
static bool wants_token(const limpid_engine *e, const struct lp_seq *seq) {
    return !seq->constraint && seq->request->options.n_logprobs < 0 && !wants_prompt_logits(seq) &&
           !lp_trace_is_full(e->trace);
}

static void add_part(const limpid_engine *e, struct lp_batch *b, struct lp_seq *seq) {
    struct part *p = &b->parts[b->n_parts];
    int64_t n = seq->n_scheduled, n_known = n - seq->n_draft;
    bool reaches_end = seq->n_computed + n_known == seq->n_tokens;
    *p = (struct part){.seq = seq,
                       .request = seq->request,
                       .first_row = b->n_rows,
                       .n_rows = n,
                       .first_logit = b->n_logits};
    p->n_logits = wants_prompt_logits(seq) ? n : reaches_end ? 1 + seq->n_draft : 0;
    memcpy(b->tokens + b->n_rows, seq->tokens + seq->n_computed,
           (size_t)n_known * sizeof *b->tokens);
    if (seq->n_draft)
        memcpy(b->tokens + b->n_rows + n_known, seq->drafts,
               (size_t)seq->n_draft * sizeof *b->tokens);
    const bool token = p->n_logits > 0 && wants_token(e, seq);
    for (int64_t i = 0; i < p->n_logits; i++) {
        b->logit_rows[b->n_logits + i] = (int32_t)(b->n_rows + n - p->n_logits + i);
        b->greedy[b->n_logits + i] = token && lp_sampler_is_plain_greedy(seq->sampler);
        b->draws[b->n_logits + i] =
            (struct lp_step_draw){.scale = token ? lp_sampler_top_scale(seq->sampler) : 0,
                                  .who = seq->sampler,
                                  .enough = lp_sampler_top_is_enough};
    }
    b->spans[b->n_parts] = (struct lp_span){.sequence = seq->number,
                                            .pages = &seq->pages,
                                            .n_past = seq->n_computed,
                                            .first_row = b->n_rows,
                                            .n_rows = n};
    b->n_rows += n;
    b->n_logits += p->n_logits;
    b->n_parts++;
    if (seq->n_tokens - seq->n_computed == 1)
        b->n_answer++;
    else
        b->n_prompt += n;
    b->n_draft += seq->n_draft;
}

// Sequences of one part of the cache go together: a rank has a run of the step's rows.
static void add_parts(const limpid_engine *e, struct lp_batch *b) {
    for (int32_t part = 0; part < lp_kv_n_parts(e->kv); part++)
        for (int32_t i = 0; i < e->sched.n_running; i++) {
            struct lp_seq *seq = e->sched.running[i];
            if (seq->n_scheduled > 0 && seq->pages.part == part) add_part(e, b, seq);
        }
}

// ---- from logits to tokens

static void fail_part(struct part *p, const struct lp_err *err) {
    p->failed = true;
    if (!p->seq->request->failed) lp_request_fail(p->seq->request, err);
}

static void note_token_time(limpid_engine *e, struct lp_seq *seq) {
    struct limpid_request *r = seq->request;
    uint64_t now = lp_clock_ns();
    if (!r->first_ns) {
        r->first_ns = now;
        lp_histogram_add(&e->live.ttft_s, (double)(now - r->submitted_ns) * 1e-9);
        lp_histogram_add(&e->live.queue_s, (double)(seq->admitted_ns - r->submitted_ns) * 1e-9);
    }
    if (seq->token_ns) lp_histogram_add(&e->live.token_s, (double)(now - seq->token_ns) * 1e-9);
    seq->token_ns = now;
}

// What the grammar allows next; ends the choice if that is nothing.
static lp_status find_allowed(limpid_engine *e, struct part *p, struct lp_err *err) {
    struct lp_seq *seq = p->seq;
    if (!seq->constraint || p->ended) return LP_OK;
    uint64_t from = lp_clock_ns();
    lp_status status = lp_constraint_next(seq->constraint, &p->ended, err);
    seq->constraint_ns = lp_clock_ns() - from;
    e->batch->grammar_ns += seq->constraint_ns;
    return !status && p->ended ? lp_output_end(seq, "stop", err) : status;
}

// From one row of logits, or from what the device found: the largest (-1: it did not look), or some (NULL:
// the same).
static lp_status one_token(limpid_engine *e, struct part *p, const float *logits, int32_t largest,
                           const struct lp_top_row *top, bool drafted, struct lp_err *err) {
    struct lp_seq *seq = p->seq;
    struct lp_history history = {seq->tokens, seq->n_prompt, seq->n_tokens};
    const uint32_t *allowed = seq->constraint ? lp_constraint_allowed(seq->constraint) : NULL;
    int32_t id = largest >= 0 ? largest
                 : top        ? lp_sampler_pick_top(seq->sampler, top)
                              : lp_sampler_pick(seq->sampler, logits, &history, allowed);
    lp_status status = seq->constraint ? lp_constraint_accept(seq->constraint, id, err) : LP_OK;
    if (!status) status = lp_output_token(seq, id, logits, &p->ended, err);
    if (status) return status;
    e->batch->n_given++;
    note_token_time(e, seq);
    lp_engine_trace_token(e, seq, logits, drafted);
    return LP_OK;
}

// Samples behind the last known token, and on while drafts come true.
static lp_status sample(limpid_engine *e, struct part *p, struct lp_err *err) {
    struct lp_seq *seq = p->seq;
    int32_t n_draft = seq->n_draft;
    int64_t n_vocab = e->model->weights->h.n_vocab;
    const float *logits = e->logits + (p->first_logit + p->n_logits - 1 - n_draft) * n_vocab;
    const bool *bad = e->batch->bad + p->first_logit + p->n_logits - 1 - n_draft;
    const int32_t *largest = e->batch->largest + p->first_logit + p->n_logits - 1 - n_draft;
    const struct lp_top_row *const *tops =
        e->batch->tops + p->first_logit + p->n_logits - 1 - n_draft;
    if (seq->request->options.max_tokens == 0) {
        p->ended = true;
        return lp_output_end(seq, "length", err);
    }
    lp_status status = find_allowed(e, p, err);
    if (status || p->ended) return status;
    for (int32_t i = 0;; i++, logits += n_vocab) {
        p->has_bad = bad[i]; // a void row may be bad, one that is used may not
        if (p->has_bad) return LP_OK;
        status = one_token(e, p, logits, largest[i], tops[i], i < n_draft, err);
        if (!status) status = find_allowed(e, p, err);
        if (status || p->ended || i == n_draft) return status;
        if (seq->tokens[seq->n_tokens - 1] != seq->drafts[i]) return LP_OK;
        p->kept++;
        seq->n_computed++;
        seq->n_accepted++;
    }
}

// A costly grammar in a step that has spent its time on grammars: its token waits for the next step,
// which computes the last row again.
static bool must_wait(const limpid_engine *e, const struct lp_seq *seq) {
    return seq->constraint && seq->constraint_ns > COSTLY_GRAMMAR_NS &&
           e->batch->grammar_ns > STEP_GRAMMAR_NS;
}

static void take_part(limpid_engine *e, struct part *p, struct lp_err *err) {
    struct lp_batch *b = e->batch;
    struct lp_seq *seq = p->seq;
    int64_t past = seq->n_computed, n_known = p->n_rows - seq->n_draft;
    lp_status status = LP_OK;
    bool reaches_end = past + n_known == seq->n_tokens; // then sample() looks at the last row
    for (int64_t i = 0; i < p->n_logits - seq->n_draft - (reaches_end ? 1 : 0); i++)
        p->has_bad = p->has_bad || b->bad[p->first_logit + i];
    for (int64_t i = 0; i < n_known; i++) p->has_bad = p->has_bad || b->bad_rows[p->first_row + i];
    if (!p->has_bad && wants_prompt_logits(seq))
        status = lp_output_prompt(seq, past, p->n_logits,
                                  e->logits + p->first_logit * e->model->weights->h.n_vocab, err);
    if (reaches_end && must_wait(e, seq)) n_known--;
    p->kept = (int32_t)n_known;
    seq->n_computed += n_known;
    seq->n_drafted += seq->n_draft;
    if (!status && !p->has_bad && seq->n_computed == seq->n_tokens) {
        seq->request->prompt_done = true;
        status = sample(e, p, err);
    }
    seq->n_draft = 0;
    if (status) fail_part(p, err);
}

// ---- drafts

// The MTP layer takes up what the step kept, and drafts behind the answers.
static lp_status draft(limpid_engine *e, const struct lp_step *step, struct lp_err *err) {
    struct lp_batch *b = e->batch;
    int32_t n_draft = e->speculation.n_draft;
    for (int32_t i = 0; i < b->n_parts; i++) {
        struct part *p = &b->parts[i];
        struct lp_seq *seq = p->seq;
        int64_t past = b->spans[i].n_past;
        b->kept[i] = p->failed || p->has_bad || !seq->draft_whole ? 0 : p->kept;
        for (int32_t r = 0; r < b->kept[i]; r++) {
            int64_t next = past + r + 1;
            b->next_tokens[p->first_row + r] = next < seq->n_tokens ? seq->tokens[next] : -1;
        }
        b->drafting[i] = b->kept[i] > 0 && !p->ended && seq->n_tokens - seq->n_computed == 1 &&
                         seq->n_tokens + n_draft < e->n_context;
    }
    struct lp_draft draft = {.step = step,
                             .kept = b->kept,
                             .next_tokens = b->next_tokens,
                             .drafting = b->drafting,
                             .n_draft = n_draft,
                             .never = e->model->never,
                             .drafts = b->drafts};
    lp_status status = lp_runner_draft(e->runner, &draft, &e->settings, err);
    for (int32_t i = 0; i < b->n_parts && !status; i++) {
        struct lp_seq *seq = b->parts[i].seq;
        if (!b->drafting[i]) continue;
        seq->n_draft = n_draft;
        memcpy(seq->drafts, b->drafts + (size_t)i * (size_t)n_draft,
               (size_t)n_draft * sizeof *seq->drafts);
    }
    return status;
}

// ---- the end of a step

// Looks for the layer at fault. It takes the runner's buffers, so all else of the step is done.
static void explain_bad(limpid_engine *e, struct part *p) {
    struct lp_err why;
    lp_status status = lp_runner_find_bad(e->runner, &e->batch->spans[p - e->batch->parts],
                                          e->batch->tokens + p->first_row, &e->settings, &why);
    if (!status) return;
    fail_part(p, &why);
    lp_prefix_forget(e->prefix, p->seq->tokens, p->seq->n_tokens); // T5 of prefix.h
}

static void keep_prefix(limpid_engine *e, const struct part *p) {
    const struct lp_seq *seq = p->seq;
    int64_t before = seq->n_computed - p->kept;
    bool new_page = before / LP_KV_PAGE_TOKENS != seq->n_computed / LP_KV_PAGE_TOKENS;
    if (e->no_prefix_cache || p->failed || !(p->ended || new_page)) return;
    lp_prefix_insert(e->prefix, &seq->pages, seq->tokens, seq->n_computed, p->ended,
                     seq->draft_whole || e->speculation.n_draft == 0);
    if (p->ended) lp_prefix_save(e->prefix, seq->pages.part, seq->tokens, seq->n_computed);
}

// All parts of a request, whose memory may go with it.
static void end_request_of(limpid_engine *e, struct part *p, const struct lp_err *err) {
    limpid_request *r = p->request;
    for (int32_t i = 0; i < e->batch->n_parts; i++)
        if (e->batch->parts[i].request == r) e->batch->parts[i].request = NULL;
    lp_engine_end_request(e, r, err);
}

static void end_part(limpid_engine *e, struct part *p) {
    if (!p->request) return;
    keep_prefix(e, p);
    p->seq->n_scheduled = 0;
    if (p->failed)
        end_request_of(e, p, NULL);
    else if (p->ended)
        lp_engine_end_seq(e, p->seq);
}

static void note_step(limpid_engine *e, bool could_draft, bool drafted, uint64_t start_ns,
                      uint64_t draft_ns) {
    struct lp_batch *b = e->batch;
    double step_s = (double)(lp_clock_ns() - start_ns) * 1e-9;
    e->step_log.next = (limpid_step_info){.duration_s = step_s,
                                          .prompt_tokens = (int32_t)b->n_prompt,
                                          .answer_tokens = (int32_t)b->n_answer,
                                          .draft_tokens = (int32_t)b->n_draft,
                                          .sequences = b->n_parts};
    lp_histogram_add(&e->live.step_s, step_s);
    lp_histogram_add(&e->live.batch_tokens, (double)b->n_rows);
    lp_histogram_add(&e->live.batch_sequences, (double)b->n_parts);
    e->live.generated_tokens += (uint64_t)b->n_given;
    e->live.draft_tokens = e->speculation.n_drafted;
    e->live.accepted_tokens = e->speculation.n_accepted;
    memcpy(e->live.drafted_at, e->speculation.drafted_at, sizeof e->live.drafted_at);
    memcpy(e->live.accepted_at, e->speculation.accepted_at, sizeof e->live.accepted_at);
    if (could_draft && b->n_prompt == 0)
        lp_speculation_note(&e->speculation, drafted, (double)b->n_given, step_s,
                            (double)draft_ns * 1e-9);
}

static void fail_all(limpid_engine *e, const struct lp_err *err) {
    for (int32_t i = 0; i < e->batch->n_parts; i++)
        if (e->batch->parts[i].request) end_request_of(e, &e->batch->parts[i], err);
}

static void fail_step(limpid_engine *e, const struct lp_err *err) {
    e->live.device_failed = lp_runner_has_failed(e->runner);
    pthread_mutex_lock(&e->lock); // health tells it before any request does
    e->stats.device_failed = e->live.device_failed;
    pthread_mutex_unlock(&e->lock);
    fail_all(e, err);
}

// Before the step runs, so that a step that crashes has been told of.
static void trace_schedule(limpid_engine *e) {
    const struct lp_batch *b = e->batch;
    lp_trace_emit_schedule(
        e->trace, &(struct lp_trace_schedule){.step = (int64_t)lp_runner_next_step(e->runner),
                                              .answers = (int32_t)e->sched.n_answers,
                                              .n_running = e->sched.n_running,
                                              .n_waiting = (int32_t)e->sched.n_waiting,
                                              .answer_tokens = (int32_t)b->n_answer,
                                              .draft_tokens = (int32_t)b->n_draft,
                                              .prompt_tokens = (int32_t)b->n_prompt,
                                              .pages_free = lp_kv_n_free(e->kv)});
    for (int32_t i = 0; i < b->n_parts; i++) lp_engine_trace_chunk(e, b->parts[i].seq);
}

void lp_batch_run(limpid_engine *e, bool could_draft, bool drafts) {
    struct lp_batch *b = e->batch;
    uint64_t start_ns = lp_clock_ns(), draft_ns = 0;
    b->n_rows = b->n_logits = b->n_parts = 0;
    b->n_answer = b->n_draft = b->n_prompt = b->n_given = 0;
    b->grammar_ns = 0;
    add_parts(e, b);
    trace_schedule(e);
    struct lp_err why;
    lp_status status = lp_engine_reserve_logits(e, b->n_logits, &why);
    struct lp_step step = {.tokens = b->tokens,
                           .spans = b->spans,
                           .n_spans = b->n_parts,
                           .n_rows = b->n_rows,
                           .logit_rows = b->logit_rows,
                           .n_logit_rows = b->n_logits,
                           .logits = e->logits,
                           .greedy = b->greedy,
                           .never = e->model->never,
                           .largest = b->largest,
                           .draws = b->draws,
                           .tops = b->tops,
                           .bad = b->bad,
                           .bad_rows = b->bad_rows};
    while (LP_FAULT("hang-in-step") && e->live.steps >= 3) poll(NULL, 0, 1000);
    if (!status) status = lp_runner_step(e->runner, &step, &e->settings, &why);
    if (LP_FAULT("crash-in-step")) raise(SIGSEGV);
    if (status) {
        fail_step(e, &why);
        return;
    }
    for (int32_t i = 0; i < b->n_parts;
         i++) { // each in turn is the first, so that none waits forever
        struct part *p = &b->parts[(e->live.steps + (uint64_t)i) % (uint64_t)b->n_parts];
        struct lp_seq *seq = p->seq;
        int64_t accepted = seq->n_accepted;
        int32_t n_draft = seq->n_draft;
        take_part(e, p, &why);
        const int32_t n_true = (int32_t)(seq->n_accepted - accepted);
        lp_speculation_count(&e->speculation, n_draft, n_true);
        if (n_draft) lp_engine_trace_draft(e, seq, n_draft, n_true);
    }
    if (e->speculation.on) {
        uint64_t from = lp_clock_ns();
        status = draft(e, &step, &why);
        draft_ns = lp_clock_ns() - from;
        if (status) lp_log(LP_LOG_ERROR, "drafting failed: %s", why.text);
        if (status && lp_runner_has_failed(e->runner)) {
            fail_step(e, &why);
            return;
        }
    }
    for (int32_t i = 0; i < b->n_parts; i++)
        if (b->parts[i].has_bad) explain_bad(e, &b->parts[i]);
    for (int32_t i = 0; i < b->n_parts; i++) {
        if (b->parts[i].request && (!e->speculation.on || status))
            b->parts[i].seq->draft_whole = false;
        end_part(e, &b->parts[i]);
    }
    note_step(e, could_draft, drafts && b->n_draft > 0, start_ns, draft_ns);
}
