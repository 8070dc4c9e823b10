// A loaded model on one device, and one step of it over a batch of tokens.
#ifndef LP_MODEL_MODEL_H
#define LP_MODEL_MODEL_H

#include "base/progress.h"
#include "dist/comm.h"
#include "dist/sharding.h"
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
    bool host_experts;        // they are in the host's memory (host_experts.h)
    bool has_shared;
    struct lp_ffn shared;
};

// The next-token-prediction layer: from a position's hidden state H_t and the token behind it to a
// draft of the token after that (docs/attention.md, "MTP"). Its decoder layer is one of the layers.
struct lp_mtp {
    const float *enorm, *hnorm, *head_norm; // device, [n_embd]
    struct lp_weight eh_proj;               // [n_embd, 2 * n_embd], the embedding's half first
    struct lp_weight embd, head;            // its own, or the model's
};

struct lp_model {
    const struct lp_gguf *gguf;   // not owned; must outlive the model
    struct lp_device *dev;        // not owned
    struct lp_device *expert_dev; // of the layers with host_experts; not owned; or NULL
    int32_t n_host_layers;        // how many that are
    struct lp_hparams h;
    struct lp_binding binding;
    struct lp_layer *layers; // [h.n_layers + has_mtp]; the MTP layer is number h.n_layers
    bool has_mtp;
    struct lp_mtp mtp; // in the last stage
    struct lp_weight token_embd, output;
    const float *output_norm;
    float *inv_freq;                      // device, [rope_width / 2]
    struct lp_expert_cache *expert_cache; // experts that stay on disk; NULL: all are in memory
    void *packed;                         // weights packed for the backend's kernels, or NULL
    size_t packed_bytes;
    void **owned;                                // device blocks to free
    size_t n_owned, owned_capacity, owned_bytes; // bytes: of the float32 copies
    struct lp_progress uploading;
    uint64_t uploaded_bytes;    // of matrices that were copied to the device; 0 with host_memory
    bool dummy;                 // matrices are random
    struct lp_sharding part;    // what of the model is here: all of it, unless there are ranks
    struct lp_comm *ranks;      // that run it together; not owned; NULL: this process alone
    struct lp_comm *neighbours; // those of the same stage; NULL where it is the only one
    struct lp_device_group *device_group; // of the neighbours' devices; NULL: hosts sum
    struct lp_device_group
        *stage_group; // of all ranks' devices, for what stages give on; NULL: hosts do
};

struct lp_load {
    int n_threads;        // that share the check
    uint64_t check_bytes; // a file of at most that is checked whole, of a larger one samples
    // Matrices are filled with random weights of their types instead, without reading them: for
    // measuring speed. Devices with memory of their own.
    bool dummy;
    // A device of a host backend for routed experts that shall not be, or do not fit, in the device's memory;
    // or NULL. weight_bytes: that the device's memory has for weights; 0: for all but routed experts.
    struct lp_device *expert_dev;
    uint64_t weight_bytes;
    // The ranks that run the model together, or NULL; all of them load it, with the same values.
    struct lp_comm *ranks;
    int32_t n_stages; // 0: 1
    enum lp_shard_experts shard_experts;
    enum lp_attention_parallel attention;
};

// Reads hyperparameters, binds every tensor, converts the small float tensors to float32 and checks
// weights for NaN and infinity. Matrices stay where the file is mapped (host backends), or are copied to
// the device, if there is room for all of them. Errors: FORMAT, UNSUPPORTED, MEMORY, IO (a device that
// fails, or ranks that do), INVALID (dummy, on a host backend; a division over ranks that cannot be).
lp_status lp_model_load(struct lp_model **out, const struct lp_gguf *gguf, struct lp_device *dev,
                        const struct lp_load *load, struct lp_err *err);
