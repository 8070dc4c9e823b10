// Where points and bars lie is computed here from the ticks that are drawn, not from the axes in the
// source.
#include "lp_test.h"

#include <math.h>

#include "cli/bench_svg.h"

static const struct lp_bench_machine machine = {.cpu = "a <CPU> & more",
                                                .model = "model \"of\" <this>",
                                                .version = "1",
                                                .kernel = "k",
                                                .kv = "f16",
                                                .threads = 2};

static struct lp_bench_row row(const char *test, int64_t tokens, int64_t depth, int64_t batch,
                               double tok_s, double limit) {
    struct lp_bench_row r = {.test = test,
                             .tokens = tokens,
                             .depth = depth,
                             .batch = batch,
                             .tok_s = tok_s,
                             .limit_tok_s = limit,
                             .wall_s = 10};
    r.part_s[LP_STEP_PART_PROJECT] = 4;
    r.part_s[LP_STEP_PART_EXPERTS] = 3.5;
    r.part_s[LP_STEP_PART_OTHER] = 1.5; // 1 second passes between the steps
    return r;
}

static struct lp_bytes draw(const struct lp_bench_row *rows, int n) {
    struct lp_bytes out = {0};
    assert_true(lp_bench_svg(&out, &machine, rows, n));
    assert_null(strstr(out.data, "nan"));
    assert_null(strstr(out.data, "inf"));
    assert_null(strstr(out.data, "<this>"));
    assert_non_null(strstr(out.data, "role=\"img\""));
    assert_non_null(strstr(out.data, "<title id=\"title\">"));
    assert_non_null(strstr(out.data, "<desc id=\"desc\">"));
    return out;
}

static double number_behind(const char *at, const char *key) {
    const char *found = strstr(at, key);
    assert_non_null(found);
    return strtod(found + strlen(key), NULL);
}

struct tick {
    double y, value;
};

// The labels of the n-th y axis; a label's base line is 4 below its tick. Axes follow each other, and
// each begins at 0.
static size_t read_ticks(const char *svg, int axis, struct tick *out, size_t max) {
    size_t n = 0;
    int seen = -1;
    for (const char *at = svg; (at = strstr(at, "<text class=\"y\"")); at++) {
        char *end;
        double value = strtod(strchr(at, '>') + 1, &end);
        if (*end == 'k') value *= 1000;
        if (value == 0) seen++;
        if (seen != axis || n == max) continue;
        out[n].y = number_behind(at, " y=\"") - 4;
        out[n++].value = value;
    }
    return n;
}

static double value_at(const struct tick *ticks, size_t n, double y) {
    return ticks[0].value +
           (y - ticks[0].y) / (ticks[n - 1].y - ticks[0].y) * (ticks[n - 1].value - ticks[0].value);
}

static const char *find_circle(const char *svg, const char *test, int number) {
    char head[64];
    snprintf(head, sizeof head, "<circle class=\"%s\"", test);
    for (int i = 0; i <= number; i++) {
        svg = strstr(svg + 1, head);
        assert_non_null(svg);
    }
    return svg;
}

static void rates_lie_where_the_ticks_say(void **state) {
    (void)state;
    const double scales[] = {1, 0.001, 1e6};
    for (size_t s = 0; s < 3; s++) {
        double k = scales[s];
        struct lp_bench_row rows[] = {row("prefill", 512, 0, 1, 300 * k, 700 * k),
                                      row("prefill", 512, 4096, 1, 90 * k, 420 * k),
                                      row("prefill", 512, 32768, 1, 17 * k, 80 * k),
                                      row("decode", 64, 0, 1, 55 * k, 60 * k),
                                      row("decode", 64, 4096, 1, 41 * k, 52 * k)};
        const double prefill[] = {300, 90, 17}, decode[] = {55, 41};
        struct lp_bytes svg = draw(rows, 5);
        struct tick ticks[16];
        size_t n = read_ticks(svg.data, 0, ticks, 16);
        assert_in_range(n, 3, 8);
        assert_true(ticks[n - 1].value >= 700 * k * 0.999); // the limit has a place
        for (int i = 0; i < 3; i++) // a tenth of a unit of about 190 is what is written
            assert_true(fabs(value_at(ticks, n,
                                      number_behind(find_circle(svg.data, "prefill", i), "cy=\"")) -
                             prefill[i] * k) < ticks[n - 1].value / 1000);
        n = read_ticks(svg.data, 2, ticks, 16);
        for (int i = 0; i < 2; i++)
            assert_true(fabs(value_at(ticks, n,
                                      number_behind(find_circle(svg.data, "decode", i), "cy=\"")) -
                             decode[i] * k) < ticks[n - 1].value / 1000);
        lp_bytes_release(&svg);
    }
}

