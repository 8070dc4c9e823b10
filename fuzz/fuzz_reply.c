// The reply parser: byte 0 chooses the syntax, byte 1 the state at the start and the pieces, the
// rest is a model's text. Whatever it is, the answer does not depend on the pieces, pieces are
// UTF-8, calls come one after the other, and the arguments of each are a JSON object.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/utf8_step.h"
#include "text/reply.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct answer {
    struct lp_bytes reasoning, content, calls, arguments;
    int32_t n_calls, n_repairs;
    bool open;
};

static void must(bool ok) {
    if (!ok) abort();
}

static void must_be_utf8(struct lp_str text) {
    for (size_t at = 0, n; at < text.len; at += n)
        must(lp_utf8_step((const unsigned char *)text.data + at, text.len - at, &n) ==
             LP_UTF8_WHOLE);
}

// What is JSON and yet too much for jansson: a number past a double, a zero byte in a key.
static void must_be_object(struct lp_str text) {
    json_error_t error;
    json_t *value =
        json_loadb(text.data, text.len, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &error);
    enum json_error_code code = value ? json_error_unknown : json_error_code(&error);
    must(json_is_object(value) || code == json_error_numeric_overflow ||
         code == json_error_null_byte_in_key);
    json_decref(value);
}

static bool take(void *user, const struct lp_reply_piece *piece) {
    struct answer *a = user;
    struct lp_str text = piece->text;
    must_be_utf8(text);
    must(text.len || piece->kind == LP_REPLY_CALL_END);
    switch (piece->kind) {
    case LP_REPLY_REASONING:
        must(!a->n_calls);
        return lp_bytes_append(&a->reasoning, text.data, text.len);
    case LP_REPLY_CONTENT:
        must(!a->open);
        return lp_bytes_append(&a->content, text.data, text.len);
    case LP_REPLY_CALL:
        must(!a->open && piece->call == a->n_calls);
        a->n_calls++;
        a->open = true;
        return lp_bytes_append(&a->calls, text.data, text.len);
    case LP_REPLY_ARGUMENTS:
        must(a->open && piece->call == a->n_calls - 1);
        return lp_bytes_append(&a->arguments, text.data, text.len);
    case LP_REPLY_CALL_END:
        must(a->open && piece->call == a->n_calls - 1);
        must_be_object(lp_bytes_view(&a->arguments));
        a->open = false;
        lp_bytes_append(&a->calls, a->arguments.data, a->arguments.len);
        lp_bytes_clear(&a->arguments);
        return lp_bytes_puts(&a->calls, "\n");
    }
    return false;
}

static void parse(struct lp_reply_params params, const uint8_t *text, size_t size, size_t piece,
                  struct answer *a) {
    struct lp_reply *r;
    params.sink = take;
    params.user = a;
    *a = (struct answer){0};
    must(lp_reply_new(&r, &params, NULL) == LP_OK);
    for (size_t at = 0, n; at < size; at += n) {
        n = piece + at % (piece + 1);
        if (n > size - at) n = size - at;
        must(lp_reply_push(r, (struct lp_str){(const char *)text + at, n}));
    }
    must(lp_reply_finish(r));
    must(!a->open && a->n_calls == lp_reply_n_calls(r));
    a->n_repairs = lp_reply_n_repairs(r);
    lp_reply_free(r);
}

static bool same(const struct lp_bytes *a, const struct lp_bytes *b) {
    return lp_str_equal(lp_bytes_view(a), lp_bytes_view(b));
}

static void release(struct answer *a) {
    lp_bytes_release(&a->reasoning);
    lp_bytes_release(&a->content);
    lp_bytes_release(&a->calls);
    lp_bytes_release(&a->arguments);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static json_t *tools;
    if (!tools)
        tools = json_loads(
            "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {"
            "\"properties\": {\"s\": {\"type\": \"string\"}, \"i\": {\"type\": \"integer\"},"
            "\"o\": {\"type\": \"object\"}, \"m\": {\"type\": [\"string\", \"null\"]}}}}},"
            "{\"name\": \"fs\"}]",
            0, NULL);
    must(tools != NULL);
    if (size < 2) return 0;
    struct lp_reply_params params = {.syntax = (enum lp_reply_syntax)(data[0] % 7),
                                     .in_reasoning = data[1] & 1,
                                     .tools = data[1] & 2 ? NULL : tools};
    struct answer whole, cut;
    parse(params, data + 2, size - 2, size, &whole);
    parse(params, data + 2, size - 2, 1 + (data[1] >> 2) % 16, &cut);
    must(same(&whole.reasoning, &cut.reasoning) && same(&whole.content, &cut.content));
    must(same(&whole.calls, &cut.calls) && whole.n_repairs == cut.n_repairs);
    release(&whole);
    release(&cut);
    return 0;
}
