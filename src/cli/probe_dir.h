// A folder of probed values: LAYER.POINT.npy for each point of each layer, tokens.npy, and
// index.json, which says what they are (docs/probes.md). Rows go into the files as they come.
#ifndef LP_CLI_PROBE_DIR_H
#define LP_CLI_PROBE_DIR_H

#include <stdbool.h>

#include "cli/args.h"
#include "limpid.h"

struct lp_probe_dir;

struct lp_probe_dir_options {
    const char *folder; // made if it is not there; files of the same names are written over
    const struct lp_texts *specs;
    const char *model_path;
    const struct lp_common *common;
    const int32_t *tokens; // [n_tokens]
    int64_t n_tokens;
};

// Returns an exit status; on failure it has printed what is wrong. An index.json that is there is
// deleted: a folder has one again when all is written.
int lp_probe_dir_open(struct lp_probe_dir **out, const limpid_model *model,
                      const struct lp_probe_dir_options *options);
// Sets probes and probed of a watch whose user is the folder's.
limpid_probes *lp_probe_dir_probes(struct lp_probe_dir *dir);
void lp_probe_dir_put(struct lp_probe_dir *dir, size_t i, int64_t first, int64_t n,
                      const void *values);
// Ends the files and writes index.json. error: what ended the run before its end, or NULL. Returns
// an exit status after printing what could not be written.
int lp_probe_dir_close(struct lp_probe_dir *dir, const char *error);
void lp_probe_dir_free(struct lp_probe_dir *dir); // NULL is allowed

#endif
