#include "hf/hf_values.h"

#include <stdio.h>
#include <string.h>

#include "hf/hf_values_parts.h"
#include "quant/blocks.h"

static const struct lp_hf_form_row *const forms[] = {
    [LP_HF_PLAIN] = &lp_hf_form_plain,
    [LP_HF_FP8] = &lp_hf_form_fp8,
    [LP_HF_NVFP4] = &lp_hf_form_nvfp4,
    [LP_HF_INT4] = &lp_hf_form_int4,
};

// ---- arrays beside the one with the values

const struct lp_st_array *lp_hf_beside(const struct lp_hf_search *s, const char *suffix) {
    char name[LP_HF_BASE_BYTES + 32];
    snprintf(name, sizeof name, "%s%s", s->base, suffix);
    return lp_safetensors_find(s->folder->weights, name);
}

lp_status lp_hf_need(const struct lp_hf_search *s, const char *suffix,
                     const struct lp_st_array **out) {
    *out = lp_hf_beside(s, suffix);
    if (*out) return LP_OK;
    return lp_err_set(s->err, LP_STATUS_FORMAT,
                      "array %s%s is missing, by which %s (%s) is to be scaled; download the "
                      "folder again",
                      s->base, suffix, s->m->name, s->m->values->dtype_name);
}

lp_status lp_hf_forbid(const struct lp_hf_search *s, const char *suffix, const char *what) {
    const struct lp_st_array *a = lp_hf_beside(s, suffix);
    if (!a) return LP_OK;
    return lp_err_set(s->err, LP_STATUS_UNSUPPORTED,
                      "%.200s: %s cannot be read; use another checkpoint of this model", a->name,
                      what);
}

bool lp_hf_shape_is(const struct lp_hf_matrix *m, const struct lp_st_array *a, int64_t rows,
                    int64_t cols) {
    const int64_t want[] = {m->n_mats, rows, cols};
    int first = m->values->n_dims == 3 ? 0 : 1;
    if (a->n_dims > 3 - first) return false;
    for (int i = first; i < 3; i++)
        if ((i - first < a->n_dims ? a->dims[i - first] : 1) != want[i]) return false;
    return true;
}

lp_status lp_hf_bad_shape(const struct lp_hf_search *s, const struct lp_st_array *a,
                          const char *expected) {
    char shape[LP_ST_MAX_DIMS * 22 + 1] = "";
    for (int32_t i = 0, n = 0; i < a->n_dims; i++)
        n += snprintf(shape + n, sizeof shape - (size_t)n, "%s%lld", i ? ", " : "",
                      (long long)a->dims[i]);
    return lp_err_set(
        s->err, LP_STATUS_FORMAT,
        "array %.200s has the shape [%s], which does not fit the %lld x %lld values of "
        "%s: expected %s",
        a->name, shape, (long long)s->m->n_out, (long long)s->m->n_in, s->m->name, expected);
}

// ---- scales

bool lp_hf_is_scale(const struct lp_st_array *a) {
    return a->dtype == LP_ST_F32 || a->dtype == LP_ST_BF16 || a->dtype == LP_ST_F16 ||
           a->dtype == LP_ST_F8_E8M0;
}

