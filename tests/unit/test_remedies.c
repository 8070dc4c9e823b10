// Every remedy for every kind of model: what it changes it puts back, bit for bit, and the texts that
// accuse say what and how.
#include "lp_test.h"

#include "doctor/remedies.h"

struct fixture {
    struct lp_gguf *gguf;
    struct lp_device *dev;
    struct lp_model *model;
    struct lp_exam *exam;
    struct lp_trial trial;
};

static void open_fixture(struct fixture *f, const char *path) {
    struct lp_err err = {0};
    *f = (struct fixture){0};
    assert_int_equal(lp_gguf_open(&f->gguf, path, &err), LP_OK);
    assert_int_equal(lp_backend_ref.open(&f->dev, NULL, &err), LP_OK);
    assert_int_equal(
        lp_model_load(&f->model, f->gguf, f->dev,
                      &(struct lp_load){.n_threads = 1, .check_bytes = LP_CHECK_WHOLE_BYTES}, &err),
        LP_OK);
    f->exam = calloc(1, sizeof *f->exam);
    f->exam->gguf = f->gguf;
    f->exam->h = f->model->h;
    f->trial = (struct lp_trial){.exam = f->exam, .model = f->model, .patch.dev = f->dev};
}

static void close_fixture(struct fixture *f) {
    lp_trial_release(&f->trial);
    lp_model_free(f->model);
    lp_backend_ref.close(f->dev);
    lp_gguf_close(f->gguf);
    free(f->exam);
}

static void list_all(struct lp_trial *t) {
    lp_remedies_of_suspects(t);
    lp_remedies_of_tokens(t);
    lp_remedies_of_settings(t);
    lp_remedies_of_router(t);
    lp_remedies_of_sequence(t);
    for (int32_t l = 0; l < t->model->h.n_layers; l++) lp_remedies_of_experts(t, l);
    for (int32_t l = -1; l < t->model->h.n_layers; l++) lp_remedies_of_layer(t, l);
}

static void check_file(const char *path) {
    struct fixture f;
    open_fixture(&f, path);
    struct lp_trial *t = &f.trial;
    size_t bytes = (size_t)f.model->h.n_layers * sizeof *f.model->layers, n_applied = 0;
    struct lp_layer *layers = malloc(bytes);
    struct lp_model model = *f.model;
    memcpy(layers, f.model->layers, bytes);
    list_all(t);
    assert_true(t->n > 40);
    for (size_t i = 0; i < t->n; i++) {
        const struct lp_remedy *r = &t->list[i];
        t->run = (struct lp_reading_run){.from_layer = r->from_layer};
        r->apply(t, r);
        n_applied += !t->patch.failed;
        for (int32_t l = 0; l < r->from_layer && l < f.model->h.n_layers; l++)
            assert_memory_equal(&f.model->layers[l], &layers[l], sizeof layers[l]);
        lp_patch_undo(&t->patch);
        assert_memory_equal(f.model->layers, layers, bytes);
        assert_memory_equal(f.model, &model, sizeof model);
        assert_true(r->what[0] && r->cause[0] && r->change[0] && r->repair[0]);
        assert_true(r->layer >= -1 && r->layer < f.model->h.n_layers);
    }
    assert_int_equal(n_applied, t->n);
    free(layers);
    close_fixture(&f);
}

static void test_undone(void **state) {
    (void)state;
    check_file("tests/golden/dsa_sparse.gguf"); // latent attention, experts, indexer
    check_file("tests/golden/ds3.gguf");        // groups of experts, YaRN
    check_file("tests/golden/ds2_lite.gguf");   // no query rank
    check_file("tests/golden/glm45.gguf");      // grouped queries and experts
    check_file("tests/golden/llama.gguf");
}

static void test_suspects(void **state) {
    (void)state;
    struct fixture f;
    open_fixture(&f, "tests/golden/dsa_sparse.gguf");
    const struct lp_gguf_tensor *k =
        lp_gguf_find_tensor(f.gguf, lp_str_from("blk.1.attn_k_b.weight"));
    const struct lp_gguf_tensor *down =
        lp_gguf_find_tensor(f.gguf, lp_str_from("blk.1.ffn_down_exps.weight"));
    const struct lp_gguf_tensor *norm =
        lp_gguf_find_tensor(f.gguf, lp_str_from("blk.1.attn_norm.weight"));
    assert_non_null(k);
    assert_non_null(down);
    struct lp_suspect s = {.kind = LP_SUSPECT_TRANSPOSED, .layer = 1, .tensor = k, .expert = -1};
    lp_exam_suspect(f.exam, &s);
    s = (struct lp_suspect){.kind = LP_SUSPECT_SWAPPED,
                            .layer = 1,
                            .tensor = down,
                            .other = down,
                            .expert = 0,
                            .other_expert = 1};
    lp_exam_suspect(f.exam, &s);
    s = (struct lp_suspect){.kind = LP_SUSPECT_SCALE, .layer = 1, .tensor = norm, .factor = 16};
    lp_exam_suspect(f.exam, &s);
    s.tensor = lp_gguf_find_tensor(f.gguf, lp_str_from("blk.1.exp_probs_b.bias"));
    lp_exam_suspect(f.exam, &s); // neither a matrix nor a norm: no remedy
    lp_remedies_of_suspects(&f.trial);
    assert_int_equal(f.trial.n, 3);
    assert_string_equal(f.trial.list[0].what, "blk.1.attn_k_b.weight");
    struct lp_weight *w = lp_remedy_weight(f.model, 1, LP_SLOT_DOWN_EXPS), was = *w;
    f.trial.list[1].apply(&f.trial, &f.trial.list[1]);
    assert_memory_equal(w->data, (const char *)was.data + was.mat_bytes,
                        was.row_bytes * (size_t)was.n_out);
    lp_patch_undo(&f.trial.patch);
    assert_memory_equal(w, &was, sizeof was);
    const float *right = f.model->layers[1].attn_norm;
    f.trial.list[2].apply(&f.trial, &f.trial.list[2]);
    for (int64_t i = 0; i < f.model->h.n_embd; i++)
        assert_float_equal(f.model->layers[1].attn_norm[i], right[i] / 16, 0);
    lp_patch_undo(&f.trial.patch);
    assert_ptr_equal(f.model->layers[1].attn_norm, right);
    close_fixture(&f);
}

// Adjacent pairs to split halves and back is where one started.
static void test_reorder(void **state) {
    (void)state;
    struct fixture f;
    open_fixture(&f, "tests/golden/dsa_sparse.gguf");
    struct lp_weight *w = lp_remedy_weight(f.model, 0, LP_SLOT_KV_A), was = *w;
    size_t bytes = was.row_bytes * (size_t)was.n_out;
    const struct lp_hparams *h = &f.model->h;
    lp_remedy_reorder(&f.trial.patch, f.model, 0, LP_SLOT_KV_A, true);
    assert_memory_equal(w->data, was.data, was.row_bytes * (size_t)h->latent);
    // Row 1 of the rotated ones is what row 2 was.
    assert_memory_equal((const char *)w->data + was.row_bytes * (size_t)(h->latent + 1),
                        (const char *)was.data + was.row_bytes * (size_t)(h->latent + 2),
                        was.row_bytes);
    lp_remedy_reorder(&f.trial.patch, f.model, 0, LP_SLOT_KV_A, false);
    assert_memory_equal(w->data, was.data, bytes);
    lp_patch_undo(&f.trial.patch);
    assert_memory_equal(w, &was, sizeof was);
    close_fixture(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_undone),
                                       cmocka_unit_test(test_suspects),
                                       cmocka_unit_test(test_reorder)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
