// The prefix tree against a flat list of the texts it should know, and the state that its tables show
// against the state that their tokens must have (kv_state.h).
#include "lp_test.h"

#include <dirent.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "kv/prefix.h"
#include "kv_state.h"

enum {
    PAGE = LP_KV_PAGE_TOKENS,
    MAX_TEXT = 6 * PAGE,
    N_PAGES = 20,
    N_TABLES = 5,
};

struct known { // a node: the last n - begin tokens of a text
    int32_t text[MAX_TEXT];
    int64_t begin, n;
    int32_t page;
    bool draft;
    uint64_t used; // larger = later
};

struct sequence {
    bool live, draft, finished; // finished: its last page is in the tree, so it writes no more
    int32_t tokens[MAX_TEXT + 1];
    int64_t n, n_computed;
    struct lp_page_table table;
};

struct world {
    struct lp_device *dev;
    struct lp_kv *kv;
    struct lp_prefix *prefix;
    struct lp_rng rng;
    struct known known[2 * N_PAGES]; // oldest birth first
    int n_known;
    uint64_t clock;
    struct sequence seqs[N_TABLES];
    int32_t pinned[MAX_TEXT / PAGE + 1]; // pages that an operation holds for its time
    int n_pinned;
};

static int64_t below(struct world *w, int64_t n) {
    return (int64_t)(lp_rng_u64(&w->rng) % (uint64_t)n);
}

// ---- the model of the tree

static bool is_full(const struct known *k) {
    return k->n - k->begin == PAGE;
}

static int64_t common(const int32_t *a, int64_t n_a, const int32_t *b, int64_t n_b) {
    int64_t n = 0;
    while (n < n_a && n < n_b && a[n] == b[n]) n++;
    return n;
}

static bool is_below(const struct known *k, const struct known *top) { // or top itself
    return k == top || (is_full(top) && k->begin >= top->n &&
                        common(k->text, k->n, top->text, top->n) == top->n);
}

static bool is_leaf(const struct world *w, const struct known *k) {
    for (int i = 0; i < w->n_known; i++)
        if (&w->known[i] != k && is_below(&w->known[i], k)) return false;
    return true;
}

static bool idle(const struct world *w, const struct known *k) {
    for (int s = 0; s < N_TABLES; s++)
        for (int64_t p = 0; w->seqs[s].live && p < w->seqs[s].table.n_pages; p++)
            if (w->seqs[s].table.pages[p] == k->page) return false;
    for (int i = 0; i < w->n_pinned; i++)
        if (w->pinned[i] == k->page) return false;
    return true;
}

static void model_drop(struct world *w, int i) {
    w->n_known--;
    memmove(&w->known[i], &w->known[i + 1], (size_t)(w->n_known - i) * sizeof w->known[0]);
}

static void model_drop_below(struct world *w, const struct known *top) {
    struct known copy = *top;
    int64_t n = copy.n;
    for (int i = w->n_known - 1; i >= 0; i--) {
        struct known *k = &w->known[i];
        bool is_top = k->used == copy.used;
        if (is_top || (is_full(&copy) && k->begin >= n && common(k->text, k->n, copy.text, n) == n))
            model_drop(w, i);
    }
}

static struct known *full_of(struct world *w, const int32_t *tokens, int64_t n) {
    for (int i = 0; i < w->n_known; i++)
        if (w->known[i].n == n && is_full(&w->known[i]) &&
            common(w->known[i].text, n, tokens, n) == n)
            return &w->known[i];
    return NULL;
}

static void model_touch(struct world *w, struct known *k) { // the end first, the beginning last
    for (; k; k = full_of(w, k->text, k->begin)) k->used = ++w->clock;
}

static int64_t held_pages(const struct world *w) { // counted by hand
    bool held[N_PAGES] = {0};
    int64_t n = 0;
    for (int s = 0; s < N_TABLES; s++)
        for (int64_t p = 0; w->seqs[s].live && p < w->seqs[s].table.n_pages; p++)
            held[w->seqs[s].table.pages[p]] = true;
    for (int i = 0; i < w->n_known; i++) held[w->known[i].page] = true;
    for (int p = 0; p < N_PAGES; p++) n += held[p];
    return n;
}

