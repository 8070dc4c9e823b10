// A client's id is kept when it can stand in a header and a log line.
#include "lp_test.h"

#include "serve/request_id.h"

static void keeps(const char *given) {
    char id[LP_REQUEST_ID_BYTES];
    lp_request_id(id, given);
    assert_string_equal(id, given);
}

static void makes_its_own(const char *given) {
    char id[LP_REQUEST_ID_BYTES];
    lp_request_id(id, given);
    assert_memory_equal(id, "req-", 4);
    assert_int_equal(strlen(id), 4 + LP_RANDOM_ID_HEX);
    assert_int_equal(strspn(id + 4, "0123456789abcdef"), LP_RANDOM_ID_HEX);
}

static void short_visible_ids_are_kept(void **state) {
    (void)state;
    char longest[129] = {0};
    memset(longest, 'x', 128);
    keeps("a");
    keeps("0d3f6c1e-7f2a-4d2b-9c51-6a1f4a1f9f10");
    keeps("!~\"\\{}<>");
    keeps(longest);
}

static void others_are_replaced(void **state) {
    (void)state;
    char too_long[130] = {0};
    memset(too_long, 'x', 129);
    makes_its_own(NULL);
    makes_its_own("");
    makes_its_own("two words");
    makes_its_own("line\nfeed");
    makes_its_own("\x7f");
    makes_its_own("\xc3\xa9");
    makes_its_own(too_long);
}

static void two_are_different(void **state) {
    (void)state;
    char a[LP_RANDOM_ID_HEX + 1], b[LP_RANDOM_ID_HEX + 1];
    lp_random_id(a);
    lp_random_id(b);
    assert_string_not_equal(a, b);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(short_visible_ids_are_kept),
                                       cmocka_unit_test(others_are_replaced),
                                       cmocka_unit_test(two_are_different)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
