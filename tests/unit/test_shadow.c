// The shadow device over backends with one wrong operation each: a real step through a golden model
// must name the operation, its layer and the places, and nothing else. The wrong ones are copies of
// ref with one function replaced, so that all others are right by definition.
#include "lp_test.h"

#include <math.h>

#include "doctor/shadow.h"
#include "model/model.h"

#define N_TOKENS 40
#define MAX_BAD 400

struct bad {
    char op[24], where[192], weight[96];
    int32_t layer;
    int64_t n_rows;
    double error;
};

struct fixture {
    struct lp_gguf *gguf;
    struct lp_device *wrong, *ref, *shadow;
    struct lp_backend backend; // of `wrong`
    struct lp_model *model;
    struct lp_kv *kv;
    struct lp_runner *runner;
    struct lp_page_table pages;
    struct bad bad[MAX_BAD];
    int n_bad, n_findings;
    double worst;
};

static void on_finding(void *user, const struct lp_shadow_finding *f) {
    struct fixture *x = user;
    x->n_findings++;
    if (f->diff.error <= f->bound) {
        if (f->diff.error > x->worst) x->worst = f->diff.error;
        return;
    }
    assert_true(x->n_bad < MAX_BAD);
    struct bad *b = &x->bad[x->n_bad++];
    snprintf(b->op, sizeof b->op, "%s", f->op);
    snprintf(b->where, sizeof b->where, "%s", f->where);
    snprintf(b->weight, sizeof b->weight, "%.*s", LP_STR_ARGS(f->weight));
    b->layer = f->layer;
    b->n_rows = f->n_rows;
    b->error = f->diff.error;
}

static void on_layer(void *user, int32_t layer, const float *h, const int32_t *selected,
                     const int32_t *n_selected, int64_t ids_stride) {
    const struct fixture *x = user;
    (void)h, (void)selected, (void)n_selected, (void)ids_stride;
    lp_shadow_set_layer(x->shadow, layer + 1);
}

// A model on the shadow of `wrong` (a backend that opens as ref or cpu does) and ref.
static void open_fixture(struct fixture *x, const char *path, const struct lp_backend *wrong,
                         int64_t max_work) {
    struct lp_err err = {0};
    struct lp_kv_layer layers[LP_MAX_LAYERS];
    struct lp_shadow_config config = {.found = on_finding, .user = x, .max_work = max_work};
    struct lp_device_options options = {.n_threads = 1};
    *x = (struct fixture){.backend = *wrong};
    assert_int_equal(lp_gguf_open(&x->gguf, path, &err), LP_OK);
    assert_int_equal(wrong->open(&x->wrong, &options, &err), LP_OK);
    x->wrong->backend = &x->backend;
    assert_int_equal(lp_backend_ref.open(&x->ref, NULL, &err), LP_OK);
    assert_int_equal(lp_shadow_open(&x->shadow, x->wrong, x->ref, &config, &err), LP_OK);
    assert_int_equal(
        lp_model_load(&x->model, x->gguf, x->shadow,
                      &(struct lp_load){.n_threads = 1, .check_bytes = LP_CHECK_WHOLE_BYTES}, &err),
        LP_OK);
    lp_model_kv_layers(x->model, false, layers);
    assert_int_equal(lp_kv_new(&x->kv, x->shadow, layers, lp_model_kv_count(x->model, false),
                               LP_TYPE_F32, 256, &err),
                     LP_OK);
    assert_int_equal(lp_runner_new(&x->runner, x->model, x->kv, 64, 128, false, &err), LP_OK);
}

static void close_fixture(struct fixture *x) {
    lp_page_table_release(&x->pages, x->kv);
    lp_runner_free(x->runner);
    lp_kv_free(x->kv);
    lp_model_free(x->model);
    x->shadow->backend->close(x->shadow);
    x->backend.close(x->wrong);
    lp_backend_ref.close(x->ref);
    lp_gguf_close(x->gguf);
}

static void run(struct fixture *x, int64_t n, enum lp_route_force force) {
    struct lp_err err = {0};
    int32_t tokens[64], row = (int32_t)n - 1;
    float *logits = calloc((size_t)x->model->h.n_vocab, sizeof *logits);
    for (int64_t i = 0; i < n; i++)
        tokens[i] = (int32_t)((x->pages.n_tokens + i) * 37 % x->model->h.n_vocab);
    struct lp_span span = {.pages = &x->pages, .n_past = x->pages.n_tokens, .n_rows = n};
    assert_int_equal(lp_page_table_grow(&x->pages, x->kv, span.n_past + n, &err), LP_OK);
    struct lp_step step = {.tokens = tokens,
                           .spans = &span,
                           .n_spans = 1,
                           .n_rows = n,
                           .logit_rows = &row,
                           .n_logit_rows = 1,
                           .logits = logits};
    struct lp_step_settings settings = {.force = force, .watch = on_layer, .watch_user = x};
    lp_shadow_set_layer(x->shadow, -1);
    assert_int_equal(lp_runner_step(x->runner, &step, &settings, &err), LP_OK);
    assert_false(lp_shadow_failed(x->shadow));
    free(logits);
}

