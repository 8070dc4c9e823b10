// Operations over rows of several sequences (lp_op_batch): the same bits as each sequence's own call, on every
// backend that takes them.
#include "attn_fixture.h"

#define N_SEQUENCES 6
static const int32_t lengths[N_SEQUENCES] = {1, 64, 65, 700, 1500, 9}; // with the rows of the batch
static const int32_t n_rows_of[N_SEQUENCES] = {1, 1, 3, 1, 2, 8};
#define N_ROWS 16
#define LONGEST 1500
#define PAGE 64
#define N_HEADS 5
#define TOP_K 100

// One pool of pages, of which each sequence has its own, in any order.
struct pool {
    struct cache cache;
    float *rows;
    int32_t positions[N_ROWS];
    const int32_t *pages[N_ROWS], *of_sequence[N_SEQUENCES];
    struct lp_op_batch batch;
};

static void fill(struct pool *p, struct lp_rng *rng, int32_t width, lp_type type,
                 int32_t slot_offset) {
    int64_t n_pages = 0, row = 0;
    for (int i = 0; i < N_SEQUENCES; i++) n_pages += (lengths[i] + slot_offset + PAGE - 1) / PAGE;
    p->rows = random_floats(rng, n_pages * PAGE * width, 1.0f);
    p->cache = new_cache_tail(rng, p->rows, n_pages * PAGE, width, width % 128, type, PAGE, 0);
    p->cache.view.slot_offset = slot_offset;
    const int32_t *next = p->cache.pages;
    for (int i = 0; i < N_SEQUENCES; i++) {
        p->of_sequence[i] = next;
        for (int32_t k = 0; k < n_rows_of[i]; k++, row++) {
            p->positions[row] = lengths[i] - n_rows_of[i] + k;
            p->pages[row] = next;
        }
        next += (lengths[i] + slot_offset + PAGE - 1) / PAGE;
    }
    assert_int_equal(row, N_ROWS);
    p->batch =
        (struct lp_op_batch){p->positions, p->pages, LONGEST + 36}; // a bound, not the largest
}

static void empty(struct pool *p) {
    lp_free(p->rows);
    free_cache(&p->cache);
}

static struct lp_cache_view view_of(const struct pool *p, int sequence) {
    struct lp_cache_view view = p->cache.view;
    view.pages = p->of_sequence[sequence];
    return view;
}

static struct lp_visible visible_of(int sequence) {
    return (struct lp_visible){.first_pos = lengths[sequence] - n_rows_of[sequence],
                               .n_queries = n_rows_of[sequence]};
}

static void open_for(struct devices *d, int32_t latent, int32_t rope) {
    open_devices(d, &(struct lp_reserve){.n_rows = N_ROWS,
                                         .n_context = LONGEST + 36,
                                         .max_width = 4096,
                                         .n_heads = 16,
                                         .latent = latent,
                                         .rope = rope,
                                         .nope = 32,
                                         .v_dim = 32,
                                         .index_heads = 16,
                                         .index_width = 128});
}

// ---- absorbed MLA, of every key and of a selection

struct absorbed {
    struct pool pool;
    int32_t latent, rope;
    float *q_latent, *q_rope;
    int32_t *ids, *counts; // NULL: every key
};

static struct lp_op_mla_absorbed absorbed_op(const struct absorbed *a, float *out) {
    return (struct lp_op_mla_absorbed){.q_latent = a->q_latent,
                                       .q_latent_stride = (int64_t)N_HEADS * a->latent,
                                       .q_rope = a->q_rope,
                                       .q_rope_stride = (int64_t)N_HEADS * a->rope,
                                       .q_rope_head_stride = a->rope,
                                       .n_heads = N_HEADS,
                                       .latent = a->latent,
                                       .rope = a->rope,
                                       .scale = 0.1f,
                                       .out = out,
                                       .out_stride = (int64_t)N_HEADS * a->latent};
}

