// The scheduler with a model that only pretends: the state of a token is a hash (kv_state.h), the answer
// is random. S1 to S6 and S9 of sched.h are looked at in every step of random lives on tiny caches, and the
// state of each sequence must be that of its own tokens, whatever was shared, evicted and computed
// again.
#include "lp_test.h"

#include "base/alloc.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "engine/request.h"
#include "kv_state.h"

#ifdef __SANITIZE_ADDRESS__
#define N_STEPS 200000
#else
#define N_STEPS 1000000
#endif

enum { PAGE = LP_KV_PAGE_TOKENS, MAX_JOBS = 24, MAX_CHOICES = 3, MAX_RUNNING = 8 };

struct job { // a request and what it will do
    struct limpid_request r;
    struct lp_seq seqs[MAX_CHOICES];
    int64_t answer[MAX_CHOICES]; // tokens until its end
};

struct world {
    struct limpid_engine e;
    struct lp_device *dev;
    struct lp_rng rng;
    struct job *jobs[MAX_JOBS];
    int n_jobs;
    int64_t n_submitted, n_ended;    // sequences
    struct lp_page_table outside;    // pages of a limpid_sequence
    struct lp_seq *was[MAX_RUNNING]; // running before the plan
    int32_t was_in[MAX_RUNNING];     // the parts of the cache they were in
    int n_was;
    uint64_t n_preempted, n_shared_tokens; // to know that it was about something
};

static int64_t below(struct world *w, int64_t n) {
    return (int64_t)(lp_rng_u64(&w->rng) % (uint64_t)n);
}

static void open_world(struct world *w, uint64_t seed, int32_t n_parts) {
    struct limpid_engine *e = &w->e;
    *w = (struct world){.dev = state_device()};
    lp_rng_init(&w->rng, seed);
    e->n_context = 20 + below(w, 3 * PAGE);
    e->max_seqs = 1 + (int32_t)below(w, MAX_RUNNING);
    e->max_batch_tokens = e->max_seqs + (below(w, 2) ? below(w, 6) : below(w, 200));
    e->chunk = 1 + below(w, e->max_batch_tokens);
    e->no_prefix_cache = below(w, 5) == 0;
    lp_speculation_init(&e->speculation, below(w, 2) ? 1 + (int32_t)below(w, 4) : 0);
    // As settings.c has it: a context, a page for a copy, one for drafts; and a few more.
    int64_t n_pages = lp_kv_pages_of(e->n_context) + 1 + (e->speculation.n_draft > 0) + below(w, 6);
    e->kv = state_kv(w->dev, n_pages);
    if (n_parts > 1) state_divide(e->kv, n_parts, w->dev);
    assert_int_equal(lp_prefix_new(&e->prefix, e->kv, NULL, NULL), LP_OK);
    assert_int_equal(lp_sched_init(&e->sched, e->max_seqs, n_parts, NULL), LP_OK);
}

static void close_world(struct world *w) {
    assert_int_equal(w->n_submitted, w->n_ended);
    assert_int_equal(w->e.n_queued, 0);
    assert_int_equal(w->e.sched.n_waiting, 0);
    assert_null(w->e.sched.waiting);
    lp_page_table_release(&w->outside, w->e.kv);
    lp_prefix_free(w->e.prefix);
    assert_int_equal(lp_kv_n_free(w->e.kv), lp_kv_n_pages(w->e.kv)); // nothing was lost
    lp_sched_release(&w->e.sched);
    for (int32_t i = 1; i < lp_kv_n_parts(w->e.kv); i++) lp_kv_free(state_elsewhere[i]);
    lp_kv_free(w->e.kv);
    lp_backend_ref.close(w->dev);
}

// ---- requests

