// config.json -> keys: against the GGUF files of the goldens (whose configurations transformers
// ran), transformers' own defaults, and what is known of published models.
#include "hf_config_case.h"

#include <math.h>

#include "base/alloc.h"

static bool begins(struct lp_str key, const char *with) {
    size_t n = strlen(with);
    return key.len >= n && memcmp(key.data, with, n) == 0;
}

static size_t kv_bytes(const struct lp_gguf_kv *kv) {
    return kv->count * (kv->element_type == LP_GGUF_BOOL ? 1 : 4);
}

// Every key of `expected` (but general.* and tokenizer.*) is in `got` with the same type and value,
// but for those of `may_lack`.
static void contains(const struct lp_gguf *got, const struct lp_gguf *expected, const char *name,
                     const char *may_lack) {
    for (uint64_t i = 0; i < lp_gguf_n_kv(expected); i++) {
        const struct lp_gguf_kv *want = lp_gguf_kv_at(expected, i), *have;
        char key[128];
        snprintf(key, sizeof key, "%.*s", LP_STR_ARGS(want->key));
        bool general = strcmp(key, "general.architecture") == 0 || strcmp(key, "general.type") == 0;
        if (!general && (begins(want->key, "general.") || begins(want->key, "tokenizer.")))
            continue;
        have = lp_gguf_find(got, key);
        if (!have && may_lack && strstr(key, may_lack)) continue;
        if (!have) fail_msg("%s: no key %s", name, key);
        if (have->type != want->type || have->element_type != want->element_type ||
            have->count != want->count)
            fail_msg("%s: %s is of another type", name, key);
        bool same = want->strings ? lp_str_equal(have->strings[0], want->strings[0])
                                  : memcmp(have->data, want->data, kv_bytes(want)) == 0;
        if (!same)
            fail_msg("%s: %s is %g, expected %g", name, key,
                     want->strings                          ? 0
                     : lp_gguf_is_float(have->element_type) ? lp_gguf_float_at(have, 0)
                                                            : (double)lp_gguf_int_at(have, 0),
                     want->strings                          ? 0
                     : lp_gguf_is_float(want->element_type) ? lp_gguf_float_at(want, 0)
                                                            : (double)lp_gguf_int_at(want, 0));
    }
}

static void goldens_have_these_keys(void **state) {
    (void)state;
    static const char *const names[] = {"dsa_dense", "dsa_sparse", "dsa_shared", "dsa_full_dims",
                                        "ds3",       "ds32",       "ds2_lite",   "glm47_flash",
                                        "glm45",     "llama",      "qwen2",      "qwen3"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[96];
        snprintf(path, sizeof path, "tests/golden/%s.json", names[i]);
        json_t *golden = hf_json_file(path, NULL), *config = json_object_get(golden, "hf_config");
        json_object_set(config, "model_type", json_object_get(golden, "hf_model_type"));
        json_object_set(config, "num_nextn_predict_layers", json_object_get(golden, "nextn"));
        struct hf_case c;
        if (hf_case_make(&c, config)) fail_msg("%s: %s", names[i], c.err.text);
        snprintf(path, sizeof path, "tests/golden/%s.gguf", names[i]);
        struct lp_gguf *file;
        assert_int_equal(lp_gguf_open(&file, path, &c.err), LP_OK);
        contains(c.gguf, file, names[i], NULL);
        contains(file, c.gguf, names[i], NULL);
        struct lp_hparams h;
        assert_int_equal(lp_hparams_read(&h, file, &c.err), LP_OK);
        assert_int_equal(c.model.n_layers, h.n_layers);
        assert_int_equal(c.model.n_nextn, h.n_nextn);
        assert_int_equal(c.model.n_vocab, h.n_vocab);
        assert_int_equal(c.model.n_kv_heads, h.n_kv_heads);
        assert_int_equal(c.model.n_experts, h.n_experts);
        assert_int_equal(c.model.n_dense, h.n_dense);
        assert_int_equal(c.model.expert_ff, h.expert_ff);
        assert_int_equal(c.model.q_rank, h.q_rank);
        assert_int_equal(c.model.top_k, h.top_k);
        for (int32_t l = 0; l < h.n_layers && h.top_k; l++)
            assert_int_equal(!c.model.full || c.model.full[l], h.index_role[l] == LP_INDEXER_FULL);
        lp_gguf_close(file);
        hf_case_release(&c);
        json_decref(golden);
    }
}

