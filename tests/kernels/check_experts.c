// experts of the cpu backend: against ref where the weights are floats; against the same device's
// matmul, row by row, for every type (the same bits); independent of rows and threads; non-finite
// rows; ranges of the experts.
#include "mat_fixture.h"

#define N_EXPERTS 7
#define MAX_ROWS 40

static const struct lp_reserve need = {
    .n_rows = 16, .max_width = 1024, .n_experts = N_EXPERTS, .n_used = 3, .expert_width = 512};

struct setup {
    struct lp_weight stacked, gate, up, down; // gate and up are views of one stacked tensor
    int64_t n_rows, n_in, stride;
    int32_t n_used;
    float up_factors[N_EXPERTS];
    float *x, *y, *weights;
    int32_t *ids;
};

static struct setup set_up(lp_type up_type, lp_type down_type, int64_t n_in, int64_t width,
                           int64_t n_rows, int32_t n_used, struct lp_rng *rng) {
    struct setup s = {.n_rows = n_rows, .n_in = n_in, .stride = n_in + 5, .n_used = n_used};
    s.stacked = new_weight(up_type, n_in, 2 * width, N_EXPERTS, -1, rng);
    s.down = new_weight(down_type, width, n_in, N_EXPERTS, -1, rng);
    if (n_rows % 2) {
        scatter(&s.stacked, rng);
        scatter(&s.down, rng);
        for (int e = 0; e < N_EXPERTS; e++) s.up_factors[e] = 0.2f + 0.1f * (float)e;
    }
    s.gate = lp_weight_part(&s.stacked, 0, N_EXPERTS, 0, width);
    s.up = lp_weight_part(&s.stacked, 0, N_EXPERTS, width, width);
    s.x = random_floats(rng, n_rows * s.stride);
    s.y = new_floats((n_rows + 1) * s.stride, GUARD);
    s.weights = new_floats(n_rows * n_used, 0);
    s.ids = lp_alloc((size_t)(n_rows * n_used), sizeof *s.ids);
    for (int64_t i = 0; i < n_rows * n_used; i++) {
        s.weights[i] = (float)lp_rng_unit(rng);
        // Different within a row; expert 6 is never used, expert 0 often.
        s.ids[i] = i % n_used == 0 ? (int32_t)(lp_rng_u64(rng) % 2)
                                   : (int32_t)(2 * (i % n_used) + lp_rng_u64(rng) % 2);
    }
    for (int64_t i = 0; i < n_rows * n_in; i++)
        s.y[i / n_in * s.stride + i % n_in] = lp_rng_normal(rng);
    return s;
}

static void release(struct setup *s) {
    free_weight(&s->stacked);
    free_weight(&s->down);
    void *blocks[] = {s->x, s->y, s->weights, s->ids};
    for (int i = 0; i < 4; i++) lp_free(blocks[i]);
}

// Up with factors that are not gate's.
static struct lp_weight up_of(const struct setup *s) {
    struct lp_weight up = s->up;
    if (up.scales) up.scales = s->up_factors;
    return up;
}

static void run(struct lp_device *dev, const struct setup *s, int64_t first, int64_t n_rows,
                float *y) {
    struct lp_weight up = up_of(s);
    struct lp_op_experts op = {.gate = &s->gate,
                               .up = &up,
                               .down = &s->down,
                               .x = s->x + first * s->stride,
                               .x_stride = s->stride,
                               .n_rows = n_rows,
                               .ids = s->ids + first * s->n_used,
                               .weights = s->weights + first * s->n_used,
                               .n_used = s->n_used,
                               .y = y,
                               .y_stride = s->stride};
    dev->backend->experts(dev, &op);
}

// A weight packed for the device; the block that holds it, or NULL where its type has no such form.
static uint8_t *packed(struct lp_device *dev, struct lp_weight *w) {
    w->packed_mat_bytes = dev->backend->packed_bytes(dev, w);
    if (!w->packed_mat_bytes) return NULL;
    uint8_t *block = lp_alloc_aligned(w->packed_mat_bytes * (size_t)w->n_mats, 1);
    assert_non_null(block);
    dev->backend->pack(dev, w, block);
    w->packed = block;
    return block;
}

