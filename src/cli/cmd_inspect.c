// limpid inspect: what a file holds and what limpid would do with it, without reading its weights.
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/system_memory.h"
#include "cli/args.h"
#include "cli/find_model.h"
#include "cli/inspect.h"
#include "cli/json_build.h"
#include "cli/memory_budget.h"
#include "engine/engine.h"
#include "kv/kv_types.h"
#include "model/cost.h"

static lp_status open_device(struct lp_inspect *in, const struct lp_common *c, struct lp_err *err) {
    const struct lp_backend *backend;
    lp_status status = lp_backend_choose(&backend, c->backend, err);
    if (status) return status;
    struct lp_device_options options = {.n_threads = (int)c->threads, .cpu_level = c->cpu_level};
    return backend->open(&in->dev, &options, err);
}

static void look_at_model(struct lp_inspect *in, const struct lp_common *c) {
    in->has_hparams = lp_hparams_read(&in->h, in->gguf, &in->model_error) == LP_OK;
    if (!in->has_hparams) return;
    in->is_bound = lp_binding_make(&in->binding, &in->h, in->gguf, in->dev->backend->supports,
                                   in->dev, &in->model_error) == LP_OK;
    if (!in->is_bound) return;
    int64_t context = c->context, chunk = c->chunk ? c->chunk : lp_engine_default_chunk(in->dev);
    if (!context)
        context = in->h.n_context < LP_DEFAULT_CONTEXT ? in->h.n_context : LP_DEFAULT_CONTEXT;
    if (chunk > context) chunk = context;
    in->n_context = context;
    if (!in->n_kv_tokens) in->n_kv_tokens = context * in->n_sequences;
    if (in->n_kv_tokens < context) in->n_kv_tokens = context;
    struct lp_plan_request request = {.kv_type = in->kv_type,
                                      .context = context,
                                      .n_kv_tokens =
                                          in->n_kv_tokens + LP_KV_PAGE_TOKENS, // as settings.c
                                      .chunk = chunk};
    in->is_planned =
        lp_plan_make(&in->plan, &in->h, &in->binding, in->dev, &request, &in->plan_error) == LP_OK;
}

static lp_status read_budget(struct lp_inspect *in, const struct lp_common *c, const char *path) {
    limpid_error why;
    if (in->folder)
        return lp_err_set(&in->plan_error, LP_STATUS_UNSUPPORTED,
                          "a memory budget needs a GGUF file, this is a folder; convert it first "
                          "(limpid convert)");
    if (!in->dev->backend->host_memory)
        return lp_err_set(&in->plan_error, LP_STATUS_UNSUPPORTED,
                          "a memory budget needs a backend that computes in the host's memory");
    if (!lp_memory_budget_parse("--memory-budget", c->memory_budget, path, &in->budget_bytes, &why))
        return LP_OK;
    return lp_err_set(&in->plan_error, (lp_status)why.status, "%s", why.text);
}

// How a memory budget would be spent; of several ranks: look_at_ranks.
static void look_at_budget(struct lp_inspect *in, const struct lp_common *c, const char *path) {
    if (!c->memory_budget || !in->is_planned || read_budget(in, c, path) || c->ranks) return;
    lp_status status =
        lp_expert_layout_make(&in->experts, &in->h, &in->binding, in->gguf, &in->plan_error);
    if (!status)
        status =
            lp_expert_layout_slots(&in->experts, in->budget_bytes, &in->n_slots, &in->plan_error);
    in->is_limited = !status && in->n_slots < in->experts.n_items;
}

// What would be copied for the kernels.
static void look_at_repacking(struct lp_inspect *in, const struct lp_common *c) {
    enum lp_repack how;
    if (!in->is_planned || c->memory_budget) return;
    if (!lp_repack_parse(c->repack, &how)) return; // parse() refused other names
    const uint64_t bytes = lp_cost_repacked_bytes(&in->h, &in->binding, in->dev, true);
    if (lp_repack_pays(how, in->plan.memory_bytes > 0, bytes, lp_memory_available(),
                       in->plan.kv_bytes + in->plan.step_bytes))
        in->packed_bytes = bytes;
}

