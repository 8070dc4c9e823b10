// Matrices in floating point without scales.
#include <string.h>

#include "hf/hf_values_parts.h"

static lp_status find(struct lp_hf_search *s) {
    static const char *const scales[] = {"_scale", "_scale_inv", "_scales_inv"};
    lp_status status = LP_OK;
    for (size_t i = 0; i < sizeof scales / sizeof scales[0] && !status; i++)
        status = lp_hf_forbid(s, scales[i], "a scale of weights that are not quantised");
    return status;
}

static lp_type type(const struct lp_hf_matrix *m, bool for_file) {
    (void)for_file;
    if (m->values->dtype == LP_ST_F32) return LP_TYPE_F32;
    return m->values->dtype == LP_ST_F16 ? LP_TYPE_F16 : LP_TYPE_BF16;
}

static const uint8_t *row_at(const struct lp_hf_matrix *m, int64_t mat, int64_t row,
                             int64_t value_bytes) {
    return m->values->data + (mat * m->n_out + row) * m->n_in * value_bytes;
}

static void rows(const struct lp_hf_matrix *m, int64_t mat, int64_t first, int64_t n, float *out) {
    lp_type is = type(m, true);
    lp_type_info(is)->dequant(row_at(m, mat, first, is == LP_TYPE_F32 ? 4 : 2), out,
                              (size_t)(n * m->n_in));
}

// F32 is rows().
static void pack(const struct lp_hf_matrix *m, lp_type to, int64_t mat, int64_t first, int64_t n,
                 void *out) {
    (void)to;
    memcpy(out, row_at(m, mat, first, 2), (size_t)(n * m->n_in) * 2);
}

const struct lp_hf_form_row lp_hf_form_plain = {find, rows, type, pack};
