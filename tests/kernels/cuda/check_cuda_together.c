// Operations that the cuda backend does together, or prepares one for the other: they must give the bits of the
// same operations one by one (whose results check_elementwise and check_matmul hold against ref).
#include "../attn_cases.h"
#include "../cuda_staged.h"
#include "random_weight.h"

#define CUDA (&lp_backend_cuda)

static struct lp_device *open_device(int64_t n_rows, int64_t width) {
    struct lp_device *dev = NULL;
    struct lp_err err = {0};
    const struct lp_reserve need = {.n_rows = n_rows,
                                    .max_width = width,
                                    .n_experts = 16,
                                    .n_used = 4,
                                    .expert_width = 512,
                                    .n_embd = width};
    if (CUDA->open(&dev, NULL, &err)) fail_msg("%s", err.text);
    if (CUDA->reserve(dev, &need, &err)) fail_msg("%s", err.text);
    return dev;
}

static void *upload(struct lp_device *dev, const void *from, size_t n_bytes) {
    void *to = CUDA->alloc(dev, n_bytes);
    assert_non_null(to);
    CUDA->write(dev, to, from, n_bytes);
    return to;
}
static float *upload_floats(struct lp_device *dev, struct lp_rng *rng, int64_t n) {
    float *host = random_floats(rng, n, 1.0f), *to = upload(dev, host, (size_t)n * sizeof *to);
    lp_free(host);
    return to;
}

static struct lp_weight upload_weight(struct lp_device *dev, struct lp_rng *rng, lp_type type,
                                      int64_t n_in, int64_t n_out, int64_t n_mats) {
    struct lp_weight w = random_weight(type, n_in, n_out, n_mats, false, rng);
    void *host = (void *)(uintptr_t)w.data;
    w.data = upload(dev, host, w.mat_bytes * (size_t)n_mats);
    lp_free(host);
    return w;
}

static void assert_same(struct lp_device *dev, const void *a, const void *b, size_t n,
                        const char *what) {
    uint8_t *x = new_array((int64_t)n, 1), *y = new_array((int64_t)n, 1);
    CUDA->read(dev, x, a, n);
    CUDA->read(dev, y, b, n);
    if (memcmp(x, y, n) != 0) fail_msg("%s: other bits than one by one", what);
    lp_free(x);
    lp_free(y);
}

// ---- norms, and the product behind

// Rows of a norm, multiplied: with the norm told of the product, and not. Rows of every form: few, tiles, many.
static void norms_round_for_the_product(void **state) {
    (void)state;
    static const struct {
        int64_t n_in, n_rows;
        bool in_place;
    } cases[] = {{6144, 1, false}, {2048, 1, true},  {2048, 2, false},
                 {1536, 3, true},  {6144, 8, false}, {768, 17, true},
                 {300, 2, false},  {9216, 1, false}, {512, 200, true}};
    static const lp_type types[] = {LP_TYPE_Q8_0, LP_TYPE_Q4_K, LP_TYPE_Q6_K, LP_TYPE_F32};
    struct lp_rng rng;
    lp_rng_init(&rng, 5);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
        for (size_t k = 0; k < sizeof types / sizeof types[0]; k++) {
            const int64_t n_in = cases[c].n_in, n = cases[c].n_rows, n_out = 96;
            uint64_t row_bytes;
            if (!lp_type_row_bytes(types[k], (uint64_t)n_in, &row_bytes)) continue;
            struct lp_device *dev = open_device(n, n_in);
            struct lp_weight w = upload_weight(dev, &rng, types[k], n_in, n_out, 1);
            float *x[2], *y[2], *normed[2], *scale = upload_floats(dev, &rng, n_in);
            float *host = random_floats(&rng, n * n_in, 2.0f);
            for (int way = 0; way < 2; way++) {
                const size_t bytes = (size_t)(n * n_in) * sizeof(float);
                x[way] = upload(dev, host, bytes);
                normed[way] = cases[c].in_place ? x[way] : CUDA->alloc(dev, bytes);
                y[way] = CUDA->alloc(dev, (size_t)(n * n_out) * sizeof(float));
                CUDA->rms_norm(dev, &(struct lp_op_rms_norm){.x = x[way],
                                                             .x_stride = n_in,
                                                             .w = scale,
                                                             .eps = 1e-5f,
                                                             .y = normed[way],
                                                             .y_stride = n_in,
                                                             .n_rows = n,
                                                             .width = (int32_t)n_in,
                                                             .next = way ? &w : NULL});
                CUDA->matmul(dev, &(struct lp_op_matmul){.w = &w,
                                                         .x = normed[way],
                                                         .x_stride = n_in,
                                                         .y = y[way],
                                                         .y_stride = n_out,
                                                         .n_rows = n,
                                                         .same_x = way});
            }
            assert_same(dev, normed[0], normed[1], (size_t)(n * n_in) * 4, "rms_norm");
            assert_same(dev, y[0], y[1], (size_t)(n * n_out) * 4, lp_type_info(types[k])->name);
            lp_free(host);
            CUDA->close(dev);
        }
}

