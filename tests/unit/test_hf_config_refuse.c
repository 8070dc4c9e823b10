// What config.json may not say: one sentence with the field's name, and the right status.
#include "hf_config_case.h"

struct refused {
    const char *config; // fields beside the base's
    lp_status status;
    const char *says;
};

static void refuse(const char *base, const struct refused *rows, size_t n) {
    for (size_t i = 0; i < n; i++) {
        json_t *config = hf_json(base);
        hf_patch(config, rows[i].config);
        struct hf_case c;
        lp_status status = hf_case_make(&c, config);
        if (status != rows[i].status || c.err.status != status || !strstr(c.err.text, rows[i].says))
            fail_msg("%s: status %s, \"%s\"", rows[i].config, lp_status_name(status),
                     status ? c.err.text : "");
        hf_case_release(&c);
        json_decref(config);
    }
}
#define REFUSE(base, rows) refuse(base, rows, sizeof rows / sizeof rows[0])

#define FORMAT LP_STATUS_FORMAT
#define UNSUPPORTED LP_STATUS_UNSUPPORTED

static const char glm[] = "{\"model_type\": \"glm_moe_dsa\"}";
static const char v3[] = "{\"model_type\": \"deepseek_v3\"}";
static const char v2[] = "{\"model_type\": \"deepseek_v2\", \"num_experts_per_tok\": 6}";
static const char llama[] = "{\"model_type\": \"llama\"}";
static const char qwen[] = "{\"model_type\": \"qwen2\"}";

static void model_types(void **state) {
    (void)state;
    static const struct refused rows[] = {
        {"{\"model_type\": \"qwen3_moe\"}", UNSUPPORTED, "'qwen3_moe'; this version supports glm"},
        {"{\"model_type\": \"glm5_next\"}", UNSUPPORTED, "kimi_k2, deepseek_v32"},
        {"{\"model_type\": null}", UNSUPPORTED, "model_type is missing"},
        {"{\"model_type\": 3}", FORMAT, "model_type is 3, expected a string"},
        {"{\"architectures\": [\"LlamaForSequenceClassification\"]}", UNSUPPORTED,
         "LlamaForSequenceClassification"},
        {"{\"architectures\": [\"LlamaForCausalLMEagle3\"]}", UNSUPPORTED, "architectures is"},
    };
    REFUSE(llama, rows);
}

