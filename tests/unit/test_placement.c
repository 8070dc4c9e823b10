// Where the weights of a model lie, and their factors (NAME.scale): as lists of matrices, in halves
// of one matrix, one factor for all heads; and what the plan says of their bytes.
#include "assembled.h"

#include <math.h>

#include "model/cost.h"
#include "model/model.h"

#define GOLDEN "tests/golden/dsa_sparse.gguf"

static struct lp_device *dev;
static struct lp_model *model;

static void load(const struct assembled *a) {
    struct lp_err err;
    assert_int_equal(lp_backend_ref.open(&dev, NULL, &err), LP_OK);
    if (lp_model_load(&model, a->gguf, dev, 1, UINT64_MAX, &err)) fail_msg("%s", err.text);
    assert_int_equal(model->owned_bytes, lp_cost_float32_bytes(&model->h, &model->binding));
}

static void unload(struct assembled *a) {
    lp_model_free(model);
    lp_backend_ref.close(dev);
    disassemble(a);
}

static void factors_are_placed_with_their_matrices(void **state) {
    (void)state;
    static const float one[] = {0.5f}, two[] = {3.0f}, experts[] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct assembled a;
    const struct more_tensor more[] = {{"output.scale", LP_TYPE_F32, 1, one},
                                       {"blk.2.attn_output.scale", LP_TYPE_F32, 1, two},
                                       {"blk.2.attn_k_b.scale", LP_TYPE_F32, 1, one},
                                       {"blk.3.ffn_gate_inp.scale", LP_TYPE_F32, 1, two},
                                       {"blk.3.ffn_up_exps.scale", LP_TYPE_F32, 8, experts},
                                       {NULL}};
    assemble(&a, GOLDEN, more, "blk.3.ffn_up_exps.weight");
    load(&a);
    const struct lp_layer *l = model->layers;
    assert_int_equal(model->h.n_experts, 8);
    assert_true(lp_weight_scale(&model->output, 0) == 0.5f);
    assert_true(lp_weight_scale(&model->token_embd, 0) == 1.0f);
    assert_true(lp_weight_scale(&l[2].attn_output, 0) == 3.0f);
    for (int32_t h = 0; h < model->h.n_heads; h++) {
        assert_true(lp_weight_scale(&l[2].mla.k_up, h) == 0.5f);
        assert_true(lp_weight_scale(&l[2].mla.v_up, h) == 1.0f);
    }
    assert_true(lp_weight_scale(&l[3].router, 0) == 3.0f);
    const struct lp_gguf_tensor *t =
        lp_gguf_find_tensor(a.source, lp_str_from("blk.3.ffn_up_exps.weight"));
    assert_non_null(l[3].experts.up.mats);
    for (int64_t e = 0; e < 8; e++) {
        assert_true(lp_weight_scale(&l[3].experts.up, e) == experts[e]);
        assert_true(lp_weight_scale(&l[3].experts.gate, e) == 1.0f);
        assert_ptr_equal(lp_weight_mat(&l[3].experts.up, e), lp_gguf_tensor_mat(t, (uint64_t)e));
    }
    unload(&a);
}

static void a_part_of_a_weight_begins_where_it_says(void **state) {
    (void)state;
    static const uint8_t bytes[64], *const mats[] = {bytes + 30, bytes + 10, bytes};
    static const float factors[] = {1, 2, 3};
    struct lp_weight w = {.mats = mats,
                          .mats_offset = 1,
                          .scales = factors,
                          .n_out = 5,
                          .n_mats = 3,
                          .row_bytes = 2,
                          .mat_bytes = 10};
    struct lp_weight part = lp_weight_part(&w, 1, 2, 3, 2);
    assert_ptr_equal(lp_weight_mat(&part, 0), bytes + 10 + 1 + 6);
    assert_ptr_equal(lp_weight_mat(&part, 1), bytes + 0 + 1 + 6);
    assert_true(part.n_mats == 2 && part.n_out == 2 && lp_weight_scale(&part, 1) == 3);
    w = (struct lp_weight){.data = bytes, .n_out = 2, .n_mats = 3, .row_bytes = 4, .mat_bytes = 8};
    part = lp_weight_part(&w, 2, 1, 1, 1);
    assert_ptr_equal(lp_weight_mat(&part, 0), bytes + 16 + 4);
    assert_true(lp_weight_scale(&part, 0) == 1);
}

// A NaN among the factors is a damaged file, like one among the weights.
static void factors_are_checked_for_nan(void **state) {
    (void)state;
    static const float bad[] = {NAN};
    struct assembled a;
    struct lp_err err;
    assemble(&a, GOLDEN,
             (const struct more_tensor[]){{"blk.2.attn_output.scale", LP_TYPE_F32, 1, bad}, {NULL}},
             "blk.3.ffn_up_exps.weight");
    assert_int_equal(lp_backend_ref.open(&dev, NULL, &err), LP_OK);
    assert_int_equal(lp_model_load(&model, a.gguf, dev, 1, UINT64_MAX, &err), LP_STATUS_FORMAT);
    assert_non_null(strstr(err.text, "tensor blk.2.attn_output.scale holds NaN or infinity"));
    lp_backend_ref.close(dev);
    disassemble(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(factors_are_placed_with_their_matrices),
        cmocka_unit_test(a_part_of_a_weight_begins_where_it_says),
        cmocka_unit_test(factors_are_checked_for_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