// A norm over the rows that lie rounded: what was made of them serves no more.
static void a_norm_without_a_product_forgets(void **state) {
    (void)state;
    enum { N_IN = 512, N_OUT = 64 };
    struct lp_rng rng;
    lp_rng_init(&rng, 6);
    struct lp_device *dev = open_device(1, N_IN);
    struct lp_weight w = upload_weight(dev, &rng, LP_TYPE_Q8_0, N_IN, N_OUT, 1);
    float *x = upload_floats(dev, &rng, N_IN), *from = upload_floats(dev, &rng, N_IN), *y[2];
    for (int same = 0; same < 2; same++) {
        y[same] = CUDA->alloc(dev, N_OUT * sizeof(float));
        struct lp_op_matmul op = {.w = &w, .x = x, .x_stride = N_IN, .y = y[same], .n_rows = 1};
        CUDA->matmul(dev, &op); // x rounded
        CUDA->rms_norm(dev, &(struct lp_op_rms_norm){.x = from,
                                                     .x_stride = N_IN,
                                                     .eps = 1e-5f,
                                                     .y = x,
                                                     .y_stride = N_IN,
                                                     .n_rows = 1,
                                                     .width = N_IN});
        op.same_x = same;
        CUDA->matmul(dev, &op);
    }
    assert_same(dev, y[0], y[1], N_OUT * sizeof(float), "matmul");
    CUDA->close(dev);
}

// ---- gate and up

static void gate_up_is_its_three_operations(void **state) {
    (void)state;
    static const lp_type types[] = {LP_TYPE_Q8_0, LP_TYPE_Q4_K, LP_TYPE_Q5_K, LP_TYPE_Q6_K,
                                    LP_TYPE_IQ4_XS};
    static const int64_t widths[] = {2048, 96, 12288};
    struct lp_rng rng;
    int n_done = 0;
    lp_rng_init(&rng, 7);
    for (size_t k = 0; k < sizeof types / sizeof types[0]; k++)
        for (size_t s = 0; s < sizeof widths / sizeof widths[0]; s++) {
            const int64_t n_in = s == 1 ? 768 : 6144, n_out = widths[s];
            struct lp_device *dev = open_device(1, 12288);
            struct lp_weight gate = upload_weight(dev, &rng, types[k], n_in, n_out, 1),
                             up = upload_weight(dev, &rng, types[k], n_in, n_out, 1);
            float *x = upload_floats(dev, &rng, n_in), *y[3];
            for (int i = 0; i < 3; i++) y[i] = CUDA->alloc(dev, (size_t)n_out * sizeof(float));
            const struct lp_op_gate_up op = {
                .gate = &gate, .up = &up, .x = x, .x_stride = n_in, .y = y[2], .n_rows = 1};
            n_done += CUDA->gate_up(dev, &op);
            const struct lp_weight *w[2] = {&gate, &up};
            for (int i = 0; i < 2; i++)
                CUDA->matmul(dev, &(struct lp_op_matmul){.w = w[i],
                                                         .x = x,
                                                         .x_stride = n_in,
                                                         .y = y[i],
                                                         .y_stride = n_out,
                                                         .n_rows = 1,
                                                         .same_x = i > 0});
            CUDA->silu_mul(dev, &(struct lp_op_silu_mul){.gate = y[0],
                                                         .up = y[1],
                                                         .y = y[0],
                                                         .stride = n_out,
                                                         .n_rows = 1,
                                                         .width = (int32_t)n_out});
            assert_same(dev, y[0], y[2], (size_t)n_out * sizeof(float),
                        lp_type_info(types[k])->name);
            CUDA->close(dev);
        }
    assert_int_equal(n_done, 15); // with the kernels of sm_90
}

