// Each form of a matrix against its formula in double precision, with the formats' values computed
// here from their definitions (OCP: E4M3 and E2M1 have a sign, 4 or 2 bits of exponent, 3 or 1 of
// mantissa).
#include <math.h>

#include "st_build.h"

#include "hf/hf_values.h"

static double e4m3(int b) {
    double sign = b & 128 ? -1 : 1, mantissa = b & 7;
    int exponent = b >> 3 & 15;
    if ((b & 127) == 127) return NAN;
    return sign * (exponent ? ldexp(1 + mantissa / 8, exponent - 7) : ldexp(mantissa / 8, -6));
}

static double e2m1(int b) {
    double sign = b & 8 ? -1 : 1, mantissa = b & 1;
    int exponent = b >> 1 & 3;
    return sign * (exponent ? ldexp(1 + mantissa / 2, exponent - 1) : mantissa / 2);
}

static uint32_t state_of_noise = 1;
static uint32_t noise(void) {
    state_of_noise = state_of_noise * 1664525u + 1013904223u;
    return state_of_noise >> 8;
}
static float noise_scale(void) {
    return ldexpf(1 + (float)noise() / (1 << 24), (int)(noise() % 20) - 15);
}

static bool same(float got, float want) {
    return isnan(want) ? isnan(got) : memcmp(&got, &want, 4) == 0 || (got == 0 && want == 0);
}

static struct lp_hf_matrix find(const struct lp_hf_folder *folder, const char *name) {
    struct lp_hf_matrix m;
    struct lp_err err = {0};
    bool found;
    if (lp_hf_matrix_find(&m, &found, folder, name, &err)) fail_msg("%s: %s", name, err.text);
    assert_true(found);
    return m;
}

// All rows of all matrices are `want`, asked for at once and one by one.
static void rows_are(const struct lp_hf_matrix *m, const float *want) {
    size_t n = (size_t)(m->n_out * m->n_in);
    float *got = malloc(n * sizeof *got);
    for (int64_t e = 0; e < m->n_mats; e++, want += n) {
        lp_hf_matrix_rows(m, e, 0, m->n_out, got);
        for (size_t i = 0; i < n; i++)
            if (!same(got[i], want[i]))
                fail_msg("%s: value %zu is %g, not %g", m->name, i, (double)got[i],
                         (double)want[i]);
        for (int64_t r = m->n_out - 1; r >= 0; r -= 1 + m->n_out / 7) {
            lp_hf_matrix_rows(m, e, r, 1, got);
            for (int64_t i = 0; i < m->n_in; i++) assert_true(same(got[i], want[r * m->n_in + i]));
        }
    }
    free(got);
}

// The matrix has the type, and its blocks, made of the matrix and of its last row alone, are worth
// `want` after the factor; rounded to BF16 first where the type is a rounding one.
static void packs(const struct lp_hf_matrix *m, bool for_file, lp_type type, const float *want,
                  bool rounds) {
    uint64_t row_bytes;
    assert_int_equal(lp_hf_matrix_type(m, for_file), type);
    assert_true(lp_type_row_bytes(type, (uint64_t)m->n_in, &row_bytes));
    size_t n = (size_t)(m->n_out * m->n_in);
    float *got = malloc(n * sizeof *got);
    uint8_t *blocks = malloc((size_t)m->n_out * row_bytes), *last = malloc(row_bytes);
    for (int64_t e = 0; e < m->n_mats; e++, want += n) {
        float factor = lp_hf_matrix_factor(m, e);
        lp_hf_matrix_pack(m, for_file, e, 0, m->n_out, blocks);
        lp_hf_matrix_pack(m, for_file, e, m->n_out - 1, 1, last);
        assert_memory_equal(last, blocks + (size_t)(m->n_out - 1) * row_bytes, row_bytes);
        for (int64_t r = 0; r < m->n_out; r++)
            lp_type_info(type)->dequant(blocks + (size_t)r * row_bytes, got + r * m->n_in,
                                        (size_t)m->n_in);
        for (size_t i = 0; i < n; i++) {
            float w = rounds ? lp_bf16_to_f32(lp_f32_to_bf16(want[i])) : want[i];
            if (!same(got[i] * factor, w))
                fail_msg("%s: value %zu is %g, not %g", m->name, i, (double)(got[i] * factor),
                         (double)w);
        }
    }
    free(got);
    free(blocks);
    free(last);
}

