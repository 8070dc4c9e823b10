// Sets of characters as ranges of code points.
#ifndef LP_GRAMMAR_CHAR_RANGES_H
#define LP_GRAMMAR_CHAR_RANGES_H

#include "grammar/build.h"

#define LP_CHAR_MAX 0x10FFFFu

// Zero-initialise. After a failed addition (no memory) `failed` stays true.
struct lp_char_ranges {
    struct lp_gb_range *items;
    size_t n, capacity;
    bool failed;
};

void lp_char_ranges_release(struct lp_char_ranges *set);
void lp_char_ranges_add(struct lp_char_ranges *set, uint32_t first, uint32_t last);
void lp_char_ranges_add_all(struct lp_char_ranges *set, const struct lp_gb_range *ranges, size_t n);
// Ascending, disjoint, without surrogates.
void lp_char_ranges_normalise(struct lp_char_ranges *set);
// All characters that are not in it; normalised.
void lp_char_ranges_complement(struct lp_char_ranges *set);

#endif
