// Packing of weights: block by block, by all threads.
#include <stdatomic.h>

#include "backend/cpu/cpu_matmul.h"

struct pack_job {
    const struct lp_cpu_device *dev;
    const struct lp_weight *w;
    uint8_t *to;
    int64_t n_blocks; // of a matrix
    _Atomic int64_t next;
};

static int64_t blocks_of(const struct lp_weight *w) {
    return (w->n_out + LP_MAT_ROWS - 1) / LP_MAT_ROWS;
}

static void pack_worker(void *job_, int worker, int n_workers) {
    (void)worker, (void)n_workers;
    struct pack_job *job = job_;
    const struct lp_weight *w = job->w;
    const struct lp_cpu_mat_kernel *kernel = job->dev->mat_kernels[w->type];
    const size_t block_bytes = kernel->packed_bytes(w->n_in);
    for (;;) {
        int64_t item = lp_cpu_take(&job->next);
        if (item >= w->n_mats * job->n_blocks) break;
        const int64_t row = item % job->n_blocks * LP_MAT_ROWS;
        const int64_t n = w->n_out - row < LP_MAT_ROWS ? w->n_out - row : LP_MAT_ROWS;
        kernel->pack(lp_weight_mat(w, item / job->n_blocks) + (size_t)row * w->row_bytes,
                     w->row_bytes, (int)n, w->n_in, job->to + (size_t)item * block_bytes);
    }
}

size_t lp_cpu_packed_bytes(const struct lp_device *base, const struct lp_weight *w) {
    const struct lp_cpu_device *dev = (const struct lp_cpu_device *)base;
    const struct lp_cpu_mat_kernel *kernel = dev->mat_kernels[w->type];
    return kernel->packed_bytes ? (size_t)blocks_of(w) * kernel->packed_bytes(w->n_in) : 0;
}

void lp_cpu_pack(struct lp_device *base, const struct lp_weight *w, uint8_t *to) {
    struct lp_cpu_device *dev = lp_cpu_device(base);
    struct pack_job job = {.dev = dev, .w = w, .to = to, .n_blocks = blocks_of(w)};
    lp_cpu_run(dev, w->n_mats * w->n_out * w->n_in, pack_worker, &job);
}
