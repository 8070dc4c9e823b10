// Grouped-query, absorbed and expanded attention: against ref, against a formula in double written
// here, and bit for bit across threads, chunks, page layouts and full selections.
#include "attn_cases.h"

#if defined(TESTS_EMULATED)
#define SOME_HEADS 5 // more are minutes there
#else
#define SOME_HEADS 20
#endif

static const struct mla_case mla_cases[] = {
    {1, 1, 1, 1, 1, 0, 1, 1, LP_TYPE_F32, 0, false, false},
    {3, 32, 16, 24, 20, 0, 7, 7, LP_TYPE_F32, 0, false, false},
    {2, 16, 8, 24, 24, 5, 33, 7, LP_TYPE_F16, 0, true, false},
    {5, 37, 6, 11, 13, 61, 2, 64, LP_TYPE_BF16, 0, false, false},
    {4, 33, 10, 17, 9, 130, 33, 1, LP_TYPE_F32, 40, true, false},
    {9, 48, 16, 32, 40, 200, 7, 64, LP_TYPE_F16, 70, false, false},
    {35, 24, 8, 16, 8, 64, 33, 7, LP_TYPE_F16, 30, false, false},
    {SOME_HEADS, 512, 64, 192, 256, 90, 2, 64, LP_TYPE_F16, 0, false, false},
    {2, 512, 64, 192, 256, 100, 33, 64, LP_TYPE_BF16, 90, true, false},
    {3, 512, 64, 128, 128, 70, 1, 64, LP_TYPE_F32, 0, false, false},
    {SOME_HEADS, 512, 64, 192, 256, 150, 2, 64, LP_TYPE_Q8_0, 100, false, false},
    {7, 96, 32, 64, 64, 40, 150, 64, LP_TYPE_Q8_0, 0, false, false},
    {SOME_HEADS, 512, 64, 192, 256, 150, 2, 64, LP_TYPE_F8_E4M3, 100, false, false},
    {7, 128, 10, 64, 64, 40, 150, 64, LP_TYPE_F8_E4M3, 0, false, false},
#if !defined(TESTS_EMULATED) // for kernels that ARM has not; minutes there
    {6, 512, 64, 192, 256, 90, 33, 64, LP_TYPE_Q8_0, 0, true, false},
    {6, 512, 64, 192, 256, 90, 33, 64, LP_TYPE_F8_E4M3, 0, true, false},
    // heads that fill a tile of 64, or leave room for other queries; contexts of several segments
    {64, 512, 64, 8, 8, 600, 2, 64, LP_TYPE_F16, 0, false, false},
    {130, 512, 64, 8, 8, 700, 1, 64, LP_TYPE_BF16, 0, false, false},
    {16, 512, 64, 8, 8, 1020, 6, 64, LP_TYPE_BF16, 0, false, false},
    {9, 512, 64, 8, 8, 508, 8, 7, LP_TYPE_F16, 0, false, false},
    {70, 512, 64, 8, 8, 1500, 2, 64, LP_TYPE_F16, 1200, false, false},
    {64, 512, 64, 8, 8, 1500, 1, 64, LP_TYPE_F16, 1200, true, false},
    {64, 512, 64, 8, 8, 2100, 1, 64, LP_TYPE_BF16, 0, false, false},
    {33, 512, 64, 8, 8, 700, 2, 7, LP_TYPE_F8_E4M3, 300, false, false},
    {2, 512, 64, 128, 128, 70, 200, 64, LP_TYPE_F16, 0, true, true},
    {3, 512, 64, 192, 256, 300, 5, 7, LP_TYPE_F16, 0, false, true},
    {2, 512, 64, 192, 256, 63, 70, 64, LP_TYPE_Q8_0, 0, true, true},
    {2, 64, 2, 64, 64, 0, 130, 64, LP_TYPE_F16, 0, true, true},
    {2, 512, 64, 128, 128, 120, 33, 64, LP_TYPE_F16, 90, true, true},
    {64, 512, 64, 8, 8, 600, 2, 64, LP_TYPE_F8_E4M3, 0, false, false},
    {16, 512, 64, 8, 8, 1020, 6, 64, LP_TYPE_F8_E4M3, 0, false, false},
    {9, 512, 64, 8, 8, 508, 8, 7, LP_TYPE_F8_E4M3, 0, false, false},
    {70, 512, 64, 8, 8, 1500, 2, 64, LP_TYPE_F8_E4M3, 1200, false, false},
    {2, 512, 64, 128, 128, 70, 200, 64, LP_TYPE_F8_E4M3, 0, true, true},
    {3, 512, 64, 192, 256, 300, 5, 7, LP_TYPE_F8_E4M3, 0, false, true},
    {2, 512, 64, 192, 256, 63, 70, 64, LP_TYPE_F8_E4M3, 0, true, true},
#endif
};
#define N_MLA (sizeof mla_cases / sizeof mla_cases[0])

