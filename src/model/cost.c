#include "model/cost.h"

#include <math.h>

#include "kv/kv_types.h"
#include "model/model.h"

// How a step uses the tensor of a slot.
enum use {
    USE_MATRIX,     // once per row
    USE_MATRIX_F32, // the same, from a float32 copy
    USE_VECTOR,     // a float32 copy; its multiply-adds do not count
    USE_TABLE,      // one row per token
    USE_HEAD,       // once per row of logits
    USE_EXPERTS,    // the stacks of the experts
    USE_INDEX_KEY,  // every step of a full layer
    USE_INDEX,      // only in steps that select keys
    USE_INDEX_F32,
    USE_UP,    // the key and value up-projections: how often depends on the route
    USE_FREQS, // read at load only
};

static enum use use_of(enum lp_slot slot) {
    switch (slot) {
    case LP_SLOT_TOKEN_EMBD:
    case LP_SLOT_NEXTN_EMBD:
        return USE_TABLE;
    case LP_SLOT_OUTPUT:
    case LP_SLOT_NEXTN_HEAD:
        return USE_HEAD;
    case LP_SLOT_ROPE_FREQS:
        return USE_FREQS;
    case LP_SLOT_OUTPUT_NORM:
    case LP_SLOT_ATTN_NORM:
    case LP_SLOT_FFN_NORM:
    case LP_SLOT_Q_BIAS:
    case LP_SLOT_K_BIAS:
    case LP_SLOT_V_BIAS:
    case LP_SLOT_Q_NORM:
    case LP_SLOT_K_NORM:
    case LP_SLOT_Q_A_NORM:
    case LP_SLOT_KV_A_NORM:
    case LP_SLOT_INDEX_NORM_W:
    case LP_SLOT_INDEX_NORM_B:
    case LP_SLOT_ROUTER_BIAS:
    case LP_SLOT_NEXTN_ENORM:
    case LP_SLOT_NEXTN_HNORM:
    case LP_SLOT_NEXTN_HEAD_NORM:
        return USE_VECTOR;
    case LP_SLOT_ROUTER:
        return USE_MATRIX_F32;
    case LP_SLOT_INDEX_K:
        return USE_INDEX_KEY;
    case LP_SLOT_INDEX_Q:
        return USE_INDEX;
    case LP_SLOT_INDEX_PROJ:
        return USE_INDEX_F32;
    case LP_SLOT_K_B:
    case LP_SLOT_V_B:
    case LP_SLOT_KV_B:
        return USE_UP;
    case LP_SLOT_GATE_EXPS:
    case LP_SLOT_UP_EXPS:
    case LP_SLOT_DOWN_EXPS:
    case LP_SLOT_GATE_UP_EXPS:
        return USE_EXPERTS;
    default:
        return USE_MATRIX;
    }
}

static bool becomes_f32(enum use use) {
    return use == USE_VECTOR || use == USE_MATRIX_F32 || use == USE_INDEX_F32 || use == USE_FREQS;
}

static double n_values(const struct lp_gguf_tensor *t) {
    return (double)t->ne[0] * (double)t->ne[1] * (double)t->ne[2] * (double)t->ne[3];
}

static double placed_bytes(const struct lp_gguf_tensor *t, enum use use) {
    return becomes_f32(use) ? 4 * n_values(t) : (double)t->n_bytes;
}

// What the step's attention does, the same for every layer but for the role of the indexer.
struct attention {
    const struct lp_cost_work *work;
    double n, n_kv; // rows; keys after the step
    double seen;    // sum over the rows of the keys each may see
    double chosen;  // the same after selection
    bool expanded, select;
};

static struct attention attention_of(const struct lp_hparams *h, const struct lp_cost_work *w) {
    struct attention a = {
        .work = w, .n = (double)w->n_rows, .n_kv = (double)(w->n_past + w->n_rows)};
    a.seen = a.n * (double)w->n_past + a.n * (a.n + 1) / 2;
    a.chosen = a.seen;
    if (h->arch->attention != LP_ATTENTION_MLA) return a;
    struct lp_route_work work = {.n_query = w->n_rows,
                                 .n_kv = w->n_past + w->n_rows,
                                 .top_k = h->top_k,
                                 .nope = h->nope,
                                 .rope = h->rope_dim,
                                 .latent = h->latent,
                                 .v_dim = h->v_dim,
                                 .deterministic = w->deterministic,
                                 .force = w->force};
    struct lp_route route = lp_route_choose(&work);
    a.expanded = route.expanded;
    a.select = route.select;
    if (!a.select) return a;
    // Row i sees n_past + i + 1 keys and keeps at most top_k: the first `below` rows keep them all.
    double below = (double)h->top_k - (double)w->n_past;
    below = below < 0 ? 0 : below > a.n ? a.n : below;
    a.chosen =
        below * (double)w->n_past + below * (below + 1) / 2 + (a.n - below) * (double)h->top_k;
    return a;
}

