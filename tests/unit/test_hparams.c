#include "lp_test.h"

#include <math.h>

#include "gguf_build.h"
#include "model/hparams.h"

struct entry {
    const char *key;
    int type; // GB_U32, GB_F32, GB_STR, GB_BOOL, or 0 = leave out
    double number;
    const char *text;
};

static const struct entry glm5[] = {
    {"block_count", GB_U32, 79, 0},
    {"context_length", GB_U32, 202752, 0},
    {"embedding_length", GB_U32, 6144, 0},
    {"feed_forward_length", GB_U32, 12288, 0},
    {"vocab_size", GB_U32, 154880, 0},
    {"attention.head_count", GB_U32, 64, 0},
    {"attention.head_count_kv", GB_U32, 1, 0},
    {"attention.key_length", GB_U32, 576, 0},
    {"attention.value_length", GB_U32, 512, 0},
    {"attention.key_length_mla", GB_U32, 256, 0},
    {"attention.value_length_mla", GB_U32, 256, 0},
    {"attention.q_lora_rank", GB_U32, 2048, 0},
    {"attention.kv_lora_rank", GB_U32, 512, 0},
    {"attention.layer_norm_rms_epsilon", GB_F32, 1e-5, 0},
    {"attention.indexer.head_count", GB_U32, 32, 0},
    {"attention.indexer.key_length", GB_U32, 128, 0},
    {"attention.indexer.top_k", GB_U32, 2048, 0},
    {"rope.dimension_count", GB_U32, 64, 0},
    {"rope.freq_base", GB_F32, 1e6, 0},
    {"expert_count", GB_U32, 256, 0},
    {"expert_used_count", GB_U32, 8, 0},
    {"expert_shared_count", GB_U32, 1, 0},
    {"expert_feed_forward_length", GB_U32, 2048, 0},
    {"expert_group_count", GB_U32, 1, 0},
    {"expert_group_used_count", GB_U32, 1, 0},
    {"expert_gating_func", GB_U32, 2, 0},
    {"expert_weights_norm", GB_BOOL, 1, 0},
    {"expert_weights_scale", GB_F32, 2.5, 0},
    {"leading_dense_block_count", GB_U32, 3, 0},
    {"nextn_predict_layers", GB_U32, 1, 0},
};
#define N_GLM5 (sizeof glm5 / sizeof glm5[0])

static void put(struct lp_bytes *b, const char *arch, const struct entry *e) {
    char key[128];
    snprintf(key, sizeof key, "%s.%s", arch, e->key);
    if (e->type == GB_STR)
        gb_kv_str(b, key, e->text);
    else if (e->type == GB_F32) {
        float f = (float)e->number;
        gb_kv_raw(b, key, GB_F32, &f, 4);
    } else if (e->type == GB_BOOL) {
        uint8_t v = e->number != 0;
        gb_kv_raw(b, key, GB_BOOL, &v, 1);
    } else
        gb_kv_u32(b, key, (uint32_t)e->number);
}

// Reads the base set with some entries changed, added or (type 0) left out.
static lp_status read_with(const char *arch, const struct entry *base, size_t n_base,
                           const struct entry *changes, size_t n_changes, struct lp_hparams *h,
                           struct lp_err *err) {
    struct lp_bytes body = {0}, image = {0};
    struct lp_gguf *gguf;
    uint64_t n = 1;
    gb_kv_str(&body, "general.architecture", arch);
    for (size_t i = 0; i < n_base; i++) {
        bool changed = false;
        for (size_t c = 0; c < n_changes; c++)
            changed = changed || strcmp(changes[c].key, base[i].key) == 0;
        if (changed) continue;
        put(&body, arch, &base[i]);
        n++;
    }
    for (size_t c = 0; c < n_changes; c++)
        if (changes[c].type) {
            put(&body, arch, &changes[c]);
            n++;
        }
    gb_header(&image, 3, 0, n);
    lp_bytes_append(&image, body.data, body.len);
    assert_int_equal(lp_gguf_parse(&gguf, (const uint8_t *)image.data, image.len, "test", err),
                     LP_OK);
    lp_status status = lp_hparams_read(h, gguf, err);
    lp_gguf_close(gguf);
    lp_bytes_release(&body);
    lp_bytes_release(&image);
    return status;
}

static const char *source_of(const struct lp_hparams *h, const char *name) {
    for (int32_t i = 0; i < h->n_facts; i++)
        if (strcmp(h->facts[i].name, name) == 0) return h->facts[i].source;
    return "";
}