// One form on all devices against `expected`, then in chunks.
static void check_form(struct devices *d, const struct mla *m, mla_form form, const float *expected,
                       int64_t stride, mla_bound bound, const char *what) {
    int64_t width = stride - 5, n = m->c.n_queries;
    float *out[N_DEVICES], *chunked = new_output(n, stride);
    for (int i = 0; i < N_DEVICES; i++) {
        out[i] = new_output(n, stride);
        form(d->dev[i], m, 0, n, out[i]);
        assert_guards(out[i], n, stride, width);
        assert_within(out[i], expected, n, stride, width, bound(i, &m->c, form), what);
    }
#if defined(TESTS_CUDA) // whose results then depend on what else is in a call
    const bool same = bound != bound_varying;
#else
    const bool same = true;
#endif
    for (int i = 2; i <= N_SAME; i++) assert_same_bits(out[i], out[1], n * stride, "threads");
    for (int64_t first = 0, size; first < n; first += size) { // chunks of 1, 2, 4, ...
        size = first + 1 < n - first ? first + 1 : n - first;
        form(d->dev[1 + (int)(first % N_SAME)], m, first, size, chunked);
    }
    if (same)
        assert_same_bits(chunked, out[1], n * stride, "chunks");
    else
        assert_within(chunked, expected, n, stride, width, bound(1, &m->c, form), what);
    for (int i = 0; i < N_DEVICES; i++) lp_free(out[i]);
    lp_free(chunked);
}

#if !defined(TESTS_EMULATED)
static void may_vary(struct devices *d) {
    for (int i = 1; i < N_DEVICES; i++) d->dev[i]->backend->fix_results(d->dev[i], false);
}
#endif

static void test_mla_forms(void **state) {
    (void)state;
    for (size_t i = 0; i < N_MLA; i++) {
        struct mla m;
        struct devices d;
        make_mla(&m, &mla_cases[i], 100 + i);
        struct lp_reserve need = mla_reserve(&m);
        open_devices(&d, &need);
        float *latent_out = new_array(m.c.n_queries * m.latent_out_stride, sizeof(float));
        float *out = new_array(m.c.n_queries * m.out_stride, sizeof(float));
        formula_outputs(&m, latent_out, out);
        check_form(&d, &m, absorbed, latent_out, m.latent_out_stride, bound_of, "absorbed");
        check_form(&d, &m, expanded, out, m.out_stride, bound_of, "expanded");
#if !defined(TESTS_EMULATED) // ARM has no kernel that would
        may_vary(&d);
        check_form(&d, &m, absorbed, latent_out, m.latent_out_stride, bound_varying,
                   "absorbed, free to vary");
#endif
        lp_free(latent_out);
        lp_free(out);
        close_devices(&d);
        free_mla(&m);
    }
}

// The same rows in other page layouts, and with a selection of all visible keys.
static void test_mla_layouts(void **state) {
    (void)state;
    static const int32_t layouts[] = {1, 7, 64};
    const struct mla_case shape = {6, 40, 8, 24, 16, 150, 9, 3, LP_TYPE_F16, 0, false, false};
    struct mla m;
    struct devices d;
    struct lp_rng rng;
    lp_rng_init(&rng, 5);
    make_mla(&m, &shape, 7);
    struct lp_reserve need = mla_reserve(&m);
    open_devices(&d, &need);
    mla_form forms[] = {absorbed, expanded};
    for (int f = 0; f < 2; f++) {
        int64_t stride = f ? m.out_stride : m.latent_out_stride;
        float *base = new_output(9, stride), *other = new_output(9, stride);
        forms[f](d.dev[2], &m, 0, 9, base);
        for (int i = 0; i < 3; i++) {
            struct mla moved = m;
            moved.cache = new_cache(&rng, m.rows, m.n_keys, 48, LP_TYPE_F16, layouts[i]);
            forms[f](d.dev[2], &moved, 0, 9, other);
            assert_same_bits(other, base, 9 * stride, "pages");
            free_cache(&moved.cache);
        }
        struct mla all = m;
        all.c.k = 200;
        all.ids = new_array(9 * 200, sizeof *all.ids);
        all.counts = new_array(9, sizeof *all.counts);
        random_selection(&rng, 150, 9, 200, all.ids, all.counts); // 200 > visible: all of them
        for (int i = 1; i <= N_SAME; i++) {
            forms[f](d.dev[i], &all, 0, 9, other);
            assert_same_bits(other, base, 9 * stride, "full selection");
        }
        lp_free(all.ids);
        lp_free(all.counts);
        lp_free(base);
        lp_free(other);
    }
    close_devices(&d);
    free_mla(&m);
}

