// Roles by name, and what presets make of them. The layers with more bits are those of the usual
// quantiser's published rule: i < n/8, i >= 7n/8, or (i - n/8) % 3 == 2.
#include "lp_test.h"

#include "files/quantize_presets.h"

static lp_type type_at(const char *preset, const struct lp_quant_shape *shape, const char *name) {
    const struct lp_quant_preset *p = lp_quant_preset_find(preset);
    struct lp_str s = lp_str_from(name);
    assert_non_null(p);
    return lp_quant_preset_type(p, shape, lp_quant_role_of(s, 2), lp_quant_block_of(s));
}

#define assert_type(preset, shape, tensor, want)                                                   \
    assert_string_equal(lp_type_info((uint32_t)type_at(preset, shape, tensor))->name, want)

static void roles(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint32_t n_dims;
        enum lp_quant_role role;
        int32_t block;
    } rows[] = {
        {"token_embd.weight", 2, LP_ROLE_EMBED, -1},
        {"output.weight", 2, LP_ROLE_OUTPUT, -1},
        {"output_norm.weight", 1, LP_ROLE_KEEP, -1},
        {"blk.0.attn_norm.weight", 1, LP_ROLE_KEEP, 0},
        {"blk.12.attn_q_a_norm.weight", 1, LP_ROLE_KEEP, 12},
        {"blk.12.attn_v.weight", 2, LP_ROLE_VALUES, 12},
        {"blk.12.attn_v.bias", 1, LP_ROLE_KEEP, 12},
        {"blk.3.attn_k_b.weight", 3, LP_ROLE_ATTN, 3},
        {"blk.3.attn_kv_b.weight", 2, LP_ROLE_VALUES, 3},
        {"blk.3.indexer.proj.weight", 2, LP_ROLE_KEEP, 3},
        {"blk.3.indexer.k_norm.bias", 1, LP_ROLE_KEEP, 3},
        {"blk.3.indexer.attn_k.weight", 2, LP_ROLE_INDEX, 3},
        {"blk.3.ffn_gate_inp.weight", 2, LP_ROLE_KEEP, 3},
        {"blk.3.exp_probs_b.bias", 1, LP_ROLE_KEEP, 3},
        {"blk.3.ffn_down_exps.weight", 3, LP_ROLE_EXPERTS_DOWN, 3},
        {"blk.3.ffn_gate_up_exps.weight", 3, LP_ROLE_EXPERTS_IN, 3},
        {"blk.3.ffn_up_exps.scale", 1, LP_ROLE_SCALE, 3},
        {"blk.3.ffn_up_exps.input_scale", 1, LP_ROLE_SCALE, 3},
        {"blk.78.nextn.eh_proj.weight", 2, LP_ROLE_NEXTN, 78},
        {"blk.78.nextn.enorm.weight", 1, LP_ROLE_KEEP, 78},
        {"blk.3.something.weight", 2, LP_ROLE_OTHER, 3},
        {"blk..weight", 2, LP_ROLE_OTHER, -1},
        {"weight", 2, LP_ROLE_KEEP, -1},
        {"rope_freqs.weight", 1, LP_ROLE_KEEP, -1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct lp_str name = lp_str_from(rows[i].name);
        if (lp_quant_role_of(name, rows[i].n_dims) != rows[i].role) fail_msg("%s", rows[i].name);
        assert_int_equal(lp_quant_block_of(name), rows[i].block);
    }
}

static void more_bits_are_where_they_should(void **state) {
    (void)state;
    for (int32_t n = 1; n < 100; n++) {
        struct lp_quant_shape shape = {.n_layers = n, .first_moe = -1, .has_output = true};
        for (int32_t i = 0; i < n + 2; i++) {
            char name[64];
            bool more = i < n && (i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2);
            snprintf(name, sizeof name, "blk.%d.ffn_down.weight", i);
            assert_type("Q4_K_M", &shape, name, more ? "Q6_K" : "Q4_K");
            snprintf(name, sizeof name, "blk.%d.attn_v.weight", i);
            assert_type("q5_k", &shape, name, more ? "Q6_K" : "Q5_K");
            snprintf(name, sizeof name, "blk.%d.ffn_up.weight", i);
            assert_type("Q4_K_M", &shape, name, "Q4_K");
        }
    }
}

static void small_presets(void **state) {
    (void)state;
    struct lp_quant_shape shape = {.n_layers = 32, .first_moe = -1, .has_output = true};
    assert_type("Q4_K_S", &shape, "blk.3.ffn_down.weight", "Q5_K");
    assert_type("Q4_K_S", &shape, "blk.4.ffn_down.weight", "Q4_K");
    assert_type("Q4_K_S", &shape, "blk.3.attn_v.weight", "Q5_K");
    assert_type("Q4_K_S", &shape, "blk.4.attn_v.weight", "Q4_K");
    assert_type("Q4_K_S", &shape, "output.weight", "Q6_K");
    assert_type("Q4_K_S", &shape, "token_embd.weight", "Q4_K");
    assert_type("Q8_0", &shape, "output.weight", "Q8_0");
    assert_type("IQ4_XS", &shape, "blk.0.ffn_down.weight", "Q5_K");
    assert_type("IQ4_XS", &shape, "blk.9.attn_v.weight", "IQ4_XS");
    shape.has_importance = shape.shares_values = true;
    assert_type("IQ4_XS", &shape, "blk.0.ffn_down.weight", "IQ4_XS");
    assert_type("IQ4_NL", &shape, "blk.9.attn_v.weight", "Q5_K");
    shape.has_output = false; // tied
    assert_type("Q4_0", &shape, "token_embd.weight", "Q6_K");
    assert_type("Q8_0", &shape, "token_embd.weight", "Q8_0");
}

