// A loaded model on one device, and one step of it over a batch of tokens.
#ifndef LP_MODEL_MODEL_H
#define LP_MODEL_MODEL_H

#include "model/binding.h"

struct lp_ffn { // SwiGLU: down(silu(gate x) * up x)
    struct lp_weight gate, up, down;
};

struct lp_layer {
    const float *attn_norm, *ffn_norm; // device, [n_embd]
    struct lp_mla_layer mla;           // attention kind MLA
    struct lp_gqa_layer gqa;           // attention kind GQA
    struct lp_weight attn_output;
    bool is_moe;
    struct lp_ffn dense;
    struct lp_weight router;  // float32
    const float *router_bias; // device, or NULL
    struct lp_ffn experts;    // stacks
    bool has_shared;
    struct lp_ffn shared;
};

struct lp_model {
    const struct lp_gguf *gguf; // not owned; must outlive the model
    struct lp_device *dev;      // not owned
    struct lp_hparams h;
    struct lp_binding binding;
    struct lp_layer *layers; // [h.n_layers]
    struct lp_weight token_embd, output;
    const float *output_norm;
    float *inv_freq; // device, [rope_width / 2]
    void **owned;    // device blocks to free
    size_t n_owned, owned_capacity, owned_bytes;
};

// Reads hyperparameters, binds every tensor, converts the small float tensors to float32 and checks
// weights for NaN and infinity. Weights themselves stay where the file is mapped (host backends).
// `n_threads` share the check. Errors: FORMAT, UNSUPPORTED, MEMORY.
lp_status lp_model_load(struct lp_model **out, const struct lp_gguf *gguf, struct lp_device *dev,
                        int n_threads, struct lp_err *err);
void lp_model_free(struct lp_model *model); // NULL is allowed

// What the cache must hold for each layer. widths: [h.n_layers]
void lp_model_kv_layers(const struct lp_model *model, struct lp_kv_layer *out);

// placement.c
lp_status lp_model_place(struct lp_model *model, struct lp_err *err);
// Reads the scales of every weight of a file of at most whole_bytes, and samples a larger one.
#define LP_CHECK_WHOLE_BYTES ((uint64_t)16 << 30)
lp_status lp_model_check_weights(const struct lp_gguf *gguf, uint64_t whole_bytes, int n_threads,
                                 struct lp_err *err);

// What a caller may look at while a step runs (dump, doctor): called after the embedding (layer -1)
// and after each layer. h: device, [n_rows, n_embd], the residual stream. selected: device,
// [n_rows, ids_stride], the keys that the layer's queries saw, valid where n_selected; NULL when no
// selection ran (every earlier key was seen, or the model has no indexer).
typedef void (*lp_step_watch)(void *user, int32_t layer, const float *h, const int32_t *selected,
                              const int32_t *n_selected, int64_t ids_stride);

struct lp_step_settings {
    enum lp_route_force force;
    bool deterministic;
    struct lp_trace *trace;
    lp_step_watch watch;
    void *watch_user;
};

// Scratch for steps of at most max_rows tokens over contexts of at most max_context.
struct lp_runner;
lp_status lp_runner_new(struct lp_runner **out, struct lp_model *model, struct lp_kv *kv,
                        int64_t max_rows, int64_t max_context, struct lp_err *err);
void lp_runner_free(struct lp_runner *runner); // NULL is allowed
size_t lp_runner_bytes(const struct lp_runner *runner);

struct lp_step {
    const int32_t *tokens;       // host, [n_rows]
    const struct lp_span *spans; // their tables grown to n_past + n_rows
    int32_t n_spans;
    int64_t n_rows;
    const int32_t *logit_rows; // host, [n_logit_rows], ascending rows that need logits
    int64_t n_logit_rows;
    float *logits; // host, [n_logit_rows, n_vocab]: written
};

// Runs one step. Errors: INVALID (a token id out of range: names it), NUMERIC (non-finite logits).
lp_status lp_runner_step(struct lp_runner *runner, const struct lp_step *step,
                         const struct lp_step_settings *settings, struct lp_err *err);

#endif
