// The lightning indexer's selection: against scores in double, with ties, NaN and negative weights,
// and bit for bit across threads, chunks and page layouts.
#include "attn_fixture.h"

struct index_case {
    int32_t n_heads, width, top_k;
    int64_t first_pos, n_queries;
    int32_t page_tokens;
    lp_type type;
    bool uneven; // some keys and some places of a key are far larger than the others
};

static const struct index_case cases[] = {
    {1, 1, 1, 0, 1, 1, LP_TYPE_F32, false},
    {2, 16, 4, 0, 33, 7, LP_TYPE_F32, false},
    {3, 13, 40, 30, 33, 7, LP_TYPE_F16, false},
    {32, 128, 64, 300, 7, 64, LP_TYPE_BF16, false},
    {64, 128, 100, 500, 2, 64, LP_TYPE_F16, false},
    {70, 24, 50, 131, 40, 64, LP_TYPE_F32, false},
    {4, 32, 512, 100, 33, 64, LP_TYPE_F16, false},
    {2, 8, 2048, 4000, 2, 64, LP_TYPE_F16, false},
    {32, 128, 64, 300, 7, 64, LP_TYPE_Q8_0, false},
    {3, 32, 40, 30, 33, 7, LP_TYPE_Q8_0, false},
    {37, 100, 64, 300, 5, 64, LP_TYPE_F16, false},
    {32, 128, 64, 300, 7, 64, LP_TYPE_F8_E4M3, false},
    {3, 48, 40, 30, 33, 7, LP_TYPE_F8_E4M3, false}, // no whole blocks: BF16
#if !defined(TESTS_EMULATED)                        // minutes there
    {32, 128, 512, 9000, 3, 64, LP_TYPE_F16, false},
    {64, 128, 300, 5000, 34, 64, LP_TYPE_BF16, false},
    {32, 128, 512, 6000, 3, 64, LP_TYPE_F16, true},
    {64, 128, 300, 5000, 34, 64, LP_TYPE_F8_E4M3, false},
    {5, 256, 512, 6000, 3, 7, LP_TYPE_F8_E4M3, true},
    {32, 128, 512, 6000, 3, 64, LP_TYPE_F8_E4M3, true},
    {5, 130, 100, 3000, 3, 7, LP_TYPE_F32, true},
#endif
};

struct index_data {
    struct index_case c;
    int64_t n_keys, q_stride, w_stride, ids_stride;
    float *q, *w, *rows, scale;
    struct cache keys;
};

static void make_data(struct index_data *x, const struct index_case *c, struct lp_rng *rng) {
    *x = (struct index_data){.c = *c, .n_keys = c->first_pos + c->n_queries, .scale = 0.125f};
    x->q_stride = (int64_t)c->n_heads * c->width + 1;
    x->w_stride = c->n_heads + 2;
    x->ids_stride = (c->top_k < x->n_keys ? c->top_k : x->n_keys) + 3;
    x->q = random_floats(rng, c->n_queries * x->q_stride, 1.0f);
    x->w = random_floats(rng, c->n_queries * x->w_stride, 1.0f); // of both signs
    x->rows = random_floats(rng, x->n_keys * c->width, 1.0f);
    for (int64_t i = 0; c->uneven && i < x->n_keys * c->width; i++)
        x->rows[i] *=
            (i / c->width % 37 == 5 ? 30.0f : 1.0f) * (i % c->width % 50 == 3 ? 20.0f : 1.0f);
}

static void place_keys(struct index_data *x, struct lp_rng *rng, int32_t page_tokens) {
    x->keys = new_cache_tail(rng, x->rows, x->n_keys, x->c.width, x->c.width % 128 ? x->c.width : 0,
                             x->c.type, page_tokens, 0);
}

