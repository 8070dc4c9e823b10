// A weight of random blocks in host memory, for the tests of the cuda backend alone.
#ifndef TESTS_KERNELS_CUDA_RANDOM_WEIGHT_H
#define TESTS_KERNELS_CUDA_RANDOM_WEIGHT_H

#include "../attn_cases.h"
#include "quant/random_blocks.h"

// any_bytes: scales of NaN and infinity too; else values of some 0.02. The caller frees its data.
static inline struct lp_weight random_weight(lp_type type, int64_t n_in, int64_t n_out,
                                             int64_t n_mats, bool any_bytes, struct lp_rng *rng) {
    uint64_t row_bytes;
    assert_true(lp_type_row_bytes(type, (uint64_t)n_in, &row_bytes));
    size_t n = (size_t)row_bytes * (size_t)(n_out * n_mats);
    uint8_t *data = new_array((int64_t)n, 1);
    for (size_t i = 0; any_bytes && i < n; i++) data[i] = (uint8_t)lp_rng_u64(rng);
    if (!any_bytes)
        assert_true(lp_random_blocks(type, 0.02f, rng, data, (size_t)(n_in * n_out * n_mats)));
    return (struct lp_weight){.data = data,
                              .type = type,
                              .n_in = n_in,
                              .n_out = n_out,
                              .n_mats = n_mats,
                              .row_bytes = (size_t)row_bytes,
                              .mat_bytes = (size_t)row_bytes * (size_t)n_out,
                              .name = {"test", 4}};
}

#endif
