// A configuration in memory, converted and read back as the header of a GGUF file.
#ifndef LP_TEST_HF_CONFIG_CASE_H
#define LP_TEST_HF_CONFIG_CASE_H

#include "hf/hf_config.h"
#include "lp_test.h"
#include "model/hparams.h"

struct hf_case {
    struct lp_hf_model model;
    struct lp_gguf_writer *writer;
    struct lp_gguf *gguf; // NULL where refused
    struct lp_err err;
};

static inline lp_status hf_case_folder(struct hf_case *c, const struct lp_hf_folder *folder) {
    *c = (struct hf_case){.writer = lp_gguf_writer_new(3)};
    assert_non_null(c->writer);
    lp_status status = lp_hf_config(&c->model, c->writer, folder, &c->err);
    if (status) return status;
    if (lp_gguf_writer_finish(c->writer, &c->err)) return c->err.status;
    struct lp_str header = lp_gguf_writer_header(c->writer);
    return lp_gguf_parse(&c->gguf, (const uint8_t *)header.data, header.len, "case", &c->err);
}

static inline lp_status hf_case_make(struct hf_case *c, json_t *config) {
    struct lp_hf_folder folder = {.path = "models/tiny", .name = "tiny", .config = config};
    return hf_case_folder(c, &folder);
}

static inline void hf_case_release(struct hf_case *c) {
    lp_gguf_close(c->gguf);
    lp_gguf_writer_free(c->writer);
    lp_hf_model_release(&c->model);
}

static inline json_t *hf_json(const char *text) {
    json_error_t error;
    json_t *json = json_loads(text, 0, &error);
    if (!json) fail_msg("%s: %s", text, error.text);
    return json;
}

// From a file; `member` of it, or NULL for all.
static inline json_t *hf_json_file(const char *path, const char *member) {
    json_error_t error;
    json_t *json = json_load_file(path, 0, &error);
    if (!json) fail_msg("%s: %s", path, error.text);
    if (!member) return json;
    json_t *part = json_incref(json_object_get(json, member));
    json_decref(json);
    return part;
}

// Fields of `text`, an object, replace those of config.
static inline void hf_patch(json_t *config, const char *text) {
    json_t *patch = hf_json(text);
    json_object_update(config, patch);
    json_decref(patch);
}

static inline const struct lp_gguf_kv *hf_key(const struct hf_case *c, const char *suffix) {
    char key[128];
    snprintf(key, sizeof key, "%s.%s", c->model.arch, suffix);
    return lp_gguf_find(c->gguf, key);
}
static inline double hf_value(const struct hf_case *c, const char *suffix) { // or -1
    const struct lp_gguf_kv *kv = hf_key(c, suffix);
    return !kv                          ? -1
           : lp_gguf_is_float(kv->type) ? lp_gguf_float_at(kv, 0)
                                        : (double)lp_gguf_int_at(kv, 0);
}

#endif
