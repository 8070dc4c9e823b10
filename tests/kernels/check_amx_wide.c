// Products of many rows with bfloat16 (cpu_wide.h), which the cpu backend takes where results may depend
// on the number of rows (lp_backend.fix_results): matmul, head_matmul and experts against ref, whose sums
// are in double. Odd sizes, packed and not, factors, bias and accumulation, rows of any magnitude,
// non-finite rows; and that they are not taken while results are fixed. Each over a model of the tile
// instructions (amx_model.h), with a type of each kind, where there is AVX-512 VNNI; and with the tiles
// themselves, with every type, where there is AMX.
// Prints figure,NAME,LARGEST DIFFERENCE,BOUND.
#include "mat_fixture.h"

#include "backend/cpu/cpu_features.h"
#include "backend/cpu/cpu_wide.h"

#if defined(__x86_64__) && !defined(__clang__) // which has no push_options
#include "amx_model.h"

// Only the kernels may use these instructions, not what looks whether the machine has them.
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")
#define LP_AMX_MODEL
#define lp_cpu_wide_amx lp_cpu_wide_model
extern const struct lp_cpu_wide lp_cpu_wide_model;
#include "backend/cpu/cpu_wide_amx.c"
#define LP_Q8_WIDEN
#define DIRECT_X 2
#include "backend/cpu/cpu_q8_iq.h"
#include "backend/cpu/cpu_q8_k.h"
#include "backend/cpu/cpu_q8_q32.h"

// Each kind of strip, with and without a function of its own. (All types take minutes to compile with the
// sanitizers.)
#define MODEL_LIST(X)                                                                              \
    X(q8_0, Q8_0) X(q2_k, Q2_K) X(q4_k, Q4_K) X(q6_k, Q6_K) X(iq2_xxs, IQ2_XXS) X(nvfp4, NVFP4)
#define KERNEL(stem, type) LP_Q8_KERNEL(model, stem)
MODEL_LIST(KERNEL)
#undef KERNEL
#pragma GCC pop_options

#define TYPE(stem, type) LP_TYPE_##type,
static const lp_type model_types[] = {MODEL_LIST(TYPE)}, all_types[] = {LP_CPU_Q8_LIST(TYPE)};
#undef TYPE

// A rounding of 2^-9 on each side, of every product |w x| of a sum
#define BOUND_SUM 4e-3
// The same of the experts, whose hidden rows are rounded too: of the row's largest value
#define BOUND_ROW 2e-2

static const struct lp_reserve need = {.n_rows = 300,
                                       .max_width = 2304,
                                       .n_experts = 5,
                                       .n_used = 2,
                                       .expert_width = 512,
                                       .n_embd = 768,
                                       .n_heads = 3,
                                       .latent = 512,
                                       .nope = 512,
                                       .v_dim = 512};

// What a test runs on.
struct tried {
    struct lp_device *dev, *ref;
    const lp_type *types;
    int n_types;
    const char *name;
};

static struct lp_device *open_model(int n_threads) {
    struct lp_device *dev = NULL;
    const struct lp_device_options options = {.n_threads = n_threads, .cpu_level = "vnni"};
    assert_int_equal(lp_backend_cpu.open(&dev, &options, NULL), LP_OK);
    struct lp_cpu_device *cpu = lp_cpu_device(dev);
    cpu->wide = &lp_cpu_wide_model;
#define CHOOSE(stem, type) cpu->mat_kernels[LP_TYPE_##type] = &lp_cpu_mat_model_##stem;
    MODEL_LIST(CHOOSE)
#undef CHOOSE
    assert_int_equal(dev->backend->reserve(dev, &need, NULL), LP_OK);
    return dev;
}

static void with_model_and_tiles(void (*test)(const struct tried *t)) {
    const uint32_t have = lp_cpu_features_detect();
    if ((have & LP_CPU_LEVEL_VNNI) != LP_CPU_LEVEL_VNNI) skip();
    struct tried t = {.ref = open_ref(&need)};
    lp_cpu_amx_set = NULL; // this thread's tiles are the model's
    t.dev = open_model(1);
    t.types = model_types, t.n_types = (int)(sizeof model_types / sizeof model_types[0]);
    t.name = "model";
    t.dev->backend->fix_results(t.dev, false);
    test(&t);
    t.dev->backend->close(t.dev);
    lp_cpu_amx_set = NULL;
    if ((have & LP_CPU_LEVEL_AMX) == LP_CPU_LEVEL_AMX) {
        t.dev = open_cpu(2, "amx", &need);
        t.types = all_types, t.n_types = (int)(sizeof all_types / sizeof all_types[0]);
        t.name = "amx";
        assert_non_null(lp_cpu_device(t.dev)->wide);
        t.dev->backend->fix_results(t.dev, false);
        test(&t);
        t.dev->backend->close(t.dev);
    }
    t.ref->backend->close(t.ref);
}

