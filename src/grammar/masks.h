// Which tokens may come next, as bits. A mask is found by walking over the tree of the vocabulary
// with the grammar's deterministic automaton; masks.c says what keeps that rare.
#ifndef LP_GRAMMAR_MASKS_H
#define LP_GRAMMAR_MASKS_H

#include "grammar/dfa.h"
#include "grammar/trie.h"

struct lp_mask_exit { // the walk left what is known at a node of the tree, through holes
    uint32_t node;
    uint8_t holes;
};

struct lp_mask {
    struct lp_mask *newer, *older; // by last use
    uint32_t n_references;         // the cache's and those of who looks at it
    uint32_t set;                  // whose it is while it is in the cache
    uint8_t slot;                  // enum lp_mask_slot
    bool is_empty;
    bool is_too_open; // so many exits that nothing is gained; there are no bits
    size_t bytes;
    struct lp_mask_exit *exits;
    size_t n_exits, exits_capacity;
    uint32_t bits[];
};

struct lp_masks {
    struct lp_dfa *dfa;
    const struct lp_token_trie *trie;
    size_t n_words, bytes;
    struct lp_mask *newest, *oldest;
    uint32_t *path;  // [longest token + 1] scratch: the sets on the way to a node
    uint32_t *climb; // scratch: frames of a stack, the lowest last
    size_t n_climb, climb_capacity;
    struct lp_config *configs; // scratch of a new set
    size_t configs_capacity;
    uint8_t max_need; // of the automaton's states
};

bool lp_masks_init(struct lp_masks *m, struct lp_dfa *dfa, const struct lp_token_trie *trie);
void lp_masks_release(struct lp_masks *m);
void lp_masks_clear(struct lp_masks *m); // before the sets are forgotten

// The mask of a set, with a reference for the caller; NULL after a failure (dfa->failure).
struct lp_mask *lp_masks_take(struct lp_masks *m, uint32_t set);
void lp_mask_put(struct lp_mask *mask); // NULL is allowed

#endif
