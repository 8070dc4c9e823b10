// Non-finite numbers: a step marks the rows they reach and no other, and lp_runner_find_bad names the
// layer that they came from. They are put into the residual stream from outside, after a layer.
#include "lp_test.h"

#include <math.h>

#include "model/runner.h"

#define N_A 5
#define N_B 4
#define LAYER 2
#define MAX_VOCAB 512

struct fixture {
    struct lp_gguf *gguf;
    struct lp_device *dev;
    struct lp_model *model;
    struct lp_kv *kv;
    struct lp_runner *runner;
    struct lp_page_table pages[2];
};

struct poison { // written into the stream when it has passed `layer`
    int64_t at; // index of the value; -1: nothing
    int32_t layer;
    float value;
};

static void on_layer(void *user, int32_t layer, const float *h, const int32_t *selected,
                     const int32_t *n_selected, int64_t ids_stride) {
    const struct poison *p = user;
    (void)selected, (void)n_selected, (void)ids_stride;
    if (p->at >= 0 && layer == p->layer) ((float *)h)[p->at] = p->value; // host memory
}

static void open_fixture(struct fixture *f) {
    struct lp_err err = {0};
    struct lp_kv_layer layers[LP_MAX_LAYERS];
    *f = (struct fixture){0};
    assert_int_equal(lp_gguf_open(&f->gguf, "tests/golden/dsa_sparse.gguf", &err), LP_OK);
    assert_int_equal(lp_backend_ref.open(&f->dev, NULL, &err), LP_OK);
    assert_int_equal(
        lp_model_load(&f->model, f->gguf, f->dev,
                      &(struct lp_load){.n_threads = 1, .check_bytes = LP_CHECK_WHOLE_BYTES}, &err),
        LP_OK);
    assert_true(f->model->h.n_vocab <= MAX_VOCAB);
    lp_model_kv_layers(f->model, false, layers);
    assert_int_equal(lp_kv_new(&f->kv, f->dev, layers, lp_model_kv_count(f->model, false),
                               LP_TYPE_F32, 256, &err),
                     LP_OK);
    assert_int_equal(lp_runner_new(&f->runner, f->model, f->kv, 16, 128, false, &err), LP_OK);
}

static void close_fixture(struct fixture *f) {
    for (int i = 0; i < 2; i++) lp_page_table_release(&f->pages[i], f->kv);
    lp_runner_free(f->runner);
    lp_kv_free(f->kv);
    lp_model_free(f->model);
    lp_backend_ref.close(f->dev);
    lp_gguf_close(f->gguf);
}

// Step number `round` of two sequences, N_A and N_B tokens each; logits of all rows.
static lp_status run(struct fixture *f, int32_t round, struct poison *poison, float *logits,
                     bool *bad, int32_t *tokens, struct lp_span *spans, struct lp_err *err) {
    int32_t rows[N_A + N_B];
    for (int32_t t = 0; t < N_A + N_B; t++) {
        tokens[t] = (round * 31 + t * 7) % (int32_t)f->model->h.n_vocab;
        rows[t] = t;
    }
    spans[0] = (struct lp_span){.sequence = 0, .n_past = round * N_A, .n_rows = N_A};
    spans[1] =
        (struct lp_span){.sequence = 1, .n_past = round * N_B, .first_row = N_A, .n_rows = N_B};
    for (int i = 0; i < 2; i++) {
        spans[i].pages = &f->pages[i];
        assert_int_equal(
            lp_page_table_grow(&f->pages[i], f->kv, spans[i].n_past + spans[i].n_rows, err), LP_OK);
    }
    struct lp_step step = {.tokens = tokens,
                           .spans = spans,
                           .n_spans = 2,
                           .n_rows = N_A + N_B,
                           .logit_rows = rows,
                           .n_logit_rows = N_A + N_B,
                           .logits = logits,
                           .bad = bad};
    struct lp_step_settings settings = {.watch = on_layer, .watch_user = poison};
    return lp_runner_step(f->runner, &step, &settings, err);
}

static void only_the_rows_that_are_reached_are_marked(void **state) {
    (void)state;
    static float clean[(N_A + N_B) * MAX_VOCAB], logits[(N_A + N_B) * MAX_VOCAB];
    struct fixture f;
    struct lp_span spans[2];
    struct lp_err err = {0};
    int32_t tokens[N_A + N_B];
    bool bad[N_A + N_B];
    open_fixture(&f);
    size_t n_vocab = (size_t)f.model->h.n_vocab;
    struct poison poison = {.at = -1};
    assert_int_equal(run(&f, 0, &poison, clean, bad, tokens, spans, &err), LP_OK);
    for (int t = 0; t < N_A + N_B; t++) assert_false(bad[t]);
    memset(bad, 7, sizeof bad); // every element is written
    // the second row of the second sequence: the rows behind it see its key
    poison = (struct poison){(N_A + 1) * f.model->h.n_embd + 3, LAYER, NAN};
    assert_int_equal(run(&f, 0, &poison, logits, bad, tokens, spans, &err), LP_OK);
    for (int t = 0; t < N_A + N_B; t++) {
        bool reached = t > N_A;
        assert_int_equal(*(unsigned char *)&bad[t], reached);
        if (!reached)
            assert_memory_equal(logits + (size_t)t * n_vocab, clean + (size_t)t * n_vocab,
                                n_vocab * sizeof *logits);
    }
    // without `bad` the step fails, as it always did
    assert_int_equal(run(&f, 0, &poison, logits, NULL, tokens, spans, &err), LP_STATUS_NUMERIC);
    assert_non_null(strstr(err.text, "non-finite logits in step 2 at position 1 "));
    close_fixture(&f);
}

