// The bytes of an order: what is put is got, and reading past the end gives zeros and says so.
#include "lp_test.h"

#include "dist/order.h"

static void test_bytes_come_back(void **state) {
    (void)state;
    struct lp_order order = {.kind = LP_ORDER_STEP};
    const int64_t numbers[3] = {1, -2, INT64_MAX};
    const char text[] = "text";
    assert_true(lp_order_put(&order, numbers, sizeof numbers));
    assert_true(lp_order_put(&order, text, sizeof text));
    struct lp_order_reader from = {(const uint8_t *)order.bytes.data, order.bytes.len, 0, false};
    int64_t got[3];
    lp_order_get(&from, got, sizeof got);
    assert_memory_equal(got, numbers, sizeof numbers);
    assert_string_equal((const char *)lp_order_skip(&from, sizeof text), text);
    assert_false(from.failed);
    assert_int_equal(from.at, from.n);
    lp_bytes_release(&order.bytes);
}

static void test_nothing_is_read_past_the_end(void **state) {
    (void)state;
    const uint8_t bytes[6] = {1, 2, 3, 4, 5, 6};
    struct lp_order_reader from = {bytes, sizeof bytes, 0, false};
    uint32_t number = 7;
    lp_order_get(&from, &number, sizeof number);
    assert_int_equal(number, 0x04030201);
    lp_order_get(&from, &number, sizeof number); // two bytes are left
    assert_int_equal(number, 0);
    assert_true(from.failed);
    assert_null(lp_order_skip(&from, 1)); // it stays failed
    assert_null(lp_order_skip(&from, SIZE_MAX));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_come_back),
        cmocka_unit_test(test_nothing_is_read_past_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
