// Values as text: Python's str() and repr(), float digits, HTML escaping, and the JSON that
// transformers' tojson writes (json.dumps without ASCII folding unless asked for).
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja_eval.h"
#include "text/jinja_str.h"
#include "text/jinja_value.h"
#include "text/jinja_try.h"

double lp_jinja_strtod(const char *text, char **end) {
    const char *point = localeconv()->decimal_point;
    if (point[0] == '.') return strtod(text, end);
    static const size_t most = 400;
    char copy[401];
    size_t n = strnlen(text, most);
    memcpy(copy, text, n);
    copy[n] = 0;
    char *dot = strchr(copy, '.');
    if (dot) *dot = point[0];
    char *stop;
    double x = strtod(copy, &stop);
    if (end) *end = (char *)text + (stop - copy);
    return x;
}

// The shortest decimal that reads back as x, laid out as Python does.
void lp_jinja_float_repr(double x, char out[40]) {
    if (isnan(x) || isinf(x)) {
        snprintf(out, 40, "%s", isnan(x) ? "nan" : x < 0 ? "-inf" : "inf");
        return;
    }
    char e[40];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(e, sizeof e, "%.*e", digits - 1, x);
        if (strtod(e, NULL) == x) break;
    }
    char digit[20], *at = e;
    size_t n = 0;
    bool minus = *at == '-';
    for (at += minus; *at && *at != 'e'; at++)
        if (*at >= '0' && *at <= '9' && n < 18) digit[n++] = *at;
    digit[n] = 0;
    int exponent = *at == 'e' ? atoi(at + 1) : 0;
    char *o = out;
    if (minus) *o++ = '-';
    if (exponent < -4 || exponent >= 16) {
        snprintf(o, 38, "%c%s%se%c%02d", digit[0], n > 1 ? "." : "", digit + 1,
                 exponent < 0 ? '-' : '+', abs(exponent));
    } else if (exponent < 0) {
        snprintf(o, 38, "0.%.*s%s", -exponent - 1, "000", digit);
    } else {
        int whole = exponent + 1;
        for (int i = 0; i < whole; i++) *o++ = (size_t)i < n ? digit[i] : '0';
        snprintf(o, 20, ".%s", (size_t)whole < n ? digit + whole : "0");
    }
}

static bool add_formatted(struct lp_jinja_run *run, const char *format, unsigned value) {
    char text[32];
    snprintf(text, sizeof text, format, value);
    return lp_jinja_build_puts(run, text);
}

