// limpid.h: models and text. (Engines: engine.c; sequences: sequence.c; requests: request.c.)
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/system_memory.h"
#include "base/workers.h"
#include "engine/engine.h"
#include "engine/open_options.h"
#include "engine/follow.h"
#include "model/cost.h"
#include "model/expert_cache.h"

const char *limpid_version(void) {
    return LIMPID_VERSION;
}
void limpid_free(void *block) {
    lp_free(block);
}

const char *limpid_status_name(limpid_status status) {
    return lp_status_name((lp_status)status);
}

limpid_status limpid_set_log_level(const char *level, limpid_error *err) {
    enum lp_log_level value;
    if (!lp_log_level_parse(level, &value))
        return lp_public(lp_err_set(lp_err_of(err), LP_STATUS_INVALID,
                                    "log level is '%s', expected error, warn, info or debug",
                                    level));
    lp_log_set_level(value);
    return LIMPID_OK;
}

limpid_model_options limpid_model_default_options(void) {
    return (limpid_model_options){.backend = "cpu", .cpu_level = "auto"};
}

static lp_status load_template(limpid_model *m, struct lp_err *err) {
    struct lp_str source;
    bool found = false;
    lp_status status = lp_gguf_get_str(m->gguf, "tokenizer.chat_template", &source, &found, err);
    if (status || !found) return status;
    if (!(m->template_source = lp_strndup(source.data, source.len)))
        return lp_err_memory(err, source.len, "the chat template");
    if (lp_jinja_parse(&m->chat_template, source,
                       &m->template_error)) // a plain completion needs none
        lp_log(LP_LOG_WARN, "the chat template of this file cannot be used: %s",
               m->template_error.text);
    return LP_OK;
}

// Ids that are never generated: rows of the output matrix past the vocabulary, unused and padding
// tokens.
static lp_status mark_never(limpid_model *m, struct lp_err *err) {
    int64_t n = m->weights->h.n_vocab;
    m->never = lp_alloc((size_t)n, sizeof *m->never);
    if (!m->never) return lp_err_memory(err, (size_t)n, "the vocabulary's mask");
    int64_t n_left = 0;
    for (int64_t i = 0; i < n; i++) {
        m->never[i] = lp_tokenizer_is_unused(m->tokenizer, (int32_t)i);
        n_left += !m->never[i];
    }
    return n_left ? LP_OK
                  : lp_err_set(err, LP_STATUS_FORMAT,
                               "every token of the vocabulary is unused or padding");
}

// A copy that was not asked for may fail: then the file is used.
static lp_status repack(limpid_model *m, const limpid_model_options *o,
                        const struct lp_open_options *open, struct lp_err *err) {
    const struct lp_model *w = m->weights;
    const enum lp_repack how = open->repack;
    const uint64_t n_here = o->ranks ? (uint64_t)lp_comm_local_size(o->ranks->comm) : 1;
    const uint64_t bytes = lp_model_packed_bytes(w), left = lp_memory_available() / n_here;
    const bool copies =
        o->memory_budget_bytes || o->prefetch || lp_cost_memory_bytes(&w->h, &w->binding, true) > 0;
    lp_status status = LP_OK;
    if (how == LP_REPACK_ON && left && bytes > left)
        return lp_err_set(err, LP_STATUS_MEMORY,
                          "repacked weights take %.1f GB of memory, and %.1f GB are left; leave "
                          "repack out to use them as they lie in the file",
                          (double)bytes * 1e-9, (double)left * 1e-9);
    if (how == LP_REPACK_ON && !bytes)
        lp_log(LP_LOG_WARN, "no weight of this model can be repacked for this backend and CPU");
    if (lp_repack_pays(how, copies, bytes, left, o->reserve_bytes))
        status = lp_model_repack(m->weights, open->huge_pages != LP_HUGE_PAGES_OFF, err);
    if (status && how == LP_REPACK_ON) return status;
    if (!w->packed) lp_log(LP_LOG_INFO, "weights are used as they lie in the file");
    return LP_OK;
}

