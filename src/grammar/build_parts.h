// Inside the builder: the nodes of a grammar, for the analysis and the compiler behind it.
#ifndef LP_GRAMMAR_BUILD_PARTS_H
#define LP_GRAMMAR_BUILD_PARTS_H

#include "grammar/build.h"

enum lp_gb_kind {
    LP_GB_EMPTY,
    LP_GB_NEVER,
    LP_GB_TEXT,     // first, n: of `text`
    LP_GB_CLASS,    // first, n: of `ranges`, ascending, disjoint, no surrogates, not empty
    LP_GB_TOKEN,    // first: id
    LP_GB_SEQUENCE, // first, n: of `children`
    LP_GB_CHOICE,   // first, n: of `children`
    LP_GB_REPEAT,   // first: the node; min, max (-1: any number)
    LP_GB_USE,      // first: the rule
};

struct lp_gb_item {
    uint8_t kind; // enum lp_gb_kind
    bool is_used;
    uint16_t depth; // of the tree below it
    int32_t first, n;
    int32_t min, max;
};

struct lp_gb_rule_item {
    char *name;
    lp_gb_node node; // 0 = not defined
};

struct lp_gb {
    struct lp_gb_item *items; // [n_items]; 0 is no node
    size_t n_items, items_capacity;
    struct lp_bytes text;
    struct lp_gb_range *ranges;
    size_t n_ranges, ranges_capacity;
    lp_gb_node *children;
    size_t n_children, children_capacity;
    struct lp_gb_rule_item *rules; // [n_rules]
    size_t n_rules, rules_capacity;
    uint64_t deadline_ns; // on the clock of lp_clock_thread_ns
    struct lp_err err;
    bool failed;
};

// Fails the builder when LP_GRAMMAR_COMPILE_MS have gone by; true if it has failed.
bool lp_gb_is_late(struct lp_gb *b);

#endif
