// head_matmul of the cpu backend, both directions: every weight type and level against double
// precision, bits independent of rows and threads, shared inputs, nothing written beside the
// result.
#include "mat_fixture.h"

#define BOUND 1e-5
#define MAX_ROWS 70

static const struct lp_reserve need = {
    .n_rows = 40, .max_width = 1100, .n_heads = 5, .latent = 1100, .nope = 512, .v_dim = 512};

struct setup {
    struct lp_weight w;
    bool transposed, shared;
    int64_t n_from, n_to; // values of an input and of an output
    int64_t n_rows, x_row, x_head, y_row, y_head, n_y;
    float *x, *y;
};

static struct setup set_up(lp_type type, int64_t n_in, int64_t n_out, int64_t n_heads,
                           int64_t n_rows, bool transposed, bool shared, struct lp_rng *rng) {
    struct setup s = {.transposed = transposed, .shared = shared, .n_rows = n_rows};
    s.w = new_weight(type, n_in, n_out, n_heads, -1, rng);
    if (n_heads != 2) scatter(&s.w, rng);
    s.n_from = transposed ? n_out : n_in;
    s.n_to = transposed ? n_in : n_out;
    s.x_head = shared ? 0 : s.n_from + 1;
    s.x_row = shared ? s.n_from + 2 : n_heads * s.x_head;
    s.y_head = s.n_to + 3;
    s.y_row = n_heads * s.y_head;
    s.n_y = (n_rows + 1) * s.y_row;
    s.x = random_floats(rng, n_rows * s.x_row);
    s.y = new_floats(s.n_y, GUARD);
    return s;
}

static void release(struct setup *s) {
    free_weight(&s->w);
    lp_free(s->x);
    lp_free(s->y);
}

static void run(struct lp_device *dev, const struct setup *s, int64_t first, int64_t n_rows,
                float *y) {
    struct lp_op_head_matmul op = {.w = &s->w,
                                   .transposed = s->transposed,
                                   .x = s->x + first * s->x_row,
                                   .x_row_stride = s->x_row,
                                   .x_head_stride = s->x_head,
                                   .y = y,
                                   .y_row_stride = s->y_row,
                                   .y_head_stride = s->y_head,
                                   .n_rows = n_rows};
    dev->backend->head_matmul(dev, &op);
}

static void check_plain(const struct lp_device *dev, const struct setup *s, int64_t t, int64_t h) {
    for (int64_t r = 0; r < s->n_to; r++) {
        struct expected e = expect_dot(dev, &s->w, h, r, s->x + t * s->x_row + h * s->x_head);
        double got = s->y[t * s->y_row + h * s->y_head + r];
        if (fabs(got - e.value) > BOUND * e.size || fabs(got - e.exact) > e.loose + BOUND * e.size)
            fail_msg("%s row %d head %d output %d: %g, expected %g",
                     dev->backend->matmul_kernel(dev, s->w.type), (int)t, (int)h, (int)r, got,
                     e.value);
    }
}

// The transposed direction never rounds the activations.
static void check_transposed(const struct setup *s, int64_t t, int64_t h) {
    const struct lp_type_info *info = lp_type_info((uint32_t)s->w.type);
    double *sum = lp_alloc((size_t)s->n_to, sizeof *sum),
           *size = lp_alloc((size_t)s->n_to, sizeof *size);
    float *row = new_floats(s->n_to, 0);
    for (int64_t d = 0; d < s->n_from; d++) {
        info->dequant(row_of(&s->w, h, d), row, (size_t)s->n_to);
        double x = s->x[t * s->x_row + h * s->x_head + d] * (double)lp_weight_scale(&s->w, h);
        for (int64_t j = 0; j < s->n_to; j++) {
            sum[j] += x * row[j];
            size[j] += fabs(x * row[j]);
        }
    }
    for (int64_t j = 0; j < s->n_to; j++)
        if (fabs(s->y[t * s->y_row + h * s->y_head + j] - sum[j]) > BOUND * size[j])
            fail_msg("%s transposed, row %d head %d output %d: %g, expected %g", info->name, (int)t,
                     (int)h, (int)j, s->y[t * s->y_row + h * s->y_head + j], sum[j]);
    lp_free(sum), lp_free(size), lp_free(row);
}

static void check_guards(const struct setup *s) {
    for (int64_t i = 0; i < s->n_y; i++)
        if (i >= s->n_rows * s->y_row || i % s->y_head >= s->n_to) assert_true(s->y[i] == GUARD);
}

