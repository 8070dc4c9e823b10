// Inside engine: what stands behind the handles of limpid.h.
#ifndef LP_ENGINE_ENGINE_H
#define LP_ENGINE_ENGINE_H

#include "limpid.h"
#include "model/model.h"
#include "text/chat.h"
#include "text/tokenizer.h"

#define LP_DEFAULT_CONTEXT 32768 // tokens, where neither the caller nor the model says less
#define LP_DEFAULT_CHUNK 512
#define LP_MAX_CHUNK 65536

struct limpid_model {
    struct lp_gguf *gguf;
    struct lp_tokenizer *tokenizer;
    struct lp_jinja *chat_template; // or NULL
    struct lp_err template_error;   // why a template that is there could not be parsed
    struct lp_device *dev;
    struct lp_model *weights;
    char *name;
    int n_threads;
    bool *never; // [n_vocab]: ids that are never generated
};

struct limpid_engine {
    limpid_model *model;
    struct lp_kv *kv;
    struct lp_runner *runner;
    struct lp_trace *trace;
    struct lp_step_settings settings;
    int64_t n_context, chunk;
    uint64_t next_sequence;
    float *logits; // host, [chunk, n_vocab] grown on demand to logit_rows rows
    int64_t logit_rows;
};

struct limpid_sequence {
    limpid_engine *engine;
    uint64_t number;
    struct lp_page_table pages;
    int32_t *tokens; // [n_tokens], what the cache holds
    int64_t n_tokens, capacity;
};

// The tokenizer of a file (vocab_load.c). Errors name the metadata key.
lp_status lp_vocab_load(struct lp_tokenizer **out, const struct lp_gguf *gguf, struct lp_err *err);

// The public error has the layout of the internal one.
_Static_assert(sizeof(limpid_error) == sizeof(struct lp_err), "limpid_error must match lp_err");
_Static_assert((int)LIMPID_CANCELLED == (int)LP_STATUS_CANCELLED, "the codes are the same numbers");
static inline struct lp_err *lp_err_of(limpid_error *err) {
    return (struct lp_err *)err;
}
static inline limpid_status lp_public(lp_status status) {
    return (limpid_status)status;
}

#endif
