// limpid: an inference engine for models with multi-head latent attention, from their GGUF files.
//
// The only public header. Handles are opaque; there is no global state but the log level and what
// limpid_dump_on_crash sets up. Every fallible function returns a limpid_status and, given a
// limpid_error, one sentence that names the thing, the value and what to do. Memory that a function
// hands out is freed with limpid_free. `err` may be NULL, and options of a model or engine NULL for
// the defaults; what options point to is copied or used during the call. A handle is written to
// *out only on success. A tour with examples: docs/library.md.
//
//     limpid_error err;
//     limpid_model *model;
//     limpid_engine *engine;
//     limpid_request *request;
//     limpid_event event;
//     limpid_model_options mo = limpid_model_default_options();
//     limpid_engine_options eo = limpid_engine_default_options();
//     if (limpid_model_open(&model, "model.gguf", &mo, &err)) ...
//     if (limpid_engine_new(&engine, model, &eo, &err)) ...
//     if (limpid_tokenize(model, text, strlen(text), LIMPID_SPECIAL | LIMPID_BOS, &ids, &n, &err)) ...
//     limpid_request_options ro = limpid_request_default_options();
//     ro.tokens = ids; ro.n_tokens = n; ro.max_tokens = 100; ro.temperature = 0;
//     if (limpid_request_new(&request, engine, &ro, &err)) ...
//     while (!limpid_request_next(request, &event, &err) && event.kind != LIMPID_EVENT_DONE)
//         fwrite(event.text, 1, event.text_len, stdout);
//
// An engine runs all its requests together: each step takes tokens of many. Who makes the steps?
//   - limpid_engine_start: a thread of the engine's own. Requests may come from any thread.
//   - limpid_engine_step: the caller, in its own event loop.
//   - neither: limpid_request_next makes steps itself until its request has an event.
//
// Threads: a model may be shared by threads (tokenize, chat). The functions on requests and engines
// may be called from any thread, each request by one at a time, but limpid_request_cancel also
// while another waits for the request's event; limpid_engine_free and limpid_request_free are the
// last call on their handle; limpid_engine_start and limpid_engine_stop are called by one thread at
// a time. Engines of one model share its device: one engine at a time makes steps.
#ifndef LIMPID_H
#define LIMPID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum limpid_status {
    LIMPID_OK,
    LIMPID_INVALID, // an argument, request or setting
    LIMPID_FORMAT,  // a damaged or contradictory file
    LIMPID_IO,
    LIMPID_MEMORY,
    LIMPID_UNSUPPORTED,
    LIMPID_LIMIT,   // context or cache exhausted
    LIMPID_NUMERIC, // NaN or infinity in logits
    LIMPID_CANCELLED,
    LIMPID_TIMEOUT, // a request took longer than its limit
    LIMPID_BUSY,    // the queue is full; ask again later
} limpid_status;

typedef struct limpid_error {
    limpid_status status;
    char text[1024];
} limpid_error;

typedef struct limpid_model limpid_model;       // a file or folder: weights, tokenizer, a device
typedef struct limpid_engine limpid_engine;     // scheduler, KV cache and scratch over a model
typedef struct limpid_sequence limpid_sequence; // tokens in the cache
typedef struct limpid_request limpid_request;   // a generation in progress
typedef struct limpid_ranks limpid_ranks;       // processes that run a model together

const char *limpid_version(void);
void limpid_free(void *block);                        // NULL is allowed
const char *limpid_status_name(limpid_status status); // "success", "over a limit", ...
// "error", "warn" (default), "info", "debug"; process-wide. INVALID for another name.
limpid_status limpid_set_log_level(const char *level, limpid_error *err);

// ---- ranks (docs/ranks.md) ----
//
// Rank 0 opens, makes and closes models and engines with ranks, and makes their steps, from one thread at a time.

