#include "hf/hf_folder.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/file.h"

#define MAX_SMALL ((uint64_t)16 << 20)      // config.json and the like
#define MAX_TOKENIZER ((uint64_t)256 << 20) // 33 MB is the largest known
#define MAX_TIKTOKEN ((uint64_t)64 << 20)
// Commas, colons and opening brackets of a JSON file: each stands for a value of at most 250 bytes
// in memory. The largest tokenizer.json known has three million.
#define MAX_JSON_VALUES 8000000

// ---- one file

static bool path_in(struct lp_bytes *path, const char *folder, const char *name,
                    struct lp_err *err) {
    lp_bytes_clear(path);
    if (lp_bytes_printf(path, "%s/%s", folder, name)) return true;
    lp_err_memory(err, 0, "a path");
    return false;
}

// The whole file as terminated text; *out NULL where there is none of this name.
static lp_status read_text(const char *path, uint64_t max_bytes, char **out, size_t *len,
                           struct lp_err *err) {
    struct stat is;
    *out = NULL;
    *len = 0;
    if (stat(path, &is) != 0 && (errno == ENOENT || errno == ENOTDIR)) return LP_OK;
    return lp_file_read(path, max_bytes, out, len, err);
}

static size_t count_values(const char *text, size_t len) {
    size_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += (text[i] == ',') + (text[i] == ':') + (text[i] == '{') + (text[i] == '[');
    return n;
}

// *out NULL where the file is not there.
static lp_status read_json(const char *path, uint64_t max_bytes, size_t flags, json_t **out,
                           struct lp_err *err) {
    char *text;
    size_t len;
    json_error_t why;
    lp_status status = read_text(path, max_bytes, &text, &len, err);
    if (status || !text) return status;
    if (count_values(text, len) > MAX_JSON_VALUES) {
        status =
            lp_err_set(err, LP_STATUS_LIMIT,
                       "%s holds more than %d values, as no model's file does; download it again",
                       path, MAX_JSON_VALUES);
    } else if (!(*out = json_loadb(text, len, flags, &why))) {
        status = lp_err_set(err, LP_STATUS_FORMAT,
                            "%s is damaged or no JSON: %.200s (line %d); download it again", path,
                            why.text, why.line);
    } else if (!json_is_object(*out)) {
        json_decref(*out);
        *out = NULL;
        status = lp_err_set(err, LP_STATUS_FORMAT, "%s is no JSON object; download it again", path);
    }
    lp_free(text);
    return status;
}

// ---- config.json

// The language model's part of a multimodal config, with what stands outside and concerns it.
static lp_status take_text_config(json_t **config, struct lp_err *err) {
    static const char *const outer[] = {"architectures", "quantization_config",
                                        "tie_word_embeddings"};
    json_t *inner = json_object_get(*config, "text_config");
    if (!json_is_object(inner)) return LP_OK;
    for (size_t i = 0; i < sizeof outer / sizeof outer[0]; i++) {
        json_t *value = json_object_get(*config, outer[i]);
        if (value && !json_object_get(inner, outer[i]) &&
            json_object_set(inner, outer[i], value) != 0)
            return lp_err_memory(err, 0, "config.json");
    }
    json_incref(inner);
    json_decref(*config);
    *config = inner;
    return LP_OK;
}

static lp_status read_config(struct lp_hf_folder *f, const char *path, struct lp_err *err) {
    lp_status status = read_json(path, MAX_SMALL, JSON_REJECT_DUPLICATES, &f->config, err);
    if (status) return status;
    if (!f->config)
        return lp_err_set(
            err, LP_STATUS_IO,
            "%s is not there; a folder of a model has config.json, tokenizer.json and "
            ".safetensors files",
            path);
    return take_text_config(&f->config, err);
}

// ---- the chat template

// A template, or the one named "default" of a list of {name, template}; else NULL.
static const json_t *default_template(const json_t *value) {
    size_t i;
    const json_t *one;
    if (json_is_string(value)) return value;
    json_array_foreach(value, i, one) {
        const char *name = json_string_value(json_object_get(one, "name"));
        const json_t *text = json_object_get(one, "template");
        if (name && strcmp(name, "default") == 0 && json_is_string(text)) return text;
    }
    return NULL;
}

static lp_status copy_template(struct lp_hf_folder *f, const json_t *object, struct lp_err *err) {
    const json_t *text = default_template(json_object_get(object, "chat_template"));
    if (!text) return LP_OK;
    f->chat_template = lp_strndup(json_string_value(text), json_string_length(text));
    return f->chat_template ? LP_OK
                            : lp_err_memory(err, json_string_length(text), "the chat template");
}

