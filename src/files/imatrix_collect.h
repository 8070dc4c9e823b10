// An importance matrix of a text: the model's own steps (model/step.c) over it in chunks, each from
// an empty cache, with every product watched (imatrix_watch.h). With an MTP layer, that too.
#ifndef LP_FILES_IMATRIX_COLLECT_H
#define LP_FILES_IMATRIX_COLLECT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct lp_imatrix_options {
    const char *model;   // a GGUF, any part of a split set, or a Hugging Face folder
    const char *text;    // a file
    const char *output;  // GGUF form; or NULL
    const char *older;   // older form; or NULL
    const char *backend; // "cpu", "ref"
    int64_t chunk;       // tokens
    int64_t max_chunks;  // 0 = all of the text
    int n_threads;       // 0 = all CPUs of the process
    bool with_output;    // the output matrix too
    bool overwrite;
    bool (*stop)(void *user); // asked between chunks; or NULL
    void *stop_user;
};

struct lp_imatrix_result {
    int64_t n_chunks, n_chunks_of_text, n_tokens, n_entries, n_experts, n_unmet;
    bool stopped;
    double seconds;
};

// A text is cut into chunks of tokens; where the model's texts begin with a token of their own,
// each chunk does. Writes what it has when it is stopped after at least one chunk; CANCELLED
// before. Tokens past the last whole chunk are left out. Errors: those of loading a model; INVALID
// for a text of less than one chunk.
lp_status lp_imatrix_collect(const struct lp_imatrix_options *options,
                             struct lp_imatrix_result *result, struct lp_err *err);

#endif
