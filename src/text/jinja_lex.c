// Template source to tokens, with the white space rules of trim_blocks and lstrip_blocks:
//   - one line end right after a block or comment tag is dropped, unless the tag ends in "+%}";
//   - blanks between the line's start and a block or comment tag are dropped, unless "{%+";
//   - "{%-" drops all white space before a tag, "-%}" all after it;
//   - line ends become \n, and the last one of the source is dropped.
#include <stdlib.h>
#include <string.h>

#include "text/jinja_ast.h"
#include "text/jinja_str.h"
#include "text/jinja_try.h"

struct lexer {
    struct lp_arena *arena;
    struct lp_str src;
    size_t at;
    uint32_t line;
    bool line_starts; // the last thing consumed ended in a line end
    struct lp_jinja_tokens *out;
    struct lp_err *err;
    lp_status status;
};

static bool fail(struct lexer *lex, lp_status status, const char *what) {
    lex->status = status;
    lp_err_set(lex->err, status, "chat template, line %u: %s", lex->line, what);
    return false;
}

static bool push(struct lexer *lex, struct lp_jinja_token token) {
    struct lp_jinja_tokens *out = lex->out;
    if (out->n == out->capacity) {
        size_t capacity = out->capacity ? out->capacity * 2 : 256;
        struct lp_jinja_token *items = lp_realloc(out->items, capacity, sizeof *items);
        if (!items) return fail(lex, LP_STATUS_MEMORY, "out of memory for the template's tokens");
        out->items = items;
        out->capacity = capacity;
    }
    if (!token.line) token.line = lex->line;
    out->items[out->n++] = token;
    return true;
}

static bool at_text(const struct lexer *lex, size_t at, const char *text) {
    size_t n = strlen(text);
    return at <= lex->src.len && n <= lex->src.len - at && !memcmp(lex->src.data + at, text, n);
}

static void advance(struct lexer *lex, size_t to) {
    for (size_t i = lex->at; i < to; i++) lex->line += lex->src.data[i] == '\n';
    if (to > lex->at) lex->line_starts = lex->src.data[to - 1] == '\n';
    lex->at = to;
}

static size_t skip_space(const struct lexer *lex, size_t at) {
    while (at < lex->src.len) {
        uint32_t cp;
        size_t n = lp_jinja_utf8_next(lex->src, at, &cp);
        if (!lp_jinja_is_space(cp)) break;
        at += n;
    }
    return at;
}

// ---- plain text between tags ------------------------------------------------------------------

// Pushes src[begin, end) before a tag of this sign ('-', '+' or 0).
static bool push_data(struct lexer *lex, size_t begin, size_t end, char sign, bool is_block) {
    struct lp_str text = {lex->src.data + begin, end - begin};
    if (sign == '-') {
        text = lp_jinja_str_strip(text, (struct lp_str){0}, LP_JINJA_RIGHT);
    } else if (sign != '+' && is_block) {
        size_t start = text.len;
        while (start > 0 && text.data[start - 1] != '\n') start--;
        struct lp_str tail = {text.data + start, text.len - start};
        if ((start > 0 || lex->line_starts) && tail.len &&
            !lp_jinja_str_strip(tail, (struct lp_str){0}, LP_JINJA_LEFT).len)
            text.len = start;
    }
    if (!text.len) return true;
    return push(lex, (struct lp_jinja_token){.kind = LP_JINJA_T_DATA, .text = text});
}

// The end of a tag at `at`: "%}" with its sign. 0 when it is not there, else where the tag ends,
// trimmed space included.
static size_t tag_end(const struct lexer *lex, size_t at, const char *mark, bool trims) {
    char sign = at < lex->src.len ? lex->src.data[at] : 0;
    if (sign == '-' && at_text(lex, at + 1, mark)) return skip_space(lex, at + 3);
    if (trims && sign == '+' && at_text(lex, at + 1, mark)) return at + 3;
    if (!at_text(lex, at, mark)) return 0;
    at += 2;
    return trims && at < lex->src.len && lex->src.data[at] == '\n' ? at + 1 : at;
}

static bool is_sign(const struct lexer *lex, size_t at) {
    return at < lex->src.len && (lex->src.data[at] == '-' || lex->src.data[at] == '+');
}

static bool lex_comment(struct lexer *lex) {
    if (lex->at >= lex->src.len) return true; // Jinja lets a bare "{#" at the very end pass
    for (size_t i = lex->at; i < lex->src.len; i++) {
        size_t end = tag_end(lex, i, "#}", true);
        if (end) {
            advance(lex, end);
            return true;
        }
    }
    return fail(lex, LP_STATUS_FORMAT, "a comment has no end '#}'");
}

