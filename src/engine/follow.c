// limpid.h: ranks. Options go to the other ranks as their bytes, each text behind them.
#include "engine/follow.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "engine/engine.h"
#include "model/tensor_hash.h"

#define COUNT(list) (sizeof(list) / sizeof *(list))

limpid_status limpid_ranks_join(limpid_ranks **out, limpid_error *err_) {
    struct lp_err *err = lp_err_of(err_);
    limpid_ranks *r = lp_alloc(1, sizeof *r);
    *out = NULL;
    if (!r) return lp_public(lp_err_memory(err, sizeof *r, "the ranks"));
    lp_status status = lp_comm_join(&r->comm, err);
    if (status || !r->comm) {
        lp_free(r);
        return lp_public(status);
    }
    lp_log_set_rank(lp_comm_rank(r->comm));
    *out = r;
    return LIMPID_OK;
}

int32_t limpid_ranks_rank(const limpid_ranks *r) {
    return r ? lp_comm_rank(r->comm) : 0;
}
int32_t limpid_ranks_size(const limpid_ranks *r) {
    return r ? lp_comm_size(r->comm) : 1;
}

limpid_status limpid_ranks_check(const limpid_ranks *r, limpid_error *err) {
    return r ? lp_public(lp_comm_check(r->comm, lp_err_of(err))) : LIMPID_OK;
}

void limpid_ranks_doubt(limpid_ranks *r) {
    if (r) lp_comm_doubt(r->comm);
}

void limpid_ranks_leave(limpid_ranks *r) {
    if (!r) return;
    if (lp_comm_rank(r->comm) == 0) {
        lp_bytes_clear(&r->order.bytes);
        r->order.kind = LP_ORDER_END;
        lp_order_give(r->comm, &r->order);
    }
    lp_comm_leave(r->comm);
    lp_bytes_release(&r->order.bytes);
    lp_free(r);
}

int lp_ranks_threads(const limpid_ranks *r, int n_cpus) {
    const int n = r ? n_cpus / lp_comm_sharing(r->comm) : n_cpus;
    return n > 0 ? n : 1;
}

// ---- options as bytes

static const size_t model_texts[] = {
    offsetof(limpid_model_options, backend),
    offsetof(limpid_model_options, cpu_level),
    offsetof(limpid_model_options, pin),
    offsetof(limpid_model_options, huge_pages),
    offsetof(limpid_model_options, repack),
    offsetof(limpid_model_options, load),
    offsetof(limpid_model_options, experts),
    offsetof(limpid_model_options, expert_profile),
    offsetof(limpid_model_options, shard_experts),
    offsetof(limpid_model_options, attention_parallel),
};
static const size_t engine_texts[] = {
    offsetof(limpid_engine_options, kv_type),
    offsetof(limpid_engine_options, route),
    offsetof(limpid_engine_options, cache_dir),
    offsetof(limpid_engine_options, trace_path),
};

static void put_text(struct lp_order *order, const char *text) {
    const uint32_t n = text ? (uint32_t)strlen(text) + 1 : 0; // 0: NULL
    lp_order_put(order, &n, sizeof n);
    if (n) lp_order_put(order, text, n);
}

static const char *get_text(struct lp_order_reader *from) {
    uint32_t n = 0;
    lp_order_get(from, &n, sizeof n);
    const char *text = n ? (const char *)lp_order_skip(from, n) : NULL;
    return text && text[n - 1] == 0 ? text : NULL;
}

static void put_options(struct lp_order *order, const void *options, size_t n_bytes,
                        const size_t *texts, size_t n_texts) {
    lp_order_put(order, options, n_bytes);
    for (size_t i = 0; i < n_texts; i++) {
        const char *text;
        memcpy(&text, (const char *)options + texts[i], sizeof text);
        put_text(order, text);
    }
}

// Texts lie in the order's bytes.
static void get_options(struct lp_order_reader *from, void *options, size_t n_bytes,
                        const size_t *texts, size_t n_texts) {
    lp_order_get(from, options, n_bytes);
    for (size_t i = 0; i < n_texts; i++) {
        const char *text = get_text(from);
        memcpy((char *)options + texts[i], &text, sizeof text);
    }
}

// ---- rank 0

static int32_t take_number(limpid_ranks *r, enum lp_ranks_what what) {
    for (int32_t i = 0; i < LP_RANKS_MOST; i++)
        if (!r->used[what][i]) {
            r->used[what][i] = true;
            return i;
        }
    return -1;
}

