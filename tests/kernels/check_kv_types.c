// Every type of cache with every operation that reads one: on each device against ref, at lengths on
// both sides of the borders of blocks, segments and pages, with slot_offset 0 and 1; and how far the
// results are from those of a float32 cache.
#include "attn_cases.h"

static const lp_type types[] = {LP_TYPE_F32, LP_TYPE_F16, LP_TYPE_BF16, LP_TYPE_Q8_0,
                                LP_TYPE_F8_E4M3};
#define N_TYPES 5

// Three queries each, which see first + 1, first + 2 and first + 3 keys: one less than a border, all
// up to it, one more.
static const int64_t firsts[] = {62, 1022, 2046};
#if defined(TESTS_EMULATED) // the last takes minutes there
#define N_FIRSTS 2
#else
#define N_FIRSTS 3
#endif
#define N_QUERIES 3

// Whether a type is tried with rows of whole blocks of 128, which are long: in an emulator those that need them, and
// F32, from which the difference is counted.
static bool takes_long_rows(lp_type type) {
#if defined(TESTS_EMULATED)
    return type == LP_TYPE_F32 || type == LP_TYPE_F8_E4M3;
#else
    return type != LP_TYPE_COUNT;
#endif
}

static const char *type_name(lp_type type) {
    return lp_type_info(type)->name;
}

// ---- how far a result is from that of a float32 cache

struct difference {
    double square, square_f32; // sums over all values of the difference, of the float32 result
    double most, most_f32;
};

static void add_difference(struct difference *d, const float *x, const float *f32, int64_t stride,
                           int64_t width) {
    for (int64_t q = 0; q < N_QUERIES; q++)
        for (int64_t i = 0; i < width; i++) {
            double value = f32[q * stride + i], off = x[q * stride + i] - value;
            d->square += off * off;
            d->square_f32 += value * value;
            if (fabs(off) > d->most) d->most = fabs(off);
            if (fabs(value) > d->most_f32) d->most_f32 = fabs(value);
        }
}

// The root mean square of the difference against that of the result. Rounding moves a cached value by
// e of itself (rms): 2^-11 or 2^-8 of the power of two below, uniform, is 2.1e-4 (F16) or 1.7e-3
// (BF16); half of 1/127 of the largest of 32 normal values, some 2.2 deviations, is 5e-3 (Q8_0). The
// scores here have a deviation of about 2, so keys move the weights by 2e, beside the e of the
// values: 2.2e together; 3e is allowed.
static void check_difference(const char *op, lp_type type, const struct difference *d) {
    static const double e[N_TYPES] = {0, 2.1e-4, 1.7e-3, 5e-3, 2.4e-2};
    if (d->square_f32 == 0) return; // rows of no whole blocks
    double ratio = sqrt(d->square / d->square_f32);
    print_message("%-24s %-4s: rms %.2e, largest %.2e of the largest value\n", op, type_name(type),
                  ratio, d->most / d->most_f32);
    for (int t = 0; t < N_TYPES; t++)
        if (types[t] == type) assert_true(ratio <= 3 * e[t]);
}

// ---- MLA

// All devices against ref; position p in slot p + 1, one query a call, against slot p. `out` becomes
// ref's result.
static void check_mla(const struct devices *d, const struct mla *m, mla_form form, int64_t stride,
                      float *out) {
    struct lp_rng rng;
    lp_rng_init(&rng, 3);
    struct mla moved = *m;
    moved.cache = moved_cache(&rng, &m->cache, m->n_keys, m->c.page_tokens, 1);
    form(d->dev[0], m, 0, N_QUERIES, out);
    for (int i = 0; i < N_DEVICES; i++) {
        float *got = new_output(N_QUERIES, stride), *offset = new_output(N_QUERIES, stride);
        form(d->dev[i], m, 0, N_QUERIES, got);
        for (int64_t q = 0; q < N_QUERIES; q++) form(d->dev[i], &moved, q, 1, offset);
        assert_guards(got, N_QUERIES, stride, stride - 5);
        assert_within(got, out, N_QUERIES, stride, stride - 5, bound_of(i, &m->c, form),
                      type_name(m->c.type));
        assert_same_bits(offset, got, N_QUERIES * stride, "slot_offset 1");
        lp_free(got);
        lp_free(offset);
    }
    free_cache(&moved.cache);
}

