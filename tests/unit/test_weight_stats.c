// What the pass counts, on tensors whose figures can be worked out by hand.
#include "weight_case.h"

#include <math.h>

#include "doctor/weight_stats.h"
#include "gguf_build.h"

#define COLUMNS 64
#define ROWS 400

static float values[ROWS][COLUMNS];
static struct lp_bytes image;
static struct lp_gguf *gguf;
static struct lp_weight_stats stats;

// Rows of +-(row + 1) / 1024 with alternating signs: no two rows are equal, none is constant.
static const struct lp_tensor_stats *stats_of(const struct lp_weight_stats *all,
                                              const struct lp_gguf_tensor *tensor) {
    for (uint64_t i = 0; i < all->n; i++)
        if (all->tensors[i].tensor == tensor) return &all->tensors[i];
    return NULL;
}

static void reset(void) {
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++)
            values[r][c] = (c % 2 ? -1.f : 1.f) * (float)(r + 1) / 1024;
}

static const struct lp_tensor_stats *measure(uint64_t budget) {
    struct lp_err err = {0};
    const uint64_t ne[2] = {COLUMNS, ROWS};
    lp_bytes_clear(&image);
    gb_header(&image, 3, 1, 0);
    gb_tensor(&image, "blk.0.ffn_up.weight", 2, ne, GB_TYPE_F32, 0);
    gb_pad(&image, 32);
    lp_bytes_append(&image, values, sizeof values);
    assert_int_equal(lp_gguf_parse(&gguf, (uint8_t *)image.data, image.len, "image", &err), LP_OK);
    assert_int_equal(lp_weight_stats_make(&stats, gguf, budget, 2, &err), LP_OK);
    return &stats.tensors[0];
}

static void done(void) {
    lp_weight_stats_release(&stats);
    lp_gguf_close(gguf);
}

static void sizes_are_root_mean_squares(void **state) {
    (void)state;
    reset();
    const struct lp_tensor_stats *s = measure(0);
    double sum = 0; // of (r / 1024)^2, r = 1 .. ROWS
    for (int r = 1; r <= ROWS; r++) sum += (double)r * r / (1024.0 * 1024);
    assert_true(fabs(lp_tensor_rms(s) / sqrt(sum / ROWS) - 1) < 1e-6);
    assert_int_equal(s->n_rows_seen, ROWS);
    assert_int_equal(s->n_groups, ROWS * COLUMNS / LP_GROUP_VALUES);
    assert_int_equal(s->matrices[0].n_nonzero, ROWS * COLUMNS);
    assert_true(s->matrices[0].has_spread);
    assert_int_equal(s->run_rows, 0);
    // Exponent of the middle row, 200 / 1024 = 1.56 * 2^-3
    assert_int_equal(lp_tensor_median_exponent(s), 127 - 3);
    struct lp_damage damage;
    assert_false(lp_tensor_damage(s, &damage));
    done();
}

static void nonfinite_values_are_placed(void **state) {
    (void)state;
    reset();
    values[300][40] = NAN;
    values[7][63] = -INFINITY;
    const struct lp_tensor_stats *s = measure(0);
    assert_int_equal(s->n_nonfinite, 2);
    assert_int_equal(s->nonfinite.row, 7);
    assert_int_equal(s->nonfinite.column, 32); // of the group
    done();
}

static void runs_of_equal_and_constant_rows_are_found(void **state) {
    (void)state;
    reset();
    for (int r = 50; r < 70; r++) memcpy(values[r], values[49], sizeof values[r]);
    for (int r = 100; r < 130; r++)
        for (int c = 0; c < COLUMNS; c++) values[r][c] = 0.5f;
    const struct lp_tensor_stats *s = measure(0);
    assert_int_equal(s->n_constant_rows, 30);
    assert_int_equal(s->n_equal_rows, 20 + 29);
    assert_int_equal(s->run_rows, 30);
    assert_int_equal(s->run_start.row, 100);
    done();
}

