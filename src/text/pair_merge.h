// The merge loop that byte-level BPE and SentencePiece share: of all adjacent pairs of symbols the
// one with the lowest rank is joined, leftmost first on equal rank, until no pair has a rank.
// O(n log n). What a pair's rank is, the caller's function says.
#ifndef LP_TEXT_PAIR_MERGE_H
#define LP_TEXT_PAIR_MERGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LP_PAIR_NONE UINT32_MAX // no rank, no neighbour

struct lp_pair_symbol {
    uint32_t prev, next; // indexes of the neighbours, or LP_PAIR_NONE
    uint32_t start, len; // bytes of the text that it covers
    uint32_t id;         // the caller's name for it
    uint32_t rank;       // of the pair (this, next); LP_PAIR_NONE = they do not join
    uint32_t result;     // id of that pair once joined
};

// Zero-initialise; reused from piece to piece; one thread at a time.
struct lp_pair_work {
    struct lp_pair_symbol *symbols;
    uint64_t *heap;
    size_t n_heap, capacity;
};

// Sets left->rank and left->result for the pair (left, right); rank is LP_PAIR_NONE beforehand.
typedef void (*lp_pair_fn)(const void *ctx, struct lp_pair_symbol *left,
                           const struct lp_pair_symbol *right);

bool lp_pair_reserve(struct lp_pair_work *work, size_t n); // false when out of memory
void lp_pair_release(struct lp_pair_work *work);

// symbols[0..n) hold start, len and id; n < LP_PAIR_NONE, and reserved. Afterwards the remaining
// symbols are those met from symbols[0] along next.
void lp_pair_merge(struct lp_pair_work *work, size_t n, lp_pair_fn fn, const void *ctx);

#endif
