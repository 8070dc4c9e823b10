// Levels: what "auto" takes, what a level holds, which sentence a wrong one gets.
#include "backend/cpu/cpu_features.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void auto_takes_the_highest_level(void **state) {
    (void)state;
    static const struct {
        uint32_t have;
        const char *name;
    } cases[] = {
        {0, "plain"},
        {LP_CPU_AVX2 | LP_CPU_FMA, "plain"}, // no f16c
        {LP_CPU_LEVEL_AVX2, "avx2"},
        {LP_CPU_LEVEL_AVX2 | LP_CPU_AVX512F, "avx2"},
        {LP_CPU_LEVEL_AVX512, "avx512"},
        {LP_CPU_LEVEL_VNNI, "vnni"},
        {LP_CPU_LEVEL_VBMI, "vbmi"},
        {LP_CPU_LEVEL_VBMI | LP_CPU_AMX_TILE, "vbmi"},
        {LP_CPU_LEVEL_VNNI | LP_CPU_AVX512BF16, "vnni"}, // no vbmi
        {LP_CPU_LEVEL_BF16, "bf16"},
        {LP_CPU_LEVEL_AMX, "amx"},
        {LP_CPU_LEVEL_NEON, "neon"},
        {LP_CPU_LEVEL_NEON | LP_CPU_I8MM, "neon"}, // no dotprod
        {LP_CPU_LEVEL_DOTPROD, "dotprod"},
        {LP_CPU_LEVEL_I8MM, "i8mm"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t bits = 1;
        const char *name = NULL;
        assert_int_equal(
            lp_cpu_features_choose(cases[i].have, i % 2 ? "auto" : NULL, &bits, &name, NULL),
            LP_OK);
        assert_string_equal(name, cases[i].name);
        assert_int_equal(bits & ~cases[i].have, 0);
    }
}

static void a_level_caps_the_bits(void **state) {
    (void)state;
    uint32_t bits;
    const char *name;
    assert_int_equal(lp_cpu_features_choose(LP_CPU_LEVEL_VNNI, "avx2", &bits, &name, NULL), LP_OK);
    assert_int_equal(bits, LP_CPU_LEVEL_AVX2);
    assert_int_equal(lp_cpu_features_choose(LP_CPU_LEVEL_VNNI, "plain", &bits, &name, NULL), LP_OK);
    assert_int_equal(bits, 0);
    assert_int_equal(lp_cpu_features_choose(LP_CPU_LEVEL_I8MM, "generic", &bits, &name, NULL),
                     LP_OK);
    assert_int_equal(bits, 0);
    assert_string_equal(name, "plain");
}

static void wrong_levels_name_the_available_ones(void **state) {
    (void)state;
    uint32_t bits;
    const char *name;
    struct lp_err err;
    assert_int_equal(lp_cpu_features_choose(LP_CPU_LEVEL_AVX2, "vnni", &bits, &name, &err),
                     LP_STATUS_INVALID);
    assert_non_null(strstr(
        err.text, "\"vnni\" is not supported by this machine; available: auto, plain, avx2"));
    assert_int_equal(lp_cpu_features_choose(LP_CPU_LEVEL_AMX, "neon", &bits, &name, &err),
                     LP_STATUS_INVALID);
    assert_non_null(
        strstr(err.text, "\"neon\" is not supported by this machine; available: auto, plain, avx2, "
                         "avx512, vnni, vbmi, bf16, amx"));
    assert_int_equal(lp_cpu_features_choose(0, "sse9", &bits, &name, &err), LP_STATUS_INVALID);
    assert_non_null(strstr(err.text, "\"sse9\" is unknown; available: auto, plain"));
}

// The kernel's own list of what this machine has is the independent source.
static void detection_agrees_with_the_system(void **state) {
    (void)state;
#if defined(__x86_64__) && defined(__linux__)
    static const struct {
        const char *flag;
        uint32_t bit;
    } flags[] = {{" avx2", LP_CPU_AVX2},
                 {" fma", LP_CPU_FMA},
                 {" f16c", LP_CPU_F16C},
                 {" avx512f", LP_CPU_AVX512F},
                 {" avx512bw", LP_CPU_AVX512BW},
                 {" avx512vl", LP_CPU_AVX512VL},
                 {" avx512dq", LP_CPU_AVX512DQ},
                 {" avx512_vnni", LP_CPU_AVX512VNNI},
                 {" avx512vbmi", LP_CPU_AVX512VBMI},
                 {" avx512_bf16", LP_CPU_AVX512BF16}};
    char line[8192];
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (!file) skip();
    bool found = false;
    while (!found && fgets(line, sizeof line, file)) found = strncmp(line, "flags", 5) == 0;
    fclose(file);
    if (!found) skip();
    line[strcspn(line, "\n")] = ' ';
    uint32_t have = lp_cpu_features_detect();
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        char word[32];
        snprintf(word, sizeof word, "%s ", flags[i].flag);
        assert_int_equal(strstr(line, word) != NULL, (have & flags[i].bit) != 0);
    }
#else
    skip();
#endif
}

static void text_lists_the_bits(void **state) {
    (void)state;
    char text[64];
    assert_string_equal(lp_cpu_features_text(LP_CPU_LEVEL_AVX2, text, sizeof text),
                        "avx2 fma f16c");
    assert_string_equal(lp_cpu_features_text(0, text, sizeof text), "");
    assert_string_equal(lp_cpu_features_text(LP_CPU_LEVEL_VNNI, text, 8), "avx2 fm");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(auto_takes_the_highest_level),
        cmocka_unit_test(a_level_caps_the_bits),
        cmocka_unit_test(wrong_levels_name_the_available_ones),
        cmocka_unit_test(detection_agrees_with_the_system),
        cmocka_unit_test(text_lists_the_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
