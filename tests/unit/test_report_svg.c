// Where points lie is computed here from the ticks that are drawn, not from the axis in the source.
#include "lp_test.h"

#include <math.h>

#include "doctor/report_svg.h"

struct tick {
    double y, value;
};

static struct lp_bytes plot(const double *values, size_t n, bool log_y,
                            const struct lp_check *bound) {
    struct lp_bytes out = {0};
    struct lp_series s = {.name = "name",
                          .x_label = "layer",
                          .y_label = "y",
                          .log_y = log_y,
                          .values = (double *)values,
                          .n = n};
    assert_true(lp_report_svg(&out, &s, bound));
    assert_null(strstr(out.data, "nan"));
    assert_null(strstr(out.data, "\"inf"));
    return out;
}

static size_t count(const char *in, const char *what) {
    size_t n = 0;
    for (; (in = strstr(in, what)); in++) n++;
    return n;
}

// Labels of the y axis; their base line is 4 below the tick.
static size_t read_ticks(const char *svg, struct tick *out, size_t max) {
    size_t n = 0;
    for (const char *at = svg; (at = strstr(at, "<text class=\"y\"")) && n < max; at++) {
        const char *y = strstr(at, " y=\"");
        out[n].y = strtod(y + 4, NULL) - 4;
        out[n++].value = strtod(strchr(y, '>') + 1, NULL);
    }
    return n;
}

static double dot_y(const char *svg, size_t number) {
    const char *at = svg;
    for (size_t i = 0; i <= number; i++) at = strstr(at + 1, "<circle");
    return strtod(strstr(at, "cy=\"") + 4, NULL);
}

// What the height of a dot means by the first and the last tick.
static double value_at(const struct tick *ticks, size_t n, double y, bool log_y) {
    double a = ticks[0].value, b = ticks[n - 1].value;
    if (log_y) a = log10(a), b = log10(b);
    double v = a + (y - ticks[0].y) / (ticks[n - 1].y - ticks[0].y) * (b - a);
    return log_y ? pow(10, v) : v;
}

static void linear_points_lie_where_the_ticks_say(void **state) {
    (void)state;
    static const double rows[][4] = {
        {0.1, 0.7, 0.3, 0.9},      {-5, 3, 12, 0}, {1e6, 1e6 + 1e-3, 1e6 + 3e-3, 1e6 + 2e-3},
        {1e-9, 4e-9, 2e-9, 3e-9},  {7, 7, 7, 7},   {0, 0, 0, 0},
        {-1e200, 1e200, 0, 5e199},
    };
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        struct lp_bytes svg = plot(rows[r], 4, false, NULL);
        struct tick ticks[16];
        size_t n = read_ticks(svg.data, ticks, 16);
        assert_in_range(n, 2, 8);
        double range = ticks[n - 1].value - ticks[0].value;
        assert_true(range > 0);
        for (size_t i = 0; i + 1 < n; i++) assert_true(ticks[i].value < ticks[i + 1].value);
        for (size_t i = 0; i < 4; i++) // a tenth of a unit of about 160 is what is written
            assert_true(fabs(value_at(ticks, n, dot_y(svg.data, i), false) - rows[r][i]) <
                        range * 2e-3);
        lp_bytes_release(&svg);
    }
}

static void logarithmic_points_lie_where_the_ticks_say(void **state) {
    (void)state;
    static const double rows[][3] = {
        {3e-7, 2e-3, 0.5}, {1, 1, 1}, {1e-300, 1, 1e300}, {20, 40, 70}};
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        struct lp_bytes svg = plot(rows[r], 3, true, NULL);
        struct tick ticks[16];
        size_t n = read_ticks(svg.data, ticks, 16);
        assert_in_range(n, 2, 8);
        double decades = log10(ticks[n - 1].value / ticks[0].value);
        if (isfinite(decades))
            for (size_t i = 0; i < 3; i++)
                assert_true(fabs(log10(value_at(ticks, n, dot_y(svg.data, i), true) / rows[r][i])) <
                            decades * 2e-3);
        lp_bytes_release(&svg);
    }
}