static void add_madds(struct lp_cost *out, const struct attention *a,
                      const struct lp_gguf_tensor *t, enum use use, double madds) {
    bool floats = becomes_f32(use) || !lp_weight_may_round(t->type);
    *(floats ? &out->float_madds : &out->int_madds) += madds;
    if (!floats && use == USE_UP && a->expanded) out->up_int_madds += madds;
}

static void add_experts(const struct lp_hparams *h, const struct attention *a,
                        const struct lp_gguf_tensor *t, struct lp_cost *out) {
    double n = a->n;
    double touched =
        n == 1 ? h->n_used : h->n_experts * (1 - pow(1 - (double)h->n_used / h->n_experts, n));
    out->weight_bytes += (double)t->n_bytes / h->n_experts * touched;
    add_madds(out, a, t, USE_EXPERTS, n_values(t) / h->n_experts * h->n_used * n);
}

static void add_tensor(const struct lp_hparams *h, const struct attention *a, enum lp_slot slot,
                       const struct lp_gguf_tensor *t, struct lp_cost *out) {
    enum use use = use_of(slot);
    double times = a->n;
    switch (use) {
    case USE_FREQS:
        return;
    case USE_TABLE:
        out->weight_bytes += (double)t->n_bytes / (double)t->ne[1] * a->n;
        return;
    case USE_EXPERTS:
        add_experts(h, a, t, out);
        return;
    case USE_HEAD:
        times = (double)a->work->n_logit_rows;
        break;
    case USE_INDEX:
    case USE_INDEX_F32:
        if (!a->select) return;
        break;
    case USE_UP:
        times = a->expanded ? a->n_kv : a->n;
        break; // all keys are expanded, or the queries absorbed
    case USE_VECTOR:
        times = 0;
        break;
    default:
        break;
    }
    if (times == 0 && use != USE_VECTOR) return;
    out->weight_bytes += placed_bytes(t, use);
    add_madds(out, a, t, use, times * n_values(t));
}

static void add_attention(const struct lp_hparams *h, const struct attention *a, int32_t layer,
                          lp_type kv_type, struct lp_cost *out) {
    const struct lp_kv_layer state = {.width = {h->latent + h->rope_dim, h->index_width,
                                                h->n_kv_heads * h->head_dim,
                                                h->n_kv_heads * h->v_dim},
                                      .rope = h->rope_dim};
    double bytes[LP_KV_N_KINDS], heads = h->n_heads;
    for (int kind = 0; kind < LP_KV_N_KINDS; kind++)
        bytes[kind] = (double)lp_kv_row_bytes(kv_type, &state, (enum lp_kv_kind)kind);
    double *madds = a->work->int16_attention ? &out->int16_madds : &out->float_madds;
    if (h->arch->attention != LP_ATTENTION_MLA) {
        out->cache_bytes += a->n_kv * (bytes[LP_KV_KEY] + bytes[LP_KV_VALUE]);
        *madds += a->seen * heads * (h->head_dim + h->v_dim);
        return;
    }
    double rows =
        a->n_kv < a->chosen ? a->n_kv : a->chosen; // several queries may choose the same row
    if (a->expanded) rows = a->n_kv;
    out->cache_bytes += rows * bytes[LP_KV_LATENT];
    *madds += a->chosen * heads *
              (a->expanded ? h->nope + h->rope_dim + h->v_dim : 2 * h->latent + h->rope_dim);
    if (!a->select || h->index_role[layer] != LP_INDEXER_FULL) return;
    out->cache_bytes += a->n_kv * bytes[LP_KV_INDEX];
    *madds += a->seen * h->index_heads * h->index_width;
}

void lp_cost_step(const struct lp_hparams *h, const struct lp_binding *binding,
                  const struct lp_cost_work *work, lp_type kv_type, struct lp_cost *out) {
    struct attention a = attention_of(h, work);
    const struct lp_gguf_tensor *const *model = binding->model.tensor;
    for (int s = 0; s < LP_N_SLOTS; s++)
        if (model[s]) add_tensor(h, &a, (enum lp_slot)s, model[s], out);
    if (!model[LP_SLOT_OUTPUT]) // tied: the embedding is the output matrix too
        add_tensor(h, &a, LP_SLOT_OUTPUT, model[LP_SLOT_TOKEN_EMBD], out);
    for (int32_t l = 0; l < h->n_layers; l++) {
        for (int s = 0; s < LP_N_SLOTS; s++)
            if (binding->blocks[l].tensor[s])
                add_tensor(h, &a, (enum lp_slot)s, binding->blocks[l].tensor[s], out);
        add_attention(h, &a, l, kv_type, out);
    }
}