static bool add_repr_char(struct lp_jinja_run *run, struct lp_str raw, uint32_t cp, char quote) {
    if (cp == (uint32_t)(unsigned char)quote || cp == '\\') TRY(lp_jinja_build_puts(run, "\\"));
    switch (cp) {
    case '\n':
        return lp_jinja_build_puts(run, "\\n");
    case '\r':
        return lp_jinja_build_puts(run, "\\r");
    case '\t':
        return lp_jinja_build_puts(run, "\\t");
    default:
        break;
    }
    if (cp < 0x80 ? cp >= 0x20 && cp != 0x7f : lp_jinja_in_class(cp, LP_JINJA_CLASS_PRINTABLE))
        return lp_jinja_build_add(run, raw);
    return add_formatted(run, cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
}

static bool add_str_repr(struct lp_jinja_run *run, struct lp_str s) {
    bool single = memchr(s.data, '\'', s.len) != NULL, twice = memchr(s.data, '"', s.len) != NULL;
    char quote = single && !twice ? '"' : '\'';
    const char mark[2] = {quote, 0};
    TRY(lp_jinja_build_puts(run, mark));
    for (size_t at = 0; at < s.len;) {
        uint32_t cp;
        size_t n = lp_jinja_utf8_next(s, at, &cp);
        TRY(add_repr_char(run, (struct lp_str){s.data + at, n}, cp, quote));
        at += n;
    }
    return lp_jinja_build_puts(run, mark);
}

static bool add_items(struct lp_jinja_run *run, const struct lp_jinja_seq *seq, unsigned depth) {
    for (size_t i = 0; i < seq->n; i++) {
        if (i) TRY(lp_jinja_build_puts(run, ", "));
        TRY(lp_jinja_add_repr(run, seq->items[i], depth + 1));
    }
    return true;
}

static bool add_seq_repr(struct lp_jinja_run *run, const struct lp_jinja_seq *seq, unsigned depth) {
    static const char *const open[] = {
        "[", "(", "(", "", "", "dict_keys([", "dict_values([", "dict_items(["};
    static const char *const shut[] = {"]", ")", ")", "", "", "])", "])", "])"};
    if (seq->kind == LP_JINJA_ITER) return lp_jinja_build_puts(run, "<generator object>");
    if (seq->kind == LP_JINJA_RANGE) {
        char text[96];
        if (seq->step == 1)
            snprintf(text, sizeof text, "range(%lld, %lld)", (long long)seq->start,
                     (long long)seq->stop);
        else
            snprintf(text, sizeof text, "range(%lld, %lld, %lld)", (long long)seq->start,
                     (long long)seq->stop, (long long)seq->step);
        return lp_jinja_build_puts(run, text);
    }
    TRY(lp_jinja_build_puts(run, open[seq->kind]));
    TRY(add_items(run, seq, depth));
    if (seq->n == 1 && (seq->kind == LP_JINJA_TUPLE || seq->kind == LP_JINJA_GROUP))
        TRY(lp_jinja_build_puts(run, ","));
    return lp_jinja_build_puts(run, shut[seq->kind]);
}

static bool add_dict_repr(struct lp_jinja_run *run, const struct lp_jinja_dict *dict,
                          unsigned depth) {
    TRY(lp_jinja_build_puts(run, "{"));
    for (size_t i = 0; i < dict->n; i++) {
        if (i) TRY(lp_jinja_build_puts(run, ", "));
        TRY(lp_jinja_add_repr(run, dict->pairs[i].key, depth + 1));
        TRY(lp_jinja_build_puts(run, ": "));
        TRY(lp_jinja_add_repr(run, dict->pairs[i].value, depth + 1));
    }
    return lp_jinja_build_puts(run, "}");
}

static bool add_object_repr(struct lp_jinja_run *run, lp_value v) {
    TRY(lp_jinja_build_puts(run, "<"));
    TRY(lp_jinja_build_puts(run, lp_jinja_type_name(v)));
    if (v.type == LP_JINJA_MACRO) {
        TRY(lp_jinja_build_puts(run, " "));
        TRY(add_str_repr(run, lp_jinja_macro_name(v.macro)));
    }
    if (v.type == LP_JINJA_LOOP)
        TRY(add_formatted(run, " %u", (unsigned)v.loop->index0 + 1) &&
            add_formatted(run, "/%u", (unsigned)v.loop->n));
    return lp_jinja_build_puts(run, ">");
}

static bool add_int(struct lp_jinja_run *run, int64_t i) {
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)i);
    return lp_jinja_build_puts(run, text);
}

static bool walk(struct lp_jinja_run *run, unsigned depth) {
    if (depth > LP_JINJA_MAX_VALUE_DEPTH)
        return lp_jinja_fail(run, LP_STATUS_LIMIT, "a value is nested more than %d deep",
                             LP_JINJA_MAX_VALUE_DEPTH);
    return lp_jinja_spend(run, 1);
}

