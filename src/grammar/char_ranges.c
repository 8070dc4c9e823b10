// Sets of characters: kept as a list, put in order when asked.
#include "grammar/char_ranges.h"

#include <stdlib.h>

#include "base/grow.h"

void lp_char_ranges_release(struct lp_char_ranges *set) {
    lp_free(set->items);
    *set = (struct lp_char_ranges){0};
}

void lp_char_ranges_add(struct lp_char_ranges *set, uint32_t first, uint32_t last) {
    if (first > last) return;
    if (set->failed || !LP_GROW(set->items, set->capacity, set->n + 1)) {
        set->failed = true;
        return;
    }
    set->items[set->n++] = (struct lp_gb_range){first, last};
}

void lp_char_ranges_add_all(struct lp_char_ranges *set, const struct lp_gb_range *ranges,
                            size_t n) {
    for (size_t i = 0; i < n; i++) lp_char_ranges_add(set, ranges[i].first, ranges[i].last);
}

static int by_first(const void *a, const void *b) {
    const struct lp_gb_range *x = a, *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

static void sort_and_join(struct lp_char_ranges *set) {
    size_t kept = 0;
    if (set->n) qsort(set->items, set->n, sizeof *set->items, by_first);
    for (size_t i = 0; i < set->n; i++) {
        struct lp_gb_range range = set->items[i];
        if (kept && range.first <= set->items[kept - 1].last + 1) {
            if (range.last > set->items[kept - 1].last) set->items[kept - 1].last = range.last;
        } else {
            set->items[kept++] = range;
        }
    }
    set->n = kept;
}

// What lies between the ranges, which are in order.
static void invert(struct lp_char_ranges *set) {
    struct lp_char_ranges out = {.failed = set->failed};
    uint32_t next = 0;
    for (size_t i = 0; i < set->n; i++) {
        if (set->items[i].first > next) lp_char_ranges_add(&out, next, set->items[i].first - 1);
        next = set->items[i].last + 1;
    }
    if (next <= LP_CHAR_MAX) lp_char_ranges_add(&out, next, LP_CHAR_MAX);
    lp_free(set->items);
    *set = out;
}

void lp_char_ranges_complement(struct lp_char_ranges *set) {
    lp_char_ranges_add(set, 0xD800, 0xDFFF);
    sort_and_join(set);
    invert(set);
}

void lp_char_ranges_normalise(struct lp_char_ranges *set) {
    sort_and_join(set);
    invert(set);
    lp_char_ranges_complement(set);
}