static void figure(const struct tried *t, const char *op, lp_type type, double got, double bound) {
    printf("figure,%s of many rows %s %s,%.3g,%.3g\n", op, lp_type_info((uint32_t)type)->name,
           t->name, got, bound);
    if (!(got <= bound)) fail_msg("too far off");
}

// The weight packed, or NULL where it cannot be.
static uint8_t *pack(struct lp_device *dev, struct lp_weight *w) {
    w->packed_mat_bytes = dev->backend->packed_bytes(dev, w);
    if (!w->packed_mat_bytes) return NULL;
    uint8_t *packed = lp_alloc_aligned(w->packed_mat_bytes * (size_t)w->n_mats, 1);
    assert_non_null(packed);
    dev->backend->pack(dev, w, packed);
    w->packed = packed;
    return packed;
}

static double one_matmul(const struct tried *tried, lp_type type, int64_t n_in, int64_t n_out,
                         int64_t n_rows, float size, struct lp_rng *rng) {
    struct lp_weight w = new_weight(type, n_in, n_out, 1, -1, rng);
    if (n_out % 2) scatter(&w, rng);
    const int64_t x_stride = n_in + 4 * (n_out % 3), y_stride = n_out + 2, n_y = n_rows * y_stride;
    float *x = random_floats(rng, n_rows * x_stride), *bias = random_floats(rng, n_out);
    float *got = new_floats(n_y, GUARD), *before = random_floats(rng, n_y);
    float *row = new_floats(n_in, 0);
    for (int64_t i = 0; i < n_rows * x_stride; i++) x[i] *= size * (i / x_stride % 3 ? 1 : 1e-3f);
    for (int64_t i = 0; i < n_out; i++) bias[i] *= size;
    for (int64_t i = 0; i < n_y; i++) before[i] *= size;
    struct lp_op_matmul op = {.w = &w,
                              .x = x,
                              .x_stride = x_stride,
                              .bias = n_out % 4 ? bias : NULL,
                              .y = got,
                              .y_stride = y_stride,
                              .n_rows = n_rows,
                              .accumulate = n_rows % 2};
    for (int64_t i = 0; op.accumulate && i < n_y; i++)
        if (i % y_stride < n_out) got[i] = before[i];
    uint8_t *packed = n_in % 768 ? NULL : pack(tried->dev, &w);
    tried->dev->backend->matmul(tried->dev, &op);
    lp_free(packed);
    double most = 0;
    for (int64_t r = 0; r < n_out; r++) {
        lp_type_info((uint32_t)type)->dequant(row_of(&w, 0, r), row, (size_t)n_in);
        for (int64_t t = r % 5; t < n_rows; t += 5) {
            const int64_t at = t * y_stride + r;
            double sum = 0, terms = 1e-37;
            for (int64_t i = 0; i < n_in; i++) {
                const double p = (double)row[i] * x[t * x_stride + i] * lp_weight_scale(&w, 0);
                sum += p, terms += fabs(p);
            }
            if (op.bias) sum += bias[r], terms += fabs(bias[r]) * 1e-3;
            if (op.accumulate) sum += before[at], terms += fabs(before[at]) * 1e-3;
            const double off = fabs(got[at] - sum) / terms;
            if (!(off <= most)) most = off;
        }
    }
    for (int64_t i = 0; i < n_y; i++)
        if (i % y_stride >= n_out) assert_true(got[i] == GUARD);
    free_weight(&w);
    lp_free(x), lp_free(bias), lp_free(got), lp_free(before), lp_free(row);
    return most;
}

