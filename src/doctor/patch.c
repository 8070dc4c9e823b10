// Saves, writes, puts back.
#include "doctor/patch.h"

#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"

void lp_patch_set(struct lp_patch *p, void *at, const void *value, size_t n_bytes) {
    struct lp_patch_entry *entries = lp_realloc(p->entries, p->n_entries + 1, sizeof *entries);
    void *old = lp_alloc(n_bytes, 1);
    if (entries) p->entries = entries;
    if (!entries || !old) {
        lp_free(old);
        p->failed = true;
        return;
    }
    memcpy(old, at, n_bytes);
    p->entries[p->n_entries++] = (struct lp_patch_entry){at, old, n_bytes};
    memcpy(at, value, n_bytes);
}

void *lp_patch_block(struct lp_patch *p, size_t n_bytes) {
    void **blocks = lp_realloc(p->blocks, p->n_blocks + 1, sizeof *blocks);
    if (blocks) p->blocks = blocks;
    void *block =
        blocks && n_bytes <= LP_PATCH_MAX_BYTES ? p->dev->backend->alloc(p->dev, n_bytes) : NULL;
    if (block)
        p->blocks[p->n_blocks++] = block;
    else
        p->failed = true;
    return block;
}

void lp_patch_undo(struct lp_patch *p) {
    while (p->n_entries > 0) { // last first: a place may have been written twice
        struct lp_patch_entry *e = &p->entries[--p->n_entries];
        memcpy(e->at, e->old, e->n_bytes);
        lp_free(e->old);
    }
    for (size_t i = 0; i < p->n_blocks; i++) p->dev->backend->free(p->dev, p->blocks[i]);
    lp_free(p->entries);
    lp_free(p->blocks);
    *p = (struct lp_patch){.dev = p->dev};
}

void lp_patch_swap(struct lp_patch *p, void *a, void *b, size_t n_bytes) {
    void *first = lp_alloc(n_bytes, 1);
    if (!first) {
        p->failed = true;
        return;
    }
    memcpy(first, a, n_bytes);
    lp_patch_set(p, a, b, n_bytes);
    lp_patch_set(p, b, first, n_bytes);
    lp_free(first);
}

void lp_patch_vector(struct lp_patch *p, const float **vector, size_t n, float factor, float term) {
    float *host = lp_alloc(n, sizeof *host), *device = lp_patch_block(p, n * sizeof *host);
    if (!host || !device) {
        p->failed = true;
        lp_free(host);
        return;
    }
    p->dev->backend->read(p->dev, host, *vector, n * sizeof *host);
    for (size_t i = 0; i < n; i++) host[i] = host[i] * factor + term;
    p->dev->backend->write(p->dev, device, host, n * sizeof *host);
    lp_free(host);
    const float *value = device;
    lp_patch_set(p, vector, &value, sizeof value);
}

// ---- weights ------------------------------------------------------------------------------------

// The matrices of w as contiguous rows in host memory, which *bytes counts; NULL when it is too
// much.
static uint8_t *read_rows(struct lp_patch *p, const struct lp_weight *w, size_t *bytes) {
    size_t matrix = w->row_bytes * (size_t)w->n_out;
    if (!lp_mul_size(matrix, (size_t)w->n_mats, bytes) || *bytes > LP_PATCH_MAX_BYTES) return NULL;
    uint8_t *host = lp_alloc_aligned(*bytes, 1);
    for (int64_t m = 0; m < w->n_mats && host; m++)
        p->dev->backend->read(p->dev, host + (size_t)m * matrix, lp_weight_mat(w, m), matrix);
    return host;
}

// Puts host rows of `type` in the place of w's.
static void place_rows(struct lp_patch *p, struct lp_weight *w, const void *host, size_t bytes,
                       lp_type type, size_t row_bytes) {
    struct lp_weight changed = *w;
    void *device = lp_patch_block(p, bytes);
    if (!device) return;
    p->dev->backend->write(p->dev, device, host, bytes);
    changed.data = device;
    changed.mats = NULL;
    changed.packed = NULL;
    changed.type = type;
    changed.row_bytes = row_bytes;
    changed.mat_bytes = row_bytes * (size_t)w->n_out;
    lp_patch_set(p, w, &changed, sizeof changed);
}