static lp_status begin(limpid_ranks *r, enum lp_order_kind kind, enum lp_ranks_what what,
                       int32_t *number, struct lp_err *err) {
    *number = take_number(r, what);
    if (*number < 0)
        return lp_err_set(err, LP_STATUS_LIMIT, "ranks have at most %d %s at a time", LP_RANKS_MOST,
                          what == LP_RANKS_MODEL ? "models" : "engines");
    lp_bytes_clear(&r->order.bytes);
    r->order.kind = kind;
    r->order.owner = *number;
    return LP_OK;
}

static lp_status give(limpid_ranks *r, enum lp_ranks_what what, int32_t number,
                      struct lp_err *err) {
    lp_status status = LP_OK;
    if (r->order.bytes.failed) {
        lp_bytes_release(&r->order.bytes);
        status = lp_err_memory(err, 0, "an order to the other ranks");
    } else {
        lp_order_give(r->comm, &r->order);
        status = lp_comm_failed(r->comm, err);
    }
    if (status) r->used[what][number] = false;
    return status;
}

lp_status lp_ranks_open(limpid_ranks *r, const char *path, const limpid_model_options *options,
                        int32_t *number, struct lp_err *err) {
    lp_status status = begin(r, LP_ORDER_MODEL_OPEN, LP_RANKS_MODEL, number, err);
    if (status) return status;
    put_text(&r->order, limpid_version());
    put_text(&r->order, path);
    put_options(&r->order, options, sizeof *options, model_texts, COUNT(model_texts));
    return give(r, LP_RANKS_MODEL, *number, err);
}

lp_status lp_ranks_make(limpid_ranks *r, int32_t model, const limpid_engine_options *options,
                        int32_t *number, struct lp_err *err) {
    lp_status status = begin(r, LP_ORDER_ENGINE_NEW, LP_RANKS_ENGINE, number, err);
    if (status) return status;
    lp_order_put(&r->order, &model, sizeof model);
    put_options(&r->order, options, sizeof *options, engine_texts, COUNT(engine_texts));
    return give(r, LP_RANKS_ENGINE, *number, err);
}

void lp_ranks_close(limpid_ranks *r, enum lp_ranks_what what, int32_t number) {
    struct lp_err err;
    lp_bytes_clear(&r->order.bytes);
    r->order.kind = what == LP_RANKS_MODEL ? LP_ORDER_MODEL_CLOSE : LP_ORDER_ENGINE_FREE;
    r->order.owner = number;
    give(r, what, number, &err);
    r->used[what][number] = false;
}

// ---- all

struct outcome {
    int32_t status;
    char text[508];
};

lp_status lp_ranks_agree(limpid_ranks *r, lp_status status, struct lp_err *err) {
    struct outcome own = {.status = status}, *all = NULL, first = {0};
    const int32_t size = lp_comm_size(r->comm);
    if (status && err)
        snprintf(own.text, sizeof own.text, "%.*s", (int)sizeof own.text - 1, err->text);
    lp_comm_meet(r->comm); // loading may take its time
    if (lp_comm_rank(r->comm) == 0) all = lp_alloc((size_t)size, sizeof *all);
    if (lp_comm_rank(r->comm) > 0 || all) lp_comm_collect(r->comm, &own, sizeof own, all);
    if (lp_comm_rank(r->comm) == 0 && !all) { // the others are in the gathering already
        lp_err_memory(err, (size_t)size * sizeof *all, "what ranks tell");
        lp_comm_fail(r->comm, err);
    }
    for (int32_t i = 0; all && i < size && !first.status; i++) {
        if (!all[i].status) continue;
        first.status = all[i].status;
        if (i == 0)
            first = all[i];
        else
            snprintf(first.text, sizeof first.text, "rank %d on %s: %.400s", i,
                     lp_comm_host(r->comm, i), all[i].text);
    }
    lp_free(all);
    lp_comm_share(r->comm, &first, sizeof first);
    const lp_status lost = lp_comm_failed(r->comm, err);
    if (lost || !first.status) return lost;
    return lp_err_set(err, (lp_status)first.status, "%s", first.text);
}

// Names, types and shapes of all tensors, the bytes of small ones, and the kernels that run: choices of experts
// and keys are made by each rank for itself, and must be the same.
static uint64_t identity(const limpid_model *m) {
    enum { SMALL = 1 << 16 };
    static const uint64_t prime = 1099511628211; // of FNV-1a
    const struct lp_backend *backend = m->dev->backend;
    uint64_t hash = 0;
    for (uint64_t i = 0; i < lp_gguf_n_tensors(m->gguf); i++) {
        const struct lp_gguf_tensor *t = lp_gguf_tensor_at(m->gguf, i);
        const char *kernel = backend->matmul_kernel(m->dev, t->type);
        hash = hash * prime + lp_tensor_hash(t, SMALL, 0);
        for (; kernel && *kernel; kernel++) hash = hash * prime + (uint8_t)*kernel;
    }
    return hash;
}

