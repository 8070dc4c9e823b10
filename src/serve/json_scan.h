// A look at a JSON text before it becomes a tree, which may take 40 times its memory: how deep it
// nests, and how many numbers the "prompt" of its outermost object lists.
#ifndef LP_SERVE_JSON_SCAN_H
#define LP_SERVE_JSON_SCAN_H

#include <stddef.h>

struct lp_json_scan {
    size_t depth;       // of arrays and objects
    size_t depth_at;    // offset at which depth passed max_depth; 0 if it does not
    size_t longest_ids; // elements of the longest array of numbers that is prompt, or in it
};

// Any bytes; what is no JSON gets some answer. Stops where depth passes max_depth.
struct lp_json_scan lp_json_scan(const char *text, size_t n_bytes, size_t max_depth);

#endif
