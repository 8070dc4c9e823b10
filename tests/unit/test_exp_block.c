#include "lp_test.h"

#include <math.h>

#include "engine/exp_block.h"

static void agrees_with_the_c_library(void **state) {
    (void)state;
    for (int i = 0; i <= 200000; i++) {
        double x = -700.0 * i / 200000, y = x;
        double sum = lp_exp_block(&y, 1);
        assert_true(sum == y);
        assert_true(fabs(y - exp(x)) <= 3 * 0x1p-52 * exp(x)); // 2 ulp of ours, 1 of theirs
    }
    double zero = 0;
    lp_exp_block(&zero, 1);
    assert_true(zero == 1);
}

static void nothing_below_the_range_breaks_it(void **state) {
    (void)state;
    double x[] = {-700.5, -1e5, -1e300, -INFINITY, -0.0};
    double sum = lp_exp_block(x, 5);
    for (int i = 0; i < 4; i++) assert_true(x[i] > 0 && x[i] < 1e-303);
    assert_true(x[4] == 1);
    assert_true(sum == 1);
}

static void a_number_does_not_depend_on_its_place(void **state) {
    (void)state;
    double block[LP_EXP_BLOCK];
    for (int32_t n = 1; n <= LP_EXP_BLOCK; n++) {
        double sum = 0, alone_sum = 0;
        for (int32_t i = 0; i < n; i++) block[i] = -0.37 * i;
        sum = lp_exp_block(block, n);
        for (int32_t i = 0; i < n; i++) {
            double alone = -0.37 * i;
            alone_sum += lp_exp_block(&alone, 1);
            assert_memory_equal(&alone, &block[i], sizeof alone);
        }
        assert_true(fabs(sum - alone_sum) < 1e-14);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_the_c_library),
        cmocka_unit_test(nothing_below_the_range_breaks_it),
        cmocka_unit_test(a_number_does_not_depend_on_its_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
