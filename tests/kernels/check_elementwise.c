// Norms, rotary embedding, add, SiLU and cache writes: against ref and against formulas in double,
// at odd widths, in place, with extreme values; the same bits for any number of rows and threads.
#include "attn_fixture.h"

#include <stdlib.h>

static const int32_t widths[] = {1, 7, 8, 33, 64, 576, 7168};
#define N_WIDTHS (sizeof widths / sizeof widths[0])

enum elementwise { RMS_NORM, RMS_NORM_PLAIN, LAYER_NORM, ADD, SILU_MUL, N_OPS };

struct rows {
    enum elementwise what;
    int64_t n_rows, stride;
    int32_t width;
    const float *x, *second, *w, *b;
};

// y <- op(x, second), rows first..first + n - 1; y holds x where the operation works in place.
static void apply(struct lp_device *dev, const struct rows *r, int64_t first, int64_t n, float *y) {
    const float *x = r->x + first * r->stride;
    y += first * r->stride;
    struct lp_op_rms_norm rms = {
        x, r->stride, r->what == RMS_NORM ? r->w : NULL, 1e-5f, y, r->stride, n, r->width, NULL, 0};
    struct lp_op_layer_norm layer = {x, r->stride, r->w, r->b, 1e-5f, y, r->stride, n, r->width};
    struct lp_op_add add = {y, r->second + first * r->stride, r->stride, r->stride, n, r->width};
    struct lp_op_silu_mul silu = {x, r->second + first * r->stride, y, r->stride, n, r->width};
    if (r->what == LAYER_NORM)
        dev->backend->layer_norm(dev, &layer);
    else if (r->what == ADD)
        dev->backend->add(dev, &add);
    else if (r->what == SILU_MUL)
        dev->backend->silu_mul(dev, &silu);
    else
        dev->backend->rms_norm(dev, &rms);
}

static void formula(const struct rows *r, int64_t t, float *out) {
    const float *x = r->x + t * r->stride, *second = r->second + t * r->stride;
    double mean = 0, squares = 0, variance = 0;
    for (int32_t i = 0; i < r->width; i++) {
        mean += x[i] / (double)r->width;
        squares += (double)x[i] * x[i] / r->width;
    }
    for (int32_t i = 0; i < r->width; i++) variance += (x[i] - mean) * (x[i] - mean) / r->width;
    for (int32_t i = 0; i < r->width; i++) {
        double y = NAN;
        if (r->what == RMS_NORM) y = x[i] / sqrt(squares + 1e-5f) * r->w[i];
        if (r->what == RMS_NORM_PLAIN) y = x[i] / sqrt(squares + 1e-5f);
        if (r->what == LAYER_NORM) y = (x[i] - mean) / sqrt(variance + 1e-5f) * r->w[i] + r->b[i];
        if (r->what == ADD) y = (double)x[i] + second[i];
        if (r->what == SILU_MUL) y = x[i] / (1 + exp(-(double)x[i])) * second[i];
        out[i] = (float)y;
    }
}

// A fresh output; ADD and in-place runs start from x.
static float *start(const struct rows *r, bool in_place) {
    float *y = new_output(r->n_rows, r->stride);
    for (int64_t t = 0; (in_place || r->what == ADD) && t < r->n_rows; t++)
        memcpy(y + t * r->stride, r->x + t * r->stride, (size_t)r->width * sizeof *y);
    return y;
}

