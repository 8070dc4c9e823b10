// Tokens of answers are hidden from those who may only see what was decided.
#include "lp_test.h"

#include <jansson.h>

#include "serve/debug_trace.h"

static void ids_of_tokens_are_blanked(void **state) {
    (void)state;
    char lines[] =
        "{\"event\":\"step\",\"time_us\":1,\"thread\":1,\"step\":3,\"token\":5}\n"
        "{\"event\":\"token\",\"time_us\":1,\"thread\":1,\"step\":3,\"position\":7,\"token\":1234,"
        "\"logprob\":null,\"rank\":-1}\n"
        "{\"event\":\"token\",\"time_us\":1,\"thread\":1,\"token\":98}\n"
        "{\"event\":\"token\",\"time_us\":2}\n"
        "{\"event\":\"token\",\"token\":7";
    size_t n = strlen(lines);
    lp_debug_trace_hide_tokens(lines, n);
    assert_int_equal(strlen(lines), n);
    assert_null(strstr(lines, "1234"));
    assert_null(strstr(lines, "98"));
    assert_null(strstr(lines, ":7\n"));
    assert_non_null(strstr(lines, "\"token\":5}")); // another event's
    char *second = strchr(lines, '\n') + 1;
    json_t *token = json_loadb(second, (size_t)(strchr(second, '\n') - second), 0, NULL);
    assert_non_null(token);
    assert_int_equal(json_integer_value(json_object_get(token, "position")), 7);
    assert_int_equal(json_integer_value(json_object_get(token, "rank")), -1);
    assert_null(json_object_get(token, "token"));
    json_decref(token);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(ids_of_tokens_are_blanked)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