// ---- the router's choice, straight to the experts

static void experts_take_rows_of_the_norm(void **state) {
    (void)state;
    enum { N_IN = 768, WIDTH = 512, N_EXPERTS = 16, N_USED = 4, MOST = 40 };
    static const int64_t rows[] = {1, 2, 9, MOST};
    struct lp_rng rng;
    lp_rng_init(&rng, 8);
    struct lp_device *dev = open_device(MOST, N_IN);
    struct lp_weight gate = upload_weight(dev, &rng, LP_TYPE_Q4_K, N_IN, WIDTH, N_EXPERTS),
                     up = upload_weight(dev, &rng, LP_TYPE_Q4_K, N_IN, WIDTH, N_EXPERTS),
                     down = upload_weight(dev, &rng, LP_TYPE_Q6_K, WIDTH, N_IN, N_EXPERTS),
                     route = upload_weight(dev, &rng, LP_TYPE_F32, N_IN, N_EXPERTS, 1);
    float *h = upload_floats(dev, &rng, MOST * N_IN), *x = upload_floats(dev, &rng, MOST * N_IN),
          *logits = upload_floats(dev, &rng, MOST * N_EXPERTS),
          *weights = upload_floats(dev, &rng, MOST * N_USED), *zeros = new_array(MOST * N_IN, 4);
    int32_t *ids = CUDA->alloc(dev, MOST * N_USED * sizeof *ids);
    for (size_t c = 0; c < sizeof rows / sizeof rows[0]; c++) {
        float *y[2];
        for (int way = 0; way < 2; way++) {
            y[way] = upload(dev, zeros, (size_t)(MOST * N_IN) * 4);
            CUDA->rms_norm(dev, &(struct lp_op_rms_norm){.x = h,
                                                         .x_stride = N_IN,
                                                         .eps = 1e-5f,
                                                         .y = x,
                                                         .y_stride = N_IN,
                                                         .n_rows = rows[c],
                                                         .width = N_IN,
                                                         .next = way ? &gate : NULL,
                                                         .next_used = N_USED});
            CUDA->matmul(dev, &(struct lp_op_matmul){.w = &route,
                                                     .x = x,
                                                     .x_stride = N_IN,
                                                     .y = logits,
                                                     .y_stride = N_EXPERTS,
                                                     .n_rows = rows[c],
                                                     .same_x = way});
            CUDA->router(dev, &(struct lp_op_router){.logits = logits,
                                                     .logits_stride = N_EXPERTS,
                                                     .n_rows = rows[c],
                                                     .n_experts = N_EXPERTS,
                                                     .n_used = N_USED,
                                                     .n_groups = 1,
                                                     .gating = LP_GATING_SIGMOID,
                                                     .normalise = true,
                                                     .scale = 2.5f,
                                                     .ids = ids,
                                                     .weights = weights});
            CUDA->experts(dev, &(struct lp_op_experts){.gate = &gate,
                                                       .up = &up,
                                                       .down = &down,
                                                       .x = x,
                                                       .x_stride = N_IN,
                                                       .n_rows = rows[c],
                                                       .ids = ids,
                                                       .weights = weights,
                                                       .n_used = N_USED,
                                                       .same_x = way,
                                                       .y = y[way],
                                                       .y_stride = N_IN});
        }
        assert_same(dev, y[0], y[1], (size_t)(rows[c] * N_IN) * 4, "experts");
    }
    lp_free(zeros);
    CUDA->close(dev);
}

// ---- the shared expert with the routed ones

struct mixture {
    struct lp_weight gate, up, down, shared[3]; // shared: gate, up, down
    float *x, *weights, *y[2];
    int32_t *ids;
};