static void check_rows(struct devices *d, const struct rows *r) {
    float *out[N_DEVICES], *expected = new_array(r->n_rows * r->stride, sizeof(float));
    for (int64_t t = 0; t < r->n_rows; t++) formula(r, t, expected + t * r->stride);
    for (int k = 0; k < N_DEVICES; k++) {
        out[k] = start(r, false);
        apply(d->dev[k], r, 0, r->n_rows, out[k]);
        assert_guards(out[k], r->n_rows, r->stride, r->width);
        assert_close(out[k], expected, r->n_rows, r->stride, r->width, "elementwise");
        if (k > 1 && k <= N_SAME)
            assert_same_bits(out[k], out[1], r->n_rows * r->stride, "threads");
    }
    float *single = start(r, true);
    struct rows in_place = *r;
    in_place.x = single; // y may be x
    for (int64_t t = 0; t < r->n_rows; t++) apply(d->dev[1 + t % N_SAME], &in_place, t, 1, single);
    assert_same_bits(single, out[1], r->n_rows * r->stride, "one row a call, in place");
    for (int k = 0; k < N_DEVICES; k++) lp_free(out[k]);
    lp_free(single);
    lp_free(expected);
}

static void test_rows(void **state) {
    (void)state;
    struct devices d;
    struct lp_reserve need = {.n_rows = 33, .max_width = 7168};
    open_devices(&d, &need);
    struct lp_rng rng;
    lp_rng_init(&rng, 11);
    for (size_t i = 0; i < N_WIDTHS; i++)
        for (int what = 0; what < N_OPS; what++) {
            struct rows r = {.what = (enum elementwise)what,
                             .n_rows = i % 2 ? 33 : 5,
                             .width = widths[i],
                             .stride = widths[i] + 3};
            float *x = random_floats(&rng, r.n_rows * r.stride, 3.0f),
                  *second = random_floats(&rng, r.n_rows * r.stride, 1.0f);
            float *w = random_floats(&rng, r.width, 1.0f), *b = random_floats(&rng, r.width, 1.0f);
            r.x = x, r.second = second, r.w = w, r.b = b;
            check_rows(&d, &r);
            lp_free(x), lp_free(second), lp_free(w), lp_free(b);
        }
    close_devices(&d);
}

// silu over its whole range: relative error, exact limits, NaN.
static void test_silu_range(void **state) {
    (void)state;
    struct devices d;
    struct lp_reserve need = {.n_rows = 1, .max_width = 4096};
    open_devices(&d, &need);
    float gate[4001], up[4001], y[4001];
    for (int i = 0; i <= 4000; i++)
        gate[i] = (float)(i - 2000) * 0.05f, up[i] = 1.0f; // -100 .. 100
    for (int k = 0; k < N_DEVICES; k++) {
        struct lp_op_silu_mul op = {gate, up, y, 4001, 1, 4001};
        d.dev[k]->backend->silu_mul(d.dev[k], &op);
        for (int i = 0; i <= 4000; i++) {
            double x = gate[i], expected = x / (1 + exp(-x));
            if (!(fabs(y[i] - expected) <= 1e-6 * fabs(expected) + 1e-36))
                fail_msg("device %d: silu(%g) = %.9g, expected %.9g", k, x, y[i], expected);
        }
        float ends[4] = {NAN, INFINITY, 0.0f, -1e30f}, ones[4] = {1, 1, 1, 1}, out[4];
        struct lp_op_silu_mul edge = {ends, ones, out, 4, 1, 4};
        d.dev[k]->backend->silu_mul(d.dev[k], &edge);
        assert_true(isnan(out[0]) && out[1] == INFINITY && out[2] == 0 && out[3] == 0);
        float ups[4] = {1, 1, NAN, 1}, low[4] = {1, 2, 3, 4};
        struct lp_op_silu_mul nan_up = {low, ups, out, 4, 1, 4};
        d.dev[k]->backend->silu_mul(d.dev[k], &nan_up);
        assert_true(isnan(out[2]) && isfinite(out[3]));
    }
    close_devices(&d);
}

static void test_norm_nan(void **state) { // B4
    (void)state;
    struct devices d;
    struct lp_reserve need = {.n_rows = 2, .max_width = 40};
    open_devices(&d, &need);
    for (int k = 0; k < N_DEVICES; k++)
        for (int bad = 0; bad < 2; bad++) {
            float x[80], y[80];
            for (int i = 0; i < 80; i++) x[i] = (float)i;
            x[50] = bad ? INFINITY : NAN;
            struct lp_op_rms_norm op = {x, 40, NULL, 1e-6f, y, 40, 2, 40, NULL, 0};
            d.dev[k]->backend->rms_norm(d.dev[k], &op);
            int n_bad[2] = {0, 0};
            for (int i = 0; i < 80; i++) n_bad[i / 40] += !isfinite(y[i]);
            assert_int_equal(n_bad[0], 0);
            assert_true(n_bad[1] > 0);
        }
    close_devices(&d);
}

