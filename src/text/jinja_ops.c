// Operators on values, with Python's rules: floor division and modulo, true division, strings and
// lists that repeat, slices, "%" formatting. Integers have 64 bits; past them is an error, not a
// wrap.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "text/jinja_eval.h"
#include "text/jinja_str.h"
#include "text/jinja_try.h"

typedef struct lp_jinja_run run_state;

static const char *op_name(int op) {
    switch (op) {
    case '+':
        return "+";
    case '-':
        return "-";
    case '*':
        return "*";
    case '/':
        return "/";
    case '%':
        return "%";
    case LP_JINJA_T_FLOORDIV:
        return "//";
    case LP_JINJA_T_POW:
        return "**";
    default:
        return "?";
    }
}

static bool overflow(run_state *run) {
    return lp_jinja_fail(run, LP_STATUS_LIMIT, "an integer has more than 63 bits");
}

static bool by_zero(run_state *run) {
    return lp_jinja_fail(run, LP_STATUS_FORMAT, "division by zero");
}

// ---- numbers ----------------------------------------------------------------------------------

static bool int_divide(run_state *run, int op, int64_t a, int64_t b, lp_value *out) {
    if (b == 0) return by_zero(run);
    if (a == INT64_MIN && b == -1) return overflow(run);
    int64_t quotient = a / b, rest = a % b;
    if (rest != 0 && (rest < 0) != (b < 0)) {
        quotient--;
        rest += b;
    }
    *out = lp_jinja_int(op == '%' ? rest : quotient);
    return true;
}

static bool int_pow(run_state *run, int64_t base, int64_t exponent, lp_value *out) {
    if (exponent < 0) {
        if (base == 0) return by_zero(run);
        *out = lp_jinja_float(pow((double)base, (double)exponent));
        return true;
    }
    int64_t result = 1;
    while (exponent > 0) {
        if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) return overflow(run);
        exponent >>= 1;
        if (exponent && __builtin_mul_overflow(base, base, &base)) return overflow(run);
    }
    *out = lp_jinja_int(result);
    return true;
}

static bool int_binary(run_state *run, int op, int64_t a, int64_t b, lp_value *out) {
    int64_t result = 0;
    bool over = false;
    switch (op) {
    case '+':
        over = __builtin_add_overflow(a, b, &result);
        break;
    case '-':
        over = __builtin_sub_overflow(a, b, &result);
        break;
    case '*':
        over = __builtin_mul_overflow(a, b, &result);
        break;
    case '/':
        if (b == 0) return by_zero(run);
        *out = lp_jinja_float((double)a / (double)b);
        return true;
    case LP_JINJA_T_POW:
        return int_pow(run, a, b, out);
    default:
        return int_divide(run, op, a, b, out);
    }
    if (over) return overflow(run);
    *out = lp_jinja_int(result);
    return true;
}

static double float_modulo(double a, double b) {
    double rest = fmod(a, b);
    if (rest == 0) return copysign(0, b);
    return (b < 0) != (rest < 0) ? rest + b : rest;
}

static double float_floor_divide(double a, double b) {
    double quotient = (a - float_modulo(a, b)) / b;
    if (quotient == 0) return copysign(0, a / b);
    double whole = floor(quotient);
    return quotient - whole > 0.5 ? whole + 1 : whole;
}

static bool float_pow(run_state *run, double a, double b, lp_value *out) {
    if (a == 0 && b < 0) return by_zero(run);
    double result = pow(a, b);
    bool finite = isfinite(a) && isfinite(b);
    if (finite && !isfinite(result))
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "the result of '**' is no finite number");
    *out = lp_jinja_float(result);
    return true;
}

