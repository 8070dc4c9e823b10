// Making a model's JSON valid on its way: a reader of tokens that holds back only what a mistake
// behind it could undo (a comma, a key, a number) and writes everything else at once.
#include "text/reply_json.h"

#include <ctype.h>
#include <jansson.h>
#include <stdlib.h>

enum want {
    WANT_VALUE,
    WANT_ELEMENT_OR_END, // behind [
    WANT_ELEMENT,        // behind a comma
    WANT_KEY_OR_END,     // behind {
    WANT_KEY,
    WANT_COLON,
    WANT_NEXT, // a comma or the end
};
enum token { TOKEN_NONE, TOKEN_STRING, TOKEN_ESCAPE, TOKEN_WORD };

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static bool is_word(char c) {
    return isalnum((unsigned char)c) || (c && strchr("_$+-.", c));
}

static void put(struct lp_reply_json *json, struct lp_bytes *out, const char *text, size_t n) {
    if (!lp_bytes_append(out, text, n)) json->failed = true;
}

static void put_text(struct lp_reply_json *json, struct lp_bytes *out, const char *text) {
    put(json, out, text, strlen(text));
}

static void break_off(struct lp_reply_json *json) {
    json->state = LP_JSON_BROKEN;
}

// A slip inside a string; each string counts once.
static void mend(struct lp_reply_json *json) {
    json->n_repairs += !json->mended;
    json->mended = true;
}

bool lp_reply_json_escape(struct lp_bytes *out, struct lp_str text) {
    static const char short_names[] = "btn\0fr"; // of 8, 9, 10, 12, 13
    for (size_t i = 0, n; i < text.len; i += n) {
        const char *p = text.data + i;
        for (n = 0; i + n < text.len; n++)
            if ((unsigned char)p[n] < 0x20 || p[n] == '"' || p[n] == '\\') break;
        lp_bytes_append(out, p, n);
        if (i + n == text.len) break;
        unsigned char c = (unsigned char)p[n++];
        char name = c >= 0x20 ? (char)c : c >= 8 && c <= 13 ? short_names[c - 8] : 0;
        if (name)
            lp_bytes_append(out, (char[]){'\\', name}, 2);
        else
            lp_bytes_printf(out, "\\u%04x", c);
    }
    return !out->failed;
}

// ---- values ----

static bool top_is_array(const struct lp_reply_json *json, int depth) {
    return json->is_array[depth / 8] >> depth % 8 & 1;
}

static void after_value(struct lp_reply_json *json) {
    json->token = TOKEN_NONE;
    json->want = WANT_NEXT;
    if (!json->depth) json->state = LP_JSON_DONE;
}

static void write_held(struct lp_reply_json *json, struct lp_bytes *out) {
    put(json, out, json->held.data, json->held.len);
    lp_bytes_clear(&json->held);
    lp_bytes_clear(&json->raw);
}

static bool open_bracket(struct lp_reply_json *json, char c, struct lp_bytes *out) {
    if (json->depth == LP_REPLY_JSON_DEPTH) {
        break_off(json);
        return false;
    }
    write_held(json, out);
    put(json, out, &c, 1);
    unsigned bit = 1u << json->depth % 8, byte = json->is_array[json->depth / 8] & ~bit;
    json->is_array[json->depth / 8] = (uint8_t)(c == '[' ? byte | bit : byte);
    json->depth++;
    json->want = c == '[' ? WANT_ELEMENT_OR_END : WANT_KEY_OR_END;
    return true;
}

static bool close_bracket(struct lp_reply_json *json, char c, struct lp_bytes *out) {
    bool array = c == ']';
    bool forgotten = json->depth && top_is_array(json, json->depth - 1) != array;
    if (!json->depth ||
        (forgotten && (json->depth < 2 || top_is_array(json, json->depth - 2) != array))) {
        break_off(json);
        return false;
    }
    if (json->want == WANT_KEY || json->want == WANT_ELEMENT) { // behind a comma
        json->n_repairs++;
        lp_bytes_clear(&json->held);
        lp_bytes_clear(&json->raw);
    }
    if (forgotten) {
        json->n_repairs++;
        json->depth--;
        put_text(json, out, array ? "}" : "]");
    }
    put(json, out, &c, 1);
    json->depth--;
    after_value(json);
    return true;
}