static void fill_prompt(struct world *w, int32_t *tokens, int64_t n) {
    int32_t system = (int32_t)below(w, 3); // a few beginnings that many share
    int64_t shared = below(w, 3) ? below(w, 2 * PAGE + 1) : 0;
    for (int64_t i = 0; i < n; i++)
        tokens[i] = i < shared ? 100 + system : 1 + (int32_t)below(w, 2);
}

// answer 0: of any length.
static struct job *submit(struct world *w, int64_t n_prompt, int32_t n, int64_t answer,
                          int32_t priority, bool prompt_logprobs) {
    struct job *job = calloc(1, sizeof *job);
    struct limpid_request *r = &job->r;
    r->engine = &w->e;
    r->options = limpid_request_default_options();
    r->options.priority = priority;
    r->options.prompt_logprobs = prompt_logprobs;
    r->arrival = w->e.n_arrivals++;
    r->seqs = job->seqs;
    r->n = n;
    for (int32_t i = 0; i < n; i++) {
        struct lp_seq *seq = &job->seqs[i];
        seq->request = r;
        seq->choice = i;
        seq->n_tokens = seq->n_prompt = n_prompt;
        seq->capacity = w->e.n_context + 1;
        seq->tokens = calloc((size_t)seq->capacity, sizeof *seq->tokens);
        if (i == 0)
            fill_prompt(w, seq->tokens, n_prompt);
        else
            memcpy(seq->tokens, job->seqs[0].tokens, (size_t)n_prompt * sizeof *seq->tokens);
        job->answer[i] = answer ? answer : 1 + below(w, below(w, 4) ? 20 : 2 * PAGE);
    }
    w->e.n_queued += n;
    w->n_submitted += n;
    for (int32_t i = 0; i < n; i++) lp_sched_enqueue(&w->e.sched, &job->seqs[i]);
    assert_true(w->n_jobs < MAX_JOBS);
    w->jobs[w->n_jobs++] = job;
    return job;
}

static void end_seq(struct world *w, struct lp_seq *seq) {
    if (seq->state == LP_SEQ_ENDED) return;
    lp_sched_remove(&w->e, seq);
    assert_int_equal(seq->state, LP_SEQ_ENDED);
    assert_int_equal(seq->pages.n_pages, 0);
    seq->request->n_ended++;
    w->n_ended++;
}

static void end_request(struct world *w, struct limpid_request *r) { // cancelled or failed
    for (int32_t i = 0; i < r->n; i++) end_seq(w, &r->seqs[i]);
}

static void sweep(struct world *w) {
    for (int i = 0; i < w->n_jobs; i++) {
        struct job *job = w->jobs[i];
        if (job->r.n_ended < job->r.n) continue;
        for (int32_t c = 0; c < job->r.n; c++) free(job->seqs[c].tokens);
        free(job);
        w->jobs[i--] = w->jobs[--w->n_jobs];
    }
}

// ---- the rules

static bool is_senior(const struct lp_seq *a, const struct lp_seq *b) { // S3
    int32_t x = a->request->options.priority, y = b->request->options.priority;
    if (x != y) return x > y;
    if (a->request != b->request) return a->request->arrival < b->request->arrival;
    return a->choice < b->choice;
}

static int64_t ahead_of(const struct limpid_engine *e, const struct lp_seq *seq) {
    return seq->draft_whole ? 1 + e->speculation.n_draft : 0;
}

static int64_t obtainable(const struct limpid_engine *e, int32_t part) {
    return lp_kv_n_free_in(e->kv, part) + lp_kv_n_idle_in(e->kv, part);
}

static int64_t pages_for(const struct limpid_engine *e, const struct lp_seq *seq) {
    return lp_kv_pages_of(seq->n_tokens + 1 + (e->speculation.on ? e->speculation.n_draft : 0));
}

// Of a cache with several parts, pages that running sequences will take.
static int64_t promised(const struct limpid_engine *e, int32_t part) {
    int64_t sum = 0;
    for (int32_t i = 0; i < e->sched.n_running && lp_kv_n_parts(e->kv) > 1; i++) {
        const struct lp_seq *seq = e->sched.running[i];
        const int64_t left = pages_for(e, seq) - seq->pages.n_pages;
        if (seq->pages.part == part && left > 0) sum += left;
    }
    return sum;
}

