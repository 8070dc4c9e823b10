#include "files/synth_config.h"

#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "files/synth_models.h"
#include "files/synth_text.h"
#include "gguf/gguf_assemble.h"

#define MAX_CONFIG_BYTES ((uint64_t)1 << 20)

static lp_status load_json(json_t **out, const char *text, size_t n, const char *from,
                           struct lp_err *err) {
    json_error_t why;
    *out = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
    if (json_is_object(*out)) return LP_OK;
    return lp_err_set(err, LP_STATUS_FORMAT, "%s is no JSON object: %s", from,
                      *out ? "it is something else" : why.text);
}

static lp_status unknown_model(const char *name, struct lp_err *err) {
    struct lp_bytes names = {0};
    const struct lp_synth_model *m;
    for (size_t i = 0; (m = lp_synth_model_at(i)); i++)
        lp_bytes_printf(&names, "%s%s", i ? ", " : "", m->name);
    lp_status status = lp_err_set(err, LP_STATUS_INVALID,
                                  "there is no model '%s' to imitate; expected the path of a "
                                  "config.json or one of %s",
                                  name, names.data ? names.data : "");
    lp_bytes_release(&names);
    return status;
}

static lp_status load_config(struct lp_hf_folder *folder, const char *name, struct lp_err *err) {
    const struct lp_synth_model *m = lp_synth_model_find(name);
    char *text;
    size_t n;
    if (m) return load_json(&folder->config, m->config, strlen(m->config), m->name, err);
    if (!strchr(name, '/') && !strchr(name, '.')) return unknown_model(name, err);
    lp_status status = lp_file_read(name, MAX_CONFIG_BYTES, &text, &n, err);
    if (status) return status;
    status = load_json(&folder->config, text, n, name, err);
    lp_free(text);
    return status;
}

// FIELD=VALUE; the value is JSON, or a text where it is none. *is_new: the config lacked the field.
static lp_status set_field(json_t *config, const char *set, bool *is_new, struct lp_err *err) {
    const char *equals = strchr(set, '=');
    if (!equals || equals == set || !equals[1])
        return lp_err_set(err, LP_STATUS_INVALID,
                          "'%s' sets nothing, expected FIELD=VALUE, such as num_hidden_layers=4",
                          set);
    char *field = lp_strndup(set, (size_t)(equals - set));
    if (!field) return lp_err_memory(err, strlen(set), "a field");
    json_t *value = json_loads(equals + 1, JSON_DECODE_ANY, NULL);
    if (!value) value = json_string(equals + 1);
    lp_status status = LP_OK;
    *is_new = !json_object_get(config, field);
    if (!value || json_object_set_new(config, field, value))
        status = lp_err_set(err, LP_STATUS_INVALID, "'%s' is no text in UTF-8", set);
    lp_free(field);
    return status;
}

// As many empty tokens as the vocabulary has, which some architectures are told by alone.
static lp_status set_empty_tokens(struct lp_gguf_writer *w, int64_t n, struct lp_err *err) {
    if (n < LP_SYNTH_MIN_VOCAB || n > LP_SYNTH_MAX_VOCAB) return LP_OK; // said by lp_synth_text
    struct lp_str *none = lp_alloc((size_t)n, sizeof *none);
    if (!none) return lp_err_memory(err, (size_t)n * sizeof *none, "the vocabulary");
    lp_gguf_writer_strings(w, "tokenizer.ggml.tokens", none, (uint64_t)n);
    lp_free(none);
    return LP_OK;
}

// Hyperparameters are read from metadata: those of a header without tensors.
static lp_status read_hparams(struct lp_synth_config *c, struct lp_err *err) {
    struct lp_gguf_writer *w = lp_gguf_writer_new(3);
    struct lp_gguf *gguf = NULL;
    lp_status status = w ? LP_OK : lp_err_memory(err, 0, "metadata");
    if (!status) status = lp_hf_config(&c->model, w, &c->folder, err);
    if (!status) status = set_empty_tokens(w, c->model.n_vocab, err);
    if (!status) status = lp_gguf_writer_finish(w, err);
    if (!status) status = lp_gguf_assemble(&gguf, w, NULL, 0, c->folder.name, err);
    if (!status) status = lp_hparams_read(&c->h, gguf, err);
    lp_gguf_close(gguf);
    lp_gguf_writer_free(w);
    return status;
}