// After "{%": the body of a raw block begins here, or 0.
static size_t raw_begin(const struct lexer *lex, size_t at) {
    at = skip_space(lex, at);
    if (!at_text(lex, at, "raw")) return 0;
    at = skip_space(lex, at + 3);
    if (at_text(lex, at, "-%}")) return skip_space(lex, at + 3);
    return at_text(lex, at, "%}") ? at + 2 : 0;
}

static bool lex_raw(struct lexer *lex) {
    size_t begin = lex->at;
    if (begin >= lex->src.len) return true; // as for comments
    for (size_t i = begin; i < lex->src.len; i++) {
        if (!at_text(lex, i, "{%")) continue;
        char sign = is_sign(lex, i + 2) ? lex->src.data[i + 2] : 0;
        size_t at = skip_space(lex, i + 2 + (sign != 0));
        if (!at_text(lex, at, "endraw")) continue;
        size_t end = tag_end(lex, skip_space(lex, at + 6), "%}", true);
        if (!end) continue;
        TRY(push_data(lex, begin, i, sign, true));
        advance(lex, end);
        return true;
    }
    return fail(lex, LP_STATUS_FORMAT, "a raw block has no '{% endraw %}'");
}

// ---- inside tags ------------------------------------------------------------------------------

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_name_char(unsigned char c) {
    return is_digit((char)c) || (unsigned)(c | 0x20) - 'a' < 26u || c == '_' || c >= 0x80;
}

// A numeric escape of `digits` hexadecimal digits at s[*i].
static bool unescape_hex(struct lexer *lex, struct lp_str s, size_t *i, int digits, char **out) {
    uint32_t cp = 0;
    for (int k = 0; k < digits; k++, (*i)++) {
        int digit = *i < s.len ? hex_digit(s.data[*i]) : -1;
        if (digit < 0) return fail(lex, LP_STATUS_FORMAT, "a string has a cut \\x or \\u escape");
        cp = cp << 4 | (uint32_t)digit;
    }
    if (cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000))
        return fail(lex, LP_STATUS_FORMAT, "a string has a \\u escape that is no character");
    *out += lp_jinja_utf8_put(cp, *out);
    return true;
}

static bool unescape_one(struct lexer *lex, struct lp_str s, size_t *i, char **out) {
    static const char names[] = "\\'\"abfnrtv", means[] = "\\'\"\a\b\f\n\r\t\v";
    char c = s.data[(*i)++];
    const char *known = c ? strchr(names, c) : NULL;
    if (known) {
        *(*out)++ = means[known - names];
        return true;
    }
    if (c == '\n') return true;
    if (c == 'x') return unescape_hex(lex, s, i, 2, out);
    if (c == 'u') return unescape_hex(lex, s, i, 4, out);
    if (c == 'U') return unescape_hex(lex, s, i, 8, out);
    if (c == 'N') return fail(lex, LP_STATUS_UNSUPPORTED, "\\N{...} in strings is not supported");
    if (c >= '0' && c <= '7') {
        uint32_t cp = (uint32_t)(c - '0');
        for (int k = 0; k < 2 && *i < s.len && s.data[*i] >= '0' && s.data[*i] <= '7'; k++)
            cp = cp * 8 + (uint32_t)(s.data[(*i)++] - '0');
        *out += lp_jinja_utf8_put(cp, *out);
        return true;
    }
    *(*out)++ = '\\';
    *(*out)++ = c;
    return true;
}

static bool lex_string(struct lexer *lex) {
    char quote = lex->src.data[lex->at];
    size_t begin = lex->at + 1, end = begin;
    while (end < lex->src.len && lex->src.data[end] != quote)
        end += lex->src.data[end] == '\\' ? 2 : 1;
    if (end >= lex->src.len) return fail(lex, LP_STATUS_FORMAT, "a string has no end");
    struct lp_str s = {lex->src.data + begin, end - begin};
    struct lp_jinja_token token = {.kind = LP_JINJA_T_STRING, .text = s};
    if (memchr(s.data, '\\', s.len)) {
        char *text = lp_arena_alloc(lex->arena, s.len + 1, 1); // an escape is never shorter
        if (!text) return fail(lex, LP_STATUS_MEMORY, "out of memory for a string");
        char *out = text;
        for (size_t i = 0; i < s.len;) {
            if (s.data[i] != '\\')
                *out++ = s.data[i++];
            else if (i++, !unescape_one(lex, s, &i, &out))
                return false;
        }
        token.text = (struct lp_str){text, (size_t)(out - text)};
    }
    TRY(push(lex, token));
    advance(lex, end + 1);
    return true;
}