static void check_mla_types(const struct mla_case *shape, const char *label) {
    struct difference off[2][N_TYPES] = {0};
    for (int f = 0; f < N_FIRSTS; f++) {
        float *out[2][N_TYPES] = {{0}};
        for (int t = 0; t < N_TYPES; t++) {
            if (shape->latent % 128 == 0 ? !takes_long_rows(types[t]) : types[t] == LP_TYPE_F8_E4M3)
                continue;
            struct mla m;
            struct devices d;
            struct mla_case c = *shape;
            c.first_pos = firsts[f], c.n_queries = N_QUERIES, c.type = types[t];
            c.page_tokens = f == 1 ? 7 : 64, c.k_transposed = f == 2;
            make_mla(&m, &c, 60 + (uint64_t)f); // the same values for each type
            struct lp_reserve need = mla_reserve(&m);
            open_devices(&d, &need);
            out[0][t] = new_output(N_QUERIES, m.latent_out_stride);
            out[1][t] = new_output(N_QUERIES, m.out_stride);
            check_mla(&d, &m, absorbed, m.latent_out_stride, out[0][t]);
            check_mla(&d, &m, expanded, m.out_stride, out[1][t]);
            float *latent = new_output(N_QUERIES, m.latent_out_stride),
                  *value = new_output(N_QUERIES, m.out_stride);
            formula_outputs(&m, latent, value); // ref itself, on the rounded rows
            assert_close(out[0][t], latent, N_QUERIES, m.latent_out_stride, m.latent_out_stride - 5,
                         "ref, absorbed");
            assert_close(out[1][t], value, N_QUERIES, m.out_stride, m.out_stride - 5,
                         "ref, expanded");
            lp_free(latent), lp_free(value);
            add_difference(&off[0][t], out[0][t], out[0][0], m.latent_out_stride,
                           m.latent_out_stride - 5);
            add_difference(&off[1][t], out[1][t], out[1][0], m.out_stride, m.out_stride - 5);
            close_devices(&d);
            free_mla(&m);
        }
        for (int t = 0; t < N_TYPES; t++) lp_free(out[0][t]), lp_free(out[1][t]);
    }
    for (int t = 0; t < N_TYPES; t++) {
        char op[40];
        snprintf(op, sizeof op, "mla_absorbed%s", label);
        check_difference(op, types[t], &off[0][t]);
        snprintf(op, sizeof op, "mla_expanded%s", label);
        check_difference(op, types[t], &off[1][t]);
    }
}

static void test_mla(void **state) {
    (void)state;
    const struct mla_case dense = {.n_heads = 3, .latent = 64, .rope = 32, .nope = 24, .v_dim = 20};
    struct mla_case selected = dense;
    selected.k = 40;
    check_mla_types(&dense, "");
    check_mla_types(&selected, ", 40 keys");
}

// Rows of which FP8 makes blocks of 128, with a rotated part beside them.
static void test_mla_whole_blocks(void **state) {
    (void)state;
    const struct mla_case dense = {
        .n_heads = 3, .latent = 256, .rope = 32, .nope = 24, .v_dim = 20};
    struct mla_case selected = dense;
    selected.k = 40;
    check_mla_types(&dense, ", latent 256");
    check_mla_types(&selected, ", 256, 40 keys");
}

// The rotated part need not begin with a block of 32.
static void test_mla_odd_latent(void **state) {
    (void)state;
    const struct mla_case shape = {.n_heads = 5, .latent = 80, .rope = 16, .nope = 33, .v_dim = 17};
    check_mla_types(&shape, ", latent 80");
}

// ---- grouped-query attention