static void try_matmul(const struct tried *t) {
    static const int64_t n_outs[] = {64, 33, 50, 17}, n_rows[] = {49, 64, 257, 113};
    struct lp_rng rng;
    lp_rng_init(&rng, 41);
    for (int i = 0; i < t->n_types; i++) {
        const bool small = lp_type_info((uint32_t)t->types[i])->block_values <= 64;
        const int64_t n_ins[] = {small ? 64 : 256, 2304, small ? 704 : 1024, 768};
        double most = 0;
        for (int k = 0; k < 4; k++) {
            const float size = k == 2 ? 1e-30f : k == 3 ? 1e30f : 1.0f;
            most = fmax(most, one_matmul(t, t->types[i], n_ins[k], n_outs[(i + k) % 4],
                                         n_rows[(i + 2 * k) % 4], size, &rng));
        }
        figure(t, "matmul", t->types[i], most, BOUND_SUM);
    }
}

static void try_head_matmul(const struct tried *t) {
    enum { N_IN = 512, N_OUT = 70, HEADS = 3, ROWS = 77 };
    struct lp_rng rng;
    lp_rng_init(&rng, 42);
    for (int i = 0; i < 2 * t->n_types; i++) {
        const lp_type type = t->types[i / 2];
        struct lp_weight w = new_weight(type, N_IN, N_OUT, HEADS, -1, &rng);
        scatter(&w, &rng);
        float *x = random_floats(&rng, ROWS * HEADS * N_IN),
              *got = new_floats(ROWS * HEADS * N_OUT, GUARD),
              *want = new_floats(ROWS * HEADS * N_OUT, GUARD);
        struct lp_op_head_matmul op = {.w = &w,
                                       .x = x,
                                       .x_row_stride = HEADS * N_IN,
                                       .x_head_stride = i % 2 ? 0 : N_IN, // one for all heads
                                       .y = got,
                                       .y_row_stride = HEADS * N_OUT,
                                       .y_head_stride = N_OUT,
                                       .n_rows = ROWS};
        t->dev->backend->head_matmul(t->dev, &op);
        op.y = want;
        t->ref->backend->head_matmul(t->ref, &op);
        figure(t, "head_matmul", type, worst(got, want, ROWS * HEADS, N_OUT, N_OUT), BOUND_ROW);
        free_weight(&w);
        lp_free(x), lp_free(got), lp_free(want);
    }
}

static void try_experts(const struct tried *t) {
    enum { N_EMBD = 768, WIDTH = 256, EXPERTS = 4, USED = 2, ROWS = 144 };
    struct lp_rng rng;
    lp_rng_init(&rng, 43);
    for (int i = 0; i < t->n_types; i++) {
        struct lp_weight gate = new_weight(t->types[i], N_EMBD, WIDTH, EXPERTS, -1, &rng),
                         up = new_weight(t->types[(i + 1) % t->n_types], N_EMBD, WIDTH, EXPERTS, -1,
                                         &rng),
                         down = new_weight(t->types[(i + 2) % t->n_types], WIDTH, N_EMBD, EXPERTS,
                                           -1, &rng);
        scatter(&up, &rng);
        uint8_t *packed[] = {pack(t->dev, &gate), i % 2 ? pack(t->dev, &down) : NULL};
        float *x = random_floats(&rng, ROWS * N_EMBD), *got = new_floats(ROWS * N_EMBD, 0.25f),
              *want = new_floats(ROWS * N_EMBD, 0.25f), *weights = new_floats(ROWS * USED, 0);
        int32_t ids[ROWS * USED];
        for (int k = 0; k < ROWS * USED; k++) { // expert 3 seldom, expert 0 by most rows
            weights[k] = (float)lp_rng_unit(&rng);
            ids[k] = k % USED == 0 ? (k % 32 ? 0 : 1) : k == 1 ? 3 : 2;
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
                                   .y = got,
                                   .y_stride = N_EMBD};
        assert_true(lp_cpu_wide_takes_experts(lp_cpu_device(t->dev), &op));
        t->dev->backend->experts(t->dev, &op);
        op.y = want;
        t->ref->backend->experts(t->ref, &op);
        figure(t, "experts", t->types[i], worst(got, want, ROWS, N_EMBD, N_EMBD), BOUND_ROW);
        free_weight(&gate), free_weight(&up), free_weight(&down);
        lp_free(packed[0]), lp_free(packed[1]);
        lp_free(x), lp_free(got), lp_free(want), lp_free(weights);
    }
}