// T2.
static bool model_make_room(struct world *w, int64_t n) {
    for (int leaves = 1; leaves >= 0; leaves--)
        while (N_PAGES - held_pages(w) < n) {
            struct known *oldest = NULL;
            for (int i = 0; i < w->n_known; i++) {
                struct known *k = &w->known[i];
                if (idle(w, k) && (!leaves || is_leaf(w, k)) && (!oldest || k->used < oldest->used))
                    oldest = k;
            }
            if (!oldest) break;
            model_drop_below(w, oldest);
        }
    return N_PAGES - held_pages(w) >= n;
}

// T4: the longest beginning of tokens[0..n) that any known text has.
static int64_t longest(const struct world *w, const int32_t *tokens, int64_t n) {
    int64_t best = 0;
    for (int i = 0; i < w->n_known; i++) {
        int64_t c = common(w->known[i].text, w->known[i].n, tokens, n);
        if (c > best) best = c;
    }
    return best;
}

// Among the nodes behind done tokens the youngest that shares the most with the text.
static struct known *best_behind(struct world *w, const int32_t *tokens, int64_t n, int64_t done) {
    struct known *best = NULL;
    int64_t most = done;
    for (int i = w->n_known - 1; i >= 0; i--) {
        int64_t c = common(w->known[i].text, w->known[i].n, tokens, n);
        if (w->known[i].begin == done && c > most) {
            most = c;
            best = &w->known[i];
        }
    }
    return best;
}

static void model_insert(struct world *w, const struct sequence *s, int64_t n, bool finished) {
    int64_t done = 0;
    struct known *at = NULL;
    for (; n - done >= PAGE; done += PAGE) {
        at = full_of(w, s->tokens, done + PAGE);
        if (at && s->draft && !at->draft && idle(w, at)) { // the page that has more takes its place
            at->page = s->table.pages[done / PAGE];
            at->draft = true;
        }
        if (at) continue;
        at = &w->known[w->n_known++];
        *at = (struct known){.begin = done,
                             .n = done + PAGE,
                             .page = s->table.pages[done / PAGE],
                             .draft = s->draft};
        memcpy(at->text, s->tokens, (size_t)at->n * sizeof at->text[0]);
    }
    if (at) model_touch(w, at);
    if (!finished || done == n) return;
    struct known *best = best_behind(w, s->tokens, n, done);
    if (best && common(best->text, best->n, s->tokens, n) == n) {
        model_touch(w, best);
        return;
    }
    // An end that the new one begins with goes, if it is idle.
    bool shorter = best && common(best->text, best->n, s->tokens, n) == best->n && idle(w, best) &&
                   is_leaf(w, best);
    if (shorter) model_drop(w, (int)(best - w->known));
    at = &w->known[w->n_known++];
    *at = (struct known){
        .begin = done, .n = n, .page = s->table.pages[done / PAGE], .draft = s->draft};
    memcpy(at->text, s->tokens, (size_t)n * sizeof at->text[0]);
    model_touch(w, at);
}

// ---- the world

static void open_world(struct world *w, uint64_t seed) {
    *w = (struct world){.dev = state_device()};
    w->kv = state_kv(w->dev, N_PAGES);
    lp_rng_init(&w->rng, seed);
    assert_int_equal(lp_prefix_new(&w->prefix, w->kv, NULL, NULL), LP_OK);
}

static void close_world(struct world *w) {
    for (int s = 0; s < N_TABLES; s++) lp_page_table_release(&w->seqs[s].table, w->kv);
    assert_int_equal(lp_prefix_n_idle(w->prefix), lp_prefix_n_nodes(w->prefix));
    lp_prefix_free(w->prefix);
    assert_int_equal(lp_kv_n_free(w->kv), N_PAGES);
    lp_kv_free(w->kv);
    lp_backend_ref.close(w->dev);
}

// P1, T1 and all counts.
static void check_counts(struct world *w) {
    int32_t refs[N_PAGES] = {0};
    int64_t n_free = 0, n_idle = 0;
    for (int s = 0; s < N_TABLES; s++)
        for (int64_t p = 0; w->seqs[s].live && p < w->seqs[s].table.n_pages; p++) {
            refs[w->seqs[s].table.pages[p]]++;
            assert_int_equal(w->seqs[s].table.pages[p], w->seqs[s].table.device_pages[p]); // P3
        }
    for (int i = 0; i < w->n_known; i++) {
        refs[w->known[i].page]++;
        n_idle += idle(w, &w->known[i]);
    }
    for (int32_t p = 0; p < N_PAGES; p++) {
        assert_int_equal(lp_kv_page_refs(w->kv, p), refs[p]);
        n_free += refs[p] == 0;
    }
    assert_int_equal(lp_kv_n_free(w->kv), n_free);
    assert_int_equal(lp_prefix_n_nodes(w->prefix), w->n_known);
    assert_int_equal(lp_prefix_n_idle(w->prefix), n_idle);
}

