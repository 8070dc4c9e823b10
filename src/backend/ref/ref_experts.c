// The routed experts: each a SwiGLU FFN, summed with the router's weights.
#include "backend/ref/ref.h"

#include <math.h>
#include <string.h>

// hidden[t] = silu(gate x[t]) * (up x[t]) for the rows that chose expert e, then their down product
// into expert_out[t][j].
static void run_expert(struct lp_ref_device *dev, const struct lp_op_experts *op, int32_t e) {
    int64_t width = op->gate->n_out, n_embd = op->down->n_out, n_pairs = op->n_rows * op->n_used;
    for (int64_t r = 0; r < width; r++) {
        lp_ref_weight_row(op->gate, e, r, dev->row);
        lp_ref_weight_row(op->up, e, r, dev->row2);
        for (int64_t p = 0; p < n_pairs; p++) {
            if (op->ids[p] - op->first_expert != e) continue;
            const float *x = op->x + p / op->n_used * op->x_stride;
            double gate = lp_ref_dot(dev->row, x, op->gate->n_in) * lp_weight_scale(op->gate, e);
            double up = lp_ref_dot(dev->row2, x, op->up->n_in) * lp_weight_scale(op->up, e);
            dev->hidden[p / op->n_used * width + r] = (float)(gate / (1.0 + exp(-gate)) * up);
        }
    }
    for (int64_t r = 0; r < n_embd; r++) {
        lp_ref_weight_row(op->down, e, r, dev->row);
        for (int64_t p = 0; p < n_pairs; p++)
            if (op->ids[p] - op->first_expert == e)
                dev->expert_out[p * n_embd + r] =
                    (float)(lp_ref_dot(dev->row, dev->hidden + p / op->n_used * width, width) *
                            lp_weight_scale(op->down, e));
    }
}

static bool chosen(const struct lp_op_experts *op, int32_t e) {
    for (int64_t p = 0; p < op->n_rows * op->n_used; p++)
        if (op->ids[p] - op->first_expert == e) return true;
    return false;
}

static bool is_here(const struct lp_op_experts *op, int32_t id) {
    return id >= op->first_expert && id - op->first_expert < op->gate->n_mats;
}

void lp_ref_experts(struct lp_device *device, const struct lp_op_experts *op) {
    struct lp_ref_device *dev = (struct lp_ref_device *)device;
    int64_t n_embd = op->down->n_out;
    for (int32_t e = 0; e < op->gate->n_mats; e++) {
        if (!chosen(op, e)) continue;
        if (op->source) op->source->wait(op->source->user, e);
        run_expert(dev, op, e);
    }
    for (int64_t t = 0; t < op->n_rows; t++)
        for (int64_t r = 0; r < n_embd; r++) {
            double sum = 0;
            for (int32_t j = 0; j < op->n_used; j++)
                if (is_here(op, op->ids[t * op->n_used + j]))
                    sum += (double)op->weights[t * op->n_used + j] *
                           dev->expert_out[(t * op->n_used + j) * n_embd + r];
            op->y[t * op->y_stride + r] += (float)sum;
        }
}