static bool float_binary(run_state *run, int op, double a, double b, lp_value *out) {
    if (b == 0 && (op == '/' || op == '%' || op == LP_JINJA_T_FLOORDIV)) return by_zero(run);
    switch (op) {
    case '+':
        *out = lp_jinja_float(a + b);
        return true;
    case '-':
        *out = lp_jinja_float(a - b);
        return true;
    case '*':
        *out = lp_jinja_float(a * b);
        return true;
    case '/':
        *out = lp_jinja_float(a / b);
        return true;
    case '%':
        *out = lp_jinja_float(float_modulo(a, b));
        return true;
    case LP_JINJA_T_FLOORDIV:
        *out = lp_jinja_float(float_floor_divide(a, b));
        return true;
    default:
        return float_pow(run, a, b, out);
    }
}

// ---- strings and lists ------------------------------------------------------------------------

static bool add_strings(run_state *run, lp_value a, lp_value b, lp_value *out) {
    bool safe = a.sub == LP_JINJA_SAFE || b.sub == LP_JINJA_SAFE;
    size_t begin = lp_jinja_build_begin(run);
    TRY(safe && a.sub != LP_JINJA_SAFE ? lp_jinja_add_escaped(run, a.s)
                                       : lp_jinja_build_add(run, a.s));
    TRY(safe && b.sub != LP_JINJA_SAFE ? lp_jinja_add_escaped(run, b.s)
                                       : lp_jinja_build_add(run, b.s));
    TRY(lp_jinja_build_end(run, begin, out));
    out->sub = safe ? LP_JINJA_SAFE : LP_JINJA_PLAIN;
    return true;
}

static bool add_seqs(run_state *run, lp_value a, lp_value b, lp_value *out) {
    size_t n = a.seq->n, m = b.seq->n;
    TRY(lp_jinja_seq_new(run, a.seq->kind == LP_JINJA_LIST ? LP_JINJA_LIST : LP_JINJA_TUPLE, n + m,
                         out));
    if (n) memcpy(out->seq->items, a.seq->items, n * sizeof(lp_value));
    if (m) memcpy(out->seq->items + n, b.seq->items, m * sizeof(lp_value));
    return true;
}

static bool repeat(run_state *run, lp_value what, int64_t times, lp_value *out) {
    bool text = what.type == LP_JINJA_STRING;
    size_t n = text ? what.s.len : what.seq->n, size = text ? 1 : sizeof(lp_value), total;
    if (times < 0) times = 0;
    if (!lp_mul_size(n, (size_t)times, &total)) total = SIZE_MAX;
    if (text) {
        char *copy = lp_jinja_alloc(run, total, 1);
        TRY(copy && lp_jinja_spend_bytes(run, total));
        for (size_t at = 0; n && at < total; at += n) memcpy(copy + at, what.s.data, n);
        *out = lp_jinja_str((struct lp_str){copy, total});
        out->sub = what.sub;
        return true;
    }
    TRY(lp_jinja_seq_new(run, what.seq->kind == LP_JINJA_LIST ? LP_JINJA_LIST : LP_JINJA_TUPLE,
                         total, out));
    for (size_t at = 0; n && at < total; at += n)
        memcpy(out->seq->items + at, what.seq->items, n * size);
    return true;
}

static bool is_list_or_tuple(lp_value v) {
    return lp_jinja_is_seq(v, LP_JINJA_LIST) || lp_jinja_is_tuple(v);
}

static bool repeats(lp_value v) {
    return lp_jinja_is_str(v) || is_list_or_tuple(v);
}

