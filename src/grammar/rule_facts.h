// What holds for the rules of a builder before they become states: which are reachable, what each
// node can match at least, and that no rule begins with itself.
#ifndef LP_GRAMMAR_RULE_FACTS_H
#define LP_GRAMMAR_RULE_FACTS_H

#include "grammar/build_parts.h"

// A repetition that takes more states than this as copies is one copy, counted on the stack.
#define LP_EXPANDED_STATES 64
#define LP_NEED_NEVER 0xFFFFu // `need` of what nothing can match

struct lp_node_facts {
    bool nullable;     // matches ""
    uint16_t need;     // rules it nests at least, LP_NEED_NEVER: it matches nothing
    uint32_t min_len;  // bytes of its shortest text (a control token counts as one); saturates
    uint32_t n_states; // estimate of what one copy of it takes; saturates
};

// What a vocabulary can write; NULL in place of it: everything.
struct lp_writable {
    bool bytes[256];        // some token has this byte
    const bool *is_control; // [n_vocab]
    int32_t n_vocab;
};

struct lp_rule_facts {
    struct lp_node_facts *nodes; // [n_items], of nodes of reachable rules
    struct lp_node_facts *rules; // [n_rules]
    lp_gb_rule *order;           // [n_order] reachable rules, those they use first where possible
    size_t n_order;
};

// Fails the builder: rules that are used and not defined, left recursion, out of time or memory.
// lp_rule_facts_release in any case.
void lp_rule_facts_make(struct lp_rule_facts *facts, struct lp_gb *b, lp_gb_rule start,
                        const struct lp_writable *writable);
void lp_rule_facts_release(struct lp_rule_facts *facts);

#endif
