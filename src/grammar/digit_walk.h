// Decimal numbers between two bounds, as a grammar over their digits.
//
// All numbers of one walk have n_whole digits before the point and at most n_fraction behind it.
// They are held as one integer, the digits without the point: 12.5 with n_fraction 3 is 12500.
#ifndef LP_GRAMMAR_DIGIT_WALK_H
#define LP_GRAMMAR_DIGIT_WALK_H

#include "grammar/build.h"

#define LP_DIGIT_WALK_MAX 19           // digits
#define LP_DIGIT_WALK_MAX_MULTIPLE 100 // of numbers that are multiples of one number

struct lp_digit_walk {
    struct lp_gb *b;
    int n_whole, n_fraction;
    uint64_t low, high; // both belong to it
    uint32_t multiple;  // of this one, without fraction; 1: any
    // Used with a multiple, kept from walk to walk, NULL before the first:
    // [digits left][remainder]
    lp_gb_rule *rest;
    bool *has_rest;
};

// The node, or 0 with *never if there is no such number. low has n_whole digits before the point
// (or is below 1 where n_whole is 1).
lp_gb_node lp_digit_walk(struct lp_digit_walk *walk, bool *never);
void lp_digit_walk_release(struct lp_digit_walk *walk);

#endif
