// Experiments on weights: what they change is what they say, and the undo leaves no trace.
#include "lp_test.h"

#include "doctor/patch.h"

static struct lp_device *open_device(void) {
    struct lp_device *dev;
    struct lp_err err = {0};
    assert_int_equal(lp_backend_ref.open(&dev, NULL, &err), LP_OK);
    return dev;
}

// Two matrices [3, 2]; value = 100 m + 10 row + column.
static float values[12];
static struct lp_weight make_weight(void) {
    for (int m = 0; m < 2; m++)
        for (int i = 0; i < 6; i++) values[6 * m + i] = (float)(100 * m + 10 * (i / 2) + i % 2);
    return (struct lp_weight){.data = values,
                              .type = LP_TYPE_F32,
                              .n_in = 2,
                              .n_out = 3,
                              .n_mats = 2,
                              .row_bytes = 8,
                              .mat_bytes = 24};
}

static float at(const struct lp_weight *w, int m, int row, int column) {
    const char *p = (const char *)w->data + (size_t)m * w->mat_bytes + (size_t)row * w->row_bytes;
    return ((const float *)p)[column];
}

static void assert_untouched(const struct lp_weight *w, const struct lp_weight *was) {
    assert_memory_equal(w, was, sizeof *w);
    assert_float_equal(values[11], 121, 0);
}

static void test_set_and_undo(void **state) {
    (void)state;
    struct lp_patch patch = {.dev = open_device()};
    int a = 1, two = 2, three = 3;
    lp_patch_set(&patch, &a, &two, sizeof a);
    lp_patch_set(&patch, &a, &three, sizeof a);
    assert_int_equal(a, 3);
    lp_patch_undo(&patch);
    assert_int_equal(a, 1);
    int x[2] = {5, 6};
    lp_patch_swap(&patch, &x[0], &x[1], sizeof x[0]);
    assert_int_equal(x[0], 6);
    assert_int_equal(x[1], 5);
    lp_patch_undo(&patch);
    assert_int_equal(x[0], 5);
    lp_backend_ref.close(patch.dev);
}

static void test_weights(void **state) {
    (void)state;
    struct lp_patch patch = {.dev = open_device()};
    struct lp_weight w = make_weight(), was = w;
    const int64_t order[] = {2, 0, 1};
    lp_patch_reorder_rows(&patch, &w, order);
    assert_float_equal(at(&w, 1, 0, 1), 121, 0);
    assert_float_equal(at(&w, 0, 1, 0), 0, 0);
    lp_patch_undo(&patch);
    assert_untouched(&w, &was);

    lp_patch_swap_matrices(&patch, &w, 0, 1);
    assert_float_equal(at(&w, 0, 2, 1), 121, 0);
    assert_float_equal(at(&w, 1, 2, 1), 21, 0);
    lp_patch_undo(&patch);
    assert_untouched(&w, &was);

    // Stored [2, 3]: 0 1 10 / 11 20 21; as [3, 2] that is 0 11 / 1 20 / 10 21.
    lp_patch_transpose(&patch, &w);
    const float want[] = {0, 11, 1, 20, 10, 21};
    for (int i = 0; i < 6; i++) {
        assert_float_equal(at(&w, 0, i / 2, i % 2), want[i], 0);
        assert_float_equal(at(&w, 1, i / 2, i % 2), want[i] + 100, 0);
    }
    lp_patch_scale(&patch, &w, -2);
    assert_float_equal(at(&w, 0, 2, 1), -42, 0);
    assert_false(patch.failed);
    lp_patch_undo(&patch);
    assert_untouched(&w, &was);
    lp_backend_ref.close(patch.dev);
}

static void test_half_of_a_fused_tensor(void **state) {
    (void)state;
    struct lp_patch patch = {.dev = open_device()};
    struct lp_weight whole = make_weight(), w = whole;
    w.n_out = 2; // the first two rows of each matrix
    lp_patch_scale(&patch, &w, 3);
    assert_float_equal(at(&w, 1, 1, 1), 333, 0);
    assert_int_equal(w.mat_bytes, 16);
    lp_patch_undo(&patch);
    assert_int_equal(w.mat_bytes, 24);
    lp_backend_ref.close(patch.dev);
}

static void test_quantised_rows(void **state) {
    (void)state;
    struct lp_patch patch = {.dev = open_device()};
    float rows[2][32];
    uint8_t blocks[68];
    for (int i = 0; i < 64; i++) rows[i / 32][i % 32] = (float)(i < 32 ? i : -2 * i);
    lp_type_info(LP_TYPE_Q8_0)->quantize(&rows[0][0], blocks, 64);
    struct lp_weight w = {.data = blocks,
                          .type = LP_TYPE_Q8_0,
                          .n_in = 32,
                          .n_out = 2,
                          .n_mats = 1,
                          .row_bytes = 34,
                          .mat_bytes = 68};
    const int64_t order[] = {1, 0};
    lp_patch_reorder_rows(&patch, &w, order);
    assert_int_equal(w.type, LP_TYPE_Q8_0);
    assert_memory_equal(w.data, blocks + 34, 34);
    lp_patch_undo(&patch);
    lp_patch_scale(&patch, &w, -1);
    assert_int_equal(w.type, LP_TYPE_F32);
    assert_float_equal(at(&w, 0, 1, 31), 126, 0.6); // within the quantiser's step
    lp_patch_undo(&patch);
    assert_ptr_equal(w.data, blocks);
    lp_backend_ref.close(patch.dev);
}

static void test_vector(void **state) {
    (void)state;
    struct lp_patch patch = {.dev = open_device()};
    const float data[] = {1, 2, 3}, *vector = data;
    lp_patch_vector(&patch, &vector, 3, 2, -1);
    assert_float_equal(vector[2], 5, 0);
    lp_patch_undo(&patch);
    assert_ptr_equal(vector, data);
    lp_backend_ref.close(patch.dev);
}

static void test_too_much(void **state) {
    (void)state;
    struct lp_patch patch = {.dev = open_device()};
    struct lp_weight w = make_weight(), was;
    w.n_out = (int64_t)1 << 40;
    was = w;
    lp_patch_scale(&patch, &w, 2);
    assert_true(patch.failed);
    assert_memory_equal(&w, &was, sizeof w);
    lp_patch_undo(&patch);
    assert_false(patch.failed);
    lp_backend_ref.close(patch.dev);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_set_and_undo),
                                       cmocka_unit_test(test_weights),
                                       cmocka_unit_test(test_half_of_a_fused_tensor),
                                       cmocka_unit_test(test_quantised_rows),
                                       cmocka_unit_test(test_vector),
                                       cmocka_unit_test(test_too_much)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