static void check_peek(struct world *w, const int32_t *tokens, int64_t n) {
    int64_t n_shared, shared = 0;
    assert_int_equal(lp_prefix_peek(w->prefix, 0, tokens, n, &n_shared), longest(w, tokens, n));
    for (int64_t end = PAGE; end <= n; end += PAGE) {
        struct known *k = full_of(w, tokens, end);
        if (!k) break;
        shared += !idle(w, k);
    }
    assert_int_equal(n_shared, shared);
    assert_int_equal(lp_prefix_peek(w->prefix, 0, tokens, n, NULL), longest(w, tokens, n));
}

// A text that begins as some other, at a border of a page or not, and goes on with one of two tokens.
static int64_t make_text(struct world *w, int32_t *out) {
    int64_t n = 1 + below(w, MAX_TEXT), from = 0;
    if (w->n_known > 0 && below(w, 8) > 0) {
        const struct known *k = &w->known[below(w, w->n_known)];
        from = below(w, 3) ? k->n : below(w, k->n + 1);
        memcpy(out, k->text, (size_t)from * sizeof *out);
    } else if (below(w, 2)) {
        const struct sequence *s = &w->seqs[below(w, N_TABLES)]; // alive or not
        from = s->n < MAX_TEXT ? s->n : MAX_TEXT;
        memcpy(out, s->tokens, (size_t)from * sizeof *out);
    }
    if (n < from && below(w, 2)) n = from;
    for (int64_t i = from; i < n; i++) out[i] = below(w, 10) ? 7 : 1000 + (int32_t)below(w, 2);
    return n;
}

static bool grow(struct world *w, struct sequence *s, int64_t n) {
    int64_t need = lp_kv_pages_of(n) - s->table.n_pages, had = s->table.n_pages;
    bool room = need <= lp_kv_n_free(w->kv) || lp_prefix_make_room(w->prefix, 0, need);
    if (need > 0) assert_int_equal(model_make_room(w, need), room);
    if (!room) return false;
    assert_int_equal(lp_page_table_grow(&s->table, w->kv, n, NULL), LP_OK);
    for (int64_t slot = had * PAGE; slot < s->table.n_pages * PAGE;
         slot++) // what a page held before
        state_write(w->kv, &s->table, slot, lp_rng_u64(&w->rng), true);
    return true;
}

// ---- what may happen

// As an engine takes up a request (sched.c): a drafting sequence computes its last known token again.
static void start(struct world *w, struct sequence *s) {
    struct lp_prefix_match match;
    struct lp_err err = {0};
    s->n = make_text(w, s->tokens);
    bool draft = below(w, 2);
    int64_t n = draft ? s->n : s->n - 1, whole = 0, known = longest(w, s->tokens, n);
    check_peek(w, s->tokens, n);
    assert_int_equal(lp_prefix_attach(w->prefix, &s->table, s->tokens, n, draft, &match, &err),
                     LP_OK);
    assert_int_equal(s->table.n_tokens, match.n_tokens);
    assert_int_equal(s->table.n_pages, lp_kv_pages_of(match.n_tokens)); // P2
    // The same in the model: whole pages first, then the copy of one.
    bool has_draft = true, copies = false, room = false;
    struct known *at = NULL, *k;
    while (n - whole >= PAGE + draft && (k = full_of(w, s->tokens, whole + PAGE)) != NULL) {
        at = k;
        has_draft = has_draft && k->draft;
        w->pinned[w->n_pinned++] = k->page;
        whole += PAGE;
    }
    k = best_behind(w, s->tokens, n, whole);
    if (!k && draft) k = at;
    if (k) {
        copies = true;
        has_draft = has_draft && k->draft;
        w->pinned[w->n_pinned++] = k->page;
        model_touch(w, k);
        room = model_make_room(w, 1);
    }
    at = full_of(w, s->tokens, whole); // may have moved
    if (at) model_touch(w, at);
    assert_int_equal(match.n_tokens, !copies || room ? known : draft ? 0 : whole);
    int64_t n_shared = match.n_tokens / PAGE - (copies && match.n_tokens % PAGE == 0);
    for (int64_t p = 0; p < n_shared; p++) assert_int_equal(s->table.pages[p], w->pinned[p]);
    if (match.n_tokens == known && known > 0) assert_int_equal(match.has_draft, has_draft);
    w->n_pinned = 0;
    s->live = true;
    state_check(w->kv, &s->table, s->tokens, match.n_tokens, match.has_draft);
    if (draft && match.n_tokens > 0) // own_last
        assert_int_equal(lp_kv_page_refs(w->kv, s->table.pages[s->table.n_pages - 1]), 1);
    s->n_computed = match.n_tokens - (draft && match.n_tokens > 0);
    s->draft = draft && (match.has_draft || match.n_tokens == 0);
}

