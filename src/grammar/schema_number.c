// Numbers: "minimum" and its like are kept exactly, digit by digit. Numbers with bounds are written
// without an exponent and with 15 digits at most: so many always survive the way through a double,
// so that a reader finds the number on the right side of the bound.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/digit_walk.h"
#include "grammar/node_list.h"
#include "grammar/schema.h"

#define MAX_REAL_DIGITS 15
#define MAX_MULTIPLE_DIGITS 9 // of multiples of a number above MANY_REMAINDERS
#define MANY_REMAINDERS 20

// A bound as sign * digits * 10^exponent.
struct decimal {
    bool is_set, is_open, is_negative; // is_open: it does not belong to the range
    uint64_t digits;
    int exponent;
};

struct range {
    struct decimal low, high;
};

// ---- bounds ----

// The shortest decimal of a double: what the schema says, or reads as the same.
static struct decimal decimal_of_double(double value) {
    struct decimal out = {.is_set = true, .is_negative = value < 0};
    char text[40];
    for (int n = 14; n <= 16; n++) {
        snprintf(text, sizeof text, "%.*e", n, fabs(value));
        if (strtod(text, NULL) == fabs(value)) break;
    }
    const char *c = text;
    for (bool behind = false; *c && *c != 'e'; c++) {
        if (*c < '0' || *c > '9') {
            behind = true;
            continue;
        }
        out.digits = out.digits * 10 + (uint64_t)(*c - '0');
        out.exponent -= behind;
    }
    if (*c == 'e') out.exponent += (int)strtol(c + 1, NULL, 10);
    return out;
}

static struct decimal decimal_of(const json_t *number) {
    if (json_is_real(number)) return decimal_of_double(json_real_value(number));
    json_int_t n = json_integer_value(number);
    return (struct decimal){.is_set = json_is_integer(number),
                            .is_negative = n < 0,
                            .digits = n < 0 ? -(uint64_t)n : (uint64_t)n};
}

static long double value_of(const json_t *number) {
    return json_is_integer(number) ? (long double)json_integer_value(number)
                                   : (long double)json_real_value(number);
}

// The tighter of two keywords. sign 1: a lower bound, -1: an upper one.
static struct decimal bound(const json_t *flat, const char *closed, const char *open, int sign) {
    const json_t *x = json_object_get(flat, closed), *y = json_object_get(flat, open);
    bool open_wins = y && (!x || sign * value_of(y) >= sign * value_of(x));
    struct decimal out = decimal_of(open_wins ? y : x);
    out.is_open = open_wins;
    return out;
}

static struct decimal negated(struct decimal d) {
    d.is_negative = !d.is_negative;
    return d;
}

// |d| * 10^places, rounded down; *is_more: something was cut off. Large ones saturate.
static uint64_t scaled(struct decimal d, int places, bool *is_more) {
    *is_more = false;
    __uint128_t value = d.digits;
    int shift = d.exponent + places;
    for (; shift > 0 && value && value < UINT64_MAX; shift--) value *= 10;
    for (; shift < 0 && value; shift++) {
        *is_more |= value % 10 != 0;
        value /= 10;
    }
    return value > UINT64_MAX ? UINT64_MAX : (uint64_t)value;
}

// Of magnitudes: the smallest and the largest integer within, at this scale.
static uint64_t low_at(struct decimal d, int places) {
    bool is_more;
    if (!d.is_set || (d.is_negative && d.digits)) return 0;
    uint64_t value = scaled(d, places, &is_more);
    return (is_more || d.is_open) && value < UINT64_MAX ? value + 1 : value;
}

// *none: it is below zero.
static uint64_t high_at(struct decimal d, int places, bool *none) {
    bool is_more;
    *none = false;
    if (!d.is_set) return UINT64_MAX;
    uint64_t value = scaled(d, places, &is_more);
    *none = (d.is_negative && d.digits) || (d.is_open && value == 0 && !is_more);
    return d.is_open && !is_more && value ? value - 1 : value;
}

// ---- digits ----

static uint64_t power_of_ten(int n) {
    uint64_t out = 1;
    for (int i = 0; i < n; i++) out *= 10;
    return out;
}

struct shape {
    int max_digits; // before the point, or of both sides
    bool has_fraction;
    uint32_t multiple;
};

// Adds the magnitudes of a range, one walk for each number of digits before the point.
static void add_magnitudes(struct lp_schema *s, struct lp_digit_walk *walk, struct lp_gb_list *list,
                           struct range range, struct shape shape, bool is_minus) {
    for (int n = 1; n <= shape.max_digits && !lp_gb_failed(s->b); n++) {
        bool none;
        walk->n_whole = n;
        walk->n_fraction = shape.has_fraction ? shape.max_digits - n : 0;
        uint64_t first = n == 1 ? 0 : power_of_ten(n - 1 + walk->n_fraction);
        uint64_t last = power_of_ten(n + walk->n_fraction) - 1;
        walk->low = low_at(range.low, walk->n_fraction);
        walk->high = high_at(range.high, walk->n_fraction, &none);
        if (walk->low < first) walk->low = first;
        if (is_minus && walk->low == 0) walk->low = 1; // -0 is left out
        if (walk->high > last) walk->high = last;
        if (none) return;
        bool never;
        lp_gb_node node = lp_digit_walk(walk, &never);
        if (never) continue;
        if (is_minus) node = LP_GB_SEQ(s->b, lp_gb_word(s->b, "-"), node);
        lp_gb_list_add(s->b, list, node);
    }
}