// Of the budget of a GPU's memory, what KV cache and buffers leave; 1 byte where they take all of it.
static uint64_t left_for_weights(const struct lp_open_options *open,
                                 const limpid_model_options *o) {
    if (!open->vram_bytes) return 0;
    return open->vram_bytes > o->reserve_bytes ? open->vram_bytes - o->reserve_bytes : 1;
}

static lp_status open_weights(limpid_model *m, const limpid_model_options *o, struct lp_err *err) {
    struct lp_expert_options budget = {.budget_bytes = o->memory_budget_bytes,
                                       .profile = o->expert_profile};
    bool limited = budget.budget_bytes > 0;
    // Before other ranks of this host have read anything.
    const uint64_t available = lp_memory_available();
    struct lp_open_options open;
    lp_status status = lp_open_options_read(&open, o, m->file.hf != NULL, err);
    if (!status) status = lp_open_options_device(&open, o, &m->dev, err);
    if (!status) status = lp_open_options_experts(&open, o, &m->expert_dev, err);
    const bool huge = open.huge_pages == LP_HUGE_PAGES_ALL;
    if (!status && o->prefetch && !o->ranks) status = lp_model_file_prefetch(&m->file, huge, err);
    // Of a model that shall not be in memory, only samples are looked at.
    if (!status)
        status = lp_model_load(&m->weights, m->gguf, m->dev,
                               &(struct lp_load){.n_threads = m->n_threads,
                                                 .check_bytes = limited ? 0 : LP_CHECK_WHOLE_BYTES,
                                                 .dummy = open.dummy,
                                                 .expert_dev = m->expert_dev,
                                                 .weight_bytes = left_for_weights(&open, o),
                                                 .ranks = o->ranks ? o->ranks->comm : NULL,
                                                 .n_stages = o->pipeline,
                                                 .shard_experts = open.shard_experts,
                                                 .attention = open.attention},
                               err);
    if (!status && o->prefetch && o->ranks)
        status =
            lp_model_file_read_ahead(&m->file, m->weights, huge,
                                     available / (uint64_t)lp_comm_local_size(o->ranks->comm), err);
    if (!status && limited) status = lp_model_limit_memory(m->weights, &budget, err);
    return status ? status : repack(m, o, &open, err);
}

static lp_status open_model(limpid_model *m, const char *path, const limpid_model_options *o,
                            struct lp_err *err) {
    struct lp_str name = {"", 0};
    bool found;
    m->n_threads = lp_open_options_threads(o);
    lp_status status = o->vocab_only ? lp_model_file_describe(&m->file, path, err)
                                     : lp_model_file_open(&m->file, path, m->n_threads, err);
    m->gguf = m->file.gguf;
    if (!status && !o->vocab_only) status = open_weights(m, o, err);
    if (!status) status = lp_vocab_load(&m->tokenizer, m->gguf, err);
    if (!status) status = load_template(m, err);
    if (!status && !o->vocab_only) status = mark_never(m, err);
    if (!status && !o->vocab_only)
        status = lp_grammar_cache_new(&m->grammars, m->tokenizer, m->never,
                                      (int32_t)m->weights->h.n_vocab, err);
    if (!status) status = lp_gguf_get_str(m->gguf, "general.name", &name, &found, err);
    if (status) return status;
    m->name = lp_strndup(name.data, name.len);
    return m->name ? LP_OK : lp_err_memory(err, name.len, "the model's name");
}

// On several ranks: all open it, or none.
static lp_status open_with_ranks(limpid_model *m, const char *path, const limpid_model_options *o,
                                 struct lp_err *err) {
    if (!o->ranks || o->vocab_only) return open_model(m, path, o, err);
    const bool leads = limpid_ranks_rank(o->ranks) == 0;
    lp_status status = leads ? lp_ranks_open(o->ranks, path, o, &m->rank_number, err) : LP_OK;
    if (status) return status;
    m->ranks = o->ranks;
    lp_comm_set_limit(o->ranks->comm, o->rank_timeout_s);
    status = lp_ranks_agree(o->ranks, open_model(m, path, o, err), err);
    if (!status) status = lp_ranks_compare(o->ranks, m, err);
    return status ? status : lp_model_join(m->weights, err);
}