static void begin_string(struct lp_reply_json *json, char quote, bool is_key,
                         struct lp_bytes *out) {
    json->token = TOKEN_STRING;
    json->quote = quote;
    json->is_key = is_key;
    json->mended = false;
    if (quote == '\'') mend(json);
    if (is_key)
        out = &json->held;
    else
        write_held(json, out);
    put_text(json, out, "\"");
}

static void begin_word(struct lp_reply_json *json, bool is_key) {
    json->token = TOKEN_WORD;
    json->is_key = is_key;
    lp_bytes_clear(&json->word);
}

// ---- words ----

static size_t n_digits(struct lp_str text, size_t at) {
    size_t n = 0;
    while (at + n < text.len && isdigit((unsigned char)text.data[at + n])) n++;
    return n;
}

static bool is_number(struct lp_str text) {
    size_t at = text.len && text.data[0] == '-', n = n_digits(text, at);
    if (!n || (n > 1 && text.data[at] == '0')) return false;
    at += n;
    if (at < text.len && text.data[at] == '.') {
        if (!(n = n_digits(text, at + 1))) return false;
        at += 1 + n;
    }
    if (at < text.len && (text.data[at] == 'e' || text.data[at] == 'E')) {
        at++;
        if (at < text.len && (text.data[at] == '+' || text.data[at] == '-')) at++;
        if (!(n = n_digits(text, at))) return false;
        at += n;
    }
    return at == text.len;
}

static void end_key_word(struct lp_reply_json *json) {
    struct lp_str word = lp_bytes_view(&json->word);
    if (isdigit((unsigned char)word.data[0]) || strchr("+-.", word.data[0])) {
        break_off(json);
        return;
    }
    json->n_repairs++;
    put_text(json, &json->held, "\"");
    put(json, &json->held, word.data, word.len);
    put_text(json, &json->held, "\"");
    json->token = TOKEN_NONE;
    json->want = WANT_COLON;
}

static void end_word(struct lp_reply_json *json, struct lp_bytes *out) {
    static const char *const names[][2] = {{"true", "true"}, {"false", "false"}, {"null", "null"},
                                           {"True", "true"}, {"False", "false"}, {"None", "null"}};
    if (json->is_key) {
        end_key_word(json);
        return;
    }
    struct lp_str word = lp_bytes_view(&json->word);
    size_t name = 0, n_names = sizeof names / sizeof *names;
    while (name < n_names && !lp_str_is(word, names[name][0])) name++;
    if (name == n_names && !is_number(word)) {
        break_off(json);
        return;
    }
    write_held(json, out);
    if (name < n_names)
        put_text(json, out, names[name][1]);
    else
        put(json, out, word.data, word.len);
    if (name < n_names && name >= n_names / 2) json->n_repairs++;
    after_value(json);
}

// ---- strings ----

// Half a surrogate pair whose other half has not come.
static void drop_high(struct lp_reply_json *json, struct lp_bytes *out) {
    if (!json->high) return;
    mend(json);
    json->high = 0;
    put_text(json, out, "\\ufffd");
}

static size_t read_string(struct lp_reply_json *json, struct lp_str text, struct lp_bytes *out) {
    size_t n = 0;
    while (n < text.len && (unsigned char)text.data[n] >= 0x20 && text.data[n] != '\\' &&
           text.data[n] != '"' && text.data[n] != json->quote)
        n++;
    char c = text.data[0];
    if (!n && c == '\\') {
        json->token = TOKEN_ESCAPE;
        lp_bytes_clear(&json->word);
        return 1;
    }
    drop_high(json, out);
    if (n) {
        put(json, out, text.data, n);
        return n;
    }
    if (c == json->quote) {
        put_text(json, out, "\"");
        if (json->is_key) {
            json->token = TOKEN_NONE;
            json->want = WANT_COLON;
        } else {
            after_value(json);
        }
        return 1;
    }
    if ((unsigned char)c < 0x20) mend(json);
    if (!lp_reply_json_escape(out, (struct lp_str){&c, 1})) json->failed = true;
    return 1;
}

