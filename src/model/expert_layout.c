#include "model/expert_layout.h"

#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/direct_read.h"
#include "model/rank_plan.h"
#include "model/shard.h"

// Of a part in a slot: its matrix, wherever in the file it begins. Not checked for overflow.
static size_t part_room(size_t mat_bytes) {
    return lp_direct_room(mat_bytes + LP_DIRECT_ALIGN);
}

static lp_status add_part(struct lp_expert_layout *x, struct lp_expert_layer *layer,
                          const struct lp_gguf_tensor *t, size_t *slot_at, struct lp_err *err) {
    if (!t) return LP_OK;
    if (t->in_memory || t->mats || t->ne[2] != (uint64_t)x->n_experts)
        return lp_err_set(err, LP_STATUS_UNSUPPORTED,
                          "tensor %.*s is not in a file as it is used, so its experts cannot be "
                          "read from there; convert the model to a GGUF file (limpid convert)",
                          LP_STR_ARGS(t->name));
    struct lp_expert_part *part = &layer->parts[layer->n_parts++];
    *part = (struct lp_expert_part){
        .stack = t, .mat_bytes = (size_t)(t->n_bytes / t->ne[2]), .slot_at = *slot_at};
    size_t room;
    if (!lp_add_size(part->mat_bytes, 2 * LP_DIRECT_ALIGN, &room) ||
        !lp_add_size(*slot_at, part_room(part->mat_bytes), slot_at))
        return lp_err_set(err, LP_STATUS_LIMIT, "tensor %.*s is too large", LP_STR_ARGS(t->name));
    x->expert_bytes += t->n_bytes;
    return LP_OK;
}

static lp_status add_layer(struct lp_expert_layout *x, int32_t l, const struct lp_bound *bound,
                           struct lp_err *err) {
    static const enum lp_slot split[] = {LP_SLOT_GATE_EXPS, LP_SLOT_UP_EXPS, LP_SLOT_DOWN_EXPS};
    static const enum lp_slot fused[] = {LP_SLOT_GATE_UP_EXPS, LP_SLOT_DOWN_EXPS};
    bool is_fused = bound->tensor[LP_SLOT_GATE_UP_EXPS] != NULL;
    size_t slot_at = 0;
    lp_status status = LP_OK;
    if (!bound->tensor[LP_SLOT_ROUTER]) return LP_OK;
    for (int i = 0; i < (is_fused ? 2 : 3) && !status; i++)
        status = add_part(x, &x->layers[l], bound->tensor[is_fused ? fused[i] : split[i]], &slot_at,
                          err);
    if (slot_at > x->slot_bytes) x->slot_bytes = slot_at;
    x->n_items += x->n_experts;
    return status;
}

lp_status lp_expert_layout_make(struct lp_expert_layout *x, const struct lp_hparams *h,
                                const struct lp_binding *binding, const struct lp_gguf *gguf,
                                struct lp_err *err) {
    *x = (struct lp_expert_layout){.n_layers = h->n_layers + binding->has_mtp,
                                   .n_experts = h->n_experts,
                                   .n_used = h->n_used,
                                   .n_here = h->n_experts};
    x->layers = lp_alloc((size_t)x->n_layers, sizeof *x->layers);
    if (!x->layers)
        return lp_err_memory(err, (size_t)x->n_layers * sizeof *x->layers, "the places of experts");
    lp_status status = LP_OK;
    for (int32_t l = 0; l < x->n_layers && !status; l++)
        status = add_layer(x, l, &binding->blocks[l], err);
    if (!status && x->n_items == 0)
        status = lp_err_set(err, LP_STATUS_UNSUPPORTED,
                            "this model has no routed experts that could stay on disk; leave "
                            "--memory-budget out");
    for (uint64_t i = 0; i < lp_gguf_n_tensors(gguf); i++)
        x->dense_bytes += lp_gguf_tensor_at(gguf, i)->n_bytes;
    for (uint64_t i = 0; i < binding->n_ignored; i++)
        x->dense_bytes -= binding->ignored[i].tensor->n_bytes;
    x->dense_bytes -= x->expert_bytes;
    return status;
}

void lp_expert_layout_release(struct lp_expert_layout *x) {
    lp_free(x->layers);
    *x = (struct lp_expert_layout){0};
}

void lp_expert_layout_divide(struct lp_expert_layout *x, const struct lp_model *m) {
    const struct lp_range here = lp_shard_experts(m);
    if (m->part.n_stages <= 1 && !lp_shard_is_cut(m)) return;
    x->first_expert = (int32_t)here.first;
    x->n_here = (int32_t)here.n;
    x->n_items = 0;
    x->expert_bytes = 0;
    x->slot_bytes = 0;
    for (int32_t l = 0; l < x->n_layers; l++) {
        struct lp_expert_layer *layer = &x->layers[l];
        if (x->n_here == 0 || !lp_shard_has_layer(m, l)) layer->n_parts = 0;
        if (layer->n_parts == 0) continue;
        const struct lp_expert_part *last = &layer->parts[layer->n_parts - 1];
        const size_t end = last->slot_at + part_room(last->mat_bytes);
        if (end > x->slot_bytes) x->slot_bytes = end;
        x->n_items += x->n_here;
        for (int p = 0; p < layer->n_parts; p++)
            x->expert_bytes += (uint64_t)x->n_here * layer->parts[p].mat_bytes;
    }
    x->dense_bytes = lp_rank_weight_bytes(m) - x->expert_bytes;
}

int32_t lp_expert_layout_together(const struct lp_expert_layout *x) {
    if (x->n_items == 0) return 0;
    return x->n_used < x->n_here ? x->n_used : x->n_here;
}

uint64_t lp_expert_layout_least(const struct lp_expert_layout *x) {
    return x->dense_bytes + (uint64_t)lp_expert_layout_together(x) * x->slot_bytes;
}

lp_status lp_expert_layout_slots(const struct lp_expert_layout *x, uint64_t budget_bytes,
                                 int32_t *n_slots, struct lp_err *err) {
    uint64_t least = lp_expert_layout_least(x);
    if (budget_bytes < least)
        return lp_err_set(err, LP_STATUS_INVALID,
                          "a memory budget of %llu bytes is too small: the parts of the model that "
                          "every token needs have %llu, and the %d experts of one token %llu; give "
                          "at least %lluM",
                          (unsigned long long)budget_bytes, (unsigned long long)x->dense_bytes,
                          lp_expert_layout_together(x),
                          (unsigned long long)(least - x->dense_bytes),
                          (unsigned long long)(least / 1000000 + 1));
    if (x->n_items == 0) {
        *n_slots = 0;
        return LP_OK;
    }
    uint64_t n = (budget_bytes - x->dense_bytes) / x->slot_bytes;
    *n_slots = (int32_t)(n < (uint64_t)x->n_items ? n : (uint64_t)x->n_items);
    return LP_OK;
}
