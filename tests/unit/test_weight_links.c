// The fit against its formula on vectors whose answer is known, and reading turned against turning.
#include "weight_case.h"

#include <math.h>

#include "doctor/weight_links.h"

#define WIDTH 64

static const struct lp_link_sample all = {1, 256, 256};

static void the_overlap_is_the_formula(void **state) {
    (void)state;
    const struct lp_link link = {.kind = LP_FIT_OVERLAP};
    float a[2][WIDTH] = {{0}}, b[2][WIDTH] = {{0}};
    struct lp_link_values va = {a[0], 1, 2, WIDTH}, vb = {b[0], 1, 2, WIDTH};
    a[0][3] = a[1][3] = 2; // all vectors point the same way: |AB'|^2 = |A|^2 |B|^2
    b[0][3] = -1;
    b[1][3] = 5;
    assert_true(fabs(lp_link_fit(&link, &va, 0, &vb, 0) - log(WIDTH)) < 1e-6);
    a[1][3] = 0; // half of A lies across B: |AB'|^2 = 4 * 26, |A|^2 = 8, |B|^2 = 26
    a[1][9] = 2;
    assert_true(fabs(lp_link_fit(&link, &va, 0, &vb, 0) - log(WIDTH / 2.0)) < 1e-6);
}

static void units_are_compared_by_size(void **state) {
    (void)state;
    const struct lp_link link = {.kind = LP_FIT_UNITS};
    float a[WIDTH], b[WIDTH], c[WIDTH];
    for (int i = 0; i < WIDTH; i++) {
        a[i] = (float)(i - WIDTH / 2) + 0.5f; // mean 0
        b[i] = -3 * a[i];
        c[i] = i % 2 ? 1.f : -1.f;
    }
    struct lp_link_values va = {a, 1, 1, WIDTH}, vb = {b, 1, 1, WIDTH}, vc = {c, 1, 1, WIDTH};
    assert_true(fabs(lp_link_fit(&link, &va, 0, &va, 0) - 1) < 1e-6);
    assert_true(fabs(lp_link_fit(&link, &va, 0, &vb, 0) + 1) < 1e-6);
    assert_true(fabs(lp_link_fit(&link, &va, 0, &vc, 0)) < 0.05);
}

static const struct lp_link *find(const struct lp_link *links, int32_t n, const char *a,
                                  const char *b) {
    for (int32_t i = 0; i < n; i++)
        if (lp_str_is(links[i].a.tensor->name, a) && lp_str_is(links[i].b.tensor->name, b))
            return &links[i];
    fail_msg("no link between %s and %s", a, b);
    return NULL;
}

static void a_layer_has_its_links(void **state) {
    (void)state;
    struct lp_link links[LP_MAX_LINKS];
    case_open(CASE_MINI);
    int32_t n = lp_weight_links(case_exam.gguf, &case_exam.h, 2, links);
    assert_int_equal(n, 16); // ten of attention and indexer, three each of experts and shared
    const struct lp_link *k = find(links, n, "blk.2.attn_k_b.weight", "blk.2.attn_q_b.weight");
    assert_int_equal(k->n_parts, 4);
    assert_int_equal(k->a.width, 192);
    assert_int_equal(k->b.step, 256);
    assert_int_equal(lp_weight_links(case_exam.gguf, &case_exam.h, 0, links), 13); // dense
    case_close();
}

// The vectors of head 1's query: row 256 + i of q_b is coordinate i.
static void vectors_are_read_from_their_place(void **state) {
    (void)state;
    struct lp_link links[LP_MAX_LINKS];
    case_open(CASE_MINI);
    int32_t n = lp_weight_links(case_exam.gguf, &case_exam.h, 2, links);
    const struct lp_link *k = find(links, n, "blk.2.attn_k_b.weight", "blk.2.attn_q_b.weight");
    float *q = case_values("blk.2.attn_q_b.weight"), *k_b = case_values("blk.2.attn_k_b.weight");
    struct lp_link_values v;
    const struct lp_link_sample whole = {1, 1024, 1024};
    assert_true(lp_link_read(k, &k->b, false, &whole, &v));
    assert_int_equal(v.n_vectors, 256);
    for (int vector = 0; vector < 256; vector += 51)
        for (int i = 0; i < 192; i++)
            assert_true(v.values[(256 + vector) * 192 + i] == q[(256 + i) * 256 + vector]);
    lp_link_release(&v);
    assert_true(lp_link_read(k, &k->a, false, &whole, &v)); // head 3, latent row 100
    assert_int_equal(v.n_vectors, 512);
    assert_memory_equal(v.values + (3 * 512 + 100) * 192, k_b + (3 * 512 + 100) * 192,
                        192 * sizeof(float));
    lp_link_release(&v);
    lp_free(q);
    lp_free(k_b);
    case_close();
}

static void reading_turned_is_turning(void **state) {
    (void)state;
    struct lp_link links[LP_MAX_LINKS];
    struct lp_link_values before[2 * LP_MAX_LINKS], after;
    static const char *const turned[] = {"blk.2.attn_k_b.weight", "blk.2.attn_output.weight",
                                         "blk.2.ffn_down_exps.weight"};
    case_open(CASE_MINI);
    int32_t n = lp_weight_links(case_exam.gguf, &case_exam.h, 2, links);
    for (int32_t i = 0; i < 2 * n; i++)
        assert_true(lp_link_read(&links[i / 2], i % 2 ? &links[i / 2].b : &links[i / 2].a, false,
                                 &all, &before[i]));
    for (int t = 0; t < 3; t++) case_transpose(turned[t]);
    for (int32_t i = 0; i < 2 * n; i++) {
        const struct lp_link_side *s = i % 2 ? &links[i / 2].b : &links[i / 2].a;
        bool is_turned = false;
        for (int t = 0; t < 3; t++) is_turned |= lp_str_is(s->tensor->name, turned[t]);
        assert_true(lp_link_read(&links[i / 2], s, is_turned, &all, &after));
        double difference = 0, size = 0; // blocks lie across now: 8 bits, rounded again
        uint64_t count =
            (links[i / 2].kind == LP_FIT_UNITS ? 1 : after.n_vectors) * after.width * after.n_parts;
        for (uint64_t j = 0; j < count; j++) {
            double d = (double)after.values[j] - before[i].values[j];
            difference += d * d;
            size += (double)before[i].values[j] * before[i].values[j];
        }
        assert_true(sqrt(difference / size) < 0.02);
        lp_link_release(&after);
        lp_link_release(&before[i]);
    }
    case_close();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_overlap_is_the_formula),
        cmocka_unit_test(units_are_compared_by_size),
        cmocka_unit_test(a_layer_has_its_links),
        cmocka_unit_test(vectors_are_read_from_their_place),
        cmocka_unit_test(reading_turned_is_turning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
