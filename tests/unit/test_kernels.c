// The registry: order is preference; types, features, force and rejection exclude; explain says
// why.
#include "backend/kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct lp_kernel table[] = {
    {"matmul", "fast_q4_k", LP_TYPE_Q4_K, 3, NULL},
    {"matmul", "good_q4_k", LP_TYPE_Q4_K, 1, NULL},
    {"matmul", "plain", LP_KERNEL_ANY_TYPE, 0, NULL},
    {"gqa", "plain_gqa", LP_KERNEL_ANY_TYPE, 0, NULL},
};
#define N 4

static int choose(const char *op, lp_type type, uint32_t features, const char *forced,
                  const bool *rejected) {
    struct lp_kernel_query query = {
        .op = op, .type = type, .features = features, .forced = forced, .rejected = rejected};
    return lp_kernel_choose(table, N, &query);
}

static void the_first_that_fits_is_chosen(void **state) {
    (void)state;
    static const bool rejected[N] = {true, false, false, false};
    assert_int_equal(choose("matmul", LP_TYPE_Q4_K, 3, NULL, NULL), 0);
    assert_int_equal(choose("matmul", LP_TYPE_Q4_K, 1, NULL, NULL), 1);
    assert_int_equal(choose("matmul", LP_TYPE_Q4_K, 2, NULL, NULL), 2);
    assert_int_equal(choose("matmul", LP_TYPE_F32, 3, NULL, NULL), 2);
    assert_int_equal(choose("matmul", LP_TYPE_Q4_K, 3, NULL, rejected), 1);
    assert_int_equal(choose("matmul", LP_TYPE_Q4_K, 3, "plain", NULL), 2);
    assert_int_equal(choose("matmul", LP_TYPE_Q4_K, 1, "fast_q4_k", NULL), -1);
    assert_int_equal(choose("gqa", LP_TYPE_Q4_K, 3, NULL, NULL), 3);
    assert_int_equal(choose("rope", LP_TYPE_Q4_K, 3, NULL, NULL), -1);
}

static void explain_names_every_candidate(void **state) {
    (void)state;
    static const bool rejected[N] = {false, true, false, false};
    struct lp_kernel_query query = {
        .op = "matmul", .type = LP_TYPE_Q4_K, .features = 1, .rejected = rejected};
    char text[200];
    assert_string_equal(
        lp_kernel_explain(table, N, &query, text, sizeof text),
        "fast_q4_k: needs feature bits 0x2; good_q4_k: failed its self-check; plain: chosen");
    query.rejected = NULL;
    query.forced = "good_q4_k";
    assert_string_equal(
        lp_kernel_explain(table, N, &query, text, sizeof text),
        "fast_q4_k: good_q4_k is forced; good_q4_k: chosen; plain: good_q4_k is forced");
    char small[12];
    assert_string_equal(lp_kernel_explain(table, N, &query, small, sizeof small), "fast_q4_k: ");
    query.op = "rope";
    assert_string_equal(lp_kernel_explain(table, N, &query, text, sizeof text),
                        "no candidate for rope");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_that_fits_is_chosen),
        cmocka_unit_test(explain_names_every_candidate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
