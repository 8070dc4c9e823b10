// What of a model is on this rank, read from its file into memory at once. Two things stay mapped, as ranks of a host
// share the file's pages: embeddings, of which a token reads a row, and matrices of which a rank has some columns, which
// lie among those of the others.
#include "gguf/gguf_prefetch.h"
#include "model/model.h"

#define MOST_WEIGHTS 24 // of a layer

static int list_layer(struct lp_layer *w, struct lp_weight **list) {
    struct lp_weight *const all[] = {
        &w->mla.q,       &w->mla.q_a,     &w->mla.q_b,     &w->mla.kv_a,     &w->mla.index_q,
        &w->mla.index_k, &w->mla.k_up,    &w->mla.v_up,    &w->gqa.q,        &w->gqa.k,
        &w->gqa.v,       &w->attn_output, &w->dense.gate,  &w->dense.up,     &w->dense.down,
        &w->shared.gate, &w->shared.up,   &w->shared.down, &w->experts.gate, &w->experts.up,
        &w->experts.down};
    const int n = (int)(sizeof all / sizeof *all);
    _Static_assert(sizeof all / sizeof *all <= MOST_WEIGHTS, "the list has room");
    for (int i = 0; i < n; i++) list[i] = all[i];
    return n;
}

static bool has_columns_alone(const struct lp_weight *w) {
    uint64_t bytes = 0;
    lp_type_row_bytes((uint32_t)w->type, (uint64_t)w->n_in, &bytes);
    return bytes < w->row_bytes;
}

static lp_status mark(struct lp_gguf_ahead *ahead, const struct lp_model *m,
                      const struct lp_weight *w, struct lp_err *err) {
    const bool asks = lp_comm_local_rank(m->ranks) == 0; // once on a host
    lp_status status = LP_OK;
    if (!w->data || w->n_out == 0) return LP_OK;
    for (int64_t i = 0; i < w->n_mats && !status; i++) {
        const size_t bytes = (size_t)w->n_out * w->row_bytes;
        if (!has_columns_alone(w))
            status = lp_gguf_ahead_mark(ahead, lp_weight_mat(w, i), bytes, err);
        else if (asks) // as far as into the last row, which may end before a whole one would
            lp_gguf_will_need(m->gguf, lp_weight_mat(w, i), bytes - w->row_bytes + 1);
    }
    return status;
}

static void move(const struct lp_gguf_ahead *ahead, struct lp_weight *w) {
    if (w->data && w->n_out && !has_columns_alone(w)) w->data = lp_gguf_ahead_at(ahead, w->data);
}

lp_status lp_model_read_ahead(struct lp_model *m, struct lp_gguf *gguf,
                              const struct lp_gguf_prefetch_options *options, struct lp_err *err) {
    struct lp_gguf_ahead *ahead = NULL;
    struct lp_weight *list[MOST_WEIGHTS], *const others[] = {&m->output, &m->mtp.eh_proj,
                                                             &m->mtp.head};
    const int32_t n_layers = m->h.n_layers + m->has_mtp;
    const int n_others = (int)(sizeof others / sizeof *others);
    lp_status status = lp_gguf_ahead_new(&ahead, gguf, err);
    for (int32_t l = 0; l < n_layers; l++)
        for (int i = list_layer(&m->layers[l], list) - 1; i >= 0 && !status; i--)
            status = mark(ahead, m, list[i], err);
    for (int i = 0; i < n_others && !status; i++) status = mark(ahead, m, others[i], err);
    if (!status) status = lp_gguf_ahead_read(ahead, options, err);
    for (int32_t l = 0; l < n_layers && !status; l++)
        for (int i = list_layer(&m->layers[l], list) - 1; i >= 0; i--) move(ahead, list[i]);
    for (int i = 0; i < n_others && !status; i++) move(ahead, others[i]);
    lp_gguf_ahead_free(ahead);
    return status;
}