static void compute(struct world *w, struct sequence *s, int64_t n) {
    int64_t to = s->n_computed + n < s->n ? s->n_computed + n : s->n;
    if (!grow(w, s, to + 3)) return;
    uint64_t hash = 0;
    for (int64_t i = 0; i < to; i++) {
        hash = state_next(hash, s->tokens[i]);
        if (i < s->n_computed) continue;
        state_write(w->kv, &s->table, i, hash, false);
        // The draft layer's of position i - 1; a recomputed position's is the same as it was.
        if (s->draft && i > 0) *state_slot(w->kv, STATE_DRAFT, &s->table, i) = ~hash;
    }
    for (int64_t slot = to; slot < to + 3; slot++) // drafts that did not come true
        state_write(w->kv, &s->table, slot, lp_rng_u64(&w->rng), true);
    s->n_computed = to;
}

static void insert(struct world *w, struct sequence *s, bool finished) {
    if (finished) lp_page_table_truncate(&s->table, w->kv, s->n_computed);
    lp_prefix_insert(w->prefix, &s->table, s->tokens, s->n_computed, finished, s->draft);
    model_insert(w, s, s->n_computed, finished);
}

static void leave(struct world *w, struct sequence *s) {
    lp_page_table_release(&s->table, w->kv);
    s->live = s->finished = false;
}

static void fork_from(struct world *w, struct sequence *s, const struct sequence *from) {
    struct lp_err err = {0};
    bool own = below(w, 2);
    int64_t got, n = 1 + below(w, from->n_computed);
    struct sequence before = *from;
    assert_int_equal(lp_prefix_fork(w->prefix, &s->table, &from->table, n, own, &got, &err), LP_OK);
    int64_t whole = own ? (n - 1) / PAGE : n / PAGE, n_pages = s->table.n_pages;
    bool room = n == whole * PAGE || model_make_room(w, 1);
    assert_int_equal(got, room ? n : own ? 0 : whole * PAGE);
    assert_int_equal(n_pages, lp_kv_pages_of(got));
    for (int64_t p = 0; p < n_pages; p++)
        assert_int_equal(s->table.pages[p] == from->table.pages[p], p < whole);
    s->live = true;
    s->n = s->n_computed = got;
    s->draft = before.draft;
    memcpy(s->tokens, before.tokens, sizeof s->tokens);
    state_check(w->kv, &s->table, s->tokens, got, s->draft);
    if (own && got > 0) assert_int_equal(lp_kv_page_refs(w->kv, s->table.pages[n_pages - 1]), 1);
    if (got == 0)
        leave(w, s);
    else
        for (s->n = got; s->n < MAX_TEXT && below(w, 40); s->n++)
            s->tokens[s->n] = below(w, 10) ? 7 : 2000;
    // Without a page of its own, it may write only behind whole pages.
    if (s->live && own && s->n_computed > 0) s->n_computed--;
}

// T5: nothing is known any more that begins with the text's first page, or is all of it.
static void forget(struct world *w, const int32_t *tokens, int64_t n) {
    lp_prefix_forget(w->prefix, tokens, n);
    for (int i = 0; i < w->n_known; i++) {
        struct known *k = &w->known[i];
        int64_t first = k->n < PAGE ? k->n : PAGE, most = first < n ? first : n;
        if (common(k->text, first, tokens, n) == most) {
            model_drop(w, i--);
        }
    }
}

