// States of what is made of bytes alone: character classes, and the texts of a choice, which share
// their beginnings so that a list of thousands is as cheap as one text.
#include <stdlib.h>

#include "grammar/automaton_parts.h"
#include "base/grow.h"
#include "grammar/utf8_ranges.h"

static bool push_edge(struct lp_compile *c, uint8_t low, uint8_t high, uint32_t target) {
    if (target == 0) return true;
    if (!LP_GROW(c->edges, c->edges_capacity, c->n_edges + 1)) {
        lp_gb_fail(c->b, LP_STATUS_MEMORY, "out of memory: the states of the grammar");
        return false;
    }
    c->edges[c->n_edges++] = (struct lp_edge){target, low, high};
    return true;
}

// The state of the edges that were pushed since there were `first`.
static uint32_t pop_edges(struct lp_compile *c, size_t first) {
    uint32_t state = lp_compile_edges(c, c->edges + first, c->n_edges - first);
    c->n_edges = first;
    return state;
}

// ---- classes ----

#define N_TAILS 64 // states of trailing bytes of one class that are found again

struct tails {
    uint32_t states[N_TAILS];
    size_t n; // ever made; the last N_TAILS are kept
};

static uint32_t find_tail(struct lp_compile *c, struct tails *tails, uint8_t low, uint8_t high,
                          uint32_t target) {
    size_t n = tails->n < N_TAILS ? tails->n : N_TAILS;
    for (size_t i = 0; i < n; i++) {
        const struct lp_state *s = &c->a->states[tails->states[i]];
        if (s->low == low && s->high == high && s->a == target) return tails->states[i];
    }
    uint32_t state = lp_compile_byte(c, low, high, target);
    if (state) tails->states[tails->n++ % N_TAILS] = state;
    return state;
}

static bool any_writable(const struct lp_writable *writable, const struct lp_utf8_sequence *s) {
    for (int i = 0; writable && i < s->n; i++) {
        int byte = s->low[i];
        while (byte <= s->high[i] && !writable->bytes[byte]) byte++;
        if (byte > s->high[i]) return false;
    }
    return true;
}

uint32_t lp_compile_class(struct lp_compile *c, const struct lp_gb_item *item, uint32_t next) {
    struct lp_utf8_sequence sequences[LP_UTF8_MAX_SEQUENCES];
    struct tails tails = {.n = 0};
    size_t first = c->n_edges;
    for (int32_t i = 0; i < item->n; i++) {
        const struct lp_gb_range *range = &c->b->ranges[item->first + i];
        size_t n = lp_utf8_sequences(range->first, range->last, sequences);
        for (size_t j = 0; j < n; j++) {
            const struct lp_utf8_sequence *s = &sequences[j];
            if (!any_writable(c->writable, s)) continue;
            uint32_t state = next;
            for (int k = s->n - 1; k > 0; k--)
                state = find_tail(c, &tails, s->low[k], s->high[k], state);
            if (!push_edge(c, s->low[0], s->high[0], state)) return 0;
        }
    }
    return pop_edges(c, first);
}

// ---- texts ----

static int by_bytes(const void *a, const void *b) {
    const struct lp_str *x = a, *y = b;
    size_t n = x->len < y->len ? x->len : y->len;
    int order = memcmp(x->data, y->data, n);
    return order ? order : x->len < y->len ? -1 : x->len > y->len;
}

static size_t common_length(struct lp_str a, struct lp_str b, size_t from) {
    while (from < a.len && from < b.len && a.data[from] == b.data[from]) from++;
    return from;
}

static uint32_t chain(struct lp_compile *c, struct lp_str text, size_t from, size_t to,
                      uint32_t next) {
    for (size_t i = to; i-- > from && next;) {
        uint8_t byte = (uint8_t)text.data[i];
        next = lp_compile_byte(c, byte, byte, next);
    }
    return next;
}

// texts: sorted, each once, the same up to `from`. Recursive once for each byte where they branch,
// which takes as many texts: sqrt(2 * MAX_TEXT_BYTES) at most.
static uint32_t texts_tree(struct lp_compile *c, const struct lp_str *texts, size_t n, size_t from,
                           uint32_t next) {
    size_t common = common_length(texts[0], texts[n - 1], from), first = c->n_edges;
    if (n == 1) return chain(c, texts[0], from, texts[0].len, next);
    bool ends = texts[0].len == common;
    for (size_t i = ends; i < n;) {
        size_t group = i + 1;
        uint8_t byte = (uint8_t)texts[i].data[common];
        while (group < n && (uint8_t)texts[group].data[common] == byte) group++;
        uint32_t target = texts_tree(c, texts + i, group - i, common + 1, next);
        if (!push_edge(c, byte, byte, target)) return 0;
        i = group;
    }
    uint32_t state = pop_edges(c, first);
    if (ends) state = lp_compile_split(c, (uint32_t[]){state, next}, state ? 2 : 0);
    return chain(c, texts[0], from, common, state);
}

uint32_t lp_compile_texts(struct lp_compile *c, const lp_gb_node *nodes, int32_t n, uint32_t next) {
    size_t n_texts = 0, kept = 0;
    if (!LP_GROW(c->texts, c->texts_capacity, (size_t)n)) {
        lp_gb_fail(c->b, LP_STATUS_MEMORY, "out of memory: the states of the grammar");
        return 0;
    }
    for (int32_t i = 0; i < n; i++) {
        const struct lp_gb_item *item = &c->b->items[nodes[i]];
        if (item->kind == LP_GB_TEXT && c->facts->nodes[nodes[i]].need != LP_NEED_NEVER)
            c->texts[n_texts++] = (struct lp_str){c->b->text.data + item->first, (size_t)item->n};
    }
    if (n_texts == 0) return 0;
    qsort(c->texts, n_texts, sizeof *c->texts, by_bytes);
    for (size_t i = 0; i < n_texts; i++)
        if (i == 0 || !lp_str_equal(c->texts[i], c->texts[i - 1])) c->texts[kept++] = c->texts[i];
    return texts_tree(c, c->texts, kept, 0, next);
}
