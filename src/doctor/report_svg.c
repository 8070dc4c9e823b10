#include "doctor/report_svg.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "doctor/report_view.h"

// The drawing, in units of its own; a page shows it at about 340 to 520 pixels of width.
//
//      y label                        bound
//     +-------------------------------------+ TOP
//     |                                     |
//     +-------------------------------------+ BOTTOM (of what is positive: ZERO_BAND above it)
//   left            x label               RIGHT
enum {
    WIDTH = 440,
    HEIGHT = 236,
    RIGHT = 428,
    TOP = 30,
    BOTTOM = 190,
    ZERO_BAND = 18,   // below a logarithmic axis, for values that it has no place for
    MAX_DOTS = 130,   // more values than that are a line without dots
    MAX_POINTS = 600, // more are drawn as the least and the greatest of each of half as many groups
    MAX_LABEL = 44,   // characters
};
#define HUGE_VALUE 1e300 // further out than that is drawn there: differences must stay finite

struct axis {
    double low, high; // of the values, or of their logarithms
    double step;
    bool log;
    double bottom; // where low is
};

struct plot {
    const struct lp_series *series;
    struct axis y;
    double left;  // as far in as the labels of the ticks need
    double limit; // of the bound, or NaN
    bool has_low; // values that a logarithmic axis has no place for
    struct lp_bytes *out;
};

// ---- axes ----

static double clip(double value) {
    return fmax(-HUGE_VALUE, fmin(HUGE_VALUE, value));
}

// 1, 2 or 5 times a power of ten, so that the range has at most n steps.
static double nice_step(double range, int n) {
    double raw = range / n, power = pow(10, floor(log10(raw)));
    static const double steps[] = {1, 2, 5};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
        if (steps[i] * power >= raw * (1 - 1e-9)) return steps[i] * power;
    return 10 * power;
}

static void take_range(struct plot *p, double value, double *low, double *high) {
    if (!isfinite(value)) return;
    if (p->series->log_y && value <= 0) {
        p->has_low = true;
        return;
    }
    value = p->series->log_y ? log10(value) : clip(value);
    if (!(value >= *low)) *low = value; // NaN at first
    if (!(value <= *high)) *high = value;
}

static void set_log_axis(struct axis *y, double low, double high) {
    y->low = floor(low + 1e-9);
    y->high = ceil(high - 1e-9);
    if (y->high <= y->low) y->high = y->low + 1;
    y->step = ceil((y->high - y->low) / 6);
}

static void set_linear_axis(struct axis *y, double low, double high) {
    if (low >= 0 && low <= high / 2) low = 0;          // near enough for the eye to ask for it
    double room = fmax(fabs(low), fabs(high)) * 1e-12; // less than that is no range
    if (high - low <= room) {
        double half = high != 0 ? fabs(high) / 2 : 1;
        low -= half;
        high += half;
    }
    y->step = nice_step(high - low, 5);
    y->low = floor(low / y->step + 1e-9) * y->step;
    y->high = ceil(high / y->step - 1e-9) * y->step;
}

static void set_axis(struct plot *p) {
    double low = NAN, high = NAN;
    for (size_t i = 0; i < p->series->n; i++) take_range(p, p->series->values[i], &low, &high);
    bool low_values = p->has_low;
    take_range(p, p->limit, &low, &high);
    p->has_low = low_values; // a limit that has no place is not drawn
    if (isnan(low)) low = high = 0;
    p->y.log = p->series->log_y;
    if (p->y.log)
        set_log_axis(&p->y, low, high);
    else
        set_linear_axis(&p->y, low, high);
    p->y.bottom = BOTTOM - (p->has_low ? ZERO_BAND : 0);
}

static double place_y(const struct axis *y, double value) {
    double v = y->log ? log10(value) : clip(value);
    return y->bottom - (v - y->low) / (y->high - y->low) * (y->bottom - TOP);
}

static double place_x(const struct plot *p, size_t i) {
    size_t n = p->series->n;
    return n < 2 ? (p->left + RIGHT) / 2
                 : p->left + 8 + (double)i / (double)(n - 1) * (RIGHT - p->left - 16);
}

