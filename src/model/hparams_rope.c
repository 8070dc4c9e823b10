// Rotary embedding: base, linear and YaRN scaling, and the softmax scale that YaRN changes.
#include "model/hparams_keys.h"

#include <math.h>

static void read_yarn(struct lp_hparams_reader *r) {
    struct lp_hparams *h = r->h;
    h->yarn_factor = lp_hparams_float(r, "rope.scaling.factor", 1.0, 1e6, 0, NULL);
    h->yarn_context = lp_hparams_int(r, "rope.scaling.original_context_length", 1, INT32_MAX,
                                     h->n_context, "equal to context_length");
    h->yarn_beta_fast =
        lp_hparams_float(r, "rope.scaling.yarn_beta_fast", 1e-6, 1e6, 32, "32 when absent");
    h->yarn_beta_slow =
        lp_hparams_float(r, "rope.scaling.yarn_beta_slow", 1e-6, 1e6, 1, "1 when absent");
    float ext = lp_hparams_float(r, "rope.scaling.yarn_ext_factor", -1e6, 1e6, 1, "1 when absent");
    if (!r->status && ext != 1.0f)
        lp_hparams_fail(r, LP_STATUS_UNSUPPORTED, "metadata key %s is %g, only 1 is supported",
                        lp_hparams_key(r, "rope.scaling.yarn_ext_factor"), (double)ext);
    h->yarn = h->yarn_factor > 1.0f;
}

// rope.scaling.type, with the old alias rope.scale_linear.
static void read_scaling(struct lp_hparams_reader *r) {
    struct lp_hparams *h = r->h;
    struct lp_str type = {"none", 4};
    bool found = false;
    h->rope_scale = 1.0f;
    if (r->status) return;
    r->status =
        lp_gguf_get_str(r->gguf, lp_hparams_key(r, "rope.scaling.type"), &type, &found, r->err);
    if (r->status) return;
    lp_hparams_fact(r, "rope.scaling.type", found ? "file" : "none when absent", "%.*s",
                    LP_STR_ARGS(type));
    if (!found && lp_hparams_has(r, "rope.scaling.factor")) {
        // Engines differ here: some take it for linear scaling, some ignore it.
        float factor = lp_hparams_float(r, "rope.scaling.factor", 0, 1e6, 1, NULL);
        if (!r->status && factor != 0 && factor != 1.0f)
            lp_hparams_fail(r, LP_STATUS_FORMAT,
                            "metadata key %s is missing, but rope.scaling.factor is %g; expected "
                            "none, linear or yarn",
                            lp_hparams_key(r, "rope.scaling.type"), (double)factor);
    }
    if (lp_str_is(type, "yarn"))
        read_yarn(r);
    else if (lp_str_is(type, "linear")) {
        h->rope_scale = lp_hparams_float(r, "rope.scaling.factor", 0, 1e6, 1, "1 when absent");
    } else if (!lp_str_is(type, "none"))
        lp_hparams_fail(r, LP_STATUS_UNSUPPORTED,
                        "metadata key %s is '%.*s', expected none, linear or yarn",
                        lp_hparams_key(r, "rope.scaling.type"), LP_STR_ARGS(type));
    else if (!found)
        h->rope_scale = lp_hparams_float(r, "rope.scale_linear", 0, 1e6, 1, "1 when absent");
    if (h->rope_scale == 0) h->rope_scale = 1.0f;
}

// YaRN has two separate corrections (docs/attention.md): MLA models scale the softmax by
// m^2, m = 1 + log_multiplier ln(factor); the others scale cos and sin by 1 + 0.1 ln(factor).
static void derive_scales(struct lp_hparams_reader *r) {
    struct lp_hparams *h = r->h;
    bool mla = h->arch->attention == LP_ATTENTION_MLA;
    h->rope_magnitude = 1.0f;
    double scale = 1.0 / sqrt((double)(mla ? h->nope + h->rope_dim : h->head_dim));
    if (h->yarn && mla) {
        double log_multiplier =
            lp_hparams_float(r, "rope.scaling.yarn_log_multiplier", 0, 10, 0, "0 when absent");
        double m = 1.0 + log_multiplier * log((double)h->yarn_factor);
        scale *= m * m;
    } else if (h->yarn)
        h->rope_magnitude = (float)(1.0 + 0.1 * log((double)h->yarn_factor));
    h->attn_scale = (float)scale;
    lp_hparams_fact(r, "rope magnitude", "derived", "%.8g", (double)h->rope_magnitude);
    lp_hparams_fact(r, "softmax scale",
                    h->yarn && mla ? "derived: 1/sqrt(key width) x yarn factor squared"
                                   : "derived: 1/sqrt(key width)",
                    "%.8g", scale);
}

void lp_hparams_read_rope(struct lp_hparams_reader *r) {
    struct lp_hparams *h = r->h;
    h->rope_base = lp_hparams_float(r, "rope.freq_base", 1.0, 1e12, 10000, "10000 when absent");
    if (!r->status && h->rope_width % 2)
        lp_hparams_fail(r, LP_STATUS_FORMAT, "metadata key %s is %d, expected an even number",
                        lp_hparams_key(r, "rope.dimension_count"), h->rope_width);
    static const char *const factors[] = {"rope.scaling.yarn_attn_factor",
                                          "rope.scaling.attn_factor"};
    for (int i = 0; i < 2 && !r->status; i++)
        if (lp_hparams_has(r, factors[i])) {
            float factor = lp_hparams_float(r, factors[i], -1e9, 1e9, 1, NULL);
            if (!r->status && factor != 1.0f)
                lp_hparams_fail(r, LP_STATUS_UNSUPPORTED,
                                "metadata key %s is %g, only 1 is supported",
                                lp_hparams_key(r, factors[i]), (double)factor);
        }
    read_scaling(r);
    if (!r->status) derive_scales(r);
}

// The dimension whose wavelength fits `turns` times into the original context.
static double yarn_dimension(const struct lp_hparams *h, double turns) {
    return h->rope_width * log((double)h->yarn_context / (turns * 2.0 * M_PI)) /
           (2.0 * log((double)h->rope_base));
}

void lp_hparams_inv_freq(const struct lp_hparams *h, const float *divisors, float *out) {
    double low = 0, high = 1;
    if (h->yarn) {
        low = fmax(0, floor(yarn_dimension(h, h->yarn_beta_fast)));
        high = fmin(h->rope_width - 1, ceil(yarn_dimension(h, h->yarn_beta_slow)));
        if (low == high) high += 0.001;
    }
    for (int32_t i = 0; i < h->rope_width / 2; i++) {
        double inverse = pow((double)h->rope_base, -2.0 * i / h->rope_width);
        if (h->yarn) {
            double ramp = fmin(1, fmax(0, (i - low) / (high - low)));
            inverse = inverse * (1 - ramp) + inverse / h->yarn_factor * ramp;
        }
        if (divisors) inverse /= divisors[i];
        out[i] = (float)(inverse / h->rope_scale);
    }
}