// y with all three weights packed: the same bits, for all rows and for the last alone.
static void check_packed(struct lp_device *dev, struct setup *s, const float *before,
                         const float *want) {
    struct setup copy = *s;
    uint8_t *blocks[] = {packed(dev, &copy.gate), packed(dev, &copy.up), packed(dev, &copy.down)};
    const int64_t n = (s->n_rows + 1) * s->stride, last = s->n_rows - 1;
    float *y = new_floats(n, 0);
    memcpy(y, before, (size_t)n * sizeof *y);
    run(dev, &copy, 0, s->n_rows, y);
    assert_memory_equal(y, want, (size_t)n * sizeof *y);
    memcpy(y, before + last * s->stride, (size_t)s->stride * sizeof *y);
    run(dev, &copy, last, 1, y);
    assert_memory_equal(y, want + last * s->stride, (size_t)s->n_in * sizeof *y);
    for (int i = 0; i < 3; i++) lp_free(blocks[i]);
    lp_free(y);
}

static void product(struct lp_device *dev, const struct lp_weight *w, int32_t expert,
                    const float *x, float *y) {
    struct lp_weight one = lp_weight_part(w, expert, 1, 0, w->n_out);
    struct lp_op_matmul op = {
        .w = &one, .x = x, .x_stride = w->n_in, .y = y, .y_stride = w->n_out, .n_rows = 1};
    dev->backend->matmul(dev, &op);
}

// y row of the definition, made with this device's matmul and silu_mul.
static void compose(struct lp_device *dev, const struct setup *s, int64_t t, float *y) {
    struct lp_weight up_weight = up_of(s);
    float *gate = new_floats(2 * s->gate.n_out + 2 * s->n_in, 0), *up = gate + s->gate.n_out;
    float *out = up + s->gate.n_out, *sum = out + s->n_in;
    for (int32_t j = 0; j < s->n_used; j++) {
        int32_t e = s->ids[t * s->n_used + j];
        product(dev, &s->gate, e, s->x + t * s->stride, gate);
        product(dev, &up_weight, e, s->x + t * s->stride, up);
        struct lp_op_silu_mul silu = {.gate = gate,
                                      .up = up,
                                      .y = gate,
                                      .stride = s->gate.n_out,
                                      .n_rows = 1,
                                      .width = (int32_t)s->gate.n_out};
        dev->backend->silu_mul(dev, &silu);
        product(dev, &s->down, e, gate, out);
        for (int64_t i = 0; i < s->n_in; i++) sum[i] += s->weights[t * s->n_used + j] * out[i];
    }
    for (int64_t i = 0; i < s->n_in; i++) y[i] += sum[i];
    lp_free(gate);
}

static void every_type(const char *level, int n_threads) {
    static const int64_t rows[] = {1, 2, 8, 17, 35};
    struct lp_device *dev = open_cpu(n_threads, level, &need);
    struct lp_rng rng;
    lp_rng_init(&rng, 21);
    FOR_WEIGHT_TYPES(info) for (int i = 0; i < (EMULATED ? 3 : 5); i++) {
        lp_type down = i & 1 ? LP_TYPE_Q6_K : info->id;
        struct setup s = set_up(info->id, down, 256 * (1 + i % 3), 256, rows[i], 1 + i % 3, &rng);
        float *y = new_floats((s.n_rows + 1) * s.stride, 0);
        memcpy(y, s.y, (size_t)((s.n_rows + 1) * s.stride) * sizeof *y);
        run(dev, &s, 0, s.n_rows, s.y);
        check_packed(dev, &s, y, s.y);
        for (int64_t t = 0; t<s.n_rows; t += s.n_rows> 10 ? 7 : 1) {
            compose(dev, &s, t, y + t * s.stride);
            assert_memory_equal(s.y + t * s.stride, y + t * s.stride, (size_t)s.n_in * sizeof *y);
        }
        for (int64_t at = 0; at < (s.n_rows + 1) * s.stride; at++)
            if (at / s.stride >= s.n_rows || at % s.stride >= s.n_in) assert_true(s.y[at] == GUARD);
        lp_free(y);
        release(&s);
    }
    dev->backend->close(dev);
}

static void best_is_made_of_matmuls(void **state) {
    (void)state;
    every_type("auto", 2);
}
static void plain_is_made_of_matmuls(void **state) {
    (void)state;
    if (ONE_LEVEL) skip();
    every_type("plain", 1);
}

