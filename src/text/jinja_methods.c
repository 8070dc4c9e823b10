// The methods of strings, as Python's str has them. Positions count characters.
#include <string.h>

#include "text/jinja_builtins.h"
#include "text/jinja_str.h"
#include "text/jinja_text.h"
#include "text/jinja_try.h"

typedef struct lp_jinja_run run_state;
typedef struct lp_jinja_call call_args;

static bool give(const call_args *call, struct lp_str s, lp_value *out) {
    *out = lp_jinja_str(s);
    out->sub = call->self.sub;
    return true;
}

// ---- strip ------------------------------------------------------------------------------------

static bool strip(run_state *run, call_args *call, enum lp_jinja_sides sides, lp_value *out) {
    struct lp_str chars = {0};
    if (lp_jinja_arg(call, 0).type != LP_JINJA_NONE)
        TRY(lp_jinja_arg_str(run, call, 0, chars, &chars));
    if (chars.data == NULL && lp_jinja_arg(call, 0).type != LP_JINJA_NONE) chars.data = "";
    TRY(lp_jinja_spend_bytes(run, call->self.s.len));
    return give(call, lp_jinja_str_strip(call->self.s, chars, sides), out);
}

static bool str_strip(run_state *run, call_args *call, lp_value *out) {
    return strip(run, call, LP_JINJA_BOTH, out);
}
static bool str_lstrip(run_state *run, call_args *call, lp_value *out) {
    return strip(run, call, LP_JINJA_LEFT, out);
}
static bool str_rstrip(run_state *run, call_args *call, lp_value *out) {
    return strip(run, call, LP_JINJA_RIGHT, out);
}

static bool str_removeprefix(run_state *run, call_args *call, lp_value *out) {
    struct lp_str s = call->self.s, cut;
    TRY(lp_jinja_arg_str(run, call, 0, (struct lp_str){0}, &cut));
    bool has = cut.len && cut.len <= s.len && !memcmp(s.data, cut.data, cut.len);
    return give(call, has ? (struct lp_str){s.data + cut.len, s.len - cut.len} : s, out);
}

static bool str_removesuffix(run_state *run, call_args *call, lp_value *out) {
    struct lp_str s = call->self.s, cut;
    TRY(lp_jinja_arg_str(run, call, 0, (struct lp_str){0}, &cut));
    bool has = cut.len && cut.len <= s.len && !memcmp(s.data + s.len - cut.len, cut.data, cut.len);
    return give(call, has ? (struct lp_str){s.data, s.len - cut.len} : s, out);
}

// ---- split ------------------------------------------------------------------------------------

struct pieces { // grows in the arena
    lp_value *items;
    size_t n, capacity;
    uint8_t sub;
};

static bool add_piece(run_state *run, struct pieces *list, struct lp_str s) {
    if (list->n == list->capacity) {
        size_t capacity = list->capacity ? list->capacity * 2 : 4;
        lp_value *items = lp_jinja_alloc(run, capacity, sizeof *items);
        TRY(items);
        if (list->n) memcpy(items, list->items, list->n * sizeof *items);
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->n] = lp_jinja_str(s);
    list->items[list->n++].sub = list->sub;
    return true;
}

static bool give_pieces(run_state *run, const struct pieces *list, bool reversed, lp_value *out) {
    TRY(lp_jinja_seq_new(run, LP_JINJA_LIST, list->n, out));
    for (size_t i = 0; i < list->n; i++)
        out->seq->items[i] = list->items[reversed ? list->n - 1 - i : i];
    return true;
}

static bool split_space(run_state *run, struct lp_str s, int64_t most, struct pieces *list) {
    while (true) {
        s = lp_jinja_str_strip(s, (struct lp_str){0}, LP_JINJA_LEFT);
        if (!s.len) return true;
        if (most >= 0 && (int64_t)list->n >= most) return add_piece(run, list, s);
        size_t end = 0;
        while (end < s.len) {
            uint32_t cp;
            size_t n = lp_jinja_utf8_next(s, end, &cp);
            if (lp_jinja_is_space(cp)) break;
            end += n;
        }
        TRY(add_piece(run, list, (struct lp_str){s.data, end}));
        s.data += end;
        s.len -= end;
    }
}

