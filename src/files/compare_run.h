// Two models on one prompt: how far apart the residual streams are after each layer, and the
// distributions of the next token. One of two quantisations of a model that is damaged shows itself
// by the layer at which the streams part.
#ifndef LP_FILES_COMPARE_RUN_H
#define LP_FILES_COMPARE_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "limpid.h"

#define LP_COMPARE_RUN_MAX_TOKENS 512

struct lp_compare_layer {
    int32_t layer;       // -1: the embeddings
    double rms, cosine;  // over all tokens, as in files/compare.h; NaN where a stream is
    double worst_cosine; // of one token
};

struct lp_compare_run {
    int64_t n_tokens;
    struct lp_compare_layer *layers; // [n_layers]; none where the models differ in layers or width
    int32_t n_layers;
    // The layer at which the error grows most, by how much it is multiplied there; -1 and 0: none
    int32_t jump_layer;
    double jump;
    double kl;       // mean over the tokens of KL(A || B) of the next token, in nats
    double max_kl;   // of one token
    double same_top; // share of tokens whose most probable next token is the same
};

// Both models have the same vocabulary size; the prompt is tokenised by A's tokenizer and must give
// the same ids by B's. KV cache in F32. Errors: INVALID, LIMIT (a prompt of more than
// LP_COMPARE_RUN_MAX_TOKENS tokens), and as limpid_engine_new and limpid_sequence_append.
limpid_status lp_compare_run(struct lp_compare_run *out, limpid_model *a, limpid_model *b,
                             const char *prompt, limpid_error *err);
void lp_compare_run_release(struct lp_compare_run *run);

#endif
