// The keys are those of docs/cli.md; jansson reads what was written.
#include "lp_test.h"

#include <jansson.h>

#include "report_fake.h"

static json_t *written(struct lp_report *r) {
    struct lp_bytes text = {0};
    json_error_t at;
    assert_non_null(r);
    assert_int_equal(lp_report_close(r, NULL), LP_OK);
    assert_true(lp_report_json(r, &text));
    json_t *root = json_loadb(text.data, text.len, JSON_REJECT_DUPLICATES, &at);
    if (!root) fail_msg("%s", at.text);
    lp_bytes_release(&text);
    lp_report_free(r);
    return root;
}

static const char *text_of(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

static void faults_have_check_layer_op_and_advice(void **state) {
    (void)state;
    json_t *root = written(fake_ill());
    assert_true(json_is_false(json_object_get(root, "healthy")));
    assert_non_null(strstr(text_of(root, "verdict"), "blk.3.attn_k_b.weight looks transposed"));
    json_t *faults = json_object_get(root, "faults"), *follows = json_object_get(root, "follows");
    assert_int_equal(json_array_size(faults), 2);
    json_t *first = json_array_get(faults, 0), *second = json_array_get(faults, 1);
    assert_string_equal(text_of(first, "check"), "k_b and v_b against kv_b");
    assert_string_equal(text_of(first, "stage"), "weights");
    assert_int_equal(json_integer_value(json_object_get(first, "layer")), 3);
    assert_string_equal(text_of(first, "op"), "blk.3.attn_k_b.weight");
    assert_string_equal(text_of(first, "kind"), "tensor");
    assert_non_null(strstr(text_of(first, "advice"), "Convert the file again"));
    assert_string_equal(text_of(second, "op"), "mla_absorbed");
    assert_string_equal(text_of(second, "kind"), "operation");
    assert_int_equal(json_array_size(follows), 1);
    assert_true(json_is_null(json_object_get(json_array_get(follows, 0), "layer")));
    json_decref(root);
}

static void checks_have_name_figure_bound_and_ok(void **state) {
    (void)state;
    json_t *root = written(fake_ill()), *checks = json_object_get(root, "checks"), *check;
    size_t i, n_bad = 0;
    assert_int_equal(json_array_size(checks), 9);
    json_array_foreach(checks, i, check) {
        bool ok = json_is_true(json_object_get(check, "ok"));
        const char *outcome = text_of(check, "outcome");
        assert_int_equal(ok, strcmp(outcome, "fault") != 0 && strcmp(outcome, "follows") != 0);
        assert_non_null(text_of(check, "stage"));
        assert_non_null(text_of(check, "text"));
        assert_true(json_is_real(json_object_get(check, "seconds")));
        n_bad += !ok;
    }
    assert_int_equal(n_bad, 3);
    check = json_array_get(checks, 0);
    assert_string_equal(text_of(check, "name"), "tensors bound");
    assert_string_equal(text_of(check, "figure"), "1,809 of 1,809");
    assert_string_equal(text_of(check, "bound"), "all");
    assert_true(json_real_value(json_object_get(check, "value")) == 1809);
    check = json_array_get(checks, 1);
    assert_true(json_is_null(json_object_get(check, "limit")));
    json_decref(root);
}

static void the_rest_says_what_was_examined(void **state) {
    (void)state;
    json_t *root = written(fake_healthy()), *series = json_object_get(root, "series");
    assert_true(json_is_true(json_object_get(root, "healthy")));
    assert_int_equal(json_array_size(json_object_get(root, "faults")), 0);
    assert_int_equal(json_array_size(json_object_get(root, "follows")), 0);
    assert_string_equal(text_of(root, "model"), "glm-dsa, 78 layers, Q8_0");
    assert_string_equal(text_of(root, "path"), "/models/glm-5.2-Q8_0-00001-of-00042.gguf");
    assert_true(json_is_false(json_object_get(root, "quick")));
    assert_true(json_real_value(json_object_get(root, "seconds")) == 171.4);
    assert_string_equal(text_of(root, "version"), LIMPID_VERSION);
    json_t *values = json_object_get(json_array_get(series, 0), "values");
    assert_int_equal(json_array_size(values), FAKE_LAYERS);
    assert_true(json_is_null(json_array_get(values, 40)));
    assert_true(json_is_real(json_array_get(values, 41)));
    assert_string_equal(text_of(json_array_get(series, 0), "x_label"), "layer");
    assert_true(json_is_true(json_object_get(json_array_get(series, 0), "log_y")));
    json_decref(root);
}

static void hostile_texts_and_numbers_are_json(void **state) {
    (void)state;
    json_t *root = written(fake_hostile());
    json_t *check = json_array_get(json_object_get(root, "checks"), 0);
    assert_true(json_is_null(json_object_get(check, "value")));
    assert_true(json_is_null(json_object_get(check, "limit")));
    assert_non_null(strstr(text_of(check, "name"), "<script>"));
    assert_null(strchr(text_of(check, "name"), 0x1b));
    assert_int_equal(json_array_size(json_object_get(root, "series")), 9);
    json_decref(root);
}

static void kinds(void **state) {
    (void)state;
    static const struct {
        const char *what, *kind;
        enum lp_stage stage;
    } rows[] = {
        // what is found first explains what comes later, which then stands elsewhere
        {"attn.scores", "operation", LP_STAGE_AGAINST},
        {"<|user|>", "token", LP_STAGE_TOKENS},
        {"blk.0.ffn_gate_exps.weight", "tensor", LP_STAGE_FILE},
        {"output_norm.weight", "tensor", LP_STAGE_FILE},
        {"blk.7.exp_probs_b.bias", "tensor", LP_STAGE_FILE},
        {"tokenizer.ggml.pre", "key", LP_STAGE_FILE},
        {"glm-dsa.rope.freq_base", "key", LP_STAGE_FILE},
        {"general.architecture", "key", LP_STAGE_FILE},
        {"/models/x-00001-of-00002.gguf", "file", LP_STAGE_FILE},
        {"x-00001-of-00002.gguf", "file", LP_STAGE_FILE},
        {"deepseek2.rope.freq_base", "key", LP_STAGE_FILE},
        {"mla_absorbed", "operation", LP_STAGE_LAYERS},
    };
    size_t n = sizeof rows / sizeof rows[0];
    struct lp_report *r = lp_report_new("x", true);
    fake_model(r, "glm-dsa, 5 layers, Q8_0");
    for (size_t i = 0; i < n; i++) lp_report_fault(r, rows[i].stage, "c", -1, rows[i].what, "a");
    json_t *root = written(r), *faults = json_object_get(root, "faults");
    for (size_t i = 0; i < n; i++)
        assert_string_equal(text_of(json_array_get(faults, i), "kind"), rows[i].kind);
    json_decref(root);
}

static void without_memory_it_says_so(void **state) {
    (void)state;
    struct lp_report *r = fake_ill();
    bool ok = false;
    assert_int_equal(lp_report_close(r, NULL), LP_OK);
    for (size_t n = 1; !ok; n++) {
        struct lp_bytes text = {0};
        assert_true(n < 1000);
        lp_alloc_fail_after(n);
        ok = lp_report_json(r, &text);
        lp_alloc_fail_after(0);
        lp_bytes_release(&text);
    }
    lp_report_free(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults_have_check_layer_op_and_advice),
        cmocka_unit_test(checks_have_name_figure_bound_and_ok),
        cmocka_unit_test(the_rest_says_what_was_examined),
        cmocka_unit_test(hostile_texts_and_numbers_are_json),
        cmocka_unit_test(kinds),
        cmocka_unit_test(without_memory_it_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