// From the right; the pieces come last first.
static bool rsplit_space(run_state *run, struct lp_str s, int64_t most, struct pieces *list) {
    while (true) {
        s = lp_jinja_str_strip(s, (struct lp_str){0}, LP_JINJA_RIGHT);
        if (!s.len) return true;
        if (most >= 0 && (int64_t)list->n >= most) return add_piece(run, list, s);
        size_t begin = s.len;
        while (begin > 0) {
            size_t at = begin - 1;
            while (at > 0 && ((unsigned char)s.data[at] & 0xc0) == 0x80) at--;
            uint32_t cp;
            lp_jinja_utf8_next(s, at, &cp);
            if (lp_jinja_is_space(cp)) break;
            begin = at;
        }
        TRY(add_piece(run, list, (struct lp_str){s.data + begin, s.len - begin}));
        s.len = begin;
    }
}

static bool split_at(run_state *run, struct lp_str s, struct lp_str by, int64_t most,
                     struct pieces *list) {
    for (size_t from = 0;;) {
        size_t hit = most >= 0 && (int64_t)list->n >= most ? LP_JINJA_NOT_FOUND
                                                           : lp_jinja_str_find(s, by, from);
        size_t end = hit == LP_JINJA_NOT_FOUND ? s.len : hit;
        TRY(add_piece(run, list, (struct lp_str){s.data + from, end - from}));
        if (hit == LP_JINJA_NOT_FOUND) return true;
        from = hit + by.len;
    }
}

static bool rsplit_at(run_state *run, struct lp_str s, struct lp_str by, int64_t most,
                      struct pieces *list) {
    for (;;) {
        size_t hit =
            most >= 0 && (int64_t)list->n >= most ? LP_JINJA_NOT_FOUND : lp_jinja_str_rfind(s, by);
        size_t begin = hit == LP_JINJA_NOT_FOUND ? 0 : hit + by.len;
        TRY(lp_jinja_spend(run, (s.len - begin) / 64 * (by.len / 8 + 1) + 1));
        TRY(add_piece(run, list, (struct lp_str){s.data + begin, s.len - begin}));
        if (hit == LP_JINJA_NOT_FOUND) return true;
        s.len = hit;
    }
}

static bool split(run_state *run, call_args *call, bool right, lp_value *out) {
    struct lp_str by = {0}, s = call->self.s;
    int64_t most;
    struct pieces list = {.sub = call->self.sub};
    bool by_space = lp_jinja_arg(call, 0).type == LP_JINJA_NONE;
    if (!by_space) TRY(lp_jinja_arg_str(run, call, 0, by, &by));
    TRY(lp_jinja_arg_int(run, call, 1, -1, &most) && lp_jinja_spend_bytes(run, s.len));
    if (!by_space && !by.len)
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "split by an empty string");
    if (by_space)
        TRY(right ? rsplit_space(run, s, most, &list) : split_space(run, s, most, &list));
    else
        TRY(right ? rsplit_at(run, s, by, most, &list) : split_at(run, s, by, most, &list));
    return give_pieces(run, &list, right, out);
}

static bool str_split(run_state *run, call_args *call, lp_value *out) {
    return split(run, call, false, out);
}
static bool str_rsplit(run_state *run, call_args *call, lp_value *out) {
    return split(run, call, true, out);
}

static bool str_splitlines(run_state *run, call_args *call, lp_value *out) {
    struct lp_str s = call->self.s;
    struct pieces list = {.sub = call->self.sub};
    bool keep = lp_jinja_arg_truth(call, 0, false);
    TRY(lp_jinja_spend_bytes(run, s.len));
    size_t from = 0;
    for (size_t at = 0; at < s.len;) {
        uint32_t cp;
        size_t n = lp_jinja_line_break(s, at);
        if (n) {
            TRY(add_piece(run, &list, (struct lp_str){s.data + from, at + (keep ? n : 0) - from}));
            from = at + n;
        }
        at += n ? n : lp_jinja_utf8_next(s, at, &cp);
    }
    if (from < s.len) TRY(add_piece(run, &list, (struct lp_str){s.data + from, s.len - from}));
    return give_pieces(run, &list, false, out);
}

