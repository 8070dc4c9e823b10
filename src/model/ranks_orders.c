// What rank 0 tells the others, and they do: steps, drafts, pages of the cache; and how it went.
#include "model/ranks.h"

#include <string.h>
#include <sys/resource.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "model/expert_cache.h"
#include "model/runner.h"
#include "model/shard.h"

// ---- how it went

struct report {            // what a rank tells at the end of a step
    uint64_t number, hash; // of the order that it ran
    uint64_t n_steps;
    struct lp_rank_times times;
    int32_t status, lasts; // lasts: the next step would fare no better
    char text[LP_RANKS_REPORT_BYTES - 32 - sizeof(struct lp_rank_times)];
};
_Static_assert(sizeof(struct report) == LP_RANKS_REPORT_BYTES, "reports are collected as bytes");

// Of this process since its runner was made.
static struct lp_rank_times times_of(const struct lp_runner *r) {
    struct rusage usage;
    struct lp_expert_stats experts = {0};
    getrusage(RUSAGE_SELF, &usage);
    if (r->model->expert_cache) experts = lp_expert_cache_get_stats(r->model->expert_cache);
    return (struct lp_rank_times){.step_ns = r->ranks.step_ns,
                                  .wait_ns =
                                      lp_comm_wait_ns(r->model->ranks) - r->ranks.wait_from_ns,
                                  .memory_bytes = (uint64_t)usage.ru_maxrss * 1024,
                                  .expert_slots = (uint64_t)experts.n_slots,
                                  .expert_hits = experts.n_hits,
                                  .expert_ahead = experts.n_ahead,
                                  .expert_misses = experts.n_misses,
                                  .expert_reads = experts.n_reads,
                                  .expert_read_bytes = experts.read_bytes,
                                  .expert_wait_ns = experts.wait_ns};
}

static void keep_times(struct lp_runner *r) {
    for (int32_t i = 0; i < lp_comm_size(r->model->ranks); i++) {
        struct report x;
        memcpy(&x, r->ranks.reports + (size_t)i * sizeof x, sizeof x);
        r->ranks.times[i] = x.times;
    }
}

const struct lp_rank_times *lp_ranks_times(const struct lp_runner *r) {
    return r->ranks.times;
}

// *lasts: the next step would fare no better.
static lp_status judge(const struct lp_runner *r, const struct report *own, bool *lasts,
                       struct lp_err *err) {
    const struct lp_comm *ranks = r->model->ranks;
    for (int32_t i = 0; i < lp_comm_size(ranks); i++) {
        const struct report *x =
            (const struct report *)(const void *)(r->ranks.reports + i * LP_RANKS_REPORT_BYTES);
        *lasts = x->number != own->number || x->hash != own->hash || x->n_steps != own->n_steps;
        if (*lasts)
            return lp_err_set(err, LP_STATUS_IO,
                              "rank %d on %s ran order %llu (checksum %016llx, step %llu), rank 0 "
                              "gave %llu (%016llx, step %llu): the ranks are not in step",
                              i, lp_comm_host(ranks, i), (unsigned long long)x->number,
                              (unsigned long long)x->hash, (unsigned long long)x->n_steps,
                              (unsigned long long)own->number, (unsigned long long)own->hash,
                              (unsigned long long)own->n_steps);
        *lasts = x->lasts;
        if (i > 0 && x->status)
            return lp_err_set(err, (lp_status)x->status, "rank %d on %s: %.*s", i,
                              lp_comm_host(ranks, i), (int)sizeof x->text - 1, x->text);
    }
    return LP_OK;
}

