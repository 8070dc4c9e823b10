// matmul and embed of the cpu backend: every weight type and level against double precision,
// extreme blocks, bits independent of rows and threads, non-finite rows, nothing written beside the
// result.
#include "mat_fixture.h"

#define MAX_ROWS 65
#define BOUND 1e-5

// The first cuts calls of more than 40 rows, the second none.
static const struct lp_reserve need = {.n_rows = 40, .max_width = 4200};
static const struct lp_reserve wide = {.n_rows = MAX_ROWS, .max_width = 4200};

#if defined(__aarch64__)
#define FIRST_LEVEL "neon" // above the plain one
#else
#define FIRST_LEVEL "avx2"
#endif

struct shape {
    int64_t n_in, n_out, n_rows;
};

static bool has_level(const char *level) {
    struct lp_device *dev = NULL;
    struct lp_device_options options = {.n_threads = 1, .cpu_level = level};
    if (ONE_LEVEL && !EMULATED) return false;
    if (lp_backend_cpu.open(&dev, &options, NULL) != LP_OK) return false;
    lp_backend_cpu.close(dev);
    return true;
}

// Inner sizes for a type: one block, some odd number of them, more than one chunk.
static int64_t pick_n_in(const struct lp_type_info *info, int which) {
    static const int64_t floats[] = {1, 7, 8, 33, 520, 1037};
    static const int64_t by_32[] = {32, 96, 160, 2048, 2080, 4128};
    static const int64_t by_256[] = {256, 512, 768, 2048, 2304, 4096};
    int64_t values = info->block_values;
    const int64_t *list = values == 1 ? floats : values == 32 ? by_32 : by_256;
    if (which == 0) return values;
    return list[which] / values * values;
}

static void check_close(const struct lp_device *dev, const struct lp_op_matmul *op,
                        const float *before, int64_t t, int64_t r) {
    struct expected e = expect_dot(dev, op->w, 0, r, op->x + t * op->x_stride);
    double offset =
        (op->bias ? op->bias[r] : 0) + (op->accumulate ? before[t * op->y_stride + r] : 0);
    double got = op->y[t * op->y_stride + r], slack = BOUND * (e.size + fabs(offset)) + 1e-30;
    if (fabs(got - (e.value + offset)) > slack || fabs(got - (e.exact + offset)) > e.loose + slack)
        fail_msg(
            "%s %s n_in %lld row %lld/%lld x %lld/%lld: %.9g, expected %.9g (exact %.9g), size %g",
            lp_type_info((uint32_t)op->w->type)->name,
            dev->backend->matmul_kernel(dev, op->w->type), (long long)op->w->n_in, (long long)r,
            (long long)op->w->n_out, (long long)t, (long long)op->n_rows, got, e.value + offset,
            e.exact + offset, e.size);
}

static void check_guards(const struct lp_op_matmul *op, int64_t n_floats) {
    for (int64_t i = 0; i < n_floats; i++)
        if (i / op->y_stride >= op->n_rows || i % op->y_stride >= op->w->n_out)
            assert_true(op->y[i] == GUARD);
}

static void one_shape(struct lp_device *dev, lp_type type, struct shape s, int fill, bool flat_x,
                      struct lp_rng *rng) {
    struct lp_weight w = new_weight(type, s.n_in, s.n_out, 1, fill, rng);
    if (lp_rng_u64(rng) & 1) scatter(&w, rng);
    int64_t x_stride = s.n_in + 3, y_stride = s.n_out + 2, n_y = (s.n_rows + 1) * y_stride;
    float *x = random_floats(rng, s.n_rows * x_stride), *bias = random_floats(rng, s.n_out);
    if (flat_x)
        for (int64_t i = 0; i < s.n_rows * x_stride; i++) x[i] = i / x_stride % 2 ? -1.5f : 1.5f;
    float *y = new_floats(n_y, GUARD), *before = new_floats(n_y, GUARD);
    bool accumulate = lp_rng_u64(rng) & 1, use_bias = lp_rng_u64(rng) & 1;
    if (accumulate)
        for (int64_t i = 0; i < s.n_rows * s.n_out; i++)
            y[i / s.n_out * y_stride + i % s.n_out] = lp_rng_normal(rng);
    memcpy(before, y, (size_t)n_y * sizeof *y);
    struct lp_op_matmul op = {.w = &w,
                              .x = x,
                              .x_stride = x_stride,
                              .bias = use_bias ? bias : NULL,
                              .y = y,
                              .y_stride = y_stride,
                              .n_rows = s.n_rows,
                              .accumulate = accumulate};
    dev->backend->matmul(dev, &op);
    for (int64_t t = 0; t < s.n_rows; t++)
        for (int64_t r = 0; r < s.n_out; r++) check_close(dev, &op, before, t, r);
    check_guards(&op, n_y);
    free_weight(&w);
    lp_free(x), lp_free(bias), lp_free(y), lp_free(before);
}