// Joins the processes that a launcher (mpirun, srun) has started together; once, at the start of a program.
// *out is NULL where this process was started alone, and every function takes that. Rank 0 then gives it to
// the models that it opens; all other ranks call limpid_ranks_follow, which does what rank 0's
// models and engines need until rank 0 leaves. Errors: UNSUPPORTED (a build without MPI that was started as
// one of several), IO.
limpid_status limpid_ranks_join(limpid_ranks **out, limpid_error *err);
int32_t limpid_ranks_rank(const limpid_ranks *ranks);
int32_t limpid_ranks_size(const limpid_ranks *ranks);
limpid_status limpid_ranks_follow(limpid_ranks *ranks, limpid_error *err);
// Whether all is well: IO has the reason why it is not, or names a process of this host that has ended. A rank of
// another host that has gone shows by its silence (docs/ranks.md). Any thread.
limpid_status limpid_ranks_check(const limpid_ranks *ranks, limpid_error *err);
// For the next 5 s a silence of less than a second is too long. For a program that is told to end by its launcher, which may be
// because a rank has gone. Any thread.
void limpid_ranks_doubt(limpid_ranks *ranks);
// After models and engines. Where a rank has failed this ends the program, with status 1.
void limpid_ranks_leave(limpid_ranks *ranks);

// ---- model ----

typedef struct limpid_model_options {
    const char
        *backend; // "cpu" (default), "cuda" (an NVIDIA GPU, where the build has it), or "ref",
                  // the slow definition of every operation
    const char *cpu_level; // "auto" (default), or as --cpu: plain, avx2, avx512, vnni ...
    int n_threads;         // 0 = a physical core each, at most the process's share of CPU time
    // Threads bound to cores: "auto" (default; with several NUMA nodes), "none", "cores".
    const char *pin;
    // Huge pages: "auto" (default; for the KV cache, scratch and repacked weights), "all" (for weights
    // that `prefetch` reads too), "off".
    const char *huge_pages;
    // Read the weights into memory now, at the rate of the disk, instead of mapping the file
    // (docs/performance.md); of several ranks each reads its own.
    bool prefetch;
    // Use copies of the matrices in the order in which the kernels read them (docs/performance.md):
    // "auto" (default; where they take at most half of the memory that is left, without prefetch and
    // memory budget), "on", "off". Results are the same to the bit.
    const char *repack;
    // "file" (default), or "dummy": matrices are not read but filled with random weights of their types in
    // the device's memory, to measure the speed of a model whose weights are not there. Backend "cuda".
    const char *load;
    // Where the routed experts are with the backend "cuda": "device" (default), or "cpu": in the host's
    // memory, computed there, while the GPU does the rest.
    const char *experts;
    // The same for as many layers as do not fit: bytes of the GPU's memory that weights, KV cache and
    // buffers (reserve_bytes) may take; 0: no division
    uint64_t vram_budget_bytes;
    bool vocab_only; // tokenizer and chat template only; such a model makes no engine
    // Weights in memory: the routed experts beyond it stay in their file and are read as they are
    // needed (docs/experts-on-disk.md). With ranks: of each of them. 0: no limit
    uint64_t memory_budget_bytes;
    const char *expert_profile; // with it: a file that keeps which experts are used, or NULL
    // Memory that engines will take afterwards (kv_cache and step_buffers of limpid_plan): repack "auto"
    // leaves it. 0: not known
    uint64_t reserve_bytes;
    limpid_ranks *ranks; // rank 0: that run the model together; NULL: this process alone
    int32_t pipeline;    // stages that the ranks form, each with a run of layers; 0 = 1
    // What of the routed experts a rank of a stage has: "auto" (default), "split" (a part of each) or "whole"
    // (some)
    const char *shard_experts;
    // What attention is divided by: "heads" (the MLA cache is then on every rank), "data" (each rank has all heads
    // and the cache of its own sequences; n_kv_tokens are those of all ranks), "auto" (default) as "heads"
    const char *attention_parallel;
    double rank_timeout_s; // longest that a rank waits for another within a step; 0 = 120
} limpid_model_options;

limpid_model_options limpid_model_default_options(void);

// Opens a GGUF file, a split set by any of its parts, or a Hugging Face folder (config.json,
// tokenizer.json, safetensors), and checks all of it (docs/gguf.md).
limpid_status limpid_model_open(limpid_model **out, const char *path,
                                const limpid_model_options *options, limpid_error *err);
void limpid_model_close(limpid_model *model); // after its engines; NULL is allowed

typedef struct limpid_model_info {
    const char *architecture, *name;     // name: general.name or ""
    const char *backend, *matmul_kernel; // what runs, e.g. "cpu", "avx2_q8_0" (the output matrix's)
    int32_t n_layers, n_vocab, n_embd, n_threads;
    int64_t n_context;      // that the model was trained for
    int32_t top_k;          // of the sparse indexer; 0 = the model has none
    int32_t n_draft_layers; // next-token-prediction (MTP) layers that `speculate` can use
    uint64_t file_bytes, n_tensors, n_bound, n_ignored;
    bool has_chat_template;
} limpid_model_info;