static lp_status read_template(struct lp_hf_folder *f, struct lp_bytes *path, struct lp_err *err) {
    size_t len;
    json_t *object = NULL;
    if (!path_in(path, f->path, "chat_template.jinja", err)) return LP_STATUS_MEMORY;
    lp_status status = read_text(path->data, MAX_SMALL, &f->chat_template, &len, err);
    if (!status && f->chat_template && strlen(f->chat_template) != len)
        status = lp_err_set(err, LP_STATUS_FORMAT,
                            "%s is no text, it has a byte 0; download it again", path->data);
    if (status || f->chat_template) return status;
    if (!path_in(path, f->path, "chat_template.json", err)) return LP_STATUS_MEMORY;
    status = read_json(path->data, MAX_SMALL, 0, &object, err);
    if (!status) status = copy_template(f, object, err);
    json_decref(object);
    if (status || f->chat_template) return status;
    return copy_template(f, f->tokenizer_config, err);
}

// ---- the folder

bool lp_hf_is_folder(const char *path) {
    struct lp_bytes config = {0};
    struct stat is;
    bool there = lp_bytes_printf(&config, "%s/config.json", path) && stat(config.data, &is) == 0 &&
                 S_ISREG(is.st_mode);
    lp_bytes_release(&config);
    return there;
}

// The path without slashes at its end, and its last component ("." and ".." by their real names).
static lp_status set_names(struct lp_hf_folder *f, const char *path, struct lp_err *err) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    f->path = lp_strndup(path, n);
    if (!f->path) return lp_err_memory(err, n, "a path");
    const char *slash = strrchr(f->path, '/'), *last = slash ? slash + 1 : f->path;
    char real[PATH_MAX];
    if (strcmp(last, ".") == 0 || strcmp(last, "..") == 0)
        if (realpath(f->path, real) && strrchr(real, '/')) last = strrchr(real, '/') + 1;
    f->name = lp_strdup(last);
    return f->name ? LP_OK : lp_err_memory(err, n, "a name");
}

// model_max_length may be 10^30, which is too much for a whole number: then all numbers are read
// as fractions, and nothing that is read of this file is a number.
static lp_status read_tokenizer_config(struct lp_hf_folder *f, const char *path,
                                       struct lp_err *err) {
    lp_status status = read_json(path, MAX_SMALL, 0, &f->tokenizer_config, err);
    if (status == LP_STATUS_FORMAT)
        status = read_json(path, MAX_SMALL, JSON_DECODE_INT_AS_REAL, &f->tokenizer_config, err);
    return status;
}

static lp_status read_small_files(struct lp_hf_folder *f, struct lp_bytes *path,
                                  struct lp_err *err) {
    if (!path_in(path, f->path, "config.json", err)) return LP_STATUS_MEMORY;
    lp_status status = read_config(f, path->data, err);
    if (status) return status;
    if (!path_in(path, f->path, "generation_config.json", err)) return LP_STATUS_MEMORY;
    if ((status = read_json(path->data, MAX_SMALL, 0, &f->generation_config, err))) return status;
    if (!path_in(path, f->path, "tokenizer.json", err)) return LP_STATUS_MEMORY;
    status = read_json(path->data, MAX_TOKENIZER, JSON_ALLOW_NUL, &f->tokenizer, err);
    if (status) return status;
    if (!path_in(path, f->path, "tokenizer_config.json", err)) return LP_STATUS_MEMORY;
    if ((status = read_tokenizer_config(f, path->data, err))) return status;
    if (!path_in(path, f->path, "tiktoken.model", err)) return LP_STATUS_MEMORY;
    status = read_text(path->data, MAX_TIKTOKEN, &f->tiktoken, &f->tiktoken_len, err);
    return status ? status : read_template(f, path, err);
}

lp_status lp_hf_folder_open(struct lp_hf_folder *out, const char *path, struct lp_err *err) {
    *out = (struct lp_hf_folder){0};
    struct lp_bytes file = {0};
    lp_status status = set_names(out, path, err);
    if (!status) status = read_small_files(out, &file, err);
    if (!status) status = lp_safetensors_open_folder(&out->weights, out->path, err);
    lp_bytes_release(&file);
    return status;
}

void lp_hf_folder_release(struct lp_hf_folder *folder) {
    json_decref(folder->config);
    json_decref(folder->generation_config);
    json_decref(folder->tokenizer);
    json_decref(folder->tokenizer_config);
    lp_free(folder->path);
    lp_free(folder->name);
    lp_free(folder->chat_template);
    lp_free(folder->tiktoken);
    lp_safetensors_close(folder->weights);
    *folder = (struct lp_hf_folder){0};
}