static void a_hole_is_no_whole_rows(void **state) {
    (void)state;
    reset();
    memset(values[10], 0, 40 * sizeof values[0]); // 80 groups, but whole rows
    assert_int_equal(measure(0)->hole_groups, 0);
    done();
    reset();
    memset(&values[10][32], 0, 40 * sizeof values[0]);
    const struct lp_tensor_stats *s = measure(0);
    assert_int_equal(s->hole_groups, 80);
    assert_int_equal(s->hole.row, 10);
    assert_int_equal(s->hole.column, 32);
    done();
}

static void groups_out_of_range_are_damage(void **state) {
    (void)state;
    struct lp_damage damage;
    reset();
    values[20][5] = values[21][5] = 500; // 2500 times the middle
    assert_false(lp_tensor_damage(measure(0), &damage));
    done();
    values[22][5] = 500;
    assert_true(lp_tensor_damage(measure(0), &damage));
    assert_int_equal(damage.n_groups, 3);
    assert_int_equal(stats.tensors[0].largest.row, 20);
    done();
    reset();
    values[20][5] = 1e30f; // one is enough
    assert_true(lp_tensor_damage(measure(0), &damage));
    done();
}

static void equal_bytes_have_equal_digests(void **state) {
    (void)state;
    reset();
    uint64_t first = measure(0)->matrices[0].digest;
    done();
    assert_true(measure(0)->matrices[0].digest == first);
    done();
    values[399][63] = nextafterf(values[399][63], 1);
    assert_false(measure(0)->matrices[0].digest == first);
    done();
    reset();
    float row[COLUMNS]; // the order of the rows counts
    memcpy(row, values[1], sizeof row);
    memcpy(values[1], values[2], sizeof row);
    memcpy(values[2], row, sizeof row);
    assert_false(measure(0)->matrices[0].digest == first);
    done();
}

static void a_budget_makes_a_sample(void **state) {
    (void)state;
    reset();
    const struct lp_tensor_stats *s = measure(sizeof values / 10);
    assert_int_equal(stats.row_step, 10);
    assert_int_equal(s->n_rows_seen, ROWS / 10);
    assert_int_equal(stats.seen_bytes, sizeof values / 10);
    done();
}

static void scales_of_a_wrong_sign_are_counted(void **state) {
    (void)state;
    struct lp_err err = {0};
    case_open(CASE_MINI);
    uint8_t *d = case_data("blk.1.attn_output.weight"); // Q8_0: 34 bytes, the scale first
    for (int b = 0; b < 3; b++) d[(40 + b) * 34 + 1] |= 0x80;
    assert_int_equal(lp_weight_stats_make(&stats, case_exam.gguf, 0, 2, &err), LP_OK);
    const struct lp_tensor_stats *s = stats_of(&stats, case_tensor("blk.1.attn_output.weight"));
    assert_int_equal(s->n_odd_scales, 3);
    assert_int_equal(s->odd_scale.row, 1); // a row is 32 blocks
    assert_int_equal(s->odd_scale.column, 8 * 32);
    s = stats_of(&stats, case_tensor("blk.2.attn_output.weight"));
    assert_int_equal(s->n_odd_scales, 0);
    lp_weight_stats_release(&stats);
    case_close();
}

static void without_memory_it_says_so(void **state) {
    (void)state;
    struct lp_err err = {0};
    reset();
    measure(0);
    lp_weight_stats_release(&stats);
    for (size_t n = 1; n < 4; n++) {
        lp_alloc_fail_after(n);
        lp_status status = lp_weight_stats_make(&stats, gguf, 0, 1, &err);
        lp_alloc_fail_after(0);
        assert_int_equal(status, LP_STATUS_MEMORY);
    }
    lp_gguf_close(gguf);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_root_mean_squares),
        cmocka_unit_test(nonfinite_values_are_placed),
        cmocka_unit_test(runs_of_equal_and_constant_rows_are_found),
        cmocka_unit_test(a_hole_is_no_whole_rows),
        cmocka_unit_test(groups_out_of_range_are_damage),
        cmocka_unit_test(equal_bytes_have_equal_digests),
        cmocka_unit_test(a_budget_makes_a_sample),
        cmocka_unit_test(scales_of_a_wrong_sign_are_counted),
        cmocka_unit_test(without_memory_it_says_so),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    lp_bytes_release(&image);
    return failed;
}