static void anything(struct world *w) {
    struct sequence *s = &w->seqs[below(w, N_TABLES)], *other = &w->seqs[below(w, N_TABLES)];
    int64_t what = below(w, 100);
    if (!s->live) {
        if (what < 20 && other->live && other->n_computed > 0)
            fork_from(w, s, other);
        else
            start(w, s);
    } else if (s->finished) {
        leave(w, s);
    } else if (what < 50) {
        compute(w, s, 1 + below(w, 100));
    } else if (what < 65) {
        insert(w, s, false);
    } else if (what < 85) {
        compute(w, s, MAX_TEXT);
        insert(w, s, true);
        s->finished = true;
        if (below(w, 2)) leave(w, s);
    } else if (what < 90) {
        leave(w, s);
    } else if (what < 93) {
        int64_t n = 1 + below(w, N_PAGES);
        bool room = lp_prefix_make_room(w->prefix, 0, n);
        assert_int_equal(room, model_make_room(w, n));
    } else if (what < 94) {
        forget(w, s->tokens, s->n);
        leave(w, s);
    } else {
        state_check(w->kv, &s->table, s->tokens, s->n_computed, s->draft);
    }
}

static void a_table_shows_the_state_of_its_own_tokens(void **state) {
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    int n_rounds = 3000;
#else
    int n_rounds = 20000;
#endif
    static struct world w;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        open_world(&w, seed);
        for (int round = 0; round < n_rounds; round++) {
            anything(&w);
            check_counts(&w);
        }
        close_world(&w);
    }
}

// ---- single cases

// Puts a text into the tree as a finished sequence does, and leaves.
static void know(struct lp_kv *kv, struct lp_prefix *prefix, const int32_t *tokens, int64_t n,
                 bool draft) {
    struct lp_page_table table = {0};
    uint64_t hash = 0;
    lp_prefix_make_room(prefix, 0, lp_kv_pages_of(n));
    assert_int_equal(lp_page_table_grow(&table, kv, n, NULL), LP_OK);
    for (int64_t i = 0; i < n; i++)
        state_write(kv, &table, i, hash = state_next(hash, tokens[i]), true);
    lp_prefix_insert(prefix, &table, tokens, n, true, draft);
    lp_page_table_release(&table, kv);
}

static void fill_text(int32_t *tokens, int64_t n, int32_t first) {
    for (int64_t i = 0; i < n; i++) tokens[i] = first + (int32_t)i;
}

static void the_least_recently_used_leaf_goes_first(void **state) {
    (void)state;
    struct lp_device *dev = state_device();
    struct lp_kv *kv = state_kv(dev, 8);
    struct lp_prefix *prefix;
    struct lp_page_table table = {0};
    struct lp_prefix_match match;
    int32_t a[2 * PAGE], b[2 * PAGE], c[2 * PAGE];
    assert_int_equal(lp_prefix_new(&prefix, kv, NULL, NULL), LP_OK);
    fill_text(a, 2 * PAGE, 0);
    fill_text(b, 2 * PAGE, 1000);
    fill_text(c, 2 * PAGE, 2000);
    know(kv, prefix, a, 2 * PAGE, true);
    know(kv, prefix, b, 2 * PAGE, true);
    know(kv, prefix, c, 2 * PAGE, true);
    // Use of a: b is now the oldest, its end before its beginning.
    assert_int_equal(lp_prefix_attach(prefix, &table, a, 2 * PAGE, false, &match, NULL), LP_OK);
    lp_page_table_release(&table, kv);
    assert_true(lp_prefix_make_room(prefix, 0, 3));
    assert_int_equal(lp_prefix_peek(prefix, 0, b, 2 * PAGE, NULL), PAGE);
    assert_true(lp_prefix_make_room(prefix, 0, 5));
    assert_int_equal(lp_prefix_peek(prefix, 0, b, 2 * PAGE, NULL), 0);
    assert_int_equal(lp_prefix_peek(prefix, 0, c, 2 * PAGE, NULL), PAGE);
    assert_int_equal(lp_prefix_peek(prefix, 0, a, 2 * PAGE, NULL), 2 * PAGE);
    // A page in use stays, whatever is asked for.
    assert_int_equal(lp_prefix_attach(prefix, &table, a, PAGE, false, &match, NULL), LP_OK);
    assert_false(lp_prefix_make_room(prefix, 0, 8));
    assert_int_equal(lp_kv_n_free(kv), 7);
    assert_int_equal(lp_prefix_peek(prefix, 0, a, 2 * PAGE, NULL), PAGE);
    lp_page_table_release(&table, kv);
    lp_prefix_free(prefix);
    lp_kv_free(kv);
    lp_backend_ref.close(dev);
}

