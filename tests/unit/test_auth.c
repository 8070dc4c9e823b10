// Which Authorization headers open a server with a key.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "serve/auth.h"

static void only_the_whole_key_opens(void **state) {
    (void)state;
    assert_true(lp_auth_ok("key", "Bearer key"));
    assert_true(
        lp_auth_ok("key", "bearer  key")); // RFC 9110: the scheme in any case, one or more spaces
    const char *wrong[] = {NULL,
                           "",
                           "key",
                           "Bearer",
                           "Bearer ",
                           "Bearer ke",
                           "Bearer keykey",
                           "Bearer KEY",
                           "Bearer kez",
                           "Bearer key ",
                           "Basic key",
                           "Bearerkey"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_false(lp_auth_ok("key", wrong[i]));
}

static void an_empty_key_opens_nothing(void **state) {
    (void)state;
    assert_false(lp_auth_ok("", "Bearer "));
    assert_false(lp_auth_ok("", "Bearer x"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(only_the_whole_key_opens),
                                       cmocka_unit_test(an_empty_key_opens_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