bool lp_jinja_binary(run_state *run, int op, lp_value a, lp_value b, lp_value *out) {
    int64_t i, j;
    double x, y;
    if (op == '%' && lp_jinja_is_str(a)) return lp_jinja_format(run, a, b, out);
    if (lp_jinja_is_undefined(a)) return lp_jinja_fail_undefined(run, a);
    if (lp_jinja_is_undefined(b)) return lp_jinja_fail_undefined(run, b);
    if (lp_jinja_as_int(a, &i) && lp_jinja_as_int(b, &j)) return int_binary(run, op, i, j, out);
    if (lp_jinja_as_double(a, &x) && lp_jinja_as_double(b, &y))
        return float_binary(run, op, x, y, out);
    if (op == '+' && lp_jinja_is_str(a) && lp_jinja_is_str(b)) return add_strings(run, a, b, out);
    if (op == '+' && is_list_or_tuple(a) && is_list_or_tuple(b) &&
        lp_jinja_is_tuple(a) == lp_jinja_is_tuple(b))
        return add_seqs(run, a, b, out);
    if (op == '*' && repeats(a) && lp_jinja_as_int(b, &j)) return repeat(run, a, j, out);
    if (op == '*' && lp_jinja_as_int(a, &i) && repeats(b)) return repeat(run, b, i, out);
    return lp_jinja_fail(run, LP_STATUS_FORMAT, "'%s' does not work between %s and %s", op_name(op),
                         lp_jinja_type_name(a), lp_jinja_type_name(b));
}

bool lp_jinja_compare(run_state *run, int op, lp_value a, lp_value b, bool *out) {
    int order;
    switch (op) {
    case LP_JINJA_T_EQ:
        return lp_jinja_equal(run, a, b, 0, out);
    case LP_JINJA_T_NE:
        TRY(lp_jinja_equal(run, a, b, 0, out));
        *out = !*out;
        return true;
    case LP_JINJA_T_IN:
        return lp_jinja_contains(run, b, a, out);
    case LP_JINJA_T_NOT_IN:
        TRY(lp_jinja_contains(run, b, a, out));
        *out = !*out;
        return true;
    default:
        break;
    }
    TRY(lp_jinja_order(run, a, b, 0, &order));
    switch (op) {
    case '<':
        *out = order == -1;
        break;
    case '>':
        *out = order == 1;
        break;
    case LP_JINJA_T_LE:
        *out = order == -1 || order == 0;
        break;
    default:
        *out = order == 1 || order == 0;
        break;
    }
    return true;
}

// ---- slices -----------------------------------------------------------------------------------

// A bound of a slice over n items; steps down use other ends.
static int64_t clamp(int64_t at, int64_t n, bool down) {
    if (at < 0) at += n;
    if (at < 0) return down ? -1 : 0;
    return at >= n ? (down ? n - 1 : n) : at;
}

static bool slice_bounds(run_state *run, const lp_value part[3], int64_t n, int64_t *start,
                         int64_t *stop, int64_t *step) {
    int64_t given[3] = {0};
    for (int i = 0; i < 3; i++) {
        if (part[i].type == LP_JINJA_NONE) continue;
        if (lp_jinja_is_undefined(part[i])) return lp_jinja_fail_undefined(run, part[i]);
        if (!lp_jinja_as_int(part[i], &given[i]))
            return lp_jinja_fail(run, LP_STATUS_FORMAT, "a slice needs integers, not %s",
                                 lp_jinja_type_name(part[i]));
    }
    *step = part[2].type == LP_JINJA_NONE ? 1 : given[2];
    if (*step == 0) return lp_jinja_fail(run, LP_STATUS_FORMAT, "the step of a slice is 0");
    bool down = *step < 0;
    *start = part[0].type == LP_JINJA_NONE ? (down ? n - 1 : 0) : clamp(given[0], n, down);
    *stop = part[1].type == LP_JINJA_NONE ? (down ? -1 : n) : clamp(given[1], n, down);
    return true;
}

static int64_t slice_count(int64_t start, int64_t stop, int64_t step) {
    if (step > 0) return start < stop ? (stop - start - 1) / step + 1 : 0;
    if (step == INT64_MIN) return start > stop;
    return start > stop ? (start - stop - 1) / -step + 1 : 0;
}