static int64_t width_for(const struct lp_type_info *info, int64_t wanted) {
    int64_t values = info->block_values;
    return wanted < values ? values : wanted / values * values;
}

static void both_directions(const char *level, int n_threads) {
    static const int64_t widths[] = {32, 192, 512, 1056}, outs[] = {1, 7, 8, 64, 129},
                         rows[] = {1, 2, 3, 5, 17, 70};
    struct lp_device *dev = open_cpu(n_threads, level, &need);
    struct lp_rng rng;
    lp_rng_init(&rng, 11);
    FOR_WEIGHT_TYPES(info) for (int i = 0; i < 8; i++) {
        int64_t n_in =
            width_for(info, widths[lp_rng_u64(&rng) % 4]) + (info->block_values == 1 ? i % 3 : 0);
        struct setup s =
            set_up(info->id, n_in, outs[lp_rng_u64(&rng) % 5], 1 + (int64_t)(lp_rng_u64(&rng) % 5),
                   rows[lp_rng_u64(&rng) % (i < 6 ? 5 : 6)], i & 1, i % 4 >= 2, &rng);
        run(dev, &s, 0, s.n_rows, s.y);
        int64_t step = s.n_rows > 10 ? 13 : 1;
        for (int64_t t = 0; t < s.n_rows; t += step)
            for (int64_t h = 0; h < s.w.n_mats; h++)
                if (s.transposed)
                    check_transposed(&s, t, h);
                else
                    check_plain(dev, &s, t, h);
        check_guards(&s);
        release(&s);
    }
    dev->backend->close(dev);
}

static void plain_agrees(void **state) {
    (void)state;
    if (ONE_LEVEL) skip();
    both_directions("plain", 2);
}
static void best_agrees(void **state) {
    (void)state;
    both_directions("auto", 2);
}

static void bits_do_not_depend_on_rows_or_threads(void **state) {
    (void)state;
    struct lp_device *devs[] = {open_cpu(1, "auto", &need), open_cpu(2, "auto", &need),
                                open_cpu(3, "auto", &need)};
    struct lp_rng rng;
    lp_rng_init(&rng, 12);
    FOR_WEIGHT_TYPES(info) for (int transposed = 0; transposed < 2; transposed++) {
        struct setup s =
            set_up(info->id, width_for(info, 544), 37, 3, MAX_ROWS, transposed, false, &rng);
        run(devs[0], &s, 0, MAX_ROWS, s.y);
        float *y = new_floats(s.n_y, GUARD);
        for (int d = 0; d < 3; d++) {
            run(devs[d], &s, 0, MAX_ROWS, y);
            assert_memory_equal(y, s.y, (size_t)s.n_y * sizeof *y);
            for (int64_t n = 1; n <= 9; n += 2) {
                int64_t first = (int64_t)(lp_rng_u64(&rng) % (uint64_t)(MAX_ROWS - n));
                run(devs[d], &s, first, n, y);
                assert_memory_equal(y, s.y + first * s.y_row, (size_t)(n * s.y_row) * sizeof *y);
                memcpy(y, s.y, (size_t)s.n_y * sizeof *y);
            }
        }
        lp_free(y);
        release(&s);
    }
    for (int d = 0; d < 3; d++) devs[d]->backend->close(devs[d]);
}

static void non_finite_values_reach_the_output(void **state) {
    (void)state;
    struct lp_device *dev = open_cpu(2, "auto", &need);
    struct lp_rng rng;
    lp_rng_init(&rng, 13);
    FOR_WEIGHT_TYPES(info) for (int i = 0; i < 4; i++) {
        struct setup s = set_up(info->id, width_for(info, 256), 9, 2, 3, i & 1, false, &rng);
        s.x[1 * s.x_row + 1 * s.x_head + 4] = i < 2 ? NAN : INFINITY;
        run(dev, &s, 0, 3, s.y);
        for (int64_t t = 0; t < 3; t++)
            for (int64_t h = 0; h < 2; h++)
                for (int64_t j = 0; j < s.n_to; j++)
                    assert_int_equal(!isfinite(s.y[t * s.y_row + h * s.y_head + j]),
                                     t == 1 && h == 1);
        release(&s);
    }
    dev->backend->close(dev);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(best_agrees),
        cmocka_unit_test(plain_agrees),
        cmocka_unit_test(bits_do_not_depend_on_rows_or_threads),
        cmocka_unit_test(non_finite_values_reach_the_output),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
