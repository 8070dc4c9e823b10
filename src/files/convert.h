// A Hugging Face folder -> a GGUF file: the plan of hf.h, written by several threads.
//
// Memory: the maps of the shards (the page cache's), and for each thread a piece of about a million
// values, or of one row where rows are longer.
#ifndef LP_FILES_CONVERT_H
#define LP_FILES_CONVERT_H

#include "hf/hf.h"

struct lp_convert_options {
    const char *folder, *out;
    const char *name; // general.name, or NULL: the model's own
    bool keep;        // every matrix in the precision of the checkpoint; else in `type`
    lp_type type;
    bool without_mtp;
    bool overwrite;
    int n_threads; // 0 = all CPUs
};

struct lp_convert;

// Reads everything but the weights, and decides on types. Errors: as lp_hf_plan_make; INVALID for a
// type that cannot be written.
lp_status lp_convert_open(struct lp_convert **out, const struct lp_convert_options *options,
                          struct lp_err *err);
void lp_convert_close(struct lp_convert *c); // NULL is allowed
const struct lp_hf_plan *lp_convert_plan(const struct lp_convert *c);

struct lp_convert_result {
    uint64_t n_tensors, n_bytes;
    double seconds;
    uint64_t n_kept;      // matrices that stay quantised, exactly as they were
    uint64_t n_rounded;   // matrices that were rounded: FP8 to BF16, or to `type`
    uint64_t n_exchanged; // ... of these in another type, since rows are no multiple of its block
    lp_type exchange;     // that type, or one of them
};

// Writes the file (files/new_file.h). Once. Errors: IO, LIMIT (no space), INVALID (the file
// exists), NUMERIC (a value that the type cannot hold: names the tensor), MEMORY.
lp_status lp_convert_run(struct lp_convert *c, struct lp_convert_result *result,
                         struct lp_err *err);

#endif
