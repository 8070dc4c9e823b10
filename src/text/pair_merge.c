// A binary heap of (rank, position) with lazy deletion. An entry is stale when the pair at its
// position no longer has its rank; an entry that happens to agree with a newer pair is as good as
// that pair's own, since rank and position are all that the order knows. So nothing else is stored.
#include "text/pair_merge.h"

#include "base/alloc.h"
#include "base/checked.h"

bool lp_pair_reserve(struct lp_pair_work *work, size_t n) {
    if (n <= work->capacity) return true;
    size_t capacity, n_heap;
    if (!lp_add_size(n, n / 2, &capacity) || !lp_mul_size(capacity, 2, &n_heap)) return false;
    lp_pair_release(work);
    // Each join takes one entry and adds at most two, so the n - 1 first ones can at most double.
    work->symbols = lp_realloc(NULL, capacity, sizeof *work->symbols);
    work->heap = lp_realloc(NULL, n_heap, sizeof *work->heap);
    if (!work->symbols || !work->heap) {
        lp_pair_release(work);
        return false;
    }
    work->capacity = capacity;
    return true;
}

void lp_pair_release(struct lp_pair_work *work) {
    lp_free(work->symbols);
    lp_free(work->heap);
    *work = (struct lp_pair_work){0};
}

static void sift_down(uint64_t *heap, size_t n, size_t at) {
    uint64_t key = heap[at];
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= key) break;
        heap[at] = heap[child];
    }
    heap[at] = key;
}

static void push(struct lp_pair_work *work, uint64_t key) {
    size_t at = work->n_heap++;
    for (; at && work->heap[(at - 1) / 2] > key; at = (at - 1) / 2)
        work->heap[at] = work->heap[(at - 1) / 2];
    work->heap[at] = key;
}

static uint64_t pop(struct lp_pair_work *work) {
    uint64_t key = work->heap[0];
    work->heap[0] = work->heap[--work->n_heap];
    if (work->n_heap) sift_down(work->heap, work->n_heap, 0);
    return key;
}

static uint64_t heap_key(const struct lp_pair_work *work, uint32_t at) {
    return (uint64_t)work->symbols[at].rank << 32 | at;
}

static void rank_pair(struct lp_pair_work *work, uint32_t at, lp_pair_fn fn, const void *ctx) {
    struct lp_pair_symbol *left = &work->symbols[at];
    left->rank = LP_PAIR_NONE;
    if (left->next != LP_PAIR_NONE) fn(ctx, left, &work->symbols[left->next]);
}

static void join(struct lp_pair_work *work, uint32_t at) {
    struct lp_pair_symbol *left = &work->symbols[at], *right = &work->symbols[left->next];
    left->id = left->result;
    left->len += right->len;
    left->next = right->next;
    if (left->next != LP_PAIR_NONE) work->symbols[left->next].prev = at;
    right->rank = LP_PAIR_NONE; // its entries are stale from here on
}

void lp_pair_merge(struct lp_pair_work *work, size_t n, lp_pair_fn fn, const void *ctx) {
    struct lp_pair_symbol *symbols = work->symbols;
    work->n_heap = 0;
    for (size_t i = 0; i < n; i++) {
        symbols[i].prev = i ? (uint32_t)i - 1 : LP_PAIR_NONE;
        symbols[i].next = i + 1 < n ? (uint32_t)i + 1 : LP_PAIR_NONE;
    }
    for (size_t i = 0; i < n; i++) {
        rank_pair(work, (uint32_t)i, fn, ctx);
        if (symbols[i].rank != LP_PAIR_NONE)
            work->heap[work->n_heap++] = heap_key(work, (uint32_t)i);
    }
    for (size_t i = work->n_heap / 2; i-- > 0;) sift_down(work->heap, work->n_heap, i);

    while (work->n_heap) {
        uint64_t key = pop(work);
        uint32_t at = (uint32_t)key, prev = symbols[at].prev;
        if (heap_key(work, at) != key) continue;
        join(work, at);
        rank_pair(work, at, fn, ctx);
        if (symbols[at].rank != LP_PAIR_NONE) push(work, heap_key(work, at));
        if (prev == LP_PAIR_NONE) continue;
        rank_pair(work, prev, fn, ctx);
        if (symbols[prev].rank != LP_PAIR_NONE) push(work, heap_key(work, prev));
    }
}
