#include "lp_test.h"

#include "base/bytes.h"

static void grows_and_terminates(void **state) {
    (void)state;
    struct lp_bytes b = {0};
    for (int i = 0; i < 1000; i++) assert_true(lp_bytes_printf(&b, "%d,", i % 10));
    assert_int_equal(b.len, 2000);
    assert_int_equal(b.data[b.len], 0);
    assert_memory_equal(b.data, "0,1,2,3,", 8);
    lp_bytes_clear(&b);
    assert_true(lp_bytes_puts(&b, "x"));
    assert_string_equal(b.data, "x");
    lp_bytes_release(&b);
    assert_null(b.data);
}

static void maximum_is_kept_and_failure_stays(void **state) {
    (void)state;
    struct lp_bytes b = {.max_bytes = 4};
    assert_true(lp_bytes_append(&b, "abcd", 4));
    assert_false(lp_bytes_append(&b, "e", 1));
    assert_false(lp_bytes_append(&b, "", 0));
    assert_true(b.failed);
    assert_string_equal(b.data, "abcd");
    lp_bytes_release(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(grows_and_terminates),
                                       cmocka_unit_test(maximum_is_kept_and_failure_stays)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
