// Inside engine: what stands behind the handles of limpid.h.
//
// Who owns what:
//   - `lock` guards the list of requests that come and go, the events of requests, the stats. It is
//     held for moments only, never during a step.
//   - The turn is had by one at a time, first come, first served: the engine's thread for a step, a
//     caller of limpid_engine_step, limpid_request_next or limpid_sequence_append. Whoever has it
//     owns the scheduler, the cache, the prefix tree, the runner and everything of a sequence but
//     its request's events. Nobody asks for the turn while holding `lock`.
#ifndef LP_ENGINE_ENGINE_H
#define LP_ENGINE_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>

#include "engine/grammar_cache.h"
#include "engine/model_file.h"
#include "engine/sched.h"
#include "engine/speculate.h"
#include "kv/prefix.h"
#include "limpid.h"
#include "model/model.h"
#include "model/ranks.h"
#include "text/chat.h"
#include "text/tokenizer.h"

#define LP_DEFAULT_CONTEXT 32768 // tokens, where neither the caller nor the model says less
#define LP_DEFAULT_CHUNK 512
#define LP_MAX_CHUNK 65536
#define LP_DEFAULT_SEQS 32
#define LP_MAX_SEQS 4096
#define LP_DEFAULT_STORE_BYTES ((uint64_t)8 << 30)

struct lp_step_log { // the last steps
    uint64_t began_ns;
    limpid_step_info next;                   // with the turn: of the step that runs
    limpid_step_info steps[LIMPID_STEP_LOG]; // under lock; [n_steps % LIMPID_STEP_LOG] comes next
    uint64_t n_steps;
};

struct limpid_model {
    struct lp_model_file file;
    const struct lp_gguf *gguf; // the file's
    struct lp_tokenizer *tokenizer;
    struct lp_jinja *chat_template; // or NULL
    char *template_source;          // or NULL
    struct lp_err template_error;   // why a template that is there could not be parsed
    struct lp_device *dev;
    struct lp_device *expert_dev; // of routed experts that stay on the CPU; or NULL
    struct lp_model *weights;
    char *name;
    int n_threads;
    bool *never; // [n_vocab]: ids that are never generated
    struct lp_grammar_cache *grammars;
    limpid_ranks *ranks; // or NULL
    int32_t rank_number; // of the model among theirs
};

struct limpid_engine {
    limpid_model *model;
    int32_t rank_number; // of the engine, where the model has ranks
    bool has_ranks;      // which are to be told of its end
    struct lp_kv *kv;
    struct lp_store *store;   // or NULL
    struct lp_prefix *prefix; // always there; empty with no_prefix_cache
    struct lp_runner *runner;
    struct lp_trace *trace; // its rings are always there
    struct lp_step_settings settings;
    struct lp_step_clock step_clock; // runs where the trace takes everything
    int64_t n_context, chunk, max_batch_tokens, n_kv_tokens;
    int32_t max_seqs, max_queue;
    bool no_prefix_cache;
    struct lp_sched sched;
    struct lp_batch *batch; // buffers of a step's rows (batch.c)
    struct lp_speculation speculation;
    float *logits; // host, [logit_rows, n_vocab], grown on demand
    int64_t logit_rows;
    uint64_t next_sequence;

    pthread_mutex_t lock;
    pthread_cond_t turn; // somebody has given it
    uint64_t next_turn, turn_now;
    pthread_cond_t work; // something came: for the engine's thread
    pthread_t thread;
    bool has_thread, stop_thread;
    struct limpid_request *incoming; // submitted, not yet seen by a step; newest first
    atomic_bool any_cancelled;
    atomic_int_fast64_t n_queued,
        n_slots_used;             // sequences never admitted yet; running ones: for max_queue
    uint64_t n_arrivals;          // numbers requests in their order
    atomic_uint_fast64_t beat_ns; // when a step last ended, or work came to an idle engine
    atomic_int_fast64_t n_active; // sequences that wait or run
    uint64_t n_rejected;
    limpid_engine_stats live;  // with the turn
    limpid_engine_stats stats; // its copy of the last step, under lock
    struct lp_step_log step_log;
    struct lp_rank_times *rank_times; // [ranks], a copy of the last step's, under lock; or NULL
    int64_t *rank_pages_free;         // the same of each one's cache
};

struct limpid_sequence {
    limpid_engine *engine;
    uint64_t number;
    struct lp_page_table pages;
    int32_t *tokens; // [n_tokens], what the cache holds
    int64_t n_tokens, capacity;
};

// Options with their defaults filled in, checked. INVALID names the option. (settings.c)
struct lp_engine_settings {
    int64_t n_context, chunk, max_batch_tokens;
    int64_t n_kv_tokens; // of the cache that is here; with several parts each has as many
    int32_t n_kv_parts;
    int32_t max_seqs, max_queue, speculate;
    lp_type kv_type;
    enum lp_route_force force;
};
lp_status lp_engine_settings_of(struct lp_engine_settings *out, const struct lp_hparams *h,
                                bool has_mtp, const struct lp_device *dev, int32_t n_kv_parts,
                                const limpid_engine_options *options, struct lp_err *err);
