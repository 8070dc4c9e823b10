// What the host wants to know of rows of logits, as defined.
#include "backend/ref/ref.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

void lp_ref_scan_rows(struct lp_device *dev, const struct lp_op_scan_rows *op) {
    (void)dev;
    for (int64_t t = 0; t < op->n_rows; t++) {
        const float *x = op->x + t * op->x_stride;
        int64_t largest = -1;
        op->bad[t] = 0;
        for (int64_t i = 0; i < op->width; i++) {
            if (!isfinite(x[i])) op->bad[t] = 1;
            if ((op->skip && op->skip[i]) || (largest >= 0 && !(x[i] > x[largest]))) continue;
            largest = i;
        }
        if (op->largest) op->largest[t] = (int32_t)largest;
    }
}

// Whether value b goes before value a: larger, or equal and nearer the front.
static bool goes_before(const float *x, int32_t b, int32_t a) {
    return x[b] > x[a] || (x[b] == x[a] && b < a);
}

// ids[n] is a heap whose root is the last of the values that are kept.
static void sift_down(const float *x, int32_t *ids, int32_t n) {
    for (int32_t at = 0, child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && goes_before(x, ids[child], ids[child + 1])) child++;
        if (goes_before(x, ids[child], ids[at])) return;
        const int32_t swap = ids[at];
        ids[at] = ids[child];
        ids[child] = swap;
    }
}

static void sift_up(const float *x, int32_t *ids, int32_t at) {
    while (at > 0 && goes_before(x, ids[(at - 1) / 2], ids[at])) {
        const int32_t parent = (at - 1) / 2, swap = ids[at];
        ids[at] = ids[parent];
        ids[parent] = swap;
        at = parent;
    }
}

static int by_place(const void *a, const void *b) {
    return *(const int32_t *)a < *(const int32_t *)b ? -1 : 1;
}

static void top_of(const float *x, int64_t width, const uint8_t *skip, double scale,
                   struct lp_top_row *out) {
    int32_t n = 0, largest = -1;
    for (int32_t i = 0; i < width; i++) {
        if (skip && skip[i]) continue;
        if (largest < 0 || x[i] > x[largest]) largest = i;
        if (n < LP_TOP_VALUES) {
            out->ids[n] = i;
            sift_up(x, out->ids, n++);
        } else if (goes_before(x, i, out->ids[0])) {
            out->ids[0] = i;
            sift_down(x, out->ids, n);
        }
    }
    out->sum = 0;
    for (int64_t i = 0; i < width; i++)
        if (!(skip && skip[i])) out->sum += exp(((double)x[i] - x[largest]) * scale);
    qsort(out->ids, (size_t)n, sizeof *out->ids, by_place);
    for (int32_t i = 0; i < n; i++) out->values[i] = x[out->ids[i]];
    out->n = n;
}

void lp_ref_top_rows(struct lp_device *dev, const struct lp_op_top_rows *op) {
    (void)dev;
    for (int64_t t = 0; t < op->n_rows; t++)
        if (op->scales[t] > 0)
            top_of(op->x + t * op->x_stride, op->width, op->skip, op->scales[t], &op->rows[t]);
}