// Odd sizes, float weights: against the definition in double.
static void floats_agree_with_ref(void **state) {
    (void)state;
    static const lp_type types[] = {LP_TYPE_F32, LP_TYPE_F16, LP_TYPE_BF16};
    struct lp_device *dev = open_cpu(2, "auto", &need), *ref = NULL;
    struct lp_reserve ref_need = need;
    ref_need.n_rows = 64;
    assert_int_equal(lp_backend_ref.open(&ref, NULL, NULL), LP_OK);
    assert_int_equal(lp_backend_ref.reserve(ref, &ref_need, NULL), LP_OK);
    struct lp_rng rng;
    lp_rng_init(&rng, 22);
    for (int i = 0; i < (EMULATED ? 4 : 12); i++) {
        struct setup s =
            set_up(types[i % 3], types[(i + 1) % 3], 37 + 50 * i, 19 + 30 * i, 1 + 5 * i, 3, &rng);
        int64_t n = (s.n_rows + 1) * s.stride;
        float *y = new_floats(n, 0);
        memcpy(y, s.y, (size_t)n * sizeof *y);
        run(dev, &s, 0, s.n_rows, s.y);
        run(ref, &s, 0, s.n_rows, y);
        for (int64_t t = 0; t < s.n_rows; t++) {
            double size = 0;
            for (int64_t k = 0; k < s.n_in; k++)
                size += (double)y[t * s.stride + k] * y[t * s.stride + k];
            size = sqrt(size / (double)s.n_in);
            for (int64_t k = 0; k < s.n_in; k++)
                assert_true(fabs((double)s.y[t * s.stride + k] - y[t * s.stride + k]) <=
                            1e-5 * size);
        }
        lp_free(y);
        release(&s);
    }
    ref->backend->close(ref);
    dev->backend->close(dev);
}

static void bits_do_not_depend_on_rows_or_threads(void **state) {
    (void)state;
    static const lp_type types[] = {LP_TYPE_Q4_K, LP_TYPE_Q6_K, LP_TYPE_BF16, LP_TYPE_IQ2_XXS,
                                    LP_TYPE_Q8_0};
    struct lp_device *devs[] = {open_cpu(1, "auto", &need), open_cpu(2, "auto", &need),
                                open_cpu(3, "auto", &need)};
    struct lp_rng rng;
    lp_rng_init(&rng, 23);
    for (int i = 0; i < (EMULATED ? 2 : 5); i++) {
        struct setup s = set_up(types[i], types[(i + 1) % 5], 512, 512, MAX_ROWS, 3, &rng);
        size_t n = (size_t)((MAX_ROWS + 1) * s.stride);
        float *all = new_floats((int64_t)n, 0), *y = new_floats((int64_t)n, 0);
        memcpy(all, s.y, n * sizeof *all);
        run(devs[0], &s, 0, MAX_ROWS, all);
        for (int d = 0; d < 3; d++)
            for (int64_t count = 1; count <= MAX_ROWS; count = count * 3 + 1) {
                memcpy(y, s.y, n * sizeof *y);
                for (int64_t t = 0; t < MAX_ROWS; t += count)
                    run(devs[d], &s, t, MAX_ROWS - t < count ? MAX_ROWS - t : count,
                        y + t * s.stride);
                assert_memory_equal(y, all, n * sizeof *y);
            }
        lp_free(all), lp_free(y);
        release(&s);
    }
    for (int d = 0; d < 3; d++) devs[d]->backend->close(devs[d]);
}

// Rows whose pairs are few beside the experts, most of which nobody uses: each row has the bits of itself alone.
static void few_rows_of_many_experts(void **state) {
    (void)state;
    enum { MANY = 96, USED = 3, ROWS = 9 }; // cuda: up to 8 of these rows go a pair at a time
    static const lp_type types[] = {LP_TYPE_Q4_K, LP_TYPE_Q6_K, LP_TYPE_Q8_0, LP_TYPE_IQ3_S,
                                    LP_TYPE_BF16};
    struct lp_reserve many = need;
    many.n_experts = MANY;
    struct lp_device *dev = open_cpu(2, "auto", &many);
    struct lp_rng rng;
    lp_rng_init(&rng, 25);
    for (int i = 0; i < (EMULATED ? 2 : 5); i++) {
        struct setup s = set_up(types[i], types[(i + 1) % 5], 256, 256, ROWS - 1, USED, &rng);
        free_weight(&s.stacked);
        free_weight(&s.down);
        s.stacked = new_weight(types[i], 256, 512, MANY, -1, &rng);
        s.down = new_weight(types[(i + 1) % 5], 256, 256, MANY, -1, &rng);
        s.gate = lp_weight_part(&s.stacked, 0, MANY, 0, 256);
        s.up = lp_weight_part(&s.stacked, 0, MANY, 256, 256);
        for (int j = 0; j < (ROWS - 1) * USED;
             j++) // two rows share an expert, the last and first are met
            s.ids[j] = j < 2 * USED ? j % USED : MANY - 1 - j;
        const size_t n = (size_t)(ROWS * s.stride);
        float *y = new_floats((int64_t)n, 0), *one = new_floats((int64_t)n, 0);
        for (int64_t count = ROWS - 1; count >= 2; count /= 2) {
            memcpy(y, s.y, n * sizeof *y);
            memcpy(one, s.y, n * sizeof *y);
            run(dev, &s, 0, count, y);
            for (int64_t t = 0; t < count; t++) compose(dev, &s, t, one + t * s.stride);
            assert_memory_equal(y, one, n * sizeof *y);
        }
        lp_free(y);
        lp_free(one);
        release(&s);
    }
    dev->backend->close(dev);
}