static void glm5_is_read(void **state) {
    (void)state;
    static struct lp_hparams h;
    struct lp_err err;
    assert_int_equal(read_with("glm-dsa", glm5, N_GLM5, NULL, 0, &h, &err), LP_OK);
    assert_int_equal(h.n_layers, 78);
    assert_int_equal(h.nope, 192);
    assert_int_equal(h.v_dim, 256);
    assert_int_equal(h.latent, 512);
    assert_true(h.attn_scale == 0.0625f); // 256^-1/2, not 576^-1/2
    assert_int_equal(h.gating, LP_GATING_SIGMOID);
    assert_true(h.expert_scale == 2.5f && h.normalise);
    for (int l = 0; l < 78; l++)
        assert_int_equal(h.index_role[l], LP_INDEXER_FULL); // GLM-5: every layer is full
    assert_string_equal(source_of(&h, "expert_gating_func"), "file");
    assert_true(h.index_eps == 1e-6f);
}

static void glm52_shares_by_its_shape(void **state) {
    (void)state;
    static struct lp_hparams h;
    struct lp_err err;
    const struct entry change[] = {{"context_length", GB_U32, 1048576, 0},
                                   {"rope.freq_base", GB_F32, 8e6, 0}};
    assert_int_equal(read_with("glm-dsa", glm5, N_GLM5, change, 2, &h, &err), LP_OK);
    int n_full = 0;
    for (int l = 0; l < 78; l++) { // the released list: 0, 1, 2, then every fourth from 6
        bool full = l < 3 || (l >= 6 && l % 4 == 2);
        assert_int_equal(h.index_role[l], full ? LP_INDEXER_FULL : LP_INDEXER_SHARED);
        n_full += full;
    }
    assert_int_equal(n_full, 21);
}

static void missing_gating_follows_a_rule_that_is_recorded(void **state) {
    (void)state;
    static struct lp_hparams h;
    struct lp_err err;
    const struct entry change[] = {{"expert_gating_func", 0, 0, 0}};
    assert_int_equal(read_with("glm-dsa", glm5, N_GLM5, change, 1, &h, &err), LP_OK);
    assert_int_equal(h.gating, LP_GATING_SIGMOID);
    assert_string_not_equal(source_of(&h, "expert_gating_func"), "file");
    assert_string_not_equal(source_of(&h, "expert_gating_func"), "");
}

static void yarn_of_deepseek_v3(void **state) {
    (void)state;
    static struct lp_hparams h;
    struct lp_err err;
    const struct entry change[] = {{"rope.scaling.type", GB_STR, 0, "yarn"},
                                   {"rope.scaling.factor", GB_F32, 40, 0},
                                   {"rope.scaling.original_context_length", GB_U32, 4096, 0},
                                   {"rope.scaling.yarn_log_multiplier", GB_F32, 0.1, 0},
                                   {"rope.freq_base", GB_F32, 10000, 0},
                                   {"attention.key_length_mla", GB_U32, 192, 0}};
    assert_int_equal(read_with("glm-dsa", glm5, N_GLM5, change, 6, &h, &err), LP_OK);
    // m = 1.36889, m^2 = 1.87386 for V3
    assert_true(fabs(h.attn_scale - 1.87386 / sqrt(192.0)) < 1e-6);
    assert_true(h.rope_magnitude == 1.0f);
    float f[32];
    lp_hparams_inv_freq(&h, NULL, f);
    // correction range by the formula: low = floor(64 ln(4096/(32 2 pi)) / (2 ln 1e4)) = 10,
    // high = ceil(64 ln(4096/(2 pi)) / (2 ln 1e4)) = 23
    for (int i = 0; i < 32; i++) {
        double inverse = pow(10000.0, -i / 32.0), ramp = fmin(1, fmax(0, (i - 10) / 13.0));
        double expected = inverse * (1 - ramp) + inverse / 40 * ramp;
        assert_true(fabs(f[i] / expected - 1) < 1e-6);
    }
}

static void linear_scaling_and_divisors(void **state) {
    (void)state;
    static struct lp_hparams h;
    struct lp_err err;
    const struct entry change[] = {{"rope.scaling.type", GB_STR, 0, "linear"},
                                   {"rope.scaling.factor", GB_F32, 4, 0}};
    float f[32], divisors[32];
    assert_int_equal(read_with("glm-dsa", glm5, N_GLM5, change, 2, &h, &err), LP_OK);
    for (int i = 0; i < 32; i++) divisors[i] = 1.0f + (float)i;
    lp_hparams_inv_freq(&h, divisors, f);
    for (int i = 0; i < 32; i++)
        assert_true(fabs(f[i] / (pow(1e6, -i / 32.0) / (1.0 + i) / 4) - 1) < 1e-6);
}

