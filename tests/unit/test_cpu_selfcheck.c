// Kernel choice: the expected kernel for every type and level, and self-checks that reject kernels
// which read a type of the same size as if it were another, and lanes tables with one bad function.
#include "backend/cpu/cpu_lanes.h"
#include "backend/cpu/cpu_matmul.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static bool have(uint32_t bits) {
    return (lp_cpu_features_detect() & bits) == bits;
}

static void wrong_kernels_are_rejected(void **state) {
    (void)state;
#if defined(__x86_64__) || defined(__aarch64__)
#if defined(__x86_64__)
#define FIRST(stem) lp_cpu_mat_avx2_##stem
    if (!have(LP_CPU_LEVEL_AVX2)) skip();
#else
#define FIRST(stem) lp_cpu_mat_neon_##stem
#endif
    static const struct {
        const struct lp_cpu_mat_kernel *kernel;
        lp_type type;
    } wrong[] = {
        {&FIRST(f16), LP_TYPE_BF16},    {&FIRST(bf16), LP_TYPE_F16},
        {&FIRST(q4_0), LP_TYPE_IQ4_NL}, {&FIRST(iq4_nl), LP_TYPE_Q4_0},
        {&FIRST(q3_k), LP_TYPE_IQ3_S},  {&FIRST(iq2_xxs), LP_TYPE_TQ2_0},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_false(lp_cpu_mat_selfcheck(wrong[i].kernel, lp_type_info((uint32_t)wrong[i].type)));
#undef FIRST
#else
    skip();
#endif
}

static void assert_kernel(const struct lp_cpu_device *dev, lp_type type, const char *prefix,
                          const char *stem) {
    char name[64];
    snprintf(name, sizeof name, "%s%s", prefix, stem);
    assert_string_equal(dev->mat_kernels[type]->name, name);
}

static void every_type_gets_its_kernel(void **state) {
    (void)state;
    static const struct {
        const char *prefix; // of the 8-bit kernels
        uint32_t bits;
        const char *floats; // prefix of the others
    } levels[] = {{"avx2_", LP_CPU_LEVEL_AVX2, "avx2_"},
                  {"avx2_", LP_CPU_LEVEL_AVX512, "avx512_"},
                  {"vnni_", LP_CPU_LEVEL_VNNI, "avx512_"},
                  {"neon_", LP_CPU_LEVEL_NEON, "neon_"},
                  {"dotprod_", LP_CPU_LEVEL_DOTPROD, "neon_"},
                  {"i8mm_", LP_CPU_LEVEL_I8MM, "neon_"}};
    for (size_t l = 0; l < sizeof levels / sizeof levels[0]; l++) {
        if (!have(levels[l].bits)) continue;
        struct lp_cpu_device dev = {.features = levels[l].bits};
        lp_cpu_mat_choose(&dev);
#define CHECK(stem, type) assert_kernel(&dev, LP_TYPE_##type, levels[l].prefix, #stem);
        LP_CPU_Q8_LIST(CHECK)
#undef CHECK
        assert_kernel(&dev, LP_TYPE_F32, levels[l].floats, "f32");
        assert_kernel(&dev, LP_TYPE_F16, levels[l].floats, "f16");
        assert_kernel(&dev, LP_TYPE_BF16, levels[l].floats, "bf16");
        assert_kernel(&dev, LP_TYPE_F8_E4M3, levels[l].floats, "f8_e4m3");
        assert_kernel(&dev, LP_TYPE_TQ1_0, levels[l].floats, "dequant");
    }
    if (have(LP_CPU_LEVEL_VBMI)) {
        struct lp_cpu_device dev = {.features = LP_CPU_LEVEL_VBMI};
        lp_cpu_mat_choose(&dev);
#define CHECK(stem, type) assert_kernel(&dev, LP_TYPE_##type, "vbmi_", #stem);
        LP_CPU_VBMI_LIST(CHECK)
#undef CHECK
        assert_kernel(&dev, LP_TYPE_Q4_K, "vnni_", "q4_k");
    }
    struct lp_cpu_device dev = {.features = 0};
    lp_cpu_mat_choose(&dev);
    for (uint32_t id = 0; id < LP_TYPE_COUNT; id++) {
        const struct lp_type_info *info = lp_type_info(id);
        bool weight = info && info->is_weight;
        assert_int_equal(dev.mat_kernels[id] != NULL, weight);
        if (weight) assert_string_equal(dev.mat_kernels[id]->name, "plain_dequant");
    }
}

// ---- lanes: each broken function does what the plain one does, and spoils one value behind it

static void bad_mul_nt(int m, int n, int k, const float *a, ptrdiff_t lda, const float *b,
                       ptrdiff_t ldb, float *c, ptrdiff_t row_step, ptrdiff_t col_step) {
    lp_cpu_lanes_plain.mul_nt(m, n, k, a, lda, b, ldb, c, row_step, col_step);
    c[(m - 1) * row_step + (n - 1) * col_step] += 1e-3f;
}
static void bad_mul_nn(int m, int n, int k, const float *a, ptrdiff_t lda, const float *b,
                       ptrdiff_t ldb, float *c, ptrdiff_t ldc, bool add) {
    (void)add; // += taken for =
    lp_cpu_lanes_plain.mul_nn(m, n, k, a, lda, b, ldb, c, ldc, false);
}
static void bad_mul_rows(int n, int k, const float *a, const int32_t *rows, const float *b,
                         ptrdiff_t ldb, float *c) {
    (void)rows; // taken for 0, 1, 2, ...
    lp_cpu_lanes_plain.mul_nn(1, n, k, a, k, b, ldb, c, n, true);
}
static void bad_transpose(int n_rows, int n_cols, const float *in, ptrdiff_t ld_in, float *out,
                          ptrdiff_t ld_out) {
    lp_cpu_lanes_plain.transpose(n_rows, n_cols, in, ld_in, out, ld_out);
    float swap = out[3];
    out[3] = out[4];
    out[4] = swap;
}
static float bad_softmax_step(float *s, int n, float scale, float *max, float *sum) {
    lp_cpu_lanes_plain.softmax_step(s, n, scale, max, sum);
    return 1; // the maximum moved
}
static void bad_relu_sum(int m, int n, const float *s, ptrdiff_t lds, const float *w, float *acc) {
    lp_cpu_lanes_plain.relu_sum(m - 1, n, s, lds, w, acc);
}
static void bad_scale(float *x, size_t n, float factor) {
    lp_cpu_lanes_plain.scale(x, n - 1, factor);
}
static void bad_silu_mul(const float *gate, const float *up, float *y, size_t n) {
    lp_cpu_lanes_plain.silu_mul(up, gate, y, n);
}
static void bad_load(lp_type type, const void *row, float *out, size_t n) {
    lp_cpu_lanes_plain.load(type, row, out, n);
    if (type == LP_TYPE_BF16) out[n - 1] = 0;
}
static void bad_store(lp_type type, const float *in, void *row, size_t n) {
    lp_cpu_lanes_plain.store(type, in, row, n);
    if (type == LP_TYPE_Q8_0) ((uint8_t *)row)[35]++; // a scale of the second block
}

static void wrong_lanes_are_rejected(void **state) {
    (void)state;
    struct lp_cpu_lanes good = lp_cpu_lanes_plain;
    assert_true(lp_cpu_lanes_selfcheck(&good));
#define REJECT(function)                                                                           \
    {                                                                                              \
        struct lp_cpu_lanes bad = good;                                                            \
        bad.function = bad_##function;                                                             \
        assert_false(lp_cpu_lanes_selfcheck(&bad));                                                \
    }
    REJECT(mul_nt)
    REJECT(mul_nn)
    REJECT(mul_rows)
    REJECT(transpose)
    REJECT(softmax_step)
    REJECT(relu_sum)
    REJECT(scale)
    REJECT(silu_mul)
    REJECT(load)
    REJECT(store)
#undef REJECT
}

static void every_level_gets_its_lanes(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint32_t bits;
    } levels[] = {{"plain", LP_CPU_LEVEL_PLAIN},
                  {"avx2", LP_CPU_LEVEL_AVX2},
                  {"avx512", LP_CPU_LEVEL_AVX512},
                  {"avx512", LP_CPU_LEVEL_VNNI},
                  {"neon", LP_CPU_LEVEL_NEON}};
    for (size_t l = 0; l < sizeof levels / sizeof levels[0]; l++) {
        if (!have(levels[l].bits)) continue;
        struct lp_cpu_device dev = {.features = levels[l].bits};
        lp_cpu_lanes_choose(&dev);
        assert_string_equal(dev.lanes->name, levels[l].name);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_kernels_are_rejected),
        cmocka_unit_test(every_type_gets_its_kernel),
        cmocka_unit_test(wrong_lanes_are_rejected),
        cmocka_unit_test(every_level_gets_its_lanes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
