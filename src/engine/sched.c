#include "engine/sched.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "engine/request.h"

#define PROMPT_LOGPROB_ROWS 64 // most rows of a step whose logits all come to the host
#define DISK_PAGES 8 // most pages that one step reads from the store for a waiting sequence

lp_status lp_sched_init(struct lp_sched *sched, int32_t max_seqs, int32_t n_parts,
                        struct lp_err *err) {
    *sched = (struct lp_sched){0};
    sched->running = lp_alloc((size_t)max_seqs, sizeof(struct lp_seq *));
    sched->prompts = lp_alloc((size_t)max_seqs, sizeof(struct lp_seq *));
    sched->want = lp_alloc((size_t)max_seqs, sizeof *sched->want);
    sched->got = lp_alloc((size_t)max_seqs, sizeof *sched->got);
    sched->promised = lp_alloc((size_t)n_parts, sizeof *sched->promised);
    if (sched->running && sched->prompts && sched->want && sched->got && sched->promised)
        return LP_OK;
    lp_sched_release(sched);
    return lp_err_memory(err, (size_t)max_seqs * 4 * sizeof *sched->want, "the scheduler");
}

void lp_sched_release(struct lp_sched *sched) {
    lp_free(sched->running);
    lp_free(sched->prompts);
    lp_free(sched->want);
    lp_free(sched->got);
    lp_free(sched->promised);
    *sched = (struct lp_sched){0};
}

static bool is_senior(const struct lp_seq *a, const struct lp_seq *b) { // S3
    const struct limpid_request *x = a->request, *y = b->request;
    if (x->options.priority != y->options.priority)
        return x->options.priority > y->options.priority;
    if (x->arrival != y->arrival) return x->arrival < y->arrival;
    return a->choice < b->choice;
}

void lp_sched_enqueue(struct lp_sched *sched, struct lp_seq *seq) {
    struct lp_seq **at = &sched->waiting;
    while (*at && is_senior(*at, seq)) at = &(*at)->next;
    seq->next = *at;
    *at = seq;
    seq->state = LP_SEQ_WAITING;
    sched->n_waiting++;
}

static void leave_waiting(struct lp_sched *sched, struct lp_seq *seq) {
    struct lp_seq **at = &sched->waiting;
    while (*at != seq) at = &(*at)->next;
    *at = seq->next;
    sched->n_waiting--;
}

static void leave_running(struct lp_sched *sched, struct lp_seq *seq) {
    int32_t i = 0;
    while (sched->running[i] != seq) i++;
    for (sched->n_running--; i < sched->n_running; i++) sched->running[i] = sched->running[i + 1];
}

static void enter_running(struct lp_sched *sched, struct lp_seq *seq) {
    int32_t i = sched->n_running++;
    for (; i > 0 && is_senior(seq, sched->running[i - 1]); i--)
        sched->running[i] = sched->running[i - 1];
    sched->running[i] = seq;
    seq->state = LP_SEQ_RUNNING;
}

void lp_sched_remove(struct limpid_engine *e, struct lp_seq *seq) {
    if (seq->state == LP_SEQ_WAITING) leave_waiting(&e->sched, seq);
    if (seq->state == LP_SEQ_RUNNING) leave_running(&e->sched, seq);
    if (!seq->was_admitted && seq->state != LP_SEQ_ENDED) e->n_queued--;
    lp_page_table_release(&seq->pages, e->kv);
    seq->state = LP_SEQ_ENDED;
    seq->n_scheduled = 0;
}

// The most junior running sequence behind number i in its part of the cache; NULL: there is none.
static struct lp_seq *find_junior(const struct limpid_engine *e, int32_t i) {
    const struct lp_sched *s = &e->sched;
    for (int32_t k = s->n_running - 1; k > i; k--)
        if (s->running[k]->pages.part == s->running[i]->pages.part) return s->running[k];
    return NULL;
}

// A running sequence gives its pages back and waits again. What it has computed is noted first, so with luck
// it need not be computed again.
static void preempt(struct limpid_engine *e, struct lp_seq *seq) {
    if (!e->no_prefix_cache)
        lp_prefix_insert(e->prefix, &seq->pages, seq->tokens, seq->n_computed, false,
                         seq->draft_whole);
    leave_running(&e->sched, seq);
    lp_page_table_release(&seq->pages, e->kv);
    seq->n_computed = 0;
    seq->n_scheduled = 0;
    seq->n_draft = 0;
    seq->n_preempted++;
    e->sched.n_preempted++;
    lp_engine_trace_seq(e, seq, "pre-empted");
    lp_sched_enqueue(&e->sched, seq);
}

