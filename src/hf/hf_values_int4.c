// INT4: nibbles of value + 8, and a scale for each group of a row.
#include <limits.h>
#include <string.h>

#include "hf/hf_nibbles.h"
#include "hf/hf_values_parts.h"
#include "quant/blocks.h"

#define MAX_BLOCKS 8 // different groups that a quantization_config names
#define PER_WORD 8   // values of an I32

// ---- finding

static int64_t int_at(const struct lp_st_array *a, int64_t i) {
    int32_t narrow;
    int64_t wide;
    if (a->dtype == LP_ST_I64) {
        memcpy(&wide, a->data + 8 * i, sizeof wide);
        return wide;
    }
    memcpy(&narrow, a->data + 4 * i, sizeof narrow);
    return narrow;
}

// The true length of a row, of which the packed one has filled words.
static lp_status read_shape(const struct lp_hf_search *s) {
    struct lp_hf_matrix *m = s->m;
    const struct lp_st_array *shape;
    int64_t n_words = m->n_in;
    if (n_words > INT64_MAX / PER_WORD) return lp_hf_bad_shape(s, m->values, "fewer values");
    m->n_in *= PER_WORD;
    if (m->values->n_dims == 3) return LP_OK;
    lp_status status = lp_hf_need(s, "_shape", &shape);
    if (status) return status;
    if ((shape->dtype != LP_ST_I64 && shape->dtype != LP_ST_I32) || shape->n_values != 2)
        return lp_hf_bad_shape(s, shape, "two whole numbers, I32 or I64");
    int64_t n_out = int_at(shape, 0), n_in = int_at(shape, 1);
    if (n_out != m->n_out || n_in < 1 || lp_hf_ceil_div(n_in, PER_WORD) != n_words)
        return lp_err_set(
            s->err, LP_STATUS_FORMAT,
            "array %.200s says %lld x %lld, but %s holds %lld rows of %lld words of 8 "
            "values of 4 bits; other widths cannot be read",
            shape->name, (long long)n_out, (long long)n_in, m->name, (long long)m->n_out,
            (long long)n_words);
    m->n_in = n_in;
    return LP_OK;
}

// The group whose scales have the shape of the array: the whole row, or one that the config names.
static bool set_group(const struct lp_hf_search *s) {
    struct lp_hf_matrix *m = s->m;
    int64_t blocks[MAX_BLOCKS + 1][2] = {{1, m->n_in}};
    int n = 1 + lp_hf_config_blocks(s->folder, blocks + 1, MAX_BLOCKS);
    for (int i = 0; i < n; i++) {
        m->block_in = blocks[i][1];
        bool is_whole = m->block_in >= m->n_in || m->block_in % PER_WORD == 0;
        if (blocks[i][0] == 1 && is_whole &&
            lp_hf_shape_is(m, m->scale, m->n_out, lp_hf_ceil_div(m->n_in, m->block_in)))
            return true;
    }
    return false;
}

static bool is_f16(float scale) {
    return lp_f16_to_f32(lp_f32_to_f16(scale)) == scale;
}

// BF16 from 2^-17 to the largest float16 are float16; only if there are others is each looked at.
static bool are_usual_bf16(const struct lp_st_array *a) {
    int16_t least = INT16_MAX, most = 0;
    if (a->dtype != LP_ST_BF16) return false;
    for (int64_t i = 0; i < a->n_values; i++) {
        int16_t bits;
        memcpy(&bits, a->data + 2 * i, sizeof bits);
        bits &= 0x7fff;
        least = bits < least ? bits : least;
        most = bits > most ? bits : most;
    }
    return least >= 0x3700 && most < 0x4780;
}

static bool scales_are_f16(const struct lp_st_array *a) {
    if (are_usual_bf16(a)) return true;
    for (int64_t i = 0; i < a->n_values; i++)
        if (!is_f16(lp_hf_scale_at(a, i))) return false;
    return true;
}

