// What is written in either form is read again as the means that went in; failing allocations.
#include "lp_test.h"

#include <math.h>
#include <unistd.h>

#include "base/alloc.h"
#include "files/imatrix.h"

static const double one_sums[] = {8, 2, 0}, one_count[] = {4};
static const double stack_sums[] = {1, 2, 30, 40, 500, 600}, stack_counts[] = {1, 0, 100};
static const struct lp_imatrix_sums sums[] = {
    {"blk.1.ffn_up_exps.weight", 2, 3, stack_sums, stack_counts},
    {"blk.0.attn_q.weight", 3, 1, one_sums, one_count},
};
static const struct lp_imatrix_about about = {"some text.txt", 5, 32};
static char path[64];

static void close_to(float got, double want) {
    if (!(fabs(got - want) <= 1e-6 * fabs(want))) fail_msg("%g, expected %g", (double)got, want);
}

static void both_forms(void **state) {
    (void)state;
    for (int older = 0; older < 2; older++) {
        struct lp_err err = {0};
        struct lp_imatrix *m;
        float means[3];
        if (lp_imatrix_write(path, older, true, sums, 2, &about, &err)) fail_msg("%s", err.text);
        if (lp_imatrix_open(&m, path, &err)) fail_msg("%s", err.text);
        assert_int_equal(lp_imatrix_n_entries(m), 2);
        assert_int_equal(lp_imatrix_n_chunks(m), 5);
        assert_true(lp_str_is(lp_imatrix_dataset(m), "some text.txt"));
        assert_true(lp_str_is(lp_imatrix_at(m, 0)->name, "blk.0.attn_q.weight")); // by name
        const struct lp_imatrix_entry *q = lp_imatrix_find(m, lp_str_from("blk.0.attn_q.weight")),
                                      *up = lp_imatrix_find(
                                          m, lp_str_from("blk.1.ffn_up_exps.weight"));
        assert_true(q && up && lp_imatrix_fits(q, 3, 1) && lp_imatrix_fits(up, 2, 3));
        assert_true(lp_imatrix_means(q, 3, 1, 0, means));
        close_to(means[0], 2);
        close_to(means[1], 0.5);
        close_to(means[2], 0);
        assert_true(lp_imatrix_means(up, 2, 3, 2, means));
        close_to(means[0], 5);
        close_to(means[1], 6);
        // nothing met the second matrix: the older form can only say that all columns are alike
        assert_int_equal(lp_imatrix_means(up, 2, 3, 1, means), older);
        if (older) close_to(means[1], 1);
        lp_imatrix_close(m);
        assert_int_not_equal(lp_imatrix_write(path, older, false, sums, 2, &about, &err), LP_OK);
        unlink(path);
    }
}

static void without_memory(void **state) {
    (void)state;
    for (int older = 0; older < 2; older++) {
        lp_status status = LP_STATUS_MEMORY;
        for (size_t nth = 1; status; nth++) {
            struct lp_err err = {0};
            lp_alloc_fail_after(nth);
            status = lp_imatrix_write(path, older, true, sums, 2, &about, &err);
            lp_alloc_fail_after(0);
            assert_true(!status || (err.text[0] && access(path, F_OK)));
        }
        unlink(path);
    }
}

int main(void) {
    snprintf(path, sizeof path, "/tmp/limpid-imatrix-%d", (int)getpid());
    const struct CMUnitTest tests[] = {cmocka_unit_test(both_forms),
                                       cmocka_unit_test(without_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
