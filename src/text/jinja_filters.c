// Filters on single values: strings, numbers, defaults, JSON. Those on sequences are in
// jinja_list_filters.c.
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja_builtins.h"
#include "text/jinja_str.h"
#include "text/jinja_text.h"
#include "text/jinja_try.h"

typedef struct lp_jinja_run run_state;
typedef struct lp_jinja_call call_args;

// The string at the left; a value that is none is printed.
static bool self_str(run_state *run, const call_args *call, lp_value *out) {
    return lp_jinja_to_str(run, call->self, out);
}

// ---- case, white space, replacement -----------------------------------------------------------

static bool change_case(run_state *run, call_args *call, enum lp_jinja_text_case mode,
                        lp_value *out) {
    lp_value text;
    return self_str(run, call, &text) && lp_jinja_text_case(run, text, mode, out);
}

static bool filter_upper(run_state *run, call_args *call, lp_value *out) {
    return change_case(run, call, LP_JINJA_TEXT_UPPER, out);
}
static bool filter_lower(run_state *run, call_args *call, lp_value *out) {
    return change_case(run, call, LP_JINJA_TEXT_LOWER, out);
}
static bool filter_capitalize(run_state *run, call_args *call, lp_value *out) {
    return change_case(run, call, LP_JINJA_TEXT_CAPITALIZE, out);
}

// Jinja's own idea of a title: words begin after white space and one of -({[<.
static bool filter_title(run_state *run, call_args *call, lp_value *out) {
    lp_value text;
    TRY(self_str(run, call, &text));
    size_t begin = lp_jinja_build_begin(run);
    bool first = true;
    for (size_t at = 0; at < text.s.len;) {
        uint32_t cp;
        size_t n = lp_jinja_utf8_next(text.s, at, &cp);
        lp_value letter = lp_jinja_str((struct lp_str){text.s.data + at, n});
        // Only the character's own mapping is wanted, so it is mapped in place.
        uint32_t to[3];
        char bytes[4];
        size_t count = lp_jinja_map_case(cp, first ? LP_JINJA_TO_UPPER : LP_JINJA_TO_LOWER, to);
        if (cp == 0xfffd)
            TRY(lp_jinja_build_add(run, letter.s));
        else
            for (size_t i = 0; i < count; i++)
                TRY(lp_jinja_build_add(run,
                                       (struct lp_str){bytes, lp_jinja_utf8_put(to[i], bytes)}));
        first = lp_jinja_is_space(cp) || (cp && cp < 0x80 && strchr("-({[<", (int)cp));
        at += n;
    }
    return lp_jinja_build_end(run, begin, out);
}

static bool filter_trim(run_state *run, call_args *call, lp_value *out) {
    lp_value text;
    struct lp_str chars = {0};
    TRY(self_str(run, call, &text));
    if (lp_jinja_arg(call, 0).type != LP_JINJA_NONE) {
        TRY(lp_jinja_arg_str(run, call, 0, chars, &chars));
        if (!chars.data) chars.data = "";
    }
    *out = lp_jinja_str(lp_jinja_str_strip(text.s, chars, LP_JINJA_BOTH));
    out->sub = text.sub;
    return lp_jinja_spend_bytes(run, text.s.len);
}

static bool filter_replace(run_state *run, call_args *call, lp_value *out) {
    lp_value text, old, new;
    int64_t most = -1;
    TRY(self_str(run, call, &text) && lp_jinja_to_str(run, call->arg[0], &old) &&
        lp_jinja_to_str(run, call->arg[1], &new));
    if (lp_jinja_arg(call, 2).type != LP_JINJA_NONE) TRY(lp_jinja_arg_int(run, call, 2, -1, &most));
    return lp_jinja_text_replace(run, text.s, old.s, new.s, most, out);
}

static bool add_line(run_state *run, struct lp_str line, struct lp_str indent, bool indented) {
    return (!indented || lp_jinja_build_add(run, indent)) && lp_jinja_build_add(run, line);
}