// ---- plain

static void plain_matrices(void **state) {
    (void)state;
    struct st_build b = {0};
    float f[12] = {1, -2.5f, 3e38f, -1e-40f, NAN, 0, 7, 8, 9, 10, 11, 12}, want[12];
    uint16_t half[12];
    for (int i = 0; i < 12; i++) half[i] = (uint16_t)(0x1234 * i + 0x3c00);
    st_add(&b, "pad", "U8", "[1]", "x", 1); // whatever follows is not aligned
    st_add(&b, "f.weight", "F32", "[3,4]", f, sizeof f);
    st_add(&b, "h.weight", "F16", "[3,4]", half, sizeof half);
    st_add(&b, "b.weight", "BF16", "[3,4]", half, sizeof half);
    st_add(&b, "norm.weight", "BF16", "[12]", half, sizeof half);
    st_add(&b, "q.bias", "F32", "[12]", f, sizeof f);
    st_add(&b, "scalar", "F32", "[]", f, 4);
    st_add(&b, "experts.down_proj", "BF16", "[2,3,2]", half, sizeof half);
    const struct lp_hf_folder *folder = st_finish(&b, "{}");
    struct lp_hf_matrix m = find(folder, "f");
    assert_true(m.form == LP_HF_PLAIN && m.n_mats == 1 && m.n_out == 3 && m.n_in == 4);
    assert_string_equal(m.name, "f.weight");
    rows_are(&m, f);
    packs(&m, true, LP_TYPE_F32, f, false);
    m = find(folder, "h");
    for (int i = 0; i < 12; i++) { // IEEE half, from its definition
        int e = half[i] >> 10 & 31;
        double v = e ? ldexp(1024 + (half[i] & 1023), e - 25) : ldexp(half[i] & 1023, -24);
        if (e == 31) v = half[i] & 1023 ? NAN : INFINITY;
        want[i] = (float)(half[i] & 0x8000 ? -v : v);
    }
    rows_are(&m, want);
    packs(&m, true, LP_TYPE_F16, want, false);
    for (int i = 0; i < 12; i++) {
        uint32_t bits = (uint32_t)half[i] << 16;
        memcpy(&want[i], &bits, 4);
    }
    m = find(folder, "b");
    rows_are(&m, want);
    packs(&m, false, LP_TYPE_BF16, want, false);
    m = find(folder, "norm");
    assert_true(m.n_mats == 1 && m.n_out == 1 && m.n_in == 12);
    rows_are(&m, want);
    m = find(folder, "experts.down_proj");
    assert_true(m.n_mats == 2 && m.n_out == 3 && m.n_in == 2);
    rows_are(&m, want);
    packs(&m, true, LP_TYPE_BF16, want, false);
    m = find(folder, "q.bias");
    assert_true(m.n_out == 1 && m.n_in == 12 && lp_hf_matrix_factor(&m, 0) == 1);
    m = find(folder, "scalar");
    assert_true(m.n_out == 1 && m.n_in == 1);
    bool found = true;
    assert_int_equal(lp_hf_matrix_find(&m, &found, folder, "none", NULL), LP_OK);
    assert_false(found);
    char endless[400];
    memset(endless, 'a', sizeof endless - 1);
    endless[sizeof endless - 1] = 0;
    assert_int_equal(lp_hf_matrix_find(&m, &found, folder, endless, NULL), LP_OK);
    assert_false(found);
    st_release(&b);
}

// ---- FP8

static void every_e4m3_byte(void **state) {
    (void)state;
    struct st_build b = {0};
    uint8_t q[3 * 256];
    float scales[3], want[3 * 256];
    for (int i = 0; i < 3; i++) scales[i] = noise_scale();
    for (int i = 0; i < 3 * 256; i++) {
        q[i] = (uint8_t)i;
        want[i] = (float)(e4m3(i & 255) * (double)scales[i / 256]);
    }
    st_add(&b, "m.weight", "F8_E4M3", "[3,256]", q, sizeof q);
    st_add(&b, "m.weight_scale", "F32", "[3,1]", scales, sizeof scales);
    st_add(&b, "v.weight", "F8_E4M3", "[3,256]", q, sizeof q);
    st_add(&b, "v.weight_scale", "F32", "[3]", scales, sizeof scales);
    st_add(&b, "one.weight", "F8_E4M3", "[1,256]", q, 256);
    st_add(&b, "one.weight_scale", "F32", "[1]", scales, 4);
    st_add(&b, "none.weight", "F8_E4M3", "[1,256]", q, 256);
    st_add(&b, "none.weight_scale_inv", "F32", "[]", scales, 4);
    const struct lp_hf_folder *folder = st_finish(&b, "{}");
    const char *names[] = {"m", "v", "one", "none"};
    for (int i = 0; i < 4; i++) {
        struct lp_hf_matrix m = find(folder, names[i]);
        assert_true(m.form == LP_HF_FP8 && m.n_in == 256);
        rows_are(&m, want);
        packs(&m, false, LP_TYPE_F8_E4M3, want, false);
        packs(&m, true, LP_TYPE_BF16, want, true);
    }
    st_release(&b);
}