// The same keys in pages that the backend keeps in its own form too, written over others, a few at a
// time. False where it has no such form.
static bool place_keys_with_extra(struct index_data *x, struct lp_rng *rng, struct lp_device *dev) {
    const struct lp_backend *backend = dev->backend;
    const int32_t width = x->c.width;
    const size_t extra = backend->index_page_extra ? backend->index_page_extra(dev, width, 64) : 0;
    if (!extra) return false;
    free_cache(&x->keys);
    place_keys(x, rng, 64);
    struct lp_cache_view *view = &x->keys.view;
    const int64_t n_pages = (x->n_keys + 63) / 64 + 2; // as new_cache_at
    view->extra_offset = (view->row_bytes * 64 + 63) / 64 * 64;
    view->page_bytes = view->extra_offset + extra;
    lp_free(x->keys.block);
    x->keys.block = lp_alloc_aligned((size_t)n_pages * view->page_bytes, 1);
    assert_non_null(x->keys.block);
    memset(x->keys.block, 0xff, (size_t)n_pages * view->page_bytes);
    view->base = x->keys.block;
    float *others = random_floats(rng, x->n_keys * width, 3.0f);
    others[width / 2] = NAN;
    for (int before = 1; before >= 0; before--)
        for (int64_t at = 0; at < x->n_keys; at += 5) {
            const struct lp_op_cache_write op = {.cache = view,
                                                 .x = (before ? others : x->rows) + at * width,
                                                 .x_stride = width,
                                                 .first_pos = at,
                                                 .n_rows = x->n_keys - at < 5 ? x->n_keys - at : 5};
            backend->cache_write(dev, &op);
        }
    lp_free(others);
    return true;
}

static void free_data(struct index_data *x) {
    lp_free(x->q);
    lp_free(x->w);
    lp_free(x->rows);
    free_cache(&x->keys);
}

static void select_keys(struct lp_device *dev, const struct index_data *x, int64_t first, int64_t n,
                        int32_t *ids, int32_t *counts) {
    struct lp_op_index_select op = {.q = x->q + first * x->q_stride,
                                    .q_stride = x->q_stride,
                                    .w = x->w + first * x->w_stride,
                                    .w_stride = x->w_stride,
                                    .keys = &x->keys.view,
                                    .first_pos = x->c.first_pos + first,
                                    .n_queries = n,
                                    .n_heads = x->c.n_heads,
                                    .width = x->c.width,
                                    .top_k = x->c.top_k,
                                    .scale = x->scale,
                                    .ids = ids + first * x->ids_stride,
                                    .ids_stride = x->ids_stride,
                                    .counts = counts + first};
    dev->backend->index_select(dev, &op);
}

// Score in double; *size = the sum of the magnitudes, what rounding errors are relative to.
static double score(const struct index_data *x, int64_t q, int64_t s, double *size) {
    double sum = 0;
    *size = 0;
    for (int32_t h = 0; h < x->c.n_heads; h++) {
        double dot = 0, magnitude = 0;
        for (int32_t d = 0; d < x->c.width; d++) {
            double product = (double)x->q[q * x->q_stride + (int64_t)h * x->c.width + d] *
                             x->rows[s * x->c.width + d];
            dot += product;
            magnitude += fabs(product);
        }
        double weight = x->w[q * x->w_stride + h];
        sum += weight * (dot > 0 || isnan(dot) ? dot : 0);
        *size += fabs(weight) * magnitude * x->scale;
    }
    return sum * x->scale;
}

#define UNTOUCHED 0x5a5a5a5a
static int32_t *new_ids(int64_t n) {
    int32_t *ids = new_array(n + GUARD, sizeof *ids);
    for (int64_t i = 0; i < n + GUARD; i++) ids[i] = UNTOUCHED;
    return ids;
}

// What the header promises of one query's ids: ascending, visible, count, -1 behind, the rest of
// the stride untouched.
static void check_shape(const struct index_data *x, int64_t q, const int32_t *ids, int32_t count) {
    int64_t n = x->c.first_pos + q + 1, k = n < x->c.top_k ? n : x->c.top_k;
    assert_int_equal(count, k);
    for (int64_t i = 0; i < x->ids_stride; i++) {
        if (i < k) {
            assert_true(ids[i] >= 0 && ids[i] < n);
            if (i > 0) assert_true(ids[i] > ids[i - 1]);
        } else
            assert_int_equal(ids[i], i < x->c.top_k ? -1 : UNTOUCHED);
    }
}

// Scores of all queries with all keys that they see [n_queries, n_keys], and each query's largest size.
struct truth {
    double *scores, *largest;
};

