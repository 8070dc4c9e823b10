// What of a model is on this rank, read from its file into memory at once. Two things stay mapped, as ranks of a host
// share the file's pages: embeddings, of which a token reads a row, and matrices of which a rank has some columns, which
// lie among those of the others.
#include "gguf/gguf_prefetch.h"
#include "model/weight_list.h"

static lp_status mark(struct lp_gguf_ahead *ahead, const struct lp_model *m,
                      const struct lp_weight *w, struct lp_err *err) {
    const bool asks = lp_comm_local_rank(m->ranks) == 0; // once on a host
    lp_status status = LP_OK;
    if (!w->data || w->n_out == 0) return LP_OK;
    for (int64_t i = 0; i < w->n_mats && !status; i++) {
        const size_t bytes = (size_t)w->n_out * w->row_bytes;
        if (!lp_weight_has_columns_alone(w))
            status = lp_gguf_ahead_mark(ahead, lp_weight_mat(w, i), bytes, err);
        else if (asks) // as far as into the last row, which may end before a whole one would
            lp_gguf_will_need(m->gguf, lp_weight_mat(w, i), bytes - w->row_bytes + 1);
    }
    return status;
}

static void move(const struct lp_gguf_ahead *ahead, struct lp_weight *w) {
    if (w->data && w->n_out && !lp_weight_has_columns_alone(w))
        w->data = lp_gguf_ahead_at(ahead, w->data);
}

lp_status lp_model_read_ahead(struct lp_model *m, struct lp_gguf *gguf,
                              const struct lp_gguf_prefetch_options *options, struct lp_err *err) {
    struct lp_gguf_ahead *ahead = NULL;
    struct lp_weight *list[LP_WEIGHT_LIST_LAYER], *others[LP_WEIGHT_LIST_OTHERS];
    const int32_t n_layers = m->h.n_layers + m->has_mtp;
    lp_weight_list_others(m, others);
    lp_status status = lp_gguf_ahead_new(&ahead, gguf, err);
    for (int32_t l = 0; l < n_layers; l++) {
        lp_weight_list_layer(&m->layers[l], list);
        for (int i = LP_WEIGHT_LIST_LAYER - 1; i >= 0 && !status; i--)
            status = mark(ahead, m, list[i], err);
    }
    for (int i = LP_WEIGHT_LIST_EMBEDDINGS; i < LP_WEIGHT_LIST_OTHERS && !status; i++)
        status = mark(ahead, m, others[i], err);
    if (!status) status = lp_gguf_ahead_read(ahead, options, err);
    for (int32_t l = 0; l < n_layers && !status; l++) {
        lp_weight_list_layer(&m->layers[l], list);
        for (int i = LP_WEIGHT_LIST_LAYER - 1; i >= 0; i--) move(ahead, list[i]);
    }
    for (int i = LP_WEIGHT_LIST_EMBEDDINGS; i < LP_WEIGHT_LIST_OTHERS && !status; i++)
        move(ahead, others[i]);
    lp_gguf_ahead_free(ahead);
    return status;
}