static lp_gb_node emit_range(struct lp_schema *s, struct range range, struct shape shape) {
    struct lp_digit_walk walk = {.b = s->b, .multiple = shape.multiple};
    struct lp_gb_list list = {0};
    struct range mirror = {negated(range.high), negated(range.low)};
    add_magnitudes(s, &walk, &list, range, shape, false);
    add_magnitudes(s, &walk, &list, mirror, shape, true);
    lp_digit_walk_release(&walk);
    if (list.n) return lp_gb_list_choice(s->b, &list);
    lp_free(list.items);
    return LP_SCHEMA_NEVER;
}

// ---- keywords ----

// "format": "int32" is a range; the other formats of numbers change nothing.
static void narrow_to_int32(const json_t *flat, struct range *range) {
    const char *format = json_string_value(json_object_get(flat, "format"));
    if (!format || strcmp(format, "int32") != 0) return;
    const json_t *low = json_object_get(flat, "minimum"), *high = json_object_get(flat, "maximum");
    if (!range->low.is_set || (low && value_of(low) < INT32_MIN))
        range->low = (struct decimal){.is_set = true, .is_negative = true, .digits = 1u << 31};
    if (!range->high.is_set || (high && value_of(high) > INT32_MAX))
        range->high = (struct decimal){.is_set = true, .digits = INT32_MAX};
}

static bool is_out_of_order(const json_t *flat) {
    static const char *const lows[] = {"minimum", "exclusiveMinimum"};
    static const char *const highs[] = {"maximum", "exclusiveMaximum"};
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 2; k++) {
            const json_t *low = json_object_get(flat, lows[i]);
            const json_t *high = json_object_get(flat, highs[k]);
            if (!low || !high) continue;
            if (value_of(low) > value_of(high)) return true;
            if ((i || k) && value_of(low) == value_of(high)) return true;
        }
    return false;
}

static bool read_multiple(struct lp_schema *s, const json_t *flat, struct shape *shape) {
    const json_t *value = json_object_get(flat, "multipleOf");
    if (!value) return true;
    double m = json_number_value(value);
    if (!(m > 0)) {
        lp_schema_fail(s, LP_STATUS_INVALID, "\"multipleOf\" must be above 0");
    } else if (m != floor(m) || m > LP_DIGIT_WALK_MAX_MULTIPLE) {
        lp_schema_fail(s, LP_STATUS_UNSUPPORTED,
                       "\"multipleOf\" is supported for whole numbers from 1 to %d, not for %.17g",
                       LP_DIGIT_WALK_MAX_MULTIPLE, m);
    }
    if (lp_gb_failed(s->b)) return false;
    shape->multiple = (uint32_t)m;
    shape->has_fraction = false;
    shape->max_digits = m > MANY_REMAINDERS ? MAX_MULTIPLE_DIGITS : LP_JG_MAX_DIGITS;
    return true;
}

// Read as doubles, integers from 2^53 on need not be the ones that were written.
static bool is_inexact(const struct lp_schema *s, const json_t *flat) {
    static const char *const names[] = {"minimum", "maximum", "exclusiveMinimum",
                                        "exclusiveMaximum"};
    for (size_t i = 0; s->integers_as_doubles && i < 4; i++) {
        double size = fabs(json_real_value(json_object_get(flat, names[i])));
        if (size >= 0x1p53 && size < 1e18) return true;
    }
    return false;
}

lp_gb_node lp_schema_number(struct lp_schema *s, json_t *flat, bool integers_only) {
    struct range range = {bound(flat, "minimum", "exclusiveMinimum", 1),
                          bound(flat, "maximum", "exclusiveMaximum", -1)};
    struct shape shape = {integers_only ? LP_JG_MAX_DIGITS : MAX_REAL_DIGITS, !integers_only, 1};
    if (!read_multiple(s, flat, &shape)) return 0;
    if (integers_only) narrow_to_int32(flat, &range);
    if (!range.low.is_set && !range.high.is_set && shape.multiple == 1)
        return lp_jg_use(s->jg, shape.has_fraction ? LP_JG_NUMBER : LP_JG_INTEGER);
    if (is_out_of_order(flat)) return lp_schema_never(s, "the lower bound is above the upper one");
    if (is_inexact(s, flat))
        return lp_schema_fail(s, LP_STATUS_UNSUPPORTED,
                              "bounds of more than 2^53 are not supported in a schema with "
                              "integers of more than 64 bits");
    lp_gb_node node = emit_range(s, range, shape);
    if (node != LP_SCHEMA_NEVER) return node;
    if (shape.has_fraction || shape.max_digits < LP_JG_MAX_DIGITS)
        return lp_schema_fail(s, LP_STATUS_UNSUPPORTED,
                              "the bounds leave no number of %d digits, and longer ones are not "
                              "supported",
                              shape.max_digits);
    return lp_schema_never(s, "no whole number of %d digits lies between the bounds",
                           shape.max_digits);
}
