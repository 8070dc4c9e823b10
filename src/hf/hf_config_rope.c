// Rotary embedding: rope_theta and rope_scaling (transformers 4), rope_parameters (5).
#include "hf/hf_config_parts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

struct rope {
    struct lp_hf_config_reader *r;
    const json_t *dict; // or NULL
    char where[40];     // "rope_scaling."
    double theta;
    int64_t width; // of a head: values that are rotated
};

static double number(const struct rope *p, const char *name, double min, double max,
                     double otherwise) {
    return lp_hf_config_number(p->r, p->dict, p->where, name, min, max, otherwise);
}

static const json_t *dict_of(struct lp_hf_config_reader *r, const char *name) {
    const json_t *dict = lp_hf_config_get(r->config, name);
    if (dict && !json_is_object(dict)) {
        char text[LP_HF_VALUE_BYTES];
        lp_hf_config_fail(r, LP_STATUS_FORMAT, "%s is %s, expected an object or null", name,
                          lp_hf_config_value(dict, text));
        return NULL;
    }
    return json_object_size(dict) ? dict : NULL;
}

// rope_scaling counts before rope_parameters, as in transformers' convert_rope_params_to_dict.
static void find_dict(struct rope *p) {
    struct lp_hf_config_reader *r = p->r;
    const json_t *old = dict_of(r, "rope_scaling"), *new = dict_of(r, "rope_parameters");
    snprintf(p->where, sizeof p->where, "%s", old ? "rope_scaling." : "rope_parameters.");
    p->dict = old ? old : new;
    const json_t *inner = json_object_get(p->dict, "full_attention"); // one per kind of layer
    if (json_is_object(inner)) {
        p->dict = inner;
        snprintf(p->where, sizeof p->where, "%s",
                 old ? "rope_scaling.full_attention." : "rope_parameters.full_attention.");
    }
    double theta =
        lp_hf_config_number(r, new, "rope_parameters.", "rope_theta", 1, 1e12, r->family->theta);
    theta = lp_hf_config_number(r, r->config, "", "rope_theta", 1, 1e12, theta);
    p->theta = number(p, "rope_theta", 1, 1e12, theta);
}

// The part of a head that is rotated: partial_rotary_factor.
static void find_width(struct rope *p) {
    struct lp_hf_config_reader *r = p->r;
    const struct lp_hf_model *m = r->model;
    double part =
        lp_hf_config_number(r, r->config, "", "partial_rotary_factor", 0, 1, r->family->rotated);
    part = number(p, "partial_rotary_factor", 0, 1, part);
    if (part != 1 && !lp_hf_config_is(r, LP_HF_ROTATED_PART))
        lp_hf_config_fail(r, LP_STATUS_UNSUPPORTED,
                          "partial_rotary_factor is %g; limpid runs 1 for model type %s", part,
                          r->family->model_type);
    p->width = (int64_t)((double)(m->is_mla ? m->rope_dim : m->head_dim) * part);
    if (p->width < 2 || p->width % 2)
        lp_hf_config_fail(r, LP_STATUS_FORMAT,
                          "%lld values of a head are rotated (head_dim, partial_rotary_factor), "
                          "expected an even number",
                          (long long)p->width);
}

// The length that the model was trained with before it was stretched.
static int64_t original_context(const struct rope *p) {
    int64_t context = p->r->v[LP_HF_INT_CONTEXT], max = INT32_MAX / 2;
    const char *name = "original_max_position_embeddings";
    context = lp_hf_config_whole(p->r, p->dict, p->where, name, 1, max, context);
    return lp_hf_config_whole(p->r, p->r->config, "", name, 1, max, context);
}

