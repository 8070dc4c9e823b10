// Short ways of writing nodes of nodes, and a list of nodes that grows.
#ifndef LP_GRAMMAR_NODE_LIST_H
#define LP_GRAMMAR_NODE_LIST_H

#include "grammar/build.h"
#include "base/grow.h"

#define LP_GB_NODES(...)                                                                           \
    (const lp_gb_node[]){__VA_ARGS__},                                                             \
        sizeof((const lp_gb_node[]){__VA_ARGS__}) / sizeof(lp_gb_node)
#define LP_GB_SEQ(b, ...) lp_gb_sequence(b, LP_GB_NODES(__VA_ARGS__))
#define LP_GB_CHOICE(b, ...) lp_gb_choice(b, LP_GB_NODES(__VA_ARGS__))

static inline lp_gb_node lp_gb_word(struct lp_gb *b, const char *text) {
    return lp_gb_text(b, lp_str_from(text));
}

// Zero-initialise; free items with lp_free.
struct lp_gb_list {
    lp_gb_node *items;
    size_t n, capacity;
};

// Without memory the builder fails and the node is dropped.
static inline void lp_gb_list_add(struct lp_gb *b, struct lp_gb_list *list, lp_gb_node node) {
    if (LP_GROW(list->items, list->capacity, list->n + 1))
        list->items[list->n++] = node;
    else
        lp_gb_fail(b, LP_STATUS_MEMORY, "out of memory: the grammar");
}

static inline lp_gb_node lp_gb_list_sequence(struct lp_gb *b, struct lp_gb_list *list) {
    lp_gb_node node = lp_gb_sequence(b, list->items, list->n);
    lp_free(list->items);
    *list = (struct lp_gb_list){0};
    return node;
}

static inline lp_gb_node lp_gb_list_choice(struct lp_gb *b, struct lp_gb_list *list) {
    lp_gb_node node = lp_gb_choice(b, list->items, list->n);
    lp_free(list->items);
    *list = (struct lp_gb_list){0};
    return node;
}

#endif