// Digits with single underscores between them, from at; returns where they end.
static size_t digits_end(const struct lexer *lex, size_t at) {
    while (at < lex->src.len &&
           (is_digit(lex->src.data[at]) ||
            (lex->src.data[at] == '_' && at + 1 < lex->src.len && is_digit(lex->src.data[at + 1]))))
        at++;
    return at;
}

static bool lex_based(struct lexer *lex, unsigned base, struct lp_jinja_token *token) {
    size_t at = lex->at + 2;
    uint64_t value = 0;
    bool any = false;
    for (; at < lex->src.len; at++) {
        char c = lex->src.data[at];
        if (c == '_') continue;
        int digit = hex_digit(c);
        if (digit < 0 || (unsigned)digit >= base) break;
        any = true;
        if (value >> 58) return fail(lex, LP_STATUS_LIMIT, "an integer has more than 63 bits");
        value = value * base + (unsigned)digit;
    }
    if (!any) return fail(lex, LP_STATUS_FORMAT, "a number has a base but no digits");
    token->i = (int64_t)value;
    advance(lex, at);
    return true;
}

static bool parse_number(struct lexer *lex, size_t end, bool is_float,
                         struct lp_jinja_token *token) {
    char text[400];
    size_t n = 0;
    for (size_t i = lex->at; i < end; i++) {
        if (lex->src.data[i] == '_') continue;
        if (n + 1 >= sizeof text) return fail(lex, LP_STATUS_LIMIT, "a number is too long");
        text[n++] = lex->src.data[i];
    }
    text[n] = 0;
    token->kind = is_float ? LP_JINJA_T_FLOAT : LP_JINJA_T_INT;
    if (is_float) {
        token->f = lp_jinja_strtod(text, NULL);
    } else {
        for (size_t i = 0; i < n; i++)
            if (__builtin_mul_overflow(token->i, 10, &token->i) ||
                __builtin_add_overflow(token->i, text[i] - '0', &token->i))
                return fail(lex, LP_STATUS_LIMIT, "an integer has more than 63 bits");
    }
    advance(lex, end);
    return true;
}

static bool lex_number(struct lexer *lex) {
    struct lp_jinja_token token = {.kind = LP_JINJA_T_INT};
    const char *p = lex->src.data;
    size_t len = lex->src.len, at = lex->at;
    char letter = at + 1 < len ? (char)(p[at + 1] | 0x20) : 0;
    unsigned base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (p[at] == '0' && base) return lex_based(lex, base, &token) && push(lex, token);

    bool after_dot = at > 0 && p[at - 1] == '.', is_float = false;
    size_t end = digits_end(lex, at);
    if (!after_dot && end + 1 < len && p[end] == '.' && is_digit(p[end + 1])) {
        is_float = true;
        end = digits_end(lex, end + 1);
    }
    if (!after_dot && end < len && (p[end] | 0x20) == 'e') {
        size_t exponent = end + 1;
        if (exponent < len && (p[exponent] == '+' || p[exponent] == '-')) exponent++;
        if (exponent < len && is_digit(p[exponent])) {
            is_float = true;
            end = digits_end(lex, exponent);
        }
    }
    if (!is_float && p[at] == '0' && end > at + 1)
        for (size_t i = at; i < end; i++)
            if (p[i] != '0' && p[i] != '_')
                return fail(lex, LP_STATUS_FORMAT, "an integer may not begin with 0");
    return parse_number(lex, end, is_float, &token) && push(lex, token);
}

static bool lex_operator(struct lexer *lex, unsigned *open) {
    static const struct {
        const char *text;
        int kind;
    } pairs[] = {{"==", LP_JINJA_T_EQ}, {"!=", LP_JINJA_T_NE},       {"<=", LP_JINJA_T_LE},
                 {">=", LP_JINJA_T_GE}, {"//", LP_JINJA_T_FLOORDIV}, {"**", LP_JINJA_T_POW}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (!at_text(lex, lex->at, pairs[i].text)) continue;
        TRY(push(lex, (struct lp_jinja_token){.kind = pairs[i].kind}));
        advance(lex, lex->at + 2);
        return true;
    }
    char c = lex->src.data[lex->at];
    if (!c || !strchr("+-/*%~[](){}><=.:|,;", c)) {
        char text[64] = "the character 'X' has no meaning here";
        *strchr(text, 'X') = c;
        return fail(lex, LP_STATUS_FORMAT, text);
    }
    if (strchr("([{", c)) (*open)++;
    if (strchr(")]}", c)) {
        if (!*open) return fail(lex, LP_STATUS_FORMAT, "a bracket is closed but was not opened");
        (*open)--;
    }
    TRY(push(lex, (struct lp_jinja_token){.kind = c}));
    advance(lex, lex->at + 1);
    return true;
}

