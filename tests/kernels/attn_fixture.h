// What the tests of the attention half share: devices of several kinds, arrays of random values
// with guards behind them, caches in several page layouts, comparisons.
#ifndef TESTS_ATTN_FIXTURE_H
#define TESTS_ATTN_FIXTURE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "backend/backend.h"
#include "backend/cpu/cpu_features.h"
#include "base/alloc.h"
#include "base/rng.h"

// With TESTS_CUDA: [0] is ref, the two behind it are of the cuda backend. Otherwise: [0] is ref; the first N_SAME cpu devices behind it run the best kernels, differ in threads
// only and must give the same bits; the last three run the plain, the AVX2 or NEON and the AVX-512
// kernels (or, on a machine without them, the plain ones again).
#if defined(TESTS_CUDA)
#include "cuda_staged.h"
#define N_SAME 2
#define N_DEVICES (N_SAME + 1)
#else
#define N_SAME 3
#define N_DEVICES (N_SAME + 4)
#endif

struct devices {
    struct lp_device *dev[N_DEVICES];
};

static inline void open_one(struct lp_device **dev, const struct lp_backend *backend, int n_threads,
                            const char *level, const struct lp_reserve *need) {
    struct lp_device_options options = {.n_threads = n_threads, .cpu_level = level};
    struct lp_err err = {0};
    assert_int_equal(backend->open(dev, &options, &err), LP_OK);
    assert_int_equal(backend->reserve(*dev, need, &err), LP_OK);
}

static inline void open_devices(struct devices *d, const struct lp_reserve *need) {
    open_one(&d->dev[0], &lp_backend_ref, 1, "auto", need);
#if defined(TESTS_CUDA)
    for (int i = 0; i < N_SAME; i++) open_one(&d->dev[1 + i], &cuda_staged, 1, "auto", need);
#else
    for (int i = 0; i < N_SAME; i++) open_one(&d->dev[1 + i], &lp_backend_cpu, 1 + i, "auto", need);
    open_one(&d->dev[1 + N_SAME], &lp_backend_cpu, 2, "plain", need);
    uint32_t have = lp_cpu_features_detect();
    bool avx2 = (have & LP_CPU_LEVEL_AVX2) == LP_CPU_LEVEL_AVX2, neon = have & LP_CPU_NEON;
    open_one(&d->dev[2 + N_SAME], &lp_backend_cpu, 2,
             avx2   ? "avx2"
             : neon ? "neon"
                    : "plain",
             need);
    bool avx512 = (have & LP_CPU_LEVEL_AVX512) == LP_CPU_LEVEL_AVX512;
    open_one(&d->dev[3 + N_SAME], &lp_backend_cpu, 2, avx512 ? "avx512" : "plain", need);
#endif
}

static inline void close_devices(struct devices *d) {
    for (int i = 0; i < N_DEVICES; i++) d->dev[i]->backend->close(d->dev[i]);
}

static inline void *new_array(int64_t n, size_t size) {
    void *block = lp_alloc((size_t)n, size);
    assert_non_null(block);
    return block;
}

static inline float *random_floats(struct lp_rng *rng, int64_t n, float deviation) {
    float *x = new_array(n, sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = deviation * lp_rng_normal(rng);
    return x;
}

// An output array [n_rows, stride] of which each row's first `width` values may be written: all of
// it and GUARD values behind it hold a pattern.
#define GUARD 32
#define PATTERN 0x7fa5a5a5u // a NaN that no kernel makes
static inline float *new_output(int64_t n_rows, int64_t stride) {
    float *out = new_array(n_rows * stride + GUARD, sizeof *out);
    for (int64_t i = 0; i < n_rows * stride + GUARD; i++) memcpy(&out[i], &(uint32_t){PATTERN}, 4);
    return out;
}
static inline void assert_guards(const float *out, int64_t n_rows, int64_t stride, int64_t width) {
    for (int64_t i = 0; i < n_rows * stride + GUARD; i++) {
        uint32_t bits;
        memcpy(&bits, &out[i], 4);
        bool inside = i < n_rows * stride && i % stride < width;
        if (inside == (bits == PATTERN))
            fail_msg("value %lld of row %lld was %s", (long long)(i % stride),
                     (long long)(i / stride), inside ? "not written" : "overwritten");
    }
}

// |a - b| <= bound * largest |b| of the row; NaN only where the other is NaN.
static inline void assert_within(const float *a, const float *b, int64_t n_rows, int64_t stride,
                                 int64_t width, double bound, const char *what) {
    for (int64_t r = 0; r < n_rows; r++) {
        double scale = 0;
        for (int64_t i = 0; i < width; i++)
            if (fabs((double)b[r * stride + i]) > scale) scale = fabs((double)b[r * stride + i]);
        for (int64_t i = 0; i < width; i++) {
            double x = a[r * stride + i], y = b[r * stride + i];
            if (isnan(x) && isnan(y)) continue;
            if (!(fabs(x - y) <= bound * scale))
                fail_msg("%s: row %lld value %lld is %.9g, expected %.9g (scale %.3g)", what,
                         (long long)r, (long long)i, x, y, scale);
        }
    }
}

static inline void assert_close(const float *a, const float *b, int64_t n_rows, int64_t stride,
                                int64_t width, const char *what) {
    assert_within(a, b, n_rows, stride, width, 2e-5, what);
}

static inline void assert_same_bits(const float *a, const float *b, int64_t n, const char *what) {
    for (int64_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], 4) != 0)
            fail_msg("%s: value %lld is %.9g in one run and %.9g in the other", what, (long long)i,
                     a[i], b[i]);
}

