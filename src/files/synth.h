// Models with random weights: the shape of a published model or any other, the types of a preset, a
// vocabulary that encodes and decodes. They answer with noise, as fast as a trained model would.
//
// Weights have the deviation 1 / sqrt(n_in), so that activations keep their size. Those of quantised
// types are random bits below one scale; normal values, which take longer, come from a pool for each
// type and width, with random signs: both fill a disk at its own speed. The bytes follow from the
// options alone, whatever the number of threads.
#ifndef LP_FILES_SYNTH_H
#define LP_FILES_SYNTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct lp_synth_options {
    const char *path;
    const char *model;       // a name of synth_models.h, or the path of a config.json
    const char *const *sets; // [n_sets] "FIELD=VALUE": fields of config.json to be set; or NULL
    size_t n_sets;
    const char *types; // a preset of quantize_presets.h, or any type of a weight
    // Any type of a weight for the routed experts, or two: of gate and up, and of down ("Q2_K,Q3_K");
    // NULL = as `types` says
    const char *experts;
    uint64_t seed;
    bool sparse; // stacks of experts are holes in the file: they take no disk space, and are zero
    bool hollow; // so is every weight: a header, and the length of a model
    bool overwrite, dry_run;
    int n_threads; // 0 = as many as there are CPUs
};

struct lp_synth_result {
    uint64_t n_tensors, n_weights, file_bytes;
    uint64_t written_bytes; // file_bytes less the holes
    double seconds;
};

// Writes the file (files/new_file.h). dry_run: only *out. Errors: INVALID (an option, a field, a
// preset, a shape that cannot be), UNSUPPORTED (a config that limpid does not run), IO, LIMIT
// (space), MEMORY.
lp_status lp_synth(const struct lp_synth_options *options, struct lp_synth_result *out,
                   struct lp_err *err);

#endif