enum scale_kind { S_F32, S_BF16, S_F16, S_E8M0 };
static const char *const scale_dtypes[] = {"F32", "BF16", "F16", "F8_E8M0"};

// n random scales of a dtype as bytes, and what they are worth.
static size_t make_scales(enum scale_kind kind, size_t n, uint8_t *bytes, double *worth) {
    static const size_t sizes[] = {4, 2, 2, 1};
    for (size_t i = 0; i < n; i++) {
        float f = noise_scale();
        uint16_t half = kind == S_F16 ? (uint16_t)(noise() % 0x7c00) : lp_f32_to_bf16(f);
        uint8_t e = (uint8_t)(i < 3 ? (int[]){0, 254, 255}[i] : 100 + (int)(noise() % 50));
        const void *value[] = {&f, &half, &half, &e};
        memcpy(bytes + i * sizes[kind], value[kind], sizes[kind]);
        if (kind == S_F32) worth[i] = (double)f;
        if (kind == S_BF16) worth[i] = (double)lp_bf16_to_f32(half);
        if (kind == S_F16) worth[i] = (double)lp_f16_to_f32(half);
        if (kind == S_E8M0) worth[i] = e == 255 ? NAN : ldexp(1, e - 127);
    }
    return n * sizes[kind];
}

// A matrix of blocks that its sizes are no multiples of, with every dtype of scales and every way
// to say the block.
static void fp8_blocks(void **state) {
    (void)state;
    static const struct {
        int n_mats, n_out, n_in, block_out, block_in;
        const char *config, *suffix;
        lp_type in_memory;
    } cases[] = {
        {0, 130, 256, 128, 128, "{}", "_scale_inv", LP_TYPE_F8_E4M3},
        {0, 200, 384, 128, 128, "{\"quantization_config\":{\"weight_block_size\":[128,128]}}",
         "_scale_inv", LP_TYPE_F8_E4M3},
        {0, 129, 260, 128, 128, "{}", "_scale_inv", LP_TYPE_F32},
        {0, 70, 100, 32, 48, "{\"quantization_config\":{\"weight_block_size\":[32,48]}}",
         "_scale_inv", LP_TYPE_F32},
        {0, 64, 256, 16, 64,
         "{\"quantization_config\":{\"config_groups\":{\"g\":{\"weights\":{\"block_structure\":[16,"
         "64]}}}}}",
         "_scale", LP_TYPE_F32},
        {0, 3, 512, 1, 256,
         "{\"quantization_config\":{\"config_groups\":{\"g\":{\"weights\":{\"group_size\":256}}}}}",
         "_scale", LP_TYPE_F8_E4M3},
        {3, 130, 256, 128, 128, "{}", "_scale_inv", LP_TYPE_F8_E4M3},
        {3, 6, 128, 6, 128, "{}", "_scales_inv", LP_TYPE_F8_E4M3},
        {2, 6, 128, 1, 128, "{}", "_scale", LP_TYPE_F8_E4M3},
    };
    for (size_t c = 0; c < 4 * (sizeof cases / sizeof cases[0]); c++) {
        const int n_mats = cases[c / 4].n_mats ? cases[c / 4].n_mats : 1, out = cases[c / 4].n_out,
                  in = cases[c / 4].n_in, bo = cases[c / 4].block_out, bi = cases[c / 4].block_in;
        int rows = (out + bo - 1) / bo, cols = (in + bi - 1) / bi;
        size_t n = (size_t)n_mats * (size_t)out * (size_t)in;
        uint8_t *q = malloc(n), bytes[4096];
        float *want = malloc(n * sizeof *want);
        double worth[1024];
        size_t n_bytes =
            make_scales((enum scale_kind)(c % 4), (size_t)(n_mats * rows * cols), bytes, worth);
        for (size_t i = 0; i < n; i++) {
            int e = (int)(i / (size_t)(out * in)), r = (int)(i / (size_t)in) % out,
                col = (int)(i % (size_t)in);
            q[i] = (uint8_t)noise();
            want[i] = (float)(e4m3(q[i]) * worth[(e * rows + r / bo) * cols + col / bi]);
        }
        struct st_build b = {0};
        char shape[64], scale_shape[64], name[64];
        const char *base = cases[c / 4].n_mats ? "mlp.experts.up" : "m.weight";
        snprintf(shape, sizeof shape, "[%d,%d]", out, in);
        snprintf(scale_shape, sizeof scale_shape, "[%d,%d]", rows, cols);
        if (cases[c / 4].n_mats) {
            snprintf(shape, sizeof shape, "[%d,%d,%d]", n_mats, out, in);
            snprintf(scale_shape, sizeof scale_shape, "[%d,%d,%d]", n_mats, rows, cols);
        }
        st_add(&b, base, "F8_E4M3", shape, q, n);
        snprintf(name, sizeof name, "%s%s", base, cases[c / 4].suffix);
        st_add(&b, name, scale_dtypes[c % 4], scale_shape, bytes, n_bytes);
        const struct lp_hf_folder *folder = st_finish(&b, cases[c / 4].config);
        struct lp_hf_matrix m = find(folder, cases[c / 4].n_mats ? "mlp.experts.up" : "m");
        assert_true(m.n_mats == n_mats && m.n_out == out && m.n_in == in);
        rows_are(&m, want);
        packs(&m, false, cases[c / 4].in_memory, want, false);
        packs(&m, true, LP_TYPE_BF16, want, true);
        st_release(&b);
        free(q);
        free(want);
    }
}

