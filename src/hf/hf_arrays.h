// The arrays of a checkpoint by the names of hf_names.c, whatever model they are wrapped in, and an
// account of them: each is used, or ignored for a reason, or unknown.
#ifndef LP_HF_HF_ARRAYS_H
#define LP_HF_HF_ARRAYS_H

#include "base/map.h"
#include "hf/hf.h"
#include "hf/hf_names.h"

struct lp_hf_arrays {
    const struct lp_hf_folder *folder;
    const char *prefix, *head; // of "model." names, of "lm_head." ones; static text
    struct lp_map names;       // -> index
    bool *used;                // [lp_safetensors_count]
};

// Finds out the wrapping: which prefix the embedding has. Release in any case. Errors: FORMAT (no
// embedding at all), MEMORY.
lp_status lp_hf_arrays_init(struct lp_hf_arrays *a, const struct lp_hf_folder *folder,
                            struct lp_err *err);
void lp_hf_arrays_release(struct lp_hf_arrays *a);

// The name in this checkpoint for one of hf_names.c.
void lp_hf_arrays_name(const struct lp_hf_arrays *a, const char *name, char out[LP_HF_NAME_BYTES]);
// As lp_hf_matrix_find for a name of this checkpoint, "...weight" or "...bias"; marks its arrays.
lp_status lp_hf_arrays_take(struct lp_hf_arrays *a, const char *name, struct lp_hf_matrix *out,
                            bool *found, struct lp_err *err);

// What decides whether an array may stay unused.
struct lp_hf_rest {
    int64_t n_layers, n_blocks; // decoder layers; with the MTP layers that are used
    bool without_mtp;
    bool tied;
    const bool *full; // [n_layers], or NULL: which layers have an indexer
};
// Lists every array that was not taken, with the reason. *out: lp_free. Errors: FORMAT, naming
// those that no reason is known for; MEMORY.
lp_status lp_hf_arrays_rest(const struct lp_hf_arrays *a, const struct lp_hf_rest *rest,
                            struct lp_hf_ignored **out, uint64_t *n, struct lp_err *err);

#endif