bool lp_jinja_add_repr(struct lp_jinja_run *run, lp_value v, unsigned depth) {
    TRY(walk(run, depth));
    char text[40];
    switch (v.type) {
    case LP_JINJA_ABSENT:
    case LP_JINJA_UNDEFINED:
        return lp_jinja_build_puts(run, "Undefined");
    case LP_JINJA_NONE:
        return lp_jinja_build_puts(run, "None");
    case LP_JINJA_BOOL:
        return lp_jinja_build_puts(run, v.b ? "True" : "False");
    case LP_JINJA_INT:
        return add_int(run, v.i);
    case LP_JINJA_FLOAT:
        lp_jinja_float_repr(v.f, text);
        return lp_jinja_build_puts(run, text);
    case LP_JINJA_STRING:
        if (v.sub == LP_JINJA_SAFE)
            return lp_jinja_build_puts(run, "Markup(") && add_str_repr(run, v.s) &&
                   lp_jinja_build_puts(run, ")");
        return add_str_repr(run, v.s);
    case LP_JINJA_SEQ:
        return add_seq_repr(run, v.seq, depth);
    case LP_JINJA_DICT:
        return add_dict_repr(run, v.dict, depth);
    case LP_JINJA_NAMESPACE:
        return lp_jinja_build_puts(run, "<Namespace ") && add_dict_repr(run, v.dict, depth) &&
               lp_jinja_build_puts(run, ">");
    default:
        return add_object_repr(run, v);
    }
}

bool lp_jinja_add_str(struct lp_jinja_run *run, lp_value v) {
    if (v.type == LP_JINJA_STRING) return lp_jinja_build_add(run, v.s);
    if (v.type == LP_JINJA_UNDEFINED) return true;
    return lp_jinja_add_repr(run, v, 0);
}

bool lp_jinja_to_str(struct lp_jinja_run *run, lp_value v, lp_value *out) {
    *out = v;
    if (v.type == LP_JINJA_STRING) return true;
    size_t begin = lp_jinja_build_begin(run);
    return lp_jinja_add_str(run, v) && lp_jinja_build_end(run, begin, out);
}

bool lp_jinja_add_escaped(struct lp_jinja_run *run, struct lp_str text) {
    for (size_t i = 0; i < text.len; i++) {
        const char *as = NULL;
        switch (text.data[i]) {
        case '&':
            as = "&amp;";
            break;
        case '<':
            as = "&lt;";
            break;
        case '>':
            as = "&gt;";
            break;
        case '\'':
            as = "&#39;";
            break;
        case '"':
            as = "&#34;";
            break;
        default:
            break;
        }
        TRY(as ? lp_jinja_build_puts(run, as)
               : lp_jinja_build_add(run, (struct lp_str){text.data + i, 1}));
    }
    return true;
}

// ---- JSON -------------------------------------------------------------------------------------

static bool add_json_unit(struct lp_jinja_run *run, uint32_t cp) {
    if (cp < 0x10000) return add_formatted(run, "\\u%04x", cp);
    cp -= 0x10000;
    return add_formatted(run, "\\u%04x", 0xd800 + (cp >> 10)) &&
           add_formatted(run, "\\u%04x", 0xdc00 + (cp & 0x3ff));
}

static bool add_json_str(struct lp_jinja_run *run, struct lp_str s, bool ascii) {
    static const char plain_escapes[] = "\"\"\\\\\nn\rr\tt\ff\bb";
    TRY(lp_jinja_build_puts(run, "\""));
    for (size_t at = 0; at < s.len;) {
        uint32_t cp;
        size_t n = lp_jinja_utf8_next(s, at, &cp);
        const char *escape = NULL;
        for (size_t i = 0; i + 1 < sizeof plain_escapes; i += 2)
            if (cp == (unsigned char)plain_escapes[i]) escape = &plain_escapes[i + 1];
        if (escape) {
            const char text[3] = {'\\', *escape, 0};
            TRY(lp_jinja_build_puts(run, text));
        } else if (cp < 0x20 || (ascii && cp >= 0x7f)) {
            TRY(add_json_unit(run, cp));
        } else {
            TRY(lp_jinja_build_add(run, (struct lp_str){s.data + at, n}));
        }
        at += n;
    }
    return lp_jinja_build_puts(run, "\"");
}

static bool json_break(struct lp_jinja_run *run, const struct lp_jinja_json_style *style,
                       unsigned depth) {
    if (!style->pretty) return true;
    TRY(lp_jinja_build_puts(run, "\n"));
    for (unsigned i = 0; i < depth; i++) TRY(lp_jinja_build_add(run, style->indent));
    return true;
}