// ---- NVFP4

// Every value with every byte as its scale; in_rows: the scales of rows begin there.
static void make_nvfp4(int first_scale, int n_out, int n_in, uint8_t *q, uint8_t *scales,
                       double *worth) {
    for (int i = 0; i < n_out * n_in; i++) {
        int nibble = (i + i / 16) & 15, scale = first_scale + i / n_in;
        scales[i / 16] = (uint8_t)scale;
        q[i / 2] = (uint8_t)(i % 2 ? q[i / 2] | nibble << 4 : nibble);
        worth[i] = e2m1(nibble) * e4m3(scale);
    }
}

static void nvfp4_of_both_kinds(void **state) {
    (void)state;
    static const struct {
        int first_scale, n_out, n_in;
        const char *shape, *scale_shape;
        lp_type type;
    } cases[] = {
        {0, 127, 64, "[127,32]", "[127,4]", LP_TYPE_NVFP4},
        {0, 256, 64, "[256,32]", "[256,4]", LP_TYPE_BF16}, // with negative scales and NaN
        {1, 127, 64, "[127,32]", "[127,4]", LP_TYPE_BF16}, // with the positive NaN alone
        {0, 127, 48, "[127,24]", "[127,3]", LP_TYPE_BF16},
    };
    static uint8_t q[256 * 32], scales[256 * 4];
    static double worth[256 * 64];
    static float want[256 * 64], divided[256 * 64];
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        int n = cases[c].n_out * cases[c].n_in;
        float factor = 0.0123f, global = 64.0f, odd = 4321.7f;
        make_nvfp4(cases[c].first_scale, cases[c].n_out, cases[c].n_in, q, scales, worth);
        struct st_build b = {0};
        st_add(&b, "m.weight", "U8", cases[c].shape, q, (size_t)n / 2);
        st_add(&b, "m.weight_scale", "F8_E4M3", cases[c].scale_shape, scales, (size_t)n / 16);
        st_add(&b, "m.weight_scale_2", "F32", "[]", &factor, 4);
        st_add(&b, "c.weight_packed", "U8", cases[c].shape, q, (size_t)n / 2);
        st_add(&b, "c.weight_scale", "F8_E4M3", cases[c].scale_shape, scales, (size_t)n / 16);
        st_add(&b, "c.weight_global_scale", "F32", "[1]", &global, 4);
        st_add(&b, "d.weight_packed", "U8", cases[c].shape, q, (size_t)n / 2);
        st_add(&b, "d.weight_scale", "F8_E4M3", cases[c].scale_shape, scales, (size_t)n / 16);
        st_add(&b, "d.weight_global_scale", "F32", "[1]", &odd, 4);
        const struct lp_hf_folder *folder = st_finish(&b, "{}");
        struct lp_hf_matrix m = find(folder, "m");
        assert_true(m.form == LP_HF_NVFP4 && m.n_in == cases[c].n_in && !m.divide);
        for (int i = 0; i < n; i++) want[i] = (float)(worth[i] * (double)factor);
        rows_are(&m, want);
        for (int for_file = 0; for_file < 2; for_file++)
            packs(&m, for_file, cases[c].type, want, false);
        m = find(folder, "c"); // 1 / 64 is exact: so is all
        assert_true(m.divide);
        for (int i = 0; i < n; i++) divided[i] = (float)(worth[i] / (double)global);
        rows_are(&m, divided);
        packs(&m, true, cases[c].type, divided, false);
        m = find(folder, "d"); // the factor is rounded, and its product with the value
        for (int i = 0; i < n; i++) divided[i] = (float)(worth[i] / (double)odd);
        rows_are(&m, divided);
        float reciprocal = (float)(1 / (double)odd);
        for (int i = 0; i < n; i++) divided[i] = (float)(worth[i] * (double)reciprocal);
        assert_true(lp_hf_matrix_factor(&m, 0) == reciprocal);
        packs(&m, true, cases[c].type, divided, false);
        st_release(&b);
    }
}