static bool indentation(run_state *run, const call_args *call, struct lp_str *out) {
    lp_value width = call->arg[0], text;
    int64_t n;
    if (lp_jinja_is_str(width)) {
        *out = width.s;
        return true;
    }
    TRY(lp_jinja_arg_int(run, call, 0, 4, &n));
    TRY(lp_jinja_text_pad(run, lp_str_from(""), n, lp_str_from(" "), LP_JINJA_LEFT, &text));
    *out = text.s;
    return true;
}

static bool filter_indent(run_state *run, call_args *call, lp_value *out) {
    struct lp_str indent, s = call->self.s;
    bool first = lp_jinja_arg_truth(call, 1, false), blank = lp_jinja_arg_truth(call, 2, false);
    if (lp_jinja_is_undefined(call->self)) return lp_jinja_fail_undefined(run, call->self);
    if (!lp_jinja_is_str(call->self))
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "indent needs a string, not %s",
                             lp_jinja_type_name(call->self));
    TRY(indentation(run, call, &indent));
    size_t begin = lp_jinja_build_begin(run), from = 0;
    bool any = false;
    for (size_t at = 0; at <= s.len;) { // the end counts as a line end
        uint32_t cp;
        size_t n = at < s.len ? lp_jinja_line_break(s, at) : 1;
        if (n) {
            struct lp_str line = {s.data + from, at - from};
            if (any) TRY(lp_jinja_build_puts(run, "\n"));
            TRY(add_line(run, line, indent, any ? blank || line.len : first));
            any = true;
            from = at + n;
        }
        at += n ? n : lp_jinja_utf8_next(s, at, &cp);
    }
    TRY(lp_jinja_build_end(run, begin, out));
    out->sub = call->self.sub;
    return true;
}

static bool filter_truncate(run_state *run, call_args *call, lp_value *out) {
    int64_t length, leeway = 5, n;
    struct lp_str end, s = call->self.s;
    bool has_length;
    TRY(lp_jinja_arg_int(run, call, 0, 255, &length) &&
        lp_jinja_arg_str(run, call, 2, lp_str_from("..."), &end));
    if (lp_jinja_arg(call, 3).type != LP_JINJA_NONE)
        TRY(lp_jinja_arg_int(run, call, 3, 5, &leeway));
    int64_t n_end = (int64_t)lp_jinja_str_count(end);
    if (length < n_end || leeway < 0)
        return lp_jinja_fail(
            run, LP_STATUS_FORMAT,
            "truncate needs a length of at least its ending and no negative leeway");
    TRY(lp_jinja_length(run, call->self, &has_length, &n));
    if (!has_length)
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "truncate needs a string, not %s",
                             lp_jinja_type_name(call->self));
    *out = call->self;
    if (n - leeway <= length) return true;
    if (!lp_jinja_is_str(call->self))
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "truncate needs a string, not %s",
                             lp_jinja_type_name(call->self));
    struct lp_str kept = {s.data, lp_jinja_str_offset(s, (size_t)(length - n_end))};
    size_t space = lp_jinja_str_rfind(kept, lp_str_from(" "));
    if (!lp_jinja_arg_truth(call, 1, false) && space != LP_JINJA_NOT_FOUND) kept.len = space;
    size_t begin = lp_jinja_build_begin(run);
    return lp_jinja_build_add(run, kept) && lp_jinja_build_add(run, end) &&
           lp_jinja_build_end(run, begin, out);
}

static bool filter_center(run_state *run, call_args *call, lp_value *out) {
    lp_value text;
    int64_t width;
    TRY(self_str(run, call, &text) && lp_jinja_arg_int(run, call, 0, 80, &width));
    return lp_jinja_text_pad(run, text.s, width, lp_str_from(" "), LP_JINJA_BOTH, out);
}