static void check_order(const struct limpid_engine *e) {
    int64_t n = 0;
    assert_true(e->sched.n_running <= e->max_seqs);
    for (int32_t i = 0; i < e->sched.n_running; i++) {
        const struct lp_seq *seq = e->sched.running[i];
        assert_int_equal(seq->state, LP_SEQ_RUNNING);
        assert_true(i == 0 || is_senior(e->sched.running[i - 1], seq));
        assert_true(seq->choice == 0 || seq->request->prompt_done); // S6
        assert_true(seq->was_admitted);
    }
    for (const struct lp_seq *seq = e->sched.waiting; seq; seq = seq->next, n++) {
        assert_int_equal(seq->state, LP_SEQ_WAITING);
        assert_int_equal(seq->pages.n_pages, 0);
        assert_true(!seq->next || is_senior(seq, seq->next));
    }
    assert_int_equal(n, e->sched.n_waiting);
}

static void check_rows(const struct limpid_engine *e, int64_t n_rows) { // S1, and pages for it
    int64_t sum = 0;
    for (int32_t i = 0; i < e->sched.n_running; i++) {
        const struct lp_seq *seq = e->sched.running[i];
        int64_t left = seq->n_tokens - seq->n_computed, n = seq->n_scheduled;
        sum += n;
        assert_true(left > 0);
        assert_true(n >= 0 && n <= left + seq->n_draft);
        assert_true(seq->n_draft == 0 || (left == 1 && n == 1 + seq->n_draft && seq->draft_whole));
        assert_true(left == 1 || n <= e->chunk);
        assert_true(i > 0 || n > 0); // S4: the most senior always advances
        int64_t need = seq->n_computed + (n ? n : 1) + ahead_of(e, seq);
        if (n > 0)
            assert_true(lp_kv_pages_of(need) <= seq->pages.n_pages);
        else if (left == 1) // only pages can be what it lacks
            assert_true(lp_kv_pages_of(need) - seq->pages.n_pages > obtainable(e, seq->pages.part));
    }
    assert_int_equal(sum, n_rows);
    assert_true(sum <= e->max_batch_tokens);
}

static void check_preempted(struct world *w) { // S4
    const struct limpid_engine *e = &w->e;
    for (int i = 0; i < w->n_was; i++) {
        if (w->was[i]->state != LP_SEQ_WAITING) continue;
        assert_true(w->was[i]->n_preempted > 0);
        for (int32_t k = 0; k < e->sched.n_running; k++)
            assert_true(e->sched.running[k]->pages.part != w->was_in[i] ||
                        is_senior(e->sched.running[k], w->was[i]));
    }
}

static void check_waiting(const struct world *w, bool preempted) { // S5
    const struct limpid_engine *e = &w->e;
    if (preempted || e->sched.n_running == e->max_seqs) return;
    for (const struct lp_seq *seq = e->sched.waiting; seq; seq = seq->next) {
        if (seq->choice > 0 && !seq->request->prompt_done) continue;
        for (int32_t part = 0; part < lp_kv_n_parts(e->kv); part++)
            assert_true(pages_for(e, seq) > obtainable(e, part) - promised(e, part));
        return;
    }
}

static void check_admitted(struct world *w) { // what it was given is its own
    for (int32_t i = 0; i < w->e.sched.n_running; i++) {
        struct lp_seq *seq = w->e.sched.running[i];
        bool is_new = true;
        for (int k = 0; k < w->n_was; k++) is_new = is_new && w->was[k] != seq;
        if (!is_new) continue;
        assert_true(seq->n_computed < seq->n_tokens);
        assert_true(!(seq->request->options.prompt_logprobs && seq->choice == 0 &&
                      seq->n_tokens == seq->n_prompt) ||
                    seq->n_computed == 0);
        state_check(w->e.kv, &seq->pages, seq->tokens, seq->n_computed, seq->draft_whole);
        w->n_shared_tokens += (uint64_t)seq->n_computed;
    }
}

