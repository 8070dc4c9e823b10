// Kernel choice: the expected kernel for every type and level, and a self-check that rejects
// kernels which read a type of the same size as if it were another.
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
#if defined(__x86_64__)
    if (!have(LP_CPU_LEVEL_AVX2)) skip();
    static const struct {
        const struct lp_cpu_mat_kernel *kernel;
        lp_type type;
    } wrong[] = {
        {&lp_cpu_mat_avx2_f16, LP_TYPE_BF16},    {&lp_cpu_mat_avx2_bf16, LP_TYPE_F16},
        {&lp_cpu_mat_avx2_q4_0, LP_TYPE_IQ4_NL}, {&lp_cpu_mat_avx2_iq4_nl, LP_TYPE_Q4_0},
        {&lp_cpu_mat_avx2_q3_k, LP_TYPE_IQ3_S},  {&lp_cpu_mat_avx2_iq2_xxs, LP_TYPE_TQ2_0},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_false(lp_cpu_mat_selfcheck(wrong[i].kernel, lp_type_info((uint32_t)wrong[i].type)));
#else
    skip();
#endif
}

static void every_type_gets_its_kernel(void **state) {
    (void)state;
    static const struct {
        const char *prefix;
        uint32_t bits;
    } levels[] = {{"avx2_", LP_CPU_LEVEL_AVX2}, {"vnni_", LP_CPU_LEVEL_VNNI}};
    for (size_t l = 0; l < 2; l++) {
        if (!have(levels[l].bits)) continue;
        struct lp_cpu_device dev = {.features = levels[l].bits};
        lp_cpu_mat_choose(&dev);
#define CHECK(stem, type)                                                                          \
    assert_memory_equal(dev.mat_kernels[LP_TYPE_##type]->name, levels[l].prefix, 5);               \
    assert_string_equal(dev.mat_kernels[LP_TYPE_##type]->name + 5, #stem);
        LP_CPU_Q8_LIST(CHECK)
#undef CHECK
        assert_string_equal(dev.mat_kernels[LP_TYPE_F32]->name, "avx2_f32");
        assert_string_equal(dev.mat_kernels[LP_TYPE_F16]->name, "avx2_f16");
        assert_string_equal(dev.mat_kernels[LP_TYPE_BF16]->name, "avx2_bf16");
        assert_string_equal(dev.mat_kernels[LP_TYPE_TQ1_0]->name, "avx2_dequant");
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_kernels_are_rejected),
        cmocka_unit_test(every_type_gets_its_kernel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