static void check_gqa(const struct devices *d, const struct gqa *g, float *out) {
    struct lp_rng rng;
    lp_rng_init(&rng, 4);
    struct gqa moved = *g;
    int64_t stride = g->out_stride;
    moved.k = moved_cache(&rng, &g->k, g->n_keys, g->c.page_tokens, 1);
    moved.v = moved_cache(&rng, &g->v, g->n_keys, g->c.page_tokens, 1);
    gqa(d->dev[0], g, 0, N_QUERIES, out);
    for (int i = 0; i < N_DEVICES; i++) {
        float *got = new_output(N_QUERIES, stride), *offset = new_output(N_QUERIES, stride);
        gqa(d->dev[i], g, 0, N_QUERIES, got);
        for (int64_t q = 0; q < N_QUERIES; q++) gqa(d->dev[i], &moved, q, 1, offset);
        assert_guards(got, N_QUERIES, stride, stride - 5);
        assert_close(got, out, N_QUERIES, stride, stride - 5, type_name(g->c.type));
        assert_same_bits(offset, got, N_QUERIES * stride, "slot_offset 1");
        lp_free(got);
        lp_free(offset);
    }
    free_cache(&moved.k);
    free_cache(&moved.v);
}

static void check_gqa_types(int32_t head_dim, int32_t v_dim) {
    struct difference off[N_TYPES] = {0};
    for (int f = 0; f < N_FIRSTS; f++) {
        float *out[N_TYPES] = {0};
        for (int t = 0; t < N_TYPES; t++) {
            if (!lp_cache_type_fits(types[t], head_dim) || !lp_cache_type_fits(types[t], v_dim) ||
                (head_dim % 128 == 0 && !takes_long_rows(types[t])))
                continue;
            struct gqa g;
            struct devices d;
            struct lp_rng rng;
            lp_rng_init(&rng, 80 + (uint64_t)f);
            struct gqa_case c = {6,         3,         head_dim,        v_dim,
                                 firsts[f], N_QUERIES, f == 1 ? 7 : 64, types[t]};
            make_gqa(&g, &c, &rng);
            struct lp_reserve need = gqa_reserve(&g);
            open_devices(&d, &need);
            out[t] = new_output(N_QUERIES, g.out_stride);
            check_gqa(&d, &g, out[t]);
            float *expected = new_output(N_QUERIES, g.out_stride);
            gqa_formula(&g, expected);
            assert_close(out[t], expected, N_QUERIES, g.out_stride, g.out_stride - 5, "ref, gqa");
            lp_free(expected);
            add_difference(&off[t], out[t], out[0], g.out_stride, g.out_stride - 5);
            close_devices(&d);
            free_gqa(&g);
        }
        for (int t = 0; t < N_TYPES; t++) lp_free(out[t]);
    }
    for (int t = 0; t < N_TYPES; t++) check_difference("gqa", types[t], &off[t]);
}

static void test_gqa(void **state) {
    (void)state;
    check_gqa_types(64, 32);
    check_gqa_types(256, 128);
}

// ---- the indexer

enum { INDEX_HEADS = 4, TOP_K = 48 };

static void select_keys(struct lp_device *dev, const float *q, const float *w,
                        const struct cache *keys, int64_t first, int32_t *ids) {
    int32_t counts[N_QUERIES];
    const int32_t width = keys->view.width;
    struct lp_op_index_select op = {.q = q,
                                    .q_stride = INDEX_HEADS * width,
                                    .w = w,
                                    .w_stride = INDEX_HEADS,
                                    .keys = &keys->view,
                                    .first_pos = first,
                                    .n_queries = N_QUERIES,
                                    .n_heads = INDEX_HEADS,
                                    .width = width,
                                    .top_k = TOP_K,
                                    .scale = 0.125f,
                                    .ids = ids,
                                    .ids_stride = TOP_K,
                                    .counts = counts};
    dev->backend->index_select(dev, &op);
    for (int q_ = 0; q_ < N_QUERIES; q_++) assert_int_equal(counts[q_], TOP_K);
}

// Of the n ascending ids in a, how many are not in b.
static int n_missing(const int32_t *a, const int32_t *b, int n) {
    int missing = 0;
    for (int i = 0, j = 0; i < n; i++) {
        while (j < n && b[j] < a[i]) j++;
        missing += j == n || b[j] != a[i];
    }
    return missing;
}