// Contexts of several segments, also where the segments get longer; with selection longer than one.
static void test_mla_long(void **state) {
    (void)state;
    static const struct mla_case cases[] = {
        {5, 24, 8, 8, 8, 2900, 3, 64, LP_TYPE_F16, 0, false, false},
        {40, 16, 8, 8, 8, 2047, 2, 64, LP_TYPE_F16, 0, false, false},
        {2, 16, 8, 8, 8, 32766, 4, 64, LP_TYPE_F16, 0, false,
         false}, // 32 segments of 1024, then 17 of 2048 (cpu)
        {3, 16, 8, 8, 8, 5000, 3, 64, LP_TYPE_BF16, 2048, false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mla m;
        struct devices d;
        make_mla(&m, &cases[i], 40 + i);
        struct lp_reserve need = mla_reserve(&m);
        open_devices(&d, &need);
        float *latent_out = new_array(m.c.n_queries * m.latent_out_stride, sizeof(float));
        float *out = new_array(m.c.n_queries * m.out_stride, sizeof(float));
        formula_outputs(&m, latent_out, out);
        check_form(&d, &m, absorbed, latent_out, m.latent_out_stride, bound_of, "absorbed, long");
        check_form(&d, &m, expanded, out, m.out_stride, bound_of, "expanded, long");
        lp_free(latent_out);
        lp_free(out);
        close_devices(&d);
        free_mla(&m);
    }
}

// Absorbed: a query among others has the bits of one alone. Of so many that a context need not be split
// among workers, and of one alone, whose segments may all be; and where the segments get longer.
static void test_mla_crowd(void **state) {
    (void)state;
    static const struct mla_case cases[] = {
        {3, 512, 64, 8, 8, 1100, 5, 64, LP_TYPE_F16, 0, false, false},
#if !defined(TESTS_EMULATED)
        {33, 512, 64, 8, 8, 1100, 100, 64, LP_TYPE_F16, 0, false, false},
        {33, 512, 64, 8, 8, 1100, 130, 64, LP_TYPE_F8_E4M3, 0, false, false},
        {16, 512, 64, 8, 8, 1100, 130, 64, LP_TYPE_F8_E4M3, 200, false, false},
        {1, 512, 64, 8, 8, 65534, 4, 64, LP_TYPE_F16, 0, false,
         false}, // 128 segments of 512, then 65 of 1024 (cuda)
#endif
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mla m;
        struct devices d;
        make_mla(&m, &cases[i], 60 + i);
        const int64_t n = m.c.n_queries, stride = m.latent_out_stride, some[] = {0, n / 2, n - 1};
        struct lp_reserve need = mla_reserve(&m);
        open_devices(&d, &need);
        float *all = new_output(n, stride), *one = new_output(n, stride),
              *exact = new_output(n, stride);
        absorbed(d.dev[1], &m, 0, n, all);
        for (int j = 0; j < 3; j++) {
            const int64_t at = some[j] * stride;
            absorbed(d.dev[1], &m, some[j], 1, one);
            absorbed(d.dev[0], &m, some[j], 1, exact);
            assert_same_bits(one + at, all + at, stride, "alone");
            assert_within(one + at, exact + at, 1, stride, stride - 5, bound_of(1, &m.c, absorbed),
                          "absorbed, crowd");
        }
        lp_free(all);
        lp_free(one);
        lp_free(exact);
        close_devices(&d);
        free_mla(&m);
    }
}

// Latent value 2 of a key; m->rows stays.
static void spoil(struct mla *m, int64_t key, float value) {
    struct lp_cache_view *v = &m->cache.view;
    unsigned char *row = m->cache.block + (size_t)v->pages[key / v->page_tokens] * v->page_bytes +
                         (size_t)(key % v->page_tokens) * v->row_bytes;
    const struct lp_type_info *type = lp_type_info(v->type);
    type->quantize(&value, row + 2 * type->block_bytes, 1);
}

// A NaN or infinity reaches the queries that see its key, and leaves the others as they were.
static void test_mla_nonfinite(void **state) {
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int kind = 0; kind < 4; kind++)
        for (int b = 0; b < 3; b++) {
            const bool selection = kind % 2;
            struct mla_case shape = {
                4, 20, 4, 8, 12, 60, 12, 7, LP_TYPE_F32, selection ? 30 : 0, false, false};
            if (kind / 2) shape.latent = 512, shape.rope = 64, shape.type = LP_TYPE_F16;
            const int width = shape.latent + shape.rope;
            struct mla m;
            struct devices d;
            make_mla(&m, &shape, 70 + (uint64_t)b);
            struct lp_reserve need = mla_reserve(&m);
            open_devices(&d, &need);
            mla_form forms[] = {absorbed, expanded};
            for (int f = 0; f < 2; f++)
                for (int i = 1; i < N_DEVICES; i++) {
                    int64_t stride = f ? m.out_stride : m.latent_out_stride, key = 65;
                    float *good = new_output(12, stride), *out = new_output(12, stride);
                    forms[f](d.dev[i], &m, 0, 12, good);
                    float kept = m.rows[key * width + 2];
                    spoil(&m, key, bad[b]);
                    forms[f](d.dev[i], &m, 0, 12, out);
                    spoil(&m, key, kept);
                    for (int64_t q = 0; q < 12; q++) {
                        bool sees = 60 + q >= key;
                        for (int32_t s = 0; selection && sees; s++) {
                            sees = s < m.counts[q] && m.ids[q * 30 + s] <= key;
                            if (!sees || m.ids[q * 30 + s] == key) break;
                        }
                        if (!sees)
                            assert_same_bits(out + q * stride, good + q * stride, stride - 5,
                                             "unseen");
                        for (int32_t h = 0; sees && h < 4; h++) {
                            int n_bad = 0, n = f ? 12 : shape.latent;
                            for (int32_t j = 0; j < n; j++)
                                n_bad += !isfinite(out[q * stride + h * n + j]);
                            assert_true(n_bad > 0);
                            if (b == 0) assert_int_equal(n_bad, n);
                        }
                    }
                    lp_free(good);
                    lp_free(out);
                }
            close_devices(&d);
            free_mla(&m);
        }
}

