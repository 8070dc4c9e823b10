#include "engine/open_options.h"

#include <string.h>

#include "base/workers.h"
#include "engine/follow.h"
#include "model/shard.h"

static lp_status read_huge_pages(const limpid_model_options *o, enum lp_huge_pages *out,
                                 struct lp_err *err) {
    static const char *const names[] = {"auto", "off", "all"};
    const char *name = o->huge_pages ? o->huge_pages : "auto";
    for (int i = 0; i < 3; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (enum lp_huge_pages)i;
            return LP_OK;
        }
    return lp_err_set(err, LP_STATUS_INVALID, "huge_pages is '%s', expected auto, off or all",
                      name);
}

static lp_status check_budget(const limpid_model_options *o, bool is_folder, struct lp_err *err) {
    bool limited = o->memory_budget_bytes > 0;
    if (limited && is_folder)
        return lp_err_set(err, LP_STATUS_UNSUPPORTED,
                          "a memory budget needs a GGUF file, this is a folder; convert it first "
                          "(limpid convert)");
    if (o->expert_profile && !limited)
        return lp_err_set(err, LP_STATUS_INVALID,
                          "an expert profile is of use with a memory budget alone "
                          "(--memory-budget)");
    if (limited && o->prefetch)
        return lp_err_set(err, LP_STATUS_INVALID,
                          "a memory budget leaves weights on disk, and prefetch reads all of them "
                          "into memory; give one of the two");
    return LP_OK;
}

static lp_status read_load(const limpid_model_options *o, bool *dummy, struct lp_err *err) {
    const char *load = o->load ? o->load : "file";
    *dummy = strcmp(load, "dummy") == 0;
    if (!*dummy && strcmp(load, "file") != 0)
        return lp_err_set(err, LP_STATUS_INVALID, "load is '%s', expected file or dummy", load);
    if (*dummy && (o->prefetch || o->memory_budget_bytes))
        return lp_err_set(err, LP_STATUS_INVALID,
                          "load 'dummy' reads no weights, and %s does; give one of the two",
                          o->prefetch ? "prefetch" : "a memory budget");
    return LP_OK;
}

static lp_status read_division(const limpid_model_options *o, struct lp_open_options *out,
                               struct lp_err *err) {
    const char *experts = o->experts ? o->experts : "device";
    const bool on_cpu = strcmp(experts, "cpu") == 0;
    out->divides = on_cpu || o->vram_budget_bytes;
    out->vram_bytes = o->vram_budget_bytes;
    if (!on_cpu && strcmp(experts, "device") != 0)
        return lp_err_set(err, LP_STATUS_INVALID, "experts is '%s', expected device or cpu",
                          experts);
    if (on_cpu && o->vram_budget_bytes)
        return lp_err_set(err, LP_STATUS_INVALID,
                          "experts 'cpu' leaves all routed experts on the CPU, and a VRAM budget "
                          "as many as do not fit; give one of the two");
    if (out->divides && out->dummy)
        return lp_err_set(err, LP_STATUS_INVALID,
                          "load 'dummy' fills the GPU's memory, and %s keeps experts on the CPU, "
                          "where they would be read; give one of the two",
                          on_cpu ? "experts 'cpu'" : "a VRAM budget");
    if (out->divides && o->memory_budget_bytes)
        return lp_err_set(err, LP_STATUS_INVALID,
                          "a memory budget keeps experts on disk, and %s keeps them on the CPU; "
                          "give one of the two",
                          on_cpu ? "experts 'cpu'" : "a VRAM budget");
    return LP_OK;
}

