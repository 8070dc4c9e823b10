// For the tokenizer's tests: vocabularies and cases out of tests/data/tokenizer, and short ways to
// encode and compare. Failures end the test with the text that differs.
#ifndef TEST_TOKENIZER_BUILD_H
#define TEST_TOKENIZER_BUILD_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <jansson.h>
#include <time.h>

#include "base/alloc.h"
#include "text/tokenizer_parts.h"

// The arrays that struct lp_vocab_params points to.
struct vocab {
    struct lp_vocab_params params;
    struct lp_str *tokens, *merges;
    int32_t *types;
    float *scores;
    struct lp_arena arena; // the texts
    json_t *json;          // the file, for the cases in it
};

static inline json_t *load_json(const char *path) {
    json_error_t error;
    json_t *json = json_load_file(path, JSON_ALLOW_NUL, &error);
    if (!json) fail_msg("%s:%d: %s", path, error.line, error.text);
    return json;
}

static inline struct lp_str json_str(const json_t *json) {
    return (struct lp_str){json_string_value(json), json_string_length(json)};
}

static inline struct lp_vocab_params no_params(const char *model, const char *pre) {
    return (struct lp_vocab_params){.model = lp_str_from(model),
                                    .pre = lp_str_from(pre),
                                    .bos = -1,
                                    .eos = -1,
                                    .eot = -1,
                                    .eom = -1,
                                    .unk = -1,
                                    .pad = -1,
                                    .add_bos = -1,
                                    .add_eos = -1,
                                    .add_space_prefix = -1};
}

// Room for n tokens and n_merges merges, all empty and normal.
static inline void vocab_init(struct vocab *v, const char *model, const char *pre, uint32_t n,
                              uint32_t n_merges) {
    *v = (struct vocab){.params = no_params(model, pre)};
    v->tokens = lp_alloc(n, sizeof *v->tokens);
    v->merges = lp_alloc(n_merges, sizeof *v->merges);
    v->types = lp_alloc(n, sizeof *v->types);
    v->scores = lp_alloc(n, sizeof *v->scores);
    for (uint32_t i = 0; i < n; i++) v->types[i] = LP_TOKEN_NORMAL;
    v->params.tokens = v->tokens;
    v->params.n_tokens = n;
    v->params.types = v->types;
    v->params.scores = v->scores;
    v->params.merges = v->merges;
    v->params.n_merges = n_merges;
}

static inline void vocab_release(struct vocab *v) {
    lp_free(v->tokens);
    lp_free(v->merges);
    lp_free(v->types);
    lp_free(v->scores);
    lp_arena_release(&v->arena);
    json_decref(v->json);
}

static inline int32_t json_id(const json_t *json, const char *key) {
    const json_t *value = json_object_get(json, key);
    return value ? (int32_t)json_integer_value(value) : -1;
}

// glm4_vocab.json: the arrays as the GGUF file has them.
static inline void vocab_glm4(struct vocab *v) {
    json_t *json = load_json("tests/data/tokenizer/glm4_vocab.json");
    json_t *tokens = json_object_get(json, "tokens"), *merges = json_object_get(json, "merges");
    vocab_init(v, "gpt2", "glm4", (uint32_t)json_array_size(tokens),
               (uint32_t)json_array_size(merges));
    v->json = json;
    for (uint32_t i = 0; i < v->params.n_tokens; i++) {
        v->tokens[i] = json_str(json_array_get(tokens, i));
        v->types[i] =
            (int32_t)json_integer_value(json_array_get(json_object_get(json, "token_type"), i));
    }
    for (uint32_t i = 0; i < v->params.n_merges; i++)
        v->merges[i] = json_str(json_array_get(merges, i));
    v->params.bos = json_id(json, "bos_token_id");
    v->params.eos = json_id(json, "eos_token_id");
    v->params.eot = json_id(json, "eot_token_id");
    v->params.eom = json_id(json, "eom_token_id");
    v->params.unk = json_id(json, "unknown_token_id");
    v->params.pad = json_id(json, "padding_token_id");
}

// mini_tokenizer.json: the form of the library tokenizers.
static inline void vocab_mini(struct vocab *v) {
    json_t *json = load_json("tests/data/tokenizer/mini_tokenizer.json");
    json_t *model = json_object_get(json, "model"), *map = json_object_get(model, "vocab");
    json_t *added = json_object_get(json, "added_tokens"),
           *merges = json_object_get(model, "merges");
    size_t n = json_object_size(map) + json_array_size(added), i;
    vocab_init(v, "gpt2", "glm4", (uint32_t)n, (uint32_t)json_array_size(merges));
    v->json = json;
    const char *text;
    json_t *item;
    json_object_foreach(map, text, item) v->tokens[json_integer_value(item)] = lp_str_from(text);
    json_array_foreach(merges, i, item) v->merges[i] = json_str(item);
    json_array_foreach(added, i, item) {
        json_int_t id = json_integer_value(json_object_get(item, "id"));
        v->tokens[id] = json_str(json_object_get(item, "content"));
        v->types[id] = json_is_true(json_object_get(item, "special")) ? LP_TOKEN_CONTROL
                                                                      : LP_TOKEN_USER_DEFINED;
    }
}