static bool slice_str(run_state *run, lp_value of, const lp_value part[3], lp_value *out) {
    int64_t start, stop, step;
    TRY(lp_jinja_spend_bytes(run, of.s.len));
    TRY(slice_bounds(run, part, (int64_t)lp_jinja_str_count(of.s), &start, &stop, &step));
    int64_t count = slice_count(start, stop, step);
    if (step == 1) {
        size_t begin = lp_jinja_str_offset(of.s, (size_t)start);
        struct lp_str rest = {of.s.data + begin, of.s.len - begin};
        *out = lp_jinja_str((struct lp_str){rest.data, lp_jinja_str_offset(rest, (size_t)count)});
    } else {
        lp_value *chars;
        size_t n;
        TRY(lp_jinja_items(run, of, &chars, &n));
        size_t mark = lp_jinja_build_begin(run);
        for (int64_t i = 0, at = start; i < count; i++) {
            TRY(lp_jinja_build_add(run, chars[at].s));
            if (i + 1 < count) at += step;
        }
        TRY(lp_jinja_build_end(run, mark, out));
    }
    out->sub = of.sub;
    return true;
}

bool lp_jinja_slice(run_state *run, lp_value of, const lp_value part[3], lp_value *out) {
    if (lp_jinja_is_undefined(of)) return lp_jinja_fail_undefined(run, of);
    if (lp_jinja_is_str(of)) return slice_str(run, of, part, out);
    if (!is_list_or_tuple(of) && !lp_jinja_is_seq(of, LP_JINJA_RANGE))
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "a value of type %s cannot be sliced",
                             lp_jinja_type_name(of));
    int64_t start, stop, step;
    TRY(slice_bounds(run, part, (int64_t)of.seq->n, &start, &stop, &step));
    int64_t count = slice_count(start, stop, step);
    enum lp_jinja_seq_kind kind = of.seq->kind == LP_JINJA_GROUP ? LP_JINJA_TUPLE : of.seq->kind;
    TRY(lp_jinja_seq_new(run, kind, (size_t)count, out));
    for (int64_t i = 0, at = start; i < count; i++) {
        out->seq->items[i] = of.seq->items[at];
        if (i + 1 < count) at += step;
    }
    if (kind == LP_JINJA_RANGE) {
        const struct lp_jinja_seq *from = of.seq;
        struct lp_jinja_seq *to = out->seq;
        if (__builtin_mul_overflow(start, from->step, &to->start) ||
            __builtin_add_overflow(to->start, from->start, &to->start) ||
            __builtin_mul_overflow(stop, from->step, &to->stop) ||
            __builtin_add_overflow(to->stop, from->start, &to->stop) ||
            __builtin_mul_overflow(from->step, step, &to->step))
            return overflow(run);
    }
    return true;
}

// ---- "%" formatting ---------------------------------------------------------------------------

struct spec { // one %... of a format
    bool left, zero, plus, space, alternate;
    int64_t width, precision; // precision -1: none
    char type;
};

// Pads text (of n characters) to the width and adds it.
static bool add_padded(run_state *run, const struct spec *spec, struct lp_str text, bool numeric) {
    size_t n = lp_jinja_str_count(text);
    size_t pad = spec->width > (int64_t)n ? (size_t)spec->width - n : 0;
    struct lp_str fill = lp_str_from(" ");
    TRY(lp_jinja_spend(run, pad));
    if (!spec->left && spec->zero && numeric) {
        fill = lp_str_from("0");
        if (text.len && strchr("+- ", text.data[0])) {
            TRY(lp_jinja_build_add(run, (struct lp_str){text.data, 1}));
            text.data++;
            text.len--;
        }
    }
    for (size_t i = 0; i < pad && !spec->left; i++) TRY(lp_jinja_build_add(run, fill));
    TRY(lp_jinja_build_add(run, text));
    for (size_t i = 0; i < pad && spec->left; i++) TRY(lp_jinja_build_puts(run, " "));
    return true;
}