// Of a model with ranks, once all of them have loaded it: makes the groups that sum. Collective. Errors: IO.
lp_status lp_model_join(struct lp_model *model, struct lp_err *err);
// read_ahead.c: of a model with ranks on a host backend, what is on this rank is read into memory at once; gguf is the
// model's file. Errors: those of lp_gguf_ahead_read; the model is as it was.
struct lp_gguf_prefetch_options;
lp_status lp_model_read_ahead(struct lp_model *model, struct lp_gguf *gguf,
                              const struct lp_gguf_prefetch_options *options, struct lp_err *err);
// From then on at most a budget of memory holds weights (expert_cache.h). Errors: those of
// lp_expert_cache_new; the model can then only be freed.
struct lp_expert_options;
lp_status lp_model_limit_memory(struct lp_model *model, const struct lp_expert_options *options,
                                struct lp_err *err);
// repack.c: copies of the weights that every step reads, packed for the backend's kernels.
enum lp_repack { LP_REPACK_AUTO, LP_REPACK_OFF, LP_REPACK_ON };
bool lp_repack_parse(const char *name, enum lp_repack *out); // "auto" (or NULL), "off", "on"
// Whether to: with AUTO where it takes at most half of the memory that is available and leaves what
// is reserved for cache and buffers, and nothing else copies weights.
bool lp_repack_pays(enum lp_repack how, bool copies, uint64_t bytes, uint64_t available,
                    uint64_t reserved);
// Bytes that it would take: 0 where the backend packs no type of the model.
size_t lp_model_packed_bytes(const struct lp_model *model);
// Packs them (lp_backend.pack) and gives back the pages of the mapped file that steps read no more. Not
// with a memory limit. Errors: MEMORY; the model is as it was.
lp_status lp_model_repack(struct lp_model *model, bool huge_pages, struct lp_err *err);
void lp_model_free(struct lp_model *model); // NULL is allowed

// What the cache must hold for each layer. with_mtp (the model has one): also for the MTP layer,
// whose row of the pair (H_t, x_t+1) lies in slot t + 1, so that a page's content depends only on
// its own and earlier tokens. out: [lp_model_kv_count]
void lp_model_kv_layers(const struct lp_model *model, bool with_mtp, struct lp_kv_layer *out);
int32_t lp_model_kv_count(const struct lp_model *model, bool with_mtp);

// placement.c
// A tensor as a weight of host memory, without its factors.
struct lp_weight lp_weight_of(const struct lp_gguf_tensor *tensor);
lp_status lp_model_place(struct lp_model *model, const struct lp_load *load, struct lp_err *err);
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
    struct lp_probe *probe; // or NULL (backend/probe.h); final norm and logits of logit rows alone
    struct lp_step_clock *clock; // or NULL; operations are added to it
};

// Scratch for steps of at most max_rows tokens over sequences of at most max_context, of which the
// cache may hold several. with_mtp: also for drafts; the cache then has the MTP layer's state too.
// Errors: INVALID (with_mtp, but the model has no usable MTP layer: says why), MEMORY.
struct lp_runner;
lp_status lp_runner_new(struct lp_runner **out, struct lp_model *model, struct lp_kv *kv,
                        int64_t max_rows, int64_t max_context, bool with_mtp, struct lp_err *err);
void lp_runner_free(struct lp_runner *runner); // NULL is allowed
size_t lp_runner_bytes(const struct lp_runner *runner);
// How often each form of attention has run, per sequence, step and layer (drafts included).
struct lp_route_counts lp_runner_route_counts(const struct lp_runner *runner);
uint64_t lp_runner_next_step(const struct lp_runner *runner); // its number in traces
// Whether the device, or a rank, has failed for good: every step will.
bool lp_runner_has_failed(const struct lp_runner *runner);
// Tells the devices whether results are to be fixed (lp_backend.fix_results), as each step does.
void lp_runner_fix_results(struct lp_runner *runner, bool fixed);
// Takes steps that were only a check out of both counts.
void lp_runner_set_counts(struct lp_runner *runner, uint64_t next_step,
                          struct lp_route_counts routes);

