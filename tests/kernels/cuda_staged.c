#include "cuda_staged.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

#define MAX_BLOCKS 64
#define CANARY_BYTES 256
#define CANARY 0xa5

struct block {
    unsigned char *device;
    void *host; // NULL: is not copied back
    size_t bytes;
};

struct staged {
    struct lp_device base;
    struct lp_device *real;
    struct block blocks[MAX_BLOCKS];
    int n_blocks;
};

static void die(const char *why) {
    fprintf(stderr, "cuda_staged: %s\n", why);
    abort();
}

static void *take(struct staged *s, size_t bytes, void *back) {
    unsigned char canary[CANARY_BYTES];
    memset(canary, CANARY, sizeof canary);
    if (s->n_blocks == MAX_BLOCKS) die("too many blocks");
    struct block *b = &s->blocks[s->n_blocks++];
    *b = (struct block){s->real->backend->alloc(s->real, bytes + CANARY_BYTES), back, bytes};
    if (!b->device) die("no device memory");
    s->real->backend->write(s->real, b->device + bytes, canary, CANARY_BYTES);
    return b->device;
}

static void *upload(struct staged *s, const void *host, size_t bytes, bool back) {
    if (!host) return NULL;
    void *device = take(s, bytes, back ? (void *)(uintptr_t)host : NULL);
    s->real->backend->write(s->real, device, host, bytes);
    return device;
}

static const float *in(struct staged *s, const float *x, int64_t n) {
    return upload(s, x, (size_t)n * sizeof *x, false);
}
static float *out(struct staged *s, float *x, int64_t n) {
    return upload(s, x, (size_t)n * sizeof *x, true);
}
static int64_t rows(int64_t n_rows, int64_t stride, int64_t width) {
    return n_rows > 0 ? (n_rows - 1) * stride + width : 0;
}

static void finish(struct staged *s) {
    struct lp_err err;
    for (int i = 0; i < s->n_blocks; i++) {
        struct block *b = &s->blocks[i];
        unsigned char canary[CANARY_BYTES];
        s->real->backend->read(s->real, canary, b->device + b->bytes, CANARY_BYTES);
        if (s->real->backend->failed(s->real, &err)) die(err.text);
        for (int c = 0; c < CANARY_BYTES; c++)
            if (canary[c] != CANARY) die("an operation wrote behind a block");
        if (b->host) s->real->backend->read(s->real, b->host, b->device, b->bytes);
        s->real->backend->free(s->real, b->device);
    }
    s->n_blocks = 0;
}

static struct lp_weight weight(struct staged *s, const struct lp_weight *w) {
    struct lp_weight copy = *w;
    copy.mat_bytes = (size_t)w->n_out * w->row_bytes;
    unsigned char *block = take(s, (size_t)w->n_mats * copy.mat_bytes, NULL);
    for (int64_t m = 0; m < w->n_mats; m++)
        s->real->backend->write(s->real, block + (size_t)m * copy.mat_bytes, lp_weight_mat(w, m),
                                copy.mat_bytes);
    copy.data = block;
    copy.mats = NULL;
    copy.mats_offset = 0;
    copy.packed = NULL;
    copy.scales = in(s, w->scales, w->n_mats);
    return copy;
}

// The pages that hold positions 0 ... n - 1, as they lie.
static struct lp_cache_view cache(struct staged *s, const struct lp_cache_view *view, int64_t n,
                                  bool back) {
    struct lp_cache_view copy = *view;
    const int64_t n_pages = (n + view->slot_offset + view->page_tokens - 1) / view->page_tokens;
    int32_t last = 0;
    for (int64_t i = 0; i < n_pages; i++)
        if (view->pages[i] > last) last = view->pages[i];
    copy.base = upload(s, view->base, (size_t)(last + 1) * view->page_bytes, back);
    copy.pages = upload(s, view->pages, (size_t)n_pages * sizeof *view->pages, false);
    return copy;
}

// Pages of the sequence of row i, as far as a row of the batch needs them.
static int64_t batch_pages(const struct lp_op_batch *b, int64_t n_rows, int64_t i,
                           const struct lp_cache_view *view) {
    int64_t last = 0;
    for (int64_t j = 0; j < n_rows; j++)
        if (b->pages[j] == b->pages[i] && b->positions[j] > last) last = b->positions[j];
    return (last + 1 + view->slot_offset + view->page_tokens - 1) / view->page_tokens;
}

