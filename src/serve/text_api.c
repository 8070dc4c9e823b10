#include "serve/text_api.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "serve/fields.h"
#include "serve/json_out.h"
#include "serve/openai_chat.h"

#define MAX_PIECES 65536

static json_t *parse(struct lp_service *s, const char *body, size_t n_bytes,
                     struct lp_api_error *err) {
    return lp_body_parse(body, n_bytes, limpid_engine_context(s->engine), err);
}

static void finish(struct lp_http_reply *reply, json_t *out, const struct lp_api_error *err) {
    if (out)
        lp_http_reply_json(reply, 200, out);
    else
        lp_http_reply_error(reply, lp_api_error_json, err);
}

// ---- from text to tokens ----

struct text_request {
    bool specials, bos, strings, pieces;
    const json_t *text; // NULL: a conversation
};

static bool read_request(struct text_request *r, const json_t *root, struct lp_api_error *err) {
    *r = (struct text_request){.specials = true, .bos = true};
    r->text = lp_json_field(root, "prompt");
    if (!r->text && lp_json_field(root, "content")) {
        r->bos = false; // llama-server's form and its default
        r->text = lp_json_field(root, "content");
    }
    if (r->text && !json_is_string(r->text))
        return lp_api_invalid(err, "prompt", "the text is %s, expected a string",
                              lp_json_type_name(r->text));
    if (!r->text && !lp_json_field(root, "messages"))
        return lp_api_invalid(err, "prompt", "prompt (or content, or messages) is missing");
    return lp_json_get_bool(root, "add_special_tokens", "add_special_tokens", &r->bos, err) &&
           lp_json_get_bool(root, "add_special", "add_special", &r->bos, err) &&
           lp_json_get_bool(root, "parse_special", "parse_special", &r->specials, err) &&
           lp_json_get_bool(root, "return_token_strs", "return_token_strs", &r->strings, err) &&
           lp_json_get_bool(root, "with_pieces", "with_pieces", &r->pieces, err);
}

// The ids of a conversation's prompt; *prompt: its text.
static bool render(struct lp_service *s, const json_t *root, struct lp_chat_prompt *prompt,
                   int32_t **ids, size_t *n_ids, struct lp_api_error *err) {
    struct lp_chat_request r = {0};
    bool ok = lp_openai_chat_request(&r, s, root, false, err) &&
              lp_chat_prompt_make(s, &r, prompt, ids, n_ids, err);
    lp_chat_request_release(&r);
    return ok;
}

static bool encode(struct lp_service *s, const struct text_request *r, const json_t *root,
                   int32_t **ids, size_t *n_ids, struct lp_api_error *err) {
    limpid_error e;
    if (!r->text) {
        struct lp_chat_prompt prompt = {0};
        bool ok = render(s, root, &prompt, ids, n_ids, err);
        lp_chat_prompt_release(&prompt);
        return ok;
    }
    unsigned flags = (r->specials ? LIMPID_SPECIAL : 0) | (r->bos ? LIMPID_BOS : 0);
    if (limpid_tokenize(s->model, json_string_value(r->text), json_string_length(r->text), flags,
                        ids, n_ids, &e))
        return lp_api_from_limpid(err, &e);
    return true;
}

static json_t *piece_json(const struct lp_service *s, int32_t id) {
    limpid_error e;
    char *bytes;
    size_t n;
    if (limpid_token_bytes(s->model, id, &bytes, &n, &e)) return NULL;
    json_t *out = lp_json_text((struct lp_str){bytes, n});
    limpid_free(bytes);
    return out;
}

// Texts of the ids: strings, or llama-server's {"id", "piece"}.
static json_t *pieces_json(const struct lp_service *s, const int32_t *ids, size_t n, bool with_id) {
    json_t *out = json_array();
    for (size_t i = 0; out && i < n; i++) {
        json_t *one = piece_json(s, ids[i]);
        if (with_id) one = json_pack("{s:i, s:o}", "id", (int)ids[i], "piece", one);
        if (json_array_append_new(out, one) == 0) continue;
        json_decref(out);
        out = NULL;
    }
    return out;
}

static json_t *tokens_json(const struct lp_service *s, const struct text_request *r,
                           const int32_t *ids, size_t n) {
    json_t *out = json_pack("{s:I, s:I, s:o}", "count", (json_int_t)n, "max_model_len",
                            (json_int_t)limpid_engine_context(s->engine), "tokens",
                            r->pieces ? pieces_json(s, ids, n, true) : lp_json_ids(ids, n));
    if (!out || !r->strings ||
        json_object_set_new(out, "token_strs", pieces_json(s, ids, n, false)) == 0)
        return out;
    json_decref(out);
    return NULL;
}