// A bad step number 1 of the fixture's sequences, then the search for what `second` does to the span.
static void find(struct fixture *f, struct poison first, struct poison second, const char *layer,
                 const char *position) {
    static float logits[(N_A + N_B) * MAX_VOCAB];
    struct lp_span spans[2];
    struct lp_err err = {0};
    int32_t tokens[N_A + N_B];
    bool bad[N_A + N_B];
    struct poison none = {.at = -1};
    if (f->runner->n_steps == 0)
        assert_int_equal(run(f, 0, &none, logits, bad, tokens, spans, &err), LP_OK);
    f->runner->n_steps = 1;
    assert_int_equal(run(f, 1, &first, logits, bad, tokens, spans, &err), LP_OK);
    assert_true(bad[N_A + 2]);
    struct lp_step_settings settings = {.watch = on_layer, .watch_user = &second};
    struct lp_route_counts before = lp_runner_route_counts(f->runner), after;
    assert_int_equal(lp_runner_find_bad(f->runner, &spans[1], tokens + N_A, &settings, &err),
                     LP_STATUS_NUMERIC);
    assert_non_null(strstr(err.text, layer));
    assert_non_null(strstr(err.text, position));
    assert_non_null(strstr(err.text, " step 1 "));
    after = lp_runner_route_counts(f->runner);
    assert_memory_equal(&before, &after, sizeof after); // a second look is no step
    assert_int_equal(f->runner->n_steps, 2);
}

static void the_search_names_the_layer(void **state) {
    (void)state;
    struct fixture f;
    struct poison none = {.at = -1};
    open_fixture(&f);
    int64_t n = f.model->h.n_embd;
    for (int32_t layer = -1; layer < f.model->h.n_layers; layer++) {
        char text[64];
        struct poison first = {(N_A + 2) * n, layer, INFINITY}, second = {2 * n, layer, INFINITY};
        snprintf(text, sizeof text, "output of layer %d;", layer);
        find(&f, first, second, layer < 0 ? "embedding" : text, "position 6,");
    }
    // another cause than the stream: the weights of the output norm
    float *norm = (float *)f.model->output_norm, old = norm[1];
    norm[1] = NAN;
    find(&f, none, none, "output norm or head", "position 4,");
    norm[1] = old;
    find(&f, (struct poison){(N_A + 2) * n, 0, NAN}, none, "not reproducible",
         "between positions 4 and 7,");
    close_fixture(&f);
}

// After a bad step and the search the other sequence goes on as if nothing had been.
static void the_neighbour_goes_on(void **state) {
    (void)state;
    static float expected[(N_A + N_B) * MAX_VOCAB], logits[(N_A + N_B) * MAX_VOCAB];
    struct lp_err err = {0};
    struct lp_span spans[2];
    int32_t tokens[N_A + N_B];
    bool bad[N_A + N_B];
    for (int sick = 0; sick < 2; sick++) {
        struct fixture f;
        open_fixture(&f);
        struct poison poison = {sick ? (N_A + 1) * f.model->h.n_embd : -1, LAYER, NAN};
        for (int32_t round = 0; round < 5; round++) { // 25 tokens: beyond top_k
            assert_int_equal(
                run(&f, round, &poison, sick ? logits : expected, bad, tokens, spans, &err), LP_OK);
            for (int t = 0; t < N_A; t++) assert_false(bad[t]);
            if (!sick) continue;
            assert_true(bad[N_A + N_B - 1]);
            struct poison none = {.at = -1};
            struct lp_step_settings settings = {.watch = on_layer, .watch_user = &none};
            assert_int_equal(lp_runner_find_bad(f.runner, &spans[1], tokens + N_A, &settings, &err),
                             LP_STATUS_NUMERIC);
        }
        if (sick)
            assert_memory_equal(logits, expected,
                                N_A * (size_t)f.model->h.n_vocab * sizeof *logits);
        close_fixture(&f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(only_the_rows_that_are_reached_are_marked),
                                       cmocka_unit_test(the_search_names_the_layer),
                                       cmocka_unit_test(the_neighbour_goes_on)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