// After vocab_only what describes the weights is 0, "" or "none".
limpid_model_info limpid_model_get_info(const limpid_model *model);

// What the file suggests to sample with (its keys general.sampling.*; of a folder:
// generation_config.json), as it stands there: out of range perhaps. NAN where it says nothing.
// limpid_request_default_options knows nothing of it.
typedef struct limpid_model_sampling {
    double temperature, top_p, top_k, min_p, repetition_penalty;
} limpid_model_sampling;

limpid_model_sampling limpid_model_get_sampling(const limpid_model *model);

// ---- text ----

enum {                  // flags of limpid_tokenize
    LIMPID_SPECIAL = 1, // texts of control tokens become those tokens, as in vLLM and Hugging Face
    LIMPID_BOS = 2,     // add the tokens that the file says every text begins or ends with
};

limpid_status limpid_tokenize(const limpid_model *model, const char *text, size_t n_bytes,
                              unsigned flags, int32_t **ids, size_t *n_ids, limpid_error *err);
// The text of ids; incomplete UTF-8 characters become U+FFFD. INVALID names an id out of range.
limpid_status limpid_detokenize(const limpid_model *model, const int32_t *ids, size_t n_ids,
                                bool skip_special, char **text, size_t *n_bytes, limpid_error *err);
// The bytes of one token, which may be part of a character. INVALID for an id out of range.
limpid_status limpid_token_bytes(const limpid_model *model, int32_t id, char **bytes,
                                 size_t *n_bytes, limpid_error *err);
// The id of a token by its text, of a control token by its name ("<|user|>"); -1 if there is none.
int32_t limpid_token_find(const limpid_model *model, const char *text, size_t n_bytes);
// The source of the file's chat template, which lives as long as the model; NULL if it has none.
const char *limpid_model_chat_template(const limpid_model *model);
bool limpid_token_is_stop(const limpid_model *model, int32_t id);

// Renders a conversation with the chat template of the file, for limpid_tokenize with
// LIMPID_SPECIAL alone: the template writes what a text begins with. messages: a JSON array as in
// OpenAI's API; options: a JSON object or NULL, with "tools" (array) and any further template
// variables ("enable_thinking": false). INVALID names messages[i] and the field; UNSUPPORTED
// without a template.
limpid_status limpid_chat_prompt(const limpid_model *model, const char *messages,
                                 const char *options, char **text, size_t *n_bytes,
                                 limpid_error *err);

// ---- engine ----

typedef struct limpid_engine_options {
    int64_t n_context; // most tokens of one sequence; 0 = min(the model's, 32768)
    // Tokens that the KV cache holds, shared by all; 0 = n_context (on each rank, with attention_parallel
    // "data")
    int64_t n_kv_tokens;
    const char *kv_type; // "f16" (default), "bf16", "f32", "q8_0", "fp8" (docs/numerics.md)
    const char *route;   // "auto" (default), "expanded", "absorbed", "dense" (docs/attention.md)
    int64_t chunk;       // most prompt tokens of one sequence in a step; 0 = 512, on a GPU 2048
    int64_t max_batch_tokens; // most tokens of a step; 0 = max(chunk, max_seqs)
    int32_t max_seqs;         // sequences that run at a time; 0 = 32
    int32_t max_queue;        // sequences that wait beside them; 0 = any number
    int32_t speculate;        // tokens to draft with the model's MTP layer; 0 = off
    bool no_prefix_cache;     // compute each prompt whole
    const char *cache_dir;    // keep prefixes on disk across runs; NULL = off
    uint64_t cache_dir_bytes; // at most that much; 0 = 8 GiB
    bool deterministic;       // bit-identical results for every chunking, batch and thread count
    const char *trace_path;   // a file for all that is traced, as JSON lines; NULL: the decisions
                              // alone, in memory (docs/tracing.md)
} limpid_engine_options;

limpid_engine_options limpid_engine_default_options(void);

