// FP8 with scales of blocks, rows or the whole matrix.
#include <string.h>

#include "hf/hf_values_parts.h"
#include "quant/blocks.h"

#define MAX_BLOCKS 8 // different ones that a quantization_config names
#define CHUNK 256    // values on their way to BF16

static const struct lp_st_array *find_scale(const struct lp_hf_search *s) {
    static const char *const suffixes[] = {"_scale_inv", "_scale", "_scales_inv"};
    const struct lp_st_array *scale = NULL;
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0] && !scale; i++)
        scale = lp_hf_beside(s, suffixes[i]);
    return scale;
}

// The block whose scales have the shape of the array: the whole matrix, a row, or one that the
// config names (128 x 128 where it names none).
static bool set_block(const struct lp_hf_search *s) {
    struct lp_hf_matrix *m = s->m;
    int64_t blocks[MAX_BLOCKS + 2][2] = {{m->n_out, m->n_in}, {1, m->n_in}};
    int n = 2 + lp_hf_config_blocks(s->folder, blocks + 2, MAX_BLOCKS);
    if (n == 2) {
        blocks[2][0] = blocks[2][1] = 128;
        n = 3;
    }
    for (int i = 0; i < n; i++) {
        m->block_out = blocks[i][0];
        m->block_in = blocks[i][1];
        if (lp_hf_shape_is(m, m->scale, lp_hf_ceil_div(m->n_out, m->block_out),
                           lp_hf_ceil_div(m->n_in, m->block_in)))
            return true;
    }
    return false;
}

static lp_status find(struct lp_hf_search *s) {
    struct lp_hf_matrix *m = s->m;
    lp_status status = lp_hf_forbid(s, "_zero_point", "FP8 weights with zero points");
    if (status) return status;
    if (!(m->scale = find_scale(s))) return lp_hf_need(s, "_scale_inv", &m->scale);
    if (!lp_hf_is_scale(m->scale))
        return lp_err_set(s->err, LP_STATUS_UNSUPPORTED,
                          "array %.200s is %s; scales of FP8 are F32, BF16, F16 or F8_E8M0",
                          m->scale->name, m->scale->dtype_name);
    if (m->values->n_dims >= 2 && set_block(s)) return LP_OK;
    return lp_hf_bad_shape(s, m->scale,
                           "one scale, one for each row, or one for each block that the "
                           "quantization_config of config.json names");
}

static lp_type type(const struct lp_hf_matrix *m, bool for_file) {
    bool whole = m->block_in >= m->n_in || m->block_in % LP_BLOCK_VALUES_F8_E4M3 == 0;
    if (for_file) return LP_TYPE_BF16;
    return whole && m->n_in % LP_BLOCK_VALUES_F8_E4M3 == 0 ? LP_TYPE_F8_E4M3 : LP_TYPE_F32;
}

// Index of the scale of a row's first block; the next ones follow.
static int64_t first_scale(const struct lp_hf_matrix *m, int64_t mat, int64_t row) {
    int64_t n_rows = lp_hf_ceil_div(m->n_out, m->block_out);
    return (mat * n_rows + row / m->block_out) * lp_hf_ceil_div(m->n_in, m->block_in);
}

static const uint8_t *row_at(const struct lp_hf_matrix *m, int64_t mat, int64_t row) {
    return m->values->data + (mat * m->n_out + row) * m->n_in;
}

// Values begin ... end - 1 of one row.
static void part_of_row(const struct lp_hf_matrix *m, const float table[256], int64_t mat,
                        int64_t row, int64_t begin, int64_t end, float *out) {
    const uint8_t *q = row_at(m, mat, row);
    int64_t scale = first_scale(m, mat, row) + begin / m->block_in;
    while (begin < end) {
        int64_t next = (begin / m->block_in + 1) * m->block_in;
        if (next > end) next = end;
        float d = lp_hf_scale_at(m->scale, scale++);
        for (; begin < next; begin++) *out++ = table[q[begin]] * d;
    }
}

static void rows(const struct lp_hf_matrix *m, int64_t mat, int64_t first, int64_t n, float *out) {
    float table[256];
    lp_hf_fill_e4m3(table);
    for (int64_t r = 0; r < n; r++)
        part_of_row(m, table, mat, first + r, 0, m->n_in, out + r * m->n_in);
}

static void pack_bf16(const struct lp_hf_matrix *m, int64_t mat, int64_t first, int64_t n,
                      uint16_t *out) {
    float table[256], chunk[CHUNK];
    lp_hf_fill_e4m3(table);
    for (int64_t r = first; r < first + n; r++)
        for (int64_t i = 0; i < m->n_in; i += CHUNK) {
            int64_t end = i + CHUNK < m->n_in ? i + CHUNK : m->n_in;
            part_of_row(m, table, mat, r, i, end, chunk);
            for (int64_t k = 0; k < end - i; k++) *out++ = lp_f32_to_bf16(chunk[k]);
        }
}

static void pack_f8(const struct lp_hf_matrix *m, int64_t mat, int64_t first, int64_t n,
                    struct lp_block_f8_e4m3 *out) {
    for (int64_t r = first; r < first + n; r++) {
        const uint8_t *q = row_at(m, mat, r);
        int64_t scale = first_scale(m, mat, r);
        for (int64_t i = 0; i < m->n_in; i += LP_BLOCK_VALUES_F8_E4M3, out++) {
            out->d = lp_hf_scale_at(m->scale, scale + i / m->block_in);
            memcpy(out->q, q + i, sizeof out->q);
        }
    }
}

static void pack(const struct lp_hf_matrix *m, lp_type to, int64_t mat, int64_t first, int64_t n,
                 void *out) {
    if (to == LP_TYPE_BF16)
        pack_bf16(m, mat, first, n, out);
    else
        pack_f8(m, mat, first, n, out);
}

const struct lp_hf_form_row lp_hf_form_fp8 = {find, rows, type, pack};