static void try_non_finite(const struct tried *t) {
    enum { N_IN = 512, N_OUT = 70, ROWS = 130 };
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    struct lp_rng rng;
    lp_rng_init(&rng, 44);
    for (int i = 0; i < t->n_types; i++) {
        struct lp_weight w = new_weight(t->types[i], N_IN, N_OUT, 1, -1, &rng);
        float *x = random_floats(&rng, ROWS * N_IN), *y = new_floats(ROWS * N_OUT, 0);
        for (int k = 0; k < 3; k++) x[(20 + 50 * k) * N_IN + 7 * k] = bad[k];
        memset(x + 30 * N_IN, 0, N_IN * sizeof *x);
        struct lp_op_matmul op = {
            .w = &w, .x = x, .x_stride = N_IN, .y = y, .y_stride = N_OUT, .n_rows = ROWS};
        t->dev->backend->matmul(t->dev, &op);
        for (int64_t r = 0; r < ROWS * N_OUT; r++) {
            const int64_t row = r / N_OUT;
            assert_int_equal(!isfinite(y[r]), row == 20 || row == 70 || row == 120);
            if (row == 30) assert_true(y[r] == 0);
        }
        free_weight(&w);
        lp_free(x), lp_free(y);
    }
}

// Fixed, as when the device was opened, many rows have the bits of each of them alone; free, those below
// the threshold do, and the others have some that depend on the row alone too.
static void try_fixed(const struct tried *t) {
    enum { N_IN = 512, N_OUT = 70, ROWS = 130 };
    struct lp_rng rng;
    lp_rng_init(&rng, 45);
    for (int i = 0; i < t->n_types; i++) {
        struct lp_weight w = new_weight(t->types[i], N_IN, N_OUT, 1, -1, &rng);
        float *x = random_floats(&rng, ROWS * N_IN), *fixed = new_floats(ROWS * N_OUT, 0),
              *y = new_floats(ROWS * N_OUT, 0);
        struct lp_op_matmul op = {
            .w = &w, .x = x, .x_stride = N_IN, .y = fixed, .y_stride = N_OUT, .n_rows = 1};
        for (int k = 0; k < ROWS; k++, op.x += N_IN, op.y += N_OUT)
            t->dev->backend->matmul(t->dev, &op);
        op.x = x, op.y = y, op.n_rows = LP_WIDE_MIN_ROWS - 1;
        t->dev->backend->matmul(t->dev, &op);
        assert_memory_equal(y, fixed, (LP_WIDE_MIN_ROWS - 1) * N_OUT * sizeof *y);
        op.n_rows = ROWS;
        t->dev->backend->matmul(t->dev, &op);
        assert_memory_not_equal(y, fixed, ROWS * N_OUT * sizeof *y);
        op.x = x + 40 * N_IN, op.y = fixed, op.n_rows = 57;
        t->dev->backend->matmul(t->dev, &op);
        assert_memory_equal(y + 40 * N_OUT, fixed, 57 * N_OUT * sizeof *y);
        t->dev->backend->fix_results(t->dev, true);
        op.x = x, op.y = y, op.n_rows = ROWS;
        t->dev->backend->matmul(t->dev, &op);
        assert_memory_equal(y + 97 * N_OUT, fixed + 97 * N_OUT, (ROWS - 97) * N_OUT * sizeof *y);
        t->dev->backend->fix_results(t->dev, false);
        free_weight(&w);
        lp_free(x), lp_free(y), lp_free(fixed);
    }
}

static void try_selfcheck(const struct tried *t) {
    assert_true(lp_cpu_wide_selfcheck(lp_cpu_device(t->dev)->wide));
}

#define TEST(name)                                                                                 \
    static void name(void **state) {                                                               \
        (void)state;                                                                               \
        with_model_and_tiles(try_##name);                                                          \
    }
#else
#define TEST(name)                                                                                 \
    static void name(void **state) {                                                               \
        (void)state;                                                                               \
        skip();                                                                                    \
    }
#endif

TEST(selfcheck)
TEST(matmul)
TEST(head_matmul)
TEST(experts)
TEST(non_finite)
TEST(fixed)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(selfcheck), cmocka_unit_test(matmul),     cmocka_unit_test(head_matmul),
        cmocka_unit_test(experts),   cmocka_unit_test(non_finite), cmocka_unit_test(fixed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