static bool filter_wordcount(run_state *run, call_args *call, lp_value *out) {
    lp_value text;
    TRY(self_str(run, call, &text) && lp_jinja_spend_bytes(run, text.s.len));
    int64_t n = 0;
    bool in_word = false;
    for (size_t at = 0; at < text.s.len;) {
        uint32_t cp;
        at += lp_jinja_utf8_next(text.s, at, &cp);
        bool word = cp == '_' || lp_jinja_in_class(cp, LP_JINJA_CLASS_ALPHA) ||
                    lp_jinja_in_class(cp, LP_JINJA_CLASS_NUMERIC);
        n += word && !in_word;
        in_word = word;
    }
    *out = lp_jinja_int(n);
    return true;
}

static bool filter_format(run_state *run, call_args *call, lp_value *out) {
    lp_value text, args;
    TRY(self_str(run, call, &text));
    if (call->n_pos && call->n_named)
        return lp_jinja_fail(run, LP_STATUS_FORMAT,
                             "format takes plain or named arguments, not both");
    if (!call->n_named) {
        TRY(lp_jinja_seq_new(run, LP_JINJA_TUPLE, call->n_pos, &args));
        for (size_t i = 0; i < call->n_pos; i++) args.seq->items[i] = call->pos[i];
        return lp_jinja_format(run, text, args, out);
    }
    struct lp_jinja_dict *dict;
    TRY(lp_jinja_dict_new(run, call->n_named, &dict));
    for (size_t i = 0; i < call->n_named; i++)
        TRY(lp_jinja_dict_set(run, dict, lp_jinja_str(call->named[i].name), call->named[i].value));
    return lp_jinja_format(run, text, lp_jinja_dict_value(dict), out);
}

static bool filter_string(run_state *run, call_args *call, lp_value *out) {
    return self_str(run, call, out);
}

static bool filter_safe(run_state *run, call_args *call, lp_value *out) {
    TRY(self_str(run, call, out));
    out->sub = LP_JINJA_SAFE;
    return true;
}

static bool filter_forceescape(run_state *run, call_args *call, lp_value *out) {
    lp_value text;
    TRY(self_str(run, call, &text));
    size_t begin = lp_jinja_build_begin(run);
    TRY(lp_jinja_add_escaped(run, text.s) && lp_jinja_build_end(run, begin, out));
    out->sub = LP_JINJA_SAFE;
    return true;
}

static bool filter_escape(run_state *run, call_args *call, lp_value *out) {
    if (!lp_jinja_is_str(call->self) || call->self.sub != LP_JINJA_SAFE)
        return filter_forceescape(run, call, out);
    *out = call->self;
    return true;
}

static bool add_quoted(run_state *run, struct lp_str s, bool query) {
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.data[i];
        bool plain = (c < 0x80 && isalnum(c)) || (c && strchr("_.-~", c)) || (!query && c == '/');
        char text[4];
        snprintf(text, sizeof text, plain ? "%c" : query && c == ' ' ? "+" : "%%%02X", c);
        TRY(c || !plain ? lp_jinja_build_puts(run, text) : true);
    }
    return true;
}

static bool filter_urlencode(run_state *run, call_args *call, lp_value *out) {
    size_t begin = lp_jinja_build_begin(run);
    lp_value text, *items, *pair;
    size_t n, two;
    if (lp_jinja_is_str(call->self) || !lp_jinja_is_iterable(call->self)) {
        TRY(self_str(run, call, &text) && add_quoted(run, text.s, false));
        return lp_jinja_build_end(run, begin, out);
    }
    lp_value pairs = call->self;
    if (pairs.type == LP_JINJA_DICT)
        TRY(lp_jinja_method(pairs, lp_str_from("items"))->fn(run, call, &pairs));
    TRY(lp_jinja_items(run, pairs, &items, &n));
    for (size_t i = 0; i < n; i++) {
        TRY(lp_jinja_items(run, items[i], &pair, &two));
        if (two != 2) return lp_jinja_fail(run, LP_STATUS_FORMAT, "urlencode needs pairs");
        if (i) TRY(lp_jinja_build_puts(run, "&"));
        TRY(lp_jinja_to_str(run, pair[0], &text) && add_quoted(run, text.s, true) &&
            lp_jinja_build_puts(run, "=") && lp_jinja_to_str(run, pair[1], &text) &&
            add_quoted(run, text.s, true));
    }
    return lp_jinja_build_end(run, begin, out);
}