lp_status lp_ranks_end_step(struct lp_runner *r, lp_status status, struct lp_err *err) {
    struct lp_comm *ranks = r->model->ranks;
    if (!ranks) return status;
    r->ranks.step_ns += lp_clock_ns() - r->ranks.began_ns;
    struct report own = {.number = r->ranks.order.number,
                         .hash = r->ranks.order.hash,
                         .n_steps = r->n_steps,
                         .times = times_of(r),
                         .status = status,
                         .lasts = status == LP_STATUS_IO && !r->ranks.lacked};
    if (status && err) memcpy(own.text, err->text, strnlen(err->text, sizeof own.text - 1));
    lp_comm_collect(ranks, &own, sizeof own, r->ranks.reports);
    const lp_status lost = lp_comm_failed(ranks, err);
    if (!lost && !lp_ranks_follows(r)) keep_times(r);
    r->ranks.reported = own.number;
    if (lost || lp_ranks_follows(r)) return lost ? lost : status;
    struct lp_err why;
    bool lasts = false;
    const lp_status told = judge(r, &own, &lasts, &why);
    if (told && lasts) lp_comm_fail(ranks, &why);
    // Numbers that are not finite may come from a rank that knows why.
    if (status && (status != LP_STATUS_NUMERIC || !told)) return status;
    return told ? lp_err_set(err, told, "%s", why.text) : LP_OK;
}

// ---- orders

static struct lp_order *begin(struct lp_runner *r, enum lp_order_kind kind) {
    struct lp_order *order = &r->ranks.order;
    order->kind = kind;
    order->owner = r->ranks.owner;
    lp_bytes_clear(&order->bytes);
    return order;
}

static lp_status give(struct lp_runner *r, struct lp_err *err) {
    struct lp_order *order = &r->ranks.order;
    if (order->bytes.failed) {
        lp_bytes_release(&order->bytes);
        return lp_err_memory(err, 0, "an order to the other ranks");
    }
    lp_order_give(r->model->ranks, order);
    return lp_comm_failed(r->model->ranks, err);
}

struct step_head {
    int64_t n_rows, n_logit_rows;
    uint64_t n_steps; // that rank 0 has counted
    int32_t n_spans, force;
    int32_t deterministic, watched; // watched: rank 0 wants to see each layer's output
    int64_t window_rows;
    int64_t probed; // a list of what a probe wants follows
};

struct span_head {
    uint64_t sequence;
    int64_t n_past, first_row, n_rows, n_pages, n_tokens;
    int64_t part; // of the cache
};

static void put_spans(struct lp_order *order, const struct lp_span *spans, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        const struct lp_page_table *pages = spans[i].pages;
        const struct span_head head = {.sequence = spans[i].sequence,
                                       .n_past = spans[i].n_past,
                                       .first_row = spans[i].first_row,
                                       .n_rows = spans[i].n_rows,
                                       .n_pages = pages->n_pages,
                                       .n_tokens = pages->n_tokens,
                                       .part = pages->part};
        lp_order_put(order, &head, sizeof head);
        lp_order_put(order, pages->pages, (size_t)pages->n_pages * sizeof *pages->pages);
    }
}

static struct step_head head_of(const struct lp_runner *r, const struct lp_step *step,
                                const struct lp_step_settings *s) {
    return (struct step_head){.n_rows = step->n_rows,
                              .n_steps = r->n_steps,
                              .n_logit_rows = step->n_logit_rows,
                              .n_spans = step->n_spans,
                              .force = s->force,
                              .deterministic = s->deterministic,
                              .watched = s->watch != NULL,
                              .probed = s->probe != NULL,
                              .window_rows = r->ranks.window_rows};
}

// Fewer rows take as long as these: the weights are read all the same.
#define LEAST_WINDOW 64

// So many windows as there are stages, if they are worth it. Who watches, or probes, sees all rows at once.
static int64_t window_rows(const struct lp_runner *r, const struct lp_step *step,
                           const struct lp_step_settings *settings) {
    const int64_t n_stages = r->model->part.n_stages, n = (step->n_rows + n_stages - 1) / n_stages;
    if (n_stages <= 1 || settings->watch || settings->probe || step->n_rows <= LEAST_WINDOW)
        return 0;
    return n > LEAST_WINDOW ? n : LEAST_WINDOW;
}