static void run_mixture(struct lp_device *dev, const struct mixture *m, int64_t n_rows,
                        int32_t n_used, bool together) {
    const int64_t n_in = m->gate.n_in, width = m->shared[0].n_out;
    const struct lp_op_experts op = {.gate = &m->gate,
                                     .up = &m->up,
                                     .down = &m->down,
                                     .x = m->x,
                                     .x_stride = n_in,
                                     .n_rows = n_rows,
                                     .ids = m->ids,
                                     .weights = m->weights,
                                     .n_used = n_used,
                                     .y = m->y[together],
                                     .y_stride = n_in};
    const struct lp_shared_expert shared = {&m->shared[0], &m->shared[1], &m->shared[2]};
    if (together) {
        assert_true(CUDA->experts_and_shared(dev, &op, &shared));
        return;
    }
    CUDA->experts(dev, &op);
    float *hidden = CUDA->alloc(dev, (size_t)(n_rows * width) * sizeof(float));
    assert_true(CUDA->gate_up(dev, &(struct lp_op_gate_up){.gate = shared.gate,
                                                           .up = shared.up,
                                                           .x = m->x,
                                                           .x_stride = n_in,
                                                           .y = hidden,
                                                           .n_rows = n_rows}));
    CUDA->matmul(dev, &(struct lp_op_matmul){.w = shared.down,
                                             .x = hidden,
                                             .x_stride = width,
                                             .y = m->y[0],
                                             .y_stride = n_in,
                                             .n_rows = n_rows,
                                             .accumulate = true});
}

static void the_shared_expert_beside_the_others(void **state) {
    (void)state;
    enum { N_EXPERTS = 16, N_USED = 4 };
    static const struct {
        lp_type in, out;
        int64_t n_embd, width;
        bool takes; // the shared expert is of the others' type and shape
        int64_t n_rows;
    } cases[] = {{LP_TYPE_Q4_K, LP_TYPE_Q6_K, 6144, 2048, true, 1},
                 {LP_TYPE_Q8_0, LP_TYPE_Q8_0, 768, 512, true, 1},
                 {LP_TYPE_Q5_K, LP_TYPE_IQ4_XS, 2048, 768, true, 1},
                 {LP_TYPE_Q4_K, LP_TYPE_Q6_K, 768, 512, false, 2}};
    const int32_t chosen[2 * N_USED] = {7, 0, 15, 3, 1, 2, 5, 4};
    struct lp_rng rng;
    lp_rng_init(&rng, 21);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        const int64_t n_embd = cases[c].n_embd, width = cases[c].width, n = cases[c].n_rows;
        struct lp_device *dev = NULL;
        struct lp_err err = {0};
        const struct lp_reserve need = {.n_rows = n,
                                        .max_width = n_embd,
                                        .n_experts = N_EXPERTS,
                                        .n_used = N_USED,
                                        .expert_width = width,
                                        .n_embd = n_embd};
        if (CUDA->open(&dev, NULL, &err) || CUDA->reserve(dev, &need, &err))
            fail_msg("%s", err.text);
        struct mixture m = {.gate = upload_weight(dev, &rng, cases[c].in, n_embd, width, N_EXPERTS),
                            .up = upload_weight(dev, &rng, cases[c].in, n_embd, width, N_EXPERTS),
                            .down =
                                upload_weight(dev, &rng, cases[c].out, width, n_embd, N_EXPERTS)};
        for (int i = 0; i < 3; i++)
            m.shared[i] = upload_weight(dev, &rng, i == 2 ? cases[c].out : cases[c].in,
                                        i == 2 ? width : n_embd, i == 2 ? n_embd : width, 1);
        m.x = upload_floats(dev, &rng, n * n_embd);
        m.weights = upload_floats(dev, &rng, n * N_USED);
        m.ids = upload(dev, chosen, (size_t)(n * N_USED) * sizeof *m.ids);
        float *host = random_floats(&rng, n * n_embd, 1.0f);
        for (int way = 0; way < 2; way++)
            m.y[way] = upload(dev, host, (size_t)(n * n_embd) * sizeof *host);
        const struct lp_shared_expert shared = {&m.shared[0], &m.shared[1], &m.shared[2]};
        if (cases[c].takes) {
            run_mixture(dev, &m, n, N_USED, false);
            run_mixture(dev, &m, n, N_USED, true);
        } else {
            assert_false(CUDA->experts_and_shared(
                dev,
                &(struct lp_op_experts){
                    .gate = &m.gate, .up = &m.up, .down = &m.down, .n_rows = n, .n_used = N_USED},
                &shared));
        }
        assert_same(dev, m.y[0], m.y[1], (size_t)(n * n_embd) * sizeof *host,
                    lp_type_info(cases[c].in)->name);
        lp_free(host);
        CUDA->close(dev);
    }
}

// ---- ready_rows