static void every_type_and_shape(const char *level, int n_threads) {
    static const int64_t n_outs[] = {1, 2, 3, 7, 16, 17, 35}, n_rows[] = {1, 2, 3, 5, 8, 17, 64};
    struct lp_device *dev = open_cpu(n_threads, level, &need);
    struct lp_rng rng;
    lp_rng_init(&rng, 1);
    FOR_WEIGHT_TYPES(info) {
        assert_true(dev->backend->supports(dev, info->id));
        for (int which = 0; which < 6; which += EMULATED ? 2 : 1)
            for (int i = 0; i < (EMULATED ? 2 : 3); i++) {
                struct shape s = {pick_n_in(info, which), n_outs[lp_rng_u64(&rng) % 7],
                                  n_rows[lp_rng_u64(&rng) % 7]};
                one_shape(dev, info->id, s, -1, false, &rng);
            }
    }
    dev->backend->close(dev);
}

static void plain_agrees(void **state) {
    (void)state;
    if (ONE_LEVEL) skip();
    every_type_and_shape("plain", 1);
}
static void best_agrees(void **state) {
    (void)state;
    every_type_and_shape("auto", 2);
}
// "auto" is the highest level.
static void levels_between_agree(void **state) {
    (void)state;
    static const char *const levels[] = {"avx2", "avx512", "vnni", "neon", "dotprod"};
    if (ONE_LEVEL) skip();
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++)
        if (has_level(levels[i])) every_type_and_shape(levels[i], 1);
}

// The smallest and largest quants, -128 of Q8_0 among them, against activations all of one size:
// the largest integer sums there can be.
static void extreme_blocks_of_level(const char *level) {
    static const int fills[] = {0x00, 0xff, 0x80, 0x7f, 0x88, 0x77, 0x0f, 0xf0};
    struct lp_device *dev = open_cpu(1, level, &need);
    struct lp_rng rng;
    lp_rng_init(&rng, 2);
    FOR_WEIGHT_TYPES(info)
    for (int i = 0; i < 8; i++)
        for (int64_t n_rows = 1; n_rows <= 5; n_rows += 4) {
            struct shape s = {pick_n_in(info, 4), 3, n_rows};
            one_shape(dev, info->id, s, fills[i], true, &rng);
        }
    dev->backend->close(dev);
}

static void extreme_blocks_agree(void **state) {
    (void)state;
    extreme_blocks_of_level("auto");
    if (!EMULATED && has_level(FIRST_LEVEL)) extreme_blocks_of_level(FIRST_LEVEL);
}

// all: the products of MAX_ROWS rows x with the weight of op as it lies in the file.
static void packed_gives_the_same(struct lp_device *dev, struct lp_op_matmul *op, const float *x,
                                  const float *all) {
    static const int64_t counts[] = {1, 2, 3, 8, 17, MAX_ROWS};
    struct lp_weight w = *op->w;
    w.packed_mat_bytes = dev->backend->packed_bytes(dev, &w);
    if (!w.packed_mat_bytes) return;
    uint8_t *packed = lp_alloc_aligned(w.packed_mat_bytes, 1);
    float *y = new_floats(MAX_ROWS * w.n_out, 0);
    assert_non_null(packed);
    dev->backend->pack(dev, &w, packed);
    w.packed = packed;
    w.data = NULL; // not looked at
    w.mats = NULL;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct lp_op_matmul again = *op;
        again.w = &w;
        again.x = x + (MAX_ROWS - counts[i]) * w.n_in;
        again.y = y;
        again.n_rows = counts[i];
        dev->backend->matmul(dev, &again);
        assert_memory_equal(y, all + (MAX_ROWS - counts[i]) * w.n_out,
                            (size_t)(counts[i] * w.n_out) * sizeof *y);
    }
    lp_free(packed), lp_free(y);
}