// The configuration that the mini model's training script gives to transformers.
static void mini_has_these_keys(void **state) {
    (void)state;
    json_t *config = hf_json(
        "{\"model_type\": \"glm_moe_dsa\", \"vocab_size\": 3584, \"hidden_size\": 256,"
        "\"intermediate_size\": 768, \"moe_intermediate_size\": 256, \"num_hidden_layers\": 5,"
        "\"num_attention_heads\": 4, \"num_key_value_heads\": 4, \"n_shared_experts\": 1,"
        "\"n_routed_experts\": 8, \"routed_scaling_factor\": 2.5, \"kv_lora_rank\": 512,"
        "\"q_lora_rank\": 256, \"qk_rope_head_dim\": 64, \"v_head_dim\": 256,"
        "\"qk_nope_head_dim\": 192, \"n_group\": 1, \"topk_group\": 1, \"num_experts_per_tok\": 4,"
        "\"norm_topk_prob\": true, \"max_position_embeddings\": 4096, \"rms_norm_eps\": 1e-5,"
        "\"mlp_layer_types\": [\"dense\", \"sparse\", \"sparse\", \"sparse\", \"sparse\"],"
        "\"index_topk\": 256, \"index_head_dim\": 128, \"index_n_heads\": 4,"
        "\"tie_word_embeddings\": false, \"num_nextn_predict_layers\": 1,"
        "\"rope_parameters\": {\"rope_theta\": 1000000.0, \"rope_type\": \"default\"}}");
    struct hf_case c;
    if (hf_case_make(&c, config)) fail_msg("%s", c.err.text);
    struct lp_gguf *file;
    assert_int_equal(lp_gguf_open(&file, "models/mini-glm-dsa.gguf", &c.err), LP_OK);
    contains(c.gguf, file, "mini", NULL);
    contains(file, c.gguf, "mini", NULL);
    lp_gguf_close(file);
    hf_case_release(&c);
    json_decref(config);
}

// A configuration with nothing but its model type, and the one that transformers writes for it.
static void defaults_are_transformers(void **state) {
    (void)state;
    // what no configuration of the type can do without, or what limpid does not run
    static const struct {
        const char *type, *also;
    } rows[] = {{"glm_moe_dsa", "{}"},
                {"deepseek_v2", "{\"num_experts_per_tok\": 6}"},
                {"deepseek_v3", "{}"},
                {"deepseek_v32", "{}"},
                {"glm4_moe", "{\"attention_bias\": true, \"head_dim\": 128}"},
                {"glm4_moe_lite", "{}"},
                {"llama", "{}"},
                {"mistral", "{\"sliding_window\": null}"},
                {"mixtral", "{}"},
                {"qwen2", "{}"},
                {"qwen3", "{}"}};
    json_t *all = hf_json_file("tests/data/hf/defaults.json", "configs");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct hf_case bare, full;
        json_t *config = json_pack("{ss}", "model_type", rows[i].type);
        json_t *written = json_object_get(all, rows[i].type);
        hf_patch(config, rows[i].also);
        hf_patch(written, rows[i].also);
        if (hf_case_make(&bare, config)) fail_msg("%s: %s", rows[i].type, bare.err.text);
        if (hf_case_make(&full, written)) fail_msg("%s: %s", rows[i].type, full.err.text);
        // transformers writes head_dim even where it is hidden_size / num_attention_heads
        contains(bare.gguf, full.gguf, rows[i].type, "_length");
        contains(full.gguf, bare.gguf, rows[i].type, NULL);
        assert_int_equal(bare.model.head_dim, full.model.head_dim);
        assert_int_equal(bare.model.n_dense, full.model.n_dense);
        assert_int_equal(bare.model.tied, full.model.tied);
        hf_case_release(&bare);
        hf_case_release(&full);
        json_decref(config);
    }
    json_decref(all);
}

// Keys of published models; NO: there is none.
#define NO (-1)
static const char *const published_keys[] = {"block_count",
                                             "context_length",
                                             "rope.freq_base",
                                             "attention.layer_norm_rms_epsilon",
                                             "expert_count",
                                             "expert_used_count",
                                             "leading_dense_block_count",
                                             "expert_group_count",
                                             "expert_group_used_count",
                                             "expert_gating_func",
                                             "expert_weights_norm",
                                             "expert_weights_scale",
                                             "rope.scaling.factor",
                                             "rope.scaling.yarn_beta_fast",
                                             "rope.scaling.yarn_log_multiplier",
                                             "rope.scaling.original_context_length",
                                             "nextn_predict_layers"};