limpid_status limpid_model_open(limpid_model **out, const char *path,
                                const limpid_model_options *options, limpid_error *err) {
    limpid_model_options defaults = limpid_model_default_options();
    limpid_model *m = lp_alloc(1, sizeof *m);
    if (!m) return lp_public(lp_err_memory(lp_err_of(err), sizeof *m, "the model"));
    struct lp_err own, *why = err ? lp_err_of(err) : &own; // what ranks tell one another
    lp_status status = open_with_ranks(m, path, options ? options : &defaults, why);
    if (status) {
        limpid_model_close(m);
        return lp_public(status);
    }
    *out = m;
    return LIMPID_OK;
}

void limpid_model_close(limpid_model *m) {
    if (!m) return;
    if (limpid_ranks_rank(m->ranks) == 0 && m->ranks)
        lp_ranks_close(m->ranks, LP_RANKS_MODEL, m->rank_number);
    lp_model_free(m->weights);
    if (m->dev) m->dev->backend->close(m->dev);
    if (m->expert_dev) m->expert_dev->backend->close(m->expert_dev);
    lp_grammar_cache_free(m->grammars);
    lp_tokenizer_free(m->tokenizer);
    lp_jinja_free(m->chat_template);
    lp_free(m->template_source);
    lp_model_file_close(&m->file);
    lp_free(m->name);
    lp_free(m->never);
    lp_free(m);
}

limpid_model_info limpid_model_get_info(const limpid_model *m) {
    limpid_model_info info = {.architecture = "",
                              .name = m->name,
                              .backend = "none",
                              .matmul_kernel = "none",
                              .n_vocab = (int32_t)lp_tokenizer_n_tokens(m->tokenizer),
                              .n_threads = m->n_threads,
                              .file_bytes = lp_gguf_file_bytes(m->gguf),
                              .n_tensors = lp_gguf_n_tensors(m->gguf),
                              .has_chat_template = m->chat_template != NULL};
    if (!m->weights) return info;
    const struct lp_hparams *h = &m->weights->h;
    info.architecture = h->arch->name;
    info.backend = m->dev->backend->name;
    info.matmul_kernel = m->dev->backend->matmul_kernel(m->dev, m->weights->output.type);
    info.n_layers = h->n_layers;
    info.n_vocab = (int32_t)h->n_vocab;
    info.n_embd = (int32_t)h->n_embd;
    info.n_context = h->n_context;
    info.top_k = h->top_k;
    info.n_draft_layers = m->weights->has_mtp ? 1 : 0;
    info.n_bound = m->weights->binding.n_bound;
    info.n_ignored = m->weights->binding.n_ignored;
    return info;
}

limpid_status limpid_tokenize(const limpid_model *m, const char *text, size_t n_bytes,
                              unsigned flags, int32_t **ids, size_t *n_ids, limpid_error *err) {
    size_t capacity = 0;
    unsigned encode = (flags & LIMPID_SPECIAL ? LP_ENCODE_SPECIAL : 0) |
                      (flags & LIMPID_BOS ? LP_ENCODE_BOS_EOS : 0);
    *ids = NULL;
    *n_ids = 0;
    lp_status status = lp_tokenizer_encode(m->tokenizer, (struct lp_str){text, n_bytes}, encode,
                                           ids, n_ids, &capacity, lp_err_of(err));
    if (!status && !*ids &&
        !(*ids = lp_alloc(1, sizeof **ids))) // an empty text is an empty array, not NULL
        status = lp_err_memory(lp_err_of(err), sizeof **ids, "token ids");
    if (status) {
        lp_free(*ids);
        *ids = NULL;
    }
    return lp_public(status);
}

static lp_status take_bytes(struct lp_bytes *b, char **out, size_t *n, struct lp_err *err) {
    if (!lp_bytes_append(b, "", 0)) {
        lp_bytes_release(b);
        return lp_err_memory(err, b->len, "text");
    }
    *out = b->data;
    *n = b->len;
    return LP_OK;
}

static lp_status check_id(const limpid_model *m, int32_t id, struct lp_err *err) {
    if (id >= 0 && (uint32_t)id < lp_tokenizer_n_tokens(m->tokenizer)) return LP_OK;
    return lp_err_set(err, LP_STATUS_INVALID,
                      "token id %d is out of range, the vocabulary has %u tokens", id,
                      lp_tokenizer_n_tokens(m->tokenizer));
}

