// Embedding rows and matrix products: every weight row is dequantised exactly, every sum is double.
#include "backend/ref/ref.h"

void lp_ref_weight_row(const struct lp_weight *w, int64_t m, int64_t r, float *out) {
    const uint8_t *row = lp_weight_mat(w, m) + (size_t)r * w->row_bytes;
    lp_type_info(w->type)->dequant(row, out, (size_t)w->n_in);
}

void lp_ref_embed(struct lp_device *dev, const struct lp_op_embed *op) {
    (void)dev;
    const float factor = lp_weight_scale(op->table, 0);
    for (int64_t t = 0; t < op->n_rows; t++) {
        float *out = op->out + t * op->out_stride;
        lp_ref_weight_row(op->table, 0, op->ids[t], out);
        for (int64_t i = 0; i < op->table->n_in; i++) out[i] *= factor;
    }
}

void lp_ref_matmul(struct lp_device *device, const struct lp_op_matmul *op) {
    struct lp_ref_device *dev = (struct lp_ref_device *)device;
    for (int64_t r = 0; r < op->w->n_out; r++) {
        lp_ref_weight_row(op->w, 0, r, dev->row);
        for (int64_t t = 0; t < op->n_rows; t++) {
            double sum = lp_ref_dot(dev->row, op->x + t * op->x_stride, op->w->n_in);
            sum *= lp_weight_scale(op->w, 0);
            if (op->bias) sum += op->bias[r];
            float *y = op->y + t * op->y_stride + r;
            *y = (float)(op->accumulate ? *y + sum : sum);
        }
    }
}

void lp_ref_head_matmul(struct lp_device *device, const struct lp_op_head_matmul *op) {
    struct lp_ref_device *dev = (struct lp_ref_device *)device;
    const struct lp_weight *w = op->w;
    for (int64_t h = 0; h < w->n_mats; h++)
        for (int64_t t = 0; t < op->n_rows; t++) {
            const float *x = op->x + t * op->x_row_stride + h * op->x_head_stride;
            float *y = op->y + t * op->y_row_stride + h * op->y_head_stride;
            if (op->transposed)
                for (int64_t j = 0; j < w->n_in; j++) dev->sum[j] = 0;
            for (int64_t r = 0; r < w->n_out; r++) {
                lp_ref_weight_row(w, h, r, dev->row);
                if (!op->transposed)
                    y[r] = (float)(lp_ref_dot(dev->row, x, w->n_in) * lp_weight_scale(w, h));
                else
                    for (int64_t j = 0; j < w->n_in; j++) dev->sum[j] += (double)x[r] * dev->row[j];
            }
            if (op->transposed)
                for (int64_t j = 0; j < w->n_in; j++)
                    y[j] = (float)(dev->sum[j] * lp_weight_scale(w, h));
        }
}
