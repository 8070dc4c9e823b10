// What only the cuda backend has: its own dequantisers, to the bit, over random blocks; a device's
// memory and errors; and figures: how far each operation is from ref on the sizes of GLM-5, printed as
//   figure,NAME,LARGEST DIFFERENCE,BOUND
#include "../attn_cases.h"
#include "../cuda_staged.h"
#include "random_weight.h"

#define VALUES 8192 // of a row
#define ROWS 64

static struct lp_device *open_staged(const struct lp_reserve *need) {
    struct lp_device *dev = NULL;
    struct lp_err err = {0};
    if (cuda_staged.open(&dev, NULL, &err)) fail_msg("%s", err.text);
    if (cuda_staged.reserve(dev, need, &err)) fail_msg("%s", err.text);
    return dev;
}

static void figure(const char *op, const char *what, double got, double bound) {
    printf("figure,%s%s%s,%.3g,%.3g\n", op, *what ? " " : "", what, got, bound);
    assert_true(got <= bound);
}

#define FOR_TYPES(info)                                                                            \
    for (uint32_t id_ = 0; id_ < LP_TYPE_COUNT; id_++)                                             \
        for (const struct lp_type_info *info = lp_type_info(id_); info && info->is_weight;         \
             info = NULL)

// Every byte of the blocks is random: scales of NaN, infinity, subnormals, any quant.
static void dequantisers_give_the_same_bits(void **state) {
    (void)state;
    struct lp_device *dev = open_staged(&(struct lp_reserve){.n_rows = ROWS, .max_width = VALUES});
    struct lp_rng rng;
    lp_rng_init(&rng, 1);
    int64_t n_types = 0, n_values = 0, n_nan = 0;
    FOR_TYPES(info) {
        struct lp_weight w = random_weight(info->id, VALUES, ROWS, 1, true, &rng);
        float *got = new_array(ROWS * VALUES, sizeof *got), *want = new_array(VALUES, sizeof *want);
        int32_t ids[ROWS];
        for (int32_t i = 0; i < ROWS; i++) ids[i] = i;
        struct lp_op_embed op = {
            .table = &w, .ids = ids, .out = got, .out_stride = VALUES, .n_rows = ROWS};
        dev->backend->embed(dev, &op);
        for (int64_t r = 0; r < ROWS; r++) {
            info->dequant((const uint8_t *)w.data + (size_t)r * w.row_bytes, want, VALUES);
            for (int64_t i = 0; i < VALUES; i++) {
                float a = got[r * VALUES + i], b = want[i];
                n_nan += isnan(b) != 0;
                if (isnan(a) && isnan(b)) continue;
                if (memcmp(&a, &b, sizeof a) != 0)
                    fail_msg("%s, row %lld, value %lld: %.9g, expected %.9g", info->name,
                             (long long)r, (long long)i, (double)a, (double)b);
            }
        }
        n_types++;
        n_values += ROWS * VALUES;
        lp_free((void *)(uintptr_t)w.data), lp_free(got), lp_free(want);
    }
    dev->backend->close(dev);
    printf("%lld types, %lld values, %lld of them NaN\n", (long long)n_types, (long long)n_values,
           (long long)n_nan);
    figure("dequantise", "(values that differ)", 0, 0);
}

// ---- figures

// Largest |a - b| of a row against its largest |b|, over n_rows rows.
static double worst(const float *a, const float *b, int64_t n_rows, int64_t stride, int64_t width) {
    double most = 0;
    for (int64_t r = 0; r < n_rows; r++) {
        double size = 0, off = 0;
        for (int64_t i = 0; i < width; i++) {
            double d = fabs((double)a[r * stride + i] - b[r * stride + i]);
            if (!(d <= off)) off = d;
            if (fabs((double)b[r * stride + i]) > size) size = fabs((double)b[r * stride + i]);
        }
        if (!(off / size <= most)) most = off / size;
    }
    return most;
}