limpid_status limpid_detokenize(const limpid_model *m, const int32_t *ids, size_t n_ids,
                                bool skip_special, char **text, size_t *n_bytes,
                                limpid_error *err) {
    struct lp_detok detok;
    struct lp_bytes out = {0};
    bool ok = true;
    lp_detok_init(&detok, m->tokenizer, skip_special);
    for (size_t i = 0; i < n_ids && ok; i++) {
        lp_status status = check_id(m, ids[i], lp_err_of(err));
        if (status) {
            lp_bytes_release(&out);
            return lp_public(status);
        }
        ok = lp_detok_push(&detok, ids[i], &out);
    }
    if (!ok || !lp_detok_finish(&detok, &out)) out.failed = true;
    return lp_public(take_bytes(&out, text, n_bytes, lp_err_of(err)));
}

limpid_status limpid_token_bytes(const limpid_model *m, int32_t id, char **bytes, size_t *n_bytes,
                                 limpid_error *err) {
    struct lp_bytes out = {0};
    lp_status status = check_id(m, id, lp_err_of(err));
    if (status) return lp_public(status);
    if (!lp_tokenizer_piece(m->tokenizer, id, false, &out)) out.failed = true;
    return lp_public(take_bytes(&out, bytes, n_bytes, lp_err_of(err)));
}

int32_t limpid_token_find(const limpid_model *m, const char *text, size_t n_bytes) {
    return lp_tokenizer_find(m->tokenizer, (struct lp_str){text, n_bytes});
}

bool limpid_token_is_stop(const limpid_model *m, int32_t id) {
    return lp_tokenizer_is_stop(m->tokenizer, id);
}

static struct lp_str token_text(const limpid_model *m, int32_t id) {
    return id < 0 ? (struct lp_str){"", 0} : lp_tokenizer_token(m->tokenizer, id);
}

static lp_status parse_json(const char *text, const char *what, bool (*right)(const json_t *),
                            json_t **out, struct lp_err *err) {
    json_error_t je;
    *out = json_loads(text, JSON_ALLOW_NUL, &je);
    if (!*out)
        return lp_err_set(err, LP_STATUS_INVALID, "%s is no valid JSON: %s (line %d)", what,
                          je.text, je.line);
    return right(*out) ? LP_OK
                       : lp_err_set(err, LP_STATUS_INVALID, "%s has the wrong JSON type", what);
}

static bool is_array(const json_t *j) {
    return json_is_array(j);
}
static bool is_object(const json_t *j) {
    return json_is_object(j);
}

const char *limpid_model_chat_template(const limpid_model *m) {
    return m->template_source;
}

limpid_status limpid_chat_prompt(const limpid_model *m, const char *messages, const char *options,
                                 char **text, size_t *n_bytes, limpid_error *err_) {
    struct lp_err *err = lp_err_of(err_);
    if (!m->chat_template)
        return lp_public(lp_err_set(err, LP_STATUS_UNSUPPORTED,
                                    "this file has no usable chat template%s%s",
                                    m->template_error.text[0] ? ": " : "", m->template_error.text));
    json_t *list = NULL, *kwargs = NULL, *tools = NULL;
    struct lp_bytes out = {0};
    lp_status status = parse_json(messages, "messages", is_array, &list, err);
    if (!status && options) status = parse_json(options, "chat options", is_object, &kwargs, err);
    if (!status) {
        tools = json_incref(json_object_get(kwargs, "tools"));
        json_object_del(kwargs, "tools"); // no template variable of the caller's: a parameter
        struct lp_chat_params params = {.messages = list,
                                        .tools = tools,
                                        .kwargs = kwargs,
                                        .add_generation_prompt = true,
                                        .bos_token = token_text(m, lp_tokenizer_bos(m->tokenizer)),
                                        .eos_token = token_text(m, lp_tokenizer_eos(m->tokenizer))};
        status = lp_chat_render(m->chat_template, &params, &out, err);
    }
    json_decref(list);
    json_decref(kwargs);
    json_decref(tools);
    if (!status)
        status = take_bytes(&out, text, n_bytes, err);
    else
        lp_bytes_release(&out);
    return lp_public(status);
}