static void what_is_needed_is_named_when_missing(void **state) {
    (void)state;
    static struct lp_hparams h;
    static const char *const needed[] = {"block_count",
                                         "context_length",
                                         "embedding_length",
                                         "feed_forward_length",
                                         "attention.head_count",
                                         "attention.kv_lora_rank",
                                         "attention.key_length_mla",
                                         "attention.value_length_mla",
                                         "attention.q_lora_rank",
                                         "attention.layer_norm_rms_epsilon",
                                         "attention.indexer.head_count",
                                         "attention.indexer.key_length",
                                         "attention.indexer.top_k",
                                         "rope.dimension_count",
                                         "expert_used_count",
                                         "expert_feed_forward_length"};
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        struct lp_err err = {0};
        const struct entry change[] = {{needed[i], 0, 0, 0}};
        assert_int_equal(read_with("glm-dsa", glm5, N_GLM5, change, 1, &h, &err), LP_STATUS_FORMAT);
        assert_non_null(strstr(err.text, needed[i]));
    }
}

static void absurd_values_are_named(void **state) {
    (void)state;
    static struct lp_hparams h;
    static const struct entry bad[] = {{"block_count", GB_U32, 0, 0},
                                       {"block_count", GB_U32, 513, 0},
                                       {"block_count", GB_U32, 2147483648.0, 0},
                                       {"expert_used_count", GB_U32, 257, 0},
                                       {"expert_used_count", GB_U32, 0, 0},
                                       {"nextn_predict_layers", GB_U32, 79, 0},
                                       {"attention.layer_norm_rms_epsilon", GB_F32, 0, 0},
                                       {"attention.layer_norm_rms_epsilon", GB_F32, NAN, 0},
                                       {"attention.layer_norm_rms_epsilon", GB_F32, -1e-5, 0},
                                       {"rope.freq_base", GB_F32, 0, 0},
                                       {"rope.freq_base", GB_F32, INFINITY, 0},
                                       {"context_length", GB_U32, 0, 0},
                                       {"expert_gating_func", GB_U32, 9, 0},
                                       {"attention.indexer.top_k", GB_U32, 0, 0},
                                       {"attention.indexer.top_k", GB_U32, 4294967295.0, 0},
                                       {"attention.head_count", GB_U32, 0, 0},
                                       {"attention.key_length_mla", GB_U32, 64, 0},
                                       {"attention.key_length", GB_U32, 575, 0},
                                       {"attention.value_length", GB_U32, 511, 0},
                                       {"rope.dimension_count", GB_U32, 63, 0},
                                       {"expert_group_count", GB_U32, 7, 0},
                                       {"leading_dense_block_count", GB_U32, 80, 0},
                                       {"attention.indexer.key_length", GB_U32, 32, 0},
                                       {"block_count", GB_STR, 0, "79"},
                                       {"expert_weights_norm", GB_U32, 1, 0},
                                       {"rope.scaling.type", GB_STR, 0, "longrope"},
                                       {"rope.scaling.factor", GB_F32, 4, 0},
                                       {"attention.sliding_window", GB_U32, 4096, 0},
                                       {"final_logit_softcapping", GB_F32, 30, 0}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct lp_err err = {0};
        lp_status status = read_with("glm-dsa", glm5, N_GLM5, &bad[i], 1, &h, &err);
        if (status != LP_STATUS_FORMAT && status != LP_STATUS_UNSUPPORTED)
            fail_msg("%s was accepted", bad[i].key);
        if (!strstr(err.text, bad[i].key)) fail_msg("%s is not named: %s", bad[i].key, err.text);
    }
}

static void unknown_architectures_are_refused_by_name(void **state) {
    (void)state;
    static struct lp_hparams h;
    struct lp_err err;
    assert_int_equal(read_with("glm5next", glm5, N_GLM5, NULL, 0, &h, &err), LP_STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.text, "glm5next"));
    assert_non_null(strstr(err.text, "glm-dsa"));
}

static void old_v3_files_get_their_groups(void **state) {
    (void)state;
    static struct lp_hparams h;
    struct lp_err err;
    const struct entry v3[] = {{"block_count", GB_U32, 61, 0},
                               {"embedding_length", GB_U32, 7168, 0},
                               {"expert_group_count", 0, 0, 0},
                               {"expert_group_used_count", 0, 0, 0},
                               {"nextn_predict_layers", 0, 0, 0}};
    assert_int_equal(read_with("deepseek2", glm5, N_GLM5, v3, 5, &h, &err), LP_OK);
    assert_int_equal(h.n_groups, 8);
    assert_int_equal(h.n_groups_used, 4);
    assert_string_not_equal(source_of(&h, "expert_group_count"), "file");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(glm5_is_read),
        cmocka_unit_test(glm52_shares_by_its_shape),
        cmocka_unit_test(missing_gating_follows_a_rule_that_is_recorded),
        cmocka_unit_test(yarn_of_deepseek_v3),
        cmocka_unit_test(linear_scaling_and_divisors),
        cmocka_unit_test(what_is_needed_is_named_when_missing),
        cmocka_unit_test(absurd_values_are_named),
        cmocka_unit_test(unknown_architectures_are_refused_by_name),
        cmocka_unit_test(old_v3_files_get_their_groups)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
