// The memory plan says beforehand what loading, the cache and the runner then take.
#include "model/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include "model/model.h"

static void check_file(const char *path, lp_type type, int64_t context, int64_t chunk) {
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
    assert_int_equal(lp_model_load(&model, gguf, dev, 1, &err), LP_OK);
    assert_int_equal(
        lp_plan_make(&plan, &model->h, &model->binding, other, type, context, chunk, &err), LP_OK);
    lp_model_kv_layers(model, layers);
    assert_int_equal(lp_kv_new(&kv, dev, layers, model->h.n_layers, type, context, &err), LP_OK);
    assert_int_equal(lp_runner_new(&runner, model, kv, chunk, context, &err), LP_OK);
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
    check_file("tests/golden/dsa_shared.gguf", LP_TYPE_F16, 1000, 64);
    check_file("tests/golden/ds2_lite.gguf", LP_TYPE_F32, 64, 1);
    check_file("tests/golden/glm45.gguf", LP_TYPE_BF16, 129, 16);
}

static void refuses_what_the_cache_refuses(void **state) {
    (void)state;
    struct lp_err err;
    struct lp_gguf *gguf;
    struct lp_device *dev;
    struct lp_model *model;
    struct lp_plan plan;
    assert_int_equal(lp_gguf_open(&gguf, "tests/golden/llama.gguf", &err), LP_OK);
    assert_int_equal(lp_backend_ref.open(&dev, NULL, &err), LP_OK);
    assert_int_equal(lp_model_load(&model, gguf, dev, 1, &err), LP_OK);
    assert_int_equal(lp_plan_make(&plan, &model->h, &model->binding, dev, LP_TYPE_F16, 0, 1, &err),
                     LP_STATUS_INVALID);
    assert_int_equal(
        lp_plan_make(&plan, &model->h, &model->binding, dev, LP_TYPE_Q8_0, 64, 1, &err),
        LP_STATUS_INVALID);
    lp_model_free(model);
    lp_backend_ref.close(dev);
    lp_gguf_close(gguf);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(plan_is_what_is_taken),
                                       cmocka_unit_test(refuses_what_the_cache_refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
