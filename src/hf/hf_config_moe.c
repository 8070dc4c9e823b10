// Experts and their router.
#include "hf/hf_config_parts.h"

#include <string.h>

enum { SOFTMAX = 1, SIGMOID = 2 }; // expert_gating_func, as llama.cpp numbers it

// Leading dense layers: mlp_layer_types ("dense", ..., "sparse", ...), else first_k_dense_replace.
static int64_t count_dense(struct lp_hf_config_reader *r) {
    const struct lp_hf_model *m = r->model;
    int64_t first = r->v[LP_HF_INT_DENSE];
    if (first > m->n_layers) first = m->n_layers;
    const json_t *list = lp_hf_config_get(r->config, "mlp_layer_types"), *value;
    if (!list || !lp_hf_config_per_layer(r, "mlp_layer_types", list)) return first;
    size_t n_dense = 0, i;
    json_array_foreach(list, i, value) {
        char text[LP_HF_VALUE_BYTES];
        bool dense = strcmp(lp_hf_config_value(value, text), "dense") == 0;
        if (!dense && strcmp(text, "sparse") != 0)
            lp_hf_config_fail(r, LP_STATUS_FORMAT,
                              "mlp_layer_types has '%s' for layer %zu, expected dense or sparse",
                              text, i);
        else if (dense && n_dense != i)
            lp_hf_config_fail(r, LP_STATUS_UNSUPPORTED,
                              "mlp_layer_types has a dense layer (%zu) behind a sparse one; limpid "
                              "runs dense layers only before all others",
                              i);
        n_dense += dense;
    }
    return n_dense < (size_t)m->n_layers ? (int64_t)n_dense : m->n_layers;
}

// Groups of experts that compete first. "greedy" has none, whatever n_group says.
static void put_groups(struct lp_hf_config_reader *r) {
    const char *method = lp_hf_config_text(r, r->config, "", "topk_method", r->family->topk_method);
    int64_t n = r->v[LP_HF_INT_GROUPS], used = r->v[LP_HF_INT_GROUPS_USED];
    int64_t experts = r->v[LP_HF_INT_EXPERTS];
    bool grouped = n > 1 && strcmp(method, "greedy") != 0;
    if (strcmp(method, "group_limited_greedy") == 0 && n == LP_HF_CONFIG_NONE)
        lp_hf_config_fail(r, LP_STATUS_FORMAT,
                          "n_group is missing, expected a number: topk_method is "
                          "group_limited_greedy");
    else if (grouped && experts % n)
        lp_hf_config_fail(r, LP_STATUS_UNSUPPORTED,
                          "n_group is %lld, expected a divisor of n_routed_experts (%lld)",
                          (long long)n, (long long)experts);
    else if (grouped && (used < 1 || used > n))
        lp_hf_config_fail(r, LP_STATUS_FORMAT, "topk_group is %lld, expected 1 to n_group (%lld)",
                          (long long)used, (long long)n);
    else if (grouped && r->v[LP_HF_INT_USED] > used * (experts / n))
        lp_hf_config_fail(r, LP_STATUS_FORMAT,
                          "num_experts_per_tok is %lld, but the %lld groups that are used hold "
                          "%lld experts",
                          (long long)r->v[LP_HF_INT_USED], (long long)used,
                          (long long)(used * (experts / n)));
    if (n == LP_HF_CONFIG_NONE) return;
    lp_hf_config_put_int(r, "expert_group_count", grouped ? n : 1);
    lp_hf_config_put_int(r, "expert_group_used_count", grouped ? used : 1);
}

static void put_counts(struct lp_hf_config_reader *r) {
    const struct lp_hf_model *m = r->model;
    if (r->v[LP_HF_INT_USED] > m->n_experts)
        lp_hf_config_fail(
            r, LP_STATUS_FORMAT,
            "num_experts_per_tok is %lld, expected at most the number of experts (%lld)",
            (long long)r->v[LP_HF_INT_USED], (long long)m->n_experts);
    lp_hf_config_put_int(r, "expert_count", m->n_experts);
    lp_hf_config_put_int(r, "expert_used_count", r->v[LP_HF_INT_USED]);
}

void lp_hf_config_router(struct lp_hf_config_reader *r) {
    struct lp_hf_model *m = r->model;
    if (lp_hf_config_is(r, LP_HF_MIXTRAL)) {
        m->n_experts = r->v[LP_HF_INT_LOCAL_EXPERTS];
        m->expert_ff = r->v[LP_HF_INT_FF];
        put_counts(r);
        lp_hf_config_put_int(r, "expert_gating_func", SOFTMAX); // or readers have to guess
    }
    if (!lp_hf_config_is(r, LP_HF_ROUTED)) return;
    m->n_experts = r->v[LP_HF_INT_EXPERTS];
    m->expert_ff = r->v[LP_HF_INT_EXPERT_FF];
    m->n_shared = r->v[LP_HF_INT_SHARED] == LP_HF_CONFIG_NONE ? 0 : r->v[LP_HF_INT_SHARED];
    m->n_dense = count_dense(r);
    if (m->n_shared * m->expert_ff > 1 << 24)
        lp_hf_config_fail(r, LP_STATUS_FORMAT,
                          "n_shared_experts x moe_intermediate_size is %lld, expected at most %d",
                          (long long)(m->n_shared * m->expert_ff), 1 << 24);
    put_counts(r);
    put_groups(r);
    lp_hf_config_put_int(r, "expert_gating_func",
                         lp_hf_config_is(r, LP_HF_SOFTMAX) ? SOFTMAX : SIGMOID);
    lp_hf_config_put_int(r, "leading_dense_block_count", m->n_dense);
    lp_hf_config_put_int(r, "expert_feed_forward_length", m->expert_ff);
    lp_hf_config_put_int(r, "expert_shared_count", m->n_shared);
    lp_hf_config_put_float(r, "expert_weights_scale",
                           lp_hf_config_number(r, r->config, "", "routed_scaling_factor", 1e-6, 1e6,
                                               r->family->scale));
    char key[LP_HF_KEY_BYTES];
    lp_hf_config_key(r, "expert_weights_norm", key);
    if (lp_hf_config_bool(r, r->config, "", "norm_topk_prob", r->family->normalise) && !r->status)
        lp_gguf_writer_bool(r->w, key, true);
}