// ---- numbers ----------------------------------------------------------------------------------

// A copy without white space around and underscores between digits; false when it cannot be a
// number.
static bool number_text(struct lp_str s, char out[400]) {
    s = lp_jinja_str_strip(s, (struct lp_str){0}, LP_JINJA_BOTH);
    size_t n = 0;
    if (!s.len || s.len >= 399) return false;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.data[i];
        if (!c) return false;
        if (c == '_') {
            if (i == 0 || i + 1 == s.len || !isalnum((unsigned char)s.data[i - 1]) ||
                !isalnum((unsigned char)s.data[i + 1]))
                return false;
            continue;
        }
        out[n++] = c;
    }
    out[n] = 0;
    return true;
}

static bool str_to_float(struct lp_str s, double *out) {
    char text[400], *end;
    if (!number_text(s, text) || strpbrk(text, "xXpP()")) return false;
    *out = lp_jinja_strtod(text, &end);
    return *end == 0 && end != text;
}

// Python's int(text, base).
static bool str_to_int(struct lp_str s, int64_t base, int64_t *out, bool *too_big) {
    char text[400], *end;
    *too_big = false;
    if (!number_text(s, text) || base < 0 || base == 1 || base > 36) return false;
    const char *digits = text + (text[0] == '-' || text[0] == '+');
    char mark = digits[0] == '0' ? (char)(digits[1] | 0x20) : 0;
    int64_t prefix = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (prefix && (base == 0 || base == prefix)) {
        digits += 2;
        base = prefix;
    }
    if (base == 0) base = 10;
    if (!isalnum((unsigned char)digits[0])) return false;
    if (base == 16 && prefix == 0 && digits[0] == '0' && (digits[1] | 0x20) == 'x') return false;
    errno = 0;
    int64_t value = strtoll(digits, &end, (int)base);
    *too_big = errno == ERANGE;
    *out = text[0] == '-' ? -value : value;
    return *end == 0;
}

static bool float_to_int(run_state *run, double x, int64_t *out) {
    if (!(fabs(x) < 9.2e18))
        return lp_jinja_fail(run, LP_STATUS_LIMIT, "an integer has more than 63 bits");
    *out = (int64_t)x;
    return true;
}

static bool filter_int(run_state *run, call_args *call, lp_value *out) {
    lp_value v = call->self;
    int64_t base, i;
    double x;
    bool too_big;
    *out = call->arg[0].type == LP_JINJA_ABSENT ? lp_jinja_int(0) : call->arg[0];
    TRY(lp_jinja_arg_int(run, call, 1, 10, &base));
    if (lp_jinja_is_undefined(v)) return lp_jinja_fail_undefined(run, v);
    if (lp_jinja_is_str(v)) {
        if (str_to_int(v.s, base, &i, &too_big)) {
            if (too_big) return float_to_int(run, INFINITY, &i);
            *out = lp_jinja_int(i);
        } else if (str_to_float(v.s, &x) && isfinite(x)) {
            TRY(float_to_int(run, x, &i));
            *out = lp_jinja_int(i);
        }
        return true;
    }
    if (v.type == LP_JINJA_FLOAT) {
        if (isnan(v.f)) return true;
        TRY(float_to_int(run, v.f, &i));
        *out = lp_jinja_int(i);
    } else if (lp_jinja_as_int(v, &i)) {
        *out = lp_jinja_int(i);
    }
    return true;
}