static void matmul_of_every_type(void **state) {
    (void)state;
    enum { N_IN = 6144, N_OUT = 16, N_ROWS = 5 };
    struct lp_reserve need = {.n_rows = N_ROWS, .max_width = N_IN};
    struct lp_device *dev = open_staged(&need), *ref = NULL;
    assert_int_equal(lp_backend_ref.open(&ref, NULL, NULL), LP_OK);
    assert_int_equal(ref->backend->reserve(ref, &need, NULL), LP_OK);
    struct lp_rng rng;
    lp_rng_init(&rng, 2);
    FOR_TYPES(info) {
        struct lp_weight w = random_weight(info->id, N_IN, N_OUT, 1, false, &rng);
        float *x = random_floats(&rng, N_ROWS * N_IN, 1.0f), got[N_ROWS * N_OUT],
              want[N_ROWS * N_OUT];
        struct lp_op_matmul op = {
            .w = &w, .x = x, .x_stride = N_IN, .y = got, .y_stride = N_OUT, .n_rows = N_ROWS};
        dev->backend->matmul(dev, &op);
        op.y = want;
        ref->backend->matmul(ref, &op);
        // Activations of 8 bits: 1/254 of their group's largest at most, mostly far less in a sum.
        const bool rounds = !strstr(dev->backend->matmul_kernel(dev, info->id), "dequant");
        figure("matmul", info->name, worst(got, want, N_ROWS, N_OUT, N_OUT), rounds ? 2e-2 : 1e-5);
        lp_free((void *)(uintptr_t)w.data), lp_free(x);
    }
    dev->backend->close(dev);
    ref->backend->close(ref);
}

static void attention(void **state) {
    (void)state;
    static const lp_type types[] = {LP_TYPE_F32, LP_TYPE_F16, LP_TYPE_BF16, LP_TYPE_Q8_0,
                                    LP_TYPE_F8_E4M3};
    for (int t = 0; t < 5; t++) {
        struct mla_case c = {.n_heads = 4,
                             .latent = 512,
                             .rope = 64,
                             .nope = 192,
                             .v_dim = 256,
                             .first_pos = 700,
                             .n_queries = 3,
                             .page_tokens = 64,
                             .type = types[t],
                             .k_transposed = true};
        struct mla m;
        make_mla(&m, &c, 30 + (uint64_t)t);
        struct lp_reserve need = mla_reserve(&m);
        struct lp_device *dev = open_staged(&need);
        int64_t wide = m.latent_out_stride;
        float *got = new_output(3, wide), *latent = new_output(3, wide), *out = new_output(3, wide);
        formula_outputs(&m, latent, out);
        absorbed(dev, &m, 0, 3, got);
        figure("mla_absorbed", lp_type_info(types[t])->name, worst(got, latent, 3, wide, wide - 5),
               bound_of(1, &m.c, absorbed));
        expanded(dev, &m, 0, 3, got);
        figure("mla_expanded", lp_type_info(types[t])->name,
               worst(got, out, 3, m.out_stride, m.out_stride - 5), bound_of(1, &m.c, expanded));
        lp_free(got), lp_free(latent), lp_free(out);
        dev->backend->close(dev);
        free_mla(&m);

        struct lp_rng rng;
        struct gqa g;
        struct gqa_case gc = {32, 4, 128, 128, 700, 3, 64, types[t]};
        lp_rng_init(&rng, 50);
        make_gqa(&g, &gc, &rng);
        need = gqa_reserve(&g);
        dev = open_staged(&need);
        got = new_output(3, g.out_stride);
        out = new_output(3, g.out_stride);
        gqa_formula(&g, out);
        gqa(dev, &g, 0, 3, got);
        figure("gqa", lp_type_info(types[t])->name,
               worst(got, out, 3, g.out_stride, g.out_stride - 5), 2e-5);
        lp_free(got), lp_free(out);
        dev->backend->close(dev);
        free_gqa(&g);
    }
}

// ---- the device

static void memory_that_is_not_there_is_refused(void **state) {
    (void)state;
    struct lp_device *dev = NULL;
    struct lp_err err = {0};
    size_t total = 0, left;
    assert_int_equal(lp_backend_cuda.open(&dev, NULL, &err), LP_OK);
    left = dev->backend->memory(dev, &total);
    assert_true(total > 0 && left > 0 && left <= total);
    assert_null(dev->backend->alloc(dev, total + 1));
    struct lp_reserve need = {.n_rows = 1 << 20,
                              .n_context = 1 << 20,
                              .max_width = 1 << 20,
                              .n_experts = 256,
                              .n_used = 8,
                              .expert_width = 1 << 20,
                              .n_embd = 1 << 20};
    assert_int_equal(dev->backend->reserve(dev, &need, &err), LP_STATUS_MEMORY);
    assert_non_null(strstr(err.text, "out of memory on "));
    assert_int_equal(dev->backend->failed(dev, &err), LP_OK); // and the device still works
    int32_t there[3] = {1, 2, 3}, back[3] = {0};
    void *block = dev->backend->alloc(dev, sizeof there);
    assert_non_null(block);
    dev->backend->write(dev, block, there, sizeof there);
    dev->backend->read(dev, back, block, sizeof back);
    assert_memory_equal(there, back, sizeof there);
    dev->backend->free(dev, block);
    dev->backend->close(dev);
}

