// Loading: hyperparameters, binding, placement, weight check.
#include "model/model.h"

#include <string.h>

#include "base/alloc.h"
#include "base/huge_pages.h"
#include "base/log.h"
#include "model/expert_cache.h"
#include "model/ranks.h"
#include "model/shard.h"

#define FINE_MTP_BITS 6 // reported from another engine: 0 to 4 % of drafts accepted at 4 bits

static void log_facts(const struct lp_hparams *h) {
    for (int32_t i = 0; i < h->n_facts; i++) {
        const struct lp_fact *f = &h->facts[i];
        lp_log(strcmp(f->source, "file") == 0 ? LP_LOG_DEBUG : LP_LOG_INFO, "%s = %s (%s)", f->name,
               f->value, f->source);
    }
}

// One line a reason, with what it leaves out; the names one level below.
static void log_ignored(const struct lp_binding *b) {
    for (uint64_t i = 0; i < b->n_ignored; i++) {
        const char *reason = b->ignored[i].reason;
        uint64_t n = 0, n_bytes = 0;
        bool first = true;
        for (uint64_t k = 0; k < i && first; k++) first = strcmp(b->ignored[k].reason, reason) != 0;
        lp_log(LP_LOG_DEBUG, "tensor %.*s is ignored: %s", LP_STR_ARGS(b->ignored[i].tensor->name),
               reason);
        for (uint64_t k = i; k < b->n_ignored && first; k++)
            if (strcmp(b->ignored[k].reason, reason) == 0) {
                n++;
                n_bytes += b->ignored[k].tensor->n_bytes;
            }
        if (first)
            lp_log(LP_LOG_INFO, "%llu tensors (%.1f MB) are ignored: %s", (unsigned long long)n,
                   (double)n_bytes * 1e-6, reason);
    }
}

// Keys of this architecture that nothing reads may change the mathematics: say so.
static void warn_unknown_keys(const struct lp_model *m) {
    for (uint64_t i = 0; i < lp_gguf_n_kv(m->gguf); i++) {
        struct lp_str key = lp_gguf_kv_at(m->gguf, i)->key;
        size_t prefix = 0;
        while (m->h.arch->name[prefix] && prefix < key.len &&
               key.data[prefix] == m->h.arch->name[prefix])
            prefix++;
        if (m->h.arch->name[prefix] || prefix >= key.len || key.data[prefix] != '.') continue;
        if (!lp_hparams_knows_key(m->h.arch, key))
            lp_log(LP_LOG_WARN, "metadata key %.*s is not known and is ignored", LP_STR_ARGS(key));
    }
}

// A draft layer of few bits still runs, but what it drafts is rarely right.
static void warn_coarse_mtp(const struct lp_model *m) {
    struct lp_mtp_size size = lp_binding_mtp_size(&m->binding, &m->h);
    if (m->has_mtp && size.bits_per_weight < FINE_MTP_BITS)
        lp_log(LP_LOG_WARN,
               "the MTP layer (block %d) has %.1f bits per weight; below %d its drafts are seldom "
               "accepted: keep it at 8 bits when quantising",
               m->h.n_layers, size.bits_per_weight, FINE_MTP_BITS);
}

static lp_status divide(struct lp_model *m, const struct lp_load *load, struct lp_err *err) {
    struct lp_comm *ranks = load->ranks;
    const int32_t rank = ranks ? lp_comm_rank(ranks) : 0, size = ranks ? lp_comm_size(ranks) : 1;
    lp_status status =
        lp_shard_divide(m, rank, size, load->n_stages, load->shard_experts, load->attention, err);
    if (status || !ranks) return status;
    m->ranks = ranks;
    return LP_OK;
}

lp_status lp_model_join(struct lp_model *m, struct lp_err *err) {
    if (!m->ranks) return LP_OK;
    const int32_t first = lp_comm_rank(m->ranks) - m->part.tensor;
    lp_status status = LP_OK;
    if (lp_shard_is_cut(m))
        status = lp_comm_group(&m->neighbours, m->ranks, first, m->part.n_tensor, err);
    if (status) {
        lp_comm_fail(m->ranks, err); // the others may have theirs
        return status;
    }
    return lp_ranks_join_devices(m, err);
}

