// The shapes that `limpid synth` knows by name: published models, and small ones with the true head
// sizes of GLM-5 for tests of speed. Each is the config.json that such a checkpoint has, so that a
// synthetic file gets its metadata the way a converted one does.
#ifndef LP_FILES_SYNTH_MODELS_H
#define LP_FILES_SYNTH_MODELS_H

#include <stddef.h>

struct lp_synth_model {
    const char *name, *what;
    const char *config; // JSON
};

const struct lp_synth_model *lp_synth_model_find(const char *name); // or NULL
const struct lp_synth_model *lp_synth_model_at(size_t i);           // or NULL past the last

#endif