static bool format_number(run_state *run, const struct spec *spec, lp_value v) {
    char format[16], text[512];
    double x;
    int64_t i;
    bool whole = strchr("diuxXoc", spec->type) != NULL;
    int n = snprintf(format, sizeof format, "%%%s%s%s", spec->plus ? "+" : "",
                     spec->space ? " " : "", spec->alternate ? "#" : "");
    if (v.type == LP_JINJA_FLOAT && strchr("diu", spec->type)) {
        if (!(fabs(v.f) < 9.2e18)) return overflow(run);
        i = (int64_t)v.f;
    } else if (whole && !lp_jinja_as_int(v, &i)) {
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "%%%c needs an integer, not %s", spec->type,
                             lp_jinja_type_name(v));
    } else if (!whole && !lp_jinja_as_double(v, &x)) {
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "%%%c needs a number, not %s", spec->type,
                             lp_jinja_type_name(v));
    }
    int precision = spec->precision > 100 ? 100 : (int)spec->precision;
    if (whole) {
        bool base = strchr("xXo", spec->type) != NULL;
        if (base && i < 0)
            return lp_jinja_fail(run, LP_STATUS_UNSUPPORTED,
                                 "%%%c of a negative number is not "
                                 "supported",
                                 spec->type);
        snprintf(format + n, sizeof format - (size_t)n, ".*ll%c", base ? spec->type : 'd');
        snprintf(text, sizeof text, format, precision < 0 ? 1 : precision, (long long)i);
    } else {
        snprintf(format + n, sizeof format - (size_t)n, ".*%c", spec->type);
        snprintf(text, sizeof text, format, precision < 0 ? 6 : precision, x);
    }
    return add_padded(run, spec, lp_str_from(text), true);
}

static bool format_text(run_state *run, const struct spec *spec, lp_value v, bool escape) {
    lp_value text;
    size_t begin = lp_jinja_build_begin(run);
    if (spec->type == 'r' || spec->type == 'a')
        TRY(lp_jinja_add_repr(run, v, 0));
    else if (escape && lp_jinja_is_str(v) && v.sub != LP_JINJA_SAFE)
        TRY(lp_jinja_add_escaped(run, v.s));
    else
        TRY(lp_jinja_add_str(run, v));
    TRY(lp_jinja_build_end(run, begin, &text));
    if (spec->precision >= 0) text.s.len = lp_jinja_str_offset(text.s, (size_t)spec->precision);
    return add_padded(run, spec, text.s, false);
}

static bool format_char(run_state *run, const struct spec *spec, lp_value v) {
    int64_t i;
    char text[4];
    if (lp_jinja_is_str(v) && lp_jinja_str_count(v.s) == 1)
        return add_padded(run, spec, v.s, false);
    if (!lp_jinja_as_int(v, &i) || i < 0 || i > 0x10ffff || (i >= 0xd800 && i < 0xe000))
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "%%c needs one character");
    size_t n = lp_jinja_utf8_put((uint32_t)i, text);
    return add_padded(run, spec, (struct lp_str){text, n}, false);
}

struct format_state {
    struct lp_str format;
    size_t at;
    lp_value args;
    size_t used; // positional ones
};

static bool next_arg(run_state *run, struct format_state *f, lp_value *out) {
    size_t n = lp_jinja_is_tuple(f->args) ? f->args.seq->n : 1;
    if (f->used >= n)
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "a format has more '%%' than arguments");
    *out = lp_jinja_is_tuple(f->args) ? f->args.seq->items[f->used] : f->args;
    f->used++;
    return true;
}

static char peek_char(const struct format_state *f) {
    return f->at < f->format.len ? f->format.data[f->at] : 0;
}

// A width or precision: digits, or * for an argument.
static bool format_count(run_state *run, struct format_state *f, int64_t *out) {
    *out = 0;
    if (peek_char(f) == '*') {
        lp_value v;
        f->at++;
        TRY(next_arg(run, f, &v));
        if (!lp_jinja_as_int(v, out))
            return lp_jinja_fail(run, LP_STATUS_FORMAT, "'*' in a format needs an integer");
        if (*out < -INT32_MAX || *out > INT32_MAX)
            return lp_jinja_fail(run, LP_STATUS_LIMIT, "a width in a format is too large");
        return true;
    }
    while (peek_char(f) >= '0' && peek_char(f) <= '9') {
        *out = *out * 10 + (f->format.data[f->at++] - '0');
        if (*out > INT32_MAX)
            return lp_jinja_fail(run, LP_STATUS_LIMIT, "a width in a format is too large");
    }
    return true;
}