static bool partition(run_state *run, call_args *call, bool right, lp_value *out) {
    struct lp_str s = call->self.s, by;
    TRY(lp_jinja_arg_str(run, call, 0, (struct lp_str){0}, &by) &&
        lp_jinja_spend(run, s.len / 64 * (by.len / 8 + 1)));
    if (!by.len) return lp_jinja_fail(run, LP_STATUS_FORMAT, "partition by an empty string");
    size_t hit = right ? lp_jinja_str_rfind(s, by) : lp_jinja_str_find(s, by, 0);
    bool found = hit != LP_JINJA_NOT_FOUND;
    struct lp_str none = {"", 0}, part[3] = {right ? none : s, none, right ? s : none};
    if (found) {
        part[0] = (struct lp_str){s.data, hit};
        part[1] = by;
        part[2] = (struct lp_str){s.data + hit + by.len, s.len - hit - by.len};
    }
    TRY(lp_jinja_seq_new(run, LP_JINJA_TUPLE, 3, out));
    for (int i = 0; i < 3; i++) give(call, part[i], &out->seq->items[i]);
    return true;
}

static bool str_partition(run_state *run, call_args *call, lp_value *out) {
    return partition(run, call, false, out);
}
static bool str_rpartition(run_state *run, call_args *call, lp_value *out) {
    return partition(run, call, true, out);
}

// ---- search -----------------------------------------------------------------------------------

// The stretch of self between arguments `first` and `first + 1` (start, end in characters);
// *shift: characters before it; false in *possible when start lies past the end.
static bool stretch(run_state *run, const call_args *call, int first, struct lp_str *out,
                    size_t *shift, bool *possible) {
    struct lp_str s = call->self.s;
    *out = s;
    *shift = 0;
    *possible = true;
    lp_value from = lp_jinja_arg(call, first), to = lp_jinja_arg(call, first + 1);
    if (from.type == LP_JINJA_NONE && to.type == LP_JINJA_NONE) return true;
    int64_t n = (int64_t)lp_jinja_str_count(s), begin = 0, end = n;
    if (from.type != LP_JINJA_NONE) TRY(lp_jinja_arg_int(run, call, first, 0, &begin));
    if (to.type != LP_JINJA_NONE) TRY(lp_jinja_arg_int(run, call, first + 1, n, &end));
    if (begin < 0) begin = begin + n < 0 ? 0 : begin + n;
    if (end < 0) end = end + n < 0 ? 0 : end + n;
    if (end > n) end = n;
    *possible = begin <= end;
    if (!*possible) begin = end;
    size_t at = lp_jinja_str_offset(s, (size_t)begin);
    *out = (struct lp_str){s.data + at, lp_jinja_str_offset(s, (size_t)end) - at};
    *shift = (size_t)begin;
    return true;
}

static bool search(run_state *run, call_args *call, bool right, bool must, lp_value *out) {
    struct lp_str s, what;
    size_t shift;
    bool possible;
    TRY(lp_jinja_arg_str(run, call, 0, (struct lp_str){0}, &what));
    TRY(stretch(run, call, 1, &s, &shift, &possible));
    TRY(lp_jinja_spend(run, s.len / 64 * (right ? what.len / 8 + 1 : 1)));
    size_t hit = !possible ? LP_JINJA_NOT_FOUND
                 : right   ? lp_jinja_str_rfind(s, what)
                           : lp_jinja_str_find(s, what, 0);
    if (hit == LP_JINJA_NOT_FOUND && must)
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "index: the text is not in the string");
    *out = lp_jinja_int(hit == LP_JINJA_NOT_FOUND
                            ? -1
                            : (int64_t)(shift + lp_jinja_str_count((struct lp_str){s.data, hit})));
    return true;
}

static bool str_find(run_state *run, call_args *call, lp_value *out) {
    return search(run, call, false, false, out);
}
static bool str_rfind(run_state *run, call_args *call, lp_value *out) {
    return search(run, call, true, false, out);
}
static bool str_index(run_state *run, call_args *call, lp_value *out) {
    return search(run, call, false, true, out);
}
static bool str_rindex(run_state *run, call_args *call, lp_value *out) {
    return search(run, call, true, true, out);
}

