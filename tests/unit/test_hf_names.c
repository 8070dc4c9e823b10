// Names of checkpoints as transformers writes them, and the wrong ways in which files spell them.
#include "lp_test.h"

#include "hf/hf_names.h"

static const struct lp_arch *arch(const char *name) {
    return lp_arch_find(lp_str_from(name));
}

static void names_lead_there_and_back(void **state) {
    (void)state;
    static const struct {
        const char *arch, *gguf, *hf;
    } pairs[] = {
        {"glm-dsa", "token_embd.weight", "model.embed_tokens.weight"},
        {"glm-dsa", "output.weight", "lm_head.weight"},
        {"glm-dsa", "output_norm.weight", "model.norm.weight"},
        {"glm-dsa", "blk.77.attn_kv_a_mqa.weight",
         "model.layers.77.self_attn.kv_a_proj_with_mqa.weight"},
        {"glm-dsa", "blk.3.indexer.k_norm.bias", "model.layers.3.self_attn.indexer.k_norm.bias"},
        {"glm-dsa", "blk.3.exp_probs_b.bias", "model.layers.3.mlp.gate.e_score_correction_bias"},
        {"glm-dsa", "blk.78.nextn.eh_proj.weight", "model.layers.78.eh_proj.weight"},
        {"glm-dsa", "blk.5.ffn_up_exps.weight", "model.layers.5.mlp.experts.*.up_proj.weight"},
        {"deepseek2", "blk.0.attn_kv_b.weight", "model.layers.0.self_attn.kv_b_proj.weight"},
        {"deepseek2", "blk.9.ffn_norm.weight", "model.layers.9.post_attention_layernorm.weight"},
        {"glm4moe", "blk.9.post_attention_norm.weight",
         "model.layers.9.post_attention_layernorm.weight"},
        {"llama", "blk.1.ffn_gate_inp.weight", "model.layers.1.block_sparse_moe.gate.weight"},
        {"llama", "blk.1.ffn_down_exps.weight",
         "model.layers.1.block_sparse_moe.experts.*.w2.weight"},
        {"qwen2", "blk.1.attn_q.bias", "model.layers.1.self_attn.q_proj.bias"},
        {"qwen3", "blk.1.attn_k_norm.weight", "model.layers.1.self_attn.k_norm.weight"},
    };
    char out[LP_HF_NAME_BYTES];
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        const struct lp_arch *a = arch(pairs[i].arch);
        assert_true(lp_hf_name(a, lp_str_from(pairs[i].gguf), out));
        assert_string_equal(out, pairs[i].hf);
        assert_int_equal(lp_hf_to_gguf(a, lp_str_from(pairs[i].hf), out), LP_HF_NAME);
        assert_string_equal(out, pairs[i].gguf);
        assert_int_equal(lp_hf_to_gguf(a, lp_str_from(pairs[i].gguf), out), LP_HF_GGUF);
    }
}

static void halves_of_kv_b_have_its_name(void **state) {
    (void)state;
    char out[LP_HF_NAME_BYTES];
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "blk.4.attn_v_b.weight" : "blk.4.attn_k_b.weight";
        assert_true(lp_hf_name(arch("glm-dsa"), lp_str_from(name), out));
        assert_string_equal(out, "model.layers.4.self_attn.kv_b_proj.weight");
    }
    assert_false(lp_hf_name(arch("llama"), lp_str_from("rope_freqs.weight"), out));
}

static void other_spellings_are_recognised(void **state) {
    (void)state;
    static const struct {
        const char *name, *gguf;
        enum lp_hf_spelling spelling;
    } rows[] = {
        {"model.layers.12.mlp.experts.37.gate_proj.weight", "blk.12.ffn_gate_exps.weight",
         LP_HF_NAME},
        {"blk.2.ffn_gate.7.weight", "blk.2.ffn_gate_exps.weight", LP_HF_OTHER},
        {"blk.2.attn_kv_a.weight", "blk.2.attn_kv_a_mqa.weight", LP_HF_OTHER},
        {"blk.2.self_attn.o_proj.weight", "blk.2.attn_output.weight", LP_HF_OTHER},
        {"blk.2.attn_q_b", "blk.2.attn_q_b.weight", LP_HF_OTHER},
        {"layers.3.attention.wo.weight", "blk.3.attn_output.weight", LP_HF_OTHER},
        {"tok_embeddings.weight", "token_embd.weight", LP_HF_OTHER},
        {"model.language_model.layers.3.mlp.up_proj.weight", "blk.3.ffn_up.weight", LP_HF_OTHER},
        {"language_model.lm_head.weight", "output.weight", LP_HF_OTHER},
    };
    char out[LP_HF_NAME_BYTES];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(lp_hf_to_gguf(arch("glm-dsa"), lp_str_from(rows[i].name), out),
                         rows[i].spelling);
        assert_string_equal(out, rows[i].gguf);
    }
}

static void what_is_no_name_is_none(void **state) {
    (void)state;
    static const char *const names[] = {"",
                                        "blk.",
                                        "blk.3",
                                        "blk.x.attn_q.weight",
                                        "blk.3.sinks",
                                        "model.layers.",
                                        "model.layers.999999999999.x",
                                        "a.b.c",
                                        "model.layers.3.mlp.experts.x.gate_proj.weight"};
    char out[LP_HF_NAME_BYTES];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_int_equal(lp_hf_to_gguf(arch("glm-dsa"), lp_str_from(names[i]), out), LP_HF_NONE);
}

static void the_table_is_one_to_one(void **state) {
    (void)state;
    static const char *const archs[] = {"glm-dsa", "deepseek32", "deepseek2", "llama",
                                        "qwen2",   "qwen3",      "glm4moe"};
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++) {
        struct lp_hf_count count = lp_hf_count(arch(archs[i]));
        assert_int_equal(count.n_there_and_back + count.n_halves + count.n_computed, count.n_rows);
        assert_int_equal(count.n_halves, 2);
        assert_int_equal(count.n_computed, 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_lead_there_and_back),
        cmocka_unit_test(halves_of_kv_b_have_its_name),
        cmocka_unit_test(other_spellings_are_recognised),
        cmocka_unit_test(what_is_no_name_is_none),
        cmocka_unit_test(the_table_is_one_to_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