static bool filter_float(run_state *run, call_args *call, lp_value *out) {
    lp_value v = call->self;
    double x;
    *out = call->arg[0].type == LP_JINJA_ABSENT ? lp_jinja_float(0) : call->arg[0];
    if (lp_jinja_is_undefined(v)) return lp_jinja_fail_undefined(run, v);
    if (lp_jinja_is_str(v) ? str_to_float(v.s, &x) : lp_jinja_as_double(v, &x))
        *out = lp_jinja_float(x);
    return true;
}

static bool filter_abs(run_state *run, call_args *call, lp_value *out) {
    lp_value v = call->self;
    int64_t i;
    if (lp_jinja_is_undefined(v)) return lp_jinja_fail_undefined(run, v);
    if (v.type == LP_JINJA_FLOAT)
        *out = lp_jinja_float(fabs(v.f));
    else if (!lp_jinja_as_int(v, &i))
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "abs needs a number, not %s",
                             lp_jinja_type_name(v));
    else if (i == INT64_MIN)
        return float_to_int(run, INFINITY, &i);
    else
        *out = lp_jinja_int(i < 0 ? -i : i);
    return true;
}

// Half to even on the decimal digits of the exact value, as Python rounds floats.
static double round_float(double x, int64_t precision) {
    if (!isfinite(x) || precision > 300) return x;
    if (precision >= 0) {
        char text[700];
        snprintf(text, sizeof text, "%.*f", (int)precision, x);
        return strtod(text, NULL);
    }
    if (precision < -308) return 0 * x;
    double scale = pow(10, (double)-precision);
    return nearbyint(x / scale) * scale;
}

static bool round_int(run_state *run, int64_t i, int64_t precision, lp_value *out) {
    *out = lp_jinja_int(i);
    if (precision >= 0) return true;
    if (precision < -18) {
        *out = lp_jinja_int(0);
        return true;
    }
    int64_t scale = 1;
    for (int64_t k = 0; k < -precision; k++) scale *= 10;
    int64_t whole = i / scale, rest = i % scale, twice;
    if (__builtin_mul_overflow(rest < 0 ? -rest : rest, 2, &twice)) twice = INT64_MAX;
    if (twice > scale || (twice == scale && whole % 2 != 0)) whole += i < 0 ? -1 : 1;
    if (__builtin_mul_overflow(whole, scale, &out->i)) return float_to_int(run, INFINITY, &i);
    return true;
}

static bool filter_round(run_state *run, call_args *call, lp_value *out) {
    lp_value v = call->self;
    int64_t precision, i;
    struct lp_str method;
    double x;
    TRY(lp_jinja_arg_int(run, call, 0, 0, &precision) &&
        lp_jinja_arg_str(run, call, 1, lp_str_from("common"), &method));
    if (lp_jinja_is_undefined(v)) return lp_jinja_fail_undefined(run, v);
    bool up = lp_str_is(method, "ceil"), down = lp_str_is(method, "floor");
    if (!up && !down && !lp_str_is(method, "common"))
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "round: method must be common, ceil or floor");
    if (!lp_jinja_as_double(v, &x))
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "round needs a number, not %s",
                             lp_jinja_type_name(v));
    if (!up && !down && lp_jinja_as_int(v, &i)) return round_int(run, i, precision, out);
    if (precision > 300 || precision < -300)
        return lp_jinja_fail(run, LP_STATUS_LIMIT, "round: the precision is too large");
    double scale = pow(10, (double)precision);
    *out = lp_jinja_float(up     ? ceil(x * scale) / scale
                          : down ? floor(x * scale) / scale
                                 : round_float(x, precision));
    return true;
}

// ---- the rest ---------------------------------------------------------------------------------

static bool filter_default(run_state *run, call_args *call, lp_value *out) {
    (void)run;
    bool missing = lp_jinja_is_undefined(call->self) ||
                   (lp_jinja_arg_truth(call, 1, false) && !lp_jinja_truth(call->self));
    *out = !missing                               ? call->self
           : call->arg[0].type == LP_JINJA_ABSENT ? lp_jinja_str(lp_str_from(""))
                                                  : call->arg[0];
    return true;
}

