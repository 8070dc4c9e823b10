#include "cli/memory_check.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "cli/size_text.h"

void lp_memory_plan_text(char *out, size_t n_bytes, const limpid_memory_plan *plan) {
    char weights[32], copies[32], kv[32], step[32], available[32], ranks[48] = "";
    if (plan->n_kv_ranks > 1)
        snprintf(ranks, sizeof ranks, " on each of %d ranks", plan->n_kv_ranks);
    snprintf(
        out, n_bytes,
        "%smemory: weights %s mapped and %s copied; KV cache %s%s for %lld tokens (a context has "
        "%lld); buffers of a step %s; %s%s",
        plan->on_device ? "GPU " : "", lp_size_text(weights, plan->mapped_weights),
        lp_size_text(copies, plan->copied_weights), lp_size_text(kv, plan->kv_cache), ranks,
        (long long)plan->n_kv_tokens, (long long)plan->n_context,
        lp_size_text(step, plan->step_buffers),
        plan->available ? "available: " : "available memory unknown",
        plan->available ? lp_size_text(available, plan->available) : "");
}

// What makes the copies of weights smaller, or "".
static const char *fewer_copies(const limpid_memory_plan *plan, const limpid_model_options *o,
                                bool is_folder) {
    if (plan->on_device && o->vram_budget_bytes) return "raise --vram-budget, ";
    if (plan->on_device)
        return plan->mapped_weights
                   ? ""
                   : "keep routed experts on the CPU (--experts cpu, or --vram-budget), ";
    bool repack = o->repack && strcmp(o->repack, "on") == 0;
    if (o->memory_budget_bytes) return "lower --memory-budget, ";
    if (o->prefetch && repack)
        return "leave --prefetch and --repack on out (the weights are then used where the file is "
               "mapped), ";
    if (o->prefetch)
        return "leave --prefetch out (the weights are then used where the file is mapped), ";
    if (repack)
        return "leave --repack on out (the weights are then used where the file is mapped), ";
    return is_folder ? "convert the folder to a GGUF file, which is mapped (limpid convert), " : "";
}

void lp_memory_judge(struct lp_memory_judgement *out, const limpid_memory_plan *plan,
                     const limpid_model_options *o, bool is_folder, const char *smaller) {
    char weights[32], kv[32], step[32], available[32], all[32];
    const uint64_t needed = plan->copied_weights + plan->kv_cache + plan->step_buffers;
    *out = (struct lp_memory_judgement){.verdict = LP_MEMORY_FITS};
    lp_size_text(available, plan->available);
    if (!plan->available) return;
    if (needed > plan->available) {
        out->verdict = LP_MEMORY_REFUSED;
        snprintf(out->text, sizeof out->text,
                 "this takes %s of %smemory, but only %s are available: %s of weights that are "
                 "copied, %s of KV cache, %s of buffers of a step; %s%s, or choose a smaller --kv "
                 "type",
                 lp_size_text(all, needed), plan->on_device ? "the GPU's " : "", available,
                 lp_size_text(weights, plan->copied_weights), lp_size_text(kv, plan->kv_cache),
                 lp_size_text(step, plan->step_buffers), fewer_copies(plan, o, is_folder), smaller);
    } else if (!plan->on_device && plan->mapped_weights > plan->available - needed) {
        out->verdict = LP_MEMORY_PAGES;
        snprintf(out->text, sizeof out->text,
                 "of the mapped weights (%s) %s fit into memory beside what this takes; the others "
                 "are read from disk again and again, which is slow; %s",
                 lp_size_text(weights, plan->mapped_weights),
                 lp_size_text(all, plan->available - needed),
                 o->memory_budget_bytes ? "lower --memory-budget"
                 : is_folder
                     ? "convert the folder (limpid convert) and give --memory-budget, which "
                       "keeps a model with experts within memory"
                     : "--memory-budget keeps a model with experts within memory, and "
                       "reads the others ahead");
    }
}

static bool is_folder(const char *path) {
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

// With several ranks, in one stage, and nothing said about attention: by heads, unless the cache does not fit when
// each rank has all of it and does when each has its part.
static void choose_attention(const char *path, limpid_model_options *model,
                             const limpid_engine_options *engine) {
    const bool is_open = !model->attention_parallel || !strcmp(model->attention_parallel, "auto");
    limpid_model_options data = *model;
    limpid_memory_plan whole, part;
    struct lp_memory_judgement judgement;
    char all[32], each[32], available[32];
    if (!model->ranks || !is_open || model->pipeline > 1) return;
    data.attention_parallel = "data";
    if (limpid_plan(&whole, path, model, engine, NULL)) return; // told below
    lp_memory_judge(&judgement, &whole, model, false, "");
    if (judgement.verdict != LP_MEMORY_REFUSED) return;
    if (limpid_plan(&part, path, &data, engine, NULL)) return;
    lp_memory_judge(&judgement, &part, &data, false, "");
    if (judgement.verdict == LP_MEMORY_REFUSED) return;
    model->attention_parallel = data.attention_parallel;
    fprintf(
        stderr,
        "limpid: attention-parallel data: a KV cache of %s for %lld tokens on every rank does not "
        "fit (available: %s), one of %s for the sequences of each does\n",
        lp_size_text(all, whole.kv_cache), (long long)whole.n_kv_tokens,
        lp_size_text(available, whole.available), lp_size_text(each, part.kv_cache));
}

int lp_memory_check(const char *path, limpid_model_options *model,
                    const limpid_engine_options *engine, const char *smaller, bool print) {
    limpid_memory_plan plan;
    limpid_error err;
    char text[512];
    struct lp_memory_judgement judgement;
    choose_attention(path, model, engine);
    limpid_status status = limpid_plan(&plan, path, model, engine, &err);
    if (status == LIMPID_MEMORY) return lp_fail_text("%s; %s", err.text, smaller);
    if (status) return lp_fail_setting(&err);
    lp_memory_plan_text(text, sizeof text, &plan);
    if (print)
        fprintf(stderr, "limpid: %s\n", text);
    else
        lp_log(LP_LOG_INFO, "%s", text);
    model->reserve_bytes = plan.kv_cache + plan.step_buffers;
    lp_memory_judge(&judgement, &plan, model, is_folder(path), smaller);
    if (judgement.verdict == LP_MEMORY_REFUSED) return lp_fail_text("%s", judgement.text);
    if (judgement.verdict == LP_MEMORY_PAGES) lp_log(LP_LOG_WARN, "%s", judgement.text);
    return LP_EXIT_OK;
}

int lp_memory_check_and_open(const struct lp_common *common, const char *path,
                             const limpid_engine_options *engine, limpid_model **model) {
    limpid_error err;
    limpid_model_options options;
    int status = lp_common_model_options(common, path, &options);
    if (!status) status = lp_memory_check(path, &options, engine, "lower --ctx or --chunk", false);
    if (!status && limpid_model_open(model, path, &options, &err)) status = lp_fail_setting(&err);
    return status;
}
