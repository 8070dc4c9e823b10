// A reading against the engine's own step: the same logits, the same probabilities, from any layer on.
// (A random model's log-probabilities all lie at the floor; ranks and entropies do not.)
#include "lp_test.h"

#include <math.h>

#include "doctor/lab.h"
#include "doctor/reading.h"

struct fixture {
    struct lp_gguf *gguf;
    struct lp_device *dev;
    struct lp_lab *lab;
    struct lp_passage list[2];
    struct lp_passages passages;
    struct lp_reading *reading;
    struct lp_scores scores, again;
};

static void open_fixture(struct fixture *f) {
    struct lp_err err = {0};
    *f = (struct fixture){0};
    assert_int_equal(lp_gguf_open(&f->gguf, "tests/golden/glm47_flash.gguf", &err), LP_OK);
    assert_int_equal(lp_backend_ref.open(&f->dev, NULL, &err), LP_OK);
    assert_int_equal(lp_lab_new(&f->lab, f->gguf, f->dev, 1, 64, 32, LP_TYPE_F32, &err), LP_OK);
    int32_t n_vocab = (int32_t)lp_lab_model(f->lab)->h.n_vocab;
    for (int p = 0; p < 2; p++) {
        struct lp_passage *x = &f->list[p];
        x->n_tokens = p ? 9 : 14;
        x->first_scored = p ? 1 : 6;
        x->tokens = calloc((size_t)x->n_tokens, sizeof *x->tokens);
        for (int i = 0; i < x->n_tokens; i++) x->tokens[i] = (i * 31 + 5 + p) % n_vocab;
        f->passages.n_tokens += x->n_tokens;
        f->passages.n_scored += x->n_tokens - x->first_scored;
    }
    f->passages.list = f->list;
    f->passages.n = 2;
    f->passages.longest = 14;
    assert_int_equal(
        lp_reading_new(&f->reading, lp_lab_model(f->lab), &f->passages, (size_t)1 << 24, &err),
        LP_OK);
    assert_int_equal(lp_scores_new(&f->scores, f->passages.n_scored, &err), LP_OK);
    assert_int_equal(lp_scores_new(&f->again, f->passages.n_scored, &err), LP_OK);
    assert_int_equal(
        lp_reading_run(f->reading, &(struct lp_reading_run){.keep = true}, &f->scores, &err),
        LP_OK);
}

static void close_fixture(struct fixture *f) {
    lp_reading_free(f->reading);
    lp_scores_release(&f->scores);
    lp_scores_release(&f->again);
    free(f->list[0].tokens);
    free(f->list[1].tokens);
    lp_lab_free(f->lab);
    lp_backend_ref.close(f->dev);
    lp_gguf_close(f->gguf);
}

static double logprob(const float *z, int64_t n, int32_t id) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += exp((double)z[i]);
    return (double)z[id] - log(sum);
}

static void test_against_step(void **state) {
    (void)state;
    struct fixture f;
    struct lp_err err = {0};
    open_fixture(&f);
    int64_t n_vocab = lp_lab_model(f.lab)->h.n_vocab, at = 0;
    double floor = lp_reading_floor(lp_lab_model(f.lab));
    assert_float_equal(floor, -0.5 * log((double)n_vocab), 1e-9);
    for (int p = 0; p < 2; p++) {
        const struct lp_passage *x = &f.list[p];
        float *logits = calloc((size_t)(x->n_tokens * n_vocab), sizeof *logits);
        struct lp_lab_run run = {.tokens = x->tokens, .n_tokens = x->n_tokens, .logits = logits};
        assert_int_equal(lp_lab_run(f.lab, &run, &err), LP_OK);
        for (int32_t i = x->first_scored; i < x->n_tokens; i++, at++) {
            const float *z = logits + (i - 1) * n_vocab;
            double want = fmax(floor, logprob(z, n_vocab, x->tokens[i]));
            int32_t rank = 0;
            for (int64_t v = 0; v < n_vocab; v++) rank += z[v] > z[x->tokens[i]];
            assert_float_equal(f.scores.logprob[at], want, 1e-4);
            assert_int_equal(f.scores.rank[at], rank);
        }
        free(logits);
    }
    assert_int_equal(f.scores.n_bad, 0);
    close_fixture(&f);
}

static void test_from_a_layer(void **state) {
    (void)state;
    struct fixture f;
    struct lp_err err = {0};
    open_fixture(&f);
    for (int32_t l = lp_lab_model(f.lab)->h.n_layers; l >= 0; l--) {
        assert_int_equal(
            lp_reading_run(f.reading, &(struct lp_reading_run){.from_layer = l}, &f.again, &err),
            LP_OK);
        assert_memory_equal(f.again.entropy, f.scores.entropy, (size_t)f.scores.n * sizeof(float));
    }
    close_fixture(&f);
}

static void test_skipping(void **state) {
    (void)state;
    struct fixture f;
    struct lp_err err = {0};
    open_fixture(&f);
    for (int part = LP_PART_ATTENTION; part <= LP_PART_FFN; part++) {
        struct lp_reading_run run = {.skip_layer = 1, .from_layer = 1, .skip = (enum lp_part)part};
        assert_int_equal(lp_reading_run(f.reading, &run, &f.again, &err), LP_OK);
        assert_memory_not_equal(f.again.entropy, f.scores.entropy,
                                (size_t)f.scores.n * sizeof(float));
    }
    assert_ptr_equal(f.dev->backend, &lp_backend_ref);
    assert_int_equal(lp_reading_run(f.reading, &(struct lp_reading_run){0}, &f.again, &err), LP_OK);
    assert_memory_equal(f.again.entropy, f.scores.entropy, (size_t)f.scores.n * sizeof(float));
    close_fixture(&f);
}

static void test_ids_out_of_range(void **state) {
    (void)state;
    struct fixture f;
    struct lp_err err = {0};
    struct lp_reading *reading;
    open_fixture(&f);
    f.list[1].tokens[3] = (int32_t)lp_lab_model(f.lab)->h.n_vocab;
    assert_int_equal(lp_reading_new(&reading, lp_lab_model(f.lab), &f.passages, 0, &err),
                     LP_STATUS_INVALID);
    close_fixture(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_step), cmocka_unit_test(test_from_a_layer),
        cmocka_unit_test(test_skipping), cmocka_unit_test(test_ids_out_of_range)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
