// An answer as Anthropic's events:
//
//     message_start  ping
//     content_block_start 0  content_block_delta 0 ...  content_block_stop 0
//     content_block_start 1  ...
//     message_delta (why it stopped, usage)  message_stop
//
// A block goes on as long as what comes is of its kind; text behind a tool call is a block of its
// own.
#include <string.h>

#include "base/alloc.h"
#include "serve/anthropic_parts.h"
#include "serve/json_out.h"
#include "serve/sse.h"

// Takes the reference. The type is also the event's name.
static bool send(struct lp_bytes *out, json_t *event) {
    const char *type = json_string_value(json_object_get(event, "type"));
    bool ok = type && lp_sse_named_event(out, type, event);
    json_decref(event);
    return ok;
}

bool lp_anthropic_ping(struct lp_answer *a, struct lp_bytes *out) {
    (void)a;
    return send(out, json_pack("{s:s}", "type", "ping"));
}

bool lp_anthropic_stream_error(struct lp_answer *a, const struct lp_api_error *err,
                               struct lp_bytes *out) {
    (void)a;
    return send(out, lp_anthropic_error(err));
}

bool lp_anthropic_start(struct lp_answer *a, struct lp_chat_choice *choice, struct lp_bytes *out) {
    if (!out) return true;
    const struct lp_chat_usage usage = {.prompt = choice->n_prompt, .cached = choice->n_cached};
    json_t *message = lp_anthropic_message(a, NULL, json_array(), lp_anthropic_usage(&usage));
    return send(out, json_pack("{s:s, s:o}", "type", "message_start", "message", message)) &&
           lp_anthropic_ping(a, out);
}

// ---- blocks ----

static bool send_delta(const struct lp_anthropic_content *content, const char *type,
                       const char *member, struct lp_str text, struct lp_bytes *out) {
    return send(out, json_pack("{s:s, s:I, s:{s:s, s:o}}", "type", "content_block_delta", "index",
                               (json_int_t)content->n_blocks - 1, "delta", "type", type, member,
                               lp_json_text(text)));
}

// A signature proves Anthropic's servers that thinking is theirs; clients want one, if empty.
static bool close_block(struct lp_anthropic_content *content, struct lp_bytes *out) {
    if (!content->is_open) return true;
    content->is_open = false;
    if (!out) return true;
    if (content->blocks[content->n_blocks - 1].kind == LP_BLOCK_THINKING &&
        !send_delta(content, "signature_delta", "signature", lp_str_from(""), out))
        return false;
    return send(out, json_pack("{s:s, s:I}", "type", "content_block_stop", "index",
                               (json_int_t)content->n_blocks - 1));
}

static bool open_block(struct lp_anthropic_content *content, const struct lp_chat_choice *choice,
                       const struct lp_anthropic_block *block, struct lp_bytes *out) {
    if (!close_block(content, out)) return false;
    if (content->n_blocks == content->capacity) {
        size_t capacity = content->capacity ? 2 * content->capacity : 4;
        void *more = lp_realloc(content->blocks, capacity, sizeof *content->blocks);
        if (!more) return false;
        content->blocks = more;
        content->capacity = capacity;
    }
    content->blocks[content->n_blocks++] = *block;
    content->is_open = true;
    return !out || send(out, json_pack("{s:s, s:I, s:o}", "type", "content_block_start", "index",
                                       (json_int_t)content->n_blocks - 1, "content_block",
                                       lp_anthropic_block_json(choice, block)));
}

static bool add_text(struct lp_anthropic_content *content, const struct lp_chat_choice *choice,
                     enum lp_anthropic_kind kind, struct lp_str text, struct lp_bytes *out) {
    const struct lp_anthropic_block block = {.kind = kind};
    if (text.len == 0) return true;
    bool goes_on = content->is_open && content->blocks[content->n_blocks - 1].kind == kind;
    if (!goes_on && !open_block(content, choice, &block, out)) return false;
    if (kind == LP_BLOCK_THINKING && content->hide_thinking) return true;
    if (!out)
        return lp_bytes_append(&content->blocks[content->n_blocks - 1].text, text.data, text.len);
    return kind == LP_BLOCK_THINKING ? send_delta(content, "thinking_delta", "thinking", text, out)
                                     : send_delta(content, "text_delta", "text", text, out);
}

bool lp_anthropic_piece(struct lp_answer *a, struct lp_chat_choice *choice,
                        const struct lp_reply_piece *piece, struct lp_bytes *out) {
    struct lp_anthropic_content *content = lp_anthropic_content_of(a);
    const struct lp_anthropic_block tool = {.kind = LP_BLOCK_TOOL, .call = (size_t)piece->call};
    switch (piece->kind) {
    case LP_REPLY_REASONING:
        return add_text(content, choice, LP_BLOCK_THINKING, piece->text, out);
    case LP_REPLY_CONTENT:
        return add_text(content, choice, LP_BLOCK_TEXT, piece->text, out);
    case LP_REPLY_CALL:
        return open_block(content, choice, &tool, out);
    case LP_REPLY_ARGUMENTS:
        return !out || piece->text.len == 0 ||
               send_delta(content, "input_json_delta", "partial_json", piece->text, out);
    case LP_REPLY_CALL_END:
        return close_block(content, out);
    }
    return true;
}

// ---- the end ----

bool lp_anthropic_done(struct lp_answer *a, struct lp_chat_choice *choice, struct lp_bytes *out) {
    const struct lp_chat_usage usage = lp_chat_answer_usage(a);
    const char *stop = choice->stop_text;
    return close_block(lp_anthropic_content_of(a), out) &&
           (!out ||
            send(out, json_pack("{s:s, s:{s:s, s:o}, s:o}", "type", "message_delta", "delta",
                                "stop_reason", lp_anthropic_stop_reason(choice), "stop_sequence",
                                stop ? lp_json_text(lp_str_from(stop)) : json_null(), "usage",
                                lp_anthropic_usage(&usage))));
}

bool lp_anthropic_end(struct lp_answer *a, struct lp_bytes *out) {
    (void)a;
    return send(out, json_pack("{s:s}", "type", "message_stop"));
}