static void numbers(void **state) {
    (void)state;
    static const struct refused rows[] = {
        {"{\"num_hidden_layers\": -3}", FORMAT,
         "config.json: num_hidden_layers is -3, expected a whole number from 1 to 512"},
        {"{\"num_hidden_layers\": 1099511627776}", FORMAT, "num_hidden_layers is 1099511627776"},
        {"{\"num_hidden_layers\": 0}", FORMAT, "num_hidden_layers is 0"},
        {"{\"num_hidden_layers\": null}", FORMAT, "num_hidden_layers is null"},
        {"{\"num_hidden_layers\": 12.5}", FORMAT, "num_hidden_layers is 12.5"},
        {"{\"hidden_size\": \"4096\"}", FORMAT, "hidden_size is '4096', expected a whole number"},
        {"{\"hidden_size\": true}", FORMAT, "hidden_size is true"},
        {"{\"hidden_size\": [4096]}", FORMAT, "hidden_size is a list"},
        {"{\"hidden_size\": {}}", FORMAT, "hidden_size is an object"},
        {"{\"hidden_size\": 1e300}", FORMAT, "hidden_size is 1e+300"},
        {"{\"hidden_size\": 4095}", FORMAT, "hidden_size 4095 is no multiple of"},
        {"{\"vocab_size\": 0}", FORMAT, "vocab_size is 0"},
        {"{\"intermediate_size\": 99999999}", FORMAT, "intermediate_size is 99999999"},
        {"{\"num_key_value_heads\": 5}", FORMAT, "num_key_value_heads is 5, expected a divisor"},
        {"{\"num_key_value_heads\": 0}", FORMAT, "num_key_value_heads is 0"},
        {"{\"head_dim\": 127}", FORMAT, "127 values of a head are rotated"},
        {"{\"head_dim\": 100000}", FORMAT, "head_dim is 100000"},
        {"{\"rms_norm_eps\": 0}", FORMAT, "rms_norm_eps is 0"},
        {"{\"rms_norm_eps\": -1e-5}", FORMAT, "rms_norm_eps is -1e-05"},
        {"{\"rms_norm_eps\": \"NaN\"}", FORMAT, "rms_norm_eps is 'NaN'"},
        {"{\"max_position_embeddings\": -1}", FORMAT, "max_position_embeddings is -1"},
        {"{\"tie_word_embeddings\": 1}", FORMAT,
         "tie_word_embeddings is 1, expected true or false"},
        {"{\"layer_types\": 1}", FORMAT, "layer_types is no list"},
    };
    REFUSE(llama, rows);
    static const struct refused latents[] = {
        {"{\"kv_lora_rank\": null}", FORMAT, "kv_lora_rank is null"},
        {"{\"qk_rope_head_dim\": 63}", FORMAT, "qk_rope_head_dim is 63, expected an even number"},
        {"{\"num_nextn_predict_layers\": 500}", FORMAT, "num_nextn_predict_layers is 500"},
        {"{\"q_lora_rank\": null}", FORMAT, "q_lora_rank is null"},
        {"{\"index_head_dim\": 32}", FORMAT, "index_head_dim is 32"},
        {"{\"index_topk\": 0}", FORMAT, "index_topk is 0"},
        {"{\"indexer_types\": [\"full\"]}", FORMAT, "indexer_types has 1 elements"},
        {"{\"indexer_types\": \"full\"}", FORMAT, "indexer_types has 0 elements"},
        {"{\"index_topk_pattern\": \"FFX\"}", FORMAT, "index_topk_pattern is 'FFX'"},
        {"{\"num_hidden_layers\": 2, \"indexer_types\": [\"full\", \"half\"]}", FORMAT,
         "indexer_types has 'half' for layer 1"},
        {"{\"num_hidden_layers\": 2, \"indexer_types\": [\"shared\", \"full\"]}", FORMAT,
         "layer 0 shares"},
        {"{\"index_topk_freq\": \"4\"}", FORMAT, "index_topk_freq is '4'"},
    };
    REFUSE(glm, latents);
}

static void other_mathematics(void **state) {
    (void)state;
    static const struct refused rows[] = {
        {"{\"hidden_act\": \"gelu\"}", UNSUPPORTED, "hidden_act is gelu; limpid runs silu|swish"},
        {"{\"attention_bias\": true}", UNSUPPORTED, "attention_bias is true"},
        {"{\"mlp_bias\": true}", UNSUPPORTED, "mlp_bias is true"},
        {"{\"final_logit_softcapping\": 30.0}", UNSUPPORTED, "final_logit_softcapping is 30"},
        {"{\"embedding_multiplier\": 12}", UNSUPPORTED, "embedding_multiplier is 12"},
        {"{\"attention_multiplier\": 0.1}", UNSUPPORTED, "attention_multiplier is 0.1"},
        {"{\"layer_types\": [\"full_attention\", \"sliding_attention\"]}", UNSUPPORTED,
         "sliding_attention for layer 1"},
    };
    REFUSE(llama, rows);
    static const struct refused windows[] = {
        {"{\"use_sliding_window\": true, \"sliding_window\": 4096}", UNSUPPORTED,
         "sliding_window is 4096, less than"},
        {"{\"use_sliding_window\": true}", UNSUPPORTED, "sliding_window is 4096 (missing)"},
    };
    REFUSE(qwen, windows);
    static const struct refused mistral[] = {
        {"{\"model_type\": \"mistral\"}", UNSUPPORTED, "sliding_window is 4096 (missing)"},
        {"{\"model_type\": \"mistral\", \"sliding_window\": 512}", UNSUPPORTED,
         "sliding_window is 512"},
        {"{\"model_type\": \"mixtral\", \"sliding_window\": 4096}", UNSUPPORTED,
         "sliding_window is 4096"},
        {"{\"model_type\": \"glm4_moe\", \"head_dim\": 128}", UNSUPPORTED,
         "attention_bias is false (missing)"},
        {"{\"model_type\": \"deepseek_v32\", \"indexer_rope_interleave\": true}", UNSUPPORTED,
         "indexer_rope_interleave is true"},
    };
    REFUSE(llama, mistral);
    static const struct refused attention[] = {
        {"{\"attention_bias\": true}", UNSUPPORTED, "attention_bias is true"},
        {"{\"rope_interleave\": false}", UNSUPPORTED, "rope_interleave is false"},
        {"{\"indexer_rope_interleave\": false}", UNSUPPORTED, "indexer_rope_interleave is false"},
        {"{\"qk_layernorm\": true}", UNSUPPORTED, "qk_layernorm is true"},
        {"{\"layer_types\": [\"full_attention\"]}", UNSUPPORTED, "full_attention for layer 0"},
    };
    REFUSE(glm, attention);
}