lp_status lp_model_load(struct lp_model **out, const struct lp_gguf *gguf, struct lp_device *dev,
                        const struct lp_load *load, struct lp_err *err) {
    if (load->expert_dev && dev->backend->host_memory)
        return lp_err_set(err, LP_STATUS_INVALID,
                          "all weights are in the host's memory with the backend %s, experts too; "
                          "leave out what divides them between CPU and GPU",
                          dev->backend->name);
    if (load->dummy && dev->backend->host_memory)
        return lp_err_set(
            err, LP_STATUS_INVALID,
            "load is 'dummy', which fills the memory of a GPU (backend cuda); for the "
            "backend %s write a file with random weights (limpid synth)",
            dev->backend->name);
    struct lp_model *m = lp_alloc(1, sizeof *m);
    if (!m) return lp_err_memory(err, sizeof *m, "the model");
    m->gguf = gguf;
    m->dev = dev;
    m->dummy = load->dummy;
    m->expert_dev = load->expert_dev;
    lp_status status = lp_hparams_read(&m->h, gguf, err);
    if (!status)
        status = lp_binding_make(&m->binding, &m->h, gguf, dev->backend->supports, dev, err);
    if (!status) {
        size_t n = (size_t)m->h.n_layers + m->binding.has_mtp;
        m->layers = lp_alloc(n, sizeof *m->layers);
        if (!m->layers) status = lp_err_memory(err, n * sizeof *m->layers, "the layers");
    }
    if (!status) status = divide(m, load, err);
    const bool checks = !load->ranks || lp_comm_local_rank(load->ranks) == 0; // once on a host
    if (!status && !m->dummy && checks)
        status = lp_model_check_weights(gguf, load->check_bytes, load->n_threads, err);
    if (!status) status = lp_model_place(m, load, err);
    if (status) {
        lp_model_free(m);
        return status;
    }
    log_facts(&m->h);
    warn_unknown_keys(m);
    log_ignored(&m->binding);
    warn_coarse_mtp(m);
    *out = m;
    return LP_OK;
}

lp_status lp_model_limit_memory(struct lp_model *m, const struct lp_expert_options *options,
                                struct lp_err *err) {
    return lp_expert_cache_new(&m->expert_cache, m, options, err);
}

void lp_model_free(struct lp_model *m) {
    if (!m) return;
    lp_expert_cache_free(m->expert_cache);
    for (size_t i = 0; i < m->n_owned; i++) m->dev->backend->free(m->dev, m->owned[i]);
    lp_huge_unmap(m->packed, m->packed_bytes);
    if (m->device_group) m->dev->backend->group_leave(m->dev, m->device_group);
    if (m->stage_group) m->dev->backend->group_leave(m->dev, m->stage_group);
    lp_comm_leave(m->neighbours);
    lp_free(m->owned);
    lp_free(m->layers);
    lp_binding_release(&m->binding);
    lp_free(m);
}

int32_t lp_model_kv_count(const struct lp_model *m, bool with_mtp) {
    return m->h.n_layers + with_mtp;
}

void lp_model_kv_layers(const struct lp_model *m, bool with_mtp, struct lp_kv_layer *out) {
    const struct lp_hparams *h = &m->h;
    for (int32_t l = 0; l < lp_model_kv_count(m, with_mtp); l++) {
        out[l] = (struct lp_kv_layer){.slot_offset = l == h->n_layers};
        if (!lp_shard_has_layer(m, l)) continue;
        if (h->arch->attention == LP_ATTENTION_MLA) {
            out[l].width[LP_KV_LATENT] = h->latent + h->rope_dim;
            out[l].rope = h->rope_dim;
            if (h->top_k && h->index_role[l] == LP_INDEXER_FULL)
                out[l].width[LP_KV_INDEX] = h->index_width;
        } else {
            const int32_t n_kv_heads = (int32_t)lp_shard_heads(m, l).n;
            out[l].width[LP_KV_KEY] = n_kv_heads * h->head_dim;
            out[l].width[LP_KV_VALUE] = n_kv_heads * h->v_dim;
        }
    }
}
