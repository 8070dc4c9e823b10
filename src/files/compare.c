#include "files/compare.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/progress.h"
#include "base/workers.h"

#define PIECE_VALUES 65536

// ---- metadata

static bool same_value(const struct lp_gguf_kv *a, const struct lp_gguf_kv *b) {
    if (a->type != b->type || a->element_type != b->element_type || a->count != b->count)
        return false;
    if (a->element_type == LP_GGUF_STRING) {
        for (uint64_t i = 0; i < a->count; i++)
            if (!lp_str_equal(a->strings[i], b->strings[i])) return false;
        return true;
    }
    static const uint8_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return memcmp(a->data, b->data, (size_t)a->count * bytes[a->element_type]) == 0;
}

static const struct lp_gguf_kv *find_kv(const struct lp_gguf *gguf, struct lp_str key) {
    for (uint64_t i = 0; i < lp_gguf_n_kv(gguf); i++)
        if (lp_str_equal(lp_gguf_kv_at(gguf, i)->key, key)) return lp_gguf_kv_at(gguf, i);
    return NULL;
}

static lp_status compare_keys(struct lp_compare *d, const struct lp_gguf *a, const struct lp_gguf *b,
                              struct lp_err *err) {
    size_t most = lp_gguf_n_kv(a) + lp_gguf_n_kv(b);
    if (!(d->keys = lp_alloc(most, sizeof *d->keys)))
        return lp_err_memory(err, most * sizeof *d->keys, "the keys");
    for (uint64_t i = 0; i < lp_gguf_n_kv(a); i++) {
        const struct lp_gguf_kv *mine = lp_gguf_kv_at(a, i), *other = find_kv(b, mine->key);
        if (other && same_value(mine, other))
            d->n_equal_keys++;
        else
            d->keys[d->n_keys++] = (struct lp_compare_key){mine->key, mine, other};
    }
    for (uint64_t i = 0; i < lp_gguf_n_kv(b); i++) {
        const struct lp_gguf_kv *kv = lp_gguf_kv_at(b, i);
        if (!find_kv(a, kv->key)) d->keys[d->n_keys++] = (struct lp_compare_key){kv->key, NULL, kv};
    }
    return LP_OK;
}

// ---- values

struct sums {
    double error, a, b, product, largest;
    uint64_t n_nonfinite;
    bool differ;
};

static void add_values(struct sums *s, const float *a, const float *b, size_t n) {
    for (size_t i = 0; i < n; i++) {
        double x = a[i], y = b[i], e = x - y;
        if (!isfinite(x) || !isfinite(y)) {
            s->n_nonfinite += memcmp(&a[i], &b[i], sizeof *a) != 0;
            continue;
        }
        s->error += e * e;
        s->a += x * x;
        s->b += y * y;
        s->product += x * y;
        if (fabs(e) > s->largest) s->largest = fabs(e);
        s->differ = s->differ || e != 0;
    }
}

// Row r of a tensor, counted through its matrices.
static const uint8_t *row_of(const struct lp_gguf_tensor *t, uint64_t r) {
    uint64_t row_bytes = t->n_bytes / (t->ne[1] * t->ne[2] * t->ne[3]);
    return lp_gguf_tensor_mat(t, r / t->ne[1]) + r % t->ne[1] * row_bytes;
}

static bool same_bytes(const struct lp_gguf_tensor *a, const struct lp_gguf_tensor *b) {
    if (a->type != b->type) return false;
    uint64_t n_mats = a->ne[2] * a->ne[3], bytes = a->n_bytes / n_mats;
    for (uint64_t m = 0; m < n_mats; m++)
        if (memcmp(lp_gguf_tensor_mat(a, m), lp_gguf_tensor_mat(b, m), bytes) != 0) return false;
    return true;
}

static void compare_values(struct lp_compare_tensor *t, float *x, float *y, size_t room) {
    const struct lp_type_info *a = lp_type_info((uint32_t)t->a->type),
                              *b = lp_type_info((uint32_t)t->b->type);
    uint64_t n_in = t->a->ne[0], n_rows = t->a->ne[1] * t->a->ne[2] * t->a->ne[3];
    t->cosine = 1;
    if (!a->dequant || !b->dequant || same_bytes(t->a, t->b)) {
        t->state = same_bytes(t->a, t->b) ? LP_COMPARE_EQUAL : LP_COMPARE_VALUES;
        if (t->state == LP_COMPARE_VALUES) t->rms = t->cosine = t->largest = NAN;
        return;
    }
    // pieces of rows: a multiple of every block, but for the last of a row
    uint64_t step = room / 256 * 256;
    struct sums s = {0};
    for (uint64_t r = 0; r < n_rows; r++)
        for (uint64_t at = 0; at < n_in; at += step) {
            size_t n = (size_t)(n_in - at < step ? n_in - at : step);
            a->dequant(row_of(t->a, r) + at / a->block_values * a->block_bytes, x, n);
            b->dequant(row_of(t->b, r) + at / b->block_values * b->block_bytes, y, n);
            add_values(&s, x, y, n);
        }
    t->n_nonfinite = s.n_nonfinite;
    t->state = s.differ || s.n_nonfinite ? LP_COMPARE_VALUES : LP_COMPARE_EQUAL;
    t->rms = s.a > 0 ? sqrt(s.error / s.a) : s.error > 0 ? INFINITY : 0;
    t->cosine = s.a > 0 && s.b > 0 ? s.product / sqrt(s.a * s.b) : s.a == s.b;
    t->largest = s.largest;
}