// The seed is one without scores so close that float32 sums order them differently from ref's.
static void check_index_select(int32_t width) {
    int missing[N_TYPES] = {0};
    for (int f = 0; f < N_FIRSTS; f++) {
        int64_t n = firsts[f] + N_QUERIES;
        int32_t expected[N_TYPES][N_QUERIES * TOP_K];
        struct devices d;
        struct lp_reserve need = {.n_rows = N_QUERIES,
                                  .n_context = n,
                                  .max_width = width,
                                  .index_heads = INDEX_HEADS,
                                  .index_width = width};
        open_devices(&d, &need);
        for (int t = 0; t < N_TYPES; t++) {
            if (width % 128 == 0 && !takes_long_rows(types[t])) continue;
            struct lp_rng rng;
            lp_rng_init(&rng, 90 + (uint64_t)f);
            float *q = random_floats(&rng, N_QUERIES * INDEX_HEADS * width, 1.0f);
            float *w = random_floats(&rng, N_QUERIES * INDEX_HEADS, 1.0f);
            float *rows = random_floats(&rng, n * width, 1.0f);
            int32_t page_tokens = f == 1 ? 7 : 64;
            struct cache keys =
                new_cache_tail(&rng, rows, n, width, width % 128, types[t], page_tokens, 0);
            struct cache moved = moved_cache(&rng, &keys, n, page_tokens, 1);
            select_keys(d.dev[0], q, w, &keys, firsts[f], expected[t]);
            for (int i = 0; i < N_DEVICES; i++) {
                int32_t ids[N_QUERIES * TOP_K];
                select_keys(d.dev[i], q, w, &keys, firsts[f], ids);
                assert_memory_equal(ids, expected[t], sizeof ids);
                select_keys(d.dev[i], q, w, &moved, firsts[f], ids);
                assert_memory_equal(ids, expected[t], sizeof ids);
            }
            for (int i = 0; i < N_QUERIES; i++)
                missing[t] += n_missing(expected[0] + i * TOP_K, expected[t] + i * TOP_K, TOP_K);
            free_cache(&keys);
            free_cache(&moved);
            lp_free(q), lp_free(w), lp_free(rows);
        }
        close_devices(&d);
    }
    for (int t = 0; t < N_TYPES; t++)
        print_message("index_select, keys of %d, %-4s: %d of %d keys are not those of a float32 "
                      "cache\n",
                      width, type_name(types[t]), missing[t], N_FIRSTS * N_QUERIES * TOP_K);
}

static void test_index_select(void **state) {
    (void)state;
    check_index_select(64); // FP8 has them as BF16
    check_index_select(128);
}

// ---- written by the device itself

// A NaN or infinity that cache_write gets reaches the queries that see its row, and no other.
static void check_bad_key(struct devices *d, struct mla *m, int64_t key, float bad) {
    const int32_t width = m->c.latent + m->c.rope;
    const int64_t n = m->c.n_queries;
    mla_form forms[] = {absorbed, expanded};
    for (int f = 0; f < 2; f++)
        for (int i = 0; i < N_DEVICES; i++) {
            int64_t stride = f ? m->out_stride : m->latent_out_stride;
            float *good = new_output(n, stride), *out = new_output(n, stride);
            float *row = m->rows + key * width, kept = row[2];
            struct lp_op_cache_write op = {&m->cache.view, row, width, key, 1, NULL};
            forms[f](d->dev[i], m, 0, n, good);
            row[2] = bad;
            d->dev[i]->backend->cache_write(d->dev[i], &op);
            forms[f](d->dev[i], m, 0, n, out);
            row[2] = kept;
            d->dev[i]->backend->cache_write(d->dev[i], &op);
            for (int64_t q = 0; q < n; q++)
                if (m->c.first_pos + q < key)
                    assert_same_bits(out + q * stride, good + q * stride, stride - 5, "unseen");
                else
                    for (int64_t j = 0; j < stride - 5; j++)
                        assert_true(isnan(out[q * stride + j]));
            lp_free(good);
            lp_free(out);
        }
}

