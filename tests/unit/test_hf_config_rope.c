// Rotary embedding: both places and spellings of its fields, and what transformers makes of them.
#include "hf_config_case.h"

#include <math.h>

static void make(struct hf_case *c, const char *type, const char *rope) {
    json_t *config = json_pack("{ss}", "model_type", type);
    hf_patch(config, rope);
    if (hf_case_make(c, config)) fail_msg("%s: %s", rope, c->err.text);
    json_decref(config);
}

static void theta_is_where_transformers_looks(void **state) {
    (void)state;
    static const struct {
        const char *type, *rope;
        double theta;
    } rows[] = {
        {"llama", "{}", 1e4},
        {"mixtral", "{}", 1e6}, // its class's own default
        {"llama", "{\"rope_theta\": 500000}", 5e5},
        {"llama", "{\"rope_parameters\": {\"rope_theta\": 8e6, \"rope_type\": \"default\"}}", 8e6},
        {"llama", "{\"rope_theta\": 5e5, \"rope_parameters\": {\"rope_theta\": 8e6}}", 8e6},
        {"llama", "{\"rope_theta\": 5e5, \"rope_scaling\": {}}", 5e5},
        {"llama", "{\"rope_theta\": 5e5, \"rope_scaling\": null}", 5e5},
        {"qwen3", "{\"rope_parameters\": {\"full_attention\": {\"rope_theta\": 1e6}}}", 1e6},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct hf_case c;
        make(&c, rows[i].type, rows[i].rope);
        if (hf_value(&c, "rope.freq_base") != rows[i].theta)
            fail_msg("%s: %g", rows[i].rope, hf_value(&c, "rope.freq_base"));
        assert_null(hf_key(&c, "rope.scaling.type"));
        hf_case_release(&c);
    }
}