#define N_PUBLISHED_KEYS (sizeof published_keys / sizeof published_keys[0])
enum { YARN = 12, LOG_MULTIPLIER = 14 };

// From the makers' config.json files, model cards and reports.
struct published {
    const char *file, *arch;
    double values[N_PUBLISHED_KEYS];
    int n_shared_layers; // of the indexer
    double key_width;
};

static const struct published published[] = {
    {"GLM-5",
     "glm-dsa",
     {79, 202752, 1e6, 1e-5, 256, 8, 3, 1, 1, 2, 1, 2.5, NO, NO, NO, NO, 1},
     0,
     256},
    {"GLM-5.2",
     "glm-dsa",
     {79, 1048576, 8e6, 1e-5, 256, 8, 3, 1, 1, 2, 1, 2.5, NO, NO, NO, NO, 1},
     57,
     256},
    {"DeepSeek-V3",
     "deepseek2",
     {62, 163840, 10000, 1e-6, 256, 8, 3, 8, 4, 2, 1, 2.5, 40, 32, 0.1, 4096, 1},
     0,
     192},
    {"DeepSeek-V3.2-Exp",
     "deepseek32",
     {62, 163840, 10000, 1e-6, 256, 8, 3, 8, 4, 2, 1, 2.5, 40, 32, 0.1, 4096, 1},
     0,
     192},
    {"Kimi-K2-Instruct",
     "deepseek2",
     {61, 131072, 50000, 1e-6, 384, 8, 1, 1, 1, 2, 1, 2.827, 32, 1, 0.1, 4096, NO},
     0,
     192},
    {"Kimi-K2-Thinking",
     "deepseek2",
     {61, 262144, 50000, 1e-5, 384, 8, 1, 1, 1, 2, 1, 2.827, 64, 1, 0.1, 4096, NO},
     0,
     192},
    {"DeepSeek-V2-Lite",
     "deepseek2",
     {27, 163840, 10000, 1e-6, 64, 6, 1, 1, 1, 1, NO, 1, 40, 32, 0.0707, 4096, NO},
     0,
     192},
    {"DeepSeek-V2-Lite-saved",
     "deepseek2",
     {27, 163840, 10000, 1e-6, 64, 6, 1, 1, 1, 1, NO, 1, 40, 32, 0.0707, 4096, NO},
     0,
     192},
    {"DeepSeek-V2.5",
     "deepseek2",
     {60, 163840, 10000, 1e-6, 160, 6, 1, 8, 3, 1, NO, 16, 40, 32, 0.1, 4096, NO},
     0,
     192},
    {"GLM-4.7-Flash",
     "deepseek2",
     {48, 202752, 1e6, 1e-5, 64, 4, 1, 1, 1, 2, 1, 1.8, NO, NO, NO, NO, 1},
     0,
     256},
    {"GLM-4.5",
     "glm4moe",
     {93, 131072, 1e6, 1e-5, 160, 8, 3, 1, 1, 2, 1, 2.5, NO, NO, NO, NO, 1},
     0,
     128},
    {"GLM-4.5-Air",
     "glm4moe",
     {47, 131072, 1e6, 1e-5, 128, 8, 1, 1, 1, 2, 1, 1, NO, NO, NO, NO, 1},
     0,
     128},
    {"Llama-3.1-8B",
     "llama",
     {32, 131072, 500000, 1e-5, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO},
     0,
     128},
    {"Mixtral-8x7B",
     "llama",
     {32, 32768, 1e6, 1e-5, 8, 2, NO, NO, NO, 1, NO, NO, NO, NO, NO, NO, NO},
     0,
     128},
    {"Qwen2.5-7B",
     "qwen2",
     {28, 32768, 1e6, 1e-6, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO},
     0,
     128},
    {"Qwen3-0.6B",
     "qwen3",
     {28, 40960, 1e6, 1e-6, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO},
     0,
     128},
};