enum { LATENT = 512, ROPE = 64, HEADS = 6, NOPE = 192, KEY = 128, INDEX_HEADS = 4, PAGE = 16 };

struct ready { // one way's buffers
    float *kv, *q, *index_k, *index_q;
    struct lp_cache_view latent, index;
};

static struct lp_cache_view new_view(struct lp_device *dev, lp_type type, int32_t width,
                                     const int32_t *pages, int n_pages) {
    struct lp_cache_view view = {.type = type, .width = width, .page_tokens = PAGE, .pages = pages};
    assert_true(lp_cache_row_bytes(type, width, 0, &view.row_bytes));
    view.page_bytes = PAGE * view.row_bytes;
    view.base = CUDA->alloc(dev, (size_t)n_pages * view.page_bytes);
    CUDA->clear(dev, view.base, (size_t)n_pages * view.page_bytes);
    return view;
}

static bool ready_at_once(struct lp_device *dev, const struct ready *r, const struct lp_op_rope *q,
                          const struct lp_op_rope *kv, const struct lp_op_rope *index_q,
                          const struct lp_op_rope *index_k, const float *const *norms,
                          int64_t n_rows, const struct lp_op_batch *batch) {
    const struct lp_op_ready_part parts[] = {{.rope = *kv,
                                              .rope_first = LATENT,
                                              .cache = &r->latent,
                                              .norm_w = norms[0],
                                              .eps = 1e-5f,
                                              .norm_width = LATENT},
                                             {.rope = *q, .rope_first = NOPE},
                                             {.rope = *index_k,
                                              .cache = &r->index,
                                              .norm_w = norms[1],
                                              .norm_b = norms[2],
                                              .eps = 1e-6f,
                                              .norm_width = KEY},
                                             {.rope = *index_q}};
    return CUDA->ready_rows(dev, &(struct lp_op_ready_rows){parts, 4, n_rows, batch});
}

static void ready_one_by_one(struct lp_device *dev, const struct ready *r,
                             const struct lp_op_rope *ropes, const float *const *norms,
                             int64_t n_rows, const struct lp_op_batch *batch) {
    const int32_t width = LATENT + ROPE;
    CUDA->rms_norm(dev, &(struct lp_op_rms_norm){r->kv, width, norms[0], 1e-5f, r->kv, width,
                                                 n_rows, LATENT, NULL, 0});
    CUDA->layer_norm(dev, &(struct lp_op_layer_norm){r->index_k, KEY, norms[1], norms[2], 1e-6f,
                                                     r->index_k, KEY, n_rows, KEY});
    for (int i = 0; i < 4; i++) CUDA->rope(dev, &ropes[i]);
    CUDA->cache_write(dev, &(struct lp_op_cache_write){&r->latent, r->kv, width, 0, n_rows, batch});
    CUDA->cache_write(dev,
                      &(struct lp_op_cache_write){&r->index, r->index_k, KEY, 0, n_rows, batch});
}