static void depths_are_in_proportion(void **state) {
    (void)state;
    struct lp_bench_row rows[] = {row("decode", 8, 0, 1, 3, 4), row("decode", 8, 1000, 1, 2, 4),
                                  row("decode", 8, 4000, 1, 1, 4)};
    struct lp_bytes svg = draw(rows, 3);
    double x[3];
    for (int i = 0; i < 3; i++) x[i] = number_behind(find_circle(svg.data, "decode", i), "cx=\"");
    assert_true(x[0] < x[1] && fabs((x[1] - x[0]) * 4 - (x[2] - x[0])) < 0.5);
    assert_non_null(strstr(svg.data, "not measured")); // no prefill
    lp_bytes_release(&svg);
}

static void parts_of_a_bar_are_their_shares(void **state) {
    (void)state;
    struct lp_bench_row rows[] = {row("prefill", 512, 0, 1, 300, 700)};
    struct lp_bytes svg = draw(rows, 1);
    struct tick ticks[16];
    size_t n = read_ticks(svg.data, 1, ticks, 16);
    double percent = (ticks[0].y - ticks[n - 1].y) / 100;
    static const struct {
        const char *name;
        double share;
    } parts[] = {{"<title>project:", 40},
                 {"<title>experts:", 35},
                 {"<title>other:", 15},
                 {"<title>between_steps:", 10}};
    double bottom = ticks[0].y;
    assert_true(ticks[n - 1].value == 100);
    for (size_t i = 0; i < 4; i++) {
        const char *title = strstr(svg.data, parts[i].name), *at = title;
        assert_non_null(title);
        assert_true(fabs(strtod(title + strlen(parts[i].name), NULL) - parts[i].share) < 0.06);
        while (strncmp(at, "<rect", 5) != 0) at--;
        double height = number_behind(at, " height=\"");
        assert_true(fabs(height - parts[i].share * percent) < 0.02);
        assert_true(fabs(number_behind(at, " y=\"") + height - bottom) < 0.02); // one on the other
        bottom -= height;
    }
    lp_bytes_release(&svg);
}

static void any_rows_make_a_drawing(void **state) {
    (void)state;
    struct lp_bench_row rows[80] = {{0}};
    struct lp_bytes svg = draw(rows, 0);
    lp_bytes_release(&svg);
    for (int i = 0; i < 80; i++) rows[i] = row("prefill", i + 1, i % 3, 1, i, NAN);
    svg = draw(rows, 80);
    lp_bytes_release(&svg);
    for (int i = 0; i < 80; i++)
        rows[i] = row("decode", 1, (int64_t)1 << (i % 60), 1 + i, 1e-9, INFINITY);
    rows[0].tok_s = INFINITY;
    rows[1].wall_s = 0;
    memset(rows[1].part_s, 0, sizeof rows[1].part_s);
    svg = draw(rows, 80);
    lp_bytes_release(&svg);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(rates_lie_where_the_ticks_say),
                                       cmocka_unit_test(depths_are_in_proportion),
                                       cmocka_unit_test(parts_of_a_bar_are_their_shares),
                                       cmocka_unit_test(any_rows_make_a_drawing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