static void run_both(struct fixture *x) {
    run(x, N_TOKENS, LP_ROUTE_EXPANDED);
    run(x, 1, LP_ROUTE_ABSORBED);
    run(x, 7, LP_ROUTE_ABSORBED);
}

// Everything that is wrong is this operation, with these words about where.
static void expect_only(const struct fixture *x, const char *op, int32_t layer, const char *where) {
    assert_true(x->n_bad > 0);
    for (int i = 0; i < x->n_bad; i++) assert_string_equal(x->bad[i].op, op);
    assert_int_equal(x->bad[0].layer, layer);
    assert_non_null(strstr(x->bad[0].where, where));
}

// ---- wrong operations

static void matmul_wrong_at_33(struct lp_device *dev, const struct lp_op_matmul *op) {
    lp_backend_ref.matmul(dev, op);
    for (int64_t t = op->n_rows / 32 * 32; op->n_rows > 32 && t < op->n_rows; t++)
        for (int64_t i = 0; i < op->w->n_out; i++) op->y[t * op->y_stride + i] *= 0.9f;
}

static void gqa_drops_bias(struct lp_device *dev, const struct lp_op_matmul *op) {
    struct lp_op_matmul copy = *op;
    copy.bias = NULL;
    lp_backend_ref.matmul(dev, &copy);
}

static void absorbed_sees_one_more(struct lp_device *dev, const struct lp_op_mla_absorbed *op) {
    struct lp_op_mla_absorbed copy = *op;
    if (copy.visible.first_pos > 0) copy.visible.first_pos--; // the newest key is not seen
    lp_backend_ref.mla_absorbed(dev, &copy);
}

static void expanded_mixes_heads(struct lp_device *dev, const struct lp_op_mla_expanded *op) {
    lp_backend_ref.mla_expanded(dev, op);
    for (int64_t q = 0; q < op->visible.n_queries; q++) {
        float *out = op->out + q * op->out_stride;
        memcpy(out + op->v_dim, out, (size_t)op->v_dim * sizeof *out);
    }
}

static void cache_loses_last(struct lp_device *dev, const struct lp_op_cache_write *op) {
    struct lp_op_cache_write copy = *op;
    if (copy.n_rows > 1) copy.n_rows--;
    lp_backend_ref.cache_write(dev, &copy);
}

static void select_takes_next(struct lp_device *dev, const struct lp_op_index_select *op) {
    lp_backend_ref.index_select(dev, op);
    for (int64_t q = 0; q < op->n_queries; q++)
        if (op->first_pos + q >= op->top_k) { // what is not selected for the first that is
            int32_t *ids = op->ids + q * op->ids_stride, missing = 0;
            while (missing < op->counts[q] && ids[missing] == missing) missing++;
            for (int32_t i = missing; i > 0; i--) ids[i] = ids[i - 1] + 1;
            if (missing > 0) ids[0] = 1;
        }
}

static void router_without_bias(struct lp_device *dev, const struct lp_op_router *op) {
    struct lp_op_router copy = *op;
    copy.bias = NULL;
    copy.scale *= 1.01f;
    lp_backend_ref.router(dev, &copy);
}

static void experts_overwrite(struct lp_device *dev, const struct lp_op_experts *op) {
    for (int64_t t = 0; t < op->n_rows; t++)
        memset(op->y + t * op->y_stride, 0, (size_t)op->down->n_out * sizeof *op->y);
    lp_backend_ref.experts(dev, op);
}

static void rope_other_pairs(struct lp_device *dev, const struct lp_op_rope *op) {
    struct lp_op_rope copy = *op;
    copy.pairing = op->pairing == LP_ROPE_HALF ? LP_ROPE_ADJACENT : LP_ROPE_HALF;
    lp_backend_ref.rope(dev, &copy);
}

static void norm_with_other_eps(struct lp_device *dev, const struct lp_op_rms_norm *op) {
    struct lp_op_rms_norm copy = *op;
    copy.eps += 1e-2f;
    lp_backend_ref.rms_norm(dev, &copy);
}

// ---- tests

static void right_backends_pass(void **state) {
    (void)state;
    static const char *const paths[] = {"tests/golden/dsa_shared.gguf", "tests/golden/qwen2.gguf",
                                        "tests/golden/glm45.gguf"};
    for (size_t i = 0; i < 3; i++) {
        struct fixture x;
        open_fixture(&x, paths[i], lp_backend_find("cpu"), INT64_MAX / 4);
        run_both(&x);
        if (x.n_bad > 0)
            fail_msg("%s: %s in layer %d differs by %g", paths[i], x.bad[0].op, x.bad[0].layer,
                     x.bad[0].error);
        assert_true(x.worst < 2e-5); // what docs/numerics.md promises
        assert_true(x.n_findings > 100);
        close_fixture(&x);
    }
}

