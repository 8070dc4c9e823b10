// The memory plan says beforehand what loading, the cache and the runner then take.
#include "model/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "model/model.h"

static void check_file(const char *path, const struct lp_plan_request *ask) {
    struct lp_err err;
    struct lp_gguf *gguf;
    struct lp_device *dev, *other;
    struct lp_model *model;
    struct lp_plan plan;
    struct lp_kv *kv;
    struct lp_runner *runner;
    struct lp_kv_layer layers[LP_MAX_LAYERS];
    assert_int_equal(lp_gguf_open(&gguf, path, &err), LP_OK);
    assert_int_equal(lp_backend_ref.open(&dev, NULL, &err), LP_OK);
    assert_int_equal(lp_backend_ref.open(&other, NULL, &err), LP_OK);
    assert_int_equal(
        lp_model_load(&model, gguf, dev,
                      &(struct lp_load){.n_threads = 1, .check_bytes = LP_CHECK_WHOLE_BYTES}, &err),
        LP_OK);
    assert_int_equal(lp_plan_make(&plan, &model->h, &model->binding, other, ask, &err), LP_OK);
    lp_model_kv_layers(model, ask->with_mtp, layers);
    assert_int_equal(lp_kv_new(&kv, dev, layers, lp_model_kv_count(model, ask->with_mtp),
                               ask->kv_type, ask->n_kv_tokens, &err),
                     LP_OK);
    assert_int_equal(
        lp_runner_new(&runner, model, kv, ask->chunk, ask->context, ask->with_mtp, &err), LP_OK);
    assert_int_equal(plan.float32_bytes, model->owned_bytes);
    assert_int_equal(plan.kv_token_bytes, lp_kv_token_bytes(kv));
    assert_int_equal(plan.kv_bytes, lp_kv_bytes(kv));
    assert_int_equal(plan.step_bytes, lp_runner_bytes(runner));
    lp_runner_free(runner);
    lp_kv_free(kv);
    lp_model_free(model);
    lp_backend_ref.close(dev);
    lp_backend_ref.close(other);
    lp_gguf_close(gguf);
}

static void plan_is_what_is_taken(void **state) {
    (void)state;
    check_file("tests/golden/dsa_shared.gguf",
               &(struct lp_plan_request){LP_TYPE_F16, 1000, 1000, 64, false, 0});
    check_file("tests/golden/dsa_shared.gguf",
               &(struct lp_plan_request){LP_TYPE_F16, 1000, 5000, 64, true, 0});
    check_file("tests/golden/ds2_lite.gguf",
               &(struct lp_plan_request){LP_TYPE_F32, 64, 640, 1, false, 0});
    check_file("tests/golden/glm45.gguf",
               &(struct lp_plan_request){LP_TYPE_BF16, 129, 129, 16, false, 0});
    check_file("tests/golden/glm45.gguf",
               &(struct lp_plan_request){LP_TYPE_BF16, 129, 129, 16, true, 0});
}

static void refuses_what_cache_and_runner_refuse(void **state) {
    (void)state;
    struct lp_err err;
    struct lp_gguf *gguf;
    struct lp_device *dev;
    struct lp_model *model;
    struct lp_plan plan;
    assert_int_equal(lp_gguf_open(&gguf, "tests/golden/llama.gguf", &err), LP_OK);
    assert_int_equal(lp_backend_ref.open(&dev, NULL, &err), LP_OK);
    assert_int_equal(
        lp_model_load(&model, gguf, dev,
                      &(struct lp_load){.n_threads = 1, .check_bytes = LP_CHECK_WHOLE_BYTES}, &err),
        LP_OK);
    static const struct lp_plan_request refused[] = {{LP_TYPE_F16, 64, 0, 1, false, 0},
                                                     {LP_TYPE_Q4_K, 64, 64, 1, false, 0},
                                                     {LP_TYPE_F16, 64, 64, 1, true, 0}};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        assert_int_equal(lp_plan_make(&plan, &model->h, &model->binding, dev, &refused[i], &err),
                         LP_STATUS_INVALID);
    assert_non_null(strstr(err.text, "no MTP layer")); // llama has none
    struct lp_plan_request longest = {
        .kv_type = LP_TYPE_F16, .context = 640, .n_kv_tokens = 64, .chunk = 1};
    assert_int_equal(lp_plan_make(&plan, &model->h, &model->binding, dev, &longest, &err), LP_OK);
    longest.max_context_bytes = 640 * plan.kv_token_bytes;
    assert_int_equal(lp_plan_make(&plan, &model->h, &model->binding, dev, &longest, &err), LP_OK);
    longest.max_context_bytes--;
    assert_int_equal(lp_plan_make(&plan, &model->h, &model->binding, dev, &longest, &err),
                     LP_STATUS_MEMORY);
    assert_non_null(strstr(err.text, "640 tokens"));
    lp_model_free(model);
    lp_backend_ref.close(dev);
    lp_gguf_close(gguf);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(plan_is_what_is_taken),
                                       cmocka_unit_test(refuses_what_cache_and_runner_refuse)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
