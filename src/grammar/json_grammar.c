// JSON text: any value, and values that are known.
#include "grammar/json_grammar.h"

#include <stdio.h>
#include <stdlib.h>

#include "grammar/node_list.h"

#define MAX_INDENT 16

static const char short_escapes[] = "\"\\bfnrt";
static const char escaped_bytes[] = "\"\\\b\f\n\r\t"; // in the same order

// ---- characters ----

static lp_gb_node digit(struct lp_gb *b, char first, char last) {
    return lp_gb_class(b, &(struct lp_gb_range){(uint32_t)first, (uint32_t)last}, 1, false);
}

// One of the characters of an ASCII text.
static lp_gb_node one_of(struct lp_gb *b, const char *characters) {
    struct lp_gb_range ranges[32];
    size_t n = 0;
    for (const char *c = characters; *c && n < 32; c++)
        ranges[n++] = (struct lp_gb_range){(unsigned char)*c, (unsigned char)*c};
    return lp_gb_class(b, ranges, n, false);
}

static lp_gb_node hex(struct lp_gb *b) {
    return lp_gb_class(b, (const struct lp_gb_range[]){{'0', '9'}, {'A', 'F'}, {'a', 'f'}}, 3,
                       false);
}

// uXXXX of a character of the basic plane, or of a pair of surrogates; never half a pair.
static lp_gb_node unicode_escape(struct lp_gb *b) {
    lp_gb_node plain =
        LP_GB_SEQ(b,
                  lp_gb_class(b,
                              (const struct lp_gb_range[]){
                                  {'0', '9'}, {'A', 'C'}, {'E', 'F'}, {'a', 'c'}, {'e', 'f'}},
                              5, false),
                  lp_gb_repeat(b, hex(b), 3, 3));
    lp_gb_node low_d =
        LP_GB_SEQ(b, one_of(b, "dD"), digit(b, '0', '7'), lp_gb_repeat(b, hex(b), 2, 2));
    lp_gb_node pair =
        LP_GB_SEQ(b, one_of(b, "dD"), one_of(b, "89abAB"), lp_gb_repeat(b, hex(b), 2, 2),
                  lp_gb_word(b, "\\u"), one_of(b, "dD"), one_of(b, "cdefCDEF"),
                  lp_gb_repeat(b, hex(b), 2, 2));
    return LP_GB_SEQ(b, lp_gb_word(b, "u"), LP_GB_CHOICE(b, plain, low_d, pair));
}

static lp_gb_node any_char(struct lp_gb *b) {
    static const struct lp_gb_range special[] = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
    return LP_GB_CHOICE(b, lp_gb_class(b, special, 3, true),
                        LP_GB_SEQ(b, lp_gb_word(b, "\\"),
                                  LP_GB_CHOICE(b, one_of(b, "\"\\/bfnrt"), unicode_escape(b))));
}

static bool holds(const struct lp_gb_range *ranges, size_t n, uint32_t c) {
    for (size_t i = 0; i < n && ranges[i].first <= c; i++)
        if (c <= ranges[i].last) return true;
    return false;
}

// \u00XX for the control characters of one row of 16 that have no short escape; 0 if there is none.
static lp_gb_node control_escapes(struct lp_gb *b, const struct lp_gb_range *ranges, size_t n,
                                  uint32_t row) {
    char digits[33];
    size_t n_digits = 0;
    for (uint32_t low = 0; low < 16; low++) {
        uint32_t c = row * 16 + low;
        if (!holds(ranges, n, c) || (c && strchr(escaped_bytes, (int)c))) continue;
        digits[n_digits++] = "0123456789abcdef"[low];
        if (low > 9) digits[n_digits++] = "0123456789ABCDEF"[low];
    }
    digits[n_digits] = 0;
    if (!n_digits) return 0;
    return LP_GB_SEQ(b, lp_gb_word(b, row ? "u001" : "u000"), one_of(b, digits));
}