typedef struct limpid_memory_plan { // bytes
    uint64_t mapped_weights;        // used where the file is mapped
    // Small tensors as float32; those of a folder that do not lie in it as they are used (FP8, NVFP4,
    // INT4); repacked ones; those that are read ahead; the cache of experts.
    uint64_t copied_weights;
    uint64_t kv_cache;     // of n_kv_tokens, or of the part of them that is here
    uint64_t step_buffers; // of a step of max_batch_tokens
    uint64_t available;    // what this process may still take; 0 = unknown
    int64_t n_context, n_kv_tokens, max_batch_tokens; // after defaults
    int32_t n_kv_ranks; // that share n_kv_tokens, each with the cache of its own sequences; else 1
    // 1: all of these are of a GPU's own memory but for mapped_weights, the routed experts that may stay
    // in the host's.
    int32_t on_device;
} limpid_memory_plan;

// What opening a model with these options and making an engine of it will take (NULL: the defaults):
// from the file's metadata, before weights are read, copied or checked. copied_weights, kv_cache and
// step_buffers must fit into what is available; mapped weights beyond it are read from disk again and
// again. With repack "auto" the copy is counted where it would be made. With ranks: of one of them, in its part
// of its host's memory, before anything is repacked; each of them may ask for itself. Errors: those of
// limpid_model_open but for the weights themselves; INVALID.
limpid_status limpid_plan(limpid_memory_plan *out, const char *path,
                          const limpid_model_options *model, const limpid_engine_options *engine,
                          limpid_error *err);
// What an engine with these options will take, before any of it is taken. Errors: INVALID.
limpid_status limpid_engine_plan(limpid_memory_plan *out, const limpid_model *model,
                                 const limpid_engine_options *options, limpid_error *err);
limpid_status limpid_engine_new(limpid_engine **out, limpid_model *model,
                                const limpid_engine_options *options, limpid_error *err);
// Stops its thread, closes the trace (IO if it could not be written whole). Its requests and
// sequences must have been freed. NULL is allowed.
limpid_status limpid_engine_free(limpid_engine *engine, limpid_error *err);
int64_t limpid_engine_context(const limpid_engine *engine);
size_t limpid_engine_kv_bytes(const limpid_engine *engine);      // of the whole cache
size_t limpid_engine_scratch_bytes(const limpid_engine *engine); // buffers of a step

// The same prompt whole, in chunks, beside another, behind a cached prefix, token by token and back
// from cache_dir must leave the same state in the cache and give the same logits, bit for bit in the
// deterministic formulation; the forms of attention that "auto" takes must agree within a bound on
// every layer, from the same input. NUMERIC names what differed and by how much. The prompt has as
// many tokens as fit into 0.6 s, 6 to 144; with `full` 144 however long they take. *report (may be
// NULL): one line on what was compared.
limpid_status limpid_engine_self_check(limpid_engine *engine, bool full, char **report,
                                       limpid_error *err);

// A thread that makes steps from now on. INVALID if there is one.
limpid_status limpid_engine_start(limpid_engine *engine, limpid_error *err);
// Ends the thread behind its running step; requests stay as they are.
void limpid_engine_stop(limpid_engine *engine);
// One step of what there is to do. *n_active (may be NULL): sequences that wait or run behind it;
// 0: nothing to do until a request comes. A request's failure is its own, not the step's. INVALID
// while the engine has a thread.
limpid_status limpid_engine_step(limpid_engine *engine, int64_t *n_active, limpid_error *err);

#define LIMPID_MAX_DRAFT 16 // of limpid_engine_options.speculate
#define LIMPID_HISTOGRAM_BUCKETS 24
typedef struct limpid_histogram {           // bucket i counts values <= bound[i] and > bound[i - 1]
    double bound[LIMPID_HISTOGRAM_BUCKETS]; // ascending; the last is infinity
    uint64_t count[LIMPID_HISTOGRAM_BUCKETS];
    int32_t n_buckets;
    double sum;
} limpid_histogram;

