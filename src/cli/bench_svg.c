#include "cli/bench_svg.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "doctor/report_view.h"

// The drawing, in units of its own:
//
//     title, machine
//     +-- prefill, tok/s --+   +-- decode, tok/s --+     curves: a colour for each number of
//     |                    |   |                   |     tokens or batch; limits dashed
//     +--------------------+   +-------------------+
//     +-- prefill, time ---+   +-- decode, time ---+     stacked bars, one for each depth, of the
//     |                    |   |                   |     largest prefill and the smallest batch
//     +--------------------+   +-------------------+
//     what the colours of the bars mean
enum {
    WIDTH = 860,
    LEFT = 58, // of the first panel's axis
    PANEL_WIDTH = 348,
    PANEL_STEP = 432, // from one panel to the next
    RATE_TOP = 130,
    RATE_BOTTOM = 320,
    TIME_TOP = 406,
    TIME_BOTTOM = 576,
    LEGEND_TOP = 636,
    LEGEND_ROW = 20,
    LEGEND_COLUMNS = 3,
    MAX_SERIES = 6, // curves of a panel; more are left out, which the drawing says
    MIN_TICK = 42,  // between the labels of two depths
    MAX_LABEL = 90, // characters
};

#define LEAST_SHARE 0.0005 // a part that is nowhere larger has no place in the legend
#define LEAST_LABEL 0.085  // a part of a bar that is smaller has no number in it

// Colours that are told apart without red and green, on white.
static const char *const series_colours[MAX_SERIES] = {"#0072b2", "#d55e00", "#009e73",
                                                       "#a0497d", "#8a6d00", "#444444"};
static const struct part_look {
    const char *fill, *ink;
} part_looks[LP_STEP_N_PARTS + 1] = {
    [LP_STEP_PART_ATTEND_EXPANDED] = {"#08519c", "#ffffff"},
    [LP_STEP_PART_ATTEND_ABSORBED] = {"#3182bd", "#ffffff"},
    [LP_STEP_PART_ATTEND_EXPANDED_SPARSE] = {"#6baed6", "#000000"},
    [LP_STEP_PART_ATTEND_SPARSE] = {"#9ecae1", "#000000"},
    [LP_STEP_PART_ATTEND_GQA] = {"#4a90d9", "#000000"},
    [LP_STEP_PART_INDEX_SELECT] = {"#6a51a3", "#ffffff"},
    [LP_STEP_PART_INDEX_PROJECT] = {"#bcbddc", "#000000"},
    [LP_STEP_PART_PROJECT] = {"#e6a817", "#000000"},
    [LP_STEP_PART_ROUTER] = {"#fff2a8", "#000000"},
    [LP_STEP_PART_EXPERTS] = {"#1b7837", "#ffffff"},
    [LP_STEP_PART_SHARED] = {"#7fbf7b", "#000000"},
    [LP_STEP_PART_DENSE] = {"#c7e9c0", "#000000"},
    [LP_STEP_PART_HEAD] = {"#cc6fa7", "#000000"},
    [LP_STEP_PART_WAIT] = {"#000000", "#ffffff"},
    [LP_STEP_PART_RANKS] = {"#b2182b", "#ffffff"},
    [LP_STEP_PART_OTHER] = {"#969696", "#000000"},
    [LP_STEP_N_PARTS] = {"#d9d9d9", "#000000"},
};

struct panel { // one of the four
    double left, right, top, bottom;
    double top_value, step; // of the y axis, which begins at 0
    int64_t max_depth;
};

struct drawing {
    const struct lp_bench_row *rows;
    int n;
    struct lp_bytes *out;
};

static bool is_decode(const struct lp_bench_row *r) {
    return strcmp(r->test, "decode") == 0;
}

struct series { // a curve
    int64_t tokens, batch;
};

static bool is_of(const struct lp_bench_row *r, bool decode, struct series s) {
    return is_decode(r) == decode && r->tokens == s.tokens && r->batch == s.batch;
}