// ---- a step

static bool take_token(struct world *w, struct lp_seq *seq, int32_t token) {
    seq->tokens[seq->n_tokens++] = token;
    const struct job *job = (const struct job *)seq->request;
    return seq->n_tokens - seq->n_prompt >= job->answer[seq->choice] ||
           seq->n_tokens > w->e.n_context;
}

// The rows of a sequence, as batch.c runs them. True: its answer has ended.
static bool run_rows(struct world *w, struct lp_seq *seq) {
    struct lp_kv *kv = w->e.kv;
    int64_t past = seq->n_computed, n_known = seq->n_scheduled - seq->n_draft;
    int64_t behind = past + seq->n_scheduled + ahead_of(&w->e, seq);
    int32_t n_draft = seq->n_draft;
    bool ended = false;
    for (int64_t i = past + n_known; i < past + seq->n_scheduled; i++) // drafts: of other tokens
        state_write(kv, &seq->pages, i, lp_rng_u64(&w->rng), false);
    seq->n_computed += n_known;
    seq->n_draft = 0;
    if (seq->n_computed == seq->n_tokens) {
        seq->request->prompt_done = true;
        for (int32_t i = 0;; i++) { // some drafts come true
            ended = take_token(w, seq, 1 + (int32_t)below(w, 2));
            if (ended || i == n_draft || below(w, 2)) break;
            seq->n_computed++;
        }
    }
    uint64_t hash = 0;
    for (int64_t i = 0; i < seq->n_tokens; i++) {
        hash = state_next(hash, seq->tokens[i]);
        if (i >= past && i < seq->n_computed) state_write(kv, &seq->pages, i, hash, false);
        if (seq->draft_whole && i > past && i <= seq->n_computed)
            *state_slot(kv, STATE_DRAFT, &seq->pages, i) = ~hash;
    }
    if (!seq->draft_whole) return ended;
    for (int64_t slot = seq->n_computed + 1; slot < behind; slot++) { // the chain of drafts
        assert_int_equal(lp_kv_page_refs(kv, seq->pages.pages[slot / PAGE]), 1);
        *state_slot(kv, STATE_DRAFT, &seq->pages, slot) = lp_rng_u64(&w->rng);
    }
    if (!w->e.speculation.on)
        seq->draft_whole = false;
    else if (!ended && seq->n_tokens - seq->n_computed == 1 &&
             seq->n_tokens + w->e.speculation.n_draft < w->e.n_context)
        seq->n_draft = w->e.speculation.n_draft;
    return ended;
}

static void run_batch(struct world *w) {
    struct limpid_engine *e = &w->e;
    struct lp_seq *seqs[MAX_RUNNING];
    int32_t n = 0;
    for (int32_t i = 0; i < e->sched.n_running; i++)
        if (e->sched.running[i]->n_scheduled > 0) seqs[n++] = e->sched.running[i];
    for (int32_t i = 0; i < n; i++) {
        struct lp_seq *seq = seqs[i];
        int64_t past = seq->n_computed;
        bool ended = run_rows(w, seq);
        if (!e->no_prefix_cache && (ended || past / PAGE != seq->n_computed / PAGE))
            lp_prefix_insert(e->prefix, &seq->pages, seq->tokens, seq->n_computed, ended,
                             seq->draft_whole || e->speculation.n_draft == 0);
        if (ended) {
            state_check(e->kv, &seq->pages, seq->tokens, seq->n_computed, seq->draft_whole);
            end_seq(w, seq);
        }
    }
}