static void a_stack_of_nvfp4(void **state) {
    (void)state;
    uint8_t q[2 * 3 * 32], scales[2 * 3 * 4];
    double worth[2 * 3 * 64];
    float want[2 * 3 * 64], factors[2] = {0.3f, 7.7f};
    make_nvfp4(40, 6, 64, q, scales, worth);
    for (int i = 0; i < 6 * 64; i++) want[i] = (float)(worth[i] * (double)factors[i / 192]);
    struct st_build b = {0};
    st_add(&b, "e", "U8", "[2,3,32]", q, sizeof q);
    st_add(&b, "e_scale", "F8_E4M3", "[2,3,4]", scales, sizeof scales);
    st_add(&b, "e_scale_2", "F32", "[2]", factors, sizeof factors);
    struct lp_hf_matrix m = find(st_finish(&b, "{}"), "e");
    assert_true(m.n_mats == 2 && m.n_out == 3 && m.n_in == 64);
    rows_are(&m, want);
    packs(&m, true, LP_TYPE_NVFP4, want, false);
    st_release(&b);
}

// ---- INT4

static void int4_groups(void **state) {
    (void)state;
    static const struct {
        int n_out, n_in, group;
        enum scale_kind kind;
        int shape_bytes;
        float tiny; // the first scale, where not 0
        lp_type type;
    } cases[] = {
        {5, 64, 32, S_BF16, 4, 0, LP_TYPE_Q4_0},
        {5, 64, 32, S_BF16, 8, 0x1p-20f, LP_TYPE_Q4_0},   // a float16 too, with fewer bits
        {5, 64, 32, S_BF16, 8, 0x1.02p-24f, LP_TYPE_F32}, // more bits than that
        {5, 64, 32, S_BF16, 8, 0x1p17f, LP_TYPE_F32},
        {5, 64, 32, S_F16, 8, 0, LP_TYPE_Q4_0},
        {5, 64, 32, S_F32, 8, 0, LP_TYPE_F32},   // scales of 24 bits
        {5, 64, 64, S_BF16, 8, 0, LP_TYPE_Q4_0}, // a scale for each row
        {5, 96, 64, S_BF16, 8, 0, LP_TYPE_Q4_0},
        {5, 80, 32, S_BF16, 8, 0, LP_TYPE_F32},
        {5, 45, 32, S_BF16, 8, 0, LP_TYPE_F32},
        {5, 48, 8, S_BF16, 4, 0, LP_TYPE_F32},
        {1, 1, 1, S_BF16, 4, 0, LP_TYPE_F32},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        int out = cases[c].n_out, in = cases[c].n_in, words = (in + 7) / 8,
            groups = (in + cases[c].group - 1) / cases[c].group;
        uint32_t packed[5 * 12] = {0};
        uint8_t bytes[5 * 12 * 4];
        double worth[5 * 12];
        float want[5 * 96];
        size_t n_bytes = make_scales(cases[c].kind, (size_t)(out * groups), bytes, worth);
        if (cases[c].tiny > 0) {
            uint16_t bits = lp_f32_to_bf16(cases[c].tiny);
            memcpy(bytes, &bits, 2);
            worth[0] = (double)cases[c].tiny;
        }
        for (int i = 0; i < out * in; i++) {
            int r = i / in, col = i % in, value = (int)(noise() % 16) - 8;
            packed[r * words + col / 8] |= (uint32_t)(value + 8) << 4 * (col % 8);
            want[i] = (float)(value * worth[r * groups + col / cases[c].group]);
        }
        int32_t narrow[] = {out, in};
        int64_t wide[] = {out, in};
        char shape[32], scale_shape[32], config[160];
        snprintf(shape, sizeof shape, "[%d,%d]", out, words);
        snprintf(scale_shape, sizeof scale_shape, "[%d,%d]", out, groups);
        snprintf(config, sizeof config,
                 "{\"quantization_config\":{\"config_groups\":{\"a\":7,\"b\":{\"weights\":{"
                 "\"group_size\":%d}}}}}",
                 cases[c].group);
        struct st_build b = {0};
        st_add(&b, "m.weight_packed", "I32", shape, packed, (size_t)(out * words * 4));
        st_add(&b, "m.weight_scale", scale_dtypes[cases[c].kind], scale_shape, bytes, n_bytes);
        if (cases[c].shape_bytes == 4)
            st_add(&b, "m.weight_shape", "I32", "[2]", narrow, sizeof narrow);
        else
            st_add(&b, "m.weight_shape", "I64", "[2]", wide, sizeof wide);
        struct lp_hf_matrix m = find(st_finish(&b, config), "m");
        assert_true(m.form == LP_HF_INT4 && m.n_out == out && m.n_in == in);
        rows_are(&m, want);
        for (int for_file = 0; for_file < 2; for_file++)
            packs(&m, for_file, cases[c].type, want, false);
        st_release(&b);
    }
}