// What follows a backslash for those of the ranges that JSON must escape; 0 if there is none.
static lp_gb_node needed_escapes(struct lp_gb *b, const struct lp_gb_range *ranges, size_t n) {
    char letters[sizeof short_escapes];
    size_t n_letters = 0;
    for (size_t i = 0; escaped_bytes[i]; i++)
        if (holds(ranges, n, (unsigned char)escaped_bytes[i]))
            letters[n_letters++] = short_escapes[i];
    letters[n_letters] = 0;
    struct lp_gb_list all = {0};
    if (n_letters) lp_gb_list_add(b, &all, one_of(b, letters));
    for (uint32_t row = 0; row < 2; row++) {
        lp_gb_node controls = control_escapes(b, ranges, n, row);
        if (controls) lp_gb_list_add(b, &all, controls);
    }
    if (!all.n) return 0;
    return LP_GB_SEQ(b, lp_gb_word(b, "\\"), lp_gb_list_choice(b, &all));
}

lp_gb_node lp_jg_class(struct lp_gb *b, const struct lp_gb_range *ranges, size_t n) {
    struct lp_gb_range *raw = lp_alloc(n * 3 + 1, sizeof *raw);
    if (!raw) return lp_gb_fail(b, LP_STATUS_MEMORY, "out of memory: the grammar");
    static const struct lp_gb_range kept[] = {
        {0x20, '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, 0x10FFFF}};
    size_t n_raw = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < 3; k++) {
            uint32_t first = ranges[i].first > kept[k].first ? ranges[i].first : kept[k].first;
            uint32_t last = ranges[i].last < kept[k].last ? ranges[i].last : kept[k].last;
            if (first <= last) raw[n_raw++] = (struct lp_gb_range){first, last};
        }
    lp_gb_node plain = lp_gb_class(b, raw, n_raw, false);
    lp_free(raw);
    lp_gb_node escapes = n && ranges[0].first <= '\\' ? needed_escapes(b, ranges, n) : 0;
    return escapes ? LP_GB_CHOICE(b, plain, escapes) : plain;
}

void lp_jg_escape(struct lp_bytes *out, struct lp_str text) {
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.data[i];
        const char *found = c ? strchr(escaped_bytes, c) : NULL;
        if (found)
            lp_bytes_append(out, (char[]){'\\', short_escapes[found - escaped_bytes]}, 2);
        else if (c < 0x20)
            lp_bytes_printf(out, "\\u%04x", c);
        else
            lp_bytes_append(out, &c, 1);
    }
}

struct lp_str lp_jg_str(const json_t *string) {
    return (struct lp_str){json_string_value(string), json_string_length(string)};
}

// ---- pieces ----

static lp_gb_node space(struct lp_gb *b) {
    lp_gb_node indent = lp_gb_repeat(b, one_of(b, " \t"), 0, MAX_INDENT);
    return lp_gb_optional(
        b, LP_GB_CHOICE(b, lp_gb_word(b, " "), LP_GB_SEQ(b, lp_gb_word(b, "\n"), indent)));
}

static lp_gb_node integer(struct lp_gb *b) {
    lp_gb_node rest = lp_gb_repeat(b, digit(b, '0', '9'), 0, LP_JG_MAX_DIGITS - 1);
    return LP_GB_SEQ(b, lp_gb_optional(b, lp_gb_word(b, "-")),
                     LP_GB_CHOICE(b, lp_gb_word(b, "0"), LP_GB_SEQ(b, digit(b, '1', '9'), rest)));
}

static lp_gb_node number(struct lp_jg *jg) {
    struct lp_gb *b = jg->b;
    lp_gb_node fraction =
        LP_GB_SEQ(b, lp_gb_word(b, "."), lp_gb_repeat(b, digit(b, '0', '9'), 1, 17));
    lp_gb_node exponent = LP_GB_SEQ(b, one_of(b, "eE"), lp_gb_optional(b, one_of(b, "+-")),
                                    lp_gb_repeat(b, digit(b, '0', '9'), 1, 2));
    return LP_GB_SEQ(b, lp_jg_use(jg, LP_JG_INTEGER), lp_gb_optional(b, fraction),
                     lp_gb_optional(b, exponent));
}