struct rope_case {
    int64_t n_tokens;
    int32_t n_heads, width, head_width;
    enum lp_rope_pairing pairing;
    float magnitude;
};
static const struct rope_case rope_cases[] = {
    {1, 1, 2, 2, LP_ROPE_ADJACENT, 1.0f},      {5, 3, 16, 24, LP_ROPE_HALF, 1.0f},
    {33, 20, 64, 256, LP_ROPE_ADJACENT, 1.3f}, {7, 2, 200, 210, LP_ROPE_HALF, 0.9f},
    {3, 5, 6, 6, LP_ROPE_ADJACENT, 1.0f},
};

static void test_rope(void **state) {
    (void)state;
    struct devices d;
    struct lp_reserve need = {.n_rows = 33, .max_width = 8192};
    open_devices(&d, &need);
    struct lp_rng rng;
    lp_rng_init(&rng, 21);
    for (size_t i = 0; i < sizeof rope_cases / sizeof rope_cases[0]; i++) {
        const struct rope_case *c = &rope_cases[i];
        int64_t token_stride = (int64_t)c->n_heads * c->head_width + 1,
                n = c->n_tokens * token_stride;
        float *x = random_floats(&rng, n, 1.0f), *expected = new_array(n, sizeof(float)),
              inv_freq[100];
        int32_t positions[33];
        for (int32_t p = 0; p < c->width / 2; p++)
            inv_freq[p] = (float)pow(10000.0, -2.0 * p / c->width);
        for (int64_t t = 0; t < c->n_tokens; t++)
            positions[t] = (int32_t)(lp_rng_u64(&rng) % 1000000); // large angles
        memcpy(expected, x, (size_t)n * sizeof *x);
        for (int64_t t = 0; t < c->n_tokens; t++)
            for (int32_t h = 0; h < c->n_heads; h++)
                for (int32_t p = 0; p < c->width / 2; p++) {
                    float angle = (float)positions[t] * inv_freq[p];
                    int64_t row = t * token_stride + (int64_t)h * c->head_width;
                    int64_t a = row + (c->pairing == LP_ROPE_ADJACENT ? 2 * p : p);
                    int64_t b =
                        row + (c->pairing == LP_ROPE_ADJACENT ? 2 * p + 1 : p + c->width / 2);
                    expected[a] = (float)(c->magnitude * (x[a] * cos(angle) - x[b] * sin(angle)));
                    expected[b] = (float)(c->magnitude * (x[a] * sin(angle) + x[b] * cos(angle)));
                }
        float *first = NULL;
        for (int k = 0; k < N_DEVICES; k++) {
            float *y = new_array(n, sizeof *y);
            memcpy(y, x, (size_t)n * sizeof *x);
            struct lp_op_rope op = {y,          token_stride, c->head_width, c->n_tokens,
                                    c->n_heads, c->width,     c->pairing,    positions,
                                    inv_freq,   c->magnitude};
            d.dev[k]->backend->rope(d.dev[k], &op);
            assert_close(y, expected, c->n_tokens, token_stride, token_stride, "rope");
            for (int64_t j = 0; j < n; j++) // behind `width` nothing moves
                if (j % token_stride % c->head_width >= c->width)
                    assert_memory_equal(&y[j], &x[j], 4);
            if (k > 1 && k <= N_SAME) assert_same_bits(y, first, n, "threads");
            if (k == 1)
                first = y;
            else
                lp_free(y);
        }
        lp_free(first), lp_free(x), lp_free(expected);
    }
    close_devices(&d);
}

