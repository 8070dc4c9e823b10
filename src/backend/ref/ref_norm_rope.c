// Norms, rotary embedding and the elementwise operations, as defined.
#include "backend/ref/ref.h"

#include <math.h>

void lp_ref_rms_norm(struct lp_device *dev, const struct lp_op_rms_norm *op) {
    (void)dev;
    for (int64_t t = 0; t < op->n_rows; t++) {
        const float *x = op->x + t * op->x_stride;
        float *y = op->y + t * op->y_stride;
        double sum = 0;
        for (int32_t i = 0; i < op->width; i++) sum += (double)x[i] * x[i];
        double inverse = 1.0 / sqrt(sum / op->width + op->eps);
        for (int32_t i = 0; i < op->width; i++)
            y[i] = (float)(x[i] * inverse * (op->w ? op->w[i] : 1.0f));
    }
}

void lp_ref_layer_norm(struct lp_device *dev, const struct lp_op_layer_norm *op) {
    (void)dev;
    for (int64_t t = 0; t < op->n_rows; t++) {
        const float *x = op->x + t * op->x_stride;
        float *y = op->y + t * op->y_stride;
        double mean = 0, variance = 0;
        for (int32_t i = 0; i < op->width; i++) mean += x[i];
        mean /= op->width;
        for (int32_t i = 0; i < op->width; i++) variance += (x[i] - mean) * (x[i] - mean);
        variance /= op->width;
        double inverse = 1.0 / sqrt(variance + op->eps);
        for (int32_t i = 0; i < op->width; i++)
            y[i] = (float)((x[i] - mean) * inverse * op->w[i] + op->b[i]);
    }
}

static void rotate(float *x, const struct lp_op_rope *op, int32_t position) {
    int32_t half = op->width / 2;
    for (int32_t i = 0; i < half; i++) {
        // The reference implementations round position * frequency to float32, so this does too.
        float angle = (float)position * op->inv_freq[i];
        double c = cos((double)angle) * op->magnitude, s = sin((double)angle) * op->magnitude;
        float *a = op->pairing == LP_ROPE_ADJACENT ? x + 2 * i : x + i;
        float *b = op->pairing == LP_ROPE_ADJACENT ? x + 2 * i + 1 : x + i + half;
        double a0 = *a, b0 = *b;
        *a = (float)(a0 * c - b0 * s);
        *b = (float)(a0 * s + b0 * c);
    }
}

void lp_ref_rope(struct lp_device *dev, const struct lp_op_rope *op) {
    (void)dev;
    for (int64_t t = 0; t < op->n_tokens; t++)
        for (int32_t h = 0; h < op->n_heads; h++)
            rotate(op->x + t * op->token_stride + h * op->head_stride, op, op->positions[t]);
}

void lp_ref_add(struct lp_device *dev, const struct lp_op_add *op) {
    (void)dev;
    for (int64_t t = 0; t < op->n_rows; t++)
        for (int32_t i = 0; i < op->width; i++)
            op->y[t * op->y_stride + i] += op->x[t * op->x_stride + i];
}

void lp_ref_silu_mul(struct lp_device *dev, const struct lp_op_silu_mul *op) {
    (void)dev;
    for (int64_t t = 0; t < op->n_rows; t++)
        for (int32_t i = 0; i < op->width; i++) {
            int64_t at = t * op->stride + i;
            double gate = op->gate[at];
            op->y[at] = (float)(gate / (1.0 + exp(-gate)) * op->up[at]);
        }
}