static bool str_count(run_state *run, call_args *call, lp_value *out) {
    struct lp_str s, what;
    size_t shift;
    bool possible;
    TRY(lp_jinja_arg_str(run, call, 0, (struct lp_str){0}, &what));
    TRY(stretch(run, call, 1, &s, &shift, &possible) && lp_jinja_spend_bytes(run, s.len));
    int64_t n = 0;
    if (!what.len)
        n = possible ? (int64_t)lp_jinja_str_count(s) + 1 : 0;
    else
        for (size_t at = 0; (at = lp_jinja_str_find(s, what, at)) != LP_JINJA_NOT_FOUND; n++)
            at += what.len;
    *out = lp_jinja_int(n);
    return true;
}

static bool ends_match(struct lp_str s, struct lp_str what, bool end) {
    return what.len <= s.len &&
           (!what.len || !memcmp(s.data + (end ? s.len - what.len : 0), what.data, what.len));
}

static bool affix(run_state *run, call_args *call, bool end, lp_value *out) {
    struct lp_str s;
    size_t shift;
    bool possible, yes = false;
    lp_value what = call->arg[0];
    TRY(stretch(run, call, 1, &s, &shift, &possible));
    size_t n = lp_jinja_is_tuple(what) ? what.seq->n : 1;
    for (size_t i = 0; i < n && !yes; i++) {
        if (lp_jinja_is_tuple(what)) call->arg[0] = what.seq->items[i];
        struct lp_str one;
        TRY(lp_jinja_arg_str(run, call, 0, (struct lp_str){0}, &one));
        yes = possible && ends_match(s, one, end);
    }
    *out = lp_jinja_bool(yes);
    return true;
}

static bool str_startswith(run_state *run, call_args *call, lp_value *out) {
    return affix(run, call, false, out);
}
static bool str_endswith(run_state *run, call_args *call, lp_value *out) {
    return affix(run, call, true, out);
}

// ---- replace, join, case ----------------------------------------------------------------------

static bool str_replace(run_state *run, call_args *call, lp_value *out) {
    struct lp_str old, new;
    int64_t most;
    TRY(lp_jinja_arg_str(run, call, 0, (struct lp_str){0}, &old) &&
        lp_jinja_arg_str(run, call, 1, (struct lp_str){0}, &new) &&
        lp_jinja_arg_int(run, call, 2, -1, &most));
    if (call->self.sub == LP_JINJA_SAFE && call->arg[1].sub != LP_JINJA_SAFE) {
        lp_value escaped;
        size_t begin = lp_jinja_build_begin(run);
        TRY(lp_jinja_add_escaped(run, new) && lp_jinja_build_end(run, begin, &escaped));
        new = escaped.s;
    }
    TRY(lp_jinja_text_replace(run, call->self.s, old, new, most, out));
    out->sub = call->self.sub;
    return true;
}

static bool str_join(run_state *run, call_args *call, lp_value *out) {
    lp_value *items;
    size_t n;
    TRY(lp_jinja_items(run, call->arg[0], &items, &n));
    size_t begin = lp_jinja_build_begin(run);
    for (size_t i = 0; i < n; i++) {
        if (i) TRY(lp_jinja_build_add(run, call->self.s));
        if (!lp_jinja_is_str(items[i]))
            return lp_jinja_fail(run, LP_STATUS_FORMAT, "join needs strings, but item %zu is %s", i,
                                 lp_jinja_type_name(items[i]));
        TRY(lp_jinja_build_add(run, items[i].s));
    }
    TRY(lp_jinja_build_end(run, begin, out));
    out->sub = call->self.sub;
    return true;
}

#define CASE_METHOD(name, mode)                                                                    \
    static bool str_##name(run_state *run, call_args *call, lp_value *out) {                       \
        return lp_jinja_text_case(run, call->self, mode, out);                                     \
    }
CASE_METHOD(lower, LP_JINJA_TEXT_LOWER)
CASE_METHOD(upper, LP_JINJA_TEXT_UPPER)
CASE_METHOD(capitalize, LP_JINJA_TEXT_CAPITALIZE)
CASE_METHOD(title, LP_JINJA_TEXT_TITLE)
CASE_METHOD(swapcase, LP_JINJA_TEXT_SWAP)

// ---- questions about characters ---------------------------------------------------------------

