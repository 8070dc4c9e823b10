#include "lp_test.h"

#include <math.h>

#include "trace/trace_json.h"

static const char *line_of(enum lp_trace_kind kind, const void *event, size_t n_bytes) {
    static char line[LP_TRACE_JSON_BYTES + 1];
    struct lp_trace_record record = {.time_ns = 5000999, .thread = 77, .kind = kind};
    memcpy(record.payload, event, n_bytes);
    line[lp_trace_json(&record, 3000000, line)] = 0;
    return line;
}

static void fields_come_in_order_with_their_kinds(void **state) {
    (void)state;
    struct lp_trace_step step = {3, 17, 1, -1, 5, 640};
    assert_string_equal(
        line_of(LP_TRACE_KIND_step, &step, sizeof step),
        "{\"event\":\"step\",\"time_us\":2000,\"thread\":77,\"step\":3,\"n_tokens\":"
        "17,\"n_sequences\":1,\"duration_us\":-1,\"rows_sent\":5,\"bytes_sent\":640}\n");
    struct lp_trace_draft limits = {INT64_MIN, INT64_MAX, INT32_MIN, INT32_MAX};
    assert_string_equal(line_of(LP_TRACE_KIND_draft, &limits, sizeof limits),
                        "{\"event\":\"draft\",\"time_us\":2000,\"thread\":77,\"step\":"
                        "-9223372036854775808,\"sequence\":9223372036854775807,\"n_draft\":"
                        "-2147483648,\"n_accepted\":2147483647}\n");
    struct lp_trace_experts experts = {.experts = {.n = 3, .id = {255, 0, 17}}};
    assert_non_null(strstr(line_of(LP_TRACE_KIND_experts, &experts, sizeof experts),
                           "\"experts\":\"255 0 17\","));
}

static void texts_are_escaped_and_clean(void **state) {
    (void)state;
    struct lp_trace_kernel k = {"a\"b\\", "tab\there \x7f\xff", "\xc3\xa4\xe2\x82\xac"};
    assert_string_equal(
        line_of(LP_TRACE_KIND_kernel, &k, sizeof k),
        "{\"event\":\"kernel\",\"time_us\":2000,\"thread\":77,\"operation\":"
        "\"a\\\"b\\\\\",\"type\":\"tab?here ??\",\"kernel\":\"\xc3\xa4\xe2\x82\xac\"}\n");
    k.kernel = NULL;
    assert_non_null(strstr(line_of(LP_TRACE_KIND_kernel, &k, sizeof k), "\"kernel\":\"\"}"));
}

static void a_copied_text_is_cut_and_terminated(void **state) {
    (void)state;
    struct lp_trace_request request = {.what = "ended"};
    char longer[200], want[LP_TRACE_TEXT_BYTES];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    memset(want, 'x', sizeof want - 1);
    want[sizeof want - 1] = 0;
    lp_trace_copy(request.id, sizeof request.id, longer);
    assert_string_equal(request.id, want);
    const char *line = line_of(LP_TRACE_KIND_request, &request, sizeof request);
    assert_non_null(strstr(line, want));
    assert_null(strstr(line, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"));
    lp_trace_copy(request.id, sizeof request.id, NULL);
    assert_string_equal(request.id, "");
}

// Every text at its longest, all of it to be escaped: the line is whole.
static void the_longest_line_fits(void **state) {
    (void)state;
    static char quotes[5000];
    memset(quotes, '"', sizeof quotes - 1);
    struct lp_trace_model model = {
        .architecture = quotes, .path = quotes, .backend = quotes, .version = quotes};
    const char *line = line_of(LP_TRACE_KIND_model, &model, sizeof model);
    size_t n = strlen(line);
    assert_true(n < LP_TRACE_JSON_BYTES);
    assert_string_equal(line + n - 2, "}\n");
}

static double logprob_of(double value) {
    struct lp_trace_token token = {.logprob = value};
    const char *line = line_of(LP_TRACE_KIND_token, &token, sizeof token);
    return strtod(strstr(line, "\"logprob\":") + 10, NULL);
}

static void numbers_are_read_back(void **state) {
    (void)state;
    double values[] = {0,     1,   -1,          -0.5,         -12.25,
                       -1e-9, 0.1, -1234.56789, 999999999.75, -0.9999999996};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        assert_true(fabs(logprob_of(values[i]) - values[i]) <= 0.6e-9);
    for (double x = 1e9; x < 1e300; x *= 17.3) assert_true(fabs(logprob_of(-x) + x) <= 1e-8 * x);
    struct lp_trace_token bad[] = {{.logprob = NAN}, {.logprob = INFINITY}, {.logprob = -INFINITY}};
    for (size_t i = 0; i < 3; i++)
        assert_non_null(strstr(line_of(LP_TRACE_KIND_token, &bad[i], sizeof bad[i]),
                               "\"logprob\":null,\"rank\":0,"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(fields_come_in_order_with_their_kinds),
                                       cmocka_unit_test(texts_are_escaped_and_clean),
                                       cmocka_unit_test(a_copied_text_is_cut_and_terminated),
                                       cmocka_unit_test(the_longest_line_fits),
                                       cmocka_unit_test(numbers_are_read_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