static lp_status find(struct lp_hf_search *s) {
    static const char *const forbidden[][2] = {
        {"_zero_point", "INT4 weights with zero points"},
        {"_g_idx", "INT4 weights whose groups are reordered"},
        {"_global_scale", "INT4 weights with a second scale"},
    };
    struct lp_hf_matrix *m = s->m;
    lp_status status = LP_OK;
    for (size_t i = 0; i < sizeof forbidden / sizeof forbidden[0] && !status; i++)
        status = lp_hf_forbid(s, forbidden[i][0], forbidden[i][1]);
    if (!status) status = lp_hf_need(s, "_scale", &m->scale);
    if (!status) status = read_shape(s);
    if (status) return status;
    m->block_out = 1;
    if (!lp_hf_is_scale(m->scale) || m->scale->dtype == LP_ST_F8_E8M0)
        return lp_err_set(s->err, LP_STATUS_UNSUPPORTED,
                          "array %.200s is %s; scales of INT4 are F32, BF16 or F16", m->scale->name,
                          m->scale->dtype_name);
    if (m->values->n_dims < 2 || !set_group(s))
        return lp_hf_bad_shape(s, m->scale,
                               "a scale for each row, or for each group of the group_size (a "
                               "multiple of 8) in the quantization_config of config.json");
    m->is_exact = scales_are_f16(m->scale);
    return LP_OK;
}

// ---- values

static lp_type type(const struct lp_hf_matrix *m, bool for_file) {
    (void)for_file;
    bool whole = m->block_in >= m->n_in || m->block_in % LP_BLOCK_VALUES_Q4_0 == 0;
    return m->is_exact && whole && m->n_in % LP_BLOCK_VALUES_Q4_0 == 0 ? LP_TYPE_Q4_0 : LP_TYPE_F32;
}

static const uint8_t *row_at(const struct lp_hf_matrix *m, int64_t mat, int64_t row) {
    return m->values->data + (mat * m->n_out + row) * lp_hf_ceil_div(m->n_in, PER_WORD) * 4;
}

static int64_t first_scale(const struct lp_hf_matrix *m, int64_t mat, int64_t row) {
    return (mat * m->n_out + row) * lp_hf_ceil_div(m->n_in, m->block_in);
}

// n values of one group, which begins at a byte.
static void group(const uint8_t *q, float scale, int64_t n, float *out) {
    float products[16];
    for (int i = 0; i < 16; i++) products[i] = (float)(i - 8) * scale;
    for (int64_t i = 0; i < n / 2; i++) {
        out[2 * i] = products[q[i] & 15];
        out[2 * i + 1] = products[q[i] >> 4];
    }
    if (n % 2) out[n - 1] = products[q[n / 2] & 15];
}

static void rows(const struct lp_hf_matrix *m, int64_t mat, int64_t first, int64_t n, float *out) {
    for (int64_t r = first; r < first + n; r++) {
        const uint8_t *q = row_at(m, mat, r);
        int64_t scale = first_scale(m, mat, r), left = m->n_in, step = m->block_in;
        for (; left > 0; left -= step) {
            if (step > left) step = left;
            group(q, lp_hf_scale_at(m->scale, scale++), step, out);
            out += step;
            q += step / 2;
        }
    }
}

static void pack(const struct lp_hf_matrix *m, lp_type to, int64_t mat, int64_t first, int64_t n,
                 void *out) {
    (void)to; // Q4_0; F32 is rows()
    struct lp_block_q4_0 *block = out;
    for (int64_t r = first; r < first + n; r++) {
        const uint8_t *q = row_at(m, mat, r);
        int64_t scale = first_scale(m, mat, r);
        for (int64_t i = 0; i < m->n_in; i += LP_BLOCK_VALUES_Q4_0, block++, q += 16) {
            block->d = lp_f32_to_f16(lp_hf_scale_at(m->scale, scale + i / m->block_in));
            lp_hf_pair_nibbles(q, q + 8, block->qs);
            lp_hf_pair_nibbles(q + 4, q + 12, block->qs + 8);
        }
    }
}

const struct lp_hf_form_row lp_hf_form_int4 = {find, rows, type, pack};