// Factors of a weight, as they are placed: float32, one a matrix (of a fused kv_b: a head).
static double scale_bytes(const struct lp_hparams *h, const struct lp_bound *bound, int slot) {
    if (!bound->scale[slot]) return 0;
    return 4.0 * (slot == LP_SLOT_KV_B ? (double)h->n_heads : (double)bound->tensor[slot]->ne[2]);
}

// Where the bytes of a weight come to lie.
enum place { PLACE_FLOAT32, PLACE_MAPPED, PLACE_MEMORY };

static enum place place_of(enum lp_slot slot, const struct lp_gguf_tensor *t) {
    if (becomes_f32(use_of(slot))) return PLACE_FLOAT32;
    return t->in_memory ? PLACE_MEMORY : PLACE_MAPPED;
}

static double sum_bytes(const struct lp_hparams *h, const struct lp_binding *binding,
                        enum place place, bool with_mtp) {
    double sum = 0;
    for (int32_t l = -1; l < h->n_layers + (with_mtp && binding->has_mtp); l++) {
        const struct lp_bound *bound = l < 0 ? &binding->model : &binding->blocks[l];
        for (int s = 0; s < LP_N_SLOTS; s++) {
            enum use use = use_of((enum lp_slot)s);
            if (bound->tensor[s] && use != USE_FREQS &&
                place_of((enum lp_slot)s, bound->tensor[s]) == place)
                sum += placed_bytes(bound->tensor[s], use);
            if (place == PLACE_FLOAT32) sum += scale_bytes(h, bound, s);
        }
    }
    return sum;
}

uint64_t lp_cost_float32_bytes(const struct lp_hparams *h, const struct lp_binding *binding) {
    return (uint64_t)sum_bytes(h, binding, PLACE_FLOAT32, true) +
           (uint64_t)h->rope_width / 2 * sizeof(float);
}

uint64_t lp_cost_mapped_bytes(const struct lp_hparams *h, const struct lp_binding *binding,
                              bool with_mtp) {
    return (uint64_t)sum_bytes(h, binding, PLACE_MAPPED, with_mtp);
}

uint64_t lp_cost_memory_bytes(const struct lp_hparams *h, const struct lp_binding *binding,
                              bool with_mtp) {
    return (uint64_t)sum_bytes(h, binding, PLACE_MEMORY, with_mtp);
}

// What of a slot's tensor products read whole (repack.c).
static double packed_share(const struct lp_hparams *h, const struct lp_binding *binding,
                           enum lp_slot slot) {
    if (slot == LP_SLOT_TOKEN_EMBD) return binding->model.tensor[LP_SLOT_OUTPUT] ? 0 : 1;
    if (slot == LP_SLOT_NEXTN_EMBD || becomes_f32(use_of(slot))) return 0;
    return slot == LP_SLOT_KV_B ? (double)h->v_dim / (double)(h->nope + h->v_dim) : 1;
}

// The sum over all matrices that are packed: of what they take packed, or where they lie.
static uint64_t sum_packed(const struct lp_hparams *h, const struct lp_binding *binding,
                           const struct lp_device *dev, bool with_mtp, bool packed) {
    const int32_t n_layers = h->n_layers + (with_mtp && binding->has_mtp);
    double sum = 0;
    for (int32_t l = -1; dev->backend->pack && l < n_layers; l++) {
        const struct lp_bound *bound = l < 0 ? &binding->model : &binding->blocks[l];
        for (int s = 0; s < LP_N_SLOTS; s++) {
            const struct lp_gguf_tensor *t = bound->tensor[s];
            if (!t || t->in_memory) continue;
            const struct lp_weight w = lp_weight_of(t);
            const double share = packed_share(h, binding, (enum lp_slot)s);
            const size_t bytes = share > 0 ? dev->backend->packed_bytes(dev, &w) : 0;
            if (bytes)
                sum += share * (packed ? (double)bytes * (double)w.n_mats : (double)t->n_bytes);
        }
    }
    return (uint64_t)sum;
}

uint64_t lp_cost_expert_bytes(const struct lp_hparams *h, const struct lp_binding *binding) {
    uint64_t sum = 0;
    for (int32_t l = 0; l < h->n_layers; l++)
        for (int s = 0; s < LP_N_SLOTS; s++) {
            const struct lp_gguf_tensor *t = binding->blocks[l].tensor[s];
            if (t && use_of((enum lp_slot)s) == USE_EXPERTS) sum += t->n_bytes;
        }
    return sum;
}

uint64_t lp_cost_packed_bytes(const struct lp_hparams *h, const struct lp_binding *binding,
                              const struct lp_device *dev, bool with_mtp) {
    return sum_packed(h, binding, dev, with_mtp, false);
}

uint64_t lp_cost_repacked_bytes(const struct lp_hparams *h, const struct lp_binding *binding,
                                const struct lp_device *dev, bool with_mtp) {
    return sum_packed(h, binding, dev, with_mtp, true);
}