static bool filter_attr(run_state *run, call_args *call, lp_value *out) {
    struct lp_str name;
    TRY(lp_jinja_arg_str(run, call, 0, (struct lp_str){0}, &name));
    // Never a key: a dict is asked for its methods only.
    lp_value of = call->self;
    if (of.type == LP_JINJA_DICT && !lp_jinja_method(of, name) &&
        !lp_jinja_method_is_forbidden(of, name)) {
        *out = lp_jinja_undefined(LP_JINJA_NO_ATTR, name);
        return true;
    }
    return lp_jinja_get_attr(run, of, name, out);
}

static bool json_style(run_state *run, const call_args *call, struct lp_jinja_json_style *style) {
    lp_value indent = lp_jinja_arg(call, 1), separators = lp_jinja_arg(call, 2), *items;
    size_t n;
    *style = (struct lp_jinja_json_style){
        .ascii = lp_jinja_arg_truth(call, 0, false),
        .sort_keys = lp_jinja_arg_truth(call, 3, false),
        .pretty = indent.type != LP_JINJA_NONE,
        .item_separator = lp_str_from(indent.type == LP_JINJA_NONE ? ", " : ","),
        .key_separator = lp_str_from(": "),
    };
    if (lp_jinja_is_str(indent)) {
        style->indent = indent.s;
    } else if (style->pretty) {
        int64_t width;
        lp_value spaces;
        TRY(lp_jinja_arg_int(run, call, 1, 0, &width) &&
            lp_jinja_text_pad(run, lp_str_from(""), width, lp_str_from(" "), LP_JINJA_LEFT,
                              &spaces));
        style->indent = spaces.s;
    }
    if (separators.type == LP_JINJA_NONE) return true;
    TRY(lp_jinja_items(run, separators, &items, &n));
    if (n != 2 || !lp_jinja_is_str(items[0]) || !lp_jinja_is_str(items[1]))
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "tojson: separators must be two strings");
    style->item_separator = items[0].s;
    style->key_separator = items[1].s;
    return true;
}

static bool filter_tojson(run_state *run, call_args *call, lp_value *out) {
    struct lp_jinja_json_style style;
    TRY(json_style(run, call, &style));
    size_t begin = lp_jinja_build_begin(run);
    return lp_jinja_add_json(run, call->self, &style, 0) && lp_jinja_build_end(run, begin, out);
}

const struct lp_jinja_builtin lp_jinja_filter_table[] = {
    {"tojson", "ensure_ascii,indent,separators,sort_keys", 0, filter_tojson},
    {"trim", "chars", 0, filter_trim},
    {"default", "default_value,boolean", 0, filter_default},
    {"d", "default_value,boolean", 0, filter_default},
    {"string", "", 0, filter_string},
    {"upper", "", 0, filter_upper},
    {"lower", "", 0, filter_lower},
    {"capitalize", "", 0, filter_capitalize},
    {"title", "", 0, filter_title},
    {"replace", "old,new,count", 2, filter_replace},
    {"indent", "width,first,blank", 0, filter_indent},
    {"truncate", "length,killwords,end,leeway", 0, filter_truncate},
    {"center", "width", 0, filter_center},
    {"wordcount", "", 0, filter_wordcount},
    {"format", NULL, 0, filter_format},
    {"safe", "", 0, filter_safe},
    {"e", "", 0, filter_escape},
    {"escape", "", 0, filter_escape},
    {"forceescape", "", 0, filter_forceescape},
    {"urlencode", "", 0, filter_urlencode},
    {"int", "default,base", 0, filter_int},
    {"float", "default", 0, filter_float},
    {"abs", "", 0, filter_abs},
    {"round", "precision,method", 0, filter_round},
    {"attr", "name", 1, filter_attr},
    {0},
};