static struct lp_op_batch batch(struct staged *s, const struct lp_op_batch *b, int64_t n_rows,
                                const struct lp_cache_view *view) {
    struct lp_op_batch copy = *b;
    const int32_t **pages = lp_alloc((size_t)n_rows, sizeof *pages);
    if (!pages) die("no memory");
    for (int64_t i = 0; i < n_rows; i++) {
        const int64_t n = batch_pages(b, n_rows, i, view);
        const bool again = i > 0 && b->pages[i] == b->pages[i - 1];
        pages[i] = again ? pages[i - 1] : upload(s, b->pages[i], (size_t)n * sizeof **pages, false);
    }
    copy.positions = upload(s, b->positions, (size_t)n_rows * sizeof *b->positions, false);
    copy.pages = upload(s, pages, (size_t)n_rows * sizeof *pages, false);
    lp_free(pages);
    return copy;
}

// All pages that any row of a batch has.
static struct lp_cache_view batch_cache(struct staged *s, const struct lp_cache_view *view,
                                        const struct lp_op_batch *b, int64_t n_rows, bool back) {
    struct lp_cache_view copy = *view;
    int32_t last = 0;
    for (int64_t i = 0; i < n_rows; i++)
        for (int64_t k = batch_pages(b, n_rows, i, view) - 1; k >= 0; k--)
            if (b->pages[i][k] > last) last = b->pages[i][k];
    copy.base = upload(s, view->base, (size_t)(last + 1) * view->page_bytes, back);
    copy.pages = NULL;
    return copy;
}

// The view and the batch of an operation over n_rows rows, the last of them at position n_keys - 1.
static struct lp_cache_view cache_of(struct staged *s, const struct lp_cache_view *view,
                                     const struct lp_op_batch **b, struct lp_op_batch *copy,
                                     int64_t n_rows, int64_t n_keys, bool back) {
    if (!*b) return cache(s, view, n_keys, back);
    struct lp_cache_view staged = batch_cache(s, view, *b, n_rows, back);
    *copy = batch(s, *b, n_rows, view);
    *b = copy;
    return staged;
}

static struct lp_visible visible(struct staged *s, const struct lp_visible *v) {
    struct lp_visible copy = *v;
    copy.ids = upload(s, v->ids, (size_t)(v->n_queries * v->k) * sizeof *v->ids, false);
    copy.counts =
        v->ids ? upload(s, v->counts, (size_t)v->n_queries * sizeof *v->counts, false) : NULL;
    return copy;
}

#define BEGIN(name)                                                                                \
    struct staged *s = (struct staged *)dev;                                                       \
    struct lp_op_##name copy = *op;
#define END(name)                                                                                  \
    s->real->backend->name(s->real, &copy);                                                        \
    finish(s);
#define OP(name) static void staged_##name(struct lp_device *dev, const struct lp_op_##name *op)