// ---- tensors

struct job {
    struct lp_compare *diff;
    struct lp_progress bar;
    _Atomic uint64_t next, done_bytes;
    atomic_bool failed;
};

static void compare_some(void *user, int worker, int n_workers) {
    struct job *job = user;
    float *x = lp_alloc(PIECE_VALUES, sizeof *x), *y = lp_alloc(PIECE_VALUES, sizeof *y);
    (void)n_workers;
    if (!x || !y) job->failed = true;
    for (uint64_t i;
         !job->failed && (i = atomic_fetch_add(&job->next, 1)) < job->diff->n_tensors;) {
        struct lp_compare_tensor *t = &job->diff->tensors[i];
        if (t->state != LP_COMPARE_EQUAL) continue;
        compare_values(t, x, y, PIECE_VALUES);
        uint64_t n = t->a->n_bytes + t->b->n_bytes;
        uint64_t done = atomic_fetch_add(&job->done_bytes, n) + n;
        if (worker == 0) lp_progress_update(&job->bar, done);
    }
    lp_free(x);
    lp_free(y);
}

static void pair_up(struct lp_compare *d, const struct lp_gguf *a, const struct lp_gguf *b) {
    for (uint64_t i = 0; i < lp_gguf_n_tensors(a); i++) {
        const struct lp_gguf_tensor *t = lp_gguf_tensor_at(a, i),
                                    *other = lp_gguf_find_tensor(b, t->name);
        struct lp_compare_tensor pair = {.name = t->name, .a = t, .b = other};
        pair.state = !other                                        ? LP_COMPARE_ONLY_A
                     : memcmp(t->ne, other->ne, sizeof t->ne) != 0 ? LP_COMPARE_SHAPE
                                                                   : LP_COMPARE_EQUAL;
        d->tensors[d->n_tensors++] = pair;
    }
    for (uint64_t i = 0; i < lp_gguf_n_tensors(b); i++) {
        const struct lp_gguf_tensor *t = lp_gguf_tensor_at(b, i);
        if (!lp_gguf_find_tensor(a, t->name))
            d->tensors[d->n_tensors++] =
                (struct lp_compare_tensor){.name = t->name, .b = t, .state = LP_COMPARE_ONLY_B};
    }
}

static lp_status compare_tensors(struct lp_compare *d, const struct lp_compare_options *options,
                                 uint64_t n_bytes, struct lp_err *err) {
    struct job job = {.diff = d};
    struct lp_workers *workers;
    if (options->no_values) return LP_OK;
    lp_status status = lp_workers_new(&workers, options->n_threads, err);
    if (status) return status;
    lp_progress_init(&job.bar, "comparing", n_bytes);
    lp_workers_run(workers, compare_some, &job);
    lp_progress_finish(&job.bar);
    lp_workers_free(workers);
    return job.failed ? lp_err_memory(err, 2 * PIECE_VALUES * sizeof(float), "values") : LP_OK;
}

lp_status lp_compare_make(struct lp_compare *out, const struct lp_gguf *a, const struct lp_gguf *b,
                       const struct lp_compare_options *options, struct lp_err *err) {
    *out = (struct lp_compare){0};
    size_t most = lp_gguf_n_tensors(a) + lp_gguf_n_tensors(b);
    lp_status status = compare_keys(out, a, b, err);
    if (!status && !(out->tensors = lp_alloc(most, sizeof *out->tensors)))
        status = lp_err_memory(err, most * sizeof *out->tensors, "the tensors");
    if (!status) pair_up(out, a, b);
    if (!status)
        status = compare_tensors(out, options, lp_gguf_file_bytes(a) + lp_gguf_file_bytes(b), err);
    if (status) lp_compare_release(out);
    return status;
}

void lp_compare_release(struct lp_compare *diff) {
    lp_free(diff->keys);
    lp_free(diff->tensors);
    *diff = (struct lp_compare){0};
}

bool lp_compare_is_empty(const struct lp_compare *diff) {
    bool empty = diff->n_keys == 0;
    for (size_t i = 0; i < diff->n_tensors && empty; i++)
        empty = diff->tensors[i].state == LP_COMPARE_EQUAL &&
                diff->tensors[i].a->type == diff->tensors[i].b->type;
    return empty;
}