static void step(struct world *w) {
    struct limpid_engine *e = &w->e;
    struct lp_seq *refused;
    struct lp_err err = {0};
    uint64_t preempted = e->sched.n_preempted;
    bool no_memory = below(w, 300) == 0;
    w->n_was = 0;
    for (int32_t i = 0; i < e->sched.n_running; i++) {
        w->was_in[w->n_was] = e->sched.running[i]->pages.part;
        w->was[w->n_was++] = e->sched.running[i];
    }
    if (no_memory) lp_alloc_fail_after(1 + (size_t)below(w, 6));
    int64_t n_rows = lp_sched_plan(e, below(w, 8) > 0, &refused, &err);
    lp_alloc_fail_after(0);
    check_order(e);
    if (refused && err.status == LP_STATUS_MEMORY) {
        assert_true(no_memory);
        end_request(w, refused->request);
    } else if (refused) { // S5: only where somebody outside holds the pages
        assert_true(w->outside.n_pages > 0);
        assert_int_equal(n_rows, 0);
        assert_int_equal(err.status, LP_STATUS_LIMIT);
        assert_ptr_equal(refused, e->sched.running[0]);
        for (int32_t i = 1; i < e->sched.n_running; i++)
            assert_int_not_equal(e->sched.running[i]->pages.part, refused->pages.part);
        end_request(w, refused->request);
    } else { // never idle with a queue
        assert_true(n_rows > 0 || (e->sched.n_running == 0 && !e->sched.waiting));
        check_rows(e, n_rows);
        check_preempted(w);
        check_waiting(w, e->sched.n_preempted != preempted);
        check_admitted(w);
        run_batch(w);
    }
    w->n_preempted += e->sched.n_preempted - preempted;
    sweep(w);
}

static void outside_pages(struct world *w) {
    if (w->outside.n_pages > 0) {
        lp_page_table_release(&w->outside, w->e.kv);
        return;
    }
    w->outside.part = lp_engine_roomiest_part(&w->e);
    lp_engine_grow(&w->e, &w->outside, 1 + below(w, 4 * PAGE), NULL);
}

static void simulate(struct world *w, int n_steps, bool with_outside) {
    int64_t per_mille = 1 + below(w, 300);
    for (int i = 0; i < n_steps; i++) {
        if (w->n_jobs < MAX_JOBS && below(w, 1000) < per_mille)
            submit(w, 1 + below(w, w->e.n_context - 1), below(w, 5) ? 1 : 1 + (int32_t)below(w, 3),
                   0, below(w, 4) ? 0 : (int32_t)below(w, 3) - 1, below(w, 10) == 0);
        if (w->n_jobs > 0 && below(w, 200) == 0) {
            end_request(w, &w->jobs[below(w, w->n_jobs)]->r);
            sweep(w);
        }
        if (with_outside && below(w, 50) == 0) outside_pages(w);
        if (w->e.speculation.n_draft > 0 && below(w, 300) == 0)
            w->e.speculation.on = !w->e.speculation.on;
        step(w);
    }
    if (w->outside.n_pages > 0) outside_pages(w);
    // Everybody comes to an end: at most all tokens of all, each computed anew a few times.
    int64_t most = w->n_jobs * MAX_CHOICES * 4 * w->e.n_context;
    while (w->n_jobs > 0) {
        assert_true(most-- > 0);
        step(w);
    }
}

static void never_idle_with_a_queue(void **state) {
    (void)state;
    enum { STEPS = 1000 };
    static struct world w;
    uint64_t n_preempted = 0, n_shared = 0;
    for (int i = 0; i < N_STEPS / STEPS; i++) {
        open_world(&w, (uint64_t)i, i % 2 ? 1 : 1 + i / 2 % STATE_MAX_PARTS);
        simulate(&w, STEPS, i % 4 == 3);
        close_world(&w);
        n_preempted += w.n_preempted;
        n_shared += w.n_shared_tokens;
    }
    assert_true(n_preempted > N_STEPS / 1000); // else the caches were too large to test anything
    assert_true(n_shared > N_STEPS / 100);
}