// ---- what is refused

struct array {
    const char *name, *dtype, *shape;
    size_t n_bytes;
};

// The matrix "e" where the first array begins with that letter, else "m".
static const struct {
    struct array arrays[5];
    const char *config;
    lp_status status;
    const char *words;
} bad[] = {
    {{{"m.weight", "I8", "[2,4]", 8}}, "{}", LP_STATUS_UNSUPPORTED, "m.weight (I8)"},
    {{{"m.weight", "I8", "[2,4]", 8}, {"m.weight_scale", "BF16", "[2,1]", 4}},
     "{}",
     LP_STATUS_UNSUPPORTED,
     "I8 with scales of BF16"},
    {{{"m.weight", "F8_E5M2", "[2,4]", 8}}, "{}", LP_STATUS_UNSUPPORTED, "F8_E5M2"},
    {{{"m.weight", "F4", "[2,4]", 4}}, "{}", LP_STATUS_UNSUPPORTED, "F4"},
    {{{"m.weight", "F32", "[1,1,1,2]", 8}}, "{}", LP_STATUS_FORMAT, "4 dimensions"},
    {{{"m.weight", "F32", "[0,2]", 0}}, "{}", LP_STATUS_FORMAT, "has 0 values"},
    {{{"m.weight", "BF16", "[2,2]", 8}, {"m.weight_scale", "F32", "[1]", 4}},
     "{}",
     LP_STATUS_UNSUPPORTED,
     "m.weight_scale"},
    {{{"m.qweight", "I32", "[2,4]", 32}}, "{}", LP_STATUS_UNSUPPORTED, "GPTQ"},
    {{{"m_blocks", "U8", "[2,4]", 8}}, "{}", LP_STATUS_UNSUPPORTED, "MXFP4"},
    {{{"m.weight_packed", "U8", "[2,4]", 8}, {"m.weight_scale", "U8", "[2,1]", 2}},
     "{}",
     LP_STATUS_UNSUPPORTED,
     "U8 with scales of U8"},
    {{{"m.weight_packed", "BF16", "[2,4]", 16}}, "{}", LP_STATUS_UNSUPPORTED, "BF16"},
    // FP8
    {{{"m.weight", "F8_E4M3", "[2,4]", 8}},
     "{}",
     LP_STATUS_FORMAT,
     "m.weight_scale_inv is missing"},
    {{{"m.weight", "F8_E4M3", "[2,4]", 8}, {"m.weight_scale", "I32", "[1]", 4}},
     "{}",
     LP_STATUS_UNSUPPORTED,
     "I32"},
    {{{"m.weight", "F8_E4M3", "[2,4]", 8}, {"m.weight_scale", "F32", "[3,1]", 12}},
     "{}",
     LP_STATUS_FORMAT,
     "[3, 1]"},
    {{{"m.weight", "F8_E4M3", "[2,4]", 8}, {"m.weight_scale", "F32", "[1,2]", 8}},
     "{}",
     LP_STATUS_FORMAT,
     "[1, 2]"},
    {{{"m.weight", "F8_E4M3", "[2,4]", 8}, {"m.weight_scale", "F32", "[1,2]", 8}},
     "{\"quantization_config\":{\"weight_block_size\":[0,-2]}}",
     LP_STATUS_FORMAT,
     "[1, 2]"},
    {{{"m.weight", "F8_E4M3", "[8]", 8}, {"m.weight_scale", "F32", "[1]", 4}},
     "{}",
     LP_STATUS_FORMAT,
     "m.weight_scale"},
    {{{"m.weight", "F8_E4M3", "[2,4]", 8}, {"m.weight_scale", "F32", "[0]", 0}},
     "{}",
     LP_STATUS_FORMAT,
     "[0]"},
    {{{"e", "F8_E4M3", "[2,2,4]", 16}, {"e_scale_inv", "F32", "[1]", 4}},
     "{}",
     LP_STATUS_FORMAT,
     "e_scale_inv"},
    {{{"m.weight", "F8_E4M3", "[2,4]", 8},
      {"m.weight_scale", "F32", "[1]", 4},
      {"m.weight_zero_point", "F32", "[1]", 4}},
     "{}",
     LP_STATUS_UNSUPPORTED,
     "zero points"},
    {{{"m.weight", "F8_E4M3", "[2,4]", 8},
      {"m.weight_scale", "F32", "[1]", 4},
      {"m.pre_quant_scale", "F32", "[4]", 16}},
     "{}",
     LP_STATUS_UNSUPPORTED,
     "AWQ"},
    {{{"m.weight", "F8_E4M3", "[2,4]", 8}, {"m.weight_scale", "F32", "[1]", 4}},
     "{\"quantization_config\":{\"transform_config\":{\"config_groups\":{\"u\":{}}}}}",
     LP_STATUS_UNSUPPORTED,
     "transform_config"},
    // NVFP4
    {{{"m.weight", "U8", "[2,8]", 16}}, "{}", LP_STATUS_UNSUPPORTED, "U8"},
    {{{"m.weight", "U8", "[2,8]", 16}, {"m.weight_scale", "F8_E4M3", "[2,1]", 2}},
     "{}",
     LP_STATUS_FORMAT,
     "m.weight_scale_2 is missing"},
    {{{"m.weight", "U8", "[2,8]", 16},
      {"m.weight_scale", "F8_E4M3", "[2,2]", 4},
      {"m.weight_scale_2", "F32", "[]", 4}},
     "{}",
     LP_STATUS_FORMAT,
     "16 values"},
    {{{"m.weight", "U8", "[2,9]", 18},
      {"m.weight_scale", "F8_E4M3", "[2,1]", 2},
      {"m.weight_scale_2", "F32", "[]", 4}},
     "{}",
     LP_STATUS_FORMAT,
     "16 values"},
    {{{"m.weight", "U8", "[2,8]", 16},
      {"m.weight_scale", "F8_E4M3", "[2,1]", 2},
      {"m.weight_scale_2", "F32", "[2]", 8}},
     "{}",
     LP_STATUS_FORMAT,
     "one value"},
    {{{"m.weight", "U8", "[2,8]", 16},
      {"m.weight_scale", "F8_E4M3", "[2,1]", 2},
      {"m.weight_scale_2", "BF16", "[1]", 2}},
     "{}",
     LP_STATUS_UNSUPPORTED,
     "BF16"},
    {{{"m.weight_packed", "U8", "[2,8]", 16}, {"m.weight_scale", "F8_E4M3", "[2,1]", 2}},
     "{}",
     LP_STATUS_FORMAT,
     "m.weight_global_scale is missing"},
    {{{"m.weight_packed", "U8", "[2,8]", 16},
      {"m.weight_scale", "F8_E4M3", "[2,1]", 2},
      {"m.weight_global_scale", "F32", "[1]", 4}},
     "{}",
     LP_STATUS_FORMAT,
     "holds 0"},
    // INT4 (all bytes are 0, and so is weight_shape)
    {{{"m.weight_packed", "I32", "[2,4]", 32}}, "{}", LP_STATUS_FORMAT, "m.weight_scale"},
    {{{"m.weight_packed", "I32", "[2,4]", 32}, {"m.weight_scale", "BF16", "[2,1]", 4}},
     "{}",
     LP_STATUS_FORMAT,
     "m.weight_shape is missing"},
    {{{"m.weight_packed", "I32", "[2,4]", 32},
      {"m.weight_scale", "BF16", "[2,1]", 4},
      {"m.weight_shape", "I64", "[2]", 16}},
     "{}",
     LP_STATUS_FORMAT,
     "says 0 x 0"},
    {{{"m.weight_packed", "I32", "[2,4]", 32},
      {"m.weight_scale", "BF16", "[2,1]", 4},
      {"m.weight_shape", "I64", "[3]", 24}},
     "{}",
     LP_STATUS_FORMAT,
     "two whole numbers"},
    {{{"m.weight_packed", "I32", "[2,4]", 32},
      {"m.weight_scale", "BF16", "[2,1]", 4},
      {"m.weight_shape", "F32", "[2]", 8}},
     "{}",
     LP_STATUS_FORMAT,
     "two whole numbers"},
    {{{"m.weight_packed", "I32", "[2,4]", 32},
      {"m.weight_scale", "BF16", "[2,1]", 4},
      {"m.weight_zero_point", "I32", "[1]", 4}},
     "{}",
     LP_STATUS_UNSUPPORTED,
     "zero points"},
    {{{"m.weight_packed", "I32", "[2,4]", 32},
      {"m.weight_scale", "BF16", "[2,1]", 4},
      {"m.weight_g_idx", "I32", "[1]", 4}},
     "{}",
     LP_STATUS_UNSUPPORTED,
     "reordered"},
    {{{"e_packed", "I32", "[1,2,4]", 32}, {"e_scale", "BF16", "[1,2,2]", 8}},
     "{}",
     LP_STATUS_FORMAT,
     "group_size"},
    {{{"e_packed", "I32", "[1,2,4]", 32}, {"e_scale", "BF16", "[1,2,3]", 12}},
     "{\"quantization_config\":{\"config_groups\":{\"a\":{\"weights\":{\"group_size\":12}}}}}",
     LP_STATUS_FORMAT,
     "multiple of 8"},
    {{{"e_packed", "I32", "[1,2,4]", 32}, {"e_scale", "F8_E8M0", "[1,2,1]", 2}},
     "{}",
     LP_STATUS_UNSUPPORTED,
     "F8_E8M0"},
};

static void bad_matrices(void **state) {
    (void)state;
    static const uint8_t zeros[64];
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct st_build b = {0};
        for (int k = 0; k < 5 && bad[i].arrays[k].name; k++)
            st_add(&b, bad[i].arrays[k].name, bad[i].arrays[k].dtype, bad[i].arrays[k].shape, zeros,
                   bad[i].arrays[k].n_bytes);
        const struct lp_hf_folder *folder = st_finish(&b, bad[i].config);
        struct lp_hf_matrix m;
        struct lp_err err = {0};
        bool found;
        const char *name = bad[i].arrays[0].name[0] == 'e' ? "e" : "m";
        lp_status status = lp_hf_matrix_find(&m, &found, folder, name, &err);
        if (status != bad[i].status || !strstr(err.text, bad[i].words))
            fail_msg("case %zu (%s): %d, %s", i, bad[i].words, (int)status, err.text);
        st_release(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_matrices),   cmocka_unit_test(every_e4m3_byte),
        cmocka_unit_test(fp8_blocks),       cmocka_unit_test(nvfp4_of_both_kinds),
        cmocka_unit_test(a_stack_of_nvfp4), cmocka_unit_test(int4_groups),
        cmocka_unit_test(bad_matrices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
