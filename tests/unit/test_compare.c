// Two models of a few values each: figures from their definitions.
#include "files/compare.h"

#include <math.h>

#include "base/alloc.h"
#include "gguf/gguf_assemble.h"
#include "lp_test.h"

struct model {
    struct lp_gguf_writer *writer;
    struct lp_gguf *gguf;
    struct lp_gguf_place places[4];
    uint64_t n;
};

static struct model begin(uint32_t key) {
    struct model m = {.writer = lp_gguf_writer_new(3)};
    assert_non_null(m.writer);
    lp_gguf_writer_str(m.writer, "same", lp_str_from("text"));
    lp_gguf_writer_u32(m.writer, "key", key);
    return m;
}

static void add(struct model *m, const char *name, lp_type type, uint64_t n_in, uint64_t n_rows,
                const void *data) {
    struct lp_err err;
    uint64_t ne[] = {n_in, n_rows};
    assert_int_equal(lp_gguf_writer_add(m->writer, lp_str_from(name), type, 2, ne, &err), LP_OK);
    m->places[m->n++].data = data;
}

static void finish(struct model *m) {
    struct lp_err err;
    assert_int_equal(lp_gguf_writer_finish(m->writer, &err), LP_OK);
    assert_int_equal(lp_gguf_assemble(&m->gguf, m->writer, m->places, 0, "model", &err), LP_OK);
}

static void release(struct model *m) {
    lp_gguf_close(m->gguf);
    lp_gguf_writer_free(m->writer);
}

static const struct lp_compare_tensor *find(const struct lp_compare *c, const char *name) {
    for (size_t i = 0; i < c->n_tensors; i++)
        if (lp_str_is(c->tensors[i].name, name)) return &c->tensors[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

static const float one[] = {1, 2, -3, 4, 0, 0}, other[] = {1, 2.5f, -3, 3, 0, 0};
static const float odd[] = {1, NAN, INFINITY, 4, 0, 0}, zero[6];
static const int32_t whole[] = {1, 2}, others[] = {1, 3};

static void differences_are_those_that_are_there(void **state) {
    (void)state;
    static const uint16_t halves[] = {0x3f80, 0x4000, 0xc040, 0x4080, 0, 0}; // `one` in BF16
    struct model a = begin(1), b = begin(2);
    struct lp_compare c;
    struct lp_err err;
    lp_gguf_writer_bool(a.writer, "a alone", true);
    lp_gguf_writer_bool(b.writer, "b alone", true);
    add(&a, "values", LP_TYPE_F32, 3, 2, one);
    add(&a, "type", LP_TYPE_F32, 3, 2, one);
    add(&a, "shape", LP_TYPE_F32, 3, 2, one);
    add(&a, "a", LP_TYPE_F32, 3, 2, one);
    add(&b, "type", LP_TYPE_BF16, 3, 2, halves);
    add(&b, "values", LP_TYPE_F32, 3, 2, other);
    add(&b, "shape", LP_TYPE_F32, 2, 3, one);
    add(&b, "b", LP_TYPE_F32, 3, 2, one);
    finish(&a);
    finish(&b);
    assert_int_equal(
        lp_compare_make(&c, a.gguf, b.gguf, &(struct lp_compare_options){.n_threads = 2}, &err),
        LP_OK);
    assert_false(lp_compare_is_empty(&c));
    assert_int_equal(c.n_equal_keys, 1);
    assert_int_equal(c.n_keys, 3);
    assert_true(lp_str_is(c.keys[0].key, "key") && c.keys[0].a && c.keys[0].b);
    assert_true(lp_str_is(c.keys[1].key, "a alone") && c.keys[1].a && !c.keys[1].b);
    assert_true(lp_str_is(c.keys[2].key, "b alone") && !c.keys[2].a && c.keys[2].b);
    assert_int_equal(c.n_tensors, 5);
    const struct lp_compare_tensor *t = find(&c, "values");
    assert_int_equal(t->state, LP_COMPARE_VALUES);
    assert_true(fabs(t->rms - sqrt((0.25 + 1) / 30)) < 1e-12);
    assert_true(fabs(t->cosine - (1 + 5 + 9 + 12) / sqrt(30 * 25.25)) < 1e-12);
    assert_true(t->largest == 1 && t->n_nonfinite == 0);
    t = find(&c, "type");
    assert_true(t->state == LP_COMPARE_EQUAL && t->rms == 0 && t->cosine == 1);
    assert_int_equal(find(&c, "shape")->state, LP_COMPARE_SHAPE);
    assert_int_equal(find(&c, "a")->state, LP_COMPARE_ONLY_A);
    assert_int_equal(find(&c, "b")->state, LP_COMPARE_ONLY_B);
    lp_compare_release(&c);
    release(&a);
    release(&b);
}

static void values_that_have_no_figure(void **state) {
    (void)state;
    struct model a = begin(1), b = begin(1);
    struct lp_compare c;
    struct lp_err err;
    add(&a, "odd", LP_TYPE_F32, 3, 2, one);
    add(&a, "zero", LP_TYPE_F32, 3, 2, zero);
    add(&a, "whole", LP_TYPE_I32, 2, 1, whole);
    add(&a, "same", LP_TYPE_F32, 3, 2, odd);
    add(&b, "odd", LP_TYPE_F32, 3, 2, odd);
    add(&b, "zero", LP_TYPE_F32, 3, 2, one);
    add(&b, "whole", LP_TYPE_I32, 2, 1, others);
    add(&b, "same", LP_TYPE_F32, 3, 2, odd);
    finish(&a);
    finish(&b);
    const struct lp_compare_options options = {.n_threads = 1};
    assert_int_equal(lp_compare_make(&c, a.gguf, b.gguf, &options, &err), LP_OK);
    const struct lp_compare_tensor *t = find(&c, "odd");
    assert_true(t->state == LP_COMPARE_VALUES && t->n_nonfinite == 2 && t->rms == 0);
    t = find(&c, "zero");
    assert_true(isinf(t->rms) && t->cosine == 0 && t->largest == 4);
    t = find(&c, "whole");
    assert_true(t->state == LP_COMPARE_VALUES && isnan(t->rms) && isnan(t->cosine));
    assert_int_equal(find(&c, "same")->state, LP_COMPARE_EQUAL);
    lp_compare_release(&c);
    for (size_t n = 1;; n++) { // every allocation fails once
        lp_alloc_fail_after(n);
        lp_status status = lp_compare_make(&c, a.gguf, b.gguf, &options, &err);
        lp_alloc_fail_after(0);
        lp_compare_release(&c);
        if (!status) break;
        assert_int_equal(status, LP_STATUS_MEMORY);
        assert_true(n < 100);
    }
    release(&a);
    release(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(differences_are_those_that_are_there),
        cmocka_unit_test(values_that_have_no_figure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