static void end_unit(struct lp_reply_json *json, struct lp_bytes *out) {
    struct lp_str word = lp_bytes_view(&json->word);
    unsigned long unit = strtoul(word.data + 1, NULL, 16);
    bool low = unit >= 0xDC00 && unit <= 0xDFFF, high = unit >= 0xD800 && unit < 0xDC00;
    json->token = TOKEN_STRING;
    if (low && json->high) {
        if (!lp_bytes_printf(out, "\\u%04x", json->high)) json->failed = true;
        json->high = 0;
    } else {
        drop_high(json, out);
        if (low) {
            mend(json);
            put_text(json, out, "\\ufffd");
            return;
        }
    }
    if (high) {
        json->high = (uint16_t)unit;
        return;
    }
    put_text(json, out, word.data[0] == 'x' ? "\\u00" : "\\u");
    put(json, out, word.data + 1, word.len - 1);
}

// One byte behind a backslash. False: it is no part of the escape.
static bool read_escape(struct lp_reply_json *json, char c, struct lp_bytes *out) {
    struct lp_bytes *word = &json->word;
    if (word->len ? isxdigit((unsigned char)c) != 0
                  : c == 'u' || (c == 'x' && json->quote == '\'')) {
        put(json, word, &c, 1);
        if (word->len == (word->data && word->data[0] == 'u' ? 5 : 3)) end_unit(json, out);
        return true;
    }
    drop_high(json, out);
    json->token = TOKEN_STRING;
    if (!word->len && c && strchr("\"\\/bfnrt", c)) {
        put(json, out, (char[]){'\\', c}, 2);
        return true;
    }
    if (json->quote != '\'' || word->len || c != '\'') mend(json);
    if (!word->len && c == '\'') {
        put(json, out, &c, 1);
        return true;
    }
    put_text(json, out, "\\\\");
    put(json, out, word->data, word->len);
    return false;
}

// ---- between tokens ----

static bool hold(struct lp_reply_json *json, char c, enum want next) {
    put(json, &json->held, &c, 1);
    put(json, &json->raw, &c, 1);
    json->want = (uint8_t)next;
    return true;
}

static bool begin_value(struct lp_reply_json *json, char c, struct lp_bytes *out) {
    if (c == '{' || c == '[') return open_bracket(json, c, out);
    if (c == '"' || c == '\'') {
        begin_string(json, c, false, out);
        return true;
    }
    if (c == ']' && json->want != WANT_VALUE) return close_bracket(json, c, out);
    if (is_word(c))
        begin_word(json, false);
    else
        break_off(json);
    return false;
}

static bool begin_key(struct lp_reply_json *json, char c, struct lp_bytes *out) {
    if (c == '"' || c == '\'') {
        begin_string(json, c, true, out);
        put(json, &json->raw, &c, 1);
        return true;
    }
    if (c == '}') return close_bracket(json, c, out);
    if (is_word(c))
        begin_word(json, true);
    else
        break_off(json);
    return false;
}

// One byte outside of strings and words. False: it is not taken.
static bool read_between(struct lp_reply_json *json, char c, struct lp_bytes *out) {
    if (is_space(c)) {
        if (json->held.len) return hold(json, c, json->want);
        put(json, out, &c, 1);
        return true;
    }
    switch ((enum want)json->want) {
    case WANT_VALUE:
    case WANT_ELEMENT:
    case WANT_ELEMENT_OR_END:
        return begin_value(json, c, out);
    case WANT_KEY:
    case WANT_KEY_OR_END:
        return begin_key(json, c, out);
    case WANT_COLON:
        if (c == ':') return hold(json, c, WANT_VALUE);
        break;
    case WANT_NEXT:
        if (c == ',')
            return hold(json, c, top_is_array(json, json->depth - 1) ? WANT_ELEMENT : WANT_KEY);
        if (c == ']' || c == '}') return close_bracket(json, c, out);
        break;
    }
    break_off(json);
    return false;
}