// Two sequences computed one text at once; the tree has the pages of the first, and behind them one of
// the second. When the first is gone, its pages can be had though what follows is in use.
static void pages_above_another_s_can_be_had(void **state) {
    (void)state;
    struct lp_device *dev = state_device();
    struct lp_kv *kv = state_kv(dev, 8);
    struct lp_prefix *prefix;
    struct lp_page_table table = {0};
    int32_t text[3 * PAGE];
    assert_int_equal(lp_prefix_new(&prefix, kv, NULL, NULL), LP_OK);
    fill_text(text, 3 * PAGE, 0);
    know(kv, prefix, text, 2 * PAGE, true);
    assert_int_equal(lp_page_table_grow(&table, kv, 3 * PAGE, NULL), LP_OK);
    lp_prefix_insert(prefix, &table, text, 3 * PAGE, false, true);
    assert_int_equal(lp_kv_n_free(kv), 3);
    assert_int_equal(lp_prefix_n_idle(prefix), 2);
    assert_true(lp_prefix_make_room(prefix, 0, 5));
    assert_false(lp_prefix_make_room(prefix, 0, 6));
    for (int i = 0; i < 3; i++) assert_int_equal(lp_kv_page_refs(kv, table.pages[i]), 1);
    lp_page_table_release(&table, kv);
    lp_prefix_free(prefix);
    lp_kv_free(kv);
    lp_backend_ref.close(dev);
}

// P4: without a page for its own copy of the last one, a table that is to own it gets nothing.
static void own_last_without_room(void **state) {
    (void)state;
    struct lp_device *dev = state_device();
    struct lp_kv *kv = state_kv(dev, 3);
    struct lp_prefix *prefix;
    struct lp_page_table holder = {0}, table = {0};
    struct lp_prefix_match match;
    int32_t text[3 * PAGE];
    int64_t got;
    assert_int_equal(lp_prefix_new(&prefix, kv, NULL, NULL), LP_OK);
    fill_text(text, 3 * PAGE, 0);
    assert_int_equal(lp_page_table_grow(&holder, kv, 3 * PAGE, NULL), LP_OK);
    lp_prefix_insert(prefix, &holder, text, 3 * PAGE, false, true);
    for (int64_t n = 1; n <= 3 * PAGE; n++) {
        assert_int_equal(lp_prefix_attach(prefix, &table, text, n, true, &match, NULL), LP_OK);
        assert_int_equal(match.n_tokens, 0);
        assert_int_equal(table.n_pages, 0);
        assert_int_equal(lp_prefix_attach(prefix, &table, text, n, false, &match, NULL), LP_OK);
        assert_int_equal(match.n_tokens, n / PAGE * PAGE);
        lp_page_table_release(&table, kv);
        assert_int_equal(lp_prefix_fork(prefix, &table, &holder, n, true, &got, NULL), LP_OK);
        assert_int_equal(got, 0);
        lp_page_table_release(&table, kv);
    }
    lp_page_table_release(&holder, kv);
    lp_prefix_free(prefix);
    assert_int_equal(lp_kv_n_free(kv), 3);
    lp_kv_free(kv);
    lp_backend_ref.close(dev);
}

// ---- with a store

static char dir[64];

static void make_dir(void) {
    strcpy(dir, "/tmp/limpid-test-prefix-XXXXXX");
    assert_non_null(mkdtemp(dir));
}

