// Scales planted in the mini model: one tensor, one expert, and what stays within the healthy range.
#include "weight_case.h"

#include <math.h>

#include "doctor/weight_sizes.h"

static void scale(const char *name, size_t first, size_t n, float factor) {
    float *values = case_values(name);
    for (size_t i = first; i < first + n; i++) values[i] *= factor;
    case_store(name, values);
}

static void check(void) {
    struct lp_err err = {0};
    struct lp_weight_stats stats;
    assert_int_equal(lp_weight_stats_make(&stats, case_exam.gguf, 0, 2, &err), LP_OK);
    assert_int_equal(lp_weight_sizes_check(&case_exam, &stats, &err), LP_OK);
    lp_weight_stats_release(&stats);
}

static void a_sound_model_passes(void **state) {
    (void)state;
    case_open(CASE_MINI);
    scale("blk.2.attn_q_b.weight", 0, case_count("blk.2.attn_q_b.weight"), 2.5f);
    check();
    assert_int_equal(case_exam.n_suspects, 0);
    assert_true(case_exam.report->n_series >= 5); // for plots
    case_close();
}

static void a_tensor_out_of_scale_is_named(void **state) {
    (void)state;
    static const char *const names[] = {"blk.2.attn_q_b.weight", "blk.3.attn_norm.weight",
                                        "blk.4.attn_output.weight"};
    for (int i = 0; i < 3; i++) {
        case_open(CASE_MINI);
        scale(names[i], 0, case_count(names[i]), 16);
        check();
        double factor = case_only_suspect(LP_SUSPECT_SCALE, names[i])->factor;
        assert_true(factor > 10 && factor < 25);
        assert_int_equal(case_exam.suspects[0].expert, -1);
        case_close();
    }
}

static void an_expert_out_of_scale_is_named(void **state) {
    (void)state;
    size_t n = 256 * 256;
    case_open(CASE_MINI);
    scale("blk.2.ffn_up_exps.weight", 3 * n, n, 1.f / 16);
    check();
    const struct lp_suspect *s = case_only_suspect(LP_SUSPECT_SCALE, "blk.2.ffn_up_exps.weight");
    assert_int_equal(s->expert, 3);
    assert_true(s->certain);
    assert_true(fabs(s->factor * 16 - 1) < 0.3);
    case_close();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sound_model_passes),
        cmocka_unit_test(a_tensor_out_of_scale_is_named),
        cmocka_unit_test(an_expert_out_of_scale_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