static bool format_key(run_state *run, struct format_state *f, lp_value *out, bool *has_key) {
    *has_key = peek_char(f) == '(';
    if (!*has_key) return true;
    struct lp_str key = {f->format.data + ++f->at, 0};
    while (f->at < f->format.len && f->format.data[f->at] != ')') f->at++, key.len++;
    f->at++;
    if (f->args.type != LP_JINJA_DICT)
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "%%(name) in a format needs a dict");
    lp_value *found;
    TRY(lp_jinja_dict_find(run, f->args.dict, lp_jinja_str(key), &found));
    if (!found)
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "the format's dict has no '%.*s'",
                             LP_STR_ARGS(key));
    *out = *found;
    return true;
}

static bool format_one(run_state *run, struct format_state *f, bool escape) {
    struct spec spec = {.precision = -1};
    lp_value v = {0};
    bool has_key;
    TRY(format_key(run, f, &v, &has_key));
    for (;; f->at++) {
        char c = peek_char(f);
        if (c == '-')
            spec.left = true;
        else if (c == '0')
            spec.zero = true;
        else if (c == '+')
            spec.plus = true;
        else if (c == ' ')
            spec.space = true;
        else if (c == '#')
            spec.alternate = true;
        else
            break;
    }
    TRY(format_count(run, f, &spec.width));
    if (spec.width < 0) {
        spec.left = true;
        spec.width = -spec.width;
    }
    if (peek_char(f) == '.') {
        f->at++;
        TRY(format_count(run, f, &spec.precision));
        if (spec.precision < 0) spec.precision = 0;
    }
    while (peek_char(f) && strchr("hlL", peek_char(f))) f->at++;
    spec.type = peek_char(f);
    f->at++;
    if (spec.type == '%') return lp_jinja_build_puts(run, "%");
    if (!spec.type || !strchr("sradiuxXocfFeEgG", spec.type))
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "a format has an unknown or cut '%%'");
    if (!has_key) TRY(next_arg(run, f, &v));
    if (strchr("sra", spec.type)) return format_text(run, &spec, v, escape);
    if (spec.type == 'c') return format_char(run, &spec, v);
    if (lp_jinja_is_undefined(v)) return lp_jinja_fail_undefined(run, v);
    return format_number(run, &spec, v);
}

bool lp_jinja_format(run_state *run, lp_value format, lp_value args, lp_value *out) {
    struct format_state f = {.format = format.s, .args = args};
    bool escape = format.sub == LP_JINJA_SAFE;
    size_t begin = lp_jinja_build_begin(run);
    while (f.at < f.format.len) {
        const char *from = f.format.data + f.at;
        const char *percent = memchr(from, '%', f.format.len - f.at);
        size_t plain = percent ? (size_t)(percent - from) : f.format.len - f.at;
        TRY(lp_jinja_build_add(run, (struct lp_str){from, plain}));
        f.at += plain + (percent != NULL);
        if (percent) TRY(format_one(run, &f, escape));
    }
    // What could be subscripted by name may stay unused, as in Python.
    bool takes_any = args.type == LP_JINJA_DICT || args.type == LP_JINJA_UNDEFINED ||
                     lp_jinja_is_seq(args, LP_JINJA_LIST) || lp_jinja_is_seq(args, LP_JINJA_RANGE);
    size_t n = lp_jinja_is_tuple(args) ? args.seq->n : 1;
    if (!takes_any && f.used < n)
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "a format has fewer '%%' than arguments");
    TRY(lp_jinja_build_end(run, begin, out));
    out->sub = format.sub;
    return true;
}