static void routers(void **state) {
    (void)state;
    static const struct refused rows[] = {
        {"{\"scoring_func\": \"softmax\"}", UNSUPPORTED, "scoring_func is softmax"},
        {"{\"scoring_func\": \"sqrtsoftplus\"}", UNSUPPORTED, "scoring_func is sqrtsoftplus"},
        {"{\"topk_method\": \"greedy\"}", UNSUPPORTED, "topk_method is greedy"},
        {"{\"n_group\": 7}", UNSUPPORTED, "n_group is 7, expected a divisor of n_routed_experts"},
        {"{\"topk_group\": 9}", FORMAT, "topk_group is 9, expected 1 to n_group (8)"},
        {"{\"topk_group\": null}", FORMAT, "topk_group is -1"},
        {"{\"n_group\": 64, \"topk_group\": 1}", FORMAT,
         "num_experts_per_tok is 8, but the 1 group"},
        {"{\"n_routed_experts\": 4, \"n_group\": 1}", FORMAT, "number of experts (4)"},
        {"{\"n_routed_experts\": 0}", FORMAT, "n_routed_experts is 0"},
        {"{\"routed_scaling_factor\": -1}", FORMAT, "routed_scaling_factor is -1"},
        {"{\"norm_topk_prob\": \"yes\"}", FORMAT, "norm_topk_prob is 'yes'"},
        {"{\"n_shared_experts\": 1000, \"moe_intermediate_size\": 1000000}", FORMAT,
         "n_shared_experts x moe_intermediate_size"},
        {"{\"moe_layer_freq\": 2}", UNSUPPORTED, "moe_layer_freq is 2"},
        {"{\"moe_layer_freq\": [0, 1]}", UNSUPPORTED, "moe_layer_freq is a list"},
        {"{\"mlp_layer_types\": [\"dense\"]}", FORMAT, "mlp_layer_types has 1 elements"},
        {"{\"num_hidden_layers\": 3, \"mlp_layer_types\": [\"dense\", \"sparse\", \"dense\"]}",
         UNSUPPORTED, "dense layer (2) behind a sparse one"},
        {"{\"num_hidden_layers\": 1, \"mlp_layer_types\": [7]}", FORMAT, "mlp_layer_types has '7'"},
    };
    REFUSE(v3, rows);
    static const struct refused old[] = {
        {"{\"scoring_func\": \"sigmoid\"}", UNSUPPORTED, "scoring_func is sigmoid"},
        {"{\"norm_topk_prob\": true}", UNSUPPORTED, "norm_topk_prob is true"},
        {"{\"topk_method\": \"noaux_tc\"}", UNSUPPORTED, "topk_method is noaux_tc"},
        {"{\"topk_method\": \"group_limited_greedy\"}", FORMAT, "n_group is missing"},
        {"{\"num_experts_per_tok\": null}", FORMAT, "num_experts_per_tok is null"},
    };
    REFUSE(v2, old);
    static const struct refused bare[] = {{"{}", FORMAT, "num_experts_per_tok is missing"}};
    REFUSE("{\"model_type\": \"deepseek_v2\"}", bare);
}

