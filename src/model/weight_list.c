#include "model/weight_list.h"

#include <string.h>

void lp_weight_list_layer(struct lp_layer *w, struct lp_weight *list[LP_WEIGHT_LIST_LAYER]) {
    struct lp_weight *const all[LP_WEIGHT_LIST_LAYER] = {
        &w->mla.q,       &w->mla.q_a,     &w->mla.q_b,     &w->mla.kv_a,     &w->mla.index_q,
        &w->mla.index_k, &w->mla.k_up,    &w->mla.v_up,    &w->gqa.q,        &w->gqa.k,
        &w->gqa.v,       &w->attn_output, &w->dense.gate,  &w->dense.up,     &w->dense.down,
        &w->shared.gate, &w->shared.up,   &w->shared.down, &w->experts.gate, &w->experts.up,
        &w->experts.down};
    memcpy(list, all, sizeof all);
}

void lp_weight_list_others(struct lp_model *m, struct lp_weight *list[LP_WEIGHT_LIST_OTHERS]) {
    struct lp_weight *const all[LP_WEIGHT_LIST_OTHERS] = {&m->token_embd, &m->mtp.embd, &m->output,
                                                          &m->mtp.eh_proj, &m->mtp.head};
    memcpy(list, all, sizeof all);
}

static size_t row_bytes(const struct lp_weight *w) {
    uint64_t bytes = 0;
    lp_type_row_bytes((uint32_t)w->type, (uint64_t)w->n_in, &bytes);
    return (size_t)bytes;
}

bool lp_weight_has_columns_alone(const struct lp_weight *w) {
    return row_bytes(w) < w->row_bytes;
}

size_t lp_weight_span_bytes(const struct lp_weight *w) {
    if (!w->data || w->n_out == 0 || w->n_in == 0) return 0;
    return (size_t)(w->n_out - 1) * w->row_bytes + row_bytes(w);
}