// Tokens of the cache of each of n_parts ranks that share n_kv_tokens: its part, or a context where that is more, as
// a sequence lies on one of them.
int64_t lp_engine_kv_share(int64_t n_kv_tokens, int64_t n_context, int32_t n_parts);
int64_t lp_engine_default_chunk(const struct lp_device *dev);
lp_status lp_engine_settings_make(struct lp_engine_settings *out, const limpid_model *model,
                                  const limpid_engine_options *options, struct lp_err *err);
// What a page of the store must have come from: model file, KV type, what changes bits.
lp_status lp_engine_fingerprint(struct lp_page_key *out, const limpid_model *model,
                                const limpid_engine_options *options,
                                const struct lp_engine_settings *settings, struct lp_err *err);

// loop.c. The turn; and one step of who has it.
void lp_engine_take_turn(limpid_engine *engine);
void lp_engine_give_turn(limpid_engine *engine);
void lp_engine_make_step(limpid_engine *engine);

// Takes new requests in; what is cancelled, too late or freed leaves. With the turn.
void lp_engine_sweep(limpid_engine *engine);
// batch.c: buffers for the rows of a step; runs what lp_sched_plan decided.
lp_status lp_batch_new(struct lp_batch **out, const limpid_engine *engine, struct lp_err *err);
void lp_batch_free(struct lp_batch *batch); // NULL is allowed
// could_draft: drafts may be there, whether they are verified (drafts) or not.
void lp_batch_run(limpid_engine *engine, bool could_draft, bool drafts);
// A choice has given its last event.
void lp_engine_end_seq(limpid_engine *engine, struct lp_seq *seq);
// Ends all choices of a request with an error (NULL: its owner knows) or after its last event.
void lp_engine_end_request(limpid_engine *engine, limpid_request *request,
                           const struct lp_err *err);

// Room for n_rows rows of logits on the host.
lp_status lp_engine_reserve_logits(limpid_engine *engine, int64_t n_rows, struct lp_err *err);
// The part of the cache with the most pages that no sequence holds, for a sequence of which nothing is known.
// Of equals the last: rank 0 has more to do than the others.
int32_t lp_engine_roomiest_part(const limpid_engine *engine);
// Grows a table, evicting cached prefixes for it. LIMIT when its part of the pool has no more.
lp_status lp_engine_grow(limpid_engine *engine, struct lp_page_table *table, int64_t n_tokens,
                         struct lp_err *err);

// engine_trace.c: what the trace tells of the engine and its sequences.
// Opens e->trace (path: NULL or a file) and records the engine's facts. INVALID for a file of the
// model.
lp_status lp_engine_open_trace(limpid_engine *engine, const char *path, struct lp_err *err);
// The event of a change of state: "submitted", "admitted", "pre-empted", "ended", "failed",
// "cancelled".
void lp_engine_trace_seq(const limpid_engine *engine, const struct lp_seq *seq, const char *what);
// A request that was not taken; it has no sequences yet.
void lp_engine_trace_rejected(const limpid_engine *engine, const char *id, size_t n_prompt);
void lp_engine_trace_failure(const limpid_engine *engine, const struct lp_seq *seq,
                             const struct lp_err *err);
// What was known of a sequence's tokens at its admission, and from where (static text).
void lp_engine_trace_cache(const limpid_engine *engine, const struct lp_seq *seq,
                           const char *source);
// What the next step takes of a sequence, before it runs.
void lp_engine_trace_chunk(const limpid_engine *engine, const struct lp_seq *seq);
// The token that seq was given from these logits; and how many drafts came true. Of the last step.
void lp_engine_trace_token(const limpid_engine *engine, const struct lp_seq *seq,
                           const float *logits, bool drafted);
void lp_engine_trace_draft(const limpid_engine *engine, const struct lp_seq *seq, int32_t n_draft,
                           int32_t n_accepted);

// stats.c
void lp_stats_init(limpid_engine_stats *stats);
void lp_histogram_add(limpid_histogram *histogram, double value);
// step_log.c. The step that is over, whose parts note_step has filled. before: routes until then.
void lp_step_log_add(limpid_engine *engine, const struct lp_route_counts *before);

// The tokenizer of a file (vocab_load.c). Errors name the metadata key.
lp_status lp_vocab_load(struct lp_tokenizer **out, const struct lp_gguf *gguf, struct lp_err *err);

// The public error has the layout of the internal one.
_Static_assert(sizeof(limpid_error) == sizeof(struct lp_err), "limpid_error must match lp_err");
_Static_assert((int)LIMPID_BUSY == (int)LP_STATUS_BUSY, "the codes are the same numbers");
static inline struct lp_err *lp_err_of(limpid_error *err) {
    return (struct lp_err *)err;
}
static inline limpid_status lp_public(lp_status status) {
    return (limpid_status)status;
}

#endif