// How a token is drawn from a row of logits.
struct lp_step_draw {
    double scale; // of logits, one over the temperature; 0: the row itself is wanted
    const void *who;
    bool (*enough)(const void *who,
                   const struct lp_top_row *top); // whether top will do for the row
};

struct lp_step {
    const int32_t *tokens;       // host, [n_rows]
    const struct lp_span *spans; // their tables grown to n_past + n_rows
    int32_t n_spans;
    int64_t n_rows;
    const int32_t *logit_rows; // host, [n_logit_rows], ascending rows that need logits
    int64_t n_logit_rows;
    float *logits; // host, [n_logit_rows, n_vocab]: written
    // Rows of which only the largest id is wanted: host, [n_logit_rows], or NULL. Where the backend finds it
    // by itself their logits are not written, and largest has it; -1: the logits are there. never: [n_vocab],
    // ids that do not count, the same array in every step of a runner.
    const bool *greedy, *never;
    int32_t *largest; // host, [n_logit_rows]: written, with greedy
    // Rows that are only drawn from: host, [n_logit_rows], or NULL. Where the backend finds their largest
    // values, and these are enough, tops has them, until the next step, and their logits are not written;
    // NULL: the logits are there.
    const struct lp_step_draw *draws;
    const struct lp_top_row **tops; // host, [n_logit_rows]: written, with draws
    bool *bad;      // host, [n_logit_rows]: written, true where a logit is not finite; or NULL
    bool *bad_rows; // host, [n_rows]: written, true where the row's residual stream is not finite
                    // behind the last layer, whether its logits are wanted or not; or NULL
};

// Runs one step. Errors: INVALID (a token id out of range: names it), LIMIT (max_context), NUMERIC
// (non-finite logits; only without `bad`, which reports them row by row), IO (the device has failed,
// and stays so).
lp_status lp_runner_step(struct lp_runner *runner, const struct lp_step *step,
                         const struct lp_step_settings *settings, struct lp_err *err);

// mtp.c: what follows a step when the model drafts. Fills the MTP layer's cache for the tokens that
// stay, so call it after every step, whether anything is drafted or not.
struct lp_draft {
    const struct lp_step *step; // the step that has just run: its hidden states are still there
    const int32_t *kept; // host, [n_spans]: the first kept[i] rows of span i stay (0 = none),
                         // the others were drafts that are rejected
    const int32_t *next_tokens; // host, [n_rows of the step]: the token behind each kept row; -1 on
        // the last kept row of a span where it is not known: its row is left
        // out, and the cache then lacks the pair's row
    const bool
        *drafting;     // host, [n_spans]: draft for this span (its last kept row has a next token)
    int32_t n_draft;   // tokens to draft
    const bool *never; // [n_vocab]: ids that are never drafted
    int32_t *drafts;   // host, [n_spans, n_draft]: written for drafting spans
};

// The page tables of the step's spans must reach to the next token of the last kept row (n_past +
// kept + 1 tokens), those of drafting spans to n_past + kept + n_draft tokens. The hidden states of
// the step are gone afterwards; the step counter stays, and trace events carry the number of that
// step. A draft is a guess: where the layer's numbers are not finite it is the lowest id allowed.
// Errors: INVALID (names what is wrong with the call), LIMIT (max_context).
lp_status lp_runner_draft(struct lp_runner *runner, const struct lp_draft *draft,
                          const struct lp_step_settings *settings, struct lp_err *err);

// bad_rows.c: why a span's logits were not finite. Runs the span alone once more (its cache before
// n_past is as it was; the pages are still there) and watches the residual stream. Returns NUMERIC
// with a sentence that names the step, the position and the first layer whose output was not
// finite. The hidden states of the last step are gone afterwards: draft first. Other errors: as a
// step's.
lp_status lp_runner_find_bad(struct lp_runner *runner, const struct lp_span *span,
                             const int32_t *tokens, // host, [span->n_rows]
                             const struct lp_step_settings *settings, struct lp_err *err);

#endif