// Rows that ranks gather from one another lie one behind the other, in the order of ranks.
static lp_status check_order(const struct lp_runner *r, const struct lp_step *step,
                             struct lp_err *err) {
    int64_t row = 0;
    int32_t part = 0;
    for (int32_t i = 0; i < step->n_spans && r->model->part.data_attention; i++) {
        const struct lp_span *s = &step->spans[i];
        if (s->pages->part < part || s->first_row != row)
            return lp_err_set(err, LP_STATUS_INVALID,
                              "span %d of a step begins at row %lld in part %d of the cache, "
                              "expected row %lld, in part %d or a later one",
                              i, (long long)s->first_row, s->pages->part, (long long)row, part);
        part = s->pages->part;
        row += s->n_rows;
    }
    return LP_OK;
}

lp_status lp_ranks_give_step(struct lp_runner *r, const struct lp_step *step,
                             const struct lp_step_settings *settings, struct lp_err *err) {
    r->ranks.began_ns = lp_clock_ns();
    if (!r->model->ranks || lp_ranks_follows(r)) return LP_OK;
    r->ranks.probe.on = false;
    lp_status status = check_order(r, step, err);
    if (status) return status;
    struct lp_order *order = begin(r, LP_ORDER_STEP);
    r->ranks.window_rows = window_rows(r, step, settings);
    const struct step_head head = head_of(r, step, settings);
    lp_order_put(order, &head, sizeof head);
    lp_order_put(order, step->tokens, (size_t)step->n_rows * sizeof *step->tokens);
    lp_order_put(order, step->logit_rows, (size_t)step->n_logit_rows * sizeof *step->logit_rows);
    put_spans(order, step->spans, step->n_spans);
    if (settings->probe) status = lp_ranks_probe_ask(r, step, settings->probe, order, err);
    return status ? status : give(r, err);
}

lp_status lp_ranks_give_draft(struct lp_runner *r, const struct lp_draft *draft,
                              const struct lp_step_settings *settings, struct lp_err *err) {
    r->ranks.began_ns = lp_clock_ns();
    if (!r->model->ranks || lp_ranks_follows(r)) return LP_OK;
    r->ranks.probe.on = false;
    const struct lp_step *step = draft->step;
    const size_t n_spans = (size_t)step->n_spans, n_rows = (size_t)step->n_rows;
    struct lp_order *order = begin(r, LP_ORDER_DRAFT);
    const struct step_head head = head_of(r, step, settings);
    lp_order_put(order, &head, sizeof head);
    put_spans(order, step->spans, step->n_spans);
    lp_order_put(order, &draft->n_draft, sizeof draft->n_draft);
    lp_order_put(order, draft->kept, n_spans * sizeof *draft->kept);
    lp_order_put(order, draft->drafting, n_spans * sizeof *draft->drafting);
    lp_order_put(order, draft->next_tokens, n_rows * sizeof *draft->next_tokens);
    return give(r, err);
}

// ---- following

static lp_status too_large(const struct lp_order *order, struct lp_err *err) {
    return lp_err_set(
        err, LP_STATUS_IO,
        "order %llu of rank 0 does not fit this rank's engine: the ranks were started "
        "with different options, or run different builds of limpid",
        (unsigned long long)order->number);
}

// With data-parallel attention rank 0 counts the pages of all ranks; each knows its own from 0 on, and of
// sequences that are elsewhere none. How many pages are here; -1: there is no such page.
static int64_t number_here(const struct lp_runner *r, int32_t *pages,
                           const struct span_head *head) {
    const struct lp_sharding *part = &r->model->part;
    if (!part->data_attention) return head->part == 0 ? head->n_pages : -1;
    if (head->part < 0 || head->part >= part->n_tensor) return -1;
    if (head->part != part->tensor) return 0;
    const int64_t n = lp_kv_n_pages(r->kv), first = n * part->tensor;
    for (int64_t i = 0; i < head->n_pages; i++) {
        if (pages[i] < first || pages[i] >= first + n) return -1;
        pages[i] -= (int32_t)first;
    }
    return head->n_pages;
}

