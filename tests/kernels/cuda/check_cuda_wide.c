// The cuda backend's kernels for many rows, which it takes where results may depend on their number
// (lp_backend.fix_results): matmul, head_matmul and experts of every such type against ref, whose sums
// are in double. Odd sizes, factors, bias and accumulation, rows of any magnitude, non-finite rows,
// nothing written beside the result; and that they are not taken while results are fixed.
// Prints figure,NAME,LARGEST DIFFERENCE,BOUND: relative to the row's largest value.
#include "../cuda_staged.h"
#include "../mat_fixture.h"
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/cuda_wide.h"

// Float16 on both sides. Blocks of any bytes have minimums that are larger than their values, so their
// rounding weighs more than in a model.
#define BOUND 4e-3

#define OF_LIST(stem, type) LP_TYPE_##type,
static const lp_type types[] = {LP_CUDA_WIDE_TYPES(OF_LIST)};
#define N_TYPES ((int)(sizeof types / sizeof types[0]))

static const struct lp_reserve need = {.n_rows = 200,
                                       .max_width = 2304,
                                       .n_experts = 5,
                                       .n_used = 2,
                                       .expert_width = 512,
                                       .n_embd = 768,
                                       .n_heads = 3,
                                       .latent = 512,
                                       .nope = 512,
                                       .v_dim = 512};

static struct lp_device *open_free(void) {
    struct lp_device *dev = open_cpu(1, "auto", &need);
    dev->backend->fix_results(dev, false);
    lp_cuda_of(cuda_staged_real(dev))->wide_blocks = 1; // small products too
    return dev;
}

static void figure(const char *op, lp_type type, double got) {
    printf("figure,%s of many rows %s,%.3g,%.3g\n", op, lp_type_info((uint32_t)type)->name, got,
           BOUND);
    assert_true(got <= BOUND);
}

static double one_matmul(struct lp_device *dev, struct lp_device *ref, lp_type type, int64_t n_in,
                         int64_t n_out, int64_t n_rows, float size, struct lp_rng *rng) {
    struct lp_weight w = new_weight(type, n_in, n_out, 1, -1, rng);
    if (n_out % 2) scatter(&w, rng);
    const int64_t x_stride = n_in + 4 * (n_out % 3), y_stride = n_out + 2,
                  n_y = (n_rows + 1) * y_stride;
    float *x = random_floats(rng, n_rows * x_stride), *bias = random_floats(rng, n_out);
    float *got = new_floats(n_y, GUARD), *want = new_floats(n_y, GUARD);
    for (int64_t i = 0; i < n_rows * x_stride; i++) x[i] *= size * (i / x_stride % 3 ? 1 : 1e-3f);
    for (int64_t i = 0; i < n_out; i++) bias[i] *= size;
    struct lp_op_matmul op = {.w = &w,
                              .x = x,
                              .x_stride = x_stride,
                              .bias = n_out % 4 ? bias : NULL,
                              .y = got,
                              .y_stride = y_stride,
                              .n_rows = n_rows,
                              .accumulate = n_rows % 2};
    for (int64_t i = 0; op.accumulate && i < n_rows * n_out; i++)
        got[i / n_out * y_stride + i % n_out] = size * lp_rng_normal(rng);
    memcpy(want, got, (size_t)n_y * sizeof *got);
    dev->backend->matmul(dev, &op);
    op.y = want;
    ref->backend->matmul(ref, &op);
    for (int64_t i = 0; i < n_y; i++)
        if (i / y_stride >= n_rows || i % y_stride >= n_out) assert_true(got[i] == GUARD);
    const double off = worst(got, want, n_rows, y_stride, n_out);
    free_weight(&w);
    lp_free(x), lp_free(bias), lp_free(got), lp_free(want);
    return off;
}

