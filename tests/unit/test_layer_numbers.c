// A model whose layers were given other numbers than its metadata says: the layer and the number
// are named. The changes are made in a thin copy; the model that it was made from stays as it is.
#include "lp_test.h"

#include "doctor/layer_numbers.h"
#include "doctor/shadow.h"
#include "doctor/thin.h"

struct fixture {
    struct lp_gguf *gguf;
    struct lp_device *dev, *ref, *shadow;
    struct lp_model *whole;
    struct lp_thin *thin;
    struct lp_walk walk;
    struct lp_layer_numbers numbers;
};

static void on_operation(void *user, int32_t layer, const char *op, const void *args) {
    struct fixture *f = user;
    lp_layer_numbers_see(&f->numbers, layer, op, args);
}

static void on_layer(void *user, int32_t layer, const float *h, const int32_t *selected,
                     const int32_t *n_selected, int64_t ids_stride) {
    struct fixture *f = user;
    (void)h, (void)selected, (void)n_selected, (void)ids_stride;
    lp_layer_numbers_end(&f->numbers, layer);
    lp_shadow_set_layer(f->shadow, layer + 1);
}

static void open_fixture(struct fixture *f, const char *path) {
    struct lp_err err = {0};
    struct lp_shadow_config config = {.sees = on_operation, .user = f, .max_work = 1};
    *f = (struct fixture){0};
    assert_int_equal(lp_gguf_open(&f->gguf, path, &err), LP_OK);
    assert_int_equal(lp_backend_ref.open(&f->dev, NULL, &err), LP_OK);
    assert_int_equal(lp_backend_ref.open(&f->ref, NULL, &err), LP_OK);
    assert_int_equal(lp_shadow_open(&f->shadow, f->dev, f->ref, &config, &err), LP_OK);
    assert_int_equal(
        lp_model_load(&f->whole, f->gguf, f->dev,
                      &(struct lp_load){.n_threads = 1, .check_bytes = LP_CHECK_WHOLE_BYTES}, &err),
        LP_OK);
    assert_int_equal(lp_thin_new(&f->thin, f->whole, true, &err), LP_OK);
    assert_int_equal(f->thin->model.h.n_layers, f->whole->h.n_layers); // a small file: all
    assert_false(f->thin->brief);
}

static void close_fixture(struct fixture *f) {
    lp_thin_free(f->thin);
    lp_model_free(f->whole);
    f->shadow->backend->close(f->shadow);
    lp_backend_ref.close(f->dev);
    lp_backend_ref.close(f->ref);
    lp_gguf_close(f->gguf);
}

// Two steps of two sequences.
static void run(struct fixture *f) {
    struct lp_err err = {0};
    int32_t tokens[32];
    struct lp_walk_options options = {
        .dev = f->shadow, .kv_type = LP_TYPE_F32, .max_context = 64, .max_rows = 32, .top_k = 4};
    struct lp_walk_part parts[2][2] = {{{0, 9}, {1, 3}}, {{1, 2}, {0, 4}}};
    for (int i = 0; i < 32; i++) tokens[i] = i + 3;
    f->numbers = (struct lp_layer_numbers){.walk = &f->walk, .n_parts = 2};
    assert_int_equal(lp_walk_init(&f->walk, &f->thin->model, &options, &err), LP_OK);
    for (int i = 0; i < 2; i++) {
        struct lp_step_settings settings = {.watch = on_layer, .watch_user = f};
        f->numbers.parts = parts[i];
        lp_shadow_set_layer(f->shadow, -1);
        assert_int_equal(lp_walk_step(&f->walk, parts[i], 2, tokens, &settings, NULL, &err), LP_OK);
    }
    lp_walk_release(&f->walk);
}

static void expect(struct fixture *f, int32_t layer, const char *what) {
    run(f);
    if (!f->numbers.what) fail_msg("nothing was found; expected: %s", what);
    assert_string_equal(f->numbers.what, what);
    assert_int_equal(f->numbers.layer, layer);
}

static void right_numbers_pass(void **state) {
    (void)state;
    static const char *const paths[] = {"tests/golden/dsa_shared.gguf", "tests/golden/glm45.gguf",
                                        "tests/golden/qwen3.gguf", "tests/golden/ds3.gguf"};
    for (size_t i = 0; i < 4; i++) {
        struct fixture f;
        open_fixture(&f, paths[i]);
        run(&f);
        if (f.numbers.what)
            fail_msg("%s: %s in layer %d", paths[i], f.numbers.what, f.numbers.layer);
        assert_true(f.numbers.n_seen > 50);
        close_fixture(&f);
    }
}

static void wrong_numbers_are_named(void **state) {
    (void)state;
    struct fixture f;
    open_fixture(&f, "tests/golden/dsa_sparse.gguf");
    struct lp_mla_layer *mla = &f.thin->model.layers[1].mla;
    struct lp_mla_layer old = *mla;
    mla->rope.pairing = LP_ROPE_HALF;
    expect(&f, 1, "rope pairing of the attention");
    *mla = old;
    mla->index_rope.pairing =
        old.index_rope.pairing == LP_ROPE_HALF ? LP_ROPE_ADJACENT : LP_ROPE_HALF;
    expect(&f, 1, "rope pairing of the indexer");
    *mla = old;
    mla->scale *= 1.5f;
    expect(&f, 1, "softmax scale");
    *mla = old;
    mla->eps *= 10;
    expect(&f, 1, "epsilon of a norm");
    *mla = old;
    mla->rope.magnitude = 1.1f;
    expect(&f, 1, "magnitude of the rotation");
    *mla = old;
    mla->indexer = LP_INDEXER_SHARED;
    expect(&f, 1, "role of the indexer");
    *mla = old;
    assert_true(f.whole->layers[1].mla.scale == old.scale && f.whole->dev == f.dev);
    close_fixture(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_numbers_pass),
        cmocka_unit_test(wrong_numbers_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