static lp_status take_spans(struct lp_runner *r, struct lp_order_reader *from, int32_t n,
                            const struct lp_order *order, struct lp_err *err) {
    struct lp_runner_ranks *x = &r->ranks;
    for (int32_t i = 0; i < n; i++) {
        struct span_head head;
        lp_order_get(from, &head, sizeof head);
        if (head.n_pages < 0 || head.n_pages > lp_kv_n_pages(r->kv) || from->failed)
            return too_large(order, err);
        const size_t n_bytes = (size_t)head.n_pages * sizeof(int32_t);
        int32_t *pages = lp_alloc((size_t)head.n_pages, sizeof *pages);
        if (!pages) return lp_err_memory(err, n_bytes, "a page table");
        lp_order_get(from, pages, n_bytes);
        const int64_t n_here = number_here(r, pages, &head);
        x->tables[i].part = (int32_t)head.part;
        lp_status status = n_here < 0 ? too_large(order, err)
                                      : lp_page_table_mirror(&x->tables[i], r->kv, pages, n_here,
                                                             head.n_tokens, err);
        lp_free(pages);
        if (status) return status;
        x->spans[i] = (struct lp_span){.sequence = head.sequence,
                                       .pages = &x->tables[i],
                                       .n_past = head.n_past,
                                       .first_row = head.first_row,
                                       .n_rows = head.n_rows};
    }
    return LP_OK;
}

static lp_status take_head(struct lp_runner *r, struct lp_order_reader *from,
                           const struct lp_order *order, struct step_head *head,
                           struct lp_step_settings *settings, struct lp_err *err) {
    lp_order_get(from, head, sizeof *head);
    if (head->n_rows < 0 || head->n_rows > r->max_rows || head->n_logit_rows < 0 ||
        head->n_logit_rows > r->max_rows || head->n_spans < 0 || head->n_spans > r->max_rows)
        return too_large(order, err);
    r->n_steps = head->n_steps;
    r->ranks.window_rows = head->window_rows;
    r->ranks.watched = head->watched;
    r->ranks.probe.on = false;
    settings->force = (enum lp_route_force)head->force;
    settings->deterministic = head->deterministic != 0;
    return LP_OK;
}

static lp_status follow_step(struct lp_runner *r, const struct lp_order *order,
                             struct lp_step_settings settings, struct lp_err *err) {
    struct lp_runner_ranks *x = &r->ranks;
    struct lp_order_reader from = {(const uint8_t *)order->bytes.data, order->bytes.len, 0, false};
    struct step_head head;
    lp_status status = take_head(r, &from, order, &head, &settings, err);
    if (status) return status;
    lp_order_get(&from, x->tokens, (size_t)head.n_rows * sizeof *x->tokens);
    lp_order_get(&from, x->logit_rows, (size_t)head.n_logit_rows * sizeof *x->logit_rows);
    status = take_spans(r, &from, head.n_spans, order, err);
    if (!status && head.probed) status = lp_ranks_probe_follow(r, &from, err);
    if (status) return status;
    settings.probe = lp_ranks_probe_of(r, NULL);
    const struct lp_step step = {.tokens = x->tokens,
                                 .spans = x->spans,
                                 .n_spans = head.n_spans,
                                 .n_rows = head.n_rows,
                                 .logit_rows = x->logit_rows,
                                 .n_logit_rows = head.n_logit_rows};
    return lp_runner_step(r, &step, &settings, err);
}

static lp_status follow_draft(struct lp_runner *r, const struct lp_order *order,
                              struct lp_step_settings settings, struct lp_err *err) {
    struct lp_runner_ranks *x = &r->ranks;
    struct lp_order_reader from = {(const uint8_t *)order->bytes.data, order->bytes.len, 0, false};
    struct step_head head;
    int32_t n_draft = 0;
    lp_status status = take_head(r, &from, order, &head, &settings, err);
    if (!status) status = take_spans(r, &from, head.n_spans, order, err);
    if (status) return status;
    lp_order_get(&from, &n_draft, sizeof n_draft);
    if (n_draft < 0 || n_draft > r->max_rows) return too_large(order, err);
    const size_t n_spans = (size_t)head.n_spans, n_rows = (size_t)head.n_rows;
    int32_t *kept = lp_alloc(n_spans, sizeof *kept),
            *drafts = lp_alloc(n_spans * (size_t)n_draft, sizeof *drafts);
    bool *drafting = lp_alloc(n_spans, sizeof *drafting);
    if (kept && drafts && drafting) {
        lp_order_get(&from, kept, n_spans * sizeof *kept);
        lp_order_get(&from, drafting, n_spans * sizeof *drafting);
        lp_order_get(&from, x->tokens, n_rows * sizeof *x->tokens);
        const struct lp_step step = {
            .spans = x->spans, .n_spans = head.n_spans, .n_rows = head.n_rows};
        const struct lp_draft draft = {.step = &step,
                                       .kept = kept,
                                       .next_tokens = x->tokens,
                                       .drafting = drafting,
                                       .n_draft = n_draft,
                                       .drafts = drafts};
        status = lp_runner_draft(r, &draft, &settings, err);
    } else
        status = lp_err_memory(err, n_spans * 9, "drafts");
    lp_free(kept);
    lp_free(drafts);
    lp_free(drafting);
    return status;
}