// 2^(e - 127); 255 is NaN (OCP microscaling formats)
static float e8m0(uint8_t e) {
    uint32_t bits = e == 255 ? 0x7fc00000u : e == 0 ? 0x00400000u : (uint32_t)e << 23;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

float lp_hf_scale_at(const struct lp_st_array *a, int64_t i) {
    float value;
    uint16_t half;
    if (a->dtype == LP_ST_F32) {
        memcpy(&value, a->data + 4 * i, sizeof value);
        return value;
    }
    if (a->dtype == LP_ST_F8_E8M0) return e8m0(a->data[i]);
    memcpy(&half, a->data + 2 * i, sizeof half);
    return a->dtype == LP_ST_BF16 ? lp_bf16_to_f32(half) : lp_f16_to_f32(half);
}

void lp_hf_fill_e4m3(float table[256]) {
    for (int i = 0; i < 256; i++) table[i] = lp_blocks_e4m3((uint8_t)i);
}

// ---- blocks

// A pair of sizes, or the group size, as a block.
static bool read_block(const json_t *pair, const json_t *group, int64_t block[2]) {
    block[0] = 1;
    block[1] = json_integer_value(group);
    if (json_array_size(pair) == 2) {
        block[0] = json_integer_value(json_array_get(pair, 0));
        block[1] = json_integer_value(json_array_get(pair, 1));
    }
    return block[0] > 0 && block[1] > 0;
}

int lp_hf_config_blocks(const struct lp_hf_folder *folder, int64_t (*blocks)[2], int max) {
    json_t *quant = json_object_get(folder->config, "quantization_config"), *group;
    const char *name;
    int n = 0;
    if (n < max && read_block(json_object_get(quant, "weight_block_size"), NULL, blocks[n])) n++;
    json_object_foreach(json_object_get(quant, "config_groups"), name, group) {
        const json_t *weights = json_object_get(group, "weights");
        if (n < max && read_block(json_object_get(weights, "block_structure"),
                                  json_object_get(weights, "group_size"), blocks[n]))
            n++;
    }
    return n;
}

// ---- finding

// Which form an array has by its dtype.
static lp_status choose_form(struct lp_hf_search *s, bool is_packed) {
    struct lp_hf_matrix *m = s->m;
    const struct lp_st_array *scale = lp_hf_beside(s, "_scale");
    switch (m->values->dtype) {
    case LP_ST_BF16:
    case LP_ST_F16:
    case LP_ST_F32:
        m->form = LP_HF_PLAIN;
        if (!is_packed) return LP_OK;
        break;
    case LP_ST_F8_E4M3:
        m->form = LP_HF_FP8;
        if (!is_packed) return LP_OK;
        break;
    case LP_ST_U8:
        m->form = LP_HF_NVFP4;
        if (scale && scale->dtype == LP_ST_F8_E4M3) return LP_OK;
        break;
    case LP_ST_I32:
        m->form = LP_HF_INT4;
        if (is_packed) return LP_OK;
        break;
    default:
        break;
    }
    return lp_err_set(s->err, LP_STATUS_UNSUPPORTED,
                      "array %s (%s%s%s) has a form that cannot be read; BF16, F16, F32, FP8 "
                      "(F8_E4M3), NVFP4 and packed INT4 can",
                      m->name, m->values->dtype_name, scale ? " with scales of " : "",
                      scale ? scale->dtype_name : "");
}

static lp_status set_dims(struct lp_hf_search *s) {
    struct lp_hf_matrix *m = s->m;
    const struct lp_st_array *a = m->values;
    if (a->n_dims > 3 || a->n_values == 0)
        return lp_err_set(
            s->err, LP_STATUS_FORMAT,
            "array %s has %lld values in %d dimensions, expected one or more in at most "
            "3",
            m->name, (long long)a->n_values, a->n_dims);
    m->n_mats = a->n_dims == 3 ? a->dims[0] : 1;
    m->n_out = a->n_dims >= 2 ? a->dims[a->n_dims - 2] : 1;
    m->n_in = a->n_dims >= 1 ? a->dims[a->n_dims - 1] : 1;
    return LP_OK;
}

// Quantised weights that are meant for inputs which were scaled or rotated first.
static lp_status check_inputs(const struct lp_hf_search *s) {
    const json_t *quant = json_object_get(s->folder->config, "quantization_config"),
                 *groups =
                     json_object_get(json_object_get(quant, "transform_config"), "config_groups");
    if (json_object_size(groups) > 0)
        return lp_err_set(s->err, LP_STATUS_UNSUPPORTED,
                          "the quantization_config of config.json has a transform_config: %s was "
                          "rotated, which cannot be undone here; use another checkpoint",
                          s->m->name);
    struct lp_hf_search module = *s;
    size_t n = strlen(module.base), m = strlen(".weight");
    if (n > m && strcmp(module.base + n - m, ".weight") == 0) module.base[n - m] = 0;
    return lp_hf_forbid(&module, ".pre_quant_scale", "a matrix whose inputs are scaled (AWQ)");
}

static lp_status use(struct lp_hf_search *s, const struct lp_st_array *values, bool is_packed) {
    struct lp_hf_matrix *m = s->m;
    m->values = values;
    snprintf(m->name, sizeof m->name, "%s", values->name);
    lp_status status = set_dims(s);
    m->block_out = m->n_out;
    m->block_in = m->n_in;
    if (!status) status = choose_form(s, is_packed);
    if (!status && m->form != LP_HF_PLAIN) status = check_inputs(s);
    return status ? status : forms[m->form]->find(s);
}

// The arrays of schemes that are not read, by which a matrix without any other array is told.
static lp_status refuse_foreign(struct lp_hf_search *s) {
    static const struct {
        const char *suffix, *what;
    } foreign[] = {
        {".qweight", "GPTQ and AWQ weights"},
        {"_blocks", "MXFP4 weights"},
        {".weight_blocks", "MXFP4 weights"},
        {".weight_q", "HQQ weights"},
        {".W_q", "HQQ weights"},
    };
    lp_status status = LP_OK;
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0] && !status; i++)
        status = lp_hf_forbid(s, foreign[i].suffix, foreign[i].what);
    return status;
}

lp_status lp_hf_matrix_find(struct lp_hf_matrix *out, bool *found,
                            const struct lp_hf_folder *folder, const char *name,
                            struct lp_err *err) {
    struct lp_hf_search s = {.folder = folder, .m = out, .err = err};
    static const char *const endings[] = {".weight", ""};
    *out = (struct lp_hf_matrix){0};
    *found = false;
    if (strlen(name) + strlen(".weight") >= sizeof s.base) return LP_OK; // no array that is read
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        snprintf(s.base, sizeof s.base, "%s%s", name, endings[i]);
        const struct lp_st_array *packed = lp_hf_beside(&s, "_packed"),
                                 *values = lp_hf_beside(&s, "");
        if (!packed && !values) continue;
        *found = true;
        return use(&s, packed ? packed : values, packed != NULL);
    }
    return refuse_foreign(&s);
}

// ---- what every form does

void lp_hf_matrix_rows(const struct lp_hf_matrix *m, int64_t mat, int64_t first, int64_t n,
                       float *out) {
    forms[m->form]->rows(m, mat, first, n, out);
}

lp_type lp_hf_matrix_type(const struct lp_hf_matrix *m, bool for_file) {
    return forms[m->form]->type(m, for_file);
}

void lp_hf_matrix_pack(const struct lp_hf_matrix *m, bool for_file, int64_t mat, int64_t first,
                       int64_t n, void *out) {
    lp_type type = lp_hf_matrix_type(m, for_file);
    if (type == LP_TYPE_F32)
        lp_hf_matrix_rows(m, mat, first, n, out);
    else
        forms[m->form]->pack(m, type, mat, first, n, out);
}