// Values that test rounding. F16, BF16: a 16-bit pattern's value, the point half-way to the next, and
// what lies beside it. Others: any size, and some halves of the block's step.
static void rounding_values(struct lp_rng *rng, lp_type type, float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        uint16_t half = (uint16_t)lp_rng_u64(rng);
        bool is_bf16 = type == LP_TYPE_BF16;
        float low = is_bf16 ? lp_bf16_to_f32(half) : lp_f16_to_f32(half);
        float high = is_bf16 ? lp_bf16_to_f32(half + 1) : lp_f16_to_f32(half + 1);
        bool finite = isfinite(low) && isfinite(high);
        x[i] = lp_rng_normal(rng);
        if (type ==
            LP_TYPE_F8_E4M3) { // blocks of a largest of 448, with ties; of any size; damaged
            if (i % 300 < 256 && i / 300 % 3)
                x[i] = (float)((int)(lp_rng_u64(rng) % 8192) - 4096) * 0x1p-6f;
            if (i % 300 % 128 == 17 && i / 300 % 3) x[i] = 448.0f;
            if (i % 3989 == 0) x[i] = low;
        } else if (type == LP_TYPE_Q8_0) {
            if (i % 3 == 0) x[i] = (float)((int)(lp_rng_u64(rng) % 255) - 127) * 0.5f;
            if (i % 97 == 0) x[i] = 127.0f;
            if (i % 1009 == 0) x[i] = low;
        } else if (i % 4 == 0)
            x[i] = low;
        else if (i % 4 == 1 && finite)
            x[i] = low + (high - low) * 0.5f;
        else if (i % 4 == 2 && finite)
            x[i] = low + (high - low) * 0.499f;
    }
}

// One piece of a row, a block or a value: NaN where x's rounding is, else its bytes.
static void check_piece(const struct lp_type_info *info, const unsigned char *got,
                        const unsigned char *want) {
    float values[128];
    info->dequant(want, values, info->block_values);
    if (isnan(values[0])) {
        info->dequant(got, values, info->block_values);
        assert_true(isnan(values[0]));
    } else
        assert_memory_equal(got, want, info->block_bytes);
}

// A row of the cache, by the definition of its type.
static void check_row(const struct cache *cache, int64_t pos, const float *x) {
    const struct lp_cache_view *view = &cache->view;
    const struct lp_type_info *info = lp_type_info(view->type), *tail = lp_type_info(LP_TYPE_BF16);
    const unsigned char *row = cache_row(cache, pos);
    const int32_t n = view->width - view->n_tail;
    unsigned char expected[300 * 4];
    uint64_t n_bytes = 0;
    assert_true(lp_type_row_bytes(info->id, (uint64_t)n, &n_bytes));
    info->quantize(x, expected, (size_t)n);
    for (uint64_t at = 0; at < n_bytes; at += info->block_bytes)
        check_piece(info, row + at, expected + at);
    tail->quantize(x + n, expected + n_bytes, (size_t)view->n_tail);
    for (int32_t i = 0; i < view->n_tail; i++, n_bytes += 2)
        check_piece(tail, row + n_bytes, expected + n_bytes);
    for (uint64_t gap = n_bytes; gap < view->row_bytes; gap++) assert_int_equal(row[gap], 0xff);
}

static void check_cache_write(struct lp_device *dev, struct lp_rng *rng, lp_type type,
                              int32_t slot_offset) {
    enum { ROWS = 40, FIRST = 3, STRIDE = 300 };
    const bool f8 = type == LP_TYPE_F8_E4M3;
    int32_t width = f8 ? 256 + 21 : type == LP_TYPE_Q8_0 ? 64 : 37;
    float *zero = new_array((ROWS + 5) * width, sizeof(float)), *x = new_array(ROWS * STRIDE, 4);
    rounding_values(rng, type, x, ROWS * STRIDE);
    struct cache cache = new_cache_tail(rng, zero, ROWS + 5, width, 21, type, 7, slot_offset);
    struct lp_op_cache_write op = {&cache.view, x, STRIDE, FIRST, ROWS, NULL};
    dev->backend->cache_write(dev, &op);
    for (int64_t s = 0; s < ROWS + 5; s++) {
        bool written = s >= FIRST && s < FIRST + ROWS;
        check_row(&cache, s, written ? x + (s - FIRST) * STRIDE : zero);
    }
    free_cache(&cache);
    lp_free(zero), lp_free(x);
}