static lp_gb_node string(struct lp_jg *jg) {
    struct lp_gb *b = jg->b;
    return LP_GB_SEQ(b, lp_gb_word(b, "\""), lp_gb_repeat(b, lp_jg_use(jg, LP_JG_CHAR), 0, -1),
                     lp_gb_word(b, "\""));
}

static lp_gb_node colon(struct lp_jg *jg) {
    return LP_GB_SEQ(jg->b, lp_gb_word(jg->b, ":"), lp_jg_use(jg, LP_JG_SPACE));
}

static lp_gb_node any_member(struct lp_jg *jg) {
    return LP_GB_SEQ(jg->b, lp_jg_use(jg, LP_JG_STRING), colon(jg), lp_jg_use(jg, LP_JG_VALUE));
}

static lp_gb_node any_object(struct lp_jg *jg) {
    lp_gb_node more = lp_gb_repeat(jg->b, lp_jg_after_comma(jg, any_member(jg)), 0, -1);
    return lp_jg_brackets(jg, '{', LP_GB_SEQ(jg->b, any_member(jg), more), true);
}

static lp_gb_node any_array(struct lp_jg *jg) {
    lp_gb_node more = lp_gb_repeat(jg->b, lp_jg_after_comma(jg, lp_jg_use(jg, LP_JG_VALUE)), 0, -1);
    return lp_jg_brackets(jg, '[', LP_GB_SEQ(jg->b, lp_jg_use(jg, LP_JG_VALUE), more), true);
}

static lp_gb_node any_value(struct lp_jg *jg) {
    return LP_GB_CHOICE(jg->b, lp_jg_use(jg, LP_JG_OBJECT), lp_jg_use(jg, LP_JG_ARRAY),
                        lp_jg_use(jg, LP_JG_STRING), lp_jg_use(jg, LP_JG_NUMBER),
                        lp_jg_use(jg, LP_JG_BOOLEAN), lp_gb_word(jg->b, "null"));
}

static lp_gb_node make(struct lp_jg *jg, enum lp_jg_piece piece) {
    switch (piece) {
    case LP_JG_SPACE:
        return space(jg->b);
    case LP_JG_CHAR:
        return any_char(jg->b);
    case LP_JG_STRING:
        return string(jg);
    case LP_JG_INTEGER:
        return integer(jg->b);
    case LP_JG_NUMBER:
        return number(jg);
    case LP_JG_BOOLEAN:
        return LP_GB_CHOICE(jg->b, lp_gb_word(jg->b, "true"), lp_gb_word(jg->b, "false"));
    case LP_JG_ARRAY:
        return any_array(jg);
    case LP_JG_OBJECT:
        return any_object(jg);
    case LP_JG_VALUE:
        return any_value(jg);
    case LP_JG_N_PIECES:
        break;
    }
    return 0;
}

void lp_jg_init(struct lp_jg *jg, struct lp_gb *b) {
    *jg = (struct lp_jg){.b = b};
}

lp_gb_node lp_jg_use(struct lp_jg *jg, enum lp_jg_piece piece) {
    static const char *const names[LP_JG_N_PIECES] = {
        "space", "character", "string", "integer", "number", "boolean", "array", "object", "value"};
    if (!jg->is_declared[piece]) {
        jg->is_declared[piece] = true;
        jg->rules[piece] = lp_gb_declare(jg->b, names[piece]);
        lp_gb_define(jg->b, jg->rules[piece], make(jg, piece));
    }
    return lp_gb_use(jg->b, jg->rules[piece]);
}

// ---- structure ----

