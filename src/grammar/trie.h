// A vocabulary as a tree of bytes, in the order in which it is walked: a node, then all below it.
//
//     node  byte  depth  skip   tokens          "a" (5), "ab" (8, 9), "c" (2):
//     0     a     1      2      5               skip: the next node that does not lie below
//     1     b     2      2      8 9
//     2     c     1      3      2
//
// Two trees, of short tokens and of long ones: almost all tokens are short, and what can be said
// about them does not depend on what comes far behind (masks.c).
#ifndef LP_GRAMMAR_TRIE_H
#define LP_GRAMMAR_TRIE_H

#include "grammar/config_sets.h"
#include "grammar/rule_facts.h"

#define LP_SHORT_TOKEN_BYTES 16

struct lp_trie_node {
    uint32_t skip;
    uint32_t first_id; // the node's tokens: ids[first_id] to ids[first_id of the next node - 1]
    uint16_t depth;    // bytes from the root; 1 for its children
    uint8_t byte;
};

struct lp_trie_part {
    struct lp_trie_node *nodes; // [n_nodes + 1], the last one only ends the list
    uint32_t n_nodes;
    int32_t *ids;
    uint32_t max_depth; // bytes of the longest token
};

struct lp_token_trie {
    struct lp_trie_part parts[LP_SET_LENGTHS]; // the second may be empty
    int32_t n_vocab;
    char *text;        // the bytes of all tokens
    uint32_t *offsets; // [n_vocab + 1] of `text`; nothing for what is never written as text
    bool *is_control;  // [n_vocab]
    struct lp_writable writable;
};

static inline struct lp_str lp_token_trie_bytes(const struct lp_token_trie *trie, int32_t id) {
    uint32_t from = trie->offsets[id];
    return (struct lp_str){trie->text + from, trie->offsets[id + 1] - from};
}

#endif
