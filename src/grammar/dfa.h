// Moving through a grammar: from a set of configurations over a byte to the next one.
//
// Sets are made when they are first reached and kept, so that the same way is a look-up the next
// time. One thread at a time. Memory is bounded: lp_dfa_trim forgets everything but the sets that
// holders are at when it has become too much; a number of a set is valid until then.
#ifndef LP_GRAMMAR_DFA_H
#define LP_GRAMMAR_DFA_H

#include "grammar/automaton.h"
#include "grammar/config_sets.h"

struct lp_dfa_holder { // somebody who is at a set
    uint32_t set;
    struct lp_dfa_holder *next, *previous;
};

struct lp_round { // a repetition that was gone through
    uint32_t repetition, parent;
    int32_t count;
};

struct lp_closure { // scratch of one step; dfa.c
    struct lp_config *todo, *found;
    struct lp_round *rounds, *done;
    size_t n_todo, todo_capacity, n_found, found_capacity, n_rounds, rounds_capacity, n_done,
        done_capacity;
    struct lp_config *seen; // [n_seen_slots], valid where its stamp is the present one
    uint32_t *stamps, stamp;
    size_t n_seen_slots, n_seen;
    bool can_end;
    uint8_t holes;
};

enum lp_dfa_failure { LP_DFA_OK, LP_DFA_MEMORY, LP_DFA_TOO_LARGE, LP_DFA_TOO_LONG };

struct lp_dfa {
    const struct lp_automaton *a;
    struct lp_config_sets sets;
    struct lp_closure closure;
    struct lp_dfa_holder *holders;
    uint64_t work, work_limit; // configurations that were looked at; set by who asks
    enum lp_dfa_failure failure;
    size_t trimmed_bytes; // that were left by the last lp_dfa_trim
    bool was_cut;         // some way was given up, ever, since it had too many configurations
    uint32_t start;       // set
};

bool lp_dfa_init(struct lp_dfa *d, const struct lp_automaton *a); // release in any case
void lp_dfa_release(struct lp_dfa *d);
// Begins a piece of work of bounded length; failures before it are forgotten.
void lp_dfa_begin(struct lp_dfa *d);

// Each gives a set, LP_SET_DEAD if there is no way; 0 after a failure (d->failure).
uint32_t lp_dfa_find(struct lp_dfa *d, uint32_t set, uint32_t class_of_byte);
uint32_t lp_dfa_token(struct lp_dfa *d, uint32_t set, int32_t id); // a control token
// Behind the end of a rule: what goes on at the RETURN frames `stacks`.
uint32_t lp_dfa_return(struct lp_dfa *d, const uint32_t *stacks, size_t n);
static inline uint32_t lp_dfa_step(struct lp_dfa *d, uint32_t set, uint8_t byte) {
    uint32_t class_of_byte = d->a->class_of[byte];
    uint32_t next = d->sets.next[(size_t)set * d->sets.n_classes + class_of_byte];
    return next ? next : lp_dfa_find(d, set, class_of_byte);
}

void lp_dfa_hold(struct lp_dfa *d, struct lp_dfa_holder *holder); // at the start
void lp_dfa_drop(struct lp_dfa *d, struct lp_dfa_holder *holder);
bool lp_dfa_is_large(const struct lp_dfa *d); // lp_dfa_trim would do something
// False without memory: everything is as before then.
bool lp_dfa_trim(struct lp_dfa *d);

#endif