static void a_gap_breaks_the_line(void **state) {
    (void)state;
    const double values[] = {1, 2, NAN, 4, NAN, INFINITY, 3};
    struct lp_bytes svg = plot(values, 7, false, NULL);
    const char *line = strstr(svg.data, "class=\"line\"");
    char d[400];
    snprintf(d, sizeof d, "%.*s", (int)strcspn(line, "/"), line);
    assert_int_equal(count(d, "M"), 3);
    assert_int_equal(count(d, "L"), 1);
    assert_int_equal(count(svg.data, "<circle"), 5);
    assert_int_equal(count(svg.data, "dot bad"), 1);
    lp_bytes_release(&svg);
}

static void zero_has_a_line_of_its_own_below_a_logarithmic_axis(void **state) {
    (void)state;
    const double values[] = {0, 1e-6, 1e-3, -1};
    struct lp_bytes svg = plot(values, 4, true, NULL);
    struct tick ticks[16];
    size_t n = read_ticks(svg.data, ticks, 16);
    assert_true(ticks[n - 1].value == 0);
    assert_int_equal(count(svg.data, "dot low"), 2);
    assert_true(dot_y(svg.data, 0) == ticks[n - 1].y);
    assert_true(dot_y(svg.data, 1) < ticks[n - 1].y);
    lp_bytes_release(&svg);
}

static void the_bound_is_drawn_and_named(void **state) {
    (void)state;
    const double values[] = {1e-6, 1e-5};
    struct lp_check bound = {.bound = "at most <1>", .limit = 1e-2};
    struct lp_bytes svg = plot(values, 2, true, &bound);
    struct tick ticks[16];
    size_t n = read_ticks(svg.data, ticks, 16);
    double y = strtod(strchr(strstr(strstr(svg.data, "class=\"bound\""), "d=\""), ' ') + 1, NULL);
    assert_true(fabs(log10(value_at(ticks, n, y, true)) + 2) < 0.02);
    assert_non_null(strstr(svg.data, "at most &lt;1&gt;"));
    lp_bytes_release(&svg);
    bound.limit = 0; // has no place there
    svg = plot(values, 2, true, &bound);
    assert_null(strstr(svg.data, "class=\"bound\""));
    lp_bytes_release(&svg);
}

static void nothing_measured_is_said(void **state) {
    (void)state;
    const double values[] = {NAN, NAN, NAN};
    for (size_t n = 0; n <= 3; n += 3)
        for (int log_y = 0; log_y < 2; log_y++) {
            struct lp_bytes svg = plot(values, n, log_y, NULL);
            assert_non_null(strstr(svg.data, ">nothing was measured<"));
            assert_null(strstr(svg.data, "<circle"));
            lp_bytes_release(&svg);
        }
}

// The peak of a million values is drawn, and the page stays small.
static void many_values_keep_their_extremes(void **state) {
    (void)state;
    size_t n = 1000000;
    double *values = calloc(n, sizeof *values);
    values[765432] = 8;
    values[4] = INFINITY;
    struct lp_bytes svg = plot(values, n, false, NULL);
    assert_true(svg.len < 20000);
    struct tick ticks[16];
    size_t n_ticks = read_ticks(svg.data, ticks, 16);
    assert_true(ticks[n_ticks - 1].value >= 8);
    double least = 1e9;
    for (const char *at = strstr(svg.data, "class=\"line\""); *at && *at != '/'; at++)
        if (*at == 'L' || *at == 'M') {
            double y = strtod(strchr(at, ' ') + 1, NULL);
            if (y < least) least = y;
        }
    assert_true(fabs(value_at(ticks, n_ticks, least, false) - 8) < 0.1);
    lp_bytes_release(&svg);
    free(values);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_points_lie_where_the_ticks_say),
        cmocka_unit_test(logarithmic_points_lie_where_the_ticks_say),
        cmocka_unit_test(a_gap_breaks_the_line),
        cmocka_unit_test(zero_has_a_line_of_its_own_below_a_logarithmic_axis),
        cmocka_unit_test(the_bound_is_drawn_and_named),
        cmocka_unit_test(nothing_measured_is_said),
        cmocka_unit_test(many_values_keep_their_extremes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