typedef struct limpid_engine_stats {
    int64_t n_waiting, n_running;                         // sequences, now
    int64_t pages, pages_free, pages_cached, page_tokens; // cached: held by the prefix cache alone
    uint64_t steps, requests, finished_stop, finished_length, failed, cancelled, rejected;
    uint64_t prompt_tokens, cached_tokens, cached_disk_tokens; // cached: part of the prompts'
    uint64_t generated_tokens, preemptions;
    uint64_t draft_tokens, accepted_tokens; // of speculation
    // The same by place: of the first draft of a step, the second ... The rate of the first is what the
    // MTP layer is worth; how it falls shows how it follows itself.
    uint64_t drafted_at[LIMPID_MAX_DRAFT], accepted_at[LIMPID_MAX_DRAFT];
    uint64_t draft_switches; // times it turned itself on or off
    bool drafting;           // it is on
    uint64_t route_expanded, route_absorbed, route_sparse, route_dense, route_gqa; // spans x layers
    uint64_t disk_pages, disk_bytes, disk_reads, disk_writes, disk_damaged, disk_dropped;
    // With memory_budget_bytes: experts that fit into memory; experts that a layer of a step needed,
    // by where they were: in memory, read ahead on a guess, on disk; and what was read. With ranks: of
    // all together
    uint64_t expert_slots, expert_hits, expert_ahead, expert_misses, expert_reads;
    uint64_t expert_read_bytes;
    double expert_wait_s;   // while computation waited for the disk
    double last_step_age_s; // since a step ended, while there is work; else 0
    bool device_failed; // or a rank has: every request fails from then on; a new process is needed
    limpid_histogram batch_tokens, batch_sequences, step_s, ttft_s, token_s, queue_s;
} limpid_engine_stats;

// As of the last step. Never waits for a running step.
limpid_engine_stats limpid_engine_get_stats(const limpid_engine *engine);

typedef struct limpid_rank_info { // of one rank, since the engine was made
    const char *host;             // as long as the ranks are joined
    double step_s;                // in steps
    double wait_s;                // of that: in exchanges with other ranks
    uint64_t memory_bytes;        // the most that the process has had in memory
    int64_t kv_pages;             // of its KV cache
    int64_t kv_pages_free;        // of those, that hold nothing
    // With memory_budget_bytes, as of limpid_engine_stats, since the model was opened
    uint64_t expert_slots, expert_hits, expert_ahead, expert_misses, expert_reads;
    uint64_t expert_read_bytes;
    double expert_wait_s;
} limpid_rank_info;

// As of the last step, of at most `max` ranks. Returns how many there are: 0 for a model without ranks.
size_t limpid_engine_get_ranks(const limpid_engine *engine, limpid_rank_info *out, size_t max);

#define LIMPID_STEP_LOG 512       // steps that are remembered
typedef struct limpid_step_info { // what a step did
    uint64_t step;                // counts from 1
    double end_s, duration_s;     // end_s: since the engine was made
    int32_t prompt_tokens, answer_tokens, draft_tokens, sequences;
    int64_t n_waiting, n_running, pages_free; // behind it
    // Spans of tokens times layers, by the way that attention took
    int32_t route_expanded, route_absorbed, route_sparse, route_dense, route_gqa;
} limpid_step_info;

// The last steps with a number above `since`, oldest first: at most `max`. Returns
// how many. *now_s (may be NULL): on the clock of end_s. Never waits for a running step.
size_t limpid_engine_get_steps(const limpid_engine *engine, uint64_t since, limpid_step_info *out,
                               size_t max, double *now_s);

// What the engine decided last, as JSON lines in order of time: what its rings hold
// (docs/tracing.md). request_id: only what concerns the requests of this id and the steps they took
// part in; NULL: everything. A request that left no event gives the model's events alone. Never
// waits for a running step. *text is terminated.
limpid_status limpid_engine_trace(const limpid_engine *engine, const char *request_id, char **text,
                                  size_t *n_bytes, limpid_error *err);

// For a program's start, process-wide: from now on a crash (SIGSEGV, SIGBUS, SIGILL, SIGFPE,
// SIGABRT) first writes what the rings of all engines hold and no trace file has yet: to the
// engine's trace file, or to limpid-crash-PID.jsonl in `dir` (NULL: the current directory); then
// the signal takes its usual course. The library does this for nobody who has not asked.
// Errors: IO.
limpid_status limpid_dump_on_crash(const char *dir, limpid_error *err);

// ---- probes: any intermediate of any layer (docs/probes.md) ----

typedef struct limpid_probes limpid_probes; // what to look at while tokens run
typedef struct limpid_probe {               // one point of one layer
    const char *name;                       // "attn.scores"
    int32_t layer;                          // -1: outside the layers
    bool is_int;                            // its values are int32_t, else float
    int64_t n_rows;                         // positions that were asked for
    const int64_t *ranges; // [n_ranges][2]: first and last position of each run of them, ascending
    size_t n_ranges;
    int32_t n_dims; // of a row
    int64_t dims[2];
    int64_t n_found;   // rows that were there, so far
    const char *needs; // "only ..." what there must be for a row to be there; "" where it always is
} limpid_probe;
typedef struct limpid_probe_route { // how attention ran for some positions of a layer
    int32_t layer;
    int64_t first, n;
    const char *name; // "expanded", "absorbed", "sparse", "gqa", ... (docs/attention.md)
} limpid_probe_route;

