#include "lp_test.h"

#include "base/status.h"

static void text_and_code_are_set(void **state) {
    (void)state;
    struct lp_err err;
    assert_int_equal(lp_err_set(&err, LP_STATUS_FORMAT, "key %s is %d", "a.b", 7),
                     LP_STATUS_FORMAT);
    assert_int_equal(err.status, LP_STATUS_FORMAT);
    assert_string_equal(err.text, "key a.b is 7");
    assert_int_equal(lp_err_set(NULL, LP_STATUS_IO, "x"), LP_STATUS_IO);
}

static void control_bytes_do_not_reach_the_terminal(void **state) {
    (void)state;
    struct lp_err err;
    lp_err_set(&err, LP_STATUS_FORMAT, "name '%s'", "a\033[2J\nb\x7f");
    assert_string_equal(err.text, "name 'a?[2J?b?'");
}

static void context_goes_in_front(void **state) {
    (void)state;
    struct lp_err err;
    lp_err_set(&err, LP_STATUS_IO, "no such file");
    assert_int_equal(lp_err_context(&err, "opening %s", "x.gguf"), LP_STATUS_IO);
    assert_string_equal(err.text, "opening x.gguf: no such file");
}

static void long_text_is_cut_with_dots(void **state) {
    (void)state;
    struct lp_err err;
    char text[3000];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = 0;
    lp_err_set(&err, LP_STATUS_IO, "%s", text);
    assert_int_equal(strlen(err.text), LP_ERR_TEXT_BYTES - 1);
    assert_string_equal(err.text + LP_ERR_TEXT_BYTES - 4, "...");
    lp_err_context(&err, "%s", text);
    assert_int_equal(strlen(err.text), LP_ERR_TEXT_BYTES - 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_and_code_are_set),
        cmocka_unit_test(control_bytes_do_not_reach_the_terminal),
        cmocka_unit_test(context_goes_in_front),
        cmocka_unit_test(long_text_is_cut_with_dots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