static const struct gqa_case gqa_cases[] = {
    {1, 1, 1, 1, 0, 1, 1, LP_TYPE_F32},
    {4, 2, 16, 16, 0, 33, 7, LP_TYPE_F16},
    {6, 6, 13, 21, 70, 7, 64, LP_TYPE_BF16},
    {32, 4, 128, 128, 100, 2, 64, LP_TYPE_F16},
    {70, 1, 33, 17, 63, 3, 7, LP_TYPE_F32},
    {8, 2, 64, 64, 3000, 2, 64, LP_TYPE_F16},
    {2, 1, 8, 8, 32765, 5, 64, LP_TYPE_BF16},
    {2, 1, 600, 520, 20, 3, 7, LP_TYPE_F32},
    {32, 4, 128, 128, 100, 2, 64, LP_TYPE_Q8_0},
    {4, 2, 96, 32, 1030, 20, 7, LP_TYPE_Q8_0},
    {32, 4, 128, 128, 100, 2, 64, LP_TYPE_F8_E4M3},
    {4, 2, 256, 128, 1030, 20, 7, LP_TYPE_F8_E4M3},
};

static void check_gqa_case(const struct gqa_case *c, uint64_t seed) {
    struct lp_rng rng;
    struct gqa g;
    struct devices d;
    lp_rng_init(&rng, seed);
    make_gqa(&g, c, &rng);
    struct lp_reserve need = gqa_reserve(&g);
    open_devices(&d, &need);
    int64_t n = c->n_queries, stride = g.out_stride;
    float *expected = new_array(n * stride, sizeof(float)), *out[N_DEVICES],
          *chunked = new_output(n, stride);
    gqa_formula(&g, expected);
    for (int i = 0; i < N_DEVICES; i++) {
        out[i] = new_output(n, stride);
        gqa(d.dev[i], &g, 0, n, out[i]);
        assert_guards(out[i], n, stride, stride - 5);
        assert_close(out[i], expected, n, stride, stride - 5, "gqa");
    }
    for (int i = 2; i <= N_SAME; i++) assert_same_bits(out[i], out[1], n * stride, "threads");
    struct cache old = g.k, k = moved_cache(&rng, &old, g.n_keys, 5, 0);
    g.k = k; // another page layout for the keys alone, and one query a call
    for (int64_t q = 0; q < n; q++) gqa(d.dev[1 + (int)(q % N_SAME)], &g, q, 1, chunked);
    assert_same_bits(chunked, out[1], n * stride, "chunks");
    g.k = old;
    for (int i = 0; i < N_DEVICES; i++) lp_free(out[i]);
    lp_free(expected);
    lp_free(chunked);
    free_cache(&k);
    free_gqa(&g);
    close_devices(&d);
}

