// The ranges are those of docs/sampling.md.
#include "lp_test.h"

#include "cli/sample_options.h"

static void set(struct lp_sampling *s, const char *name, const char *value, bool good) {
    struct lp_err err = {0};
    lp_status status = lp_sampling_set(s, name, value, &err);
    if ((status == LP_OK) != good) fail_msg("%s %s: %s", name, value, err.text);
    if (!good) assert_non_null(strstr(err.text, name));
}

static void ranges(void **state) {
    (void)state;
    static const struct {
        const char *name, *good[3], *bad[4];
    } rows[] = {
        {"temperature", {"0", "1e0", "100"}, {"-0.1", "100.1", "nan", "1x"}},
        {"top_p", {"1", "0.01", "0.5"}, {"0", "1.01", "inf", ""}},
        {"top_k", {"0", "40", "2147483647"}, {"-1", "2147483648", "1.5", "x"}},
        {"min_p", {"0", "1", "0.05"}, {"-0.1", "1.1", "-inf", " "}},
        {"repetition_penalty", {"0.1", "1", "10"}, {"0", "10.1", "-1", "a"}},
        {"presence_penalty", {"-2", "0", "2"}, {"-2.1", "2.1", "nan", "a"}},
        {"frequency_penalty", {"-2", "0", "2"}, {"-2.1", "2.1", "nan", "a"}},
        {"max_tokens", {"0", "1", "100000"}, {"-1", "1e3", "99999999999999999999", "a"}},
        {"seed", {"0", "1", "9223372036854775807"}, {"-1", "9223372036854775808", "0x1", "a"}},
    };
    struct lp_sampling s = lp_sampling_defaults();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (size_t k = 0; k < 3; k++) set(&s, rows[i].name, rows[i].good[k], true);
        for (size_t k = 0; k < 4; k++) set(&s, rows[i].name, rows[i].bad[k], false);
    }
    set(&s, "colour", "1", false);
    assert_true(s.temperature == 100 && s.top_p == 0.5 && s.seed == INT64_MAX);
    limpid_request_options o = limpid_request_default_options();
    lp_sampling_apply(&s, 10, &o);
    assert_true(o.temperature == 100 && o.top_k == INT32_MAX && o.max_tokens == 100000);
    assert_true(o.seed == (uint64_t)INT64_MAX && o.frequency_penalty == 2);
}

static void defaults_are_off(void **state) {
    (void)state;
    struct lp_sampling s = lp_sampling_defaults();
    limpid_request_options o = limpid_request_default_options();
    lp_sampling_apply(&s, 10, &o);
    assert_true(o.temperature == 0 && o.top_p == 1 && o.min_p == 0 && o.top_k == 0);
    assert_true(o.repetition_penalty == 1 && o.presence_penalty == 0 && o.frequency_penalty == 0);
    assert_int_equal(o.max_tokens, 10); // what the context has left
    lp_sampling_apply(&s, -5, &o);
    assert_int_equal(o.max_tokens, 1);
    assert_int_equal(lp_sampling_check(&s, &lp_cmd_run), LP_EXIT_OK);
    s.min_p = 2;
    assert_int_equal(lp_sampling_check(&s, &lp_cmd_run), LP_EXIT_USAGE);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranges),
                                       cmocka_unit_test(defaults_are_off)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