// ---- pages of the cache

// What of a page is on this rank and on none before: latents and indexer keys are the same on all ranks of a
// stage. (With data-parallel attention a page is on one rank: page_rank.)
static size_t page_bytes_of(const struct lp_runner *r) {
    const struct lp_model *m = r->model;
    const bool copies = m->h.arch->attention == LP_ATTENTION_MLA && m->part.tensor > 0;
    return copies || m->part.data_attention ? 0 : lp_kv_own_page_bytes(r->kv);
}

// The rank whose bytes of a page this one's are.
static int32_t page_owner(const struct lp_runner *r) {
    const struct lp_model *m = r->model;
    const int32_t rank = lp_comm_rank(m->ranks);
    return m->h.arch->attention == LP_ATTENTION_MLA ? rank - m->part.tensor : rank;
}

// Of data-parallel attention, the rank that has a page; n_pages: of each.
static int32_t page_rank(int32_t page, int64_t n_pages) {
    return (int32_t)(page / n_pages);
}

struct page_head {
    int32_t to, from;
};

// These have no end: a failure shows in the next step.
static void give_page(struct lp_runner *r, enum lp_order_kind kind, int32_t to, int32_t from,
                      const void *whole, size_t n_bytes) {
    struct lp_order *order = begin(r, kind);
    const struct page_head head = {to, from};
    struct lp_err err;
    lp_order_put(order, &head, sizeof head);
    if (n_bytes) lp_order_put(order, whole, n_bytes);
    give(r, &err);
}

static void others_copy(void *user, int32_t to, int32_t from) {
    give_page(user, LP_ORDER_PAGE_COPY, to, from, NULL, 0);
}

static void collect_pages(struct lp_runner *r, int32_t page, const void *own, void *all) {
    size_t sizes[LP_COMM_MAX_SIZE];
    const int32_t only =
        r->model->part.data_attention ? page_rank(page, lp_kv_part_pages(r->kv)) : -1;
    for (int32_t i = 0; i < lp_comm_size(r->model->ranks); i++)
        sizes[i] = only == i             ? lp_kv_own_page_bytes(r->kv)
                   : i == 0 || only >= 0 ? 0
                                         : r->ranks.page_bytes[i];
    lp_comm_collect_parts(r->model->ranks, own, sizes, all);
}

static bool others_read(void *user, int32_t page, void *out) {
    struct lp_runner *r = user;
    give_page(r, LP_ORDER_PAGE_READ, page, 0, NULL, 0);
    collect_pages(r, page, NULL, out);
    return !lp_comm_failed(r->model->ranks, NULL);
}

static void others_write(void *user, int32_t page, const void *whole) {
    struct lp_runner *r = user;
    give_page(r, LP_ORDER_PAGE_WRITE, page, 0, whole, lp_kv_page_bytes(r->kv));
}