// Of more requests than places, with one prompt: each comes to its end, and in order.
static void a_hundred_requests_on_two_slots(void **state) {
    (void)state;
    static struct world w;
    int64_t n_given = 0, n_steps = 0, last = -1;
    open_world(&w, 4, 1);
    w.e.max_seqs = 2;
    w.e.no_prefix_cache = false;
    while (w.n_ended < 100) {
        while (n_given < 100 && w.n_jobs < MAX_JOBS) {
            struct job *job = submit(&w, 10, 1, 5, 0, false);
            for (int i = 0; i < 10; i++) job->seqs[0].tokens[i] = 50 + i;
            n_given++;
        }
        step(&w);
        for (int32_t i = 0; i < w.e.sched.n_running; i++) {
            int64_t arrival = (int64_t)w.e.sched.running[i]->request->arrival;
            assert_true(arrival <= last + 2);
            if (arrival > last) last = arrival;
        }
        assert_true(n_steps++ < 100 * 15);
    }
    close_world(&w);
}

// ---- parts of the cache

static struct lp_seq *submit_text(struct world *w, int64_t n, int32_t text) {
    struct job *job = submit(w, n, 1, 1, 0, false);
    for (int64_t i = 0; i < n; i++) job->seqs[0].tokens[i] = 1000 * text + (int32_t)i;
    return &job->seqs[0];
}

static void end_all(struct world *w) {
    while (w->n_jobs > 0) {
        end_request(w, &w->jobs[0]->r);
        sweep(w);
    }
}

// Three parts of eight pages. S9.
static void sequences_go_where_there_is_room(void **state) {
    (void)state;
    static struct world w;
    struct lp_seq *refused, *seqs[3], *again;
    open_world(&w, 4, 1);
    lp_prefix_free(w.e.prefix);
    lp_kv_free(w.e.kv);
    lp_sched_release(&w.e.sched);
    w.e.kv = state_kv(w.dev, 8);
    state_divide(w.e.kv, 3, w.dev);
    assert_int_equal(lp_prefix_new(&w.e.prefix, w.e.kv, NULL, NULL), LP_OK);
    assert_int_equal(lp_sched_init(&w.e.sched, 8, 3, NULL), LP_OK);
    w.e.max_seqs = 8;
    w.e.n_context = 7 * PAGE;
    w.e.max_batch_tokens = w.e.chunk = 8 * PAGE;
    w.e.no_prefix_cache = false;
    lp_speculation_init(&w.e.speculation, 0);
    for (int i = 0; i < 3; i++) seqs[i] = submit_text(&w, 3 * PAGE, i + 1);
    assert_true(lp_sched_plan(&w.e, false, &refused, NULL) > 0);
    for (int i = 0; i < 3; i++) assert_int_equal(seqs[i]->pages.part, i); // of one plan
    run_batch(&w);
    end_all(&w);
    // Its text is known in part 1, which has less room than the others then.
    again = submit_text(&w, 3 * PAGE, 2);
    assert_true(lp_sched_plan(&w.e, false, &refused, NULL) > 0);
    assert_int_equal(again->pages.part, 1);
    assert_true(again->n_computed >= 2 * PAGE);
    // Where there is no room for more of it, it is computed again elsewhere.
    again->n_computed = 3 * PAGE - 1;
    assert_int_equal(lp_engine_grow(&w.e, &again->pages, 7 * PAGE, NULL), LP_OK);
    again = submit_text(&w, 6 * PAGE, 2);
    assert_true(lp_sched_plan(&w.e, false, &refused, NULL) > 0);
    assert_int_not_equal(again->pages.part, 1);
    assert_int_equal(again->n_cached, 0);
    end_all(&w);
    close_world(&w);
    // What all have in common does not bring all to one part.
    assert_true(lp_sched_part_worth(2 * PAGE, 40) < lp_sched_part_worth(0, 60));
    assert_true(lp_sched_part_worth(2 * PAGE, 40) > lp_sched_part_worth(0, 50));
    assert_int_equal(lp_sched_part_worth(PAGE - 1, 7),
                     7); // what is not a page is not worth going for
}