// ---- admission

static bool is_ready(const struct lp_seq *seq) { // S6
    return seq->choice == 0 || seq->request->prompt_done;
}

// Another choice in that part of the cache whose prompt this one can share; one that was pre-empted has an answer
// of its own.
static const struct lp_seq *forkable(const struct lp_seq *seq, int32_t part) {
    const struct limpid_request *r = seq->request;
    for (int32_t i = 0; i < r->n && seq->n_tokens == seq->n_prompt; i++)
        if (r->seqs[i].state == LP_SEQ_RUNNING && r->seqs[i].pages.part == part &&
            r->seqs[i].n_computed >= r->seqs[i].n_prompt)
            return &r->seqs[i];
    return NULL;
}

static bool needs_whole_prompt(const struct lp_seq *seq) {
    return seq->request->options.prompt_logprobs && seq->choice == 0 &&
           seq->n_tokens == seq->n_prompt;
}

// Takes what is known of the sequence's tokens: from another choice, or from the prefix tree. The
// last token is always computed. For drafting, the last known one is too: the MTP layer needs its
// hidden state.
static lp_status take_known(struct limpid_engine *e, struct lp_seq *seq, const char **source,
                            struct lp_err *err) {
    bool drafts = e->speculation.on;
    const struct lp_seq *sibling = forkable(seq, seq->pages.part);
    int64_t n = drafts ? seq->n_tokens : seq->n_tokens - 1;
    struct lp_prefix_match match = {.has_draft = drafts};
    lp_status status = LP_OK;
    if (sibling) {
        status = lp_prefix_fork(e->prefix, &seq->pages, &sibling->pages, n, drafts, &match.n_tokens,
                                err);
        match.has_draft = sibling->draft_whole;
    } else if (!e->no_prefix_cache && !needs_whole_prompt(seq))
        status = lp_prefix_attach(e->prefix, &seq->pages, seq->tokens, n, drafts, &match, err);
    if (status) return status;
    *source = match.n_tokens == 0 ? "none" : sibling ? "another choice" : "prefix tree";
    seq->n_computed = match.n_tokens - (drafts && match.n_tokens > 0 ? 1 : 0);
    seq->draft_whole = drafts && (match.has_draft || match.n_tokens == 0);
    return LP_OK;
}

// Pages for all its tokens and the next (S5).
static int64_t pages_for(const struct limpid_engine *e, const struct lp_seq *seq) {
    return lp_kv_pages_of(seq->n_tokens + 1 + (e->speculation.on ? e->speculation.n_draft : 0));
}

// How many of its tokens are known in a part; *n_shared: whole pages of them that somebody uses.
static int64_t look_up(const struct limpid_engine *e, const struct lp_seq *seq, int32_t part,
                       int64_t *n_shared) {
    *n_shared = 0;
    if (forkable(seq, part)) { // the page of the last token is never shared
        *n_shared = (seq->n_prompt - 1) / LP_KV_PAGE_TOKENS;
        return seq->n_prompt - 1;
    }
    if (e->no_prefix_cache || needs_whole_prompt(seq)) return 0;
    return lp_prefix_peek(e->prefix, part, seq->tokens, seq->n_tokens - 1, n_shared);
}

// S9. A known page is worth more than one that is free: it need not be computed. But the ranks whose parts these are
// run side by side, so a prefix that all requests have in common is not to bring all of them to one.
#define KNOWN_WORTH 8

int64_t lp_sched_part_worth(int64_t n_known, int64_t n_room) {
    return n_known / LP_KV_PAGE_TOKENS * KNOWN_WORTH + n_room;
}

// Sequences that were admitted and have not got all their pages yet count as if they had: those of one plan would
// all go to the same part. (Where there is one part they are pre-empted if it comes to it.)
static void count_promised(struct limpid_engine *e) {
    struct lp_sched *s = &e->sched;
    const int32_t n_parts = lp_kv_n_parts(e->kv);
    for (int32_t i = 0; i < n_parts; i++) s->promised[i] = 0;
    for (int32_t i = 0; i < s->n_running && n_parts > 1; i++) {
        const int64_t left = pages_for(e, s->running[i]) - s->running[i]->pages.n_pages;
        if (left > 0) s->promised[s->running[i]->pages.part] += left;
    }
}

