// Reports for the tests of what is made of them: of a healthy model, of one with faults of every kind,
// and one whose every text is hostile.
#ifndef LP_REPORT_FAKE_H
#define LP_REPORT_FAKE_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "doctor/report.h"

#define FAKE_LAYERS 78

static inline void fake_check(struct lp_report *r, enum lp_stage stage, enum lp_outcome outcome,
                              const char *name, const char *figure, const char *bound, double value,
                              double limit, const char *text) {
    struct lp_check_note note = {.stage = stage,
                                 .outcome = outcome,
                                 .name = name,
                                 .figure = figure,
                                 .bound = bound,
                                 .value = value,
                                 .limit = limit};
    lp_report_check(r, &note, "%s", text);
    if (r->n_checks) r->checks[r->n_checks - 1].seconds = 0.25 * (double)r->n_checks;
}

static inline void fake_model(struct lp_report *r, const char *model) {
    lp_free(r->model);
    r->model = lp_strdup(model);
    r->failed = r->failed || !r->model;
    r->seconds = 171.4;
}

static inline void fake_sound_start(struct lp_report *r) {
    fake_check(r, LP_STAGE_FILE, LP_CHECK_OK, "tensors bound", "1,809 of 1,809", "all", 1809, 1809,
               "Every tensor that the architecture needs is there, in the shape it needs.");
    fake_check(r, LP_STAGE_FILE, LP_CHECK_NOTE, "metadata that changes the mathematics",
               "1 defaulted", "", 1, NAN,
               "glm-dsa.expert_gating_func is not in the file; sigmoid, the architecture's rule.");
    fake_check(r, LP_STAGE_WEIGHTS, LP_CHECK_OK, "not a number", "0", "0", 0, 0,
               "No weight is NaN or infinite.");
    fake_check(r, LP_STAGE_KERNELS, LP_CHECK_OK, "Q8_0 against its definition", "3.1e-07",
               "at most 1e-05", 3.1e-7, 1e-5, "cpu_matmul_q8_0_avx2 on rows of 12 tensors.");
    fake_check(r, LP_STAGE_TOKENS, LP_CHECK_OK, "round trip", "212 of 212", "all", 212, 212,
               "Texts of many scripts come back as they were.");
    lp_report_say(r, LP_STAGE_SPARSE, LP_CHECK_SKIPPED, "overlap above top-k",
                  "The context that fits (1,024 tokens) is shorter than top-k (2,048).");
}

// `jump`: the layer from which on it is wrong, or -1.
static inline void fake_series(struct lp_report *r, int jump) {
    double values[FAKE_LAYERS], scales[FAKE_LAYERS];
    for (int i = 0; i < FAKE_LAYERS; i++) {
        values[i] = 2e-7 * (1 + 0.05 * i) * (1 + 0.5 * sin(i));
        if (jump >= 0 && i >= jump) values[i] = 0.02 * (i - jump + 1);
        scales[i] = 0.021 + 0.004 * cos(i / 9.0);
    }
    values[0] = 0;
    values[40] = NAN;
    lp_report_series(r, "residual stream against ref", "layer", "relative difference", true, values,
                     FAKE_LAYERS);
    lp_report_series(r, "scale of attn_q_b", "layer", "root mean square", false, scales,
                     FAKE_LAYERS);
    static const double entropy[] = {5.2, 3.1, 2.2, 0.4, 1.9, 0.2, 0.1, 2.6, 1.2, 0.9, 0.3, 0.1};
    lp_report_series(r, "entropy of the next token", "position", "bits", false, entropy,
                     sizeof entropy / sizeof entropy[0]);
}

static inline struct lp_report *fake_healthy(void) {
    struct lp_report *r = lp_report_new("/models/glm-5.2-Q8_0-00001-of-00042.gguf", false);
    if (!r) return NULL;
    fake_model(r, "glm-dsa, 78 layers, Q8_0");
    fake_sound_start(r);
    fake_check(r, LP_STAGE_LAYERS, LP_CHECK_OK, "residual stream against ref", "2.1e-06",
               "at most 1e-03", 2.1e-6, 1e-3, "The greatest relative difference after any layer.");
    fake_check(r, LP_STAGE_OUTPUT, LP_CHECK_OK, "entropy", "1.42 bits", "0.3 to 6 bits", 1.42, 6,
               "A healthy model is neither certain of everything nor of nothing.");
    fake_series(r, -1);
    return r;
}

