#include "files/compare.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/progress.h"
#include "base/workers.h"

#define PIECE_VALUES 65536 // dequantised at a time: a multiple of every block

// ---- metadata

static lp_status compare_keys(struct lp_compare *d, const struct lp_gguf *a,
                              const struct lp_gguf *b, struct lp_err *err) {
    size_t most = lp_gguf_n_kv(a) + lp_gguf_n_kv(b);
    if (!(d->keys = lp_alloc(most, sizeof *d->keys)))
        return lp_err_memory(err, most * sizeof *d->keys, "the keys");
    for (uint64_t i = 0; i < lp_gguf_n_kv(a); i++) {
        const struct lp_gguf_kv *mine = lp_gguf_kv_at(a, i),
                                *other = lp_gguf_find_key(b, mine->key);
        if (other && lp_gguf_same_value(mine, other))
            d->n_equal_keys++;
        else
            d->keys[d->n_keys++] = (struct lp_compare_key){mine->key, mine, other};
    }
    for (uint64_t i = 0; i < lp_gguf_n_kv(b); i++) {
        const struct lp_gguf_kv *kv = lp_gguf_kv_at(b, i);
        if (!lp_gguf_find_key(a, kv->key))
            d->keys[d->n_keys++] = (struct lp_compare_key){kv->key, NULL, kv};
    }
    return LP_OK;
}

// ---- values

struct sums {
    double error, a, b, product, largest; // over the pairs of finite values
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

double lp_compare_rms(double error, double a) {
    return error == 0 ? 0 : sqrt(error / a);
}

double lp_compare_cosine(double product, double a, double b) {
    return a == 0 || b == 0 ? a == b : product / sqrt(a * b);
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

// x, y: room for PIECE_VALUES each.
static struct sums sum_values(const struct lp_gguf_tensor *ta, const struct lp_gguf_tensor *tb,
                              float *x, float *y) {
    const struct lp_type_info *a = lp_type_info((uint32_t)ta->type),
                              *b = lp_type_info((uint32_t)tb->type);
    uint64_t n_in = ta->ne[0], n_rows = ta->ne[1] * ta->ne[2] * ta->ne[3], step = PIECE_VALUES;
    struct sums s = {0};
    for (uint64_t r = 0; r < n_rows; r++)
        for (uint64_t at = 0; at < n_in; at += step) {
            size_t n = (size_t)(n_in - at < step ? n_in - at : step);
            a->dequant(row_of(ta, r) + at / a->block_values * a->block_bytes, x, n);
            b->dequant(row_of(tb, r) + at / b->block_values * b->block_bytes, y, n);
            add_values(&s, x, y, n);
        }
    return s;
}

static void compare_values(struct lp_compare_tensor *t, float *x, float *y) {
    t->cosine = 1;
    if (same_bytes(t->a, t->b)) return;
    t->state = LP_COMPARE_VALUES;
    t->rms = t->cosine = t->largest = NAN;
    if (!lp_type_info((uint32_t)t->a->type)->dequant ||
        !lp_type_info((uint32_t)t->b->type)->dequant)
        return;
    struct sums s = sum_values(t->a, t->b, x, y);
    t->n_nonfinite = s.n_nonfinite;
    t->state = s.differ || s.n_nonfinite ? LP_COMPARE_VALUES : LP_COMPARE_EQUAL;
    t->rms = lp_compare_rms(s.error, s.a);
    t->cosine = lp_compare_cosine(s.product, s.a, s.b);
    t->largest = s.largest;
}

// ---- tensors

struct job {
    struct lp_compare *compare;
    struct lp_progress bar;            // of worker 0
    _Atomic uint64_t next, done_bytes; // next: tensor
    atomic_bool failed;                // for want of memory
};

static void compare_some(void *user, int worker, int n_workers) {
    struct job *job = user;
    float *x = lp_alloc(PIECE_VALUES, sizeof *x), *y = lp_alloc(PIECE_VALUES, sizeof *y);
    (void)n_workers;
    if (!x || !y) job->failed = true;
    for (uint64_t i;
         !job->failed && (i = atomic_fetch_add(&job->next, 1)) < job->compare->n_tensors;) {
        struct lp_compare_tensor *t = &job->compare->tensors[i];
        if (t->state != LP_COMPARE_EQUAL) continue;
        compare_values(t, x, y);
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
    struct job job = {.compare = d};
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

void lp_compare_release(struct lp_compare *compare) {
    lp_free(compare->keys);
    lp_free(compare->tensors);
    *compare = (struct lp_compare){0};
}

bool lp_compare_is_empty(const struct lp_compare *compare) {
    bool empty = compare->n_keys == 0;
    for (size_t i = 0; i < compare->n_tensors && empty; i++)
        empty = compare->tensors[i].state == LP_COMPARE_EQUAL &&
                compare->tensors[i].a->type == compare->tensors[i].b->type;
    return empty;
}