static void put_text(struct lp_bytes *out, const char *class, double x, double y,
                     const char *text) {
    lp_bytes_printf(out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", class, x, y);
    if (!lp_report_view_escape_cut(out, text, MAX_LABEL)) out->failed = true;
    lp_bytes_puts(out, "</text>\n");
}

static double finite_or_0(double value) {
    return isfinite(value) ? value : 0;
}

// ---- axes

// 1, 2 or 5 times a power of ten, so that the range has at most n steps.
static double nice_step(double range, int n) {
    static const double steps[] = {1, 2, 5};
    double raw = range / n, power = pow(10, floor(log10(raw)));
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
        if (steps[i] * power >= raw * (1 - 1e-9)) return steps[i] * power;
    return 10 * power;
}

static struct panel panel_of(const struct drawing *d, bool decode) {
    struct panel p = {.left = LEFT + (decode ? PANEL_STEP : 0)};
    double most = 0;
    p.right = p.left + PANEL_WIDTH;
    for (int i = 0; i < d->n; i++) {
        const struct lp_bench_row *r = &d->rows[i];
        if (is_decode(r) != decode) continue;
        if (r->depth > p.max_depth) p.max_depth = r->depth;
        if (isfinite(r->tok_s)) most = fmax(most, r->tok_s);
        if (isfinite(r->limit_tok_s)) most = fmax(most, r->limit_tok_s);
    }
    p.step = nice_step(most > 0 ? most : 1, 5);
    p.top_value = ceil((most > 0 ? most : 1) / p.step - 1e-9) * p.step;
    return p;
}

static double place_x(const struct panel *p, int64_t depth) {
    if (p->max_depth == 0) return (p->left + p->right) / 2;
    return p->left + 14 + (double)depth / (double)p->max_depth * (p->right - p->left - 28);
}

static double place_y(const struct panel *p, double value) {
    return p->bottom - finite_or_0(value) / p->top_value * (p->bottom - p->top);
}

static void draw_y_axis(const struct drawing *d, const struct panel *p, const char *unit) {
    int n = (int)(p->top_value / p->step + 0.5);
    char text[40];
    for (int i = 0; i <= n; i++) {
        double y = place_y(p, i * p->step);
        lp_bytes_printf(d->out, "<path class=\"grid\" d=\"M%.1f %.1fH%.1f\"/>\n", p->left, y,
                        p->right);
        bool thousands = p->top_value >= 10000;
        snprintf(text, sizeof text, "%.6g%s%s", i * p->step / (thousands ? 1000 : 1),
                 thousands && i > 0 ? "k" : "", unit);
        put_text(d->out, "y", p->left - 7, y + 4, text);
    }
}

static void depth_text(int64_t depth, char out[24]) {
    bool kib = depth >= 1024 && depth % 1024 == 0;
    snprintf(out, 24, "%lld%s", (long long)(kib ? depth / 1024 : depth), kib ? "k" : "");
}

// The depths of the kind, ascending; at most max.
static int depths_of(const struct drawing *d, bool decode, int64_t *out, int max) {
    int n = 0;
    for (int64_t from = -1; n < max;) {
        int64_t next = -1;
        for (int i = 0; i < d->n; i++)
            if (is_decode(&d->rows[i]) == decode && d->rows[i].depth > from &&
                (next < 0 || d->rows[i].depth < next))
                next = d->rows[i].depth;
        if (next < 0) break;
        out[n++] = from = next;
    }
    return n;
}

// ---- rates

static const struct lp_bench_row *find_row(const struct drawing *d, bool decode,
                                           struct series series, int64_t depth) {
    for (int i = 0; i < d->n; i++)
        if (is_of(&d->rows[i], decode, series) && d->rows[i].depth == depth) return &d->rows[i];
    return NULL;
}

static void draw_line(const struct drawing *d, const struct panel *p, bool decode,
                      struct series series, const char *colour, bool limit) {
    int64_t depths[64];
    int n = depths_of(d, decode, depths, 64);
    char command = 'M';
    lp_bytes_printf(d->out, "<path class=\"%s\" stroke=\"%s\" d=\"", limit ? "limit" : "rate",
                    colour);
    for (int i = 0; i < n; i++) {
        const struct lp_bench_row *r = find_row(d, decode, series, depths[i]);
        if (!r) continue;
        lp_bytes_printf(d->out, "%c%.1f %.1f", command, place_x(p, depths[i]),
                        place_y(p, limit ? r->limit_tok_s : r->tok_s));
        command = 'L';
    }
    // One point alone is no line: a limit is drawn across its place.
    if (n == 1 && limit) lp_bytes_puts(d->out, "m-20 0h40");
    lp_bytes_puts(d->out, "\"/>\n");
}

static void draw_dots(const struct drawing *d, const struct panel *p, bool decode,
                      struct series series, const char *colour) {
    for (int i = 0; i < d->n; i++) {
        const struct lp_bench_row *r = &d->rows[i];
        if (!is_of(r, decode, series)) continue;
        lp_bytes_printf(
            d->out, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.6\" fill=\"%s\"><title>",
            r->test, place_x(p, r->depth), place_y(p, r->tok_s), colour);
        lp_bytes_printf(d->out, "%.2f tok/s at depth %lld, limit %.2f (%s)</title></circle>\n",
                        finite_or_0(r->tok_s), (long long)r->depth, finite_or_0(r->limit_tok_s),
                        r->limited_by_memory ? "memory" : "arithmetic");
    }
}

// At most MAX_SERIES; *more: there are others.
static int series_list(const struct drawing *d, bool decode, struct series *out, bool *more) {
    int n = 0;
    *more = false;
    for (int i = 0; i < d->n; i++) {
        const struct lp_bench_row *r = &d->rows[i];
        int k = 0;
        if (is_decode(r) != decode) continue;
        while (k < n && !is_of(r, decode, out[k])) k++;
        if (k < n) continue;
        if (n < MAX_SERIES)
            out[n++] = (struct series){r->tokens, r->batch};
        else
            *more = true;
    }
    return n;
}

static void draw_key(const struct drawing *d, const struct panel *p, bool decode, int i,
                     struct series series) {
    char text[64];
    double x = p->left + 170 * (i % 2), y = RATE_TOP - 40 + 14 * (i / 2);
    lp_bytes_printf(d->out, "<path class=\"rate\" stroke=\"%s\" d=\"M%.1f %.1fh16\"/>\n",
                    series_colours[i], x, y);
    snprintf(text, sizeof text, decode ? "%lld tokens, batch %lld" : "%lld tokens",
             (long long)series.tokens, (long long)series.batch);
    put_text(d->out, "key", x + 21, y + 4, text);
}

static void draw_depths(const struct drawing *d, const struct panel *p, bool decode) {
    int64_t depths[64];
    int n = depths_of(d, decode, depths, 64);
    double labelled = -1e9;
    char text[24];
    for (int i = 0; i < n; i++) {
        double x = place_x(p, depths[i]);
        lp_bytes_printf(d->out, "<path class=\"axis\" d=\"M%.1f %.1fv4\"/>\n", x, p->bottom);
        if (x - labelled < MIN_TICK) continue;
        depth_text(depths[i], text);
        put_text(d->out, "x", x, p->bottom + 17, text);
        labelled = x;
    }
    put_text(d->out, "x", (p->left + p->right) / 2, p->bottom + 34, "tokens in the cache");
}

static void draw_rates(const struct drawing *d, bool decode) {
    struct panel p = panel_of(d, decode);
    struct series series[MAX_SERIES];
    bool more;
    int n = series_list(d, decode, series, &more);
    p.top = RATE_TOP;
    p.bottom = RATE_BOTTOM;
    put_text(d->out, "name", p.left - 40, RATE_TOP - 54,
             decode ? "decode, tokens per second" : "prefill, tokens per second");
    if (n == 0) {
        put_text(d->out, "key", p.left, (p.top + p.bottom) / 2, "not measured");
        return;
    }
    put_text(d->out, "note", p.right, RATE_TOP - 54,
             more ? "dashed: limit; not all curves fit" : "dashed: the machine's limit");
    draw_y_axis(d, &p, "");
    draw_depths(d, &p, decode);
    for (int i = 0; i < n; i++) {
        draw_key(d, &p, decode, i, series[i]);
        draw_line(d, &p, decode, series[i], series_colours[i], true);
        draw_line(d, &p, decode, series[i], series_colours[i], false);
        draw_dots(d, &p, decode, series[i], series_colours[i]);
    }
}

// ---- time

// The series whose time is drawn: the largest prefill; of decode the smallest batch, and the most
// tokens of that.
static struct series timed_series(const struct drawing *d, bool decode) {
    struct series best = {-1, -1};
    for (int i = 0; i < d->n; i++) {
        const struct lp_bench_row *r = &d->rows[i];
        if (is_decode(r) != decode) continue;
        bool smaller = best.batch < 0 || r->batch < best.batch;
        if (smaller || (r->batch == best.batch && r->tokens > best.tokens))
            best = (struct series){r->tokens, r->batch};
    }
    return best;
}

static void draw_bar(const struct drawing *d, const struct panel *p, const struct lp_bench_row *r,
                     double x, double width) {
    char text[32];
    double from = 0;
    for (int i = 0; i <= LP_STEP_N_PARTS; i++) {
        double share = lp_bench_share(r, i), y = place_y(p, 100 * (from + share));
        double height = place_y(p, 100 * from) - y;
        from += share;
        if (height < 0.05) continue;
        lp_bytes_printf(d->out,
                        "<rect class=\"part\" x=\"%.1f\" y=\"%.2f\" width=\"%.1f\" height=\"%.2f\" "
                        "fill=\"%s\"><title>%s: %.1f %% of %s at depth %lld</title></rect>\n",
                        x, y, width, height, part_looks[i].fill, lp_bench_share_name(i),
                        100 * share, r->test, (long long)r->depth);
        if (share < LEAST_LABEL || width < 24) continue;
        snprintf(text, sizeof text, "%.0f", 100 * share);
        lp_bytes_printf(d->out,
                        "<text class=\"in\" style=\"fill:%s\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
                        part_looks[i].ink, x + width / 2, y + height / 2 + 4, text);
    }
}

static void draw_times(const struct drawing *d, bool decode) {
    struct panel p = {.left = LEFT + (decode ? PANEL_STEP : 0),
                      .top = TIME_TOP,
                      .bottom = TIME_BOTTOM,
                      .top_value = 100,
                      .step = 25};
    int64_t depths[64];
    struct series series = timed_series(d, decode);
    int n = depths_of(d, decode, depths, 64);
    char text[96];
    p.right = p.left + PANEL_WIDTH;
    if (n == 0) return;
    snprintf(text, sizeof text,
             decode ? "decode of %lld tokens, batch %lld: where the time goes"
                    : "prefill of %lld tokens: where the time goes",
             (long long)series.tokens, (long long)series.batch);
    put_text(d->out, "name", p.left - 40, TIME_TOP - 16, text);
    draw_y_axis(d, &p, " %");
    double slot = (p.right - p.left) / n, width = fmin(slot * 0.72, 64);
    for (int i = 0; i < n; i++) {
        double middle = p.left + slot * (i + 0.5);
        const struct lp_bench_row *r = find_row(d, decode, series, depths[i]);
        if (r) draw_bar(d, &p, r, middle - width / 2, width);
        depth_text(depths[i], text);
        if (slot >= 30 || i % 2 == 0) put_text(d->out, "x", middle, p.bottom + 17, text);
    }
    put_text(d->out, "x", (p.left + p.right) / 2, p.bottom + 34, "tokens in the cache");
}

static bool is_drawn(const struct drawing *d, int part) {
    for (int i = 0; i < d->n; i++)
        if (lp_bench_share(&d->rows[i], part) >= LEAST_SHARE) return true;
    return false;
}

static const char *meaning(int part) {
    return part == LP_STEP_N_PARTS ? "scheduling and sampling between steps"
                                   : lp_step_part_meaning((enum lp_step_part)part);
}

static int n_drawn_parts(const struct drawing *d) {
    int n = 0;
    for (int i = 0; i <= LP_STEP_N_PARTS; i++) n += is_drawn(d, i);
    return n;
}

static void draw_legend(const struct drawing *d) {
    for (int i = 0, k = 0; i <= LP_STEP_N_PARTS; i++) {
        if (!is_drawn(d, i)) continue;
        double x = 18 + k % LEGEND_COLUMNS * ((WIDTH - 24.0) / LEGEND_COLUMNS),
               y = LEGEND_TOP + k / LEGEND_COLUMNS * LEGEND_ROW;
        lp_bytes_printf(d->out,
                        "<rect class=\"swatch\" x=\"%.1f\" y=\"%.1f\" width=\"12\" height=\"12\" "
                        "fill=\"%s\"/>\n",
                        x, y, part_looks[i].fill);
        put_text(d->out, "key", x + 18, y + 10, meaning(i));
        k++;
    }
}

// ---- the whole

static void put_description(const struct drawing *d, const struct lp_bench_machine *m) {
    lp_bytes_puts(d->out, "<title id=\"title\">");
    if (!lp_report_view_escape_cut(d->out, m->model, MAX_LABEL)) d->out->failed = true;
    lp_bytes_puts(d->out, ": tokens per second over the depth</title>\n<desc id=\"desc\">");
    for (int i = 0; i < d->n; i++) {
        const struct lp_bench_row *r = &d->rows[i];
        lp_bytes_printf(d->out,
                        "%s of %lld tokens, batch of %lld, depth %lld: %.2f tokens per "
                        "second, limit %.2f.\n",
                        r->test, (long long)r->tokens, (long long)r->batch, (long long)r->depth,
                        finite_or_0(r->tok_s), finite_or_0(r->limit_tok_s));
    }
    lp_bytes_puts(d->out, "</desc>\n");
}

static const char style[] =
    "<style>text{font:12px system-ui,sans-serif;fill:#222}.head{font-size:16px;font-weight:600}"
    ".name{font-size:13px;font-weight:600}.y{text-anchor:end}.x,.in{text-anchor:middle}"
    ".note{text-anchor:end;fill:#555}.in{font-size:11px}.grid{stroke:#ddd;fill:none}"
    ".axis{stroke:#555;fill:none}.rate{fill:none;stroke-width:2}"
    ".limit{fill:none;stroke-width:1.5;stroke-dasharray:6 4}.part{stroke:#fff;stroke-width:.7}"
    ".swatch{stroke:#555;stroke-width:.5}</style>\n";

static void put_head(const struct drawing *d, const struct lp_bench_machine *m) {
    char text[512];
    put_text(d->out, "head", 18, 26, m->model);
    snprintf(text, sizeof text, "%s, %d threads; limpid %s, %s, KV %s", m->cpu, m->threads,
             m->version, m->kernel, m->kv);
    put_text(d->out, "key", 18, 44, text);
}

bool lp_bench_svg(struct lp_bytes *out, const struct lp_bench_machine *m,
                  const struct lp_bench_row *rows, int n) {
    struct drawing d = {rows, n, out};
    int legend_rows = (n_drawn_parts(&d) + LEGEND_COLUMNS - 1) / LEGEND_COLUMNS;
    int height = LEGEND_TOP + legend_rows * LEGEND_ROW + 8;
    lp_bytes_printf(out,
                    "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
                    "height=\"%d\" role=\"img\" aria-labelledby=\"title desc\">\n",
                    WIDTH, height, WIDTH, height);
    put_description(&d, m);
    lp_bytes_puts(out, style);
    lp_bytes_printf(out, "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", WIDTH, height);
    put_head(&d, m);
    for (int decode = 0; decode < 2; decode++) {
        draw_rates(&d, decode);
        draw_times(&d, decode);
    }
    draw_legend(&d);
    return lp_bytes_puts(out, "</svg>\n") && !out->failed;
}
