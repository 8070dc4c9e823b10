// A Hugging Face model folder: its small files as JSON, its weights as arrays.
#ifndef LP_HF_HF_FOLDER_H
#define LP_HF_HF_FOLDER_H

#include <jansson.h>

#include "base/bytes.h"
#include "gguf/safetensors.h"

// Everything belongs to the folder; strings are from lp_alloc.
struct lp_hf_folder {
    char *path, *name;         // path: without slashes at its end; name: its last component
    json_t *config;            // config.json: an object; for a model with a text_config, that one
                               // with the outer "architectures", "quantization_config" and
                               // "tie_word_embeddings" where it lacks them
    json_t *generation_config; // an object, or NULL
    json_t *tokenizer;         // tokenizer.json, or NULL
    json_t *tokenizer_config;  // an object, or NULL; all its numbers are fractions where one is too
                               // large (model_max_length 10^30)
    char *chat_template;       // chat_template.jinja; else chat_template of chat_template.json or
                               // tokenizer_config.json (the one named "default" of a list); or NULL
    char *tiktoken;            // tiktoken.model (Kimi K2), or NULL
    size_t tiktoken_len;
    struct lp_safetensors *weights;
};

// Whether the path is a folder with a config.json in it.
bool lp_hf_is_folder(const char *path);

// Errors: IO, FORMAT (names the file and what is wrong with it), LIMIT (a file of absurd size),
// MEMORY. Release in any case.
lp_status lp_hf_folder_open(struct lp_hf_folder *out, const char *path, struct lp_err *err);
void lp_hf_folder_release(struct lp_hf_folder *folder);

#endif