// Whether there are pages for it in a part (cached prefixes may go for it), and what the part is worth to it.
static bool fits(const struct limpid_engine *e, const struct lp_seq *seq, int32_t part,
                 int64_t *worth) {
    const int64_t promised = e->sched.promised[part],
                  n_free = lp_kv_n_free_in(e->kv, part) - promised, need = pages_for(e, seq);
    int64_t n_shared;
    *worth = 0;
    if (lp_kv_n_parts(e->kv) == 1 && need <= n_free) return true;
    const int64_t n_known = look_up(e, seq, part, &n_shared),
                  room = n_free + lp_kv_n_idle_in(e->kv, part);
    *worth = lp_sched_part_worth(n_known, room);
    return need <= n_free || need - n_shared <= room;
}

// The part that a waiting sequence would run in: one that it fits into, if there is any, then the worthiest.
static bool choose_part(struct limpid_engine *e, struct lp_seq *seq) {
    bool any = false;
    int64_t most = 0, worth;
    count_promised(e);
    for (int32_t part = 0; part < lp_kv_n_parts(e->kv); part++) {
        const bool fit = fits(e, seq, part, &worth);
        if (part > 0 && (fit == any ? worth <= most : any)) continue;
        any = fit;
        most = worth;
        seq->pages.part = part;
    }
    return any;
}

// False: more pages are to come from disk, in later steps, while others run.
static bool load_from_disk(struct limpid_engine *e, struct lp_seq *seq) {
    int64_t n = DISK_PAGES;
    while (n == DISK_PAGES && e->store && !e->no_prefix_cache && !needs_whole_prompt(seq)) {
        n = lp_prefix_load(e->prefix, seq->pages.part, seq->tokens, seq->n_tokens - 1, DISK_PAGES);
        if (!seq->was_admitted) seq->n_cached_disk += n * LP_KV_PAGE_TOKENS;
        if (n == DISK_PAGES && e->sched.n_running > 0) return false;
    }
    return true;
}

static void admit(struct limpid_engine *e, struct lp_seq *seq) {
    struct lp_err ignored;
    const char *source = "none";
    if (take_known(e, seq, &source, &ignored))
        seq->n_computed = 0; // without memory: nothing is known
    if (!seq->was_admitted) {
        seq->n_cached = seq->n_computed;
        seq->admitted_ns = lp_clock_ns();
        seq->was_admitted = true;
        e->n_queued--;
        if (seq->choice == 0) {
            e->live.prompt_tokens += (uint64_t)seq->n_prompt;
            e->live.cached_tokens += (uint64_t)seq->n_cached;
            e->live.cached_disk_tokens += (uint64_t)seq->n_cached_disk;
        }
    }
    leave_waiting(&e->sched, seq);
    enter_running(&e->sched, seq);
    lp_engine_trace_seq(e, seq, "admitted");
    lp_engine_trace_cache(e, seq, source);
}

static void admit_waiting(struct limpid_engine *e) {
    struct lp_seq *seq = e->sched.waiting, *next;
    for (; seq && e->sched.n_running < e->max_seqs; seq = next) {
        next = seq->next;
        if (!is_ready(seq)) continue;
        if (!choose_part(e, seq) && e->sched.n_running > 0) return;
        if (!load_from_disk(e, seq)) return;
        admit(e, seq);
    }
}

// ---- the step

void lp_sched_share(int64_t budget, const int64_t *want, int32_t n, int64_t *got) {
    int64_t half = (budget + 1) / 2;
    for (int32_t i = 0; i < n; i++) got[i] = 0;
    for (bool first = true; budget > 0; first = false) {
        int32_t n_open = 0;
        for (int32_t i = 0; i < n; i++) n_open += got[i] < want[i];
        if (n_open == 0) return;
        int64_t share = budget / n_open > 0 ? budget / n_open : 1;
        for (int32_t i = 0; i < n && budget > 0; i++) {
            int64_t most = first && i == 0 && half > share ? half : share;
            int64_t take = want[i] - got[i] < most ? want[i] - got[i] : most;
            if (take > budget) take = budget;
            got[i] += take;
            budget -= take;
            if (first && i == 0 && n_open > 1) share = budget / (n_open - 1);
            if (share == 0) share = 1;
        }
    }
}