static bool add_json_scalar(struct lp_jinja_run *run, lp_value v) {
    char text[40];
    switch (v.type) {
    case LP_JINJA_NONE:
        return lp_jinja_build_puts(run, "null");
    case LP_JINJA_BOOL:
        return lp_jinja_build_puts(run, v.b ? "true" : "false");
    case LP_JINJA_INT:
        return add_int(run, v.i);
    case LP_JINJA_FLOAT:
        lp_jinja_float_repr(v.f, text);
        return lp_jinja_build_puts(run, isnan(v.f)   ? "NaN"
                                        : isinf(v.f) ? (v.f < 0 ? "-Infinity" : "Infinity")
                                                     : text);
    case LP_JINJA_UNDEFINED:
        if (v.sub == LP_JINJA_NO_NAME || v.sub == LP_JINJA_NO_ATTR)
            return lp_jinja_fail(run, LP_STATUS_FORMAT, "tojson met '%.*s', which is undefined",
                                 LP_STR_ARGS(v.s));
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "tojson met an undefined value");
    default:
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "a value of type %s has no JSON form",
                             lp_jinja_type_name(v));
    }
}

static bool add_json_key(struct lp_jinja_run *run, lp_value key, bool ascii) {
    if (key.type == LP_JINJA_STRING) return add_json_str(run, key.s, ascii);
    if (key.type == LP_JINJA_UNDEFINED || key.type >= LP_JINJA_SEQ)
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "a %s cannot be a key in JSON",
                             lp_jinja_type_name(key));
    return lp_jinja_build_puts(run, "\"") && add_json_scalar(run, key) &&
           lp_jinja_build_puts(run, "\"");
}

static bool add_json_dict(struct lp_jinja_run *run, const struct lp_jinja_dict *dict,
                          const struct lp_jinja_json_style *style, unsigned depth) {
    const struct lp_jinja_pair *pairs = dict->pairs;
    if (style->sort_keys) TRY(lp_jinja_sorted_pairs(run, dict, &pairs));
    if (!dict->n) return lp_jinja_build_puts(run, "{}");
    TRY(lp_jinja_build_puts(run, "{"));
    for (size_t i = 0; i < dict->n; i++) {
        if (i) TRY(lp_jinja_build_add(run, style->item_separator));
        TRY(json_break(run, style, depth + 1));
        TRY(add_json_key(run, pairs[i].key, style->ascii));
        TRY(lp_jinja_build_add(run, style->key_separator));
        TRY(lp_jinja_add_json(run, pairs[i].value, style, depth + 1));
    }
    return json_break(run, style, depth) && lp_jinja_build_puts(run, "}");
}

static bool add_json_list(struct lp_jinja_run *run, const struct lp_jinja_seq *seq,
                          const struct lp_jinja_json_style *style, unsigned depth) {
    if (!seq->n) return lp_jinja_build_puts(run, "[]");
    TRY(lp_jinja_build_puts(run, "["));
    for (size_t i = 0; i < seq->n; i++) {
        if (i) TRY(lp_jinja_build_add(run, style->item_separator));
        TRY(json_break(run, style, depth + 1));
        TRY(lp_jinja_add_json(run, seq->items[i], style, depth + 1));
    }
    return json_break(run, style, depth) && lp_jinja_build_puts(run, "]");
}

bool lp_jinja_add_json(struct lp_jinja_run *run, lp_value v,
                       const struct lp_jinja_json_style *style, unsigned depth) {
    TRY(walk(run, depth));
    if (v.type == LP_JINJA_STRING) return add_json_str(run, v.s, style->ascii);
    if (v.type == LP_JINJA_DICT) return add_json_dict(run, v.dict, style, depth);
    if (lp_jinja_is_seq(v, LP_JINJA_LIST) || lp_jinja_is_tuple(v))
        return add_json_list(run, v.seq, style, depth);
    return add_json_scalar(run, v);
}
