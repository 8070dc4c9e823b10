// Rotated rows of the mini model (adjacent pairs) put into half-split order.
#include "weight_case.h"

#include "doctor/weight_shape.h"

#define ROPE 64

static void split_rows(const char *name, size_t first, size_t step, size_t n_heads) {
    size_t n = (size_t)case_tensor(name)->ne[0];
    float *old = case_values(name), *values = case_values(name);
    for (size_t h = 0; h < n_heads; h++)
        for (size_t i = 0; i < ROPE; i++) // pair i / 2, its half i % 2
            memcpy(values + (first + h * step + i / 2 + i % 2 * (ROPE / 2)) * n,
                   old + (first + h * step + i) * n, n * sizeof *old);
    lp_free(old);
    case_store(name, values);
}

static void split_all(const char *name, size_t first, size_t step, size_t n_heads) {
    char full[64];
    for (int l = 0; l < 5; l++) {
        snprintf(full, sizeof full, "blk.%d.%s.weight", l, name);
        split_rows(full, first, step, n_heads);
    }
}

static int suspects_of(const char *name) {
    struct lp_err err = {0};
    int n = 0;
    assert_int_equal(lp_weight_pairs_check(&case_exam, &err), LP_OK);
    for (int i = 0; i < case_exam.n_suspects; i++) {
        const struct lp_suspect *s = &case_exam.suspects[i];
        assert_int_equal(s->kind, LP_SUSPECT_PERMUTED);
        if (memmem(s->tensor->name.data, s->tensor->name.len, name, strlen(name))) n++;
    }
    return n;
}

static void the_order_of_the_architecture_passes(void **state) {
    (void)state;
    case_open(CASE_MINI);
    assert_int_equal(suspects_of("blk."), 0);
    case_close();
}

static void the_other_order_is_suspected(void **state) {
    (void)state;
    case_open(CASE_MINI);
    split_all("attn_kv_a_mqa", 512, 0, 1);
    assert_int_equal(suspects_of("attn_kv_a_mqa"), 5);
    assert_int_equal(case_exam.n_suspects, 5);
    case_close();
    case_open(CASE_MINI);
    split_all("attn_q_b", 192, 256, 4);
    assert_int_equal(suspects_of(".attn_q_b"), 5);
    case_close();
    case_open(CASE_MINI);
    split_all("indexer.attn_q_b", 0, 128, 4);
    split_all("indexer.attn_k", 0, 0, 1);
    assert_int_equal(suspects_of("indexer."), 10);
    assert_int_equal(case_exam.n_suspects, 10);
    case_close();
}

static void one_layer_in_the_other_order_is_suspected(void **state) {
    (void)state;
    case_open(CASE_MINI);
    split_rows("blk.4.attn_q_b.weight", 192, 256, 4);
    assert_int_equal(suspects_of("blk."), 1);
    assert_false(case_only_suspect(LP_SUSPECT_PERMUTED, "blk.4.attn_q_b.weight")->certain);
    case_close();
}

static void a_file_that_declares_the_other_order_is_suspected(void **state) {
    (void)state;
    struct lp_arch arch;
    case_open(CASE_MINI);
    arch = *case_exam.h.arch;
    arch.rope_pairing = LP_ROPE_HALF;
    case_exam.h.arch = &arch;
    assert_int_equal(suspects_of(".attn_"), 10); // q_b and kv_a of five layers
    case_close();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_order_of_the_architecture_passes),
        cmocka_unit_test(the_other_order_is_suspected),
        cmocka_unit_test(one_layer_in_the_other_order_is_suspected),
        cmocka_unit_test(a_file_that_declares_the_other_order_is_suspected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