// Rows alone, in groups, at other places, with other threads, cut into slices or not: the same
// bits; those of the first and the best level as well, which differ in the width of a vector and in
// how they decode, and those of vnni, which decodes the IQ types as neither of them does.
static void bits_do_not_depend_on_rows_threads_or_width(void **state) {
    (void)state;
    static const int64_t counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65};
    struct lp_device *devs[] = {open_cpu(1, "auto", &need),
                                open_cpu(1, "auto", &wide),
                                open_cpu(2, "auto", &wide),
                                open_cpu(3, "auto", &need),
                                has_level(FIRST_LEVEL) ? open_cpu(2, FIRST_LEVEL, &wide) : NULL,
                                has_level("vnni") ? open_cpu(1, "vnni", &wide) : NULL,
                                open_cpu(1, "plain", &need)};
    const size_t n_devs = sizeof devs / sizeof devs[0];
    struct lp_rng rng;
    lp_rng_init(&rng, 3);
    FOR_WEIGHT_TYPES(info) for (int which = 0; which < 5; which += 2) {
        int64_t n_in = pick_n_in(info, which), n_out = which == 2 ? 37 : 7;
        struct lp_weight w = new_weight(info->id, n_in, n_out, 1, -1, &rng);
        if (which == 2) scatter(&w, &rng);
        float *x = random_floats(&rng, MAX_ROWS * n_in), *all = new_floats(MAX_ROWS * n_out, 0);
        float *y = new_floats(MAX_ROWS * n_out, 0);
        for (size_t d = 0; d < n_devs; d++) {
            if (!devs[d]) continue;
            bool plain = d + 1 == n_devs;
            struct lp_op_matmul op = {.w = &w,
                                      .x = x,
                                      .x_stride = n_in,
                                      .y = d == 0 || plain ? all : y,
                                      .y_stride = n_out,
                                      .n_rows = MAX_ROWS};
            devs[d]->backend->matmul(devs[d], &op);
            if (d > 0 && !plain) assert_memory_equal(y, all, MAX_ROWS * n_out * sizeof *y);
            for (size_t i = plain ? 4 : 0; i < sizeof counts / sizeof counts[0];
                 i += plain ? 5 : 1) {
                int64_t first = (int64_t)(lp_rng_u64(&rng) % (uint64_t)(MAX_ROWS - counts[i] + 1));
                op.x = x + first * n_in;
                op.y = y;
                op.n_rows = counts[i];
                devs[d]->backend->matmul(devs[d], &op);
                if (memcmp(y, all + first * n_out, (size_t)(counts[i] * n_out) * sizeof *y) != 0)
                    fail_msg("%s, device %zu: %lld rows differ from the same rows among %d",
                             info->name, d, (long long)counts[i], MAX_ROWS);
            }
            if (!plain) packed_gives_the_same(devs[d], &op, x, all);
        }
        free_weight(&w);
        lp_free(x), lp_free(all), lp_free(y);
    }
    for (size_t d = 0; d < n_devs; d++)
        if (devs[d]) devs[d]->backend->close(devs[d]);
}

// A NaN or infinity makes its row non-finite and leaves the others alone; so does a scale of a
// weight.
static void non_finite_values_reach_the_output(void **state) {
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    struct lp_device *dev = open_cpu(2, "auto", &need);
    struct lp_rng rng;
    lp_rng_init(&rng, 4);
    FOR_WEIGHT_TYPES(info) for (int i = 0; i < 3; i++) {
        int64_t n_in = pick_n_in(info, 2), n_out = 5, n_rows = i == 0 ? 1 : 6, at = n_rows / 2;
        struct lp_weight w = new_weight(info->id, n_in, n_out, 1, -1, &rng);
        float *x = random_floats(&rng, n_rows * n_in), *y = new_floats(n_rows * n_out, 0);
        x[at * n_in + (int64_t)(lp_rng_u64(&rng) % (uint64_t)n_in)] = bad[i];
        struct lp_op_matmul op = {
            .w = &w, .x = x, .x_stride = n_in, .y = y, .y_stride = n_out, .n_rows = n_rows};
        dev->backend->matmul(dev, &op);
        for (int64_t t = 0; t < n_rows; t++)
            for (int64_t r = 0; r < n_out; r++)
                assert_int_equal(!isfinite(y[t * n_out + r]), t == at);
        free_weight(&w);
        lp_free(x), lp_free(y);
    }
    dev->backend->close(dev);
}