// The metadata that follow from the config alone, in bytes. False where there are none.
static bool encode(const struct lp_hf_folder *folder, struct lp_bytes *out) {
    struct lp_hf_model model = {0};
    struct lp_gguf_writer *w = lp_gguf_writer_new(3);
    bool fine = w && !lp_hf_config(&model, w, folder, NULL) && !lp_gguf_writer_finish(w, NULL);
    struct lp_str header = fine ? lp_gguf_writer_header(w) : (struct lp_str){"", 0};
    fine = fine && lp_bytes_append(out, header.data, header.len);
    lp_hf_model_release(&model);
    lp_gguf_writer_free(w);
    return fine;
}

// A field that the config lacked and without which the metadata are the same is a slip of the pen:
// num_hiden_layers=4 would write hundreds of GB.
static lp_status check_used(const struct lp_hf_folder *folder, const char *set,
                            struct lp_err *err) {
    struct lp_bytes with = {0}, without = {0};
    struct lp_hf_folder less = *folder;
    char *field = lp_strndup(set, (size_t)(strchr(set, '=') - set));
    less.config = json_copy(folder->config);
    lp_status status = LP_OK;
    if (!field || !less.config) status = lp_err_memory(err, strlen(set), "a field");
    if (!status) json_object_del(less.config, field);
    if (!status && encode(folder, &with) && encode(&less, &without) &&
        lp_str_equal(lp_bytes_view(&with), lp_bytes_view(&without)))
        status = lp_err_set(err, LP_STATUS_INVALID,
                            "'%s' changes nothing: this model's config.json has no field %s that "
                            "counts; look for a slip in the name",
                            set, field);
    json_decref(less.config);
    lp_free(field);
    lp_bytes_release(&with);
    lp_bytes_release(&without);
    return status;
}

static lp_status set_fields(struct lp_hf_folder *folder, const struct lp_synth_options *options,
                            struct lp_err *err) {
    lp_status status = LP_OK;
    for (size_t i = 0; i < options->n_sets && !status; i++) {
        bool is_new = false;
        status = set_field(folder->config, options->sets[i], &is_new, err);
        if (!status && is_new) status = check_used(folder, options->sets[i], err);
    }
    return status;
}

lp_status lp_synth_config(struct lp_synth_config *out, const struct lp_synth_options *options,
                          struct lp_err *err) {
    memset(out, 0, sizeof *out);
    out->folder.name = lp_strdup("synthetic");
    if (!out->folder.name) return lp_err_memory(err, 0, "metadata");
    lp_status status = load_config(&out->folder, options->model, err);
    if (!status) status = set_fields(&out->folder, options, err);
    if (status) return status;
    status = read_hparams(out, err);
    bool qk_norm = json_is_true(json_object_get(out->folder.config, "use_qk_norm"));
    if (!status)
        status = lp_binding_expected(&out->tensors, &out->n_tensors, &out->h, !out->model.tied,
                                     qk_norm, err);
    return status;
}

void lp_synth_config_release(struct lp_synth_config *config) {
    lp_hf_model_release(&config->model);
    lp_free(config->folder.name);
    json_decref(config->folder.config);
    lp_free(config->tensors);
}

lp_status lp_synth_writer(struct lp_gguf_writer **out, struct lp_synth_config *config,
                          uint64_t seed, struct lp_err *err) {
    lp_hf_model_release(&config->model);
    if (!(*out = lp_gguf_writer_new(3))) return lp_err_memory(err, 0, "metadata");
    lp_status status = lp_hf_config(&config->model, *out, &config->folder, err);
    if (!status) status = lp_synth_text(*out, config->model.n_vocab, seed, err);
    lp_gguf_writer_u32(*out, "general.quantization_version", 2);
    return status;
}