static bool all_in(run_state *run, call_args *call, const enum lp_jinja_class *classes, size_t n,
                   lp_value *out) {
    struct lp_str s = call->self.s;
    bool yes = s.len > 0;
    TRY(lp_jinja_spend_bytes(run, s.len));
    for (size_t at = 0; at < s.len && yes;) {
        uint32_t cp;
        at += lp_jinja_utf8_next(s, at, &cp);
        yes = false;
        for (size_t i = 0; i < n && !yes; i++) yes = lp_jinja_in_class(cp, classes[i]);
    }
    *out = lp_jinja_bool(yes);
    return true;
}

#define CLASS_METHOD(name, ...)                                                                    \
    static bool str_##name(run_state *run, call_args *call, lp_value *out) {                       \
        static const enum lp_jinja_class classes[] = {__VA_ARGS__};                                \
        return all_in(run, call, classes, sizeof classes / sizeof *classes, out);                  \
    }
CLASS_METHOD(isalpha, LP_JINJA_CLASS_ALPHA)
CLASS_METHOD(isdecimal, LP_JINJA_CLASS_DECIMAL)
CLASS_METHOD(isdigit, LP_JINJA_CLASS_DIGIT)
CLASS_METHOD(isnumeric, LP_JINJA_CLASS_NUMERIC)
CLASS_METHOD(isalnum, LP_JINJA_CLASS_ALPHA, LP_JINJA_CLASS_DECIMAL, LP_JINJA_CLASS_DIGIT,
             LP_JINJA_CLASS_NUMERIC)

static bool str_isspace(run_state *run, call_args *call, lp_value *out) {
    struct lp_str s = call->self.s;
    TRY(lp_jinja_spend_bytes(run, s.len));
    *out = lp_jinja_bool(s.len && !lp_jinja_str_strip(s, (struct lp_str){0}, LP_JINJA_LEFT).len);
    return true;
}

static bool str_islower(run_state *run, call_args *call, lp_value *out) {
    return lp_jinja_test(lp_str_from("lower"))->fn(run, call, out);
}
static bool str_isupper(run_state *run, call_args *call, lp_value *out) {
    return lp_jinja_test(lp_str_from("upper"))->fn(run, call, out);
}

// ---- padding and format -----------------------------------------------------------------------

static bool pad(run_state *run, call_args *call, enum lp_jinja_sides sides, lp_value *out) {
    int64_t width;
    struct lp_str fill;
    TRY(lp_jinja_arg_int(run, call, 0, 0, &width) &&
        lp_jinja_arg_str(run, call, 1, lp_str_from(" "), &fill));
    if (lp_jinja_str_count(fill) != 1)
        return lp_jinja_fail(run, LP_STATUS_FORMAT, "the fill must be one character");
    TRY(lp_jinja_text_pad(run, call->self.s, width, fill, sides, out));
    out->sub = call->self.sub;
    return true;
}

static bool str_ljust(run_state *run, call_args *call, lp_value *out) {
    return pad(run, call, LP_JINJA_RIGHT, out);
}
static bool str_rjust(run_state *run, call_args *call, lp_value *out) {
    return pad(run, call, LP_JINJA_LEFT, out);
}
static bool str_center(run_state *run, call_args *call, lp_value *out) {
    return pad(run, call, LP_JINJA_BOTH, out);
}

static bool str_zfill(run_state *run, call_args *call, lp_value *out) {
    int64_t width;
    struct lp_str s = call->self.s;
    lp_value digits;
    TRY(lp_jinja_arg_int(run, call, 0, 0, &width));
    size_t sign = s.len && (s.data[0] == '-' || s.data[0] == '+');
    struct lp_str rest = {s.data + sign, s.len - sign};
    if (width < (int64_t)sign) width = (int64_t)sign;
    TRY(lp_jinja_text_pad(run, rest, width - (int64_t)sign, lp_str_from("0"), LP_JINJA_LEFT,
                          &digits));
    size_t begin = lp_jinja_build_begin(run);
    return lp_jinja_build_add(run, (struct lp_str){s.data, sign}) &&
           lp_jinja_build_add(run, digits.s) && lp_jinja_build_end(run, begin, out);
}

