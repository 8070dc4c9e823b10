// Between automaton.c and leaf_states.c: the compiler from nodes to states.
#ifndef LP_GRAMMAR_AUTOMATON_PARTS_H
#define LP_GRAMMAR_AUTOMATON_PARTS_H

#include "grammar/automaton.h"

struct lp_compile {
    struct lp_automaton *a;
    struct lp_gb *b;
    const struct lp_rule_facts *facts;
    const struct lp_writable *writable;
    struct lp_edge *edges; // scratch, a stack
    size_t n_edges, edges_capacity;
    struct lp_str *texts; // scratch of one choice
    size_t texts_capacity;
};

// Each returns a state, or 0: it would lead nowhere, or the builder has failed.
uint32_t lp_compile_state(struct lp_compile *c, struct lp_state state);
uint32_t lp_compile_byte(struct lp_compile *c, uint8_t low, uint8_t high, uint32_t target);
uint32_t lp_compile_edges(struct lp_compile *c, const struct lp_edge *edges, size_t n);
uint32_t lp_compile_split(struct lp_compile *c, const uint32_t *targets, size_t n);
uint32_t lp_compile_node(struct lp_compile *c, lp_gb_node node, uint32_t next);

// leaf_states.c
uint32_t lp_compile_class(struct lp_compile *c, const struct lp_gb_item *item, uint32_t next);
// Those of n nodes that are texts, as one tree of their bytes.
uint32_t lp_compile_texts(struct lp_compile *c, const lp_gb_node *nodes, int32_t n, uint32_t next);

#endif