static void matmul_agrees(void **state) {
    (void)state;
    static const int64_t n_outs[] = {64, 257, 130, 300}, n_rows[] = {64, 97, 129, 300};
    struct lp_device *dev = open_free(), *ref = open_ref(&need);
    struct lp_rng rng;
    lp_rng_init(&rng, 41);
    for (int i = 0; i < N_TYPES; i++) {
        double most = 0;
        for (int k = 0; k < 4; k++) {
            const int64_t n_in = k == 0 ? 256 : k == 1 ? 2304 : 1024;
            const float size = k == 2 ? 0x1p-120f : k == 3 ? 0x1p90f : 1.0f;
            most = fmax(most, one_matmul(dev, ref, types[i], n_in, n_outs[(i + k) % 4],
                                         n_rows[(i + 2 * k) % 4], size, &rng));
        }
        figure("matmul", types[i], most);
    }
    dev->backend->close(dev);
    ref->backend->close(ref);
}

static void head_matmul_agrees(void **state) {
    (void)state;
    enum { N_IN = 512, N_OUT = 70, HEADS = 3, ROWS = 77 };
    struct lp_device *dev = open_free(), *ref = open_ref(&need);
    struct lp_rng rng;
    lp_rng_init(&rng, 42);
    for (int i = 0; i < N_TYPES; i++) {
        struct lp_weight w = new_weight(types[i], N_IN, N_OUT, HEADS, -1, &rng);
        scatter(&w, &rng);
        float *x = random_floats(&rng, ROWS * HEADS * N_IN),
              *got = new_floats(ROWS * HEADS * N_OUT, GUARD),
              *want = new_floats(ROWS * HEADS * N_OUT, GUARD);
        struct lp_op_head_matmul op = {.w = &w,
                                       .x = x,
                                       .x_row_stride = HEADS * N_IN,
                                       .x_head_stride = N_IN,
                                       .y = got,
                                       .y_row_stride = HEADS * N_OUT,
                                       .y_head_stride = N_OUT,
                                       .n_rows = ROWS};
        dev->backend->head_matmul(dev, &op);
        op.y = want;
        ref->backend->head_matmul(ref, &op);
        figure("head_matmul", types[i], worst(got, want, ROWS * HEADS, N_OUT, N_OUT));
        free_weight(&w);
        lp_free(x), lp_free(got), lp_free(want);
    }
    dev->backend->close(dev);
    ref->backend->close(ref);
}

// All experts of an operation, or those from `first` on, which ranks may have alone: against ref.
static double off_in_range(struct lp_device *dev, struct lp_device *ref,
                           const struct lp_op_experts *all, int32_t first, int32_t n) {
    const struct lp_weight gate = lp_weight_part(all->gate, first, n, 0, all->gate->n_out),
                           up = lp_weight_part(all->up, first, n, 0, all->up->n_out),
                           down = lp_weight_part(all->down, first, n, 0, all->down->n_out);
    const int64_t width = down.n_out;
    float *got = new_floats(all->n_rows * width, 0.25f),
          *want = new_floats(all->n_rows * width, 0.25f);
    struct lp_op_experts op = *all;
    op.gate = &gate;
    op.up = &up;
    op.down = &down;
    op.first_expert = first;
    op.n_experts = (int32_t)all->gate->n_mats;
    op.y = got;
    dev->backend->experts(dev, &op);
    op.y = want;
    ref->backend->experts(ref, &op);
    const double off = worst(got, want, all->n_rows, width, width);
    lp_free(got), lp_free(want);
    return off;
}