// One in a query spoils the head it is in, and nothing else.
static void check_bad_query(struct devices *d, struct mla *m, float bad) {
    enum { QUERY = 3 };
    const int64_t n = m->c.n_queries;
    mla_form forms[] = {absorbed, expanded};
    for (int f = 0; f < 2; f++)
        for (int i = 0; i < N_DEVICES; i++) {
            int64_t stride = f ? m->out_stride : m->latent_out_stride,
                    head = f ? m->c.v_dim : m->c.latent;
            float *good = new_output(n, stride), *out = new_output(n, stride);
            float *at = f ? m->q + QUERY * m->q_stride : m->q_latent + QUERY * m->latent_stride;
            float kept = at[1];
            forms[f](d->dev[i], m, 0, n, good);
            at[1] = bad;
            forms[f](d->dev[i], m, 0, n, out);
            at[1] = kept;
            int n_bad = 0;
            for (int64_t j = 0; j < head; j++) n_bad += !isfinite(out[QUERY * stride + j]);
            assert_int_equal(n_bad, head);
            memcpy(out + QUERY * stride, good + QUERY * stride, (size_t)head * sizeof *out);
            assert_same_bits(out, good, n * stride, "another query or head");
            lp_free(good);
            lp_free(out);
        }
}

static void test_nonfinite(void **state) {
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    static const struct {
        struct mla_case shape;
        int64_t key;
    } cases[] = {
        {{4, 48, 16, 8, 12, 60, 12, 7, LP_TYPE_Q8_0, 0, false, false}, 65},
        // seen in part by some queries and as a whole block by others
        {{4, 64, 32, 64, 64, 58, 12, 7, LP_TYPE_Q8_0, 0, false, true}, 61},
        {{4, 128, 16, 8, 12, 60, 12, 7, LP_TYPE_F8_E4M3, 0, false, false}, 65},
        {{4, 128, 32, 64, 64, 58, 12, 7, LP_TYPE_F8_E4M3, 0, false, true}, 61},
#if !defined(TESTS_EMULATED)
        {{4, 512, 64, 192, 256, 58, 12, 64, LP_TYPE_F8_E4M3, 0, false, false}, 61},
#endif
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct mla m;
        struct devices d;
        make_mla(&m, &cases[c].shape, 12);
        struct lp_reserve need = mla_reserve(&m);
        open_devices(&d, &need);
        for (int b = 0; b < 3; b++) check_bad_key(&d, &m, cases[c].key, bad[b]);
        check_bad_query(&d, &m, NAN);
        close_devices(&d);
        free_mla(&m);
    }
}

// The same where a block of a kernel has the heads of several queries.
static void test_bad_query(void **state) {
    (void)state;
    static const lp_type shared[] = {LP_TYPE_F16, LP_TYPE_BF16, LP_TYPE_F8_E4M3};
#if defined(TESTS_EMULATED) // for kernels that ARM has not
    const int n_types = 0;
#else
    const int n_types = 3;
#endif
    for (int t = 0; t < n_types; t++) {
        const struct mla_case shape = {4,  512, 64,        192, 256,   58,
                                       12, 64,  shared[t], 0,   false, false};
        struct mla m;
        struct devices d;
        make_mla(&m, &shape, 13);
        struct lp_reserve need = mla_reserve(&m);
        open_devices(&d, &need);
        check_bad_query(&d, &m, NAN);
        check_bad_query(&d, &m, INFINITY);
        close_devices(&d);
        free_mla(&m);
    }
}

static void test_type_fits(void **state) {
    (void)state;
    for (int t = 0; t < N_TYPES; t++) {
        const int32_t block = types[t] == LP_TYPE_Q8_0 ? 32 : types[t] == LP_TYPE_F8_E4M3 ? 128 : 1;
        static const int32_t widths[] = {1, 32, 80, 128, 192, 512, 576};
        for (int i = 0; i < 7; i++)
            assert_int_equal(lp_cache_type_fits(types[t], widths[i]), widths[i] % block == 0);
        assert_false(lp_cache_type_fits(types[t], 0));
    }
    for (uint32_t id = 0; id < LP_TYPE_COUNT; id++) { // no other type
        bool known = false;
        for (int t = 0; t < N_TYPES; t++) known |= types[t] == id;
        if (!known) assert_false(lp_cache_type_fits((lp_type)id, 256));
    }
}