// The value that a field of str.format names: a number, a name, or nothing (the next one).
static bool format_field(run_state *run, const call_args *call, struct lp_str field, size_t *next,
                         lp_value *out) {
    if (memchr(field.data, ':', field.len) || memchr(field.data, '!', field.len) ||
        memchr(field.data, '.', field.len) || memchr(field.data, '[', field.len))
        return lp_jinja_fail(run, LP_STATUS_UNSUPPORTED,
                             "str.format supports {}, {0} and {name} only, not {%.*s}",
                             LP_STR_ARGS(field));
    size_t at = 0;
    if (!field.len) at = (*next)++;
    for (size_t i = 0; i < field.len; i++) {
        char c = field.data[i];
        if (c < '0' || c > '9' || at > 100000) at = SIZE_MAX;
        if (at != SIZE_MAX) at = at * 10 + (size_t)(c - '0');
    }
    if (at < call->n_pos) {
        *out = call->pos[at];
        return true;
    }
    for (size_t i = 0; i < call->n_named; i++)
        if (lp_str_equal(call->named[i].name, field)) {
            *out = call->named[i].value;
            return true;
        }
    return lp_jinja_fail(run, LP_STATUS_FORMAT, "str.format has no value for {%.*s}",
                         LP_STR_ARGS(field));
}

static bool str_format(run_state *run, call_args *call, lp_value *out) {
    struct lp_str s = call->self.s;
    size_t begin = lp_jinja_build_begin(run), next = 0;
    for (size_t at = 0; at < s.len;) {
        char c = s.data[at];
        bool brace = c == '{' || c == '}';
        if (!brace || (at + 1 < s.len && s.data[at + 1] == c)) {
            TRY(lp_jinja_build_add(run, (struct lp_str){s.data + at, 1}));
            at += brace ? 2 : 1;
            continue;
        }
        const char *end = c == '{' ? memchr(s.data + at, '}', s.len - at) : NULL;
        if (!end) return lp_jinja_fail(run, LP_STATUS_FORMAT, "str.format met a single brace");
        struct lp_str field = {s.data + at + 1, (size_t)(end - s.data) - at - 1};
        lp_value v;
        TRY(format_field(run, call, field, &next, &v) && lp_jinja_add_str(run, v));
        at = (size_t)(end - s.data) + 1;
    }
    return lp_jinja_build_end(run, begin, out);
}

const struct lp_jinja_builtin lp_jinja_str_method_table[] = {
    {"strip", "chars", 0, str_strip},
    {"lstrip", "chars", 0, str_lstrip},
    {"rstrip", "chars", 0, str_rstrip},
    {"split", "sep,maxsplit", 0, str_split},
    {"rsplit", "sep,maxsplit", 0, str_rsplit},
    {"splitlines", "keepends", 0, str_splitlines},
    {"partition", "sep", 1, str_partition},
    {"rpartition", "sep", 1, str_rpartition},
    {"startswith", "prefix,start,end", 1, str_startswith},
    {"endswith", "suffix,start,end", 1, str_endswith},
    {"removeprefix", "prefix", 1, str_removeprefix},
    {"removesuffix", "suffix", 1, str_removesuffix},
    {"find", "sub,start,end", 1, str_find},
    {"rfind", "sub,start,end", 1, str_rfind},
    {"index", "sub,start,end", 1, str_index},
    {"rindex", "sub,start,end", 1, str_rindex},
    {"count", "sub,start,end", 1, str_count},
    {"replace", "old,new,count", 2, str_replace},
    {"join", "iterable", 1, str_join},
    {"lower", "", 0, str_lower},
    {"casefold", "", 0, str_lower},
    {"upper", "", 0, str_upper},
    {"capitalize", "", 0, str_capitalize},
    {"title", "", 0, str_title},
    {"swapcase", "", 0, str_swapcase},
    {"isalpha", "", 0, str_isalpha},
    {"isdecimal", "", 0, str_isdecimal},
    {"isdigit", "", 0, str_isdigit},
    {"isnumeric", "", 0, str_isnumeric},
    {"isalnum", "", 0, str_isalnum},
    {"isspace", "", 0, str_isspace},
    {"islower", "", 0, str_islower},
    {"isupper", "", 0, str_isupper},
    {"ljust", "width,fillchar", 1, str_ljust},
    {"rjust", "width,fillchar", 1, str_rjust},
    {"center", "width,fillchar", 1, str_center},
    {"zfill", "width", 1, str_zfill},
    {"format", NULL, 0, str_format},
    {0},
};