// What several ranks cannot do yet, or what only they can.
static lp_status read_ranks(const limpid_model_options *o, struct lp_open_options *out,
                            struct lp_err *err) {
    const char *name = o->shard_experts ? o->shard_experts : "auto",
               *attention = o->attention_parallel ? o->attention_parallel : "auto";
    if (!lp_shard_experts_parse(name, &out->shard_experts))
        return lp_err_set(err, LP_STATUS_INVALID,
                          "shard_experts is '%s', expected auto, split or whole", name);
    if (!lp_attention_parallel_parse(attention, &out->attention))
        return lp_err_set(err, LP_STATUS_INVALID,
                          "attention_parallel is '%s', expected auto, heads or data", attention);
    if (!o->ranks && o->pipeline > 1)
        return lp_err_set(err, LP_STATUS_INVALID,
                          "a pipeline of %d stages needs several ranks; start them with --ranks or "
                          "mpirun",
                          o->pipeline);
    if (!o->ranks && out->attention == LP_ATTENTION_PARALLEL_DATA)
        return lp_err_set(err, LP_STATUS_INVALID,
                          "attention_parallel 'data' divides sequences over several ranks; start "
                          "them with --ranks or mpirun");
    if (!o->ranks) return LP_OK;
    if (o->memory_budget_bytes) {
        lp_status status = lp_shard_experts_on_disk(&out->shard_experts,
                                                    lp_comm_size(o->ranks->comm), o->pipeline, err);
        if (status) return status;
    }
    const char *without = o->vram_budget_bytes                           ? "a VRAM budget"
                          : o->experts && strcmp(o->experts, "cpu") == 0 ? "experts 'cpu'"
                                                                         : NULL;
    if (!without) return LP_OK;
    return lp_err_set(err, LP_STATUS_UNSUPPORTED,
                      "%s is for one process, and this model is run by several ranks; give one of "
                      "the two",
                      without);
}

static lp_status read_repack(const limpid_model_options *o, enum lp_repack *how,
                             struct lp_err *err) {
    if (!lp_repack_parse(o->repack, how))
        return lp_err_set(err, LP_STATUS_INVALID, "repack is '%s', expected auto, off or on",
                          o->repack);
    if (*how == LP_REPACK_ON && o->memory_budget_bytes)
        return lp_err_set(err, LP_STATUS_INVALID,
                          "a memory budget leaves weights on disk, and repack copies all of them "
                          "in memory; give one of the two");
    return LP_OK;
}

lp_status lp_open_options_read(struct lp_open_options *out, const limpid_model_options *o,
                               bool is_folder, struct lp_err *err) {
    *out = (struct lp_open_options){.repack = LP_REPACK_AUTO};
    lp_status status = check_budget(o, is_folder, err);
    if (!status) status = read_repack(o, &out->repack, err);
    if (!status) status = read_huge_pages(o, &out->huge_pages, err);
    if (!status) status = read_load(o, &out->dummy, err);
    if (!status) status = read_division(o, out, err);
    if (!status) status = read_ranks(o, out, err);
    if (!status && o->prefetch && is_folder)
        status = lp_err_set(err, LP_STATUS_UNSUPPORTED,
                            "a model folder cannot be read ahead; convert it to a GGUF file first "
                            "(limpid convert), or leave --prefetch out");
    return status;
}

int lp_open_options_threads(const limpid_model_options *o) {
    return o->n_threads ? o->n_threads : lp_ranks_threads(o->ranks, lp_cpu_count());
}

static lp_status open_device(const struct lp_open_options *read, const limpid_model_options *o,
                             const struct lp_backend *backend, struct lp_device **out,
                             struct lp_err *err) {
    struct lp_device_options options = {.n_threads = lp_open_options_threads(o),
                                        .cpu_level = o->cpu_level ? o->cpu_level : "auto"};
    if (!lp_pin_parse(o->pin ? o->pin : "auto", &options.pin))
        return lp_err_set(err, LP_STATUS_INVALID, "pin is '%s', expected auto, none or cores",
                          o->pin);
    // Each would take the same cores; who binds ranks does it by the launcher.
    if (options.pin == LP_PIN_AUTO && o->ranks && lp_comm_sharing(o->ranks->comm) > 1)
        options.pin = LP_PIN_NONE;
    if (o->ranks) options.number = lp_comm_local_rank(o->ranks->comm);
    options.no_huge_pages = read->huge_pages == LP_HUGE_PAGES_OFF;
    return backend->open(out, &options, err);
}

lp_status lp_open_options_device(const struct lp_open_options *read, const limpid_model_options *o,
                                 struct lp_device **out, struct lp_err *err) {
    const struct lp_backend *backend;
    lp_status status = lp_backend_choose(&backend, o->backend, err);
    if (!status && o->memory_budget_bytes && !backend->host_memory)
        status = lp_err_set(err, LP_STATUS_UNSUPPORTED,
                            "a memory budget needs a backend that computes in the host's memory");
    return status ? status : open_device(read, o, backend, out, err);
}

lp_status lp_open_options_experts(const struct lp_open_options *read, const limpid_model_options *o,
                                  struct lp_device **out, struct lp_err *err) {
    *out = NULL;
    return read->divides ? open_device(read, o, &lp_backend_cpu, out, err) : LP_OK;
}
