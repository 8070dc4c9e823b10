// Layers, tensors and experts stored twice; k_b and v_b against the kv_b that holds both.
#include "weight_case.h"

#include <math.h>

#include "doctor/weight_twins.h"

static void check(void) {
    struct lp_err err = {0};
    struct lp_weight_stats stats;
    assert_int_equal(lp_weight_stats_make(&stats, case_exam.gguf, 0, 2, &err), LP_OK);
    assert_int_equal(lp_weight_twins_check(&case_exam, &stats, &err), LP_OK);
    lp_weight_stats_release(&stats);
}

static void nothing_in_a_sound_model_is_stored_twice(void **state) {
    (void)state;
    case_open(CASE_MINI);
    check();
    assert_int_equal(case_exam.report->n_faults, 0);
    case_close();
}

static void copy(const char *from, const char *to) {
    memcpy(case_data(to), case_data(from), case_tensor(from)->n_bytes);
}

static void a_tensor_of_another_layer_is_named(void **state) {
    (void)state;
    case_open(CASE_MINI);
    copy("blk.1.ffn_up_exps.weight", "blk.2.ffn_up_exps.weight");
    check();
    assert_int_equal(case_exam.report->n_faults, 1);
    const struct lp_fault *f = case_fault("blk.2.ffn_up_exps.weight");
    assert_non_null(f);
    assert_non_null(strstr(f->advice, "blk.1.ffn_up_exps.weight"));
    case_close();
}

static void a_copied_layer_is_one_fault(void **state) {
    (void)state;
    case_open(CASE_MINI);
    for (uint64_t i = 0; i < lp_gguf_n_tensors(case_exam.gguf); i++) {
        const struct lp_gguf_tensor *t = lp_gguf_tensor_at(case_exam.gguf, i);
        char from[128], to[128];
        if (lp_exam_layer_of(t) != 2) continue;
        snprintf(from, sizeof from, "%.*s", LP_STR_ARGS(t->name));
        snprintf(to, sizeof to, "blk.3%s", from + 5);
        copy(from, to);
    }
    check();
    assert_int_equal(case_exam.report->n_faults, 1);
    assert_non_null(case_fault("blk.3"));
    case_close();
}

static void an_expert_stored_twice_is_named(void **state) {
    (void)state;
    case_open(CASE_MINI);
    uint8_t *d = case_data("blk.2.ffn_down_exps.weight");
    size_t n = 256 * 256 / 32 * 34;
    memcpy(d + 5 * n, d + 2 * n, n);
    check();
    const struct lp_fault *f = case_fault("blk.2.ffn_down_exps.weight");
    assert_non_null(f);
    assert_non_null(strstr(f->advice, "matrix 5"));
    assert_non_null(strstr(f->advice, "matrix 2"));
    case_close();
}

// kv_b [H * (nope + v)][latent], k_b [H][latent][nope], v_b [H][v][latent] with a value that says
// where it belongs.
enum { HEADS = 3, NOPE = 32, V = 64, LATENT = 96 };
static float kv[HEADS * (NOPE + V) * LATENT], k[HEADS * LATENT * NOPE], v[HEADS * V * LATENT];

static float value_of(int head, int row, int column) {
    return sinf((float)(head * 10007 + row * 101 + column * 7));
}

static struct lp_gguf_tensor tensor_of(const float *data, uint64_t a, uint64_t b, uint64_t c) {
    return (struct lp_gguf_tensor){.type = LP_TYPE_F32,
                                   .n_dims = 3,
                                   .ne = {a, b, c, 1},
                                   .data = (const uint8_t *)data,
                                   .n_bytes = a * b * c * sizeof *data};
}

static void fill(void) {
    for (int h = 0; h < HEADS; h++)
        for (int r = 0; r < NOPE + V; r++)
            for (int c = 0; c < LATENT; c++) {
                float x = value_of(h, r, c);
                kv[(h * (NOPE + V) + r) * LATENT + c] = x;
                if (r < NOPE)
                    k[(h * LATENT + c) * NOPE + r] = x;
                else
                    v[(h * V + r - NOPE) * LATENT + c] = x;
            }
}

static void the_parts_of_kv_b_are_compared(void **state) {
    (void)state;
    struct lp_gguf_tensor t_kv = tensor_of(kv, LATENT, HEADS * (NOPE + V), 1);
    struct lp_gguf_tensor t_k = tensor_of(k, NOPE, LATENT, HEADS);
    struct lp_gguf_tensor t_v = tensor_of(v, LATENT, V, HEADS);
    fill();
    for (uint64_t h = 0; h < HEADS; h++)
        assert_true(lp_weight_twins_kv_difference(&t_k, &t_v, &t_kv, h) == 0);
    assert_true(lp_weight_twins_kv_difference(&t_k, &t_v, &t_kv, HEADS) == -1);
    for (int i = 0; i < LATENT * NOPE; i++) // head 1's k_b transposed
        k[LATENT * NOPE + i] = value_of(1, i / LATENT, i % LATENT);
    assert_true(lp_weight_twins_kv_difference(&t_k, &t_v, &t_kv, 0) == 0);
    assert_true(lp_weight_twins_kv_difference(&t_k, &t_v, &t_kv, 1) > 0.5);
    t_k.ne[0] = NOPE / 2;
    assert_true(lp_weight_twins_kv_difference(&t_k, &t_v, &t_kv, 0) == -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_in_a_sound_model_is_stored_twice),
        cmocka_unit_test(a_tensor_of_another_layer_is_named),
        cmocka_unit_test(a_copied_layer_is_one_fault),
        cmocka_unit_test(an_expert_stored_twice_is_named),
        cmocka_unit_test(the_parts_of_kv_b_are_compared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