struct cache {
    struct lp_cache_view view;
    int32_t *pages;
    unsigned char *block;
};

static inline unsigned char *cache_row(const struct cache *c, int64_t pos) {
    int64_t slot = pos + c->view.slot_offset;
    return c->block + (size_t)c->pages[slot / c->view.page_tokens] * c->view.page_bytes +
           (size_t)(slot % c->view.page_tokens) * c->view.row_bytes;
}

// n rows of x [n, width] in shuffled pages, position p in slot p + slot_offset; all bytes that belong
// to no row are 0xff (NaN), and with pages of 7 the rows have a gap between them. Rounds x to the
// cache's type, so that it can serve a formula. n_tail: of lp_cache_view, where the type is F8_E4M3.
static inline struct cache new_cache_tail(struct lp_rng *rng, float *x, int64_t n, int32_t width,
                                          int32_t n_tail, lp_type type, int32_t page_tokens,
                                          int32_t slot_offset) {
    struct cache c = {0};
    if (type != LP_TYPE_F8_E4M3) n_tail = 0;
    int32_t n_pages = (int32_t)((n + slot_offset + page_tokens - 1) / page_tokens);
    int32_t n_slots = n_pages + 2;
    size_t row_bytes = 0;
    assert_true(lp_cache_row_bytes(type, width, n_tail, &row_bytes));
    if (page_tokens == 7) row_bytes += 4;
    size_t page_bytes = row_bytes * (size_t)page_tokens + 8;
    c.pages = new_array(n_slots, sizeof *c.pages);
    c.block = new_array(n_slots, page_bytes);
    memset(c.block, 0xff, (size_t)n_slots * page_bytes);
    for (int32_t i = 0; i < n_slots; i++) c.pages[i] = i;
    for (int32_t i = n_slots - 1; i > 0; i--) {
        int32_t j = (int32_t)(lp_rng_u64(rng) % (uint64_t)(i + 1)), swap = c.pages[i];
        c.pages[i] = c.pages[j];
        c.pages[j] = swap;
    }
    c.view = (struct lp_cache_view){.base = c.block,
                                    .type = type,
                                    .width = width,
                                    .page_tokens = page_tokens,
                                    .slot_offset = slot_offset,
                                    .n_tail = n_tail,
                                    .row_bytes = row_bytes,
                                    .page_bytes = page_bytes,
                                    .pages = c.pages};
    for (int64_t s = 0; s < n; s++) {
        unsigned char *row = cache_row(&c, s);
        lp_cache_row_write(&c.view, x + s * width, row);
        lp_cache_row_read(&c.view, row, x + s * width);
    }
    return c;
}
static inline struct cache new_cache_at(struct lp_rng *rng, float *x, int64_t n, int32_t width,
                                        lp_type type, int32_t page_tokens, int32_t slot_offset) {
    return new_cache_tail(rng, x, n, width, 0, type, page_tokens, slot_offset);
}
static inline struct cache new_cache(struct lp_rng *rng, float *x, int64_t n, int32_t width,
                                     lp_type type, int32_t page_tokens) {
    return new_cache_at(rng, x, n, width, type, page_tokens, 0);
}
// The same rows, byte for byte, in other pages.
static inline struct cache moved_cache(struct lp_rng *rng, const struct cache *from, int64_t n,
                                       int32_t page_tokens, int32_t slot_offset) {
    const struct lp_cache_view *v = &from->view;
    float *x = new_array(n * v->width, sizeof *x);
    struct cache c =
        new_cache_tail(rng, x, n, v->width, v->n_tail, v->type, page_tokens, slot_offset);
    size_t row_bytes = 0;
    assert_true(lp_cache_row_bytes(v->type, v->width, v->n_tail, &row_bytes));
    for (int64_t s = 0; s < n; s++) memcpy(cache_row(&c, s), cache_row(from, s), row_bytes);
    lp_free(x);
    return c;
}
static inline void free_cache(struct cache *c) {
    lp_free(c->pages);
    lp_free(c->block);
}

// For each query an ascending random selection of min(k, visible) positions, the own one always.
static inline void random_selection(struct lp_rng *rng, int64_t first_pos, int64_t n_queries,
                                    int32_t k, int32_t *ids, int32_t *counts) {
    for (int64_t q = 0; q < n_queries; q++) {
        int64_t n = first_pos + q + 1, left = n < k ? n : k, at = 0;
        counts[q] = (int32_t)left;
        for (int64_t s = 0; s < n; s++) {
            bool last = s == n - 1;
            if (last ? left > 0
                     : left > 1 && lp_rng_unit(rng) * (double)(n - 1 - s) < (double)(left - 1)) {
                ids[q * k + at++] = (int32_t)s;
                left--;
            }
        }
        assert_int_equal(at, counts[q]);
        for (; at < k; at++) ids[q * k + at] = -1;
    }
}

#endif