static void select(const struct absorbed *a, struct lp_visible *v, int64_t row) {
    if (!a->ids) return;
    v->ids = a->ids + row * TOP_K;
    v->counts = a->counts + row;
    v->k = TOP_K;
}

static void run_absorbed(struct lp_device *dev, const struct absorbed *a, float *out) {
    struct lp_op_mla_absorbed op = absorbed_op(a, out);
    struct lp_cache_view view = a->pool.cache.view;
    view.pages = NULL; // says nothing
    op.cache = &view;
    op.visible = (struct lp_visible){.n_queries = N_ROWS, .batch = &a->pool.batch};
    select(a, &op.visible, 0);
    dev->backend->mla_absorbed(dev, &op);
}

static void run_absorbed_alone(struct lp_device *dev, const struct absorbed *a, float *out) {
    int64_t row = 0;
    for (int i = 0; i < N_SEQUENCES; row += n_rows_of[i++]) {
        struct lp_op_mla_absorbed op = absorbed_op(a, out + row * N_HEADS * a->latent);
        struct lp_cache_view view = view_of(&a->pool, i);
        op.cache = &view;
        op.q_latent += row * op.q_latent_stride;
        op.q_rope += row * op.q_rope_stride;
        op.visible = visible_of(i);
        select(a, &op.visible, row);
        dev->backend->mla_absorbed(dev, &op);
    }
}

static void check_absorbed(int32_t latent, int32_t rope, lp_type type, int32_t slot_offset,
                           bool selects) {
    struct lp_rng rng;
    struct devices d;
    struct absorbed a = {.latent = latent, .rope = rope};
    int64_t row = 0, width = (int64_t)N_HEADS * latent;
    lp_rng_init(&rng, 7);
    fill(&a.pool, &rng, latent + rope, type, slot_offset);
    a.q_latent = random_floats(&rng, N_ROWS * width, 0.3f);
    a.q_rope = random_floats(&rng, (int64_t)N_ROWS * N_HEADS * rope, 0.3f);
    if (selects) {
        a.ids = new_array(N_ROWS * TOP_K, sizeof *a.ids);
        a.counts = new_array(N_ROWS, sizeof *a.counts);
        for (int i = 0; i < N_SEQUENCES; row += n_rows_of[i++])
            random_selection(&rng, lengths[i] - n_rows_of[i], n_rows_of[i], TOP_K,
                             a.ids + row * TOP_K, a.counts + row);
    }
    open_for(&d, latent, rope);
    for (int i = 0; i < N_DEVICES; i++) {
        float *out = new_output(N_ROWS, width), *alone = new_output(N_ROWS, width);
        if (d.dev[i]->backend->batches) {
            run_absorbed(d.dev[i], &a, out);
            run_absorbed_alone(d.dev[i], &a, alone);
            assert_guards(out, N_ROWS, width, width);
            assert_same_bits(out, alone, N_ROWS * width, "a batch and each sequence alone");
        }
        lp_free(out);
        lp_free(alone);
    }
    close_devices(&d);
    lp_free(a.q_latent);
    lp_free(a.q_rope);
    lp_free(a.ids);
    lp_free(a.counts);
    empty(&a.pool);
}

static void test_absorbed(void **state) {
    (void)state;
    check_absorbed(48, 16, LP_TYPE_F32, 0, false);
    check_absorbed(64, 32, LP_TYPE_Q8_0, 1, true);
    check_absorbed(512, 64, LP_TYPE_F16, 1, false);
    check_absorbed(512, 64, LP_TYPE_BF16, 0, false);
    check_absorbed(512, 64, LP_TYPE_BF16, 0, true);
    check_absorbed(256, 16, LP_TYPE_F8_E4M3, 1, true);
    check_absorbed(512, 64, LP_TYPE_F8_E4M3, 1, false);
    check_absorbed(512, 64, LP_TYPE_F8_E4M3, 0, true);
}