void lp_patch_reorder_rows(struct lp_patch *p, struct lp_weight *w, const int64_t *order) {
    size_t bytes = 0, row = w->row_bytes;
    uint8_t *from = read_rows(p, w, &bytes), *to = from ? lp_alloc_aligned(bytes, 1) : NULL;
    if (!to) p->failed = true;
    for (int64_t m = 0; m < w->n_mats && to; m++)
        for (int64_t i = 0; i < w->n_out; i++)
            memcpy(to + (size_t)(m * w->n_out + i) * row,
                   from + (size_t)(m * w->n_out + order[i]) * row, row);
    if (to) place_rows(p, w, to, bytes, w->type, row);
    lp_free(from);
    lp_free(to);
}

// The factors of two matrices go with them.
static void swap_factors(struct lp_patch *p, struct lp_weight *w, int64_t a, int64_t b) {
    size_t n = (size_t)w->n_mats;
    float *host = lp_alloc(n, sizeof *host), *device = lp_patch_block(p, n * sizeof *host);
    if (host && device) {
        p->dev->backend->read(p->dev, host, w->scales, n * sizeof *host);
        float first = host[a];
        host[a] = host[b];
        host[b] = first;
        p->dev->backend->write(p->dev, device, host, n * sizeof *host);
        const float *value = device;
        lp_patch_set(p, &w->scales, &value, sizeof value);
    } else
        p->failed = true;
    lp_free(host);
}

void lp_patch_swap_matrices(struct lp_patch *p, struct lp_weight *w, int64_t a, int64_t b) {
    size_t bytes = 0, matrix = w->row_bytes * (size_t)w->n_out;
    uint8_t *all = read_rows(p, w, &bytes), *one = all ? lp_alloc(matrix, 1) : NULL;
    if (!one) p->failed = true;
    if (one) {
        memcpy(one, all + (size_t)a * matrix, matrix);
        memmove(all + (size_t)a * matrix, all + (size_t)b * matrix, matrix);
        memcpy(all + (size_t)b * matrix, one, matrix);
        place_rows(p, w, all, bytes, w->type, w->row_bytes);
        if (w->scales) swap_factors(p, w, a, b);
    }
    lp_free(all);
    lp_free(one);
}

// The values of w as floats, [n_mats, n_out, n_in]; NULL when it is too much.
static float *read_floats(struct lp_patch *p, const struct lp_weight *w, size_t *n) {
    size_t bytes = 0, float_bytes;
    if (!lp_mul_size((size_t)w->n_in, (size_t)w->n_out, n) ||
        !lp_mul_size(*n, (size_t)w->n_mats, n) || !lp_mul_size(*n, sizeof(float), &float_bytes) ||
        float_bytes > LP_PATCH_MAX_BYTES)
        return NULL;
    uint8_t *rows = read_rows(p, w, &bytes);
    float *values = rows ? lp_alloc_aligned(*n, sizeof *values) : NULL;
    if (values) lp_type_info(w->type)->dequant(rows, values, *n);
    lp_free(rows);
    return values;
}

static void place_floats(struct lp_patch *p, struct lp_weight *w, const float *values, size_t n) {
    place_rows(p, w, values, n * sizeof *values, LP_TYPE_F32, (size_t)w->n_in * sizeof *values);
}

void lp_patch_transpose(struct lp_patch *p, struct lp_weight *w) {
    size_t n = 0;
    float *from = read_floats(p, w, &n), *to = from ? lp_alloc_aligned(n, sizeof *to) : NULL;
    if (!to) p->failed = true;
    int64_t matrix = w->n_in * w->n_out;
    for (int64_t m = 0; m < w->n_mats && to; m++)
        for (int64_t o = 0; o < w->n_out; o++)
            for (int64_t i = 0; i < w->n_in; i++)
                to[m * matrix + o * w->n_in + i] = from[m * matrix + i * w->n_out + o];
    if (to) place_floats(p, w, to, n);
    lp_free(from);
    lp_free(to);
}

void lp_patch_scale(struct lp_patch *p, struct lp_weight *w, float factor) {
    size_t n = 0;
    float *values = read_floats(p, w, &n);
    if (!values) p->failed = true;
    for (size_t i = 0; i < n && values; i++) values[i] *= factor;
    if (values) place_floats(p, w, values, n);
    lp_free(values);
}