static void check_ready(lp_type type, int64_t n_rows, enum lp_rope_pairing pairing) {
    struct lp_rng rng;
    lp_rng_init(&rng, 9);
    struct lp_device *dev = open_device(n_rows, 2048);
    const int n_pages = (int)n_rows + 2;
    int32_t *positions = new_array(n_rows, 4), *pages = new_array(n_pages * n_rows, 4);
    const int32_t **tables = new_array(n_rows, sizeof *tables);
    for (int64_t t = 0; t < n_rows; t++) { // each row of a sequence of its own
        positions[t] = (int32_t)(5 * t % (2 * PAGE));
        pages[2 * t] = (int32_t)(n_rows - t) % n_pages;
        pages[2 * t + 1] = (int32_t)(n_rows - t) % n_pages;
    }
    int32_t *on_device = upload(dev, pages, (size_t)(n_pages * n_rows) * 4);
    for (int64_t t = 0; t < n_rows; t++) tables[t] = on_device + 2 * t;
    const struct lp_op_batch batch = {upload(dev, positions, (size_t)n_rows * 4),
                                      upload(dev, tables, (size_t)n_rows * sizeof *tables), 2048};
    const float *norms[3];
    for (int i = 0; i < 3; i++) norms[i] = upload_floats(dev, &rng, LATENT);
    float *inv_freq = upload_floats(dev, &rng, ROPE / 2);
    const int64_t sizes[4] = {LATENT + ROPE, HEADS * (NOPE + ROPE), KEY, INDEX_HEADS * KEY};
    struct ready ways[2];
    float *host[4];
    for (int i = 0; i < 4; i++) host[i] = random_floats(&rng, n_rows * sizes[i], 1.0f);
    for (int way = 0; way < 2; way++) {
        struct ready *r = &ways[way];
        float **to[4] = {&r->kv, &r->q, &r->index_k, &r->index_q};
        for (int i = 0; i < 4; i++) *to[i] = upload(dev, host[i], (size_t)(n_rows * sizes[i]) * 4);
        r->latent = new_view(dev, type, LATENT + ROPE, on_device, n_pages);
        r->index = new_view(dev, type, KEY, on_device, n_pages);
        struct lp_op_rope ropes[4] = {
            {r->kv + LATENT, sizes[0], 0, n_rows, 1, ROPE, pairing, batch.positions, inv_freq, 1},
            {r->q + NOPE, sizes[1], NOPE + ROPE, n_rows, HEADS, ROPE, pairing, batch.positions,
             inv_freq, 1.5f},
            {r->index_k, KEY, 0, n_rows, 1, ROPE, pairing, batch.positions, inv_freq, 1},
            {r->index_q, sizes[3], KEY, n_rows, INDEX_HEADS, ROPE, pairing, batch.positions,
             inv_freq, 1}};
        if (way)
            assert_true(ready_at_once(dev, r, &ropes[1], &ropes[0], &ropes[3], &ropes[2], norms,
                                      n_rows, &batch));
        else
            ready_one_by_one(dev, r, ropes, norms, n_rows, &batch);
    }
    assert_same(dev, ways[0].kv, ways[1].kv, (size_t)(n_rows * sizes[0]) * 4, "latents");
    assert_same(dev, ways[0].q, ways[1].q, (size_t)(n_rows * sizes[1]) * 4, "queries");
    assert_same(dev, ways[0].index_k, ways[1].index_k, (size_t)(n_rows * sizes[2]) * 4, "keys");
    assert_same(dev, ways[0].index_q, ways[1].index_q, (size_t)(n_rows * sizes[3]) * 4,
                "the indexer's queries");
    assert_same(dev, ways[0].latent.base, ways[1].latent.base,
                (size_t)n_pages * ways[0].latent.page_bytes, "cached latents");
    assert_same(dev, ways[0].index.base, ways[1].index.base,
                (size_t)n_pages * ways[0].index.page_bytes, "cached keys");
    for (int i = 0; i < 4; i++) lp_free(host[i]);
    lp_free(positions);
    lp_free(pages);
    lp_free(tables);
    CUDA->close(dev);
}

static void ready_rows_are_their_operations(void **state) {
    (void)state;
    static const lp_type types[] = {LP_TYPE_BF16, LP_TYPE_F16, LP_TYPE_F32};
    static const int64_t rows[] = {1, 2, 33};
    for (size_t k = 0; k < sizeof types / sizeof types[0]; k++)
        for (size_t n = 0; n < sizeof rows / sizeof rows[0]; n++)
            check_ready(types[k], rows[n], n % 2 ? LP_ROPE_HALF : LP_ROPE_ADJACENT);
}

static void other_caches_are_left_to_the_caller(void **state) {
    (void)state;
    struct lp_device *dev = open_device(1, 2048);
    const struct lp_cache_view cache = {.type = LP_TYPE_Q8_0, .width = LATENT + ROPE};
    const struct lp_op_batch batch = {NULL, NULL, 1};
    const float one = 1.0f;
    const struct lp_op_ready_part part = {.cache = &cache, .norm_w = &one, .norm_width = LATENT};
    assert_false(CUDA->ready_rows(dev, &(struct lp_op_ready_rows){&part, 1, 1, &batch}));
    CUDA->close(dev);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_round_for_the_product),
        cmocka_unit_test(a_norm_without_a_product_forgets),
        cmocka_unit_test(gate_up_is_its_three_operations),
        cmocka_unit_test(experts_take_rows_of_the_norm),
        cmocka_unit_test(the_shared_expert_beside_the_others),
        cmocka_unit_test(ready_rows_are_their_operations),
        cmocka_unit_test(other_caches_are_left_to_the_caller),
    };
    return cmocka_run_group_tests_name("cuda, operations together", tests, NULL, NULL);
}
