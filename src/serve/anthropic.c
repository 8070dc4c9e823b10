// What Anthropic's API sends: messages, and errors. Streams are in anthropic_stream.c; both show
// the same content blocks.
#include "serve/anthropic.h"

#include <string.h>

#include "serve/anthropic_parts.h"
#include "serve/json_out.h"

// ---- errors ----

static const char *error_type(int http) {
    static const struct {
        int http;
        const char *type;
    } types[] = {
        {401, "authentication_error"}, {403, "permission_error"}, {404, "not_found_error"},
        {413, "request_too_large"},    {429, "rate_limit_error"}, {503, "overloaded_error"},
        {504, "timeout_error"},        {529, "overloaded_error"},
    };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].http == http) return types[i].type;
    return http < 500 ? "invalid_request_error" : "api_error";
}

static bool has_code(const struct lp_api_error *err, const char *code) {
    return err->code && strcmp(err->code, code) == 0;
}

// Clients know a conversation that has outgrown the context by these words, and shorten it.
json_t *lp_anthropic_error(const struct lp_api_error *err) {
    struct lp_bytes text = {0};
    if (has_code(err, "context_length_exceeded")) lp_bytes_puts(&text, "prompt is too long: ");
    lp_bytes_puts(&text, err->message);
    if (text.failed) return NULL;
    json_t *details = has_code(err, LP_ANTHROPIC_NO_THREADS)
                          ? json_pack("{s:s, s:[]}", "error_code", err->code, "unsupported")
                          : NULL;
    json_t *out = json_pack("{s:s, s:{s:s, s:o, s:o*}}", "type", "error", "error", "type",
                            error_type(err->http), "message", lp_json_text(lp_bytes_view(&text)),
                            "details", details);
    lp_bytes_release(&text);
    return out;
}

// ---- messages ----

const char *lp_anthropic_stop_reason(const struct lp_chat_choice *choice) {
    if (choice->hit_length) return "max_tokens";
    if (choice->stop_text) return "stop_sequence";
    return choice->n_calls ? "tool_use" : "end_turn";
}

json_t *lp_anthropic_usage(const struct lp_chat_usage *u) {
    return json_pack("{s:I, s:I, s:I, s:I}", "input_tokens", (json_int_t)(u->prompt - u->cached),
                     "cache_creation_input_tokens", (json_int_t)0, "cache_read_input_tokens",
                     (json_int_t)u->cached, "output_tokens", (json_int_t)u->generated);
}

json_t *lp_anthropic_message(const struct lp_answer *a, const struct lp_chat_choice *choice,
                             json_t *content, json_t *usage) {
    const char *stop = choice ? choice->stop_text : NULL;
    return json_pack(
        "{s:s, s:s, s:s, s:o, s:o, s:s?, s:o, s:o}", "id", lp_chat_of(a)->id, "type", "message",
        "role", "assistant", "model", lp_json_text(lp_str_from(a->service->model_id)), "content",
        content, "stop_reason", choice ? lp_anthropic_stop_reason(choice) : NULL, "stop_sequence",
        stop ? lp_json_text(lp_str_from(stop)) : json_null(), "usage", usage);
}

json_t *lp_anthropic_block_json(const struct lp_chat_choice *choice,
                                const struct lp_anthropic_block *block) {
    if (block->kind == LP_BLOCK_THINKING)
        return json_pack("{s:s, s:s, s:s}", "type", "thinking", "thinking", "", "signature", "");
    if (block->kind == LP_BLOCK_TEXT) return json_pack("{s:s, s:s}", "type", "text", "text", "");
    const struct lp_chat_call *call = &choice->calls[block->call];
    return json_pack("{s:s, s:s, s:o, s:{}}", "type", "tool_use", "id", call->id, "name",
                     lp_json_text(lp_bytes_view(&call->name)), "input");
}

// ---- whole answers ----

// The parser of answers closes arguments to valid JSON. Numbers beyond 64 bits become reals.
static json_t *arguments_json(const struct lp_bytes *arguments) {
    json_t *out =
        json_loadb(arguments->data ? arguments->data : "", arguments->len, JSON_ALLOW_NUL, NULL);
    if (!out)
        out = json_loadb(arguments->data ? arguments->data : "", arguments->len,
                         JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
    return out ? out : json_object();
}

static json_t *whole_block(const struct lp_chat_choice *choice,
                           const struct lp_anthropic_block *block) {
    static const char *const member[] = {
        [LP_BLOCK_THINKING] = "thinking", [LP_BLOCK_TEXT] = "text", [LP_BLOCK_TOOL] = "input"};
    json_t *out = lp_anthropic_block_json(choice, block);
    json_t *value = block->kind == LP_BLOCK_TOOL
                        ? arguments_json(&choice->calls[block->call].arguments)
                        : lp_json_text(lp_bytes_view(&block->text));
    if (json_object_set_new(out, member[block->kind], value) == 0) return out;
    json_decref(out);
    return NULL;
}

static json_t *whole(struct lp_answer *a) {
    const struct lp_chat_choice *choice = &lp_chat_of(a)->choices[0];
    const struct lp_anthropic_content *content = lp_anthropic_content_of(a);
    const struct lp_chat_usage usage = lp_chat_answer_usage(a);
    json_t *blocks = json_array();
    for (size_t i = 0; blocks && i < content->n_blocks; i++) {
        if (json_array_append_new(blocks, whole_block(choice, &content->blocks[i])) == 0) continue;
        json_decref(blocks);
        return NULL;
    }
    return lp_anthropic_message(a, choice, blocks, lp_anthropic_usage(&usage));
}

const struct lp_chat_format lp_anthropic_format = {
    .base = {.event = lp_chat_answer_event,
             .end = lp_anthropic_end,
             .whole = whole,
             .error = lp_anthropic_error,
             .stream_error = lp_anthropic_stream_error,
             .keep_alive = lp_anthropic_ping,
             .release = lp_chat_answer_release},
    .id_prefix = "msg_",
    .call_prefix = "toolu_",
    .start = lp_anthropic_start,
    .piece = lp_anthropic_piece,
    .done = lp_anthropic_done,
};
