// NVFP4: E2M1 values, an E4M3 scale for each 16 of them, and a float32 factor.
#include <math.h>
#include <string.h>

#include "hf/hf_nibbles.h"
#include "hf/hf_values_parts.h"
#include "quant/blocks.h"
#include "quant/codebooks.h"

#define GROUP 16

// ---- finding

// The GGUF type reads scales without their sign, and 0x7f as 0.
static bool scales_are_plain(const struct lp_st_array *scale) {
    uint8_t most = 0;
    for (uint64_t i = 0; i < scale->n_bytes; i++)
        most = scale->data[i] > most ? scale->data[i] : most;
    return most < 0x7f;
}

static float scale_2_at(const struct lp_hf_matrix *m, int64_t mat) {
    return lp_hf_scale_at(m->scale_2, m->scale_2->n_values == 1 ? 0 : mat);
}

static lp_status check_scale_2(const struct lp_hf_search *s) {
    struct lp_hf_matrix *m = s->m;
    if (m->scale_2->dtype != LP_ST_F32)
        return lp_err_set(s->err, LP_STATUS_UNSUPPORTED,
                          "array %.200s is %s; the factor of NVFP4 is F32", m->scale_2->name,
                          m->scale_2->dtype_name);
    if (m->scale_2->n_values != 1 && !lp_hf_shape_is(m, m->scale_2, 1, 1))
        return lp_hf_bad_shape(s, m->scale_2, "one value");
    for (int64_t i = 0; i < m->scale_2->n_values; i++) {
        float factor = lp_hf_scale_at(m->scale_2, i);
        if (!isnan(factor) && !(m->divide && factor == 0)) continue;
        return lp_err_set(s->err, LP_STATUS_FORMAT,
                          "array %.200s holds %g, by which weights cannot be scaled; download the "
                          "file again",
                          m->scale_2->name, (double)factor);
    }
    return LP_OK;
}

static lp_status find(struct lp_hf_search *s) {
    struct lp_hf_matrix *m = s->m;
    m->divide = lp_hf_beside(s, "_packed") == m->values;
    m->n_in *= 2;
    m->block_out = 1;
    m->block_in = GROUP;
    lp_status status = lp_hf_need(s, "_scale", &m->scale);
    if (!status) status = lp_hf_need(s, m->divide ? "_global_scale" : "_scale_2", &m->scale_2);
    if (!status) status = check_scale_2(s);
    if (status) return status;
    if (m->values->n_dims < 2 || m->n_in % GROUP != 0 ||
        !lp_hf_shape_is(m, m->scale, m->n_out, m->n_in / GROUP))
        return lp_hf_bad_shape(s, m->scale, "one scale for each 16 values of a row");
    m->is_exact = scales_are_plain(m->scale);
    return LP_OK;
}

// ---- values

static lp_type type(const struct lp_hf_matrix *m, bool for_file) {
    (void)for_file;
    return m->is_exact && m->n_in % LP_BLOCK_VALUES_NVFP4 == 0 ? LP_TYPE_NVFP4 : LP_TYPE_BF16;
}

float lp_hf_matrix_factor(const struct lp_hf_matrix *m, int64_t mat) {
    if (m->form != LP_HF_NVFP4) return 1;
    return m->divide ? 1 / scale_2_at(m, mat) : scale_2_at(m, mat);
}

// Group g counted through the array: its values, and the 16 products that they choose from.
static const uint8_t *group_at(const struct lp_hf_matrix *m, int64_t g, const float e4m3[256],
                               float products[16]) {
    float scale = e4m3[m->scale->data[g]];
    for (int i = 0; i < 16; i++) products[i] = 0.5f * (float)lp_codebooks_fp4[i] * scale;
    products[8] = -0.0f * scale;
    return m->values->data + g * (GROUP / 2);
}

static int64_t first_group(const struct lp_hf_matrix *m, int64_t mat, int64_t row) {
    return (mat * m->n_out + row) * (m->n_in / GROUP);
}

static void rows(const struct lp_hf_matrix *m, int64_t mat, int64_t first, int64_t n, float *out) {
    float e4m3[256], products[16], factor = scale_2_at(m, mat);
    int64_t g = first_group(m, mat, first), end = g + n * (m->n_in / GROUP);
    lp_hf_fill_e4m3(e4m3);
    for (; g < end; g++, out += GROUP) {
        const uint8_t *q = group_at(m, g, e4m3, products);
        if (m->divide)
            for (int i = 0; i < 16; i++) products[i] /= factor;
        else
            for (int i = 0; i < 16; i++) products[i] *= factor;
        for (int i = 0; i < GROUP / 2; i++) {
            out[2 * i] = products[q[i] & 15];
            out[2 * i + 1] = products[q[i] >> 4];
        }
    }
}

// Exact: a product has at most 6 significant bits.
static void pack_bf16(const struct lp_hf_matrix *m, int64_t g, int64_t end, uint16_t *out) {
    float e4m3[256], products[16];
    uint16_t halves[16];
    lp_hf_fill_e4m3(e4m3);
    for (; g < end; g++, out += GROUP) {
        const uint8_t *q = group_at(m, g, e4m3, products);
        for (int i = 0; i < 16; i++) halves[i] = lp_f32_to_bf16(products[i]);
        for (int i = 0; i < GROUP / 2; i++) {
            out[2 * i] = halves[q[i] & 15];
            out[2 * i + 1] = halves[q[i] >> 4];
        }
    }
}

static void pack_nvfp4(const struct lp_hf_matrix *m, int64_t g, int64_t end,
                       struct lp_block_nvfp4 *out) {
    const uint8_t *q = m->values->data + g * (GROUP / 2);
    for (; g < end; g += 4, out++) {
        memcpy(out->d, m->scale->data + g, sizeof out->d);
        for (int s = 0; s < 4; s++, q += 8) lp_hf_pair_nibbles(q, q + 4, out->qs + 8 * s);
    }
}

static void pack(const struct lp_hf_matrix *m, lp_type to, int64_t mat, int64_t first, int64_t n,
                 void *out) {
    int64_t g = first_group(m, mat, first), end = g + n * (m->n_in / GROUP);
    if (to == LP_TYPE_NVFP4)
        pack_nvfp4(m, g, end, out);
    else
        pack_bf16(m, g, end, out);
}

const struct lp_hf_form_row lp_hf_form_nvfp4 = {find, rows, type, pack};
