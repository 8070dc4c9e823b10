// Differences and the places where they are: figures from the definition, patterns as a person
// would say them.
#include "lp_test.h"

#include <math.h>

#include "doctor/diff.h"

static void pattern(const char *bits, const char *name, int64_t first, const char *expected) {
    bool flags[64] = {false};
    char text[96];
    int64_t n = (int64_t)strlen(bits);
    for (int64_t i = 0; i < n; i++) flags[i] = bits[i] == '1';
    lp_diff_pattern(text, sizeof text, flags, n, name, first);
    assert_string_equal(text, expected);
}

static void patterns_are_named(void **state) {
    (void)state;
    pattern("00000", "row", 0, "");
    pattern("11111", "row", 0, "");
    pattern("00100", "head", 0, "only head 2");
    pattern("00011", "row", 0, "only rows from 3 on");
    pattern("00011", "position", 64, "only positions from 67 on");
    pattern("01100", "row", 0, "only rows 1 to 2");
    pattern("11000", "row", 0, "only rows 0 to 1");
    pattern("0101010", "output", 0, "only every 2nd output from 1 on");
    pattern("1001001", "row", 0, "only every 3rd row from 0 on");
    pattern("0010001000100", "row", 0, "only every 4th row from 2 on");
    pattern("1101000", "row", 0, "3 of 7 rows, 0 to 3");
}

static void errors_are_relative_to_the_row(void **state) {
    (void)state;
    // Two rows of two heads of two values; rms of row 0: 1, of row 1: 10.
    float want[] = {1, 1, 1, 1, 10, 10, 10, 10}, got[8];
    struct lp_diff_shape shape = {2, 2, 2};
    memcpy(got, want, sizeof got);
    struct lp_diff d = lp_diff_measure(got, want, NULL, shape);
    assert_true(d.error == 0);
    got[6] = 13; // head 1 of row 1: sqrt(9 / 2) / 10
    d = lp_diff_measure(got, want, NULL, shape);
    assert_true(fabs(d.error - sqrt(4.5) / 10) < 1e-12);
    assert_int_equal(d.row, 1);
    assert_int_equal(d.group, 1);
    assert_int_equal(d.column, 0);
    assert_true(d.got == 13 && d.want == 10);
    got[0] = 2; // head 0 of row 0: sqrt(1 / 2), which is more
    d = lp_diff_measure(got, want, NULL, shape);
    assert_true(fabs(d.error - sqrt(0.5)) < 1e-12);
    assert_int_equal(d.row, 0);
    got[1] = NAN;
    assert_true(isinf(lp_diff_measure(got, want, NULL, shape).error));
    want[1] = INFINITY; // neither is finite: the same
    assert_true(isfinite(lp_diff_measure(got, want, NULL, shape).error));
}

// What was there before counts for nothing, and its rounding is forgiven.
static void sums_are_compared_by_what_was_added(void **state) {
    (void)state;
    float before[] = {1000, 1000}, want[] = {1001, 1001}, got[] = {1001.0001f, 1001};
    struct lp_diff_shape shape = {1, 1, 2};
    assert_true(lp_diff_measure(got, want, before, shape).error == 0);
    got[0] = 1001.5f;
    double error = lp_diff_measure(got, want, before, shape).error;
    assert_true(fabs(error - sqrt(0.125)) < 1e-3);
}

static void places_are_told(void **state) {
    (void)state;
    float want[4 * 3 * 5], got[4 * 3 * 5];
    char text[192];
    struct lp_diff_shape shape = {4, 3, 5};
    for (int i = 0; i < 60; i++) got[i] = want[i] = 1.0f + (float)i / 60;
    for (int r = 2; r < 4; r++)
        for (int i = 0; i < 5; i++) got[(r * 3 + 1) * 5 + i] = 0;
    lp_diff_where(text, sizeof text, got, want, NULL, shape, 1e-3, "position", 62);
    assert_string_equal(text, "only positions from 64 on; only head 1");
    memcpy(got, want, sizeof got);
    for (int r = 0; r < 12; r++) got[r * 5 + 4] = 0;
    lp_diff_where(text, sizeof text, got, want, NULL, shape, 1e-3, "row", 0);
    assert_string_equal(text, "only output 4");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_are_named),
        cmocka_unit_test(errors_are_relative_to_the_row),
        cmocka_unit_test(sums_are_compared_by_what_was_added),
        cmocka_unit_test(places_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