static void non_finite_values_reach_the_output(void **state) {
    (void)state;
    static const lp_type types[] = {LP_TYPE_Q4_K, LP_TYPE_F32, LP_TYPE_IQ1_S, LP_TYPE_Q8_0};
    struct lp_device *dev = open_cpu(2, "auto", &need);
    struct lp_rng rng;
    lp_rng_init(&rng, 24);
    for (int i = 0; i < 8; i++) {
        struct setup s = set_up(types[i % 4], types[i % 4], 256, 256, 9, 2, &rng);
        s.x[4 * s.stride + 100] = i < 4 ? NAN : INFINITY;
        run(dev, &s, 0, 9, s.y);
        for (int64_t t = 0; t < 9; t++)
            for (int64_t k = 0; k < s.n_in; k++)
                assert_int_equal(!isfinite(s.y[t * s.stride + k]), t == 4);
        release(&s);
    }
    dev->backend->close(dev);
}

// ---- some of the experts, as ranks have them

enum { ALL = 24, USED = 3, IN_RANGE = 256, MOST = 600 };

struct ranges {
    struct lp_weight stacked, down;
    int32_t ids[MOST * USED];
    float *x, *weights;
};

// ids of a row differ, and are of all experts but the last.
static struct ranges *new_ranges(lp_type up_type, lp_type down_type, struct lp_rng *rng) {
    struct ranges *s = lp_alloc(1, sizeof *s);
    assert_non_null(s);
    s->stacked = new_weight(up_type, IN_RANGE, 2 * IN_RANGE, ALL, -1, rng);
    s->down = new_weight(down_type, IN_RANGE, IN_RANGE, ALL, -1, rng);
    scatter(&s->stacked, rng);
    s->x = random_floats(rng, MOST * IN_RANGE);
    s->weights = new_floats(MOST * USED, 0);
    for (int i = 0; i < MOST * USED; i++) {
        s->weights[i] = (float)lp_rng_unit(rng);
        s->ids[i] = i % USED ? (s->ids[i - 1] + 1 + (int32_t)(lp_rng_u64(rng) % 10)) % (ALL - 1)
                             : (int32_t)(lp_rng_u64(rng) % (ALL - 1));
    }
    return s;
}

static void release_ranges(struct ranges *s) {
    free_weight(&s->stacked);
    free_weight(&s->down);
    lp_free(s->x);
    lp_free(s->weights);
    lp_free(s);
}

// y += the experts first ... first + n - 1 of n_rows rows of x, weighed so
static void weigh_range(struct lp_device *dev, const struct ranges *s, const float *x,
                        const float *weights, int64_t n_rows, int32_t first, int32_t n, float *y) {
    const struct lp_weight gate = lp_weight_part(&s->stacked, first, n, 0, IN_RANGE),
                           up = lp_weight_part(&s->stacked, first, n, IN_RANGE, IN_RANGE),
                           down = lp_weight_part(&s->down, first, n, 0, IN_RANGE);
    dev->backend->experts(dev, &(struct lp_op_experts){.gate = &gate,
                                                       .up = &up,
                                                       .down = &down,
                                                       .first_expert = first,
                                                       .n_experts = ALL,
                                                       .x = x,
                                                       .x_stride = IN_RANGE,
                                                       .n_rows = n_rows,
                                                       .ids = s->ids,
                                                       .weights = weights,
                                                       .n_used = USED,
                                                       .y = y,
                                                       .y_stride = IN_RANGE});
}

static void run_range(struct lp_device *dev, const struct ranges *s, const float *x, int64_t n_rows,
                      int32_t first, int32_t n, float *y) {
    weigh_range(dev, s, x, s->weights, n_rows, first, n, y);
}

