// JSON that is always valid: text of any bytes, numbers of any value.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>

#include "serve/json_out.h"

static void ill_formed_text_becomes_replacement_characters(void **state) {
    (void)state;
    // As Python's errors="replace" has it.
    static const struct {
        const char *in;
        size_t n;
        const char *out;
    } rows[] = {{"", 0, ""},
                {"a\xE2\x82\xAC", 4, "a\xE2\x82\xAC"},
                {"\xFFz", 2, "\xEF\xBF\xBDz"},
                {"\xE2\x82", 2, "\xEF\xBF\xBD"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        json_t *j = lp_json_text((struct lp_str){rows[i].in, rows[i].n});
        assert_string_equal(json_string_value(j), rows[i].out);
        json_decref(j);
    }
    json_t *nul = lp_json_text((struct lp_str){"a\0b", 3});
    assert_int_equal(json_string_length(nul), 3);
    json_decref(nul);
}

static void numbers_are_finite_and_keep_float32(void **state) {
    (void)state;
    const double in[] = {-INFINITY, INFINITY, NAN, -1e30, -0.1f, 0};
    const double out[] = {-9999, -9999, -9999, -9999, -0.1f, 0};
    for (size_t i = 0; i < sizeof in / sizeof in[0]; i++) {
        json_t *j = lp_json_logprob(in[i]);
        assert_true(json_real_value(j) == out[i]);
        json_decref(j);
    }
    struct lp_bytes text = {0};
    json_t *list = json_pack("[o]", lp_json_logprob(-0.1f));
    assert_true(lp_json_dump(&text, list));
    assert_string_equal(text.data, "[-0.100000001]"); // 9 digits: reads back as the same float32
    json_decref(list);
    lp_bytes_release(&text);
}

static void dumps(json_t *value, const char *expected) {
    struct lp_bytes text = {0};
    assert_true(lp_json_dump(&text, value));
    assert_string_equal(text.data, expected);
    json_decref(value);
    lp_bytes_release(&text);
}

// Shortest forms as Python's repr() has them, but for float32 values.
static void values_read_back_the_same(void **state) {
    (void)state;
    dumps(json_pack("[f, f, f, f, f]", 3.14159265358979, 0.1, 1.0, 1e300, 0.5),
          "[3.14159265358979,0.1,1.0,1e+300,0.5]");
    dumps(json_pack("{s:[], s:{}, s:n, s:b, s:I}", "a", "b", "c", "d", 1, "e",
                    (json_int_t)9007199254740993),
          "{\"a\":[],\"b\":{},\"c\":null,\"d\":true,\"e\":9007199254740993}");
    dumps(json_pack("{s:s}", "quote \" and\n", "\x01\xC3\xA9"),
          "{\"quote \\\" and\\n\":\"\\u0001\xC3\xA9\"}");
}

static void a_full_buffer_is_reported(void **state) {
    (void)state;
    struct lp_bytes text = {.max_bytes = 8};
    json_t *list = json_pack("[s]", "longer than eight bytes");
    assert_false(lp_json_dump(&text, list));
    json_decref(list);
    lp_bytes_release(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ill_formed_text_becomes_replacement_characters),
        cmocka_unit_test(numbers_are_finite_and_keep_float32),
        cmocka_unit_test(values_read_back_the_same), cmocka_unit_test(a_full_buffer_is_reported)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
