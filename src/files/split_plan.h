// Where a file is cut into parts: sums over the directory, nothing is read or written.
#ifndef LP_FILES_SPLIT_PLAN_H
#define LP_FILES_SPLIT_PLAN_H

#include "gguf/gguf.h"

// One of the three is not 0.
struct lp_split_limits {
    uint64_t max_bytes;   // of a part, all of it
    uint64_t max_data;    // of a part's tensors with their padding, as llama-gguf-split counts
    uint64_t max_tensors; // of a part
    bool no_tensor_first; // part 1 has metadata only
};

struct lp_split_part {
    uint64_t first, n_tensors;
};

struct lp_split_plan {
    struct lp_split_part *parts; // lp_free
    uint32_t n_parts;
};

// head_first, head_later: bytes of a header without tensors, of part 1 and of the others. A part
// keeps to the limit unless it has only one tensor; part 1 has none where its metadata leave it no
// room. The alignment is part 1's. Errors: LIMIT (more parts than a set may have), MEMORY.
lp_status lp_split_plan_make(struct lp_split_plan *plan, const struct lp_gguf *gguf,
                             const struct lp_split_limits *limits, uint64_t head_first,
                             uint64_t head_later, struct lp_err *err);
void lp_split_plan_release(struct lp_split_plan *plan);

#endif