static void look_at_ranks(struct lp_inspect *in, const struct lp_common *c) {
    struct lp_rank_plan_request request = {.n_ranks = (int32_t)c->ranks,
                                           .n_stages = (int32_t)c->pipeline,
                                           .kv_type = in->kv_type,
                                           .budget_bytes = in->budget_bytes};
    if (!in->is_planned || c->ranks == 0 || in->plan_error.status) return;
    // parse() refused other names
    if (c->shard_experts) lp_shard_experts_parse(c->shard_experts, &request.experts);
    if (c->attention_parallel)
        lp_attention_parallel_parse(c->attention_parallel, &request.attention);
    in->n_ranks = c->ranks;
    in->ranks = lp_alloc((size_t)c->ranks, sizeof *in->ranks);
    lp_status status =
        in->ranks ? lp_rank_plan_make(in->ranks, &request, &in->h, &in->binding, in->gguf, in->dev,
                                      &in->plan_error)
                  : lp_err_memory(&in->plan_error, (size_t)c->ranks * sizeof *in->ranks, "ranks");
    if (!status) return;
    lp_free(in->ranks);
    in->ranks = NULL;
}

static void look_at_text(struct lp_inspect *in) {
    struct lp_str source;
    lp_vocab_load(&in->tokenizer, in->gguf, &in->tokenizer_error);
    lp_status status = lp_gguf_get_str(in->gguf, "tokenizer.chat_template", &source,
                                       &in->has_template, &in->template_error);
    if (status)
        in->has_template = true; // there, but no text
    else if (in->has_template)
        lp_jinja_parse(&in->chat_template, source, &in->template_error);
}

static int print(const struct lp_inspect *in, bool json, bool sections_only) {
    json_t *report = lp_inspect_report(in);
    if (!report) return lp_fail_text("out of memory: the report");
    if (!json) lp_inspect_print(report, sections_only, stdout);
    bool written = json ? lp_json_build_print(report) : fflush(stdout) == 0;
    json_decref(report);
    return written ? LP_EXIT_OK : lp_fail_text("cannot write the report");
}

// What keeps the model from running; a template that cannot be used does not.
static const struct lp_err *first_error(const struct lp_inspect *in) {
    if (in->model_error.status) return &in->model_error;
    return in->tokenizer_error.status ? &in->tokenizer_error : NULL;
}

static int inspect_file(struct lp_inspect *in, const char *given, const struct lp_common *c,
                        bool json) {
    struct lp_err err;
    struct lp_model_file file = {0};
    char *path;
    int found = lp_find_model(&path, given, &lp_cmd_inspect);
    if (found) return found;
    lp_status status = open_device(in, c, &err);
    if (!status) status = lp_model_file_describe(&file, path, &err);
    if (status) {
        lp_free(path);
        return lp_fail_text("%s", err.text);
    }
    in->gguf = file.gguf;
    in->folder = file.plan;
    look_at_model(in, c);
    look_at_budget(in, c, path);
    look_at_repacking(in, c);
    look_at_ranks(in, c);
    look_at_text(in);
    bool sections_only = !json && (in->list_tensors || in->list_metadata);
    int result = print(in, json, sections_only);
    const struct lp_err *error = first_error(in);
    if (!result && error && !in->list_tensors && !in->list_metadata)
        result = lp_fail_text("%s", error->text);
    else if (!result && in->plan_error.status)
        result = lp_fail_text("%s", in->plan_error.text);
    lp_jinja_free(in->chat_template);
    lp_tokenizer_free(in->tokenizer);
    lp_expert_layout_release(&in->experts);
    lp_free(path);
    lp_binding_release(&in->binding);
    lp_model_file_close(&file);
    return result;
}