// A part of each operation, another one each time: all of it is compared in the end.
static void parts_find_what_is_wrong(void **state) {
    (void)state;
    struct lp_backend wrong = lp_backend_ref;
    struct fixture x;
    wrong.matmul = matmul_wrong_at_33;
    open_fixture(&x, "tests/golden/dsa_shared.gguf", &wrong, 20000);
    for (int i = 0; i < 2; i++) run(&x, N_TOKENS, LP_ROUTE_AUTO);
    expect_only(&x, "matmul", 0, "");
    close_fixture(&x);
}

static void wrong_rows_are_named(void **state) {
    (void)state;
    struct lp_backend wrong = lp_backend_ref;
    struct fixture x;
    wrong.matmul = matmul_wrong_at_33;
    open_fixture(&x, "tests/golden/dsa_shared.gguf", &wrong, INT64_MAX / 4);
    run_both(&x);
    expect_only(&x, "matmul", 0, "only rows from 32 on");
    assert_int_equal(x.bad[0].n_rows, N_TOKENS);
    close_fixture(&x);
}

static void dropped_bias_is_found(void **state) {
    (void)state;
    struct lp_backend wrong = lp_backend_ref;
    struct fixture x;
    wrong.matmul = gqa_drops_bias;
    open_fixture(&x, "tests/golden/qwen2.gguf", &wrong, INT64_MAX / 4);
    run(&x, 5, LP_ROUTE_AUTO);
    expect_only(&x, "matmul", 0, "");
    for (int i = 0; i < x.n_bad; i++) // qwen2 has biases for q, k and v alone
        assert_true(strstr(x.bad[i].weight, "attn_q") || strstr(x.bad[i].weight, "attn_k") ||
                    strstr(x.bad[i].weight, "attn_v"));
    close_fixture(&x);
}

static void attention_faults_are_told_apart(void **state) {
    (void)state;
    struct lp_backend wrong = lp_backend_ref;
    struct fixture x;
    wrong.mla_absorbed = absorbed_sees_one_more;
    open_fixture(&x, "tests/golden/dsa_dense.gguf", &wrong, INT64_MAX / 4);
    run_both(&x);
    expect_only(&x, "mla_absorbed", 0, "");
    close_fixture(&x);
    wrong.mla_absorbed = lp_backend_ref.mla_absorbed;
    wrong.mla_expanded = expanded_mixes_heads;
    open_fixture(&x, "tests/golden/dsa_dense.gguf", &wrong, INT64_MAX / 4);
    run_both(&x);
    expect_only(&x, "mla_expanded", 0, "only head 1");
    close_fixture(&x);
}

static void lost_cache_row_is_found(void **state) {
    (void)state;
    struct lp_backend wrong = lp_backend_ref;
    struct fixture x;
    wrong.cache_write = cache_loses_last;
    open_fixture(&x, "tests/golden/llama.gguf", &wrong, INT64_MAX / 4);
    run_both(&x);
    expect_only(&x, "cache_write", 0, "only position 39");
    close_fixture(&x);
}

static void wrong_choices_are_found(void **state) {
    (void)state;
    struct lp_backend wrong = lp_backend_ref;
    struct fixture x;
    wrong.index_select = select_takes_next;
    open_fixture(&x, "tests/golden/dsa_sparse.gguf", &wrong, INT64_MAX / 4);
    run_both(&x);
    expect_only(&x, "index_select", 0, "");
    close_fixture(&x);
    wrong.index_select = lp_backend_ref.index_select;
    wrong.router = router_without_bias;
    open_fixture(&x, "tests/golden/glm45.gguf", &wrong, INT64_MAX / 4);
    run_both(&x);
    expect_only(&x, "router", x.model->h.n_dense, "");
    close_fixture(&x);
    wrong.router = lp_backend_ref.router;
    wrong.experts = experts_overwrite;
    open_fixture(&x, "tests/golden/glm45.gguf", &wrong, INT64_MAX / 4);
    run_both(&x);
    expect_only(&x, "experts", x.model->h.n_dense, "");
    close_fixture(&x);
}

static void elementwise_faults_are_found(void **state) {
    (void)state;
    struct lp_backend wrong = lp_backend_ref;
    struct fixture x;
    wrong.rope = rope_other_pairs;
    open_fixture(&x, "tests/golden/qwen3.gguf", &wrong, INT64_MAX / 4);
    run_both(&x);
    expect_only(&x, "rope", 0, "");
    close_fixture(&x);
    wrong.rope = lp_backend_ref.rope;
    wrong.rms_norm = norm_with_other_eps;
    open_fixture(&x, "tests/golden/qwen3.gguf", &wrong, INT64_MAX / 4);
    run_both(&x);
    expect_only(&x, "rms_norm", 0, "");
    close_fixture(&x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_backends_pass),
        cmocka_unit_test(parts_find_what_is_wrong),
        cmocka_unit_test(wrong_rows_are_named),
        cmocka_unit_test(dropped_bias_is_found),
        cmocka_unit_test(attention_faults_are_told_apart),
        cmocka_unit_test(lost_cache_row_is_found),
        cmocka_unit_test(wrong_choices_are_found),
        cmocka_unit_test(elementwise_faults_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