// What only looks like another model.
static void harmless(void **state) {
    (void)state;
    static const char *const configs[] = {
        "{\"model_type\": \"qwen2\", \"sliding_window\": 4096, \"use_sliding_window\": false}",
        "{\"model_type\": \"qwen2\", \"sliding_window\": 4096, \"use_sliding_window\": true,"
        " \"max_window_layers\": 32}",
        "{\"model_type\": \"qwen2\", \"attention_bias\": true}", // the class has its biases always
        "{\"model_type\": \"mistral\", \"sliding_window\": null}",
        "{\"model_type\": \"mistral\", \"sliding_window\": 32768,"
        " \"max_position_embeddings\": 32768}",
        "{\"model_type\": \"llama\", \"hidden_act\": \"swish\", \"logit_scale\": 1.0,"
        " \"final_logit_softcapping\": null, \"attn_logit_softcapping\": 0,"
        " \"hidden_size\": 4096.0, \"attention_dropout\": 0.1, \"pretraining_tp\": 4}",
        "{\"model_type\": \"llama\", \"architectures\": \"LlamaForCausalLM\"}",
        "{\"model_type\": \"kimi_k2\", \"architectures\": [\"DeepseekV3ForCausalLM\"]}",
        "{\"model_type\": \"deepseek_v3\", \"n_group\": null, \"topk_group\": null}",
        "{\"model_type\": \"deepseek_v3\", \"q_lora_rank\": null, \"n_shared_experts\": null}",
        "{\"model_type\": \"deepseek_v3\", \"first_k_dense_replace\": 1000}",
    };
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
        json_t *config = hf_json(configs[i]);
        struct hf_case c;
        if (hf_case_make(&c, config)) fail_msg("%s: %s", configs[i], c.err.text);
        hf_case_release(&c);
        json_decref(config);
    }
}

// "greedy" chooses among all experts, whatever n_group says (transformers' DeepseekV2Moe).
static void greedy_has_no_groups(void **state) {
    (void)state;
    json_t *config = hf_json(v2);
    hf_patch(config, "{\"n_group\": 8, \"topk_group\": 3, \"topk_method\": \"greedy\"}");
    struct hf_case c;
    assert_int_equal(hf_case_make(&c, config), LP_OK);
    assert_int_equal((int)hf_value(&c, "expert_group_count"), 1);
    assert_int_equal((int)hf_value(&c, "expert_group_used_count"), 1);
    hf_case_release(&c);
    hf_patch(config, "{\"topk_method\": \"group_limited_greedy\"}");
    assert_int_equal(hf_case_make(&c, config), LP_OK);
    assert_int_equal((int)hf_value(&c, "expert_group_count"), 8);
    assert_int_equal((int)hf_value(&c, "expert_group_used_count"), 3);
    hf_case_release(&c);
    json_decref(config);
}

static void generation_config(void **state) {
    (void)state;
    static const char *const rows[][2] = {
        {"{\"temperature\": \"hot\"}", "generation_config.json: temperature is 'hot'"},
        {"{\"top_p\": 1.5}", "generation_config.json: top_p is 1.5"},
        {"{\"top_k\": 1.5}", "generation_config.json: top_k is 1.5"},
        {"{\"repetition_penalty\": -1}", "generation_config.json: repetition_penalty is -1"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct lp_hf_folder folder = {.name = "x", .path = "x", .config = hf_json(llama)};
        folder.generation_config = hf_json(rows[i][0]);
        struct hf_case c;
        assert_int_equal(hf_case_folder(&c, &folder), FORMAT);
        if (!strstr(c.err.text, rows[i][1])) fail_msg("%s", c.err.text);
        hf_case_release(&c);
        json_decref(folder.config);
        json_decref(folder.generation_config);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(model_types),       cmocka_unit_test(numbers),
        cmocka_unit_test(other_mathematics), cmocka_unit_test(routers),
        cmocka_unit_test(harmless),          cmocka_unit_test(greedy_has_no_groups),
        cmocka_unit_test(generation_config),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