static void put_label(struct lp_bytes *out, const char *class, double x, double y,
                      const char *text) {
    lp_bytes_printf(out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", class, x, y);
    if (!lp_report_view_escape_cut(out, text, MAX_LABEL)) out->failed = true;
    lp_bytes_puts(out, "</text>\n");
}

static void tick_text(const struct axis *y, int i, char out[32]) {
    double v = y->low + i * y->step;
    if (fabs(v) < y->step * 1e-6) v = 0; // -0, and what is left of a sum
    if (y->log) {
        bool plain = v >= 0 && v < 4;
        snprintf(out, 32, plain ? "%.0f" : "1e%.0f", plain ? pow(10, v) : v);
        return;
    }
    // As many digits as tell two ticks apart.
    double most = fmax(fabs(y->low), fabs(y->high));
    int digits = (int)fmin(12, fmax(3, ceil(log10(most / y->step + 1)) + 1));
    snprintf(out, 32, "%.*g", digits, v);
}

static int last_tick(const struct axis *y) {
    return (int)((y->high - y->low) / y->step + 1e-6);
}

static void set_left(struct plot *p) {
    char text[32];
    size_t longest = 3;
    for (int i = 0; i <= last_tick(&p->y); i++) {
        tick_text(&p->y, i, text);
        if (strlen(text) > longest) longest = strlen(text);
    }
    p->left = 14 + 8 * (double)longest;
}

static void put_y_tick(struct plot *p, double y, const char *text) {
    lp_bytes_printf(p->out, "<path class=\"grid\" d=\"M%.1f %.1fH%d\"/>\n", p->left, y, RIGHT);
    put_label(p->out, "y", p->left - 7, y + 4, text);
}

static void draw_y_axis(struct plot *p) {
    const struct axis *y = &p->y;
    char text[32];
    for (int i = 0; i <= last_tick(y); i++) {
        tick_text(y, i, text);
        put_y_tick(p, y->bottom - i * y->step / (y->high - y->low) * (y->bottom - TOP), text);
    }
    if (p->has_low) put_y_tick(p, BOTTOM, "0");
}

static void draw_x_axis(struct plot *p) {
    const struct lp_series *s = p->series;
    char text[32];
    size_t step = s->n > 1 ? (size_t)nice_step((double)s->n, 9) : 1;
    if (step < 1) step = 1;
    lp_bytes_printf(p->out, "<path class=\"axis\" d=\"M%.1f %dH%d\"/>\n", p->left, BOTTOM, RIGHT);
    for (size_t i = 0; i < s->n; i += step) {
        double x = place_x(p, i);
        snprintf(text, sizeof text, "%zu", i);
        lp_bytes_printf(p->out, "<path class=\"axis\" d=\"M%.1f %dv4\"/>\n", x, BOTTOM);
        put_label(p->out, "x", x, BOTTOM + 17, text);
    }
    put_label(p->out, "x", (p->left + RIGHT) / 2, BOTTOM + 36, s->x_label);
    put_label(p->out, "name", 4, 15, s->y_label);
}

// ---- values ----

enum kind { GAP, VALUE, LOW, INFINITE };

static enum kind kind_of(const struct plot *p, double value) {
    if (isnan(value)) return GAP;
    if (isinf(value)) return INFINITE;
    return p->y.log && value <= 0 ? LOW : VALUE;
}

static double y_of(const struct plot *p, double value) {
    switch (kind_of(p, value)) {
    case VALUE:
        return place_y(&p->y, value);
    case INFINITE:
        return value > 0 ? TOP : BOTTOM;
    default:
        return BOTTOM;
    }
}

// A line through the values; only a gap or an infinity breaks it.
struct pen {
    bool down;
    size_t n_points;
};

static void draw_to(struct plot *p, struct pen *pen, size_t i) {
    double value = p->series->values[i];
    enum kind kind = kind_of(p, value);
    if (kind == GAP || kind == INFINITE) {
        pen->down = false;
        return;
    }
    lp_bytes_printf(p->out, "%s%.1f %.1f", pen->down ? "L" : "M", place_x(p, i), y_of(p, value));
    if (!pen->down) lp_bytes_puts(p->out, "h0"); // a point between two gaps shows, too
    pen->down = true;
}

// Of values from..to the least and the greatest, in their order; a gap where all are gaps.
static void draw_group(struct plot *p, struct pen *pen, size_t from, size_t to) {
    const double *v = p->series->values;
    size_t least = from, greatest = from;
    for (size_t i = from; i < to; i++) {
        if (!(v[i] >= v[least]) && isfinite(v[i])) least = i;
        if (!(v[i] <= v[greatest]) && isfinite(v[i])) greatest = i;
    }
    draw_to(p, pen, least < greatest ? least : greatest);
    if (least != greatest) draw_to(p, pen, least < greatest ? greatest : least);
}

static void draw_line(struct plot *p) {
    size_t n = p->series->n, n_groups = MAX_POINTS / 2;
    struct pen pen = {0};
    lp_bytes_puts(p->out, "<path class=\"line\" d=\"");
    if (n <= MAX_POINTS)
        for (size_t i = 0; i < n; i++) draw_to(p, &pen, i);
    else
        for (size_t g = 0; g < n_groups; g++)
            draw_group(p, &pen, (size_t)((double)g / (double)n_groups * (double)n),
                       (size_t)((double)(g + 1) / (double)n_groups * (double)n));
    lp_bytes_puts(p->out, "\"/>\n");
}

// A dot, which shows its value under a mouse.
static void draw_dot(struct plot *p, size_t i) {
    static const char *const classes[] = {"", "dot", "dot low", "dot bad"};
    double value = p->series->values[i];
    enum kind kind = kind_of(p, value);
    if (kind == GAP) return;
    lp_bytes_printf(p->out, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%s\"><title>",
                    classes[kind], place_x(p, i), y_of(p, value), kind == INFINITE ? "4.5" : "2.8");
    if (!lp_report_view_escape_cut(p->out, p->series->x_label, MAX_LABEL)) p->out->failed = true;
    lp_bytes_printf(p->out, " %zu: %.4g</title></circle>\n", i, value);
}

static void draw_dots(struct plot *p) {
    size_t n_infinite = 0;
    for (size_t i = 0; i < p->series->n; i++) {
        bool infinite = isinf(p->series->values[i]) != 0;
        n_infinite += infinite;
        if (p->series->n <= MAX_DOTS || (infinite && n_infinite <= MAX_DOTS)) draw_dot(p, i);
    }
}

static void draw_bound(struct plot *p, const struct lp_check *bound) {
    if (!isfinite(p->limit) || (p->y.log && p->limit <= 0)) return;
    lp_bytes_printf(p->out, "<path class=\"bound\" d=\"M%.1f %.1fH%d\"/>\n", p->left,
                    place_y(&p->y, p->limit), RIGHT);
    put_label(p->out, "limit", RIGHT, 15, bound->bound);
}

// What somebody hears who does not see it.
static void describe(struct plot *p) {
    const struct lp_series *s = p->series;
    double low = NAN, high = NAN;
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (!isfinite(s->values[i])) continue;
        if (!(s->values[i] >= low)) low = s->values[i];
        if (!(s->values[i] <= high)) high = s->values[i];
        n++;
    }
    if (!lp_report_view_escape_cut(p->out, s->name, 200)) p->out->failed = true;
    if (n)
        lp_bytes_printf(p->out, ": %zu of %zu values are finite, from %.3g to %.3g", n, s->n, low,
                        high);
    else
        lp_bytes_puts(p->out, ": nothing was measured");
}

bool lp_report_svg(struct lp_bytes *out, const struct lp_series *series,
                   const struct lp_check *bound) {
    struct plot p = {.series = series, .limit = bound ? bound->limit : NAN, .out = out};
    set_axis(&p);
    set_left(&p);
    lp_bytes_printf(out, "<svg class=\"plot\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"",
                    WIDTH, HEIGHT);
    describe(&p);
    lp_bytes_puts(out, "\">\n");
    bool empty = true;
    for (size_t i = 0; i < series->n; i++) empty = empty && isnan(series->values[i]);
    if (!empty) draw_y_axis(&p);
    draw_x_axis(&p);
    if (empty)
        put_label(out, "empty", (p.left + RIGHT) / 2, (TOP + BOTTOM) / 2.0, "nothing was measured");
    else {
        draw_bound(&p, bound);
        draw_line(&p);
        draw_dots(&p);
    }
    lp_bytes_puts(out, "</svg>\n");
    return !out->failed;
}
