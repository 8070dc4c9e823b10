// Weights packed for the backend's kernels, in one block beside the mapped file.
#include <string.h>

#include "base/huge_pages.h"
#include "base/log.h"
#include "base/progress.h"
#include "model/model.h"

#define PACKED_ALIGNMENT ((size_t)64)

struct repacking {
    struct lp_model *model;
    uint8_t *to; // NULL: sizes are summed only
    size_t n_bytes;
    struct lp_progress bar;
};

// keep_mapped: something else reads the matrix where the file is mapped.
static void pack_one(struct repacking *r, struct lp_weight *w, bool keep_mapped) {
    const struct lp_backend *backend = r->model->dev->backend;
    const bool is_there = w->data || w->mats;
    const size_t mat_bytes = is_there ? backend->packed_bytes(r->model->dev, w) : 0;
    const size_t bytes = mat_bytes * (size_t)w->n_mats;
    if (!bytes) return;
    if (r->to) {
        uint8_t *place = r->to + r->n_bytes;
        backend->pack(r->model->dev, w, place);
        w->packed = place;
        w->packed_mat_bytes = mat_bytes;
        for (int64_t i = 0; i < w->n_mats && !keep_mapped; i++)
            lp_gguf_drop_pages(r->model->gguf, lp_weight_mat(w, i),
                               w->row_bytes * (size_t)w->n_out);
        lp_progress_update(&r->bar, r->n_bytes);
    }
    r->n_bytes += (bytes + PACKED_ALIGNMENT - 1) / PACKED_ALIGNMENT * PACKED_ALIGNMENT;
}

// Those that a decoded token reads through matmul, head_matmul or experts. Not the embedding, of
// which a token reads a row, and not up-projections of keys whose columns are read. Expanded attention
// reads the rows of up-projections, and an output matrix may be the embedding.
static void pack_all(struct repacking *r) {
    struct lp_model *m = r->model;
    for (int32_t l = 0; l < m->h.n_layers + m->has_mtp; l++) {
        struct lp_layer *w = &m->layers[l];
        struct lp_weight *list[] = {
            &w->mla.q,       &w->mla.q_a,      &w->mla.q_b,    &w->mla.kv_a,     &w->mla.index_q,
            &w->mla.index_k, &w->gqa.q,        &w->gqa.k,      &w->gqa.v,        &w->attn_output,
            &w->dense.gate,  &w->dense.up,     &w->dense.down, &w->shared.gate,  &w->shared.up,
            &w->shared.down, &w->experts.gate, &w->experts.up, &w->experts.down,
        };
        for (size_t i = 0; i < sizeof list / sizeof *list; i++) pack_one(r, list[i], false);
        pack_one(r, &w->mla.v_up, true);
        if (w->mla.k_transposed) pack_one(r, &w->mla.k_up, true);
    }
    pack_one(r, &m->output, m->output.data == m->token_embd.data);
    pack_one(r, &m->mtp.eh_proj, false);
    if (m->mtp.head.data != m->output.data)
        pack_one(r, &m->mtp.head, m->mtp.head.data == m->token_embd.data);
}

bool lp_repack_parse(const char *name, enum lp_repack *out) {
    static const char *const names[] = {"auto", "off", "on"};
    for (int i = 0; i < 3; i++)
        if (strcmp(name ? name : names[0], names[i]) == 0) {
            *out = (enum lp_repack)i;
            return true;
        }
    return false;
}

bool lp_repack_pays(enum lp_repack how, bool copies, uint64_t bytes, uint64_t available,
                    uint64_t reserved) {
    if (how != LP_REPACK_AUTO) return how == LP_REPACK_ON;
    return bytes > 0 && !copies && bytes <= available / 2 && reserved <= available - bytes;
}

size_t lp_model_packed_bytes(const struct lp_model *m) {
    struct repacking r = {.model = (struct lp_model *)m};
    if (m->dev->backend->pack) pack_all(&r);
    return r.n_bytes;
}

lp_status lp_model_repack(struct lp_model *m, bool huge_pages, struct lp_err *err) {
    const size_t bytes = lp_model_packed_bytes(m);
    if (!bytes || m->packed) return LP_OK;
    struct repacking r = {.model = m, .to = lp_huge_map(bytes, huge_pages)};
    if (!r.to) return lp_err_memory(err, bytes, "the packed weights");
    m->packed = r.to;
    m->packed_bytes = bytes;
    lp_progress_init(&r.bar, "repacking", bytes);
    pack_all(&r);
    lp_progress_finish(&r.bar);
    if (m->mtp.head.data == m->output.data) m->mtp.head = m->output;
    lp_log(LP_LOG_INFO, "%.1f MB of weights repacked", (double)bytes * 1e-6);
    return LP_OK;
}