static void published_models_are_what_they_are(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++) {
        const struct published *p = &published[i];
        char path[96], vocab[64];
        snprintf(path, sizeof path, "tests/data/hf/%s.json", p->file);
        json_t *config = hf_json_file(path, NULL);
        struct hf_case c;
        if (hf_case_make(&c, config)) fail_msg("%s: %s", p->file, c.err.text);
        assert_string_equal(c.model.arch, p->arch);
        for (size_t k = 0; k < N_PUBLISHED_KEYS; k++)
            if (hf_value(&c, published_keys[k]) != (double)(float)p->values[k])
                fail_msg("%s: %s is %g, expected %g", p->file, published_keys[k],
                         hf_value(&c, published_keys[k]), p->values[k]);
        int n_shared = 0;
        for (int64_t l = 0; l < c.model.n_layers && c.model.full; l++) n_shared += !c.model.full[l];
        assert_int_equal(n_shared, p->n_shared_layers);
        assert_int_equal(hf_key(&c, "attention.indexer.types") != NULL, n_shared > 0);
        // The engine's reader takes the header, and makes the makers' softmax scale of it: YaRN's
        // m^2 / sqrt(key width), m = 1 + 0.1 mscale_all_dim ln(factor).
        snprintf(vocab, sizeof vocab, "%s.vocab_size", c.model.arch);
        double log_multiplier = p->values[LOG_MULTIPLIER];
        double m = log_multiplier > 0 ? 1 + log_multiplier * log(p->values[YARN]) : 1;
        double softmax_scale = m * m / sqrt(p->key_width);
        struct lp_hparams h;
        if (lp_gguf_find(c.gguf, vocab)) {
            if (lp_hparams_read(&h, c.gguf, &c.err)) fail_msg("%s: %s", p->file, c.err.text);
            assert_true(fabs(h.attn_scale - softmax_scale) < 1e-6 * softmax_scale);
            assert_int_equal(h.n_vocab, c.model.n_vocab);
        }
        hf_case_release(&c);
        json_decref(config);
    }
}

// The schedule of shared layers in three spellings.
static void schedules_agree(void **state) {
    (void)state;
    static const char *const spellings[] = {
        "{\"indexer_types\": [\"full\", \"full\", \"full\", \"shared\", \"shared\", \"shared\","
        " \"full\", \"shared\"]}",
        "{\"index_topk_pattern\": \"FFFSSSFS\"}",
        "{\"index_topk_freq\": 4, \"index_skip_topk_offset\": 3}",
        "{\"index_topk_pattern\": [\"full\", \"full\", \"full\", \"shared\", \"shared\","
        " \"shared\", \"full\", \"shared\", \"full\"], \"num_nextn_predict_layers\": 1}",
    };
    for (size_t i = 0; i < sizeof spellings / sizeof spellings[0]; i++) {
        json_t *config = hf_json("{\"model_type\": \"glm_moe_dsa\", \"num_hidden_layers\": 8}");
        hf_patch(config, spellings[i]);
        struct hf_case c;
        if (hf_case_make(&c, config)) fail_msg("%s", c.err.text);
        for (int l = 0; l < 8; l++) assert_int_equal(c.model.full[l], "FFFSSSFS"[l] == 'F');
        assert_int_equal(hf_key(&c, "attention.indexer.types")->count, 8);
        hf_case_release(&c);
        json_decref(config);
    }
}