// Copies of odd sizes through the staging buffers, to odd places.
static void large_copies_arrive(void **state) {
    (void)state;
    const size_t n = ((size_t)40 << 20) + 13;
    struct lp_device *dev = NULL;
    assert_int_equal(lp_backend_cuda.open(&dev, NULL, NULL), LP_OK);
    uint8_t *from = new_array((int64_t)n, 1), *to = new_array((int64_t)n, 1);
    struct lp_rng rng;
    lp_rng_init(&rng, 9);
    for (size_t i = 0; i < n; i++) from[i] = (uint8_t)(lp_rng_u64(&rng) >> 11);
    char *block = dev->backend->alloc(dev, 2 * n);
    assert_non_null(block);
    dev->backend->write(dev, block + 1, from, n);
    dev->backend->copy(dev, block + n + 1, block + 1, n - 1);
    dev->backend->read(dev, to, block + n + 1, n - 1);
    assert_memory_equal(from, to, n - 1);
    dev->backend->free(dev, block);
    lp_free(from), lp_free(to);
    dev->backend->close(dev);
}

// A launch that CUDA refuses: operations do nothing from then on, reads give NaN, and a sentence says
// why.
// What a product made of its activations may serve the next one (lp_op_matmul.same_x), unless the one between
// them needed no such form: then it is of other rows.
static void rounded_rows_are_those_of_the_last_product(void **state) {
    (void)state;
    enum { N_IN = 512, N_OUT = 64 };
    static const lp_type types[2] = {LP_TYPE_Q8_0, LP_TYPE_F32};
    const struct lp_backend *cuda = &lp_backend_cuda;
    struct lp_device *dev = NULL;
    struct lp_err err = {0};
    struct lp_rng rng;
    struct lp_weight w[2];
    float *rows[2], got[2][N_OUT];
    lp_rng_init(&rng, 12);
    if (cuda->open(&dev, NULL, &err)) fail_msg("%s", err.text);
    assert_int_equal(cuda->reserve(dev, &(struct lp_reserve){.n_rows = 1, .max_width = N_IN}, &err),
                     LP_OK);
    for (int i = 0; i < 2; i++) {
        w[i] = random_weight(types[i], N_IN, N_OUT, 1, false, &rng);
        void *data = cuda->alloc(dev, w[i].mat_bytes);
        cuda->write(dev, data, w[i].data, w[i].mat_bytes);
        lp_free((void *)(uintptr_t)w[i].data);
        w[i].data = data;
        rows[i] = random_floats(&rng, N_IN, 1.0f);
    }
    float *x = cuda->alloc(dev, N_IN * sizeof *x), *y = cuda->alloc(dev, N_OUT * sizeof *y);
    for (int same = 0; same < 2; same++) {
        struct lp_op_matmul op = {.w = &w[0], .x = x, .x_stride = N_IN, .y = y, .n_rows = 1};
        cuda->write(dev, x, rows[0], N_IN * sizeof *x);
        cuda->matmul(dev, &op);
        cuda->write(dev, x, rows[1], N_IN * sizeof *x); // other rows at the same place
        op.w = &w[1];
        cuda->matmul(dev, &op);
        op.w = &w[0];
        op.same_x = same;
        cuda->matmul(dev, &op);
        cuda->read(dev, got[same], y, sizeof got[same]);
    }
    assert_memory_equal(got[0], got[1], sizeof got[0]);
    for (int i = 0; i < 2; i++) {
        lp_free(rows[i]);
        cuda->free(dev, (void *)(uintptr_t)w[i].data);
    }
    cuda->free(dev, x);
    cuda->free(dev, y);
    cuda->close(dev);
}

static void an_error_stays(void **state) {
    (void)state;
    struct lp_device *dev = NULL;
    struct lp_err err = {0};
    assert_int_equal(lp_backend_cuda.open(&dev, NULL, &err), LP_OK);
    float *x = dev->backend->alloc(dev, 4096), back[2] = {1, 1};
    dev->backend->write(dev, x, back, sizeof back);
    struct lp_op_router op = {// more experts than a block's shared memory holds
                              .logits = x,         .n_rows = 1,   .n_experts = 1 << 20,
                              .n_used = 1,         .n_groups = 1, .gating = LP_GATING_SIGMOID,
                              .ids = (int32_t *)x, .weights = x};
    dev->backend->router(dev, &op);
    assert_int_equal(dev->backend->failed(dev, &err), LP_STATUS_IO);
    printf("%s\n", err.text);
    assert_non_null(strstr(err.text, "failed in router"));
    dev->backend->read(dev, back, x, sizeof back);
    assert_true(isnan(back[0]) && isnan(back[1]));
    assert_int_equal(dev->backend->failed(dev, &err), LP_STATUS_IO);
    dev->backend->close(dev);
}

