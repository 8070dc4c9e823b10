// A compiled grammar, for grammar.c and matcher.c.
#ifndef LP_GRAMMAR_GRAMMAR_PARTS_H
#define LP_GRAMMAR_GRAMMAR_PARTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "grammar/masks.h"

struct lp_grammar {
    atomic_int n_references;
    struct lp_automaton automaton;
    const struct lp_token_trie *trie; // or NULL
    pthread_mutex_t lock;             // of all that follows
    struct lp_dfa dfa;
    struct lp_masks masks; // without a trie: unused
};

// Forgets sets and masks if they have become too many; the caller has the lock.
void lp_grammar_trim(struct lp_grammar *g);

#endif
