// The states of a grammar: a pushdown automaton over bytes. It never changes once it is made.
//
// A configuration is a state and a stack. The stack has two sorts of frames: where to go on behind
// a rule, and how often a counted repetition has been through. States from which no end can be
// reached do not exist, so that whatever is allowed can be completed; `need` says with how many
// more rules on the stack (LP_GRAMMAR_MAX_DEPTH bounds them).
#ifndef LP_GRAMMAR_AUTOMATON_H
#define LP_GRAMMAR_AUTOMATON_H

#include "grammar/rule_facts.h"

enum lp_state_kind {
    LP_STATE_DEAD,  // state 0
    LP_STATE_END,   // state 1: of a rule; on an empty stack of the text
    LP_STATE_BYTE,  // a byte of low to high leads to a
    LP_STATE_EDGES, // edges a ... a + b - 1
    LP_STATE_SPLIT, // goes on, without a byte, in each of targets a ... a + b - 1
    LP_STATE_CALL,  // goes on in rule a, behind it in state b
    LP_STATE_JUMP,  // goes on in rule a, whose end is that of this rule too
    LP_STATE_ENTER, // before repetition a
    LP_STATE_LOOP,  // behind one time through repetition a, whose frame is on top
    LP_STATE_TOKEN, // control token a leads to b
};

struct lp_state {
    uint8_t kind; // enum lp_state_kind
    uint8_t need; // rules that are nested at least on the way to the end of this one
    uint8_t low, high;
    uint32_t a, b;
};

struct lp_edge {
    uint32_t target;
    uint8_t low, high;
};

struct lp_repetition {
    int32_t min, max; // max -1: any number
    uint32_t body, next;
    uint32_t min_len; // bytes of one time through; at least 1
};

struct lp_automaton {
    struct lp_state *states; // [n_states]
    size_t n_states, states_capacity;
    struct lp_edge *edges;
    size_t n_edges, edges_capacity;
    uint32_t *targets;
    size_t n_targets, targets_capacity;
    struct lp_repetition *repetitions;
    size_t n_repetitions, repetitions_capacity;
    uint32_t *rules; // [n_rules] first states
    uint32_t start;
    uint32_t n_classes; // bytes that no state tells apart are one class
    uint8_t class_of[256];
    uint8_t byte_of[256]; // [n_classes] one byte of each class
};

// Fails the builder: over a limit, memory, or a grammar that matches nothing at all.
// lp_automaton_release in any case.
void lp_automaton_make(struct lp_automaton *a, struct lp_gb *b, lp_gb_rule start,
                       const struct lp_rule_facts *facts, const struct lp_writable *writable);
void lp_automaton_release(struct lp_automaton *a);

#endif
