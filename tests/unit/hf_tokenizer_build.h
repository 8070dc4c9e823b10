// Folders with small tokenizers, and what was written for them, for the tests of hf_*.c that make
// tokenizer keys.
#ifndef LP_TEST_HF_TOKENIZER_BUILD_H
#define LP_TEST_HF_TOKENIZER_BUILD_H

#include "lp_test.h"

#include <jansson.h>

#include "base/alloc.h"
#include "base/log.h"
#include "hf/hf_tokenizer.h"
#include "text/tokenizer_parts.h"

// GLM-4's and Llama 3's expression, as their files have it.
#define G                                                                                          \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+" \
    "[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

// ---- making folders

static inline json_t *parse(const char *text) {
    json_error_t error;
    json_t *json = json_loads(text, JSON_ALLOW_NUL | JSON_DECODE_ANY, &error);
    if (!json) fail_msg("%s at %d of %s", error.text, error.position, text);
    return json;
}

static inline json_t *split(const char *regex) {
    return json_pack("{ss s{ss} ss sb}", "type", "Split", "pattern", "Regex", regex, "behavior",
                     "Isolated", "invert", 0);
}

static inline json_t *byte_level(bool use_regex) {
    return json_pack("{ss sb sb sb}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1,
                     "use_regex", use_regex);
}

// Splits one after the other, and bytes at the end; NULL ends the list, "digits" is that step.
static inline json_t *sequence(const char *const *regexes, bool use_regex) {
    json_t *list = json_array();
    for (; *regexes; regexes++)
        json_array_append_new(list,
                              strcmp(*regexes, "digits")
                                  ? split(*regexes)
                                  : json_pack("{ss sb}", "type", "Digits", "individual_digits", 1));
    json_array_append_new(list, byte_level(use_regex));
    return json_pack("{ss so}", "type", "Sequence", "pretokenizers", list);
}

// A byte-level vocabulary: the bytes are 0 ... 255, then "th" 256 and "the" 257.
static inline json_t *bytes_tokenizer(const char *added) {
    json_t *vocab = json_object();
    for (unsigned b = 0; b < 256; b++) {
        uint32_t c = lp_bpe_byte_char(b);
        char text[3] = {(char)(c < 0x80 ? c : 0xC0 | c >> 6),
                        (char)(c < 0x80 ? 0 : 0x80 | (c & 0x3F)), 0};
        json_object_set_new(vocab, text, json_integer(b));
    }
    json_object_set_new(vocab, "th", json_integer(256));
    json_object_set_new(vocab, "the", json_integer(257));
    return json_pack("{s{ss so s[ss]} so so}", "model", "type", "BPE", "vocab", vocab, "merges",
                     "t h", "th e", "added_tokens", parse(added), "pre_tokenizer",
                     sequence((const char *const[]){G, NULL}, false));
}

#define ADD(id, text, special)                                                                     \
    "{\"id\":" #id ",\"content\":\"" text "\",\"special\":" #special ",\"normalized\":false}"

static inline struct lp_hf_folder folder_of(json_t *tokenizer) {
    return (struct lp_hf_folder){.path = (char *)"no folder", .tokenizer = tokenizer};
}

static inline void release(struct lp_hf_folder *f) {
    json_decref(f->tokenizer);
    json_decref(f->tokenizer_config);
    json_decref(f->generation_config);
    json_decref(f->config);
}

// ---- reading what was written

struct file {
    struct lp_gguf_writer *writer;
    struct lp_gguf *gguf;
};

static inline lp_status try_convert(struct file *out, const struct lp_hf_folder *f, int64_t n_vocab,
                                    struct lp_err *err) {
    struct lp_hf_model model = {.n_vocab = n_vocab};
    *out = (struct file){.writer = lp_gguf_writer_new(3)};
    if (!out->writer) return LP_STATUS_MEMORY;
    lp_status status = lp_hf_tokenizer(out->writer, f, &model, err);
    if (!status) status = lp_gguf_writer_finish(out->writer, err);
    if (status) return status;
    struct lp_str header = lp_gguf_writer_header(out->writer);
    return lp_gguf_parse(&out->gguf, (const uint8_t *)header.data, header.len, "test", err);
}

static inline void drop(struct file *file) {
    lp_gguf_close(file->gguf);
    lp_gguf_writer_free(file->writer);
}

static inline struct file convert(const struct lp_hf_folder *f, int64_t n_vocab) {
    struct file file;
    struct lp_err err = {0};
    if (try_convert(&file, f, n_vocab, &err)) fail_msg("%s", err.text);
    return file;
}

// Converts the folder, which is released, to an error whose sentence has the words.
static inline void refused(struct lp_hf_folder f, int64_t n_vocab, lp_status expected,
                           const char *words) {
    struct file file;
    struct lp_err err = {0};
    lp_status status = try_convert(&file, &f, n_vocab, &err);
    if (status != expected || !strstr(err.text, words))
        fail_msg("status %d, \"%s\"; expected %d, \"%s\"", status, err.text, expected, words);
    drop(&file);
    release(&f);
}

static inline struct lp_str string_of(const struct file *file, const char *key) {
    struct lp_str text = {0};
    struct lp_err err = {0};
    char full[80];
    snprintf(full, sizeof full, "tokenizer.%s", key);
    if (lp_gguf_get_str(file->gguf, full, &text, NULL, &err)) fail_msg("%s", err.text);
    return text;
}

static inline void assert_string_of(const struct file *file, const char *key,
                                    const char *expected) {
    struct lp_str text = string_of(file, key);
    if (!lp_str_is(text, expected))
        fail_msg("%s is \"%.*s\", expected \"%s\"", key, LP_STR_ARGS(text), expected);
}

// An integer or a bool; -1: no such key.
static inline int64_t number_of(const struct file *file, const char *key) {
    char full[80];
    snprintf(full, sizeof full, "tokenizer.ggml.%s", key);
    const struct lp_gguf_kv *kv = lp_gguf_find(file->gguf, full);
    return kv ? lp_gguf_int_at(kv, 0) : -1;
}

static inline void assert_token(const struct file *file, uint64_t id, const char *text,
                                int64_t type) {
    const struct lp_gguf_kv *tokens = lp_gguf_find(file->gguf, "tokenizer.ggml.tokens");
    const struct lp_gguf_kv *types = lp_gguf_find(file->gguf, "tokenizer.ggml.token_type");
    assert_true(id < tokens->count && tokens->count == types->count);
    if (!lp_str_is(tokens->strings[id], text) || lp_gguf_int_at(types, id) != type)
        fail_msg("token %d is \"%.*s\" of type %d, expected \"%s\" of type %d", (int)id,
                 LP_STR_ARGS(tokens->strings[id]), (int)lp_gguf_int_at(types, id), text, (int)type);
}

// Each allocation of a conversion fails in turn: an error, and no leak.
static inline void sweep(const struct lp_hf_folder *f, int64_t n_vocab) {
    for (size_t n = 1;; n++) {
        struct file file;
        struct lp_err err = {0};
        lp_alloc_fail_after(n);
        lp_status status = try_convert(&file, f, n_vocab, &err);
        lp_alloc_fail_after(0);
        drop(&file);
        if (!status) break;
        assert_int_equal(status, LP_STATUS_MEMORY);
        assert_true(n < 3000);
    }
}

#endif
