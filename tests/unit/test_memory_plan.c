// What limpid_plan says of a file that nobody has read yet is what its model and engine then take.
#include "lp_test.h"

#include "engine/engine.h"

#define MINI "models/mini-glm-dsa.gguf"

static limpid_memory_plan planned(const char *path, const limpid_model_options *model,
                                  const limpid_engine_options *engine) {
    limpid_memory_plan plan;
    limpid_error err;
    if (limpid_plan(&plan, path, model, engine, &err)) fail_msg("%s", err.text);
    return plan;
}

static limpid_memory_plan taken(const char *path, const limpid_model_options *model,
                                const limpid_engine_options *engine) {
    limpid_memory_plan plan;
    limpid_model *m;
    limpid_engine *e;
    limpid_error err;
    if (limpid_model_open(&m, path, model, &err)) fail_msg("%s", err.text);
    if (limpid_engine_plan(&plan, m, engine, &err)) fail_msg("%s", err.text);
    if (limpid_engine_new(&e, m, engine, &err)) fail_msg("%s", err.text);
    assert_int_equal(plan.kv_cache, limpid_engine_kv_bytes(e));
    limpid_engine_free(e, NULL);
    limpid_model_close(m);
    return plan;
}

// Within a thousandth: packed weights begin at multiples of 64 bytes.
static void assert_near(uint64_t is, uint64_t expected) {
    assert_in_range(is, expected - expected / 1000, expected + expected / 1000 + 64);
}

static void a_plan_is_what_is_taken_later(void **state) {
    (void)state;
    static const char *const repack[] = {"off", "on", "auto"};
    for (int speculate = 0; speculate <= 2; speculate += 2)
        for (int i = 0; i < 3; i++) {
            limpid_model_options model = limpid_model_default_options();
            limpid_engine_options engine = limpid_engine_default_options();
            model.repack = repack[i];
            model.n_threads = 2;
            engine.n_context = 300;
            engine.n_kv_tokens = 900;
            engine.speculate = speculate;
            limpid_memory_plan before = planned(MINI, &model, &engine);
            limpid_memory_plan after = taken(MINI, &model, &engine);
            assert_int_equal(before.kv_cache, after.kv_cache);
            assert_int_equal(before.step_buffers, after.step_buffers);
            assert_int_equal(before.n_kv_tokens, after.n_kv_tokens);
            assert_int_equal(before.mapped_weights, after.mapped_weights);
            assert_near(before.copied_weights, after.copied_weights);
        }
}

static void weights_read_ahead_count_as_copied(void **state) {
    (void)state;
    limpid_model_options model = limpid_model_default_options();
    limpid_memory_plan mapped, copied;
    model.repack = "off";
    mapped = planned(MINI, &model, NULL);
    model.prefetch = true;
    copied = planned(MINI, &model, NULL);
    assert_int_equal(copied.mapped_weights, 0);
    assert_true(copied.copied_weights >= mapped.mapped_weights + mapped.copied_weights);
    limpid_memory_plan after = taken(MINI, &model, NULL);
    assert_int_equal(after.mapped_weights, 0);
    assert_true(copied.copied_weights >= after.copied_weights);
}

static void a_memory_budget_bounds_what_is_in_memory(void **state) {
    (void)state;
    limpid_model_options model = limpid_model_default_options();
    model.memory_budget_bytes = 16 << 20;
    limpid_memory_plan before = planned(MINI, &model, NULL), after = taken(MINI, &model, NULL);
    assert_int_equal(before.mapped_weights, after.mapped_weights);
    assert_int_equal(before.copied_weights, after.copied_weights);
}

static void a_folder_is_planned_as_it_is_run(void **state) {
    (void)state;
    static const char *const folders[] = {"tests/data/hf/deepseek_v3", "tests/data/hf/glm_moe_dsa",
                                          "tests/data/hf/llama"};
    limpid_model_options model = limpid_model_default_options();
    model.repack = "off";
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        limpid_memory_plan before = planned(folders[i], &model, NULL);
        limpid_memory_plan after = taken(folders[i], &model, NULL);
        assert_int_equal(before.mapped_weights, after.mapped_weights);
        assert_int_equal(before.copied_weights, after.copied_weights);
        assert_int_equal(before.kv_cache, after.kv_cache);
        assert_int_equal(before.step_buffers, after.step_buffers);
    }
}

static void what_cannot_be_opened_cannot_be_planned(void **state) {
    (void)state;
    limpid_memory_plan plan;
    limpid_error err;
    limpid_model_options model = limpid_model_default_options();
    limpid_engine_options engine = limpid_engine_default_options();
    assert_int_equal(limpid_plan(&plan, "tests/nowhere.gguf", NULL, NULL, &err), LIMPID_IO);
    model.prefetch = true;
    model.memory_budget_bytes = 1 << 30;
    assert_int_equal(limpid_plan(&plan, MINI, &model, NULL, &err), LIMPID_INVALID);
    assert_non_null(strstr(err.text, "one of the two"));
    engine.kv_type = "f8";
    assert_int_equal(limpid_plan(&plan, MINI, NULL, &engine, &err), LIMPID_INVALID);
    assert_non_null(strstr(err.text, "f8"));
}

// Copies that nobody asked for stay out of the memory that engines are about to take.
static void automatic_copies_leave_what_is_reserved(void **state) {
    (void)state;
    assert_true(lp_repack_pays(LP_REPACK_AUTO, false, 40, 100, 60));
    assert_false(lp_repack_pays(LP_REPACK_AUTO, false, 40, 100, 61));
    assert_false(lp_repack_pays(LP_REPACK_AUTO, false, 51, 100, 0));
    assert_true(lp_repack_pays(LP_REPACK_ON, false, 51, 100, 61));
    limpid_model_options o = limpid_model_default_options();
    limpid_model *m;
    limpid_error err;
    o.reserve_bytes = UINT64_MAX;
    if (limpid_model_open(&m, MINI, &o, &err)) fail_msg("%s", err.text);
    assert_null(m->weights->packed);
    limpid_model_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_plan_is_what_is_taken_later),
                                       cmocka_unit_test(weights_read_ahead_count_as_copied),
                                       cmocka_unit_test(a_memory_budget_bounds_what_is_in_memory),
                                       cmocka_unit_test(a_folder_is_planned_as_it_is_run),
                                       cmocka_unit_test(what_cannot_be_opened_cannot_be_planned),
                                       cmocka_unit_test(automatic_copies_leave_what_is_reserved)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