// The same bits as all experts of the same device, where those of others count for nothing.
static void check_bits(struct lp_device *dev, const struct ranges *s, int64_t n_rows, int32_t first,
                       int32_t n, const float *got) {
    float *weights = new_floats(n_rows * USED, 0), *want = new_floats(n_rows * IN_RANGE, 0);
    for (int64_t i = 0; i < n_rows * USED; i++)
        if (s->ids[i] >= first && s->ids[i] < first + n) weights[i] = s->weights[i];
    weigh_range(dev, s, s->x, weights, n_rows, 0, ALL, want);
    for (int64_t k = 0; k < n_rows * IN_RANGE; k++) assert_true(got[k] == want[k]);
    lp_free(weights), lp_free(want);
}

// Of the rows of the whole sum, the largest difference beside the row's size.
static double furthest(const float *got, const float *want, const float *whole, int64_t n_rows) {
    double most = 0;
    for (int64_t t = 0; t < n_rows; t++) {
        double size = 0, off = 0;
        for (int64_t k = t * IN_RANGE; k < (t + 1) * IN_RANGE; k++) {
            size += (double)whole[k] * whole[k];
            off = fmax(off, fabs((double)got[k] - want[k]));
            assert_true(isfinite(got[k]));
        }
        most = fmax(most, off / sqrt(size / IN_RANGE));
    }
    return most;
}

// Each range against ref, with what another call has left in the device's scratch: NaN; then their sum against all.
static void check_ranges(struct lp_device *dev, struct lp_device *ref, const struct ranges *s,
                         int64_t n_rows, double bound) {
    static const int32_t first[] = {0, 8, 15, ALL - 1, ALL}, n[] = {8, 7, ALL - 16, 1, 0};
    const int64_t size = n_rows * IN_RANGE;
    float *nan = new_floats(size, NAN), *scrap = new_floats(size, 0), *sum = new_floats(size, 0),
          *whole = new_floats(size, 0), *want = new_floats(size, 0), *got = new_floats(size, 0);
    run_range(ref, s, s->x, n_rows, 0, ALL, want);
    run_range(dev, s, s->x, n_rows, 0, ALL, whole);
    assert_true(furthest(whole, want, want, n_rows) <= bound);
    for (int i = 0; i < 5; i++) {
        float *of_range = new_floats(size, 0);
        memset(got, 0, (size_t)size * sizeof *got);
        run_range(ref, s, s->x, n_rows, first[i], n[i], of_range);
        run_range(dev, s, nan, n_rows, 0, ALL, scrap);
        run_range(dev, s, s->x, n_rows, first[i], n[i], got);
        assert_true(furthest(got, of_range, want, n_rows) <= bound);
        check_bits(dev, s, n_rows, first[i], n[i], got);
        for (int64_t k = 0; i >= 3 && k < size; k++) assert_true(got[k] == 0);
        for (int64_t k = 0; k < size; k++) sum[k] += got[k];
        lp_free(of_range);
    }
    assert_true(furthest(sum, whole, want, n_rows) <= 3e-6);
    float *const blocks[] = {nan, scrap, sum, whole, want, got};
    for (int i = 0; i < 6; i++) lp_free(blocks[i]);
}

static void ranges_of_experts(void **state) {
    (void)state;
    // cuda: 1 and 2 rows go a pair at a time, 16 and 600 are sorted
    static const int64_t rows[] = {1, 2, 16, MOST};
    static const struct {
        lp_type up, down;
        double bound; // weights of any bytes make much of the rounding of activations to 8 bits
    } cases[] = {{LP_TYPE_Q4_K, LP_TYPE_Q6_K, 0.2},
                 {LP_TYPE_Q8_0, LP_TYPE_IQ4_XS, 0.2},
                 {LP_TYPE_BF16, LP_TYPE_F16, 1e-5}};
    struct lp_reserve all = need;
    all.n_experts = ALL;
    all.n_rows = MOST;
    struct lp_device *dev = open_cpu(2, "auto", &all), *ref = open_ref(&all);
    struct lp_rng rng;
    lp_rng_init(&rng, 26);
    for (int i = 0; i < (EMULATED ? 1 : 3); i++) {
        struct ranges *s = new_ranges(cases[i].up, cases[i].down, &rng);
        for (int k = 0; k < (EMULATED ? 3 : 4); k++)
            check_ranges(dev, ref, s, rows[k], cases[i].bound);
        release_ranges(s);
    }
    ref->backend->close(ref);
    dev->backend->close(dev);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(best_is_made_of_matmuls),
        cmocka_unit_test(plain_is_made_of_matmuls),
        cmocka_unit_test(floats_agree_with_ref),
        cmocka_unit_test(bits_do_not_depend_on_rows_or_threads),
        cmocka_unit_test(few_rows_of_many_experts),
        cmocka_unit_test(non_finite_values_reach_the_output),
        cmocka_unit_test(ranges_of_experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