static void test_cache_write(void **state) {
    (void)state;
    static const lp_type types[] = {LP_TYPE_F32, LP_TYPE_F16, LP_TYPE_BF16, LP_TYPE_Q8_0,
                                    LP_TYPE_F8_E4M3};
    struct devices d;
    struct lp_reserve need = {.n_rows = 40, .max_width = 300};
    open_devices(&d, &need);
    struct lp_rng rng;
    lp_rng_init(&rng, 31);
    for (int type = 0; type < 5; type++)
        for (int k = 0; k < N_DEVICES; k++)
            for (int32_t slot_offset = 0; slot_offset < 2; slot_offset++)
                check_cache_write(d.dev[k], &rng, types[type], slot_offset);
    close_devices(&d);
}

// The first of the largest values that are not skipped, and whether any value is not finite.
static void test_scan_rows(void **state) {
    (void)state;
    enum { N_ROWS = 9, WIDTH = 3001 };
    struct devices d;
    struct lp_rng rng;
    lp_rng_init(&rng, 5);
    open_devices(&d, &(struct lp_reserve){.n_rows = N_ROWS, .max_width = WIDTH});
    float *x = random_floats(&rng, (int64_t)N_ROWS * WIDTH, 1.0f);
    uint8_t skip[WIDTH] = {0};
    for (int i = 0; i < WIDTH; i++) skip[i] = i % 7 == 3;
    x[1 * WIDTH + 3] = 50;                        // skipped
    x[1 * WIDTH + 2999] = x[1 * WIDTH + 40] = 40; // equal ones
    x[2 * WIDTH + WIDTH - 1] = 60;                // the last
    x[3 * WIDTH + 17] = NAN;
    x[4 * WIDTH + 10] = -INFINITY;                            // skipped, but bad
    for (int i = 0; i < WIDTH; i++) x[5 * WIDTH + i] = -3.0f; // all equal
    for (int i = 0; i < WIDTH; i++) x[6 * WIDTH + i] = i % 2 ? 0.0f : -0.0f;
    for (int i = 0; i < N_DEVICES; i++) {
        int32_t largest[N_ROWS], bad[N_ROWS], plain[N_ROWS];
        if (!d.dev[i]->backend->scan_rows) continue;
        struct lp_op_scan_rows op = {x, WIDTH, N_ROWS, WIDTH, skip, largest, bad};
        d.dev[i]->backend->scan_rows(d.dev[i], &op);
        for (int t = 0; t < N_ROWS; t++) {
            int best = -1;
            for (int k = 0; k < WIDTH; k++)
                if (!skip[k] && (best < 0 || x[t * WIDTH + k] > x[t * WIDTH + best])) best = k;
            assert_int_equal(bad[t], t == 3 || t == 4);
            if (t != 3) assert_int_equal(largest[t], best);
        }
        assert_int_equal(largest[1], 40);
        memset(skip, 1, sizeof skip);
        d.dev[i]->backend->scan_rows(d.dev[i], &op);
        assert_int_equal(largest[0], -1);
        op.skip = NULL;
        op.largest = plain;
        d.dev[i]->backend->scan_rows(d.dev[i], &op);
        assert_int_equal(plain[1], 3);
        op.largest = NULL;
        memset(bad, 0x7f, sizeof bad);
        d.dev[i]->backend->scan_rows(d.dev[i], &op);
        assert_int_equal(bad[3], 1);
        assert_int_equal(bad[8], 0);
        for (int k = 0; k < WIDTH; k++) skip[k] = k % 7 == 3;
    }
    lp_free(x);
    close_devices(&d);
}