static void general_keys(void **state) {
    (void)state;
    static const struct {
        const char *config, *path, *folder, *name;
    } rows[] = {
        {"{}", "x/GLM-5", "GLM-5", "GLM-5"},
        {"{\"_name_or_path\": \"zai-org/GLM-5.2\"}", "x/y", "y", "GLM-5.2"},
        {"{\"_name_or_path\": \"/data/run/step-100\"}", "x/y", "y", "y"},
        {"{\"_name_or_path\": \"./ckpt\"}", "x/y", "y", "y"},
        {"{}", "/c/hub/models--zai-org--GLM-5/snapshots/abc", "abc", "GLM-5"},
        {"{}", "/c/hub/models--gpt/snapshots/abc", "abc", "gpt"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct hf_case c;
        struct lp_hf_folder folder = {
            .path = (char *)rows[i].path,
            .name = (char *)rows[i].folder,
            .config = hf_json("{\"model_type\": \"llama\"}"),
            .generation_config = hf_json("{\"temperature\": 0.6, \"top_p\": 0.95, \"top_k\": 40,"
                                         "\"eos_token_id\": [1, 2], \"do_sample\": true}")};
        hf_patch(folder.config, rows[i].config);
        assert_int_equal(hf_case_folder(&c, &folder), LP_OK);
        struct lp_str name;
        float temp = 0, top_p = 0;
        assert_int_equal(lp_gguf_get_str(c.gguf, "general.name", &name, NULL, &c.err), LP_OK);
        assert_true(lp_str_is(name, rows[i].name));
        assert_true(lp_str_is(lp_gguf_kv_at(c.gguf, 0)->key, "general.architecture"));
        lp_gguf_get_f32(c.gguf, "general.sampling.temp", &temp, NULL, &c.err);
        lp_gguf_get_f32(c.gguf, "general.sampling.top_p", &top_p, NULL, &c.err);
        assert_true(temp == 0.6f && top_p == 0.95f);
        assert_int_equal(lp_gguf_find(c.gguf, "general.sampling.top_k")->type, LP_GGUF_I32);
        assert_null(lp_gguf_find(c.gguf, "general.sampling.min_p"));
        hf_case_release(&c);
        json_decref(folder.config);
        json_decref(folder.generation_config);
    }
}

static const char *const nextn_names[] = {"model.layers.2.enorm.weight",
                                          "language_model.model.layers.2.enorm.weight"};

// Layers that config.json counts and the weights lack are none.
static void nextn_is_what_the_weights_have(void **state) {
    (void)state;
    static const struct {
        const char *said;
        int name; // of nextn_names, or -1
        int expected;
    } rows[] = {{"{\"num_nextn_predict_layers\": 1}", 0, 1},
                {"{\"num_nextn_predict_layers\": 1}", 1, 1},
                {"{\"num_nextn_predict_layers\": 1}", -1, 0},
                {"{\"num_nextn_predict_layers\": 0}", 0, 0},
                {"{}", 0, 1},
                {"{\"num_mtp_layers\": 3}", 0, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char file[160] = {0};
        const char *name = rows[i].name < 0 ? "model.norm.weight" : nextn_names[rows[i].name];
        int n = snprintf(file + 8, sizeof file - 8,
                         "{\"%s\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", name);
        file[0] = (char)n;
        struct lp_hf_folder folder = {
            .path = "x", .name = "x", .config = hf_json("{\"num_hidden_layers\": 2}")};
        struct hf_case c;
        hf_patch(folder.config, "{\"model_type\": \"deepseek_v3\"}");
        hf_patch(folder.config, rows[i].said);
        if (lp_safetensors_parse(&folder.weights, file, 8 + (uint64_t)n + 4, "x", &c.err))
            fail_msg("%s", c.err.text);
        assert_int_equal(hf_case_folder(&c, &folder), LP_OK);
        assert_int_equal(c.model.n_nextn, rows[i].expected);
        assert_int_equal((int)hf_value(&c, "block_count"), 2 + rows[i].expected);
        assert_int_equal((int)hf_value(&c, "nextn_predict_layers"), rows[i].expected ? 1 : -1);
        hf_case_release(&c);
        lp_safetensors_close(folder.weights);
        json_decref(folder.config);
    }
}

static void memory_failures_are_clean(void **state) {
    (void)state;
    json_t *config = hf_json_file("tests/data/hf/GLM-5.2.json", NULL);
    struct lp_hf_folder folder = {.path = "x", .name = "x", .config = config};
    bool done = false;
    for (size_t n = 1; !done && n < 2000; n++) {
        struct lp_gguf_writer *w = lp_gguf_writer_new(3);
        struct lp_hf_model model;
        struct lp_err err;
        lp_alloc_fail_after(n);
        lp_status status = lp_hf_config(&model, w, &folder, &err);
        if (!status) status = lp_gguf_writer_finish(w, &err);
        lp_alloc_fail_after(0);
        assert_true(status == LP_OK || status == LP_STATUS_MEMORY);
        done = status == LP_OK;
        lp_hf_model_release(&model);
        lp_gguf_writer_free(w);
    }
    assert_true(done);
    json_decref(config);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goldens_have_these_keys),
        cmocka_unit_test(mini_has_these_keys),
        cmocka_unit_test(defaults_are_transformers),
        cmocka_unit_test(published_models_are_what_they_are),
        cmocka_unit_test(schedules_agree),
        cmocka_unit_test(general_keys),
        cmocka_unit_test(nextn_is_what_the_weights_have),
        cmocka_unit_test(memory_failures_are_clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
