// The router's rules: gating, groups, normalisation, scale.
#include "model/hparams_keys.h"

#include <string.h>

// Does any block carry routing biases (exp_probs_b)? They exist only for sigmoid routers.
static bool has_routing_bias(const struct lp_gguf *gguf) {
    for (uint64_t i = 0; i < lp_gguf_n_tensors(gguf); i++) {
        struct lp_str name = lp_gguf_tensor_at(gguf, i)->name;
        if (memmem(name.data, name.len, ".exp_probs_b", 12)) return true;
    }
    return false;
}

static enum lp_gating read_gating(struct lp_hparams_reader *r) {
    enum lp_gating otherwise = r->h->arch->default_gating;
    const char *rule = "the architecture's own";
    if (!otherwise) {
        bool bias = has_routing_bias(r->gguf);
        otherwise = bias ? LP_GATING_SIGMOID : LP_GATING_SOFTMAX;
        rule = bias ? "sigmoid, as the file has routing biases (exp_probs_b)"
                    : "softmax, as the file has no routing biases (exp_probs_b)";
    }
    static const char *const names[] = {"", "softmax", "sigmoid", "softmax of the chosen"};
    // 0 means "not set" in some converters' files
    const struct lp_gguf_kv *kv = lp_gguf_find(r->gguf, lp_hparams_key(r, "expert_gating_func"));
    if (kv && lp_gguf_is_integral(kv->type) && lp_gguf_int_at(kv, 0) == 0) {
        lp_hparams_fact(r, "expert_gating_func", rule, "%d", (int)otherwise);
        lp_hparams_guessed(r, "expert_gating_func", names[otherwise], rule);
        return otherwise;
    }
    int64_t value = lp_hparams_int(r, "expert_gating_func", 1, 4, (int64_t)otherwise, rule);
    if (!kv) lp_hparams_guessed(r, "expert_gating_func", names[otherwise], rule);
    if (!r->status && value == 4)
        lp_hparams_fail(r, LP_STATUS_UNSUPPORTED,
                        "metadata key %s is 4 (sqrt-softplus), expected 1 (softmax), 2 (sigmoid) "
                        "or 3 (softmax of the chosen)",
                        lp_hparams_key(r, "expert_gating_func"));
    return (enum lp_gating)value;
}

static void read_groups(struct lp_hparams_reader *r) {
    struct lp_hparams *h = r->h;
    bool absent = !lp_hparams_has(r, "expert_group_count");
    // Old conversions of DeepSeek V3 and R1 lack the group keys; the model has 8 groups, 4 used.
    bool v3 = absent && h->arch->attention == LP_ATTENTION_MLA && h->n_experts == 256 &&
              h->n_layers == 61 && h->n_embd == 7168 && h->gating == LP_GATING_SIGMOID;
    const char *rule = v3 ? "DeepSeek V3/R1 by its shape (256 experts, 61 layers, 7168 wide)"
                          : "no groups when absent";
    h->n_groups =
        (int32_t)lp_hparams_int(r, "expert_group_count", 0, h->n_experts, v3 ? 8 : 0, rule);
    h->n_groups_used =
        (int32_t)lp_hparams_int(r, "expert_group_used_count", 0, h->n_experts, v3 ? 4 : 0, rule);
    if (r->status) return;
    if (v3) lp_hparams_guessed(r, "expert_group_count", "8 groups, 4 used", rule);
    if (h->n_groups_used > h->n_groups)
        lp_hparams_fail(
            r, LP_STATUS_FORMAT, "metadata key %s is %d, expected at most expert_group_count (%d)",
            lp_hparams_key(r, "expert_group_used_count"), h->n_groups_used, h->n_groups);
    if (r->status || h->n_groups <= 1) return;
    if (h->n_experts % h->n_groups)
        lp_hparams_fail(r, LP_STATUS_FORMAT,
                        "metadata key %s is %d, expected a divisor of expert_count (%d)",
                        lp_hparams_key(r, "expert_group_count"), h->n_groups, h->n_experts);
    else if (h->n_groups_used < 1)
        lp_hparams_fail(
            r, LP_STATUS_FORMAT, "metadata key %s is %d, expected 1 to expert_group_count (%d)",
            lp_hparams_key(r, "expert_group_used_count"), h->n_groups_used, h->n_groups);
    else if (h->n_used > h->n_groups_used * (h->n_experts / h->n_groups))
        lp_hparams_fail(r, LP_STATUS_FORMAT,
                        "metadata key %s is %d, but the %d groups that are used hold %d experts",
                        lp_hparams_key(r, "expert_used_count"), h->n_used, h->n_groups_used,
                        h->n_groups_used * (h->n_experts / h->n_groups));
}

void lp_hparams_read_router(struct lp_hparams_reader *r) {
    struct lp_hparams *h = r->h;
    if (r->status) return;
    h->gating = read_gating(r);
    if (r->status) return;
    read_groups(r);
    // DeepSeek V2 (softmax) ranks a group by its best expert, V3 and later by its two best.
    h->group_score = h->gating == LP_GATING_SIGMOID ? LP_GROUP_TOP2_SUM : LP_GROUP_MAX;
    h->normalise = lp_hparams_bool(r, "expert_weights_norm", h->arch->normalise_by_default,
                                   h->arch->normalise_by_default ? "normalised when absent"
                                                                 : "not normalised when absent");
    h->expert_scale = lp_hparams_float(r, "expert_weights_scale", 0, 1e6, 1.0f, "1 when absent");
    if (h->expert_scale == 0) h->expert_scale = 1.0f; // converters write 0 for "none"
}