static inline struct lp_report *fake_ill(void) {
    struct lp_report *r = lp_report_new("/models/glm-5.2-Q8_0-00001-of-00042.gguf", true);
    if (!r) return NULL;
    fake_model(r, "glm-dsa, 78 layers, Q8_0");
    fake_sound_start(r);
    fake_check(r, LP_STAGE_WEIGHTS, LP_CHECK_FAULT, "k_b and v_b against kv_b", "0.41",
               "at most 1e-03", 0.41, 1e-3,
               "Layer 3 differs from what kv_b holds; transposed, it agrees.");
    lp_report_fault(
        r, LP_STAGE_WEIGHTS, "k_b and v_b against kv_b", 3, "blk.3.attn_k_b.weight",
        "blk.3.attn_k_b.weight looks transposed: each head's matrix agrees with kv_b when "
        "its axes are exchanged. Convert the file again with a converter that writes k_b "
        "as [kv_lora_rank, qk_nope, heads].");
    fake_check(r, LP_STAGE_LAYERS, LP_CHECK_FAULT, "residual stream against ref", "1.5",
               "at most 1e-03", 1.5, 1e-3, "The first layer that differs is 31.");
    lp_report_fault(
        r, LP_STAGE_LAYERS, "residual stream against ref", 31, "mla_absorbed",
        "The kernel of mla_absorbed gives other values than its definition from layer 31 "
        "on. Run with --backend ref for right answers meanwhile, and report the kernel.");
    fake_check(r, LP_STAGE_OUTPUT, LP_CHECK_FAULT, "obvious continuations", "0 of 12", "at least 9",
               0, 9, "None of the continuations that everybody knows is probable.");
    lp_report_fault(r, LP_STAGE_OUTPUT, "obvious continuations", -1, "logits",
                    "What the model says is not the speech of a healthy model.");
    fake_series(r, 31);
    return r;
}

#define FAKE_TAGS                                                                                  \
    "<script>window.hacked=1</script><img src=x onerror=\"window.hacked=1\">'\"&amp;</td></table>" \
    "]]>\xe2\x80\xae\x1b[31m\xff\xc3(\x01"

static inline struct lp_report *fake_hostile(void) {
    char longest[1500];
    memset(longest, 'W', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    struct lp_report *r = lp_report_new(FAKE_TAGS, false);
    if (!r) return NULL;
    fake_model(r, FAKE_TAGS);
    fake_check(r, LP_STAGE_FILE, LP_CHECK_FAULT, FAKE_TAGS, FAKE_TAGS, FAKE_TAGS, INFINITY,
               -INFINITY, FAKE_TAGS);
    lp_report_fault(r, LP_STAGE_FILE, FAKE_TAGS, 2147483647, FAKE_TAGS, "%s", FAKE_TAGS);
    fake_check(r, LP_STAGE_WEIGHTS, LP_CHECK_FAULT, longest, longest, longest, NAN, NAN, longest);
    lp_report_fault(r, LP_STAGE_WEIGHTS, longest, 0, longest, "%s", longest);
    double values[4000];
    for (int i = 0; i < 4000; i++) values[i] = NAN;
    lp_report_series(r, "nothing measured", "layer", "", false, values, 100);
    lp_report_series(r, "nothing measured, log", "layer", "", true, values, 100);
    lp_report_series(r, "no values", "layer", "y", true, values, 0);
    values[7] = INFINITY;
    lp_report_series(r, FAKE_TAGS, FAKE_TAGS, FAKE_TAGS, true, values, 100);
    values[3] = -INFINITY, values[0] = 1e308, values[1] = -1e308, values[2] = 5e-324;
    lp_report_series(r, longest, longest, longest, false, values, 20);
    for (int i = 0; i < 4000; i++) values[i] = 0;
    lp_report_series(r, "all zero", "layer", "difference", true, values, 30);
    lp_report_series(r, "one value", "layer", "scale", false, values, 1);
    for (int i = 0; i < 4000; i++) values[i] = i % 50 == 7 ? NAN : sin(i / 90.0) + (i == 1234) * 9;
    lp_report_series(r, "many values", "position", "nats", false, values, 4000);
    for (int i = 0; i < 4000; i++) values[i] = 1000000 + 1e-3 * i;
    lp_report_series(r, "far from zero", "row", "scale", false, values, 12);
    return r;
}

#endif