// ---- grouped-query attention

enum { K_DIM = 128, V_DIM = 256 }; // of a head

static void run_gqa(struct lp_device *dev, const struct pool *k, const struct pool *v,
                    const float *q, float *out, int sequence, int64_t row) {
    struct lp_cache_view keys = k->cache.view, values = v->cache.view;
    struct lp_op_gqa op = {.q = q + row * 4 * K_DIM,
                           .q_stride = 4 * K_DIM,
                           .k = &keys,
                           .v = &values,
                           .visible = {.n_queries = N_ROWS, .batch = &k->batch},
                           .n_heads = 4,
                           .n_kv_heads = 2,
                           .head_dim = K_DIM,
                           .v_dim = V_DIM,
                           .scale = 0.2f,
                           .out = out + row * 4 * V_DIM,
                           .out_stride = 4 * V_DIM};
    if (sequence >= 0) {
        keys = view_of(k, sequence);
        values = view_of(v, sequence);
        op.visible = visible_of(sequence);
    }
    dev->backend->gqa(dev, &op);
}

static void test_gqa(void **state) {
    (void)state;
    const lp_type types[] = {LP_TYPE_F32, LP_TYPE_BF16, LP_TYPE_Q8_0, LP_TYPE_F8_E4M3};
    struct lp_rng rng;
    struct devices d;
    lp_rng_init(&rng, 8);
    open_for(&d, 48, 16);
    float *q = random_floats(&rng, N_ROWS * 4 * K_DIM, 0.5f);
    for (int t = 0; t < 4; t++) {
        struct pool k, v;
        fill(&k, &rng, 2 * K_DIM, types[t], 0);
        fill(&v, &rng, 2 * V_DIM, types[t], 0);
        memcpy(v.cache.pages, k.cache.pages, // a sequence has one list of pages
               sizeof *k.cache.pages *
                   (size_t)(k.of_sequence[N_SEQUENCES - 1] - k.cache.pages + 1));
        for (int i = 0; i < N_DEVICES; i++) {
            float *out = new_output(N_ROWS, 4 * V_DIM), *alone = new_output(N_ROWS, 4 * V_DIM);
            int64_t row = 0;
            if (d.dev[i]->backend->batches) {
                run_gqa(d.dev[i], &k, &v, q, out, -1, 0);
                for (int s = 0; s < N_SEQUENCES; row += n_rows_of[s++])
                    run_gqa(d.dev[i], &k, &v, q, alone, s, row);
                assert_guards(out, N_ROWS, 4 * V_DIM, 4 * V_DIM);
                assert_same_bits(out, alone, N_ROWS * 4 * V_DIM, "a batch and each sequence alone");
            }
            lp_free(out);
            lp_free(alone);
        }
        empty(&k);
        empty(&v);
    }
    lp_free(q);
    close_devices(&d);
}

// ---- the indexer: sequences of fewer keys than are kept among others

static void run_index(struct lp_device *dev, const struct pool *p, const float *q, const float *w,
                      int32_t *ids, int32_t *counts, int sequence, int64_t row) {
    struct lp_cache_view keys = p->cache.view;
    struct lp_op_index_select op = {.q = q + row * 16 * 128,
                                    .q_stride = 16 * 128,
                                    .w = w + row * 16,
                                    .w_stride = 16,
                                    .keys = &keys,
                                    .n_queries = N_ROWS,
                                    .batch = &p->batch,
                                    .n_heads = 16,
                                    .width = 128,
                                    .top_k = TOP_K,
                                    .scale = 0.1f,
                                    .ids = ids + row * TOP_K,
                                    .ids_stride = TOP_K,
                                    .counts = counts + row};
    if (sequence >= 0) {
        keys = view_of(p, sequence);
        op.batch = NULL;
        op.first_pos = lengths[sequence] - n_rows_of[sequence];
        op.n_queries = n_rows_of[sequence];
    }
    dev->backend->index_select(dev, &op);
}