// Bytes of a row, from the drawing in backend.h.
static void test_row_bytes(void **state) {
    (void)state;
    static const struct {
        lp_type type;
        int32_t width, n_tail;
        size_t bytes; // 0: no such row
    } rows[] = {{LP_TYPE_F32, 37, 0, 148},      {LP_TYPE_F16, 37, 0, 74},
                {LP_TYPE_Q8_0, 576, 0, 612},    {LP_TYPE_F8_E4M3, 576, 64, 656},
                {LP_TYPE_F8_E4M3, 128, 0, 132}, {LP_TYPE_F8_E4M3, 64, 64, 128},
                {LP_TYPE_F8_E4M3, 131, 3, 138}, {LP_TYPE_F8_E4M3, 576, 0, 0},
                {LP_TYPE_F8_E4M3, 64, 0, 0},    {LP_TYPE_F8_E4M3, 128, 129, 0},
                {LP_TYPE_BF16, 576, 64, 0},     {LP_TYPE_F8_E4M3, 0, 0, 0},
                {LP_TYPE_Q4_0, 64, 0, 0},       {LP_TYPE_F8_E4M3, 128, -1, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t bytes = 0;
        const bool fits = lp_cache_row_bytes(rows[i].type, rows[i].width, rows[i].n_tail, &bytes);
        assert_int_equal(fits, rows[i].bytes > 0);
        assert_int_equal(bytes, rows[i].bytes);
    }
}

// A row of 256 + 3 by hand: scales of 1 and 2 at bytes 0 and 132, codes behind them, the tail at 264.
static void test_f8_row_by_hand(void **state) {
    (void)state;
    float x[259] = {0}, y[259];
    unsigned char row[270], want[270] = {0};
    const struct lp_cache_view view = {.type = LP_TYPE_F8_E4M3, .width = 259, .n_tail = 3};
    const float scales[2] = {1, 2};
    const uint16_t tail[3] = {0x3f80, 0xc000, 0x7fc0}; // 1, -2, NaN as BF16
    x[0] = 448, x[1] = -1, x[127] = 17; // 17: between 16 and 18, to the even mantissa
    x[128] = -896, x[129] = 3, x[255] = 0x1p-8f;
    x[256] = 1, x[257] = -2, x[258] = NAN;
    memcpy(want, &scales[0], 4), memcpy(want + 132, &scales[1], 4), memcpy(want + 264, tail, 6);
    want[4] = 0x7e, want[5] = 0xb8, want[4 + 127] = 0x58;
    want[136] = 0xfe, want[137] = 0x3c, want[136 + 127] = 0x01;
    lp_cache_row_write(&view, x, row);
    assert_memory_equal(row, want, sizeof row);
    lp_cache_row_read(&view, row, y);
    x[127] = 16;
    for (int i = 0; i < 258; i++) assert_true(y[i] == x[i]);
    assert_true(isnan(y[258]));
    assert_int_equal(lp_cache_offset(&view, 128), 132);
    assert_int_equal(lp_cache_offset(&view, 256), 264);
    assert_int_equal(lp_cache_offset(&view, 258), 268);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_type_fits),
        cmocka_unit_test(test_row_bytes),
        cmocka_unit_test(test_f8_row_by_hand),
        cmocka_unit_test(test_mla),
        cmocka_unit_test(test_mla_whole_blocks),
        cmocka_unit_test(test_mla_odd_latent),
        cmocka_unit_test(test_gqa),
        cmocka_unit_test(test_index_select),
        cmocka_unit_test(test_nonfinite),
        cmocka_unit_test(test_bad_query),
    };
    return cmocka_run_group_tests_name("kv_types", tests, NULL, NULL);
}