lp_status lp_ranks_compare(limpid_ranks *r, const limpid_model *m, struct lp_err *err) {
    uint64_t own = identity(m), all[LP_COMM_MAX_SIZE] = {0};
    lp_status status = LP_OK;
    lp_comm_collect(r->comm, &own, sizeof own, all);
    for (int32_t i = 1; i < lp_comm_size(r->comm) && lp_comm_rank(r->comm) == 0 && !status; i++)
        if (all[i] != own)
            status = lp_err_set(err, LP_STATUS_INVALID,
                                "rank %d on %s has another file at that path than rank 0, or runs "
                                "other kernels (its CPU or GPU is another); use the same file, and "
                                "--cpu with a level that all hosts have",
                                i, lp_comm_host(r->comm, i));
    return lp_ranks_agree(r, status, err);
}

// ---- rank 1 and up

static lp_status misses(limpid_ranks *r, const struct lp_order *order, struct lp_err *err) {
    struct lp_err why;
    lp_err_set(
        &why, LP_STATUS_IO,
        "order %llu of rank 0 is about something that this rank does not have: the ranks are "
        "not in step",
        (unsigned long long)order->number);
    lp_comm_fail(r->comm, &why);
    return lp_err_set(err, LP_STATUS_IO, "%s", why.text);
}

// What is refused here is refused on all ranks, and told by rank 0.
static void open_model(limpid_ranks *r, int32_t number, struct lp_order_reader *from) {
    limpid_model_options options;
    limpid_error err;
    const char *version = get_text(from), *path = get_text(from);
    const bool same =
        version && strcmp(version, limpid_version()) == 0 && from->n - from->at >= sizeof options;
    if (!same) {
        lp_err_set(lp_err_of(&err), LP_STATUS_UNSUPPORTED,
                   "this is limpid %s, and rank 0 is %s; start the same build on all hosts",
                   limpid_version(), version ? version : "another build");
        lp_ranks_agree(r, LP_STATUS_UNSUPPORTED, lp_err_of(&err));
        return;
    }
    get_options(from, &options, sizeof options, model_texts, COUNT(model_texts));
    options.ranks = r;
    limpid_model_open(&r->models[number], path ? path : "", &options, &err);
}

// A trace of each rank, beside rank 0's.
static void make_engine(limpid_ranks *r, int32_t number, struct lp_order_reader *from) {
    limpid_engine_options options;
    limpid_error err;
    int32_t model = -1;
    char trace[4096];
    lp_order_get(from, &model, sizeof model);
    get_options(from, &options, sizeof options, engine_texts, COUNT(engine_texts));
    if (options.trace_path) {
        snprintf(trace, sizeof trace, "%s.rank%d", options.trace_path, lp_comm_rank(r->comm));
        options.trace_path = trace;
    }
    if (model >= 0 && model < LP_RANKS_MOST && r->models[model])
        limpid_engine_new(&r->engines[number], r->models[model], &options, &err);
}

static lp_status obey(limpid_ranks *r, struct lp_order *order, struct lp_err *err) {
    struct lp_order_reader from = {(const uint8_t *)order->bytes.data, order->bytes.len, 0, false};
    const int32_t number = order->owner;
    limpid_error ignored;
    if (number < 0 || number >= LP_RANKS_MOST) return misses(r, order, err);
    switch (order->kind) {
    case LP_ORDER_MODEL_OPEN:
        open_model(r, number, &from);
        return LP_OK;
    case LP_ORDER_MODEL_CLOSE:
        limpid_model_close(r->models[number]);
        r->models[number] = NULL;
        return LP_OK;
    case LP_ORDER_ENGINE_NEW:
        make_engine(r, number, &from);
        return LP_OK;
    case LP_ORDER_EXAM:
        if (!r->on_exam) return misses(r, order, err);
        r->on_exam(r, &from);
        return LP_OK;
    case LP_ORDER_ENGINE_FREE:
        limpid_engine_free(r->engines[number], &ignored);
        r->engines[number] = NULL;
        return LP_OK;
    default:
        if (!r->engines[number]) return misses(r, order, err);
        return lp_runner_follow(r->engines[number]->runner, order, &r->engines[number]->settings,
                                err);
    }
}

limpid_status limpid_ranks_follow(limpid_ranks *r, limpid_error *err_) {
    struct lp_err *err = lp_err_of(err_);
    for (;;) {
        lp_status status = lp_order_take(r->comm, &r->order, err);
        if (status) return lp_public(status);
        if (r->order.kind == LP_ORDER_END) return LIMPID_OK;
        status = obey(r, &r->order, err);
        if (lp_comm_failed(r->comm, NULL)) return lp_public(lp_comm_failed(r->comm, err));
        // A step that failed has been told to rank 0, which decides what becomes of it.
    }
}