static const float *by_value;
static int compare_value(const void *a, const void *b) {
    const float x = by_value[*(const int32_t *)a], y = by_value[*(const int32_t *)b];
    return x > y ? -1 : x < y ? 1 : *(const int32_t *)a - *(const int32_t *)b;
}
static int compare_place(const void *a, const void *b) {
    return *(const int32_t *)a - *(const int32_t *)b;
}

// A row's largest values by sorting all of it, and the sum of weights in the plainest order.
static void check_top(const float *x, int64_t width, const uint8_t *skip, double scale,
                      const struct lp_top_row *got) {
    int32_t *order = new_array(width, sizeof *order), n = 0, n_all = 0;
    double sum = 0;
    for (int32_t i = 0; i < width; i++)
        if (!skip || !skip[i]) order[n_all++] = i;
    by_value = x;
    qsort(order, (size_t)n_all, sizeof *order, compare_value);
    for (int32_t i = 0; i < n_all; i++) sum += exp(((double)x[order[i]] - x[order[0]]) * scale);
    n = n_all < LP_TOP_VALUES ? n_all : LP_TOP_VALUES;
    qsort(order, (size_t)n, sizeof *order, compare_place);
    assert_int_equal(got->n, n);
    assert_memory_equal(got->ids, order, (size_t)n * sizeof *order);
    for (int32_t i = 0; i < n; i++) assert_memory_equal(&got->values[i], &x[order[i]], sizeof *x);
    assert_true(fabs(got->sum - sum) <= 1e-12 * sum);
    lp_free(order);
}

static void test_top_rows(void **state) {
    (void)state;
    enum { N_ROWS = 6, WIDTH = 5003 };
    static const double scales[N_ROWS] = {1, 0.5, 0, 2, 1, 1};
    const int64_t sizes[] = {WIDTH, 1100, 1024, 7};
    struct devices d;
    struct lp_rng rng;
    lp_rng_init(&rng, 8);
    open_devices(&d, &(struct lp_reserve){.n_rows = N_ROWS, .max_width = WIDTH});
    float *x = random_floats(&rng, (int64_t)N_ROWS * WIDTH, 5.0f);
    uint8_t skip[WIDTH];
    for (int i = 0; i < WIDTH; i++) skip[i] = i % 7 == 3;
    for (int i = 0; i < WIDTH; i++) x[3 * WIDTH + i] = -2.5f;              // all equal
    for (int i = 0; i < WIDTH; i++) x[4 * WIDTH + i] = (float)(i % 5) / 4; // many equal
    for (int i = 0; i < WIDTH; i++) x[5 * WIDTH + i] = i % 2 ? 0.0f : -0.0f;
    struct lp_top_row *rows = new_array(N_ROWS, sizeof *rows);
    for (int i = 0; i < N_DEVICES; i++)
        for (int w = 0; d.dev[i]->backend->top_rows && w < 8; w++) {
            const uint8_t *left_out = w % 2 ? skip : NULL;
            struct lp_op_top_rows op = {x, WIDTH, N_ROWS, sizes[w / 2], left_out, scales, rows};
            rows[2].n = 77;
            d.dev[i]->backend->top_rows(d.dev[i], &op);
            assert_int_equal(rows[2].n, 77); // nothing was wanted of it
            for (int t = 0; t < N_ROWS; t++)
                if (t != 2) check_top(x + t * WIDTH, op.width, left_out, scales[t], &rows[t]);
        }
    lp_free(x), lp_free(rows);
    close_devices(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),        cmocka_unit_test(test_silu_range),
        cmocka_unit_test(test_norm_nan),    cmocka_unit_test(test_rope),
        cmocka_unit_test(test_cache_write), cmocka_unit_test(test_scan_rows),
        cmocka_unit_test(test_top_rows),
    };
    return cmocka_run_group_tests_name("elementwise", tests, NULL, NULL);
}