static int parse(int argc, char **argv, struct lp_inspect *in, struct lp_common *c, bool *json,
                 const char **path) {
    enum { N_OWN = 5 };
    static const char *const taken[] = {"--threads",
                                        "--backend",
                                        "--cpu",
                                        "--ctx",
                                        "--kv",
                                        "--chunk",
                                        "--log",
                                        "--repack",
                                        "--memory-budget",
                                        "--ranks",
                                        "--pipeline",
                                        "--shard-experts",
                                        "--attention-parallel"};
    struct lp_option common[LP_N_COMMON],
        options[N_OWN + LP_N_COMMON] = {
            {"--json", LP_OPT_FLAG, json, NULL, "one JSON object on standard output"},
            {"--tensors", LP_OPT_FLAG, &in->list_tensors, NULL,
             "list every tensor, and why an ignored one is ignored"},
            {"--metadata", LP_OPT_FLAG, &in->list_metadata, NULL,
             "list every metadata key with its value"},
            {"--max-seqs", LP_OPT_INT, &in->n_sequences, "N",
             "plan for a batch of N sequences of the whole context (default 1)"},
            {"--kv-tokens", LP_OPT_INT, &in->n_kv_tokens, "N",
             "plan for a KV cache of N tokens, as of limpid serve"},
        };
    size_t n = N_OWN;
    lp_common_options(c, common);
    for (size_t i = 0; i < LP_N_COMMON; i++) // those that change the plan; nothing runs here
        for (size_t k = 0; k < sizeof taken / sizeof taken[0]; k++)
            if (strcmp(common[i].name, taken[k]) == 0) options[n++] = common[i];
    int status = lp_args_parse(argc, argv, &lp_cmd_inspect, options, n, path, 1);
    if (status) return status;
    if (!*path)
        return lp_usage(&lp_cmd_inspect, "FILE is needed (a GGUF file, or a folder with a model)");
    if (!lp_kv_type_parse(c->kv, &in->kv_type))
        return lp_usage(&lp_cmd_inspect, "--kv is '%s', expected " LP_KV_TYPE_NAMES, c->kv);
    if (c->chunk > LP_MAX_CHUNK)
        return lp_usage(&lp_cmd_inspect, "--chunk is %lld, expected at most %d",
                        (long long)c->chunk, LP_MAX_CHUNK);
    if (in->n_sequences < 1 || in->n_sequences > LP_MAX_SEQS)
        return lp_usage(&lp_cmd_inspect, "--max-seqs is %lld, expected 1 to %d",
                        (long long)in->n_sequences, LP_MAX_SEQS);
    if (c->context > INT32_MAX / 2)
        return lp_usage(&lp_cmd_inspect, "--ctx is %lld, expected at most %d",
                        (long long)c->context, INT32_MAX / 2);
    if (in->n_kv_tokens > INT32_MAX / 2)
        return lp_usage(&lp_cmd_inspect, "--kv-tokens is %lld, expected at most %d",
                        (long long)in->n_kv_tokens, INT32_MAX / 2);
    enum lp_shard_experts experts;
    if (c->ranks > LP_COMM_MAX_SIZE || c->pipeline > c->ranks)
        return lp_usage(&lp_cmd_inspect,
                        "--ranks is %lld and --pipeline %lld, expected at most %d ranks and no "
                        "more stages than ranks",
                        (long long)c->ranks, (long long)c->pipeline, LP_COMM_MAX_SIZE);
    if (c->shard_experts && !lp_shard_experts_parse(c->shard_experts, &experts))
        return lp_usage(&lp_cmd_inspect, "--shard-experts is '%s', expected auto, split or whole",
                        c->shard_experts);
    enum lp_attention_parallel attention;
    if (c->attention_parallel && !lp_attention_parallel_parse(c->attention_parallel, &attention))
        return lp_usage(&lp_cmd_inspect,
                        "--attention-parallel is '%s', expected auto, heads or data",
                        c->attention_parallel);
    enum lp_repack how;
    if (!lp_repack_parse(c->repack, &how))
        return lp_usage(&lp_cmd_inspect, "--repack is '%s', expected auto, on or off", c->repack);
    if (lp_check_threads(&lp_cmd_inspect, c->threads)) return LP_EXIT_USAGE;
    limpid_error err;
    if (c->log && limpid_set_log_level(c->log, &err)) return lp_fail(&err);
    return LP_EXIT_OK;
}

static int run(int argc, char **argv) {
    struct lp_inspect *in = lp_alloc(1, sizeof *in);
    if (!in) return lp_fail_text("out of memory: the report");
    struct lp_common common;
    in->n_sequences = 1;
    bool json = false;
    const char *path = NULL;
    int status = parse(argc, argv, in, &common, &json, &path);
    if (status < 0)
        status = LP_EXIT_OK;
    else if (!status)
        status = inspect_file(in, path, &common, json);
    if (in->dev) in->dev->backend->close(in->dev);
    lp_free(in->ranks);
    lp_free(in);
    return status;
}

const struct lp_command lp_cmd_inspect = {
    "inspect", "FILE [--json] [--tensors] [--metadata] [--ctx N] [--max-seqs N] [--kv TYPE]",
    "what a file holds, what is used of it, and the memory it will take", run};