// A kernel that reads where there is no memory: found when the step is waited for. Last, since CUDA
// gives the process no GPU any more.
static void a_kernel_that_faults_is_told_of(void **state) {
    (void)state;
    struct lp_device *dev = NULL;
    struct lp_err err = {0};
    assert_int_equal(lp_backend_cuda.open(&dev, NULL, &err), LP_OK);
    float *y = dev->backend->alloc(dev, 4096), back[2] = {1, 1};
    struct lp_op_add op = {.y = y,
                           .x = (const float *)(uintptr_t)0x10000000,
                           .y_stride = 64,
                           .x_stride = 64,
                           .n_rows = 1,
                           .width = 64};
    dev->backend->add(dev, &op);
    dev->backend->read(dev, back, y, sizeof back);
    assert_true(isnan(back[0]) && isnan(back[1]));
    assert_int_equal(dev->backend->failed(dev, &err), LP_STATUS_IO);
    printf("%s\n", err.text);
    assert_non_null(strstr(err.text, "cudaErrorIllegalAddress"));
    dev->backend->add(dev, &op);
    assert_int_equal(dev->backend->failed(dev, &err), LP_STATUS_IO);
    dev->backend->close(dev);
}

// ---- a group of GPUs: with one, a sum is what it is of

static bool never(void *user, double waited_s) {
    (void)user;
    return waited_s > 60;
}

static void a_group_of_one_changes_nothing(void **state) {
    (void)state;
    const struct lp_backend *cuda = &lp_backend_cuda;
    struct lp_device *dev = NULL;
    struct lp_device_group *group = NULL;
    struct lp_err err = {0};
    uint8_t id[LP_DEVICE_GROUP_ID_BYTES];
    if (!cuda->group_join) {
        print_message("this build has no NCCL\n");
        skip();
    }
    assert_int_equal(cuda->open(&dev, NULL, &err), LP_OK);
    const lp_status status = cuda->group_id(dev, id, &err);
    if (status) {
        print_message("%s\n", err.text);
        cuda->close(dev);
        assert_int_equal(status, LP_STATUS_UNSUPPORTED);
        skip();
    }
    const struct lp_device_seat seat = {.id = id, .rank = 0, .size = 1, .give_up = never};
    if (cuda->group_join(&group, dev, &seat, &err)) fail_msg("%s", err.text);
    struct lp_rng rng;
    lp_rng_init(&rng, 3);
    for (size_t n = 1; n < 1000000; n = n * 7 + 3) { // both ways of a sum
        float *want = new_array((int64_t)n, sizeof *want),
              *got = new_array((int64_t)n, sizeof *got), *x = cuda->alloc(dev, n * sizeof *x);
        for (size_t i = 0; i < n; i++) want[i] = (float)lp_rng_normal(&rng);
        cuda->write(dev, x, want, n * sizeof *x);
        cuda->group_sum(dev, group, x, n);
        cuda->read(dev, got, x, n * sizeof *x);
        assert_memory_equal(got, want, n * sizeof *x);
        cuda->group_sum_parts(dev, group, x, &n);
        cuda->group_gather(dev, group, x, &n);
        cuda->read(dev, got, x, n * sizeof *x);
        assert_memory_equal(got, want, n * sizeof *x);
        cuda->clear(dev, x, n * sizeof *x);
        cuda->read(dev, got, x, n * sizeof *x);
        for (size_t i = 0; i < n; i++) assert_true(got[i] == 0);
        cuda->free(dev, x);
        lp_free(want), lp_free(got);
    }
    if (cuda->failed(dev, &err)) fail_msg("%s", err.text);
    cuda->group_leave(dev, group);
    cuda->close(dev);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dequantisers_give_the_same_bits),
        cmocka_unit_test(matmul_of_every_type),
        cmocka_unit_test(attention),
        cmocka_unit_test(memory_that_is_not_there_is_refused),
        cmocka_unit_test(large_copies_arrive),
        cmocka_unit_test(a_group_of_one_changes_nothing),
        cmocka_unit_test(rounded_rows_are_those_of_the_last_product),
        cmocka_unit_test(an_error_stays),
        cmocka_unit_test(a_kernel_that_faults_is_told_of),
    };
    return cmocka_run_group_tests_name("cuda", tests, NULL, NULL);
}
