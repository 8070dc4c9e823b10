// Binding: every tensor of the file is bound to a field, or named as ignored with the reason; every
// tensor that the architecture needs is there with the expected shape and a usable type. The MTP
// layer alone may be missing or unusable: without it a model drafts nothing, and that is all.
#ifndef LP_MODEL_BINDING_H
#define LP_MODEL_BINDING_H

#include "model/hparams.h"

// Slots of a block and of the model. binding_table.c says for each: name, shape, when needed.
enum lp_slot {
    LP_SLOT_TOKEN_EMBD,
    LP_SLOT_OUTPUT_NORM,
    LP_SLOT_OUTPUT,
    LP_SLOT_ROPE_FREQS,
    LP_SLOT_ATTN_NORM,
    LP_SLOT_Q,
    LP_SLOT_K,
    LP_SLOT_V,
    LP_SLOT_Q_BIAS,
    LP_SLOT_K_BIAS,
    LP_SLOT_V_BIAS,
    LP_SLOT_Q_NORM,
    LP_SLOT_K_NORM,
    LP_SLOT_Q_A,
    LP_SLOT_Q_A_NORM,
    LP_SLOT_Q_B,
    LP_SLOT_KV_A,
    LP_SLOT_KV_A_NORM,
    LP_SLOT_K_B,
    LP_SLOT_V_B,
    LP_SLOT_KV_B,
    LP_SLOT_INDEX_Q,
    LP_SLOT_INDEX_K,
    LP_SLOT_INDEX_NORM_W,
    LP_SLOT_INDEX_NORM_B,
    LP_SLOT_INDEX_PROJ,
    LP_SLOT_ATTN_OUTPUT,
    LP_SLOT_FFN_NORM,
    LP_SLOT_FFN_GATE,
    LP_SLOT_FFN_UP,
    LP_SLOT_FFN_DOWN,
    LP_SLOT_ROUTER,
    LP_SLOT_ROUTER_BIAS,
    LP_SLOT_GATE_EXPS,
    LP_SLOT_UP_EXPS,
    LP_SLOT_DOWN_EXPS,
    LP_SLOT_GATE_UP_EXPS,
    LP_SLOT_GATE_SHEXP,
    LP_SLOT_UP_SHEXP,
    LP_SLOT_DOWN_SHEXP,
    LP_SLOT_NEXTN_EH_PROJ, // the MTP layer's own
    LP_SLOT_NEXTN_ENORM,
    LP_SLOT_NEXTN_HNORM,
    LP_SLOT_NEXTN_HEAD_NORM,
    LP_SLOT_NEXTN_HEAD,
    LP_SLOT_NEXTN_EMBD,
    LP_N_SLOTS,
};

#define LP_TENSOR_NAME_BYTES 96 // those of the file have at most 63

struct lp_bound { // the file's tensor for a slot, or NULL
    const struct lp_gguf_tensor *tensor[LP_N_SLOTS];
    // Of a matrix: NAME.scale, the float32 factors of its products (NVFP4): one for each matrix of
    // a stack, or a single one for all of them (never for a stack of experts).
    const struct lp_gguf_tensor *scale[LP_N_SLOTS];
};

struct lp_ignored {
    const struct lp_gguf_tensor *tensor;
    const char *reason; // static text, or the binding's mtp_reason
};

struct lp_binding {
    struct lp_bound model;   // slots outside the blocks
    struct lp_bound *blocks; // [n_layers + 1], the last one: the MTP layer
    bool has_mtp;            // there is one and it can be used
    char *mtp_reason;        // why not, where the metadata name one; or NULL
    struct lp_ignored *ignored;
    uint64_t n_bound, n_ignored, n_tensors;
};

// supports(device, type): whether a matrix of this type can be used. Where the metadata name an MTP
// layer, the fact "MTP layer" in h says whether it is used, its size and bits per weight. Errors:
// FORMAT naming the tensor that is missing, misshapen, unknown or of a type that does not serve.
lp_status lp_binding_make(struct lp_binding *out, struct lp_hparams *h, const struct lp_gguf *gguf,
                          bool (*supports)(const struct lp_device *, lp_type),
                          const struct lp_device *device, struct lp_err *err);
void lp_binding_release(struct lp_binding *binding);

// One thing that is wrong with the tensors of a file.
enum lp_misfit_kind {
    LP_MISFIT_MISSING,
    LP_MISFIT_SHAPE,
    LP_MISFIT_TYPE,    // of no use for what the tensor is
    LP_MISFIT_UNKNOWN, // in the file, but no part of the architecture
};
struct lp_misfit {
    enum lp_misfit_kind kind;
    char name[LP_TENSOR_NAME_BYTES]; // of the tensor
    int32_t block;                   // or -1
    char text[320];                  // the sentence, as lp_binding_make says it
};
// All of them, where lp_binding_make stops at the first; n = 0 if it would succeed. What is wrong
// with an MTP layer is none (the model runs without it). *out: free with lp_free. Errors: MEMORY;
// FORMAT for a file without tensors.
lp_status lp_binding_misfits(struct lp_misfit **out, size_t *n, const struct lp_hparams *h,
                             const struct lp_gguf *gguf,
                             bool (*supports)(const struct lp_device *, lp_type),
                             const struct lp_device *device, struct lp_err *err);

// A tensor that files of an architecture have.
struct lp_expected {
    char name[LP_TENSOR_NAME_BYTES];
    enum lp_slot slot;
    int32_t block; // or -1
    bool vector;   // float32 in files: norms, biases, the router, the indexer's projection
    bool needed;   // binding fails without it
    uint32_t n_dims;
    uint64_t ne[4]; // fastest first
};
// What a file with these hyperparameters holds as the usual converter writes it (kv_b in two
// halves, experts' gate and up apart), the blocks last. untied: with an output matrix of its own.
// qk_norm: with the norms of queries and keys that some models of an architecture have. *out:
// free with lp_free. Errors: MEMORY.
lp_status lp_binding_expected(struct lp_expected **out, size_t *n, const struct lp_hparams *h,
                              bool untied, bool qk_norm, struct lp_err *err);
// All that may be there, of every MTP layer too: `needed` where binding fails without it, but for
// what stands for another (kv_b or its halves; gate and up, or both in one).
lp_status lp_binding_possible(struct lp_expected **out, size_t *n, const struct lp_hparams *h,
                              struct lp_err *err);

struct lp_mtp_size {
    uint64_t n_bytes;       // of all its tensors
    double bits_per_weight; // of its matrices
};
struct lp_mtp_size lp_binding_mtp_size(const struct lp_binding *binding,
                                       const struct lp_hparams *h);

#endif