static void test_index(void **state) {
    (void)state;
    const lp_type types[] = {LP_TYPE_F32, LP_TYPE_F16, LP_TYPE_BF16, LP_TYPE_F8_E4M3};
    struct lp_rng rng;
    struct devices d;
    lp_rng_init(&rng, 9);
    open_for(&d, 48, 16);
    float *q = random_floats(&rng, N_ROWS * 16 * 128, 0.5f),
          *w = random_floats(&rng, N_ROWS * 16, 1.0f);
    for (int t = 0; t < 4; t++) {
        struct pool p;
        fill(&p, &rng, 128, types[t], 0);
        for (int i = 0; i < N_DEVICES; i++) {
            int32_t ids[2][N_ROWS * TOP_K], counts[2][N_ROWS];
            int64_t row = 0;
            if (!d.dev[i]->backend->batches) continue;
            memset(ids, 0x7f, sizeof ids);
            run_index(d.dev[i], &p, q, w, ids[0], counts[0], -1, 0);
            for (int s = 0; s < N_SEQUENCES; row += n_rows_of[s++])
                run_index(d.dev[i], &p, q, w, ids[1], counts[1], s, row);
            assert_memory_equal(counts[0], counts[1], sizeof counts[0]);
            for (row = 0; row < N_ROWS; row++)
                assert_memory_equal(ids[0] + row * TOP_K, ids[1] + row * TOP_K,
                                    (size_t)counts[0][row] * sizeof ids[0][0]);
        }
        empty(&p);
    }
    lp_free(q);
    lp_free(w);
    close_devices(&d);
}

// ---- writing

static void write_rows(struct lp_device *dev, const struct pool *p, const float *x, bool alone) {
    struct lp_cache_view view = p->cache.view;
    struct lp_op_cache_write op = {
        .cache = &view, .x = x, .x_stride = view.width + 3, .n_rows = N_ROWS, .batch = &p->batch};
    if (!alone) {
        dev->backend->cache_write(dev, &op);
        return;
    }
    op.batch = NULL;
    for (int s = 0; s < N_SEQUENCES; op.x += n_rows_of[s++] * op.x_stride) {
        view = view_of(p, s);
        op.first_pos = lengths[s] - n_rows_of[s];
        op.n_rows = n_rows_of[s];
        dev->backend->cache_write(dev, &op);
    }
}

static void test_cache_write(void **state) {
    (void)state;
    enum { WIDTH = 160 };
    const lp_type types[] = {LP_TYPE_F32, LP_TYPE_F16, LP_TYPE_BF16, LP_TYPE_Q8_0, LP_TYPE_F8_E4M3};
    struct lp_rng rng;
    struct devices d;
    open_for(&d, 48, 16);
    for (int t = 0; t < 5; t++)
        for (int i = 0; i < N_DEVICES; i++) {
            struct pool p[2];
            if (!d.dev[i]->backend->batches) continue;
            for (int k = 0; k < 2; k++) {
                lp_rng_init(&rng, 10);
                fill(&p[k], &rng, WIDTH, types[t], t % 2);
            }
            float *x = random_floats(&rng, N_ROWS * (WIDTH + 3), 2.0f);
            write_rows(d.dev[i], &p[0], x, false);
            write_rows(d.dev[i], &p[1], x, true);
            int64_t n_pages = p[0].of_sequence[N_SEQUENCES - 1] - p[0].cache.pages + 1;
            assert_memory_equal(p[0].cache.block, p[1].cache.block,
                                (size_t)n_pages * p[0].cache.view.page_bytes);
            lp_free(x);
            for (int k = 0; k < 2; k++) empty(&p[k]);
        }
    close_devices(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_absorbed), cmocka_unit_test(test_gqa),
                                       cmocka_unit_test(test_index),
                                       cmocka_unit_test(test_cache_write)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