// A piece takes some hundred bytes of memory.
static bool check_pieces(const struct text_request *r, size_t n, struct lp_api_error *err) {
    if (n <= MAX_PIECES || (!r->pieces && !r->strings)) return true;
    return lp_api_invalid(err, r->pieces ? "with_pieces" : "return_token_strs",
                          "the texts of at most %d tokens are given at a time, and this text has "
                          "%zu; leave it out, or send parts",
                          MAX_PIECES, n);
}

void lp_text_tokenize(struct lp_service *s, const char *body, size_t n_bytes,
                      struct lp_http_reply *reply) {
    struct lp_api_error err;
    struct text_request r;
    int32_t *ids = NULL;
    size_t n_ids = 0;
    json_t *root = parse(s, body, n_bytes, &err), *out = NULL;
    if (root && read_request(&r, root, &err) && encode(s, &r, root, &ids, &n_ids, &err) &&
        check_pieces(&r, n_ids, &err) && !(out = tokens_json(s, &r, ids, n_ids)))
        lp_api_out_of_memory(&err);
    finish(reply, out, &err);
    limpid_free(ids);
    json_decref(root);
}

// ---- from tokens to text ----

static bool read_ids(const struct lp_service *s, const json_t *list, int32_t **ids, size_t *n,
                     struct lp_api_error *err) {
    int32_t n_vocab = limpid_model_get_info(s->model).n_vocab;
    if (!json_is_array(list))
        return lp_api_invalid(err, "tokens", "tokens is %s, expected an array of token ids",
                              list ? lp_json_type_name(list) : "missing");
    *n = json_array_size(list);
    if (!(*ids = lp_alloc(*n, sizeof **ids))) return lp_api_out_of_memory(err);
    for (size_t i = 0; i < *n; i++) {
        const json_t *one = json_array_get(list, i);
        json_int_t id = json_integer_value(one);
        if (!json_is_integer(one) || id < 0 || id >= n_vocab)
            return lp_api_invalid(err, "tokens", "tokens[%zu] is no token id from 0 to %d", i,
                                  n_vocab - 1);
        (*ids)[i] = (int32_t)id;
    }
    return true;
}

void lp_text_detokenize(struct lp_service *s, const char *body, size_t n_bytes,
                        struct lp_http_reply *reply) {
    struct lp_api_error err;
    limpid_error e;
    int32_t *ids = NULL;
    size_t n_ids = 0, n_text = 0;
    char *text = NULL;
    bool skip = false;
    json_t *root = parse(s, body, n_bytes, &err), *out = NULL;
    bool ok = root && read_ids(s, lp_json_field(root, "tokens"), &ids, &n_ids, &err) &&
              lp_json_get_bool(root, "skip_special_tokens", "skip_special_tokens", &skip, &err);
    if (ok && limpid_detokenize(s->model, ids, n_ids, skip, &text, &n_text, &e))
        ok = lp_api_from_limpid(&err, &e);
    if (ok) { // vLLM calls it prompt, llama-server content
        struct lp_str view = {text, n_text};
        out = json_pack("{s:o, s:o}", "prompt", lp_json_text(view), "content", lp_json_text(view));
        if (!out) lp_api_out_of_memory(&err);
    }
    finish(reply, out, &err);
    limpid_free(text);
    lp_free(ids);
    json_decref(root);
}

// ---- a conversation's prompt ----

void lp_text_apply_template(struct lp_service *s, const char *body, size_t n_bytes,
                            struct lp_http_reply *reply) {
    struct lp_api_error err;
    struct lp_chat_prompt prompt = {0};
    int32_t *ids = NULL;
    size_t n_ids = 0;
    json_t *root = parse(s, body, n_bytes, &err), *out = NULL;
    if (root && render(s, root, &prompt, &ids, &n_ids, &err)) {
        out = json_pack("{s:o, s:o, s:I, s:b, s:I, s:s}", "prompt",
                        lp_json_text(lp_bytes_view(&prompt.text)), "tokens",
                        lp_json_ids(ids, n_ids), "count", (json_int_t)n_ids, "in_reasoning",
                        prompt.in_reasoning, "exact_tokens", (json_int_t)prompt.n_exact, "syntax",
                        lp_reply_syntax_name(prompt.syntax));
        if (!out) lp_api_out_of_memory(&err);
    }
    finish(reply, out, &err);
    lp_chat_prompt_release(&prompt);
    lp_free(ids);
    json_decref(root);
}

void lp_text_no_embeddings(struct lp_service *s, const char *body, size_t n_bytes,
                           struct lp_http_reply *reply) {
    (void)body, (void)n_bytes;
    struct lp_api_error err;
    lp_api_fail(&err, 400, "unsupported_endpoint",
                "embeddings are not supported: '%.200s' is a model that generates text; run an "
                "embedding model on another server",
                s->model_id);
    lp_http_reply_error(reply, lp_api_error_json, &err);
}