// GLM-5's shape: 78 layers, the first 3 dense, then an MTP layer; 3 layers at each edge.
static void dynamic_presets(void **state) {
    (void)state;
    struct lp_quant_shape shape = {.n_layers = 78, .first_moe = 3, .has_output = true};
    static const char *const q8[] = {"token_embd.weight",
                                     "output.weight",
                                     "blk.0.ffn_down.weight",
                                     "blk.30.attn_q_a.weight",
                                     "blk.30.attn_k_b.weight",
                                     "blk.30.attn_v_b.weight",
                                     "blk.30.attn_output.weight",
                                     "blk.30.ffn_up_shexp.weight",
                                     "blk.30.indexer.attn_k.weight",
                                     "blk.78.nextn.eh_proj.weight",
                                     "blk.78.attn_q_b.weight"};
    for (size_t i = 0; i < sizeof q8 / sizeof q8[0]; i++)
        assert_type("DYN-Q4", &shape, q8[i], "Q8_0");
    assert_type("dyn-q4", &shape, "blk.3.ffn_up_exps.weight", "Q5_K");
    assert_type("DYN-Q4", &shape, "blk.5.ffn_down_exps.weight", "Q6_K");
    assert_type("DYN-Q4", &shape, "blk.6.ffn_gate_exps.weight", "Q4_K");
    assert_type("DYN-Q4", &shape, "blk.6.ffn_down_exps.weight", "Q5_K");
    assert_type("DYN-Q4", &shape, "blk.74.ffn_down_exps.weight", "Q5_K");
    assert_type("DYN-Q4", &shape, "blk.75.ffn_down_exps.weight", "Q6_K");
    assert_type("DYN-Q4", &shape, "blk.77.ffn_gate_exps.weight", "Q4_K");
    assert_type("DYN-Q4", &shape, "blk.78.ffn_down_exps.weight", "Q5_K");
    assert_type("DYN-Q5", &shape, "blk.20.ffn_gate_up_exps.weight", "Q5_K");
    assert_type("DYN-IQ4", &shape, "blk.20.ffn_down_exps.weight", "IQ4_XS");
    assert_true(lp_quant_preset_needs_experts(lp_quant_preset_find("DYN-Q4")));
}

static void rows_that_do_not_divide(void **state) {
    (void)state;
    static const struct {
        lp_type type;
        uint64_t n_in;
        lp_type to;
    } rows[] = {
        {LP_TYPE_Q4_K, 512, LP_TYPE_Q4_K},     {LP_TYPE_Q4_K, 192, LP_TYPE_Q5_0},
        {LP_TYPE_Q4_K, 100, LP_TYPE_F16},      {LP_TYPE_Q5_K, 192, LP_TYPE_Q8_0},
        {LP_TYPE_Q6_K, 192, LP_TYPE_Q8_0},     {LP_TYPE_Q6_K, 33, LP_TYPE_F16},
        {LP_TYPE_IQ4_XS, 192, LP_TYPE_IQ4_NL}, {LP_TYPE_IQ4_XS, 7, LP_TYPE_F16},
        {LP_TYPE_Q4_0, 31, LP_TYPE_F16},       {LP_TYPE_BF16, 1, LP_TYPE_BF16},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(lp_quant_fallback(rows[i].type, rows[i].n_in), rows[i].to);
}

static void names(void **state) {
    (void)state;
    lp_type type;
    for (size_t i = 0; lp_quant_preset_at(i); i++) {
        const char *name = lp_quant_preset_name(lp_quant_preset_at(i));
        assert_non_null(strstr(lp_quant_preset_list(), name));
        assert_ptr_equal(lp_quant_preset_find(name), lp_quant_preset_at(i));
    }
    assert_null(lp_quant_preset_find("Q3_K"));
    assert_string_equal(lp_quant_preset_name(lp_quant_preset_find("q4_k")), "Q4_K_M");
    assert_true(lp_quant_type_parse(lp_str_from("iq4_nl"), &type) && type == LP_TYPE_IQ4_NL);
    assert_false(lp_quant_type_parse(lp_str_from("Q4_K_M"), &type));
    assert_false(lp_quant_type_parse(lp_str_from("Q4_1"), &type)); // no quantiser
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(roles),
        cmocka_unit_test(more_bits_are_where_they_should),
        cmocka_unit_test(small_presets),
        cmocka_unit_test(dynamic_presets),
        cmocka_unit_test(rows_that_do_not_divide),
        cmocka_unit_test(names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