OP(embed) {
    BEGIN(embed)
    struct lp_weight table = weight(s, op->table);
    copy.table = &table;
    copy.ids = upload(s, op->ids, (size_t)op->n_rows * sizeof *op->ids, false);
    copy.out = out(s, op->out, rows(op->n_rows, op->out_stride, op->table->n_in));
    END(embed)
}
OP(rms_norm) {
    BEGIN(rms_norm)
    copy.y = out(s, op->y, rows(op->n_rows, op->y_stride, op->width));
    copy.x = op->x == op->y ? copy.y : in(s, op->x, rows(op->n_rows, op->x_stride, op->width));
    copy.w = in(s, op->w, op->width);
    END(rms_norm)
}
OP(layer_norm) {
    BEGIN(layer_norm)
    copy.y = out(s, op->y, rows(op->n_rows, op->y_stride, op->width));
    copy.x = op->x == op->y ? copy.y : in(s, op->x, rows(op->n_rows, op->x_stride, op->width));
    copy.w = in(s, op->w, op->width);
    copy.b = in(s, op->b, op->width);
    END(layer_norm)
}
OP(rope) {
    BEGIN(rope)
    copy.x =
        out(s, op->x,
            rows(op->n_tokens, op->token_stride, rows(op->n_heads, op->head_stride, op->width)));
    copy.positions = upload(s, op->positions, (size_t)op->n_tokens * sizeof *op->positions, false);
    copy.inv_freq = in(s, op->inv_freq, op->width / 2);
    END(rope)
}
OP(matmul) {
    BEGIN(matmul)
    struct lp_weight w = weight(s, op->w);
    copy.w = &w;
    copy.x = in(s, op->x, rows(op->n_rows, op->x_stride, op->w->n_in));
    copy.bias = in(s, op->bias, op->w->n_out);
    copy.y = out(s, op->y, rows(op->n_rows, op->y_stride, op->w->n_out));
    END(matmul)
}
OP(head_matmul) {
    BEGIN(head_matmul)
    struct lp_weight w = weight(s, op->w);
    int64_t from = op->transposed ? w.n_out : w.n_in, to = op->transposed ? w.n_in : w.n_out;
    copy.w = &w;
    copy.x =
        in(s, op->x, rows(op->n_rows, op->x_row_stride, rows(w.n_mats, op->x_head_stride, from)));
    copy.y =
        out(s, op->y, rows(op->n_rows, op->y_row_stride, rows(w.n_mats, op->y_head_stride, to)));
    END(head_matmul)
}
OP(scan_rows) {
    BEGIN(scan_rows)
    const size_t n_bytes = (size_t)op->n_rows * sizeof *op->bad;
    copy.x = in(s, op->x, rows(op->n_rows, op->x_stride, op->width));
    copy.skip = upload(s, op->skip, (size_t)op->width, false);
    copy.largest = upload(s, op->largest, n_bytes, true);
    copy.bad = upload(s, op->bad, n_bytes, true);
    END(scan_rows)
}
OP(top_rows) {
    BEGIN(top_rows)
    copy.x = in(s, op->x, rows(op->n_rows, op->x_stride, op->width));
    copy.skip = upload(s, op->skip, (size_t)op->width, false);
    copy.scales = upload(s, op->scales, (size_t)op->n_rows * sizeof *op->scales, false);
    copy.rows = upload(s, op->rows, (size_t)op->n_rows * sizeof *op->rows, true);
    END(top_rows)
}
OP(add) {
    BEGIN(add)
    copy.y = out(s, op->y, rows(op->n_rows, op->y_stride, op->width));
    copy.x = in(s, op->x, rows(op->n_rows, op->x_stride, op->width));
    END(add)
}
OP(silu_mul) {
    BEGIN(silu_mul)
    int64_t n = rows(op->n_rows, op->stride, op->width);
    copy.y = out(s, op->y, n);
    copy.gate = op->gate == op->y ? copy.y : in(s, op->gate, n);
    copy.up = in(s, op->up, n);
    END(silu_mul)
}
OP(cache_write) {
    BEGIN(cache_write)
    struct lp_op_batch rows_of;
    struct lp_cache_view view =
        cache_of(s, op->cache, &copy.batch, &rows_of, op->n_rows, op->first_pos + op->n_rows, true);
    copy.cache = &view;
    copy.x = in(s, op->x, rows(op->n_rows, op->x_stride, view.width));
    END(cache_write)
}
OP(gqa) {
    BEGIN(gqa)
    int64_t n = op->visible.n_queries, n_keys = op->visible.first_pos + n;
    struct lp_op_batch rows_of;
    const struct lp_op_batch *of_v = copy.visible.batch;
    struct lp_cache_view v = cache_of(s, op->v, &of_v, &rows_of, n, n_keys, false),
                         k = cache_of(s, op->k, &copy.visible.batch, &rows_of, n, n_keys, false);
    copy.k = &k;
    copy.v = &v;
    copy.q = in(s, op->q, rows(n, op->q_stride, (int64_t)op->n_heads * op->head_dim));
    copy.out = out(s, op->out, rows(n, op->out_stride, (int64_t)op->n_heads * op->v_dim));
    END(gqa)
}
OP(mla_absorbed) {
    BEGIN(mla_absorbed)
    int64_t n = op->visible.n_queries;
    struct lp_op_batch rows_of;
    copy.visible = visible(s, &op->visible);
    struct lp_cache_view view =
        cache_of(s, op->cache, &copy.visible.batch, &rows_of, n, op->visible.first_pos + n, false);
    copy.cache = &view;
    copy.q_latent =
        in(s, op->q_latent, rows(n, op->q_latent_stride, (int64_t)op->n_heads * op->latent));
    copy.q_rope =
        in(s, op->q_rope,
           rows(n, op->q_rope_stride, rows(op->n_heads, op->q_rope_head_stride, op->rope)));
    copy.out = out(s, op->out, rows(n, op->out_stride, (int64_t)op->n_heads * op->latent));
    END(mla_absorbed)
}
OP(mla_expanded) {
    BEGIN(mla_expanded)
    int64_t n = op->visible.n_queries;
    struct lp_cache_view view = cache(s, op->cache, op->visible.first_pos + n, false);
    struct lp_weight k_up = weight(s, op->k_up), v_up = weight(s, op->v_up);
    copy.cache = &view;
    copy.k_up = &k_up;
    copy.v_up = &v_up;
    copy.visible = visible(s, &op->visible);
    copy.q = in(s, op->q, rows(n, op->q_stride, (int64_t)op->n_heads * (op->nope + op->rope)));
    copy.out = out(s, op->out, rows(n, op->out_stride, (int64_t)op->n_heads * op->v_dim));
    END(mla_expanded)
}
OP(index_select) {
    BEGIN(index_select)
    int64_t n = op->n_queries, n_keys = op->first_pos + n;
    struct lp_op_batch rows_of;
    struct lp_cache_view keys = cache_of(s, op->keys, &copy.batch, &rows_of, n, n_keys, false);
    int64_t most = op->ids_stride < op->top_k ? op->ids_stride : op->top_k;
    copy.keys = &keys;
    copy.q = in(s, op->q, rows(n, op->q_stride, (int64_t)op->n_heads * op->width));
    copy.w = in(s, op->w, rows(n, op->w_stride, op->n_heads));
    copy.ids = upload(s, op->ids, (size_t)rows(n, op->ids_stride, most) * sizeof *op->ids, true);
    copy.counts = upload(s, op->counts, (size_t)n * sizeof *op->counts, true);
    END(index_select)
}
OP(router) {
    BEGIN(router)
    size_t n = (size_t)(op->n_rows * op->n_used);
    copy.logits = in(s, op->logits, rows(op->n_rows, op->logits_stride, op->n_experts));
    copy.bias = in(s, op->bias, op->n_experts);
    copy.ids = upload(s, op->ids, n * sizeof *op->ids, true);
    copy.weights = out(s, op->weights, (int64_t)n);
    END(router)
}
OP(experts) {
    BEGIN(experts)
    int64_t n = op->n_rows * op->n_used;
    struct lp_weight gate = weight(s, op->gate), up = weight(s, op->up), down = weight(s, op->down);
    copy.gate = &gate;
    copy.up = &up;
    copy.down = &down;
    copy.x = in(s, op->x, rows(op->n_rows, op->x_stride, gate.n_in));
    copy.ids = upload(s, op->ids, (size_t)n * sizeof *op->ids, false);
    copy.weights = in(s, op->weights, n);
    copy.y = out(s, op->y, rows(op->n_rows, op->y_stride, down.n_out));
    END(experts)
}