static size_t read_word(struct lp_reply_json *json, struct lp_str text, struct lp_bytes *out) {
    size_t n = 0;
    while (n < text.len && is_word(text.data[n])) n++;
    put(json, &json->word, text.data, n);
    put(json, &json->raw, text.data, n);
    if (n < text.len) end_word(json, out);
    return n;
}

size_t lp_reply_json_feed(struct lp_reply_json *json, struct lp_str text, struct lp_bytes *out) {
    size_t at = 0;
    while (at < text.len && json->state == LP_JSON_READING && !json->failed) {
        struct lp_str rest = {text.data + at, text.len - at};
        bool key = json->is_key && lp_reply_json_in_string(json);
        size_t n;
        if (json->token == TOKEN_STRING)
            n = read_string(json, rest, key ? &json->held : out);
        else if (json->token == TOKEN_ESCAPE)
            n = read_escape(json, rest.data[0], key ? &json->held : out);
        else if (json->token == TOKEN_WORD)
            n = read_word(json, rest, out);
        else
            n = read_between(json, rest.data[0], out);
        if (key) put(json, &json->raw, rest.data, n);
        at += n;
    }
    return at;
}

void lp_reply_json_close(struct lp_reply_json *json, struct lp_bytes *out) {
    if (json->state == LP_JSON_READING && !json->is_key && json->token == TOKEN_WORD)
        end_word(json, out);
    if (!json->is_key && (json->token == TOKEN_STRING || json->token == TOKEN_ESCAPE)) {
        drop_high(json, out);
        put_text(json, out, "\"");
    }
    while (json->depth) put_text(json, out, top_is_array(json, --json->depth) ? "]" : "}");
    json->token = TOKEN_NONE;
    json->state = LP_JSON_DONE;
}

bool lp_reply_json_in_string(const struct lp_reply_json *json) {
    return json->token == TOKEN_STRING || json->token == TOKEN_ESCAPE;
}

void lp_reply_json_release(struct lp_reply_json *json) {
    lp_bytes_release(&json->word);
    lp_bytes_release(&json->held);
    lp_bytes_release(&json->raw);
    *json = (struct lp_reply_json){0};
}

// ---- whole texts ----

bool lp_reply_json_whole(struct lp_str text, struct lp_bytes *out, int *n_repairs) {
    struct lp_reply_json json = {0};
    size_t at = lp_reply_json_feed(&json, text, out);
    if (json.state == LP_JSON_READING && json.token == TOKEN_WORD && !json.depth)
        end_word(&json, out);
    while (at < text.len && is_space(text.data[at])) at++;
    *n_repairs = json.state == LP_JSON_DONE && at == text.len ? json.n_repairs : -1;
    bool ok = !json.failed && !out->failed;
    lp_reply_json_release(&json);
    return ok;
}

bool lp_reply_json_length(struct lp_str text, size_t *length) {
    struct lp_reply_json json = {0};
    struct lp_bytes out = {0};
    size_t n = lp_reply_json_feed(&json, text, &out);
    *length = json.state == LP_JSON_DONE ? n : json.state == LP_JSON_BROKEN ? 0 : SIZE_MAX;
    bool ok = !json.failed;
    lp_reply_json_release(&json);
    lp_bytes_release(&out);
    return ok;
}

bool lp_reply_json_unquote(struct lp_str text, struct lp_bytes *out) {
    struct lp_bytes valid = {0};
    int n_repairs;
    json_t *string = NULL;
    if (lp_reply_json_whole(text, &valid, &n_repairs))
        string = json_loadb(valid.data, valid.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    bool ok = string && lp_bytes_append(out, json_string_value(string), json_string_length(string));
    json_decref(string);
    lp_bytes_release(&valid);
    return ok;
}
