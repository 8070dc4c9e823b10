// What a path names as a model: a GGUF file, any part of a split set, or a Hugging Face folder
// (config.json, tokenizer.json, safetensors), which is then a GGUF that is in no file.
#ifndef LP_ENGINE_MODEL_FILE_H
#define LP_ENGINE_MODEL_FILE_H

#include "gguf/gguf.h"

struct lp_hf;
struct lp_hf_plan;
struct lp_model_file {
    const struct lp_gguf *gguf;
    struct lp_gguf *own;     // to close: a file, or the description of a folder
    struct lp_hf *hf;        // a folder that is run, or NULL
    struct lp_hf_plan *plan; // of a folder that is described, or NULL
};

// n_threads: of a folder's conversion in memory. Errors: those of lp_gguf_open and lp_hf_open.
// Close in any case.
lp_status lp_model_file_open(struct lp_model_file *out, const char *path, int n_threads,
                             struct lp_err *err);
// The same metadata and tensors, but of a folder no data: for whoever looks at names, types and
// shapes alone. Nothing of the weights is read.
lp_status lp_model_file_describe(struct lp_model_file *out, const char *path, struct lp_err *err);
// Reads the weights of a file into memory, at once (gguf_prefetch.h; the same errors). Those that the
// system has no memory for are refused with MEMORY, a folder with UNSUPPORTED: its matrices stay
// where they are mapped.
lp_status lp_model_file_prefetch(struct lp_model_file *file, bool huge_pages, struct lp_err *err);
// The same of what a rank has of a model that is loaded from the file (model/read_ahead.c). available: of
// this host's memory, the rank's part in bytes; 0: not known. Errors: UNSUPPORTED too for a model that is on a GPU.
struct lp_model;
lp_status lp_model_file_read_ahead(struct lp_model_file *file, struct lp_model *model,
                                   bool huge_pages, uint64_t available, struct lp_err *err);
void lp_model_file_close(struct lp_model_file *file);

// Whether `path`, if it were written to, would write over the model that lies at `model`: its file,
// or one of the files of its folder.
bool lp_model_file_holds(const char *model, const char *path);

#endif