// spm.json
static inline void vocab_spm(struct vocab *v) {
    json_t *json = load_json("tests/data/tokenizer/spm.json");
    json_t *tokens = json_object_get(json, "tokens");
    vocab_init(v, "llama", "", (uint32_t)json_array_size(tokens), 0);
    v->json = json;
    for (uint32_t i = 0; i < v->params.n_tokens; i++) {
        v->tokens[i] = json_str(json_array_get(tokens, i));
        v->types[i] =
            (int32_t)json_integer_value(json_array_get(json_object_get(json, "types"), i));
        v->scores[i] = (float)json_number_value(json_array_get(json_object_get(json, "scores"), i));
    }
}

// The 256 byte tokens, then extra ones; "gpt2". merges may be NULL.
static inline void vocab_bytes(struct vocab *v, const char *pre, const char *const *extra,
                               uint32_t n_extra, const char *const *merges, uint32_t n_merges) {
    vocab_init(v, "gpt2", pre, 256 + n_extra, n_merges);
    for (unsigned b = 0; b < 256; b++) {
        uint32_t c = lp_bpe_byte_char(b);
        char text[2] = {(char)c, 0};
        if (c >= 0x80) {
            text[0] = (char)(0xC0 | c >> 6);
            text[1] = (char)(0x80 | (c & 0x3F));
        }
        size_t len = c >= 0x80 ? 2 : 1;
        v->tokens[b] = (struct lp_str){lp_arena_strndup(&v->arena, text, len), len};
    }
    for (uint32_t i = 0; i < n_extra; i++) v->tokens[256 + i] = lp_str_from(extra[i]);
    for (uint32_t i = 0; i < n_merges; i++) v->merges[i] = lp_str_from(merges[i]);
}

static inline struct lp_tokenizer *make(const struct vocab *v) {
    struct lp_tokenizer *tok;
    struct lp_err err = {0};
    if (lp_tokenizer_new(&tok, &v->params, &err)) fail_msg("%s", err.text);
    return tok;
}

// The vocabulary is refused with this status and a sentence that holds `part`.
static inline void assert_refused(const struct vocab *v, lp_status status, const char *part) {
    struct lp_tokenizer *tok = (struct lp_tokenizer *)1;
    struct lp_err err = {0};
    assert_int_equal(lp_tokenizer_new(&tok, &v->params, &err), status);
    assert_null(tok);
    if (!strstr(err.text, part)) fail_msg("\"%s\" does not say \"%s\"", err.text, part);
}

static inline struct lp_ids encode(const struct lp_tokenizer *tok, struct lp_str text,
                                   unsigned flags) {
    struct lp_ids ids = {0};
    struct lp_err err = {0};
    if (lp_tokenizer_encode(tok, text, flags, &ids.data, &ids.n, &ids.capacity, &err))
        fail_msg("%s", err.text);
    return ids;
}

#define assert_ids(tok, text, flags, ...)                                                          \
    do {                                                                                           \
        const int32_t want_[] = {__VA_ARGS__};                                                     \
        struct lp_ids got_ = encode(tok, lp_str_from(text), flags);                                \
        assert_int_equal(got_.n, sizeof want_ / sizeof *want_);                                    \
        assert_memory_equal(got_.data, want_, sizeof want_);                                       \
        lp_free(got_.data);                                                                        \
    } while (0)

// The bytes of all tokens, one after the other.
static inline struct lp_bytes decode(const struct lp_tokenizer *tok, struct lp_ids ids) {
    struct lp_bytes out = {0};
    for (size_t i = 0; i < ids.n; i++)
        assert_true(lp_tokenizer_piece(tok, ids.data[i], false, &out));
    return out;
}

// Each case's text gives its ids (special tokens recognised). Returns how many there were.
static inline size_t assert_cases(const struct lp_tokenizer *tok, const json_t *cases) {
    size_t i, j;
    json_t *item, *id;
    json_array_foreach((json_t *)cases, i, item) {
        struct lp_str text = json_str(json_object_get(item, "text"));
        json_t *want = json_object_get(item, "ids");
        struct lp_ids got = encode(tok, text, LP_ENCODE_SPECIAL);
        bool same = got.n == json_array_size(want);
        json_array_foreach(want, j, id) same = same && got.data[j] == json_integer_value(id);
        if (!same) fail_msg("case %zu \"%.*s\" gives other ids", i, LP_STR_ARGS(text));
        lp_free(got.data);
    }
    return i;
}

static inline void assert_round_trip(const struct lp_tokenizer *tok, struct lp_str text) {
    struct lp_ids ids = encode(tok, text, LP_ENCODE_SPECIAL);
    struct lp_bytes back = decode(tok, ids);
    if (!lp_str_equal(lp_bytes_view(&back), text))
        fail_msg("\"%.*s\" comes back as \"%.*s\"", LP_STR_ARGS(text),
                 LP_STR_ARGS(lp_bytes_view(&back)));
    lp_bytes_release(&back);
    lp_free(ids.data);
}

// For bounds that only quadratic time would break; CPU time, so that a busy machine does not.
static inline double cpu_seconds(void) {
    return (double)clock() / CLOCKS_PER_SEC;
}

// n times the bytes of unit, then tail.
static inline struct lp_bytes repeat(const char *unit, size_t n, const char *tail) {
    struct lp_bytes out = {0};
    for (size_t i = 0; i < n; i++) assert_true(lp_bytes_puts(&out, unit));
    assert_true(lp_bytes_puts(&out, tail));
    return out;
}

#endif
