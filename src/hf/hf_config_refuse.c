// What would change the mathematics and limpid does not have: refused by the field's name.
#include "hf/hf_config_parts.h"

#include <string.h>

// A field that may only have these values (separated by |), or be null.
struct only {
    const char *field, *values;
    unsigned with, without; // flags of the model types that the row is for
    const char *missing;    // the value of a missing field where that is to be checked too
};

static const struct only rows[] = {
    {"hidden_act", "silu|swish", 0, 0, NULL},
    {"mlp_bias", "false", 0, 0, NULL},
    // llama's adds a bias to the output too, DeepSeek's to the latents
    {"attention_bias", "false", 0, LP_HF_OWN_BIAS | LP_HF_ASKED_BIAS, NULL},
    {"attention_bias", "true", LP_HF_ASKED_BIAS, 0, "false"},
    {"use_qk_norm", "false", 0, LP_HF_ASKED_QK_NORM, NULL},
    {"qk_layernorm", "false", 0, 0, NULL},
    {"rope_interleave", "true", LP_HF_MLA, 0, NULL},
    {"indexer_rope_interleave", "true", LP_HF_INDEXER, LP_HF_HALF_INDEXER, NULL},
    {"indexer_rope_interleave", "false", LP_HF_HALF_INDEXER, 0, NULL},
    {"moe_layer_freq", "1", LP_HF_ROUTED, 0, NULL},
    {"scoring_func", "softmax", LP_HF_SOFTMAX, 0, NULL},
    {"scoring_func", "sigmoid", LP_HF_ROUTED, LP_HF_SOFTMAX, NULL},
    {"topk_method", "greedy|group_limited_greedy", LP_HF_SOFTMAX, 0, NULL},
    {"topk_method", "noaux_tc", LP_HF_ROUTED, LP_HF_SOFTMAX, NULL},
    // transformers' class of DeepSeek V2 never normalises, its makers' own code does
    {"norm_topk_prob", "false", LP_HF_SOFTMAX, 0, NULL},
    {"swiglu_limit", "0", 0, 0, NULL},
    {"attn_logit_softcapping", "0", 0, 0, NULL},
    {"final_logit_softcapping", "0", 0, 0, NULL},
    {"logit_scale", "1", 0, 0, NULL},
    {"logits_scaling", "1", 0, 0, NULL},
    {"embedding_multiplier", "1", 0, 0, NULL},
    {"residual_multiplier", "1", 0, 0, NULL},
    {"attention_multiplier", "", 0, 0, NULL},
    {"attention_chunk_size", "", 0, 0, NULL},
};

static bool is_one_of(const char *value, const char *list) {
    size_t n = strlen(value);
    for (const char *at = list; n && *at;) {
        size_t len = strcspn(at, "|");
        if (len == n && memcmp(at, value, n) == 0) return true;
        at += len + (at[len] == '|');
    }
    return false;
}

static void check_rows(struct lp_hf_config_reader *r) {
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && !r->status; i++) {
        const struct only *row = &rows[i];
        if ((r->family->flags & row->with) != row->with || (r->family->flags & row->without))
            continue;
        const json_t *value = lp_hf_config_get(r->config, row->field);
        char text[LP_HF_VALUE_BYTES];
        const char *said = value ? lp_hf_config_value(value, text) : row->missing;
        if (!said || is_one_of(said, row->values)) continue;
        lp_hf_config_fail(r, LP_STATUS_UNSUPPORTED, "%s is %s%s; limpid runs %s for model type %s",
                          row->field, said, value ? "" : " (missing)",
                          row->values[0] ? row->values : "nothing but null", r->family->model_type);
    }
}

// layer_types: every layer sees all earlier ones, or the indexer's choice of them.
static void check_layer_types(struct lp_hf_config_reader *r) {
    const json_t *list = lp_hf_config_get(r->config, "layer_types"), *value;
    if (list && !json_is_array(list)) {
        lp_hf_config_fail(r, LP_STATUS_FORMAT,
                          "layer_types is no list, expected one with a name per layer");
        return;
    }
    const char *expected =
        lp_hf_config_is(r, LP_HF_INDEXER) ? "deepseek_sparse_attention" : "full_attention";
    size_t i;
    json_array_foreach(list, i, value) {
        char text[LP_HF_VALUE_BYTES];
        if (strcmp(lp_hf_config_value(value, text), expected) == 0) continue;
        // the name of the same since transformers 5.20
        if (lp_hf_config_is(r, LP_HF_INDEXER) && strcmp(text, "indexed_attention") == 0) continue;
        lp_hf_config_fail(r, LP_STATUS_UNSUPPORTED,
                          "layer_types has %s for layer %zu; limpid runs %s for model type %s",
                          text, i, expected, r->family->model_type);
        return;
    }
}

static void check_window(struct lp_hf_config_reader *r) {
    bool by_switch = lp_hf_config_is(r, LP_HF_WINDOW_SWITCH);
    if (!by_switch && !lp_hf_config_is(r, LP_HF_WINDOW)) return;
    if (by_switch && !lp_hf_config_bool(r, r->config, "", "use_sliding_window", false)) return;
    int64_t window = r->family->window;
    if (json_object_get(r->config, "sliding_window"))
        window = lp_hf_config_whole(r, r->config, "", "sliding_window", 1, INT64_C(1) << 40,
                                    LP_HF_CONFIG_NONE);
    int64_t context = lp_hf_config_whole(r, r->config, "", "max_position_embeddings", 1,
                                         INT64_C(1) << 40, r->family->ints[LP_HF_INT_CONTEXT]);
    if (r->status || window == LP_HF_CONFIG_NONE || window >= context) return;
    // The switched kind is for layers max_window_layers and later, 28 by default.
    if (by_switch && lp_hf_config_whole(r, r->config, "", "max_window_layers", 0, 1 << 20, 28) >=
                         lp_hf_config_whole(r, r->config, "", "num_hidden_layers", 0, 1 << 20,
                                            r->family->ints[LP_HF_INT_LAYERS]))
        return;
    lp_hf_config_fail(r, LP_STATUS_UNSUPPORTED,
                      "sliding_window is %lld%s, less than max_position_embeddings (%lld); limpid "
                      "has no sliding windows",
                      (long long)window,
                      json_object_get(r->config, "sliding_window") ? "" : " (missing)",
                      (long long)context);
}

void lp_hf_config_refuse(struct lp_hf_config_reader *r) {
    check_rows(r);
    if (!r->status) check_layer_types(r);
    if (!r->status) check_window(r);
}