// ---- the share

static void shares_are_fair(void **state) {
    (void)state;
    struct lp_rng rng;
    lp_rng_init(&rng, 5);
    for (int round = 0; round < 200000; round++) {
        int64_t want[12], got[12], sum = 0, all = 0;
        int32_t n = (int32_t)(lp_rng_u64(&rng) % 13);
        int64_t budget = (int64_t)(lp_rng_u64(&rng) % (round % 2 ? 20 : 600));
        for (int32_t i = 0; i < n; i++) {
            want[i] = 1 + (int64_t)(lp_rng_u64(&rng) % (lp_rng_u64(&rng) % 2 ? 8 : 512));
            all += want[i];
        }
        lp_sched_share(budget, want, n, got);
        for (int32_t i = 0; i < n; i++) {
            assert_true(got[i] >= 0 && got[i] <= want[i]);
            sum += got[i];
        }
        assert_int_equal(sum, all < budget ? all : budget); // nothing is left unused
        if (n == 0) continue;
        int64_t half = budget / 2;
        assert_true(got[0] >= (want[0] < half ? want[0] : half)); // the senior
        for (int32_t i = 1; i < n; i++) {
            if (budget >= 2 * n) assert_true(got[i] > 0); // nobody starves
            for (int32_t k = 1; k < n; k++) // equal, but for who wants less, and the remainder
                assert_true(got[i] == want[i] || got[i] >= got[k] - 1);
        }
    }
}

// Drafts do not eat what prompts need: the most senior advances whatever the others guess.
static void drafts_leave_room_for_prompts(void **state) {
    (void)state;
    struct lp_seq *refused;
    static struct world w;
    open_world(&w, 1, 1);
    lp_kv_free(w.e.kv);
    lp_prefix_free(w.e.prefix);
    w.e.kv = state_kv(w.dev, 40);
    assert_int_equal(lp_prefix_new(&w.e.prefix, w.e.kv, NULL, NULL), LP_OK);
    lp_sched_release(&w.e.sched);
    assert_int_equal(lp_sched_init(&w.e.sched, 4, 1, NULL), LP_OK);
    w.e.max_seqs = 4;
    w.e.n_context = 200;
    w.e.max_batch_tokens = w.e.chunk = 8;
    w.e.no_prefix_cache = true;
    lp_speculation_init(&w.e.speculation, 4);
    for (int i = 0; i < 4; i++) submit(&w, 100, 1, 50, 0, false);
    for (int round = 0; round < 60; round++) {
        assert_int_equal(lp_sched_plan(&w.e, true, &refused, NULL), 8);
        for (int32_t i = 0; i < 4; i++) { // the juniors answer, with as many drafts as may be
            struct lp_seq *seq = w.e.sched.running[i];
            seq->n_computed = i == 0 ? 10 : seq->n_tokens - 1;
            seq->draft_whole = true;
            assert_true(round == 0 || seq->n_scheduled > 0);
            assert_true(round == 0 || i > 0 || seq->n_scheduled >= 3); // half of 8 - 3
            seq->n_draft = i == 0 ? 0 : 4;
        }
    }
    while (w.n_jobs > 0) {
        end_request(&w, &w.jobs[0]->r);
        sweep(&w);
    }
    close_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(shares_are_fair),
                                       cmocka_unit_test(drafts_leave_room_for_prompts),
                                       cmocka_unit_test(a_hundred_requests_on_two_slots),
                                       cmocka_unit_test(sequences_go_where_there_is_room),
                                       cmocka_unit_test(never_idle_with_a_queue)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