// specs: [n_specs] texts such as "layer=3,op=attn.scores,first=2". n_tokens: of the sequence that
// will run; positions count from its start. INVALID names what is wrong and what would do.
limpid_status limpid_probes_new(limpid_probes **out, const limpid_model *model,
                                const char *const *specs, size_t n_specs, int64_t n_tokens,
                                limpid_error *err);
void limpid_probes_free(limpid_probes *probes); // NULL is allowed
// In the order of layers and, in them, of computation. What they point to lives as long as the set.
size_t limpid_probes_count(const limpid_probes *probes);
limpid_probe limpid_probes_get(const limpid_probes *probes, size_t i);
// Of the layers that are looked at, so far.
size_t limpid_probes_count_routes(const limpid_probes *probes);
limpid_probe_route limpid_probes_get_route(const limpid_probes *probes, size_t i);

// ---- sequences: exactly these tokens, and a look at what they compute ----

typedef struct limpid_watch { // any function may be NULL; data is valid during the call
    void *user;
    // [n, n_vocab] for positions first ... first + n - 1
    void (*logits)(void *user, int64_t first, int64_t n, const float *logits);
    // [n, n_embd]: layer -1 = embeddings, l = residual stream after layer l
    void (*hidden)(void *user, int32_t layer, int64_t first, int64_t n, const float *hidden);
    // The keys that position first + i attended to on a layer, ascending: ids[i * stride ...],
    // counts[i] of them. ids NULL: every earlier position and itself.
    void (*selected)(void *user, int32_t layer, int64_t first, int64_t n, const int32_t *ids,
                     const int32_t *counts, int64_t stride);
    // Rows first ... first + n - 1 of those that probe i asked for: [n, dims] of float or int32_t.
    // A row that has fewer values than others (one per key) is filled up with minus infinity
    // (attn.probs: 0; int32_t: -1). Rows of a probe come once, in order; some may not come (needs).
    limpid_probes *probes; // or NULL
    void (*probed)(void *user, size_t i, int64_t first, int64_t n, const void *values);
} limpid_watch;

limpid_status limpid_sequence_new(limpid_sequence **out, limpid_engine *engine, limpid_error *err);
void limpid_sequence_free(limpid_sequence *sequence); // NULL is allowed
// Runs tokens behind those that are there, in steps of at most `chunk`. last_logits: [n_vocab] for
// the last token, or NULL. LIMIT when the context is full; the sequence then keeps what it had.
limpid_status limpid_sequence_append(limpid_sequence *sequence, const int32_t *tokens,
                                     size_t n_tokens, const limpid_watch *watch, float *last_logits,
                                     limpid_error *err);
int64_t limpid_sequence_length(const limpid_sequence *sequence);
// Forgets what is behind n_tokens.
void limpid_sequence_truncate(limpid_sequence *sequence, int64_t n_tokens);
// The most probable id that may be generated (padding ids never are).
int32_t limpid_argmax(const limpid_model *model, const float *logits);

// ---- requests ----