static struct truth true_scores(const struct index_data *x) {
    struct truth t = {new_array(x->c.n_queries * x->n_keys, sizeof(double)),
                      new_array(x->c.n_queries, sizeof(double))};
    for (int64_t q = 0; q < x->c.n_queries; q++)
        for (int64_t s = 0; s < x->c.first_pos + q + 1; s++) {
            double size;
            t.scores[q * x->n_keys + s] = score(x, q, s, &size);
            if (s == 0 || size > t.largest[q]) t.largest[q] = size;
        }
    return t;
}

static void free_truth(struct truth *t) {
    lp_free(t->scores);
    lp_free(t->largest);
}

// No key left out may beat a chosen one by more than rounding.
static void check_choice(const struct index_data *x, const struct truth *t, int64_t q,
                         const int32_t *ids, int32_t count) {
    int64_t n = x->c.first_pos + q + 1, at = 0;
    double worst_in = INFINITY, best_out = -INFINITY, largest = t->largest[q];
    for (int64_t s = 0; s < n; s++) {
        double value = t->scores[q * x->n_keys + s];
        bool in = at < count && ids[at] == s;
        if (in) at++;
        if (in && value < worst_in) worst_in = value;
        if (!in && value > best_out) best_out = value;
    }
    if (best_out > worst_in + 2e-6 * largest)
        fail_msg("query %lld: a key with score %.9g was left out, one with %.9g kept", (long long)q,
                 best_out, worst_in);
}

static void test_selection(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct index_data x;
        struct devices d;
        struct lp_rng rng;
        lp_rng_init(&rng, 500 + i);
        make_data(&x, &cases[i], &rng);
        place_keys(&x, &rng, cases[i].page_tokens);
        struct truth truth = true_scores(&x);
        int64_t n = x.c.n_queries;
        struct lp_reserve need = {.n_rows = n,
                                  .n_context = x.n_keys,
                                  .max_width = x.c.width,
                                  .index_heads = x.c.n_heads,
                                  .index_width = x.c.width};
        open_devices(&d, &need);
        int32_t *ids[N_DEVICES], counts[64];
        for (int k = 0; k < N_DEVICES; k++) {
            ids[k] = new_ids(n * x.ids_stride);
            select_keys(d.dev[k], &x, 0, n, ids[k], counts);
            for (int64_t q = 0; q < n; q++) {
                check_shape(&x, q, ids[k] + q * x.ids_stride, counts[q]);
                check_choice(&x, &truth, q, ids[k] + q * x.ids_stride, counts[q]);
            }
            for (int g = 0; g < GUARD; g++)
                assert_int_equal(ids[k][n * x.ids_stride + g], UNTOUCHED);
            if (k > 1 && k <= N_SAME)
                assert_memory_equal(ids[k], ids[1], (size_t)(n * x.ids_stride) * sizeof(int32_t));
        }
        free_cache(&x.keys); // other pages, one query a call
        place_keys(&x, &rng, 5);
        int32_t *chunked = new_ids(n * x.ids_stride);
        for (int64_t q = 0; q < n; q++)
            select_keys(d.dev[1 + q % N_SAME], &x, q, 1, chunked, counts);
        assert_memory_equal(chunked, ids[1], (size_t)(n * x.ids_stride) * sizeof(int32_t));
        for (int k = 1; k < N_DEVICES; k++) {
            if (!place_keys_with_extra(&x, &rng, d.dev[k])) continue;
            select_keys(d.dev[k], &x, 0, n, chunked, counts);
            for (int64_t q = 0; q < n; q++)
                check_choice(&x, &truth, q, chunked + q * x.ids_stride, counts[q]);
            if (k > N_SAME) continue;
            assert_memory_equal(chunked, ids[1], (size_t)(n * x.ids_stride) * sizeof(int32_t));
        }
        for (int k = 0; k < N_DEVICES; k++) lp_free(ids[k]);
        lp_free(chunked);
        free_truth(&truth);
        close_devices(&d);
        free_data(&x);
    }
}

