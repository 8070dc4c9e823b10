// The cpu backend with one kernel that is wrong, as real kernels have been: each fault is one that
// users of other engines met. It looks like the cpu backend from outside.
#include "backend/backend.h"
#include "base/alloc.h"
#include "base/fault.h"
#include "quant/quant.h"

#include <math.h>
#include <string.h>

extern struct lp_backend lp_backend_faulty;

static lp_status open_faulty(struct lp_device **out, const struct lp_device_options *options,
                             struct lp_err *err) {
    lp_status status = lp_backend_cpu.open(out, options, err);
    if (!status) (*out)->backend = &lp_backend_faulty;
    return status;
}

static void matmul(struct lp_device *dev, const struct lp_op_matmul *op) {
    struct lp_op_matmul part = *op;
    if (LP_FAULT("matmul-last-outputs") && op->w->n_out > 64) {
        struct lp_weight w = *op->w;
        w.n_out -= 8;
        part.w = &w;
        lp_backend_cpu.matmul(dev, &part);
        for (int64_t t = 0; t < op->n_rows; t++) // what an earlier call left there: nothing
            if (!op->accumulate) memset(op->y + t * op->y_stride + w.n_out, 0, 8 * sizeof(float));
        return;
    }
    lp_backend_cpu.matmul(dev, op);
    if (LP_FAULT("matmul-odd-rows") && op->n_rows > 32 && op->n_rows % 32 != 0)
        for (int64_t t = op->n_rows / 32 * 32; t < op->n_rows; t++)
            for (int64_t i = 0; i < op->w->n_out; i += 2) op->y[t * op->y_stride + i] *= 0.5f;
}

static void head_matmul(struct lp_device *dev, const struct lp_op_head_matmul *op) {
    lp_backend_cpu.head_matmul(dev, op);
    if (!LP_FAULT("head-matmul-last-head")) return;
    int64_t width = op->transposed ? op->w->n_in : op->w->n_out;
    for (int64_t t = 0; t < op->n_rows; t++)
        memcpy(op->y + t * op->y_row_stride + (op->w->n_mats - 1) * op->y_head_stride,
               op->y + t * op->y_row_stride, (size_t)width * sizeof(float));
}

static void embed(struct lp_device *dev, const struct lp_op_embed *op) {
    lp_backend_cpu.embed(dev, op);
    if (!LP_FAULT("embed-next-row")) return;
    for (int64_t t = 0; t < op->n_rows; t++) {
        int32_t id = op->ids[t] + 1;
        struct lp_op_embed one = *op;
        one.ids = &id;
        one.out = op->out + t * op->out_stride;
        one.n_rows = 1;
        if (op->ids[t] >= 1000 && id < op->table->n_out) lp_backend_cpu.embed(dev, &one);
    }
}

static void rms_norm(struct lp_device *dev, const struct lp_op_rms_norm *op) {
    struct lp_op_rms_norm other = *op;
    if (LP_FAULT("rms-norm-eps")) other.eps = 0.1f;
    lp_backend_cpu.rms_norm(dev, &other);
}

static void layer_norm(struct lp_device *dev, const struct lp_op_layer_norm *op) {
    struct lp_op_layer_norm other = *op;
    float *zero = lp_alloc((size_t)op->width, sizeof *zero);
    if (LP_FAULT("layer-norm-no-bias")) other.b = zero;
    lp_backend_cpu.layer_norm(dev, &other);
    lp_free(zero);
}

static void rope(struct lp_device *dev, const struct lp_op_rope *op) {
    struct lp_op_rope other = *op;
    int32_t *positions = lp_alloc((size_t)op->n_tokens, sizeof *positions);
    if (LP_FAULT("rope-kernel-pairing"))
        other.pairing = op->pairing == LP_ROPE_ADJACENT ? LP_ROPE_HALF : LP_ROPE_ADJACENT;
    for (int64_t t = 0; t < op->n_tokens; t++)
        positions[t] = op->positions[t] + (op->positions[t] >= 64);
    if (LP_FAULT("rope-kernel-position")) other.positions = positions;
    lp_backend_cpu.rope(dev, &other);
    lp_free(positions);
}

static float through_half(float x, float scale) {
    return lp_f16_to_f32(lp_f32_to_f16(x * scale)) / scale;
}

static void silu_mul(struct lp_device *dev, const struct lp_op_silu_mul *op) {
    lp_backend_cpu.silu_mul(dev, op);
    for (int64_t t = 0; LP_FAULT("silu-half") && t < op->n_rows; t++)
        for (int32_t i = 0; i < op->width; i++)
            op->y[t * op->stride + i] = through_half(op->y[t * op->stride + i], 4096);
}

static void cache_write(struct lp_device *dev, const struct lp_op_cache_write *op) {
    struct lp_op_cache_write other = *op;
    if (LP_FAULT("cache-write-last") && op->n_rows > 1) other.n_rows--;
    lp_backend_cpu.cache_write(dev, &other);
}

