// The config.json of a synthetic model with fields set, and the metadata and tensors that follow.
#ifndef LP_FILES_SYNTH_CONFIG_H
#define LP_FILES_SYNTH_CONFIG_H

#include "files/synth.h"
#include "gguf/gguf_write.h"
#include "hf/hf_config.h"
#include "model/binding.h"

struct lp_synth_config {
    struct lp_hf_folder folder; // its config and name alone
    struct lp_hf_model model;
    struct lp_hparams h;
    struct lp_expected *tensors; // [n_tensors] in the order of the file
    size_t n_tensors;
};

// Release in any case. Errors: as lp_synth.
lp_status lp_synth_config(struct lp_synth_config *out, const struct lp_synth_options *options,
                          struct lp_err *err);
void lp_synth_config_release(struct lp_synth_config *config);

// A writer with the metadata, the tokenizer's included; the caller frees it, after a failure too.
// Sets config->model anew. Errors: as lp_synth.
lp_status lp_synth_writer(struct lp_gguf_writer **out, struct lp_synth_config *config,
                          uint64_t seed, struct lp_err *err);

#endif