static void test_gqa(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof gqa_cases / sizeof gqa_cases[0]; i++)
        check_gqa_case(&gqa_cases[i], 300 + i);
}

// As test_mla_nonfinite: keys, then values; one query a key later does not notice.
static void test_gqa_nonfinite(void **state) {
    (void)state;
    enum { WIDTH = 24, KEYS = 80, BAD_KEY = 70 };
    struct devices d;
    struct lp_rng rng;
    lp_rng_init(&rng, 8);
    struct lp_reserve need = {.n_rows = 20, .n_context = KEYS, .max_width = 48, .n_heads = 4};
    open_devices(&d, &need);
    for (int where = 0; where < 2; where++) {
        struct gqa g = {.c = {4, 2, 12, 12, 60, 20, 7, LP_TYPE_F16},
                        .n_keys = KEYS,
                        .q_stride = 48,
                        .out_stride = 48};
        g.q = random_floats(&rng, 20 * 48, 1.0f);
        g.k_rows = random_floats(&rng, KEYS * WIDTH, 1.0f);
        g.v_rows = random_floats(&rng, KEYS * WIDTH, 1.0f);
        struct cache good_k = new_cache(&rng, g.k_rows, KEYS, WIDTH, LP_TYPE_F16, 7);
        struct cache good_v = new_cache(&rng, g.v_rows, KEYS, WIDTH, LP_TYPE_F16, 7);
        (where ? g.v_rows : g.k_rows)[BAD_KEY * WIDTH + 15] = NAN; // of the second key/value head
        struct cache bad =
            new_cache(&rng, where ? g.v_rows : g.k_rows, KEYS, WIDTH, LP_TYPE_F16, 7);
        for (int k = 1; k < N_DEVICES; k++) {
            float *good = new_output(20, 48), *out = new_output(20, 48);
            g.k = good_k, g.v = good_v;
            gqa(d.dev[k], &g, 0, 20, good);
            if (where)
                g.v = bad;
            else
                g.k = bad;
            gqa(d.dev[k], &g, 0, 20, out);
            for (int64_t q = 0; q < 20; q++) {
                bool sees = 60 + q >= BAD_KEY;
                assert_same_bits(out + q * 48, good + q * 48, sees ? 24 : 48, "unseen");
                for (int i = 24; sees && i < 48; i++)
                    assert_true(isnan(out[q * 48 + i]) || (where && i % 12 != 3));
            }
            lp_free(good);
            lp_free(out);
        }
        free_cache(&good_k);
        free_cache(&good_v);
        free_cache(&bad);
        lp_free(g.q), lp_free(g.k_rows), lp_free(g.v_rows);
    }
    close_devices(&d);
}

int main(int argc, char **argv) { // [PATTERN of tests to run]
#if defined(TESTS_CUDA)           // for compute-sanitizer, under which all of them take too long
    if (argc > 1) cmocka_set_test_filter(argv[1]);
#else
    (void)argc, (void)argv;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mla_forms),     cmocka_unit_test(test_mla_layouts),
        cmocka_unit_test(test_mla_long),      cmocka_unit_test(test_mla_crowd),
        cmocka_unit_test(test_mla_nonfinite), cmocka_unit_test(test_gqa),
        cmocka_unit_test(test_gqa_nonfinite),
    };
    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
