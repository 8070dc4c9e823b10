// Changes to a loaded model that are undone together: the memory of one experiment.
#ifndef LP_DOCTOR_PATCH_H
#define LP_DOCTOR_PATCH_H

#include "model/model.h"

struct lp_patch_entry {
    void *at, *old;
    size_t n_bytes;
};
struct lp_patch { // set dev; the rest zero
    struct lp_device *dev;
    struct lp_patch_entry *entries;
    size_t n_entries;
    void **blocks; // device memory of the experiment
    size_t n_blocks;
    bool failed; // out of memory: the experiment cannot be made
};

// Writes a value over n_bytes of the model's structs and remembers what was there.
void lp_patch_set(struct lp_patch *patch, void *at, const void *value, size_t n_bytes);
// Device memory that lives until the undo; NULL when out of memory.
void *lp_patch_block(struct lp_patch *patch, size_t n_bytes);
// Puts everything back. The patch can be used again.
void lp_patch_undo(struct lp_patch *patch);

// Experiments on one weight. Those that need its values make a float32 copy of at most
// LP_PATCH_MAX_BYTES, else the patch fails.
#define LP_PATCH_MAX_BYTES ((size_t)1 << 30)
// Row i of every matrix is what row order[i] was; order: [n_out].
void lp_patch_reorder_rows(struct lp_patch *patch, struct lp_weight *w, const int64_t *order);
// Every matrix read as if it had been stored [n_in, n_out].
void lp_patch_transpose(struct lp_patch *patch, struct lp_weight *w);
void lp_patch_scale(struct lp_patch *patch, struct lp_weight *w, float factor);
// Matrices a and b of a stack change places.
void lp_patch_swap_matrices(struct lp_patch *patch, struct lp_weight *w, int64_t a, int64_t b);
void lp_patch_swap(struct lp_patch *patch, void *a, void *b, size_t n_bytes);
// A device vector of n floats, times factor plus term.
void lp_patch_vector(struct lp_patch *patch, const float **vector, size_t n, float factor,
                     float term);

#endif
