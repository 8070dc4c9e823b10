// What a selection holds of the attention: sums by hand, and a whole run on a random model.
#include "lp_test.h"

#include <math.h>

#include "doctor/recall.h"

static void test_measure(void **state) {
    (void)state;
    const float mass[] = {0.4f, 0.05f, 0.3f, 0.05f, 0.2f};
    const int32_t ids[] = {1, 2};
    struct lp_recall_layer sum = {0};
    lp_recall_measure(mass, 5, ids, 2, 2, &sum);
    assert_float_equal(sum.selected, 0.35, 1e-6);
    assert_float_equal(sum.best, 0.7, 1e-6);
    assert_float_equal(sum.recent, 0.25, 1e-6);
    assert_float_equal(sum.random, 0.4, 1e-6);
    assert_float_equal(sum.overlap, 0.5, 1e-6); // 2 is among the best two, 1 is not
    assert_float_equal(lp_recall_skill(&sum, 0.7), 1, 1e-6);
    assert_float_equal(lp_recall_skill(&sum, 0.4), 0, 1e-6);
}

static void test_even_attention_says_nothing(void **state) {
    (void)state;
    const float mass[] = {0.25f, 0.25f, 0.25f, 0.25f};
    const int32_t ids[] = {0, 3};
    struct lp_recall_layer sum = {0};
    lp_recall_measure(mass, 4, ids, 2, 2, &sum);
    assert_true(isnan(lp_recall_skill(&sum, sum.selected)));
    // Ids that are no positions hold nothing.
    const int32_t odd[] = {-1, 9};
    sum = (struct lp_recall_layer){0};
    lp_recall_measure(mass, 4, odd, 2, 2, &sum);
    assert_float_equal(sum.selected, 0, 0);
}

// The selection that a run sees is the one of top_k keys, and its shares add up.
static void test_run(void **state) {
    (void)state;
    struct lp_err err = {0};
    struct lp_gguf *gguf;
    struct lp_device *dev;
    struct lp_model *model;
    struct lp_recall *recall;
    struct lp_recall_layer first[LP_MAX_LAYERS], second[LP_MAX_LAYERS];
    int32_t tokens[80];
    assert_int_equal(lp_gguf_open(&gguf, "tests/golden/dsa_sparse.gguf", &err), LP_OK);
    assert_int_equal(lp_backend_ref.open(&dev, NULL, &err), LP_OK);
    assert_int_equal(
        lp_model_load(&model, gguf, dev,
                      &(struct lp_load){.n_threads = 1, .check_bytes = LP_CHECK_WHOLE_BYTES}, &err),
        LP_OK);
    int32_t own_top_k = model->layers[0].mla.top_k, top_k = own_top_k < 4 ? own_top_k : 4;
    for (int i = 0; i < 80; i++) tokens[i] = (i * 7 + 3) % (int32_t)model->h.n_vocab;
    assert_int_equal(lp_recall_new(&recall, model, tokens, 80, top_k, 6, &err), LP_OK);
    assert_int_equal(lp_recall_run(recall, first, &err), LP_OK);
    assert_int_equal(lp_recall_run(recall, second, &err), LP_OK);
    for (int32_t l = 0; l < model->h.n_layers; l++) {
        assert_true(first[l].selected > 0 && first[l].selected <= first[l].best + 1e-6);
        assert_true(first[l].best <= 1 + 1e-6 && first[l].recent <= first[l].best + 1e-6);
        assert_true(first[l].overlap >= 0 && first[l].overlap <= 1);
        assert_float_equal(first[l].selected, second[l].selected, 1e-9);
        assert_int_equal(model->layers[l].mla.top_k, own_top_k);
    }
    assert_ptr_equal(dev->backend, &lp_backend_ref);
    lp_recall_free(recall);
    lp_model_free(model);
    lp_backend_ref.close(dev);
    lp_gguf_close(gguf);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_measure),
                                       cmocka_unit_test(test_even_attention_says_nothing),
                                       cmocka_unit_test(test_run)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
