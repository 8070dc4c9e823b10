// The stage as a whole on the mini model: sound, and with damage planted.
#include "weight_case.h"

static void check(void) {
    struct lp_err err = {0};
    assert_int_equal(lp_check_weights(&case_exam, &err), LP_OK);
}

static void sound_models_pass(void **state) {
    (void)state;
    static const char *const paths[] = {CASE_MINI, "tests/golden/dsa_shared.gguf",
                                        "tests/golden/ds2_lite.gguf", "tests/golden/qwen2.gguf"};
    for (size_t i = 0; i < 8; i++) {
        case_open(paths[i / 2]);
        case_options.quick = i % 2;
        check();
        assert_int_equal(case_exam.report->n_faults, 0);
        assert_int_equal(case_exam.n_suspects, 0);
        assert_false(case_exam.weights_bad);
        assert_int_equal(case_exam.weights_random, i >= 2);
        case_close();
    }
}

static void expect_fault(const char *what, const char *advice) {
    check();
    const struct lp_fault *f = case_fault(what);
    assert_non_null(f);
    assert_non_null(strstr(f->advice, advice));
    assert_int_equal(case_exam.report->n_faults, 1);
    assert_int_equal(f->layer, lp_exam_layer_of(case_tensor(what)));
    case_close();
}

static void a_nan_is_named(void **state) {
    (void)state;
    const uint8_t nan16[2] = {0, 0x7e}, inf32[4] = {0, 0, 0x80, 0x7f};
    case_open(CASE_MINI); // row 21, block 28 of 32
    memcpy(case_data("blk.2.attn_output.weight") + (21 * 32 + 28) * 34, nan16, 2);
    check();
    assert_true(case_exam.weights_bad);
    const struct lp_fault *f = case_fault("blk.2.attn_output.weight");
    assert_non_null(f);
    assert_non_null(strstr(f->advice, "a block scale at row 21, column 896"));
    case_close();
    case_open(CASE_MINI);
    memcpy(case_data("blk.3.exp_probs_b.bias") + 4 * 5, inf32, 4);
    check();
    assert_true(case_exam.weights_bad);
    assert_non_null(case_fault("blk.3.exp_probs_b.bias"));
    case_close();
}

static void an_empty_expert_is_named(void **state) {
    (void)state;
    size_t n = 256 * 256 / 32 * 34;
    case_open(CASE_MINI);
    memset(case_data("blk.2.ffn_down_exps.weight") + 4 * n, 0, n);
    expect_fault("blk.2.ffn_down_exps.weight", "matrix 4 (expert or head) is all zero (1 of 8");
}

static void an_empty_norm_is_named(void **state) {
    (void)state;
    case_open(CASE_MINI);
    memset(case_data("blk.1.ffn_norm.weight"), 0, 1024);
    expect_fault("blk.1.ffn_norm.weight", "is all zero");
}

static void a_zeroed_page_is_named(void **state) {
    (void)state;
    case_open(CASE_MINI);
    memset(case_data("blk.1.attn_output.weight") + 40960, 0, 4096);
    expect_fault("blk.1.attn_output.weight", "zero for");
}

// 4 KiB of noise without NaN: scales of any size.
static void a_damaged_page_is_named(void **state) {
    (void)state;
    uint32_t x = 1;
    case_open(CASE_MINI);
    uint8_t *d = case_data("blk.1.ffn_up_exps.weight") + 34 * 3000;
    for (int i = 0; i < 4096; i++) {
        x = x * 1664525 + 1013904223;
        d[i] = (uint8_t)(x >> 24);
        if (i % 34 == 1 && (d[i] & 0x7c) == 0x7c) d[i] &= 0xbf;
    }
    expect_fault("blk.1.ffn_up_exps.weight", "bytes of the file are damaged");
}

static void a_negative_norm_is_suspected(void **state) {
    (void)state;
    case_open(CASE_MINI);
    uint8_t *d = case_data("blk.2.ffn_norm.weight");
    for (int i = 0; i < 256; i++) d[4 * i + 3] ^= 0x80;
    check();
    assert_true(case_only_suspect(LP_SUSPECT_SIGN, "blk.2.ffn_norm.weight")->certain);
    case_close();
}

static void an_unknown_size_leaves_the_plain_checks(void **state) {
    (void)state;
    case_open(CASE_MINI);
    case_exam.has_hparams = false;
    check();
    assert_int_equal(case_exam.report->n_faults, 0);
    assert_int_equal(case_exam.n_suspects, 0);
    case_close();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sound_models_pass),
        cmocka_unit_test(a_nan_is_named),
        cmocka_unit_test(an_empty_expert_is_named),
        cmocka_unit_test(an_empty_norm_is_named),
        cmocka_unit_test(a_zeroed_page_is_named),
        cmocka_unit_test(a_damaged_page_is_named),
        cmocka_unit_test(a_negative_norm_is_suspected),
        cmocka_unit_test(an_unknown_size_leaves_the_plain_checks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