// The inside of {{ ... }} or {% ... %} up to and with its end.
static bool lex_tag(struct lexer *lex, bool is_block) {
    unsigned open = 0;
    for (;;) {
        advance(lex, skip_space(lex, lex->at));
        if (lex->at >= lex->src.len)
            return fail(lex, LP_STATUS_FORMAT,
                        is_block ? "a block tag has no end '%}'" : "an output has no end '}}'");
        size_t end = open ? 0 : tag_end(lex, lex->at, is_block ? "%}" : "}}", is_block);
        if (end) {
            TRY(push(lex, (struct lp_jinja_token){.kind = is_block ? LP_JINJA_T_BLOCK_END
                                                                   : LP_JINJA_T_VAR_END}));
            advance(lex, end);
            return true;
        }
        unsigned char c = (unsigned char)lex->src.data[lex->at];
        if (c == '\'' || c == '"') {
            TRY(lex_string(lex));
        } else if (is_digit((char)c)) {
            TRY(lex_number(lex));
        } else if (is_name_char(c)) {
            size_t stop = lex->at;
            while (stop < lex->src.len && is_name_char((unsigned char)lex->src.data[stop])) stop++;
            struct lp_str name = {lex->src.data + lex->at, stop - lex->at};
            TRY(push(lex, (struct lp_jinja_token){.kind = LP_JINJA_T_NAME, .text = name}));
            advance(lex, stop);
        } else {
            TRY(lex_operator(lex, &open));
        }
    }
}

// Text up to the next tag, then the tag.
static bool lex_part(struct lexer *lex) {
    size_t begin = lex->at, tag = begin;
    const char *p = lex->src.data;
    while (tag + 1 < lex->src.len &&
           !(p[tag] == '{' && (p[tag + 1] == '{' || p[tag + 1] == '%' || p[tag + 1] == '#')))
        tag++;
    if (tag + 1 >= lex->src.len) {
        struct lp_str rest = {p + begin, lex->src.len - begin};
        TRY(push(lex, (struct lp_jinja_token){.kind = LP_JINJA_T_DATA, .text = rest}));
        advance(lex, lex->src.len);
        return true;
    }
    char mark = p[tag + 1], sign = is_sign(lex, tag + 2) ? p[tag + 2] : 0;
    TRY(push_data(lex, begin, tag, sign, mark != '{'));
    advance(lex, tag + 2 + (sign != 0));
    if (mark == '#') return lex_comment(lex);
    size_t raw = mark == '%' ? raw_begin(lex, lex->at) : 0;
    if (raw) {
        advance(lex, raw);
        return lex_raw(lex);
    }
    bool is_block = mark == '%';
    TRY(push(lex, (struct lp_jinja_token){.kind = is_block ? LP_JINJA_T_BLOCK_BEGIN
                                                           : LP_JINJA_T_VAR_BEGIN}));
    return lex_tag(lex, is_block);
}

// A copy with \n line ends and without the last one.
static bool normalise(struct lexer *lex, struct lp_str source) {
    char *copy = lp_arena_alloc(lex->arena, source.len + 1, 1);
    if (!copy) return fail(lex, LP_STATUS_MEMORY, "out of memory for the template's text");
    size_t n = 0;
    for (size_t i = 0; i < source.len; i++) {
        if (source.data[i] != '\r')
            copy[n++] = source.data[i];
        else if (i + 1 >= source.len || source.data[i + 1] != '\n')
            copy[n++] = '\n';
    }
    if (n && copy[n - 1] == '\n') n--;
    lex->src = (struct lp_str){copy, n};
    return true;
}

lp_status lp_jinja_lex(struct lp_arena *arena, struct lp_str source, struct lp_jinja_tokens *out,
                       struct lp_err *err) {
    struct lexer lex = {.arena = arena, .line = 1, .line_starts = true, .out = out, .err = err};
    bool ok = normalise(&lex, source);
    while (ok && lex.at < lex.src.len) ok = lex_part(&lex);
    ok = ok && push(&lex, (struct lp_jinja_token){.kind = LP_JINJA_T_EOF});
    return ok ? LP_OK : lex.status;
}