static void remove_dir(void) {
    DIR *d = opendir(dir);
    char path[512];
    for (struct dirent *e; d && (e = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (e->d_name[0] != '.' || strlen(e->d_name) > 2) unlink(path);
    }
    if (d) closedir(d);
    assert_int_equal(rmdir(dir), 0);
}

static struct lp_store *open_store(const struct lp_kv *kv) {
    struct lp_store *store;
    struct lp_err err = {0};
    struct lp_store_options options = {.dir = dir,
                                       .max_bytes = 1 << 26,
                                       .fingerprint = {1, 2},
                                       .page_bytes = lp_kv_page_bytes(kv),
                                       .page_tokens = PAGE};
    if (lp_store_open(&store, &options, &err) != LP_OK) fail_msg("%s", err.text);
    return store;
}

static void saved_prefixes_come_back(void **state) {
    (void)state;
    struct lp_device *dev = state_device();
    struct lp_kv *kv = state_kv(dev, 12);
    struct lp_prefix *prefix;
    struct lp_page_table table = {0};
    struct lp_prefix_match match;
    int32_t a[5 * PAGE + 9], b[5 * PAGE], c[2 * PAGE];
    make_dir();
    struct lp_store *store = open_store(kv);
    assert_int_equal(lp_prefix_new(&prefix, kv, store, NULL), LP_OK);
    fill_text(a, 5 * PAGE + 9, 0);
    fill_text(c, 2 * PAGE, 5000);
    memcpy(b, a, sizeof b);
    b[2 * PAGE + 3] = 9999; // shares two pages
    know(kv, prefix, a, 5 * PAGE + 9, true);
    lp_prefix_save(prefix, 0, a, 5 * PAGE + 9);
    know(kv, prefix, b, 5 * PAGE, true);
    lp_prefix_save(prefix, 0, b, 5 * PAGE);
    know(kv, prefix, c, 2 * PAGE, false); // lacks the draft layer's state: is not kept
    lp_prefix_save(prefix, 0, c, 2 * PAGE);
    lp_prefix_save(prefix, 0, a, 5 * PAGE + 9); // again: nothing is new
    lp_store_flush(store);
    assert_int_equal(lp_store_get_stats(store).writes, 8);
    lp_prefix_free(prefix);
    lp_store_close(store);
    lp_kv_free(kv);

    kv = state_kv(dev, 7); // a new run, with less room
    store = open_store(kv);
    assert_int_equal(lp_prefix_new(&prefix, kv, store, NULL), LP_OK);
    assert_int_equal(lp_prefix_load(prefix, 0, c, 2 * PAGE, 10), 0);
    assert_int_equal(lp_prefix_load(prefix, 0, a, 5 * PAGE + 9, 2), 2); // no more than asked for
    assert_int_equal(lp_prefix_load(prefix, 0, a, 5 * PAGE + 9, 10), 3);
    assert_int_equal(lp_prefix_load(prefix, 0, a, 5 * PAGE + 9, 10), 0);
    assert_int_equal(lp_prefix_n_nodes(prefix), 5);
    assert_int_equal(lp_prefix_attach(prefix, &table, a, 5 * PAGE + 9, false, &match, NULL), LP_OK);
    assert_int_equal(match.n_tokens, 5 * PAGE);
    assert_true(match.has_draft);
    state_check(kv, &table, a, 5 * PAGE, true);
    // b's own pages: two fit beside what is in use, the third does not.
    assert_int_equal(lp_prefix_load(prefix, 0, b, 5 * PAGE, 10), 2);
    lp_page_table_release(&table, kv);
    assert_int_equal(lp_prefix_load(prefix, 0, b, 5 * PAGE, 10), 1); // a's end goes for it
    assert_int_equal(lp_prefix_peek(prefix, 0, a, 5 * PAGE, NULL), 4 * PAGE);
    assert_int_equal(lp_prefix_attach(prefix, &table, b, 5 * PAGE, false, &match, NULL), LP_OK);
    assert_int_equal(match.n_tokens, 5 * PAGE);
    state_check(kv, &table, b, 5 * PAGE, true);
    lp_page_table_release(&table, kv);
    uint64_t writes = lp_store_get_stats(store).writes;
    lp_prefix_save(prefix, 0, b, 5 * PAGE); // came from there
    lp_store_flush(store);
    assert_int_equal(lp_store_get_stats(store).writes, writes);
    // Loading into a full cache whose pages are idle inner ones must not take the path it builds on.
    lp_prefix_forget(prefix, a, 5 * PAGE);
    assert_int_equal(lp_prefix_n_nodes(prefix), 0);
    assert_int_equal(lp_kv_n_free(kv), 7);
    lp_prefix_free(prefix);
    lp_store_close(store);
    lp_kv_free(kv);
    remove_dir();
    lp_backend_ref.close(dev);
}

// Fewer pages than the text has: what is loaded is the beginning, and nothing is taken from it.
static void loading_stops_where_the_cache_ends(void **state) {
    (void)state;
    struct lp_device *dev = state_device();
    struct lp_kv *kv = state_kv(dev, 6);
    struct lp_prefix *prefix;
    struct lp_page_table table = {0};
    struct lp_prefix_match match;
    int32_t a[6 * PAGE];
    make_dir();
    struct lp_store *store = open_store(kv);
    fill_text(a, 6 * PAGE, 0);
    assert_int_equal(lp_prefix_new(&prefix, kv, store, NULL), LP_OK);
    know(kv, prefix, a, 6 * PAGE, true);
    lp_prefix_save(prefix, 0, a, 6 * PAGE);
    lp_store_flush(store);
    lp_prefix_free(prefix);
    lp_kv_free(kv);
    kv = state_kv(dev, 4);
    assert_int_equal(lp_prefix_new(&prefix, kv, store, NULL), LP_OK);
    assert_int_equal(lp_prefix_load(prefix, 0, a, 6 * PAGE, 100), 4);
    assert_int_equal(lp_prefix_load(prefix, 0, a, 6 * PAGE, 100), 0);
    assert_int_equal(lp_prefix_attach(prefix, &table, a, 6 * PAGE, false, &match, NULL), LP_OK);
    assert_int_equal(match.n_tokens, 4 * PAGE);
    state_check(kv, &table, a, 4 * PAGE, true);
    lp_page_table_release(&table, kv);
    // A page in use below idle ones: they are its path, and stay while it is loaded behind.
    assert_int_equal(lp_prefix_attach(prefix, &table, a, PAGE, false, &match, NULL), LP_OK);
    assert_true(lp_prefix_make_room(prefix, 0, 2));
    assert_int_equal(lp_prefix_load(prefix, 0, a, 6 * PAGE, 100), 2);
    lp_page_table_release(&table, kv);
    lp_prefix_free(prefix);
    lp_store_close(store);
    lp_kv_free(kv);
    remove_dir();
    lp_backend_ref.close(dev);
}

// ---- without memory

// A tree's whole life with the nth allocation failing: no crash, no leak, no wrong state.
static void live_with(size_t nth, bool *failed) {
    struct lp_device *dev = state_device();
    struct lp_kv *kv = state_kv(dev, 16);
    struct lp_prefix *prefix;
    struct lp_page_table first = {0}, second = {0}, third = {0};
    struct lp_prefix_match match = {0};
    struct lp_err err = {0};
    int32_t a[3 * PAGE + 10];
    int64_t got = 0;
    uint64_t hash = 0;
    fill_text(a, 3 * PAGE + 10, 0);
    assert_int_equal(lp_page_table_grow(&first, kv, 3 * PAGE + 10, NULL), LP_OK);
    for (int64_t i = 0; i < 3 * PAGE + 10; i++)
        state_write(kv, &first, i, hash = state_next(hash, a[i]), true);
    lp_alloc_fail_after(nth);
    lp_status status = lp_prefix_new(&prefix, kv, NULL, &err);
    *failed = status != LP_OK;
    if (!status) {
        lp_prefix_insert(prefix, &first, a, 3 * PAGE + 10, true, true);
        status = lp_prefix_attach(prefix, &second, a, 3 * PAGE + 5, true, &match, &err);
        *failed = status || lp_prefix_n_nodes(prefix) < 4;
        if (status) assert_int_equal(second.n_pages, 0);
        state_check(kv, &second, a, match.n_tokens, match.has_draft);
        status = lp_prefix_fork(prefix, &third, &first, 2 * PAGE + 1, false, &got, &err);
        *failed = *failed || status;
        if (status) assert_int_equal(third.n_pages, 0);
        state_check(kv, &third, a, got, true);
        lp_alloc_fail_after(0);
        lp_page_table_release(&first, kv);
        lp_page_table_release(&second, kv);
        lp_page_table_release(&third, kv);
        assert_true(lp_prefix_make_room(prefix, 0, 16)); // the use list is in order
        lp_prefix_free(prefix);
    }
    lp_alloc_fail_after(0);
    assert_true(status == LP_OK || status == LP_STATUS_MEMORY);
    lp_page_table_release(&first, kv);
    assert_int_equal(lp_kv_n_free(kv), 16);
    lp_kv_free(kv);
    lp_backend_ref.close(dev);
}

static void nothing_breaks_without_memory(void **state) {
    (void)state;
    bool failed = true;
    size_t nth = 1;
    for (; failed; nth++) live_with(nth, &failed);
    assert_in_range(nth, 8, 40); // 2 for the tree, 4 nodes, 2 for each table, at the least
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_table_shows_the_state_of_its_own_tokens),
                                       cmocka_unit_test(the_least_recently_used_leaf_goes_first),
                                       cmocka_unit_test(pages_above_another_s_can_be_had),
                                       cmocka_unit_test(own_last_without_room),
                                       cmocka_unit_test(saved_prefixes_come_back),
                                       cmocka_unit_test(loading_stops_where_the_cache_ends),
                                       cmocka_unit_test(nothing_breaks_without_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
