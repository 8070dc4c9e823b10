// Metadata that change the mathematics: which come from the file, which by a rule, and which cannot
// be together. Only what is certain is accused: what no model of the architecture has, or what the
// tensors of the same file contradict. What is merely unusual stays open for the experiments of the
// output stage.
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "doctor/accuse.h"
#include "doctor/file_checks.h"

struct view {
    struct lp_exam *exam;
    const struct lp_hparams *h;
    const struct lp_gguf *gguf;
    int32_t n_checked, n_accused;
    char key[160];
};

static const char *full_key(struct view *v, const char *suffix) {
    snprintf(v->key, sizeof v->key, "%s.%s", v->h->arch->name, suffix);
    return v->key;
}

static bool has(struct view *v, const char *suffix) {
    return lp_gguf_find(v->gguf, full_key(v, suffix)) != NULL;
}

// One contradiction that was looked for. `wrong`: it is there.
static void rule(struct view *v, bool wrong, const char *suffix, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static void rule(struct view *v, bool wrong, const char *suffix, const char *format, ...) {
    v->n_checked++;
    if (!wrong) return;
    char text[640];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    v->n_accused++;
    lp_report_fault(v->exam->report, LP_STAGE_FILE, "metadata", -1,
                    strchr(suffix, ':') ? strchr(suffix, ':') + 1 : full_key(v, suffix), "%s",
                    text);
}

static bool has_tensor_like(const struct lp_gguf *gguf, const char *part) {
    for (uint64_t i = 0; i < lp_gguf_n_tensors(gguf); i++) {
        struct lp_str name = lp_gguf_tensor_at(gguf, i)->name;
        if (memmem(name.data, name.len, part, strlen(part))) return true;
    }
    return false;
}

// ---- contradictions ----

static void check_router(struct view *v) {
    const struct lp_hparams *h = v->h;
    if (h->n_experts == 0) return;
    bool mla = h->arch->attention == LP_ATTENTION_MLA;
    bool biases = has_tensor_like(v->gguf, ".exp_probs_b");
    bool sigmoid = h->gating == LP_GATING_SIGMOID;
    bool always_sigmoid = h->arch->default_gating == LP_GATING_SIGMOID;
    rule(v, !sigmoid && (biases || always_sigmoid), "expert_gating_func",
         "%s is %d (softmax), but %s. The wrong experts are chosen with wrong weights: set it to 2 "
         "(sigmoid).",
         full_key(v, "expert_gating_func"), (int)h->gating,
         biases ? "the file has routing biases (exp_probs_b), which belong to sigmoid routers"
                : "every model of this architecture routes by sigmoid");
    rule(
        v, (sigmoid || always_sigmoid) && !h->normalise && (mla || always_sigmoid),
        "expert_weights_norm",
        "%s is %s, but every sigmoid router of these families normalises the weights of the chosen "
        "experts. Set it to true.",
        full_key(v, "expert_weights_norm"),
        has(v, "expert_weights_norm") ? "false" : "missing (false)");
    rule(v, h->expert_scale > 100 || h->expert_scale < 0.05f, "expert_weights_scale",
         "%s is %g; published models have 1 to 16. Set it to routed_scaling_factor of config.json.",
         full_key(v, "expert_weights_scale"), (double)h->expert_scale);
}

static void check_eps(struct view *v) {
    const struct lp_hparams *h = v->h;
    const char *const keys[] = {"attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"};
    const float values[] = {h->eps, h->top_k ? h->index_eps : 1e-6f};
    for (int i = 0; i < 2; i++)
        rule(v, !(values[i] >= 0.9e-7f && values[i] <= 1.1e-4f), keys[i],
             "%s is %g; every published model has 1e-6 or 1e-5, and 1e-7 to 1e-4 is all that is "
             "plausible. Set it to rms_norm_eps of config.json.",
             full_key(v, keys[i]), (double)values[i]);
}

static void check_rope(struct view *v) {
    const struct lp_hparams *h = v->h;
    bool mla = h->arch->attention == LP_ATTENTION_MLA;
    bool scaled = h->yarn || h->rope_scale != 1.0f;
    bool mistral_like = h->n_experts && h->gating != LP_GATING_SIGMOID && h->normalise;
    rule(v, h->rope_base < 1000 || h->rope_base > 1e9f, "rope.freq_base",
         "%s is %g; published models have 10,000 to 100,000,000. Set it to rope_theta of "
         "config.json.",
         full_key(v, "rope.freq_base"), (double)h->rope_base);
    rule(v, mla && !scaled && h->rope_base <= 10000 && h->n_context >= 65536, "rope.scaling.type",
         "%s is %s, but a context of %lld with a rotary base of %g is only reached by YaRN (factor "
         "40 of 4,096 in the DeepSeek models). Take the rope_scaling of config.json.",
         full_key(v, "rope.scaling.type"), has(v, "rope.scaling.type") ? "none" : "missing",
         (long long)h->n_context, (double)h->rope_base);
    rule(v, mla && h->yarn && !mistral_like && !has(v, "rope.scaling.yarn_log_multiplier"),
         "rope.scaling.yarn_log_multiplier",
         "%s is missing, so the softmax scale lacks its YaRN factor: every DeepSeek and Kimi model "
         "has it (0.1 times mscale_all_dim of config.json).",
         full_key(v, "rope.scaling.yarn_log_multiplier"));
    rule(v, h->yarn && h->yarn_beta_fast < h->yarn_beta_slow, "rope.scaling.yarn_beta_fast",
         "%s is %g, below yarn_beta_slow (%g): the two are exchanged.",
         full_key(v, "rope.scaling.yarn_beta_fast"), (double)h->yarn_beta_fast,
         (double)h->yarn_beta_slow);
    rule(v, h->yarn && h->yarn_factor > 1024, "rope.scaling.factor",
         "%s is %g; published models have 2 to 64.", full_key(v, "rope.scaling.factor"),
         (double)h->yarn_factor);
    bool half = strcmp(h->arch->name, "glm4moe") == 0; // partial_rotary_factor 0.5
    rule(v, !mla && h->rope_width != (half ? h->head_dim / 2 : h->head_dim), "rope.dimension_count",
         "%s is %d%s, but models of this architecture rotate %s of %d.",
         full_key(v, "rope.dimension_count"), h->rope_width,
         has(v, "rope.dimension_count") ? "" : " by default, as the key is missing",
         half ? "half of a head" : "the whole head", h->head_dim);
}

// Whether two tensors of one size look the same: their first, middle and last bytes.
static bool look_equal(const struct lp_gguf_tensor *a, const struct lp_gguf_tensor *b) {
    uint64_t n = 65536;
    if (a->type != b->type || a->n_bytes != b->n_bytes) return false;
    if (n > a->n_bytes) n = a->n_bytes;
    const uint64_t places[] = {0, (a->n_bytes - n) / 2, a->n_bytes - n};
    for (int i = 0; i < 3; i++)
        if (memcmp(a->data + places[i], b->data + places[i], n) != 0) return false;
    return true;
}

static void check_head(struct view *v) {
    const struct lp_gguf_tensor *embd =
        lp_gguf_find_tensor(v->gguf, lp_str_from("token_embd.weight"));
    const struct lp_gguf_tensor *out = lp_gguf_find_tensor(v->gguf, lp_str_from("output.weight"));
    bool never_tied = v->h->arch->attention == LP_ATTENTION_MLA || v->h->arch->may_have_nextn;
    bool same = embd && out && look_equal(embd, out);
    rule(
        v, never_tied && !out, ":output.weight",
        "output.weight is missing and the embedding would be used in its place, but no model of "
        "architecture %s ties the two: the head was lost when the file was made. Convert it again.",
        v->h->arch->name);
    rule(v, never_tied && same, ":output.weight",
         "output.weight is a copy of token_embd.weight, but no model of architecture %s ties the "
         "two: the head was replaced when the file was made. Convert it again.",
         v->h->arch->name);
    if (!never_tied && same)
        lp_report_say(
            v->exam->report, LP_STAGE_FILE, LP_CHECK_NOTE, "output head",
            "output.weight is a copy of token_embd.weight, as in models that tie the two");
}

static void check_quantisation(struct view *v) {
    uint64_t version = 0;
    bool found = false, blocks = false;
    for (uint64_t i = 0; i < lp_gguf_n_tensors(v->gguf) && !blocks; i++)
        blocks = lp_type_info(lp_gguf_tensor_at(v->gguf, i)->type)->block_values > 1;
    const struct lp_gguf_kv *kv = lp_gguf_find(v->gguf, "general.quantization_version");
    if (kv && lp_gguf_is_integral(kv->type)) {
        version = (uint64_t)lp_gguf_int_at(kv, 0);
        found = true;
    }
    rule(v, blocks && found && version != 2, ":general.quantization_version",
         "general.quantization_version is %llu; limpid reads the block formats of version 2. "
         "Quantise the model again.",
         (unsigned long long)version);
    if (blocks && !found)
        lp_report_say(v->exam->report, LP_STAGE_FILE, LP_CHECK_NOTE, "quantisation",
                      "general.quantization_version is missing; the blocks are read as version 2");
}

// ---- where values come from ----

// Keys of which a default is worth a note, since a model with another value is ruined by it.
static bool is_decisive(const char *name) {
    static const char *const names[] = {"expert_gating_func",
                                        "expert_weights_norm",
                                        "expert_weights_scale",
                                        "expert_group_count",
                                        "rope.freq_base",
                                        "rope.scaling.original_context_length",
                                        "rope.scaling.yarn_beta_fast",
                                        "rope.scaling.yarn_beta_slow",
                                        "indexer schedule",
                                        "attention.head_count_kv",
                                        "leading_dense_block_count"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

static void note_sources(struct view *v) {
    const struct lp_hparams *h = v->h;
    int n_file = 0, n_rule = 0, n_derived = 0;
    for (int32_t i = 0; i < h->n_facts; i++) {
        const struct lp_fact *f = &h->facts[i];
        bool file = strncmp(f->source, "file", 4) == 0;
        bool derived = strncmp(f->source, "derived", 7) == 0;
        n_file += file;
        n_derived += derived;
        n_rule += !file && !derived;
        bool moe_only = strcmp(f->name, "leading_dense_block_count") == 0 && h->n_dense == 0;
        bool usual =
            strcmp(f->source, "every layer is full when attention.indexer.types is absent") == 0;
        if (file || derived || !is_decisive(f->name) || moe_only || usual) continue;
        lp_report_say(v->exam->report, LP_STAGE_FILE, LP_CHECK_NOTE, "metadata by rule",
                      "%s is not in the file: %s, by the rule \"%s\"", f->name, f->value,
                      f->source);
    }
    char figure[64];
    snprintf(figure, sizeof figure, "%d of %d", n_file, n_file + n_rule);
    struct lp_check_note note = {.stage = LP_STAGE_FILE,
                                 .outcome = LP_CHECK_OK,
                                 .name = "metadata sources",
                                 .figure = figure,
                                 .bound = "",
                                 .value = n_file,
                                 .limit = NAN};
    lp_report_check(v->exam->report, &note,
                    "numbers of the mathematics are in the file, %d come by a documented rule, %d "
                    "are derived",
                    n_rule, n_derived);
}

static void note_unusual(struct view *v) {
    const struct lp_hparams *h = v->h;
    struct lp_report *r = v->exam->report;
    if (h->n_experts && h->arch->attention == LP_ATTENTION_MLA && h->gating != LP_GATING_SIGMOID &&
        h->normalise)
        lp_report_say(r, LP_STAGE_FILE, LP_CHECK_NOTE, "router",
                      "a softmax router that normalises, without routing biases: DeepSeek V2 does "
                      "not normalise, V3 and GLM have biases (exp_probs_b)");
    if (h->top_k && h->top_k >= h->n_context)
        lp_report_say(r, LP_STAGE_FILE, LP_CHECK_NOTE, "indexer",
                      "top_k (%d) is not below the context (%lld): attention is always dense",
                      h->top_k, (long long)h->n_context);
    if (h->yarn && h->yarn_context >= h->n_context)
        lp_report_say(r, LP_STAGE_FILE, LP_CHECK_NOTE, "yarn",
                      "the original context (%lld) is not below the context (%lld), though YaRN "
                      "scales by %g",
                      (long long)h->yarn_context, (long long)h->n_context, (double)h->yarn_factor);
}

void lp_check_metadata(struct lp_exam *exam) {
    struct view v = {.exam = exam, .h = &exam->h, .gguf = exam->gguf};
    check_router(&v);
    check_eps(&v);
    check_rope(&v);
    check_head(&v);
    check_quantisation(&v);
    lp_accuse_counted(exam->report, LP_STAGE_FILE, "metadata",
                      (uint64_t)(v.n_checked - v.n_accused), (uint64_t)v.n_accused,
                      "values against each other, the tensors and every model of the architecture");
    note_sources(&v);
    note_unusual(&v);
    lp_check_published(exam);
}