static int64_t left(const struct lp_seq *seq) {
    return seq->n_tokens - seq->n_computed;
}

// S1: one token each, drafts (at most half of the rest, where there are prompts), prompts.
static void share_budget(struct limpid_engine *e, bool drafts) {
    struct lp_sched *s = &e->sched;
    int64_t budget = e->max_batch_tokens, *want = s->want, *got = s->got;
    struct lp_seq **prompts = s->prompts;
    int32_t n_prompts = 0;
    bool has_prompts = false;
    s->n_answers = 0;
    for (int32_t i = 0; i < s->n_running; i++) {
        struct lp_seq *seq = s->running[i];
        s->n_answers += left(seq) == 1;
        bool answers = left(seq) == 1 && budget > 0;
        has_prompts = has_prompts || left(seq) > 1;
        seq->n_scheduled = answers ? 1 : 0;
        budget -= seq->n_scheduled;
        if (!answers || !drafts || !seq->draft_whole) seq->n_draft = 0;
    }
    int64_t for_drafts = has_prompts ? budget / 2 : budget;
    for (int32_t i = 0; i < s->n_running; i++) {
        struct lp_seq *seq = s->running[i];
        if (left(seq) == 1) {
            if (seq->n_draft > for_drafts) seq->n_draft = (int32_t)for_drafts;
            if (seq->n_scheduled == 0) seq->n_draft = 0;
            seq->n_scheduled += seq->n_draft;
            for_drafts -= seq->n_draft;
            budget -= seq->n_draft;
            continue;
        }
        int64_t most = e->chunk;
        if (needs_whole_prompt(seq) && most > PROMPT_LOGPROB_ROWS) most = PROMPT_LOGPROB_ROWS;
        want[n_prompts] = left(seq) < most ? left(seq) : most;
        prompts[n_prompts++] = seq;
    }
    lp_sched_share(budget, want, n_prompts, got);
    for (int32_t i = 0; i < n_prompts; i++) prompts[i]->n_scheduled = got[i];
}

// Pages for what sequence i runs in this step (S4). Where they are short a prompt takes fewer.
static lp_status give_pages(struct limpid_engine *e, int32_t i, struct lp_err *err) {
    struct lp_sched *s = &e->sched;
    struct lp_seq *seq = s->running[i];
    int64_t ahead = seq->draft_whole ? 1 + e->speculation.n_draft : 0;
    for (;;) {
        lp_status status =
            lp_engine_grow(e, &seq->pages, seq->n_computed + seq->n_scheduled + ahead, err);
        if (status != LP_STATUS_LIMIT) return status;
        struct lp_seq *junior = find_junior(e, i);
        if (junior) {
            preempt(e, junior);
            continue;
        }
        const int64_t n_free = lp_kv_n_free_in(e->kv, seq->pages.part);
        int64_t room = (seq->pages.n_pages + n_free) * LP_KV_PAGE_TOKENS - seq->n_computed - ahead;
        if (room <= 0 || seq->n_scheduled <= 1) break;
        seq->n_draft = 0;
        seq->n_scheduled = left(seq) == 1 ? 1 : room < seq->n_scheduled ? room : seq->n_scheduled;
    }
    seq->n_scheduled = 0; // seniors will give pages back
    seq->n_draft = 0;
    return LP_STATUS_LIMIT;
}

bool lp_sched_has_answers(const struct lp_sched *s) {
    for (int32_t i = 0; i < s->n_running; i++)
        if (left(s->running[i]) == 1) return true;
    return false;
}

int64_t lp_sched_plan(struct limpid_engine *e, bool drafts, struct lp_seq **refused,
                      struct lp_err *err) {
    struct lp_sched *s = &e->sched;
    int64_t n_rows = 0;
    *refused = NULL;
    admit_waiting(e);
    share_budget(e, drafts);
    for (int32_t i = 0; i < s->n_running; i++) {
        struct lp_seq *seq = s->running[i];
        if (seq->n_scheduled == 0) continue;
        lp_status status = give_pages(e, i, err);
        n_rows += seq->n_scheduled;
        if (status && (status != LP_STATUS_LIMIT || (i == 0 && n_rows == 0))) {
            *refused = seq; // S5: nobody is left who could give pages
            return 0;
        }
    }
    return n_rows;
}
