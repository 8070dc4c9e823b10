// The models of a folder. A model is one GGUF file, or a split set of them, known by the names of
// its parts:
//
//     PREFIX-00001-of-00003.gguf   PREFIX-00002-of-00003.gguf   PREFIX-00003-of-00003.gguf
//
// or a folder as Hugging Face has them, known by a config.json and *.safetensors in it.
//
// Only names and sizes are looked at; what is inside is for whoever opens the model.
#ifndef LP_CLI_MODEL_FOLDER_H
#define LP_CLI_MODEL_FOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define LP_MISSING_NAMED 4

struct lp_model_set {
    char *path;         // of the file, or of the first part, there or not; or of the config.json
    uint64_t bytes;     // of the parts that are there; of the *.safetensors
    bool is_checkpoint; // a Hugging Face folder; n_parts files
    uint32_t n_parts, n_missing;
    uint32_t missing[LP_MISSING_NAMED]; // numbers of the first few, from 1
};

struct lp_model_folder {
    struct lp_model_set *sets; // sorted by path; [n_sets]
    size_t n_sets, capacity;
    bool has_checkpoint; // weights that are part of no model here (PyTorch, stray safetensors)
};

// Looks into the folder and the folders in it, one level deep; hidden ones are left out, as are
// inner ones that may not be read. Errors: IO (the text is the system's, without the path), MEMORY.
// Release in any case.
lp_status lp_model_folder_read(struct lp_model_folder *out, const char *path, struct lp_err *err);
void lp_model_folder_release(struct lp_model_folder *folder);

// The set that a file belongs to, by its name. False without memory. Release with lp_free(path).
bool lp_model_set_look(struct lp_model_set *set, const char *file);

// The folder of a config.json of a Hugging Face folder, or NULL if the path is none of that kind
// (or without memory). Free with lp_free.
char *lp_model_checkpoint_of(const char *path);

// Makes the path of one part that of another; false if it is no part's.
bool lp_model_part_rename(char *path, uint32_t number);

// Whether a name ends so, whatever the case of its letters.
bool lp_name_ends(const char *name, const char *ending);
// Files that hold weights in another format than GGUF.
bool lp_is_checkpoint(const char *name);

#endif
