// Planted in the mini model: matrices stored transposed, heads, experts and tensors exchanged.
#include "weight_case.h"

#include "doctor/weight_shape.h"

static void check(void) {
    struct lp_err err = {0};
    assert_int_equal(lp_weight_shape_check(&case_exam, &err), LP_OK);
}

static void a_trained_model_fits(void **state) {
    (void)state;
    case_open(CASE_MINI);
    check();
    assert_int_equal(case_exam.n_suspects, 0);
    assert_false(case_exam.weights_random);
    case_options.quick = true;
    check();
    assert_int_equal(case_exam.n_suspects, 0);
    case_close();
}

static void random_weights_are_known(void **state) {
    (void)state;
    static const char *const names[] = {"dsa_sparse", "glm45", "llama"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[64];
        snprintf(path, sizeof path, "tests/golden/%s.gguf", names[i]);
        case_open(path);
        check();
        assert_true(case_exam.weights_random);
        assert_int_equal(case_exam.n_suspects, 0);
        case_close();
    }
}

static void a_transpose_is_named(void **state) {
    (void)state;
    static const char *const names[] = {
        "blk.0.attn_k_b.weight",         "blk.3.attn_v_b.weight",    "blk.1.attn_q_a.weight",
        "blk.2.attn_q_b.weight",         "blk.4.attn_output.weight", "blk.3.attn_kv_a_mqa.weight",
        "blk.2.indexer.attn_q_b.weight", "blk.1.ffn_up_exps.weight", "blk.2.ffn_down_shexp.weight",
        "blk.0.ffn_gate.weight",         "blk.5.attn_k_b.weight"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        case_open(CASE_MINI);
        case_transpose(names[i]);
        case_options.quick = i > 1; // a quarter of the reading
        check();
        assert_true(case_only_suspect(LP_SUSPECT_TRANSPOSED, names[i])->certain);
        case_close();
    }
}

static void swap_matrices(const char *name, int a, int b) {
    const struct lp_gguf_tensor *t = case_tensor(name);
    size_t n = (size_t)(t->n_bytes / t->ne[2]);
    case_swap_bytes(case_data(name) + a * n, case_data(name) + b * n, n);
}

static void exchanged_experts_and_heads_are_named(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int a, b;
    } cases[] = {{"blk.3.ffn_down_exps.weight", 2, 5},
                 {"blk.1.ffn_up_exps.weight", 1, 6},
                 {"blk.2.ffn_gate_exps.weight", 0, 7},
                 {"blk.2.attn_k_b.weight", 0, 2},
                 {"blk.4.attn_v_b.weight", 1, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        case_open(CASE_MINI);
        swap_matrices(cases[i].name, cases[i].a, cases[i].b);
        case_options.quick = i > 1;
        check();
        const struct lp_suspect *s = case_only_suspect(LP_SUSPECT_SWAPPED, cases[i].name);
        assert_ptr_equal(s->other, s->tensor);
        assert_int_equal(s->expert, cases[i].a);
        assert_int_equal(s->other_expert, cases[i].b);
        case_close();
    }
}

static void exchanged_tensors_are_named(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"blk.2.attn_k_b.weight", "blk.3.attn_k_b.weight"},
        {"blk.2.ffn_gate_shexp.weight", "blk.2.ffn_down_shexp.weight"}};
    for (size_t i = 0; i < 2; i++) {
        case_open(CASE_MINI);
        case_swap_bytes(case_data(cases[i][0]), case_data(cases[i][1]),
                        case_tensor(cases[i][0])->n_bytes);
        check();
        const struct lp_suspect *s = case_only_suspect(LP_SUSPECT_SWAPPED, cases[i][0]);
        assert_true(lp_str_is(s->other->name, cases[i][1]));
        assert_int_equal(s->expert, -1);
        case_close();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trained_model_fits),
        cmocka_unit_test(random_weights_are_known),
        cmocka_unit_test(a_transpose_is_named),
        cmocka_unit_test(exchanged_experts_and_heads_are_named),
        cmocka_unit_test(exchanged_tensors_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