typedef struct limpid_request_options {
    const int32_t *tokens; // the prompt; copied, as is all that is pointed to here
    size_t n_tokens;
    int64_t max_tokens; // 0 = generate nothing (the prompt's log-probabilities only)
    int32_t n;          // choices, each with its own random numbers; the prompt is computed once

    // Sampling, applied in this order (docs/sampling.md)
    const int32_t *bias_ids; // logit_bias: [n_bias] ids and what is added to their logits
    const float *bias;
    size_t n_bias;
    float repetition_penalty;        // 1 = off; on tokens of prompt and answer
    float presence_penalty;          // 0 = off; on tokens of the answer
    float frequency_penalty;         // 0 = off; on tokens of the answer
    float dry_multiplier;            // 0 = off
    float dry_base;                  // 1.75
    int32_t dry_allowed_length;      // 2
    const char *const *dry_breakers; // texts whose tokens end a repeated run; [n_dry_breakers]
    size_t n_dry_breakers;
    int64_t min_tokens; // no end token, none of stop_ids and no stop text before that many
    float temperature;  // 0 = greedy
    float min_p;        // 0 = off
    int32_t top_k;      // 0 = off
    float typical_p;    // 1 = off
    float top_p;        // 1 = off
    uint64_t seed;      // same seed, same text

    const char *const *stop; // texts that end the generation; not part of the result
    size_t n_stop;
    const int32_t *stop_ids; // tokens that do
    size_t n_stop_ids;
    bool ignore_eos;   // go on past the end tokens
    bool skip_special; // leave control tokens out of the text (default true)
    // Control tokens whose text is shown although skip_special is set (markers of tool calls)
    const int32_t *shown_ids;
    size_t n_shown_ids;
    // What the answer must match: "json", "json_schema", "regex", "choice", "gbnf", "tools"; NULL:
    // anything. Its source in `grammar` (docs/structured-output.md).
    const char *grammar_kind;
    const char *grammar;
    size_t grammar_len;
    int32_t grammar_after; // it holds behind the first token of this id; -1 (default): at once
    int32_t n_logprobs;    // most probable tokens to report with each; -1 = no log-probabilities
    bool prompt_logprobs;  // an event for each prompt token first

    int32_t priority;   // higher runs first; equal: first come, first served
    int64_t timeout_ms; // TIMEOUT behind that; 0 = none
    const char *id; // the caller's name for it in the trace, of which 63 bytes are kept; NULL: none
    // Called by the thread that makes steps, under the engine's lock: quick, and without any call
    // on the engine or its requests. Not called any more when limpid_request_free has returned.
    bool (*is_gone)(void *user);  // asked before each step; true cancels
    void (*on_event)(void *user); // there is something for limpid_request_poll, or it has failed
    void *user;
} limpid_request_options;

typedef enum limpid_event_kind {
    LIMPID_EVENT_NONE,   // nothing yet (limpid_request_poll)
    LIMPID_EVENT_PROMPT, // one prompt token with its log-probability (prompt_logprobs)
    LIMPID_EVENT_TOKEN,  // one generated token
    LIMPID_EVENT_DONE,   // a choice has ended. text: what was held back; finish_reason is set
} limpid_event_kind;

typedef struct limpid_event { // pointers are valid until the next call on the request
    limpid_event_kind kind;
    int32_t choice; // 0 .. n - 1; PROMPT: 0
    int32_t token;
    const char *text; // TOKEN, DONE: whole UTF-8 characters; empty while a character or stop
                      // text is incomplete. PROMPT: the token's bytes, maybe part of a character
    size_t text_len;
    bool has_logprob; // false for the first prompt token
    float logprob;
    const int32_t *top_ids; // [n_top], most probable first
    const float *top_logprobs;
    int32_t n_top;
    const char *finish_reason;     // DONE: "stop" (end token or stop text) or "length"
    const char *stop_text;         // DONE: the stop text that was met, or NULL
    int32_t stop_id;               // DONE: the stop token (stop_ids) that was met, or -1
    int64_t n_prompt;              // TOKEN, DONE
    int64_t n_generated;           // DONE
    int64_t n_cached;              // TOKEN, DONE; prompt tokens that were not computed for it
    int64_t n_drafted, n_accepted; // DONE; of speculation
    bool last;                     // DONE: of the last choice; nothing comes behind it
} limpid_event;

// max_tokens 16, n 1, temperature 1, top_p 1, skip_special, no log-probabilities: the HTTP API's
// defaults.
limpid_request_options limpid_request_default_options(void);
// Submits. Errors: INVALID (names the option, or what is wrong in the grammar, which may be that it
// is too large), UNSUPPORTED (what the grammar asks for), LIMIT (prompt and context, both numbers),
// BUSY (max_queue), MEMORY.
limpid_status limpid_request_new(limpid_request **out, limpid_engine *engine,
                                 const limpid_request_options *options, limpid_error *err);
// The next event; waits for it. After an error (the request has failed, or is cancelled) the same
// error comes again.
limpid_status limpid_request_next(limpid_request *request, limpid_event *event, limpid_error *err);
// The same, but waits at most timeout_ms (0 = not at all) and then gives NONE. Makes no steps.
limpid_status limpid_request_poll(limpid_request *request, limpid_event *event, int64_t timeout_ms,
                                  limpid_error *err);
void limpid_request_cancel(limpid_request *request); // its pages are free before the next step
void limpid_request_free(limpid_request *request);   // NULL is allowed; cancels an unfinished one

#ifdef __cplusplus
}
#endif

#endif
