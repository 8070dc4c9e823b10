// Where a text can be in a grammar: sets of configurations (state, stack), each set kept once and
// known by a number. Together with `next` they are the states of a deterministic automaton that is
// made while it is used.
//
//     frames   1: behind rule, to state 17          a stack is the number of its top frame; stacks
//              2: behind rule, to state 40, on 1    share their lower parts. 0: the empty stack
//              3: third time through repetition 5, on 2
//     sets     1: nothing (dead)   2: {(3, 0)}   3: {(8, 2), (9, 3)} ...
//     next     [set, class of byte] -> set; 0: not known yet
#ifndef LP_GRAMMAR_CONFIG_SETS_H
#define LP_GRAMMAR_CONFIG_SETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LP_SET_DEAD 1u
#define LP_MAX_HOLES 8
#define LP_SET_LENGTHS 2 // sorts of tokens, short and long ones (trie.h)

enum lp_frame_kind {
    LP_FRAME_RETURN, // value: a state
    LP_FRAME_COUNT,  // value: a repetition; count: how often it has been through
    LP_FRAME_HOLE,   // value: 0 ... LP_MAX_HOLES - 1; what lies below is not known (masks.c)
};

struct lp_frame {
    uint32_t value, parent;
    uint32_t canonical[LP_SET_LENGTHS]; // masks.c; 0: not known yet
    uint16_t count;
    uint16_t depth; // RETURN frames from here down
    uint8_t kind;
};

struct lp_config {
    uint32_t state, stack;
};

enum lp_mask_slot {                                // a set's masks (masks.c)
    LP_MASK_ALL,                                   // over all tokens
    LP_MASK_FULL,                                  // over tokens of one length
    LP_MASK_LOCAL = LP_MASK_FULL + LP_SET_LENGTHS, // the same, where nothing is known below holes
    LP_MASK_SLOTS = LP_MASK_LOCAL + LP_SET_LENGTHS,
};

struct lp_config_set {
    uint32_t first, n; // of `configs`; ascending
    uint32_t canonical[LP_SET_LENGTHS];
    bool can_end;
    uint8_t holes; // bit i: hole i was reached
    struct lp_mask *masks[LP_MASK_SLOTS];
};

struct lp_id_table { // hash -> number, open addressing; 0: empty
    uint32_t *ids, *hashes;
    size_t n_slots, n_used;
};

struct lp_config_sets {
    struct lp_frame *frames;
    size_t n_frames, frames_capacity;
    struct lp_config *configs;
    size_t n_configs, configs_capacity;
    struct lp_config_set *sets;
    size_t n_sets, sets_capacity;
    uint32_t *next;
    size_t next_capacity;
    uint32_t n_classes;
    struct lp_id_table frame_table, set_table;
};

// False without memory; release in any case.
bool lp_config_sets_init(struct lp_config_sets *c, uint32_t n_classes);
void lp_config_sets_release(struct lp_config_sets *c);
size_t lp_config_sets_bytes(const struct lp_config_sets *c);

// The frame's number; 0 without memory. depth: of a HOLE; the others count theirs.
uint32_t lp_config_sets_frame(struct lp_config_sets *c, enum lp_frame_kind kind, uint32_t value,
                              uint32_t count, uint32_t parent, uint32_t depth);
// The set's number, 0 without memory. Sorts configs; one that is there twice counts once.
uint32_t lp_config_sets_set(struct lp_config_sets *c, struct lp_config *configs, size_t n,
                            bool can_end, uint8_t holes);

#endif