// Zero rows, and groups from the smallest subnormal to far above any real one.
static void activations_of_any_size_agree(void **state) {
    (void)state;
    static const float sizes[] = {0.0f,      0x1p-149f, 0x1p-140f, 0x1p-127f, 0x1p-112f,
                                  0x1p-108f, 0x1p-60f,  0x1p60f,   0x1p100f};
    struct lp_device *dev = open_cpu(1, "auto", &need);
    struct lp_rng rng;
    lp_rng_init(&rng, 5);
    FOR_WEIGHT_TYPES(info) for (int i = 0; i < 9; i++) {
        int64_t n_in = pick_n_in(info, 2), n_out = 3;
        struct lp_weight w = new_weight(info->id, n_in, n_out, 1, -1, &rng);
        float *x = random_floats(&rng, n_in), y[3];
        for (int64_t k = 0; k < n_in; k++) x[k] = fmaxf(-8, fminf(8, x[k])) * sizes[i];
        struct lp_op_matmul op = {
            .w = &w, .x = x, .x_stride = n_in, .y = y, .y_stride = n_out, .n_rows = 1};
        dev->backend->matmul(dev, &op);
        for (int64_t r = 0; r < n_out; r++) {
            struct expected e = expect_dot(dev, &w, 0, r, x);
            // Products of subnormal scales round to multiples of 2^-149.
            double slack = 2 * e.loose + BOUND * e.size + (double)n_in * 127 * 127 * 0x1p-149;
            if (!(fabs(y[r] - e.exact) <= slack))
                fail_msg("%s, activations of size %g: %g, expected %g, slack %g", info->name,
                         sizes[i], y[r], e.exact, slack);
        }
        free_weight(&w);
        lp_free(x);
    }
    dev->backend->close(dev);
}

static void embed_copies_exact_rows(void **state) {
    (void)state;
    struct lp_device *dev = open_cpu(2, "auto", &need);
    struct lp_rng rng;
    lp_rng_init(&rng, 6);
    FOR_WEIGHT_TYPES(info) {
        int64_t n_in = pick_n_in(info, 4), n_out = 9, n_rows = 20;
        struct lp_weight w = new_weight(info->id, n_in, n_out, 1, -1, &rng);
        if (id_ & 1) scatter(&w, &rng);
        float *out = new_floats(n_rows * (n_in + 1), GUARD), *row = new_floats(n_in, 0);
        int32_t ids[20];
        for (int i = 0; i < 20; i++) ids[i] = (int32_t)(lp_rng_u64(&rng) % 9);
        struct lp_op_embed op = {
            .table = &w, .ids = ids, .out = out, .out_stride = n_in + 1, .n_rows = n_rows};
        dev->backend->embed(dev, &op);
        for (int64_t t = 0; t < n_rows; t++) {
            info->dequant(row_of(&w, 0, ids[t]), row, (size_t)n_in);
            for (int64_t k = 0; k < n_in; k++) row[k] *= lp_weight_scale(&w, 0);
            assert_memory_equal(out + t * (n_in + 1), row, (size_t)n_in * sizeof *row);
            assert_true(out[t * (n_in + 1) + n_in] == GUARD);
        }
        free_weight(&w);
        lp_free(out), lp_free(row);
    }
    dev->backend->close(dev);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(best_agrees),
        cmocka_unit_test(levels_between_agree),
        cmocka_unit_test(plain_agrees),
        cmocka_unit_test(extreme_blocks_agree),
        cmocka_unit_test(bits_do_not_depend_on_rows_threads_or_width),
        cmocka_unit_test(non_finite_values_reach_the_output),
        cmocka_unit_test(activations_of_any_size_agree),
        cmocka_unit_test(embed_copies_exact_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