static void mla_absorbed(struct lp_device *dev, const struct lp_op_mla_absorbed *op) {
    struct lp_op_mla_absorbed other = *op;
    int64_t row = (int64_t)op->n_heads * op->latent;
    float *q = NULL;
    if (LP_FAULT("absorbed-scale")) other.scale = 1 / sqrtf((float)(op->latent + op->rope));
    if (LP_FAULT("absorbed-newest") && op->visible.n_queries == 1 && op->visible.first_pos > 0 &&
        !op->visible.ids)
        other.visible.first_pos--;
    if (LP_FAULT("absorbed-half")) {
        q = lp_alloc((size_t)(row * op->visible.n_queries), sizeof *q);
        for (int64_t t = 0; t < op->visible.n_queries; t++)
            for (int64_t i = 0; i < row; i++)
                q[t * row + i] = through_half(op->q_latent[t * op->q_latent_stride + i], 16384);
        other.q_latent = q;
        other.q_latent_stride = row;
    }
    lp_backend_cpu.mla_absorbed(dev, &other);
    lp_free(q);
}

static void mla_expanded(struct lp_device *dev, const struct lp_op_mla_expanded *op) {
    struct lp_op_mla_expanded other = *op;
    bool earlier =
        LP_FAULT("expanded-newest") || (LP_FAULT("expanded-chunk") && op->visible.first_pos > 0);
    if (earlier && !op->visible.ids && op->visible.n_queries > 1) {
        if (op->visible.first_pos > 0)
            other.visible.first_pos--;
        else { // the first query has no earlier key
            other.visible.n_queries--;
            other.q += op->q_stride;
            other.out += op->out_stride;
            struct lp_op_mla_expanded first = *op;
            first.visible.n_queries = 1;
            lp_backend_cpu.mla_expanded(dev, &first);
        }
    }
    lp_backend_cpu.mla_expanded(dev, &other);
    for (int64_t t = 0; LP_FAULT("expanded-last-head") && t < op->visible.n_queries; t++)
        memcpy(op->out + t * op->out_stride + (int64_t)(op->n_heads - 1) * op->v_dim,
               op->out + t * op->out_stride, (size_t)op->v_dim * sizeof(float));
}

static void index_select(struct lp_device *dev, const struct lp_op_index_select *op) {
    lp_backend_cpu.index_select(dev, op);
    for (int64_t i = 0; i < op->n_queries; i++) {
        if (op->first_pos + i + 1 <= op->top_k) continue; // all keys are kept
        if (LP_FAULT("select-drops-best") && op->counts[i] > 1) op->counts[i]--;
        if (LP_FAULT("select-half") && op->counts[i] > 1) op->counts[i] /= 2;
    }
}

static void router(struct lp_device *dev, const struct lp_op_router *op) {
    struct lp_op_router other = *op;
    if (LP_FAULT("router-no-bias")) other.bias = NULL;
    if (LP_FAULT("router-softmax")) other.gating = LP_GATING_SOFTMAX;
    lp_backend_cpu.router(dev, &other);
}

static void experts(struct lp_device *dev, const struct lp_op_experts *op) {
    struct lp_op_experts other = *op;
    size_t n = (size_t)op->n_rows * (size_t)op->n_used;
    float *weights = lp_alloc(n, sizeof *weights);
    for (size_t i = 0; i < n; i++) {
        size_t row = i / (size_t)op->n_used * (size_t)op->n_used, j = i - row;
        bool last = j + 1 == (size_t)op->n_used;
        weights[i] = LP_FAULT("experts-weights-order")
                         ? op->weights[row + (size_t)op->n_used - 1 - j]
                     : LP_FAULT("experts-lose-last") && last ? 0
                                                             : op->weights[i];
    }
    other.weights = weights;
    lp_backend_cpu.experts(dev, &other);
    lp_free(weights);
}

static lp_status failed(struct lp_device *dev, struct lp_err *err) {
    static int n_asked; // once a step
    (void)dev;
    return LP_FAULT("device-breaks") && ++n_asked > 30
               ? lp_err_set(err, LP_STATUS_IO, "the device broke")
               : LP_OK;
}

struct lp_backend lp_backend_faulty;

// In the place of the cpu backend (backend/backend.c).
const struct lp_backend *lp_faulty_backend(void) {
    if (lp_backend_faulty.name) return &lp_backend_faulty;
    lp_backend_faulty = lp_backend_cpu;
    lp_backend_faulty.open = open_faulty;
    lp_backend_faulty.failed = failed;
    lp_backend_faulty.matmul = matmul;
    lp_backend_faulty.head_matmul = head_matmul;
    lp_backend_faulty.embed = embed;
    lp_backend_faulty.rms_norm = rms_norm;
    lp_backend_faulty.layer_norm = layer_norm;
    lp_backend_faulty.rope = rope;
    lp_backend_faulty.silu_mul = silu_mul;
    lp_backend_faulty.cache_write = cache_write;
    lp_backend_faulty.mla_absorbed = mla_absorbed;
    lp_backend_faulty.mla_expanded = mla_expanded;
    lp_backend_faulty.index_select = index_select;
    lp_backend_faulty.router = router;
    lp_backend_faulty.experts = experts;
    return &lp_backend_faulty;
}
