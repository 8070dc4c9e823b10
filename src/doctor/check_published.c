// Published models, recognised by their shape, and the values that each of them has. A file of that
// very shape with another value was converted wrongly or edited.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "doctor/accuse.h"
#include "doctor/file_checks.h"

#define ANY 0 // the row does not say

struct published {
    const char *name, *arch;
    int32_t n_layers;
    int64_t n_embd;
    int32_t n_experts;
    int64_t n_vocab, n_context; // ANY
    double rope_base, eps, scale; // eps: ANY
    bool sigmoid;
    int32_t n_used;
    double yarn_factor, yarn_factor_too; // 1: no scaling
    double log_multiplier;               // of those with yarn; ANY
    int32_t n_groups, top_k;             // ANY
};

// Values of the makers' config.json files.
static const struct published models[] = {
    {"GLM-5 and 5.1", "glm-dsa", 78, 6144, 256, 154880, 202752, 1e6, 1e-5, 2.5, true, 8, 1, 1, 0, 1,
     2048},
    {"GLM-5.2 and 5.3", "glm-dsa", 78, 6144, 256, 154880, 1048576, 8e6, 1e-5, 2.5, true, 8, 1, 1, 0,
     1, 2048},
    {"DeepSeek V3 and R1", "deepseek2", 61, 7168, 256, 129280, ANY, 1e4, 1e-6, 2.5, true, 8, 40, 40,
     0.1, 8, ANY},
    {"DeepSeek V3.2", "deepseek32", 61, 7168, 256, 129280, ANY, 1e4, 1e-6, 2.5, true, 8, 40, 40,
     0.1, 8, 2048},
    {"Kimi K2", "deepseek2", 61, 7168, 384, 163840, ANY, 5e4, ANY, 2.827, true, 8, 32, 64, 0.1, 1,
     ANY},
    {"DeepSeek V2-Lite", "deepseek2", 27, 2048, 64, 102400, ANY, 1e4, 1e-6, 1, false, 6, 40, 40,
     0.0707, ANY, ANY},
    {"DeepSeek V2", "deepseek2", 60, 5120, 160, 102400, ANY, 1e4, 1e-6, 16, false, 6, 40, 40, ANY,
     ANY, ANY},
    {"GLM-4.7-Flash", "deepseek2", 47, 2048, 64, 154880, ANY, 1e6, 1e-5, 1.8, true, 4, 1, 1, 0, 1,
     ANY},
    {"GLM-4.5, 4.6 and 4.7", "glm4moe", 92, 5120, 160, 151552, ANY, 1e6, 1e-5, 2.5, true, 8, 1, 1,
     0, 1, ANY},
    {"GLM-4.5-Air", "glm4moe", 46, 4096, 128, 151552, ANY, 1e6, 1e-5, 1, true, 8, 1, 1, 0, 1, ANY},
};

struct match {
    struct lp_exam *exam;
    const struct published *model;
    int32_t n_checked, n_accused;
};

static const struct published *recognise(const struct lp_hparams *h) {
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        const struct published *m = &models[i];
        if (strcmp(m->arch, h->arch->name) == 0 && m->n_layers == h->n_layers &&
            m->n_embd == h->n_embd && m->n_experts == h->n_experts && m->n_vocab == h->n_vocab &&
            (m->n_context == ANY || m->n_context == h->n_context))
            return m;
    }
    return NULL;
}

static void compare(struct match *m, const char *suffix, double value, double expected,
                    double or_expected) {
    char key[160];
    m->n_checked++;
    // float32 values, and factors that converters round
    if (fabs(value - expected) <= 1e-3 * fabs(expected) ||
        fabs(value - or_expected) <= 1e-3 * fabs(or_expected))
        return;
    m->n_accused++;
    snprintf(key, sizeof key, "%s.%s", m->model->arch, suffix);
    lp_report_fault(m->exam->report, LP_STAGE_FILE, "published model", -1, key,
                    "%s is %g; by its shape the file is %s, whose published value is %g. Set it to "
                    "that, or convert the model again.",
                    key, value, m->model->name, expected);
}

static bool contradicted(const struct lp_report *report) {
    for (size_t i = 0; i < report->n_faults; i++)
        if (strcmp(report->faults[i].check, "metadata") == 0) return true;
    return false;
}

void lp_check_published(struct lp_exam *exam) {
    const struct lp_hparams *h = &exam->h;
    struct match m = {.exam = exam, .model = recognise(h)};
    if (!m.model || contradicted(exam->report)) return;
    const struct published *p = m.model;
    compare(&m, "rope.freq_base", h->rope_base, p->rope_base, p->rope_base);
    if (p->eps != ANY) // its releases differ
        compare(&m, "attention.layer_norm_rms_epsilon", h->eps, p->eps, p->eps);
    compare(&m, "expert_weights_scale", h->expert_scale, p->scale, p->scale);
    compare(&m, "expert_gating_func", h->gating, p->sigmoid ? LP_GATING_SIGMOID : LP_GATING_SOFTMAX,
            p->sigmoid ? LP_GATING_SIGMOID : LP_GATING_SOFTMAX);
    compare(&m, "rope.scaling.factor", h->yarn ? h->yarn_factor : 1, p->yarn_factor,
            p->yarn_factor_too);
    if (h->yarn && p->log_multiplier > 0) {
        double said = (sqrt(h->attn_scale * sqrt((double)h->nope + h->rope_dim)) - 1) /
                      log((double)h->yarn_factor);
        compare(&m, "rope.scaling.yarn_log_multiplier", round(said * 1e4) / 1e4, p->log_multiplier,
                p->log_multiplier);
    }
    if (p->n_groups != ANY)
        compare(&m, "expert_group_count", h->n_groups > 0 ? h->n_groups : 1, p->n_groups,
                p->n_groups);
    lp_accuse_counted(exam->report, LP_STAGE_FILE, "published model",
                      (uint64_t)(m.n_checked - m.n_accused), (uint64_t)m.n_accused,
                      "values of %s, which the file is by its shape", p->name);
    if (h->n_used != p->n_used)
        lp_report_say(exam->report, LP_STAGE_FILE, LP_CHECK_NOTE, "experts used",
                      "%d experts are used for a token, %d in %s as published", h->n_used,
                      p->n_used, p->name);
    if (p->top_k != ANY && h->top_k != p->top_k)
        lp_report_say(exam->report, LP_STAGE_FILE, LP_CHECK_NOTE, "keys selected",
                      "top_k is %d, %d in %s as published", h->top_k, p->top_k, p->name);
}