lp_status lp_ranks_join_caches(struct lp_runner *r, struct lp_err *err) {
    struct lp_comm *ranks = r->model->ranks;
    const size_t own = page_bytes_of(r), size = (size_t)lp_comm_size(ranks);
    size_t sum = 0;
    lp_comm_collect(ranks, &own, sizeof own, r->ranks.page_bytes);
    lp_comm_share(ranks, r->ranks.page_bytes, size * sizeof own);
    lp_status status = lp_comm_failed(ranks, err);
    if (status || lp_ranks_follows(r)) return status;
    for (size_t i = 1; i < size; i++) sum += r->ranks.page_bytes[i];
    const struct lp_kv_others others = {.user = r,
                                        .page_bytes = sum,
                                        .copy = others_copy,
                                        .read = others_read,
                                        .write = others_write};
    lp_kv_set_others(r->kv, &others);
    const int32_t n_parts = lp_shard_cache_parts(r->model);
    return n_parts > 1 ? lp_kv_set_parts(r->kv, n_parts, err) : LP_OK;
}

// A page's bytes to rank 0, or from it.
static lp_status move_page(struct lp_runner *r, const struct lp_order *order, int32_t number,
                           struct lp_order_reader *from, struct lp_err *err) {
    const bool data = r->model->part.data_attention;
    const int32_t rank = lp_comm_rank(r->model->ranks), n_pages = (int32_t)lp_kv_n_pages(r->kv),
                  owner = data ? 0 : page_owner(r);
    const bool is_here = !data || page_rank(number, n_pages) == rank;
    const int32_t here = data ? number % n_pages : number;
    uint8_t *page = lp_alloc(lp_kv_own_page_bytes(r->kv), 1);
    if (!page) return lp_err_memory(err, lp_kv_own_page_bytes(r->kv), "a page of the cache");
    if (order->kind == LP_ORDER_PAGE_READ) {
        if (is_here) lp_kv_page_read(r->kv, here, page);
        collect_pages(r, number, page, NULL);
    } else if (is_here) {
        size_t before = 0;
        for (int32_t i = 0; i < owner; i++) before += r->ranks.page_bytes[i];
        lp_order_skip(from, before);
        lp_order_get(from, page, lp_kv_own_page_bytes(r->kv));
        if (!from->failed) lp_kv_page_write(r->kv, here, page);
    }
    lp_free(page);
    return from->failed ? too_large(order, err) : LP_OK;
}

static lp_status follow_page(struct lp_runner *r, const struct lp_order *order,
                             struct lp_err *err) {
    struct lp_order_reader from = {(const uint8_t *)order->bytes.data, order->bytes.len, 0, false};
    const int32_t rank = lp_comm_rank(r->model->ranks), n_parts = lp_shard_cache_parts(r->model);
    const int64_t n_pages = lp_kv_n_pages(r->kv), n_all = n_pages * n_parts;
    struct page_head head;
    lp_order_get(&from, &head, sizeof head);
    if (head.to < 0 || head.to >= n_all || head.from < 0 || head.from >= n_all || from.failed)
        return too_large(order, err);
    if (order->kind != LP_ORDER_PAGE_COPY) return move_page(r, order, head.to, &from, err);
    if (n_parts == 1 || page_rank(head.to, n_pages) == rank)
        lp_kv_page_copy(r->kv, (int32_t)(head.to % n_pages), (int32_t)(head.from % n_pages));
    return LP_OK;
}

static lp_status obey(struct lp_runner *r, const struct lp_order *order,
                      const struct lp_step_settings *settings, struct lp_err *err) {
    switch (order->kind) {
    case LP_ORDER_STEP:
        return follow_step(r, order, *settings, err);
    case LP_ORDER_DRAFT:
        return follow_draft(r, order, *settings, err);
    case LP_ORDER_PAGE_COPY:
    case LP_ORDER_PAGE_READ:
    case LP_ORDER_PAGE_WRITE:
        return follow_page(r, order, err);
    default:
        return too_large(order, err);
    }
}

lp_status lp_runner_follow(struct lp_runner *r, const struct lp_order *order,
                           const struct lp_step_settings *settings, struct lp_err *err) {
    struct lp_err why;
    r->ranks.order.number = order->number;
    r->ranks.order.hash = order->hash;
    lp_status status = obey(r, order, settings, &why);
    if (!status) return LP_OK;
    // Rank 0 waits for a part of this one that will not come, unless it was told.
    if (r->ranks.reported != order->number) lp_comm_fail(r->model->ranks, &why);
    return lp_err_set(err, status, "%s", why.text);
}