// Scores that are small integers, so exact in every backend: the choice must be the definition's,
// ties to the lower position, NaN first.
static void test_ties_and_nan(void **state) {
    (void)state;
    const struct index_case c = {2, 9, 25, 60, 11, 7, LP_TYPE_F32, false};
    struct index_data x;
    struct devices d;
    struct lp_rng rng;
    lp_rng_init(&rng, 900);
    make_data(&x, &c, &rng);
    for (int64_t i = 0; i < c.n_queries * x.q_stride; i++)
        x.q[i] = (float)(lp_rng_u64(&rng) % 3) - 1;
    for (int64_t i = 0; i < x.n_keys * c.width; i++) x.rows[i] = (float)(lp_rng_u64(&rng) % 3) - 1;
    for (int64_t i = 0; i < c.n_queries * x.w_stride; i++)
        x.w[i] = (float)(lp_rng_u64(&rng) % 3) - 1;
    for (int64_t h = 0; h < 2; h++) x.w[3 * x.w_stride + h] = 0; // all scores of query 3 equal
    for (int64_t h = 0; h < 2; h++) x.w[4 * x.w_stride + h] = h ? -0.0f : 0.0f;
    static const int64_t spoiled[] = {3, 40, 58, 66};
    for (int i = 0; i < 4; i++) x.rows[spoiled[i] * c.width + 1] = i == 1 ? -NAN : NAN;
    x.rows[20 * c.width] = INFINITY;
    place_keys(&x, &rng, 7);
    struct lp_reserve need = {
        .n_rows = 11, .n_context = x.n_keys, .max_width = 9, .index_heads = 2, .index_width = 9};
    open_devices(&d, &need);
    for (int k = 0; k < N_DEVICES; k++) {
        int32_t *ids = new_ids(11 * x.ids_stride), counts[11];
        select_keys(d.dev[k], &x, 0, 11, ids, counts);
        for (int64_t q = 0; q < 11; q++) {
            bool taken[80] = {false};
            double scores[80], size;
            int64_t n = c.first_pos + q + 1;
            for (int64_t s = 0; s < n; s++) scores[s] = score(&x, q, s, &size);
            for (int32_t i = 0; i < c.top_k; i++) { // take the best that is left, 25 times
                int64_t best = -1;
                for (int64_t s = 0; s < n; s++)
                    if (!taken[s] && (best < 0 || (isnan(scores[s]) && !isnan(scores[best])) ||
                                      scores[s] > scores[best]))
                        best = s;
                taken[best] = true;
            }
            check_shape(&x, q, ids + q * x.ids_stride, counts[q]);
            for (int32_t i = 0; i < c.top_k; i++) assert_true(taken[ids[q * x.ids_stride + i]]);
            for (int i = 0; i < 3; i++) assert_true(taken[spoiled[i]]); // NaN is always kept
        }
        lp_free(ids);
    }
    close_devices(&d);
    free_data(&x);
}

// Scores so near each other that no histogram tells them apart.
static void test_tiny_scores(void **state) {
    (void)state;
    const struct index_case c = {2, 16, 25, 200, 3, 7, LP_TYPE_F32, false};
    struct index_data x;
    struct devices d;
    struct lp_rng rng;
    lp_rng_init(&rng, 901);
    make_data(&x, &c, &rng);
    for (int64_t i = 0; i < c.n_queries * x.w_stride; i++) x.w[i] *= 1e-37f;
    place_keys(&x, &rng, 7);
    struct lp_reserve need = {
        .n_rows = 3, .n_context = x.n_keys, .max_width = 16, .index_heads = 2, .index_width = 16};
    open_devices(&d, &need);
    struct truth truth = true_scores(&x);
    for (int k = 0; k < N_DEVICES; k++) {
        int32_t *ids = new_ids(3 * x.ids_stride), counts[3];
        select_keys(d.dev[k], &x, 0, 3, ids, counts);
        for (int64_t q = 0; q < 3; q++) {
            check_shape(&x, q, ids + q * x.ids_stride, counts[q]);
            check_choice(&x, &truth, q, ids + q * x.ids_stride, counts[q]);
        }
        lp_free(ids);
    }
    free_truth(&truth);
    close_devices(&d);
    free_data(&x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_selection),
        cmocka_unit_test(test_tiny_scores),
        cmocka_unit_test(test_ties_and_nan),
    };
    return cmocka_run_group_tests_name("indexer", tests, NULL, NULL);
}