static lp_status staged_open(struct lp_device **out_, const struct lp_device_options *options,
                             struct lp_err *err) {
    struct staged *s = lp_alloc(1, sizeof *s);
    if (!s) die("no memory");
    s->base.backend = &cuda_staged;
    struct lp_err why = {0};
    if (lp_backend_cuda.open(&s->real, options, &why) != LP_OK) {
        printf("skipped: %s\n", why.text);
        fflush(stdout);
        _Exit(77);
    }
    (void)err;
    *out_ = &s->base;
    return LP_OK;
}
static void staged_close(struct lp_device *dev) {
    struct staged *s = (struct staged *)dev;
    s->real->backend->close(s->real);
    lp_free(s);
}
static lp_status staged_reserve(struct lp_device *dev, const struct lp_reserve *need,
                                struct lp_err *err) {
    struct staged *s = (struct staged *)dev;
    return s->real->backend->reserve(s->real, need, err);
}
struct lp_device *cuda_staged_real(struct lp_device *dev) {
    return ((struct staged *)dev)->real;
}
static bool staged_supports(const struct lp_device *dev, lp_type type) {
    const struct staged *s = (const struct staged *)dev;
    return s->real->backend->supports(s->real, type);
}
static const char *staged_matmul_kernel(const struct lp_device *dev, lp_type type) {
    const struct staged *s = (const struct staged *)dev;
    return s->real->backend->matmul_kernel(s->real, type);
}
static void staged_fix_results(struct lp_device *dev, bool fixed) {
    struct staged *s = (struct staged *)dev;
    s->real->backend->fix_results(s->real, fixed);
}
static size_t staged_packed_bytes(const struct lp_device *dev, const struct lp_weight *w) {
    (void)dev, (void)w;
    return 0;
}

const struct lp_backend cuda_staged = {
    .name = "cuda",
    .open = staged_open,
    .close = staged_close,
    .reserve = staged_reserve,
    .host_memory = true,
    .supports = staged_supports,
    .fix_results = staged_fix_results,
    .matmul_kernel = staged_matmul_kernel,
    .batches = true,
    .packed_bytes = staged_packed_bytes,
#define ROW(name) .name = staged_##name,
    ROW(embed) ROW(rms_norm) ROW(layer_norm) ROW(rope) ROW(matmul) ROW(head_matmul) ROW(scan_rows)
        ROW(top_rows) ROW(add) ROW(silu_mul) ROW(cache_write) ROW(gqa) ROW(mla_absorbed)
            ROW(mla_expanded) ROW(index_select) ROW(router) ROW(experts)};