static double magnitude(double factor, double mscale) { // of YaRN
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

// The reference multiplies cos and sin by `said`. limpid, as every GGUF reader: by 1 in MLA models,
// whose correction is in the softmax scale, and by 1 + 0.1 ln(factor) in the others.
static void check_magnitude(const struct rope *p, double factor) {
    double m = number(p, "mscale", 0, 100, 0), all = number(p, "mscale_all_dim", 0, 100, 0);
    double said = m && all ? magnitude(factor, m) / magnitude(factor, all) : magnitude(factor, 1);
    said = number(p, "attention_factor", 0, 1e6, said);
    double runs = p->r->model->is_mla ? 1 : magnitude(factor, 1);
    if (fabs(said - runs) > 1e-6 * runs)
        lp_hf_config_fail(p->r, LP_STATUS_UNSUPPORTED,
                          "%sattention_factor (or mscale / mscale_all_dim) scales cos and sin by "
                          "%.7g; limpid runs %.7g for model type %s",
                          p->where, said, runs, p->r->family->model_type);
    static const char *const others[] = {"attn_factor", "extrapolation_factor"};
    for (int i = 0; i < 2; i++) {
        double value = number(p, others[i], -1e6, 1e6, 1);
        if (value != 1)
            lp_hf_config_fail(p->r, LP_STATUS_UNSUPPORTED, "%s%s is %g; limpid runs 1", p->where,
                              others[i], value);
    }
}

static void put_type(const struct rope *p, const char *type) {
    char key[LP_HF_KEY_BYTES];
    lp_hf_config_key(p->r, "rope.scaling.type", key);
    if (!p->r->status) lp_gguf_writer_str(p->r->w, key, lp_str_from(type));
}

// 0 is a missing value in the reference too.
static double turns(const struct rope *p, const char *name, double otherwise) {
    const json_t *value = json_object_get(p->dict, name);
    if (json_is_number(value) && json_number_value(value) == 0) return otherwise;
    return number(p, name, 1e-3, 1e5, otherwise);
}

static void put_yarn(const struct rope *p) {
    struct lp_hf_config_reader *r = p->r;
    int64_t original = original_context(p);
    double stretched = (double)r->v[LP_HF_INT_CONTEXT] / (double)original;
    double factor = number(p, "factor", 1, 1e6, stretched < 1 ? 1 : stretched);
    check_magnitude(p, factor);
    if (!lp_hf_config_bool(r, p->dict, p->where, "truncate", true))
        lp_hf_config_fail(r, LP_STATUS_UNSUPPORTED, "%struncate is false; limpid runs true",
                          p->where);
    put_type(p, "yarn");
    lp_hf_config_put_float(r, "rope.scaling.factor", factor);
    lp_hf_config_put_int(r, "rope.scaling.original_context_length", original);
    lp_hf_config_put_float(r, "rope.scaling.yarn_beta_fast", turns(p, "beta_fast", 32));
    lp_hf_config_put_float(r, "rope.scaling.yarn_beta_slow", turns(p, "beta_slow", 1));
    if (r->model->is_mla && lp_hf_config_get(p->dict, "mscale_all_dim"))
        lp_hf_config_put_float(r, "rope.scaling.yarn_log_multiplier",
                               0.1 * number(p, "mscale_all_dim", 0, 100, 0));
}

static void put_linear(const struct rope *p) {
    struct lp_hf_config_reader *r = p->r;
    if (!lp_hf_config_get(p->dict, "factor"))
        lp_hf_config_fail(r, LP_STATUS_FORMAT, "%sfactor is missing", p->where);
    // The reference scales the softmax by it for every type but the default one.
    if (r->model->is_mla && number(p, "mscale_all_dim", 0, 100, 0) != 0)
        lp_hf_config_fail(r, LP_STATUS_UNSUPPORTED,
                          "%smscale_all_dim is set for the type linear; limpid runs it for yarn",
                          p->where);
    put_type(p, "linear");
    lp_hf_config_put_float(r, "rope.scaling.factor", number(p, "factor", 1e-3, 1e6, 1));
}

// Llama 3.1: frequencies are divided by 1 where a wave is short, by `factor` where it is long, and
// by something between where it is neither (_compute_llama3_parameters). GGUF has them as a tensor.
static void fill_llama3(const struct rope *p) {
    struct lp_hf_config_reader *r = p->r;
    static const char *const needed[] = {"factor", "low_freq_factor", "high_freq_factor"};
    for (int i = 0; i < 3; i++)
        if (!lp_hf_config_get(p->dict, needed[i]))
            lp_hf_config_fail(r, LP_STATUS_FORMAT, "%s%s is missing", p->where, needed[i]);
    double factor = number(p, "factor", 1, 1e6, 1),
           low = number(p, "low_freq_factor", 1e-3, 1e6, 1),
           high = number(p, "high_freq_factor", 1e-3, 1e6, 1);
    double context = (double)original_context(p);
    if (r->model->is_mla)
        lp_hf_config_fail(r, LP_STATUS_UNSUPPORTED,
                          "%srope_type is llama3; limpid does not run it for model type %s",
                          p->where, r->family->model_type);
    if (high <= low)
        lp_hf_config_fail(r, LP_STATUS_FORMAT,
                          "%shigh_freq_factor is %g, expected more than low_freq_factor (%g)",
                          p->where, high, low);
    if (r->status) return;
    int64_t n = p->width / 2;
    float *out = r->model->rope_freqs = lp_alloc((size_t)n, sizeof *out);
    if (!out) {
        r->status = lp_err_memory(r->err, (size_t)n * sizeof *out, "rope_freqs");
        return;
    }
    r->model->n_rope_freqs = n;
    for (int64_t i = 0; i < n; i++) {
        double turns = context * pow(p->theta, -2.0 * (double)i / (double)p->width) / (2 * M_PI);
        double smooth = (turns - low) / (high - low);
        out[i] = (float)(turns > high  ? 1
                         : turns < low ? factor
                                       : 1 / ((1 - smooth) / factor + smooth));
    }
}

static void put_scaling(const struct rope *p) {
    struct lp_hf_config_reader *r = p->r;
    const char *type = lp_hf_config_text(r, p->dict, p->where, "type", "default");
    type = lp_hf_config_text(r, p->dict, p->where, "rope_type", type);
    if (r->status) return;
    if (strcmp(type, "yarn") == 0)
        put_yarn(p);
    else if (strcmp(type, "linear") == 0)
        put_linear(p);
    else if (strcmp(type, "llama3") == 0)
        fill_llama3(p);
    else if (strcmp(type, "default") != 0)
        lp_hf_config_fail(r, LP_STATUS_UNSUPPORTED,
                          "%srope_type is '%.40s'; limpid runs default, linear, yarn and llama3",
                          p->where, type);
    if (lp_hf_config_get(p->dict, "mrope_section"))
        lp_hf_config_fail(r, LP_STATUS_UNSUPPORTED,
                          "%smrope_section is set; limpid has no rotary embedding of several axes",
                          p->where);
}

void lp_hf_config_rope(struct lp_hf_config_reader *r) {
    struct rope p = {.r = r};
    find_dict(&p);
    if (!r->status) find_width(&p);
    if (!r->status) put_scaling(&p);
    lp_hf_config_put_float(r, "rope.freq_base", p.theta);
    if (lp_hf_config_is(r, LP_HF_MLA) || lp_hf_config_is(r, LP_HF_ROPE_KEY))
        lp_hf_config_put_int(r, "rope.dimension_count", p.width);
}