static void scaling_has_these_keys(void **state) {
    (void)state;
    static const struct {
        const char *type, *rope, *scaling;
        double factor, original, fast, slow, log_multiplier;
    } rows[] = {
        {"llama", "{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 4}}", "linear", 4, -1, -1,
         -1, -1},
        {"qwen2",
         "{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4.0,"
         " \"original_max_position_embeddings\": 32768}}",
         "yarn", 4, 32768, 32, 1, -1},
        {"deepseek_v3",
         "{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 40, \"mscale\": 1.0, \"beta_fast\": "
         "1,"
         " \"beta_slow\": 0, \"mscale_all_dim\": 1.0, \"original_max_position_embeddings\": 4096}}",
         "yarn", 40, 4096, 1, 1, 0.1},
        // the factor is the ratio of the two lengths where it is missing
        {"qwen2",
         "{\"max_position_embeddings\": 65536, \"rope_parameters\": {\"rope_type\": \"yarn\","
         " \"factor\": null, \"original_max_position_embeddings\": 32768}}",
         "yarn", 2, 32768, 32, 1, -1},
        // a field outside of the dictionary counts first
        {"qwen2",
         "{\"original_max_position_embeddings\": 16384, \"rope_parameters\": {\"factor\": 4,"
         " \"rope_type\": \"yarn\", \"original_max_position_embeddings\": 32768}}",
         "yarn", 4, 16384, 32, 1, -1},
        // attention_factor says what it would be anyway
        {"qwen2",
         "{\"rope_parameters\": {\"rope_type\": \"yarn\", \"type\": \"linear\", \"factor\": 4,"
         " \"attention_factor\": 1.138629436}}",
         "yarn", 4, 32768, 32, 1, -1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct hf_case c;
        make(&c, rows[i].type, rows[i].rope);
        assert_true(lp_str_is(*hf_key(&c, "rope.scaling.type")->strings, rows[i].scaling));
        const struct {
            const char *suffix;
            double value;
        } keys[] = {{"factor", rows[i].factor},
                    {"original_context_length", rows[i].original},
                    {"yarn_beta_fast", rows[i].fast},
                    {"yarn_beta_slow", rows[i].slow},
                    {"yarn_log_multiplier", rows[i].log_multiplier}};
        for (size_t k = 0; k < 5; k++) {
            char suffix[64];
            snprintf(suffix, sizeof suffix, "rope.scaling.%s", keys[k].suffix);
            if (hf_value(&c, suffix) != (double)(float)keys[k].value)
                fail_msg("%s: %s is %g", rows[i].rope, suffix, hf_value(&c, suffix));
        }
        hf_case_release(&c);
    }
}

static void refused(void **state) {
    (void)state;
    static const struct {
        const char *type, *rope;
        lp_status status;
        const char *says;
    } rows[] = {
        {"llama", "{\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}}",
         LP_STATUS_UNSUPPORTED, "rope_scaling.rope_type is 'dynamic'"},
        {"llama", "{\"rope_parameters\": {\"rope_type\": \"longrope\"}}", LP_STATUS_UNSUPPORTED,
         "rope_parameters.rope_type is 'longrope'"},
        {"qwen2", "{\"rope_scaling\": {\"type\": \"default\", \"mrope_section\": [16, 24, 24]}}",
         LP_STATUS_UNSUPPORTED, "mrope_section is set"},
        {"llama", "{\"rope_scaling\": 2}", LP_STATUS_FORMAT, "rope_scaling is 2"},
        {"llama", "{\"rope_scaling\": {\"type\": 2}}", LP_STATUS_FORMAT, "rope_scaling.type is 2"},
        {"llama", "{\"rope_scaling\": {\"type\": \"linear\"}}", LP_STATUS_FORMAT,
         "rope_scaling.factor is missing"},
        {"llama", "{\"rope_scaling\": {\"type\": \"linear\", \"factor\": -1}}", LP_STATUS_FORMAT,
         "rope_scaling.factor is -1"},
        {"llama", "{\"rope_theta\": 0}", LP_STATUS_FORMAT, "rope_theta is 0"},
        {"llama", "{\"rope_theta\": \"1e6\"}", LP_STATUS_FORMAT, "rope_theta is '1e6'"},
        {"llama", "{\"partial_rotary_factor\": 0.5}", LP_STATUS_UNSUPPORTED,
         "partial_rotary_factor is 0.5"},
        {"deepseek_v3", "{\"rope_parameters\": {\"partial_rotary_factor\": 0.5}}",
         LP_STATUS_UNSUPPORTED, "partial_rotary_factor is 0.5"},
        {"qwen2", "{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 0.5}}", LP_STATUS_FORMAT,
         "rope_scaling.factor is 0.5"},
        {"qwen2", "{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, \"truncate\": false}}",
         LP_STATUS_UNSUPPORTED, "rope_scaling.truncate is false"},
        {"qwen2", "{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, \"attn_factor\": 0.878}}",
         LP_STATUS_UNSUPPORTED, "rope_scaling.attn_factor is 0.878"},
        {"qwen2",
         "{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, \"attention_factor\": 1}}",
         LP_STATUS_UNSUPPORTED, "scales cos and sin by 1; limpid runs 1.138629"},
        {"qwen2", "{\"rope_scaling\": {\"type\": \"yarn\", \"beta_fast\": 1e-9, \"factor\": 2}}",
         LP_STATUS_FORMAT, "rope_scaling.beta_fast is 1e-09"},
        // cos and sin of MLA models are not scaled in any GGUF reader
        {"deepseek_v3", "{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 40}}",
         LP_STATUS_UNSUPPORTED, "scales cos and sin by 1.368888"},
        {"deepseek_v3",
         "{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 40, \"mscale\": 1,"
         " \"mscale_all_dim\": 0.707}}",
         LP_STATUS_UNSUPPORTED, "scales cos and sin by 1.08572"},
        {"deepseek_v3",
         "{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2, \"mscale_all_dim\": 1}}",
         LP_STATUS_UNSUPPORTED, "mscale_all_dim is set for the type linear"},
        {"deepseek_v3",
         "{\"rope_scaling\": {\"type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1,"
         " \"high_freq_factor\": 4}}",
         LP_STATUS_UNSUPPORTED, "rope_type is llama3"},
        {"llama", "{\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8}}",
         LP_STATUS_FORMAT, "rope_scaling.low_freq_factor is missing"},
        {"llama",
         "{\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4,"
         " \"high_freq_factor\": 4}}",
         LP_STATUS_FORMAT, "high_freq_factor is 4, expected more than"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        json_t *config = json_pack("{ss}", "model_type", rows[i].type);
        hf_patch(config, rows[i].rope);
        struct hf_case c;
        lp_status status = hf_case_make(&c, config);
        if (status != rows[i].status || !strstr(c.err.text, rows[i].says))
            fail_msg("%s: status %s, \"%s\"", rows[i].rope, lp_status_name(status),
                     status ? c.err.text : "");
        hf_case_release(&c);
        json_decref(config);
    }
}

// Divisors of Llama 3.1's frequencies: transformers' _compute_llama3_parameters in double
// precision, evaluated in Python for rope_theta 500000 and 128 values per head.
static void llama3_divides_frequencies(void **state) {
    (void)state;
    static const struct {
        int i;
        double divisor;
    } expected[] = {{0, 1},
                    {1, 1},
                    {20, 1},
                    {28, 1},
                    {29, 1.207483871283662},
                    {30, 1.5534146285049255},
                    {31, 2.0263132059050553},
                    {32, 2.694529687894733},
                    {33, 3.6842525277457185},
                    {34, 5.257326588708467},
                    {35, 8},
                    {36, 8},
                    {63, 8}};
    json_t *config = hf_json_file("tests/data/hf/Llama-3.1-8B.json", NULL);
    struct hf_case c;
    assert_int_equal(hf_case_make(&c, config), LP_OK);
    assert_int_equal(c.model.n_rope_freqs, 64);
    for (size_t k = 0; k < sizeof expected / sizeof expected[0]; k++)
        assert_true(fabs(c.model.rope_freqs[expected[k].i] - expected[k].divisor) <
                    1e-6 * expected[k].divisor);
    assert_null(hf_key(&c, "rope.scaling.type")); // the tensor says it all
    hf_case_release(&c);
    json_decref(config);
}

static void glm4_moe_rotates_half_of_a_head(void **state) {
    (void)state;
    struct hf_case c;
    make(&c, "glm4_moe", "{\"attention_bias\": true, \"head_dim\": 128}");
    assert_int_equal((int)hf_value(&c, "rope.dimension_count"), 64);
    hf_case_release(&c);
    make(&c, "glm4_moe",
         "{\"attention_bias\": true, \"head_dim\": 128, \"partial_rotary_factor\": 1}");
    assert_int_equal((int)hf_value(&c, "rope.dimension_count"), 128);
    hf_case_release(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(theta_is_where_transformers_looks),
        cmocka_unit_test(scaling_has_these_keys),
        cmocka_unit_test(refused),
        cmocka_unit_test(llama3_divides_frequencies),
        cmocka_unit_test(glm4_moe_rotates_half_of_a_head),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
