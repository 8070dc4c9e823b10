// A folder's tokenizer files: the input is one JSON object with those files as members, "n_vocab",
// and for short inputs "bytes": true, which puts the 256 tokens of a byte-level vocabulary at the
// ids from 0; or, if it is no JSON, a tiktoken.model. What is accepted must be a GGUF header whose
// tokenizer keys are in range; what is refused has a sentence.
#include <jansson.h>
#include <stdlib.h>

#include "base/log.h"
#include "hf/hf_tokenizer.h"
#include "text/tokenizer_parts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void add_bytes(json_t *vocab) {
    for (unsigned b = 0; b < 256; b++) {
        uint32_t c = lp_bpe_byte_char(b);
        char text[3] = {(char)(c < 0x80 ? c : 0xC0 | c >> 6),
                        (char)(c < 0x80 ? 0 : 0x80 | (c & 0x3F)), 0};
        json_object_set_new(vocab, text, json_integer(b));
    }
}

static void check(const struct lp_gguf_writer *w, uint64_t n_vocab) {
    static const char *const ids[] = {
        "tokenizer.ggml.bos_token_id",     "tokenizer.ggml.eos_token_id",
        "tokenizer.ggml.eot_token_id",     "tokenizer.ggml.eom_token_id",
        "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.padding_token_id"};
    struct lp_gguf *gguf;
    struct lp_err err = {0};
    struct lp_str header = lp_gguf_writer_header(w);
    if (lp_gguf_parse(&gguf, (const uint8_t *)header.data, header.len, "fuzz", &err)) abort();
    const struct lp_gguf_kv *tokens = lp_gguf_find(gguf, "tokenizer.ggml.tokens");
    const struct lp_gguf_kv *types = lp_gguf_find(gguf, "tokenizer.ggml.token_type");
    if (!tokens || !types || tokens->count != n_vocab || types->count != n_vocab) abort();
    for (uint64_t i = 0; i < n_vocab; i++)
        if (lp_gguf_int_at(types, i) < 1 || lp_gguf_int_at(types, i) > 6) abort();
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        uint64_t id = 0;
        bool found;
        if (lp_gguf_get_u64(gguf, ids[i], n_vocab - 1, &id, &found, &err)) abort();
    }
    lp_gguf_close(gguf);
}

static void convert(const struct lp_hf_folder *folder, int64_t n_vocab) {
    struct lp_gguf_writer *w = lp_gguf_writer_new(3);
    struct lp_hf_model model = {.n_vocab = n_vocab};
    struct lp_err err = {0};
    if (!w) abort();
    lp_status status = lp_hf_tokenizer(w, folder, &model, &err);
    if (status && !err.text[0]) abort();
    if (!status && lp_gguf_writer_finish(w, &err)) abort();
    if (!status) check(w, (uint64_t)n_vocab);
    lp_gguf_writer_free(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    lp_log_set_level(LP_LOG_ERROR);
    struct lp_hf_folder folder = {.path = (char *)"."};
    json_t *root = json_loadb((const char *)data, size, JSON_ALLOW_NUL, NULL);
    int64_t n_vocab = json_integer_value(json_object_get(root, "n_vocab"));
    if (n_vocab > 1024) n_vocab = 1024; // padding only costs time
    folder.tokenizer = json_object_get(root, "tokenizer");
    folder.tokenizer_config = json_object_get(root, "tokenizer_config");
    folder.generation_config = json_object_get(root, "generation_config");
    folder.config = json_object_get(root, "config");
    json_t *vocab = json_object_get(json_object_get(folder.tokenizer, "model"), "vocab");
    if (json_is_true(json_object_get(root, "bytes")) && json_is_object(vocab)) add_bytes(vocab);
    if (!root) { // a copy of its own size, so that reading past the end is seen
        folder.tokenizer_config = json_pack("{ss}", "tokenizer_class", "TikTokenTokenizer");
        folder.tiktoken = malloc(size + 1);
        if (!folder.tiktoken || !folder.tokenizer_config) abort();
        memcpy(folder.tiktoken, data, size);
        folder.tiktoken_len = size;
        n_vocab = 600;
    }
    convert(&folder, n_vocab);
    if (!root) {
        free(folder.tiktoken);
        json_decref(folder.tokenizer_config);
    }
    json_decref(root);
    return 0;
}