lp_gb_node lp_jg_brackets(struct lp_jg *jg, char open, lp_gb_node content, bool may_be_empty) {
    struct lp_gb *b = jg->b;
    lp_gb_node first = lp_gb_word(b, open == '{' ? "{" : "[");
    lp_gb_node last = lp_gb_word(b, open == '{' ? "}" : "]");
    if (!content) return LP_GB_SEQ(b, first, lp_jg_use(jg, LP_JG_SPACE), last);
    lp_gb_node inside = LP_GB_SEQ(b, content, lp_jg_use(jg, LP_JG_SPACE));
    if (may_be_empty) inside = lp_gb_optional(b, inside);
    return LP_GB_SEQ(b, first, lp_jg_use(jg, LP_JG_SPACE), inside, last);
}

lp_gb_node lp_jg_after_comma(struct lp_jg *jg, lp_gb_node node) {
    return LP_GB_SEQ(jg->b, lp_gb_word(jg->b, ","), lp_jg_use(jg, LP_JG_SPACE), node);
}

static lp_gb_node quoted(struct lp_gb *b, struct lp_str text, const char *behind) {
    struct lp_bytes out = {0};
    lp_bytes_puts(&out, "\"");
    lp_jg_escape(&out, text);
    lp_bytes_puts(&out, "\"");
    lp_bytes_puts(&out, behind);
    lp_gb_node node = out.failed ? lp_gb_fail(b, LP_STATUS_MEMORY, "out of memory: the grammar")
                                 : lp_gb_text(b, lp_bytes_view(&out));
    lp_bytes_release(&out);
    return node;
}

lp_gb_node lp_jg_member(struct lp_jg *jg, struct lp_str name, lp_gb_node value) {
    return LP_GB_SEQ(jg->b, quoted(jg->b, name, ":"), lp_jg_use(jg, LP_JG_SPACE), value);
}

// The shortest decimal that reads as this double.
static lp_gb_node real(struct lp_gb *b, double value) {
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    return lp_gb_word(b, text);
}

static lp_gb_node literal_list(struct lp_jg *jg, const json_t *value) {
    struct lp_gb_list list = {0};
    size_t i;
    json_t *item;
    const char *key;
    if (json_is_array(value)) {
        json_array_foreach(value, i, item) {
            lp_gb_node node = lp_jg_literal(jg, item);
            lp_gb_list_add(jg->b, &list, i ? lp_jg_after_comma(jg, node) : node);
        }
        return lp_gb_list_sequence(jg->b, &list);
    }
    json_object_foreach((json_t *)value, key, item) {
        lp_gb_node node = lp_jg_member(jg, lp_str_from(key), lp_jg_literal(jg, item));
        lp_gb_list_add(jg->b, &list, list.n ? lp_jg_after_comma(jg, node) : node);
    }
    return lp_gb_list_sequence(jg->b, &list);
}

lp_gb_node lp_jg_literal(struct lp_jg *jg, const json_t *value) {
    char text[32];
    if (lp_gb_failed(jg->b)) return 0;
    switch (json_typeof(value)) {
    case JSON_NULL:
        return lp_gb_word(jg->b, "null");
    case JSON_TRUE:
        return lp_gb_word(jg->b, "true");
    case JSON_FALSE:
        return lp_gb_word(jg->b, "false");
    case JSON_STRING:
        return quoted(jg->b, lp_jg_str(value), "");
    case JSON_REAL:
        return real(jg->b, json_real_value(value));
    case JSON_INTEGER:
        snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        return lp_gb_word(jg->b, text);
    case JSON_ARRAY:
        return lp_jg_brackets(jg, '[', json_array_size(value) ? literal_list(jg, value) : 0, false);
    case JSON_OBJECT:
        return lp_jg_brackets(jg, '{', json_object_size(value) ? literal_list(jg, value) : 0,
                              false);
    }
    return 0;
}

lp_gb_node lp_grammar_from_json(struct lp_gb *b) {
    struct lp_jg jg;
    lp_jg_init(&jg, b);
    return lp_jg_use(&jg, LP_JG_OBJECT);
}