static void experts_agree(void **state) {
    (void)state;
    enum { N_EMBD = 768, WIDTH = 512, EXPERTS = 5, USED = 2, ROWS = 190 };
    struct lp_device *dev = open_free(), *ref = open_ref(&need);
    struct lp_rng rng;
    lp_rng_init(&rng, 43);
    for (int i = 0; i < N_TYPES; i++) {
        struct lp_weight stacked = new_weight(types[i], N_EMBD, 2 * WIDTH, EXPERTS, -1, &rng),
                         down =
                             new_weight(types[(i + 2) % N_TYPES], WIDTH, N_EMBD, EXPERTS, -1, &rng);
        scatter(&stacked, &rng);
        struct lp_weight gate = lp_weight_part(&stacked, 0, EXPERTS, 0, WIDTH),
                         up = lp_weight_part(&stacked, 0, EXPERTS, WIDTH, WIDTH);
        float *x = random_floats(&rng, ROWS * N_EMBD), *weights = new_floats(ROWS * USED, 0);
        int32_t ids[ROWS * USED];
        for (int k = 0; k < ROWS * USED; k++) { // expert 4 seldom, expert 0 by most rows
            weights[k] = (float)lp_rng_unit(&rng);
            ids[k] = k % USED == 0 ? (k % 5 ? 0 : 1) : k == 1 ? 4 : 2 + (int)(lp_rng_u64(&rng) % 2);
        }
        struct lp_op_experts op = {.gate = &gate,
                                   .up = &up,
                                   .down = &down,
                                   .x = x,
                                   .x_stride = N_EMBD,
                                   .n_rows = ROWS,
                                   .ids = ids,
                                   .weights = weights,
                                   .n_used = USED,
                                   .y_stride = N_EMBD};
        figure("experts", types[i], off_in_range(dev, ref, &op, 0, EXPERTS));
        if (i % 4 == 0)
            figure("some experts", types[i],
                   fmax(off_in_range(dev, ref, &op, 0, 2), off_in_range(dev, ref, &op, 2, 3)));
        free_weight(&stacked), free_weight(&down);
        lp_free(x), lp_free(weights);
    }
    dev->backend->close(dev);
    ref->backend->close(ref);
}

static void non_finite_rows_stay_alone(void **state) {
    (void)state;
    enum { N_IN = 512, N_OUT = 70, ROWS = 130 };
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    struct lp_device *dev = open_free();
    struct lp_rng rng;
    lp_rng_init(&rng, 44);
    for (int i = 0; i < N_TYPES; i++) {
        struct lp_weight w = new_weight(types[i], N_IN, N_OUT, 1, -1, &rng);
        float *x = random_floats(&rng, ROWS * N_IN), *y = new_floats(ROWS * N_OUT, 0);
        for (int k = 0; k < 3; k++) x[(20 + 50 * k) * N_IN + 7 * k] = bad[k];
        struct lp_op_matmul op = {
            .w = &w, .x = x, .x_stride = N_IN, .y = y, .y_stride = N_OUT, .n_rows = ROWS};
        dev->backend->matmul(dev, &op);
        for (int64_t t = 0; t < ROWS; t++)
            for (int64_t r = 0; r < N_OUT; r++)
                assert_int_equal(!isfinite(y[t * N_OUT + r]), t == 20 || t == 70 || t == 120);
        free_weight(&w);
        lp_free(x), lp_free(y);
    }
    dev->backend->close(dev);
}

// Fixed, 130 rows have the bits of the last of them alone; free, they had others.
static void fixed_results_are_those_of_one_row(void **state) {
    (void)state;
    enum { N_IN = 512, N_OUT = 70, ROWS = 130 };
    struct lp_device *dev = open_free();
    struct lp_rng rng;
    lp_rng_init(&rng, 45);
    struct lp_weight w = new_weight(LP_TYPE_Q4_K, N_IN, N_OUT, 1, -1, &rng);
    float *x = random_floats(&rng, ROWS * N_IN), *y = new_floats(ROWS * N_OUT, 0), alone[N_OUT];
    for (int fixed = 0; fixed < 2; fixed++) {
        struct lp_op_matmul op = {
            .w = &w, .x = x, .x_stride = N_IN, .y = y, .y_stride = N_OUT, .n_rows = ROWS};
        dev->backend->fix_results(dev, fixed);
        dev->backend->matmul(dev, &op);
        op.x = x + (ROWS - 1) * N_IN;
        op.y = alone;
        op.n_rows = 1;
        dev->backend->matmul(dev, &op);
        const bool same = memcmp(alone, y + (ROWS - 1) * N_OUT, sizeof alone) == 0;
        if (fixed) assert_true(same);
        if (!same) print_message("many rows: other bits, as they may\n");
    }
    free_weight(&w);
    lp_free(x), lp_free(y);
    dev->backend->close(dev);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matmul_agrees),
        cmocka_unit_test(head_matmul_agrees),
        cmocka_unit_test(experts_agree),
        cmocka_unit_test(non_finite_rows_stay_alone),
        cmocka_unit_test(fixed_results_are_those_of_one_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
