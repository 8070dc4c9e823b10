// The report as one page that needs nothing from outside: the verdict first, then what to do, then
// everything that was looked at, then the plots. It has no script, and its content security policy
// allows none; each text passes through lp_report_view_escape. It is well-formed XML.
#include <math.h>
#include <string.h>
#include <time.h>

#include "doctor/report_svg.h"
#include "doctor/report_view.h"

// The style sheet's bytes, between two symbols.
__asm__(".section .rodata\n"
        "lp_report_css:\n"
        ".incbin \"" LP_REPORT_CSS_PATH "\"\n"
        "lp_report_css_end:\n"
        ".byte 0\n"
        ".previous\n");
extern const char lp_report_css[], lp_report_css_end[];

#define DROP "M12 2c4 5 7 8.5 7 12.500a7 7 0 0 1-14 0C5 10.5 8 7 12 2z"

static void put(struct lp_bytes *out, const char *text) {
    if (!lp_report_view_escape(out, text)) out->failed = true;
}

// An element with a text in it. `open` is what stands between its angle brackets.
static void put_element(struct lp_bytes *out, const char *open, const char *text) {
    lp_bytes_printf(out, "<%s>", open);
    put(out, text);
    lp_bytes_printf(out, "</%.*s>", (int)strcspn(open, " "), open);
}

static void put_seconds(struct lp_bytes *out, double s) {
    if (s < 0.05)
        lp_bytes_printf(out, "%.0f ms", s * 1e3);
    else if (s < 120)
        lp_bytes_printf(out, s < 10 ? "%.1f s" : "%.0f s", s);
    else
        lp_bytes_printf(out, "%.0f min", s / 60);
}

static void put_plural(struct lp_bytes *out, size_t n, const char *thing) {
    lp_bytes_printf(out, "%zu %s%s", n, thing, n == 1 ? "" : "s");
}

// ---- the top ----

static void put_head(struct lp_bytes *out, const struct lp_report *r) {
    lp_bytes_puts(
        out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
             "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
             "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'\"/>\n"
             "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
             "<meta name=\"color-scheme\" content=\"light dark\"/>\n"
             "<meta name=\"referrer\" content=\"no-referrer\"/>\n"
             "<link rel=\"icon\" href=\"data:image/svg+xml,%3Csvg "
             "xmlns='http://www.w3.org/2000/svg' viewBox='0 0 24 24'%3E%3Cpath d='" DROP
             "' fill='%231a8a91'/%3E%3C/svg%3E\"/>\n<title>limpid doctor: ");
    put(out, r->model[0] ? r->model : r->path);
    lp_bytes_puts(out, "</title>\n<style>\n");
    lp_bytes_append(out, lp_report_css, (size_t)(lp_report_css_end - lp_report_css));
    lp_bytes_puts(out, "</style>\n</head>\n<body>\n<header><h1><svg viewBox=\"0 0 24 24\" "
                       "aria-hidden=\"true\"><path d=\"" DROP "\"/></svg>limpid doctor</h1>");
    put_element(out, "p", r->model);
    lp_bytes_puts(out, "</header>\n<main>\n");
}

static void put_verdict(struct lp_bytes *out, const struct lp_report *r) {
    bool healthy = lp_report_healthy(r);
    size_t n = lp_report_view_faults(r, false);
    lp_bytes_printf(out,
                    "<section id=\"verdict\" class=\"%s\">\n<h2><svg viewBox=\"0 0 24 24\" "
                    "aria-hidden=\"true\"><circle cx=\"12\" cy=\"12\" r=\"10\"/><path d=\"%s\"/>"
                    "</svg>",
                    healthy ? "good" : "bad",
                    healthy ? "M7.500 12.500l3 3 6-6.500" : "M12 6.500v7M12 17v.2");
    if (healthy)
        lp_bytes_puts(out, "Healthy");
    else {
        put_plural(out, n, "fault");
        lp_bytes_puts(out, " found");
    }
    lp_bytes_puts(out, "</h2>\n");
    put_element(out, "p", r->verdict);
    lp_bytes_puts(out, "\n</section>\n");
}

static void put_fact(struct lp_bytes *out, const char *name, const char *text) {
    put_element(out, "dt", name);
    put_element(out, "dd", text);
    lp_bytes_puts(out, "</div>\n");
}

static void put_facts(struct lp_bytes *out, const struct lp_report *r) {
    char date[40] = "";
    time_t now = time(NULL);
    struct tm parts;
    if (localtime_r(&now, &parts)) strftime(date, sizeof date, "%Y-%m-%d %H:%M %z", &parts);
    lp_bytes_puts(out, "<dl id=\"facts\">\n<div class=\"wide\">");
    put_fact(out, "File", r->path);
    if (r->model[0]) {
        lp_bytes_puts(out, "<div>");
        put_fact(out, "Model", r->model);
    }
    lp_bytes_puts(out, "<div>");
    put_fact(out, "Examined", r->quick ? "quickly: samples of layers and rows" : "in full");
    lp_bytes_puts(out, "<div>");
    put_fact(out, "Date", date);
    lp_bytes_puts(out, "<div><dt>Time taken</dt><dd>");
    put_seconds(out, r->seconds);
    lp_bytes_puts(out, "</dd></div>\n<div>");
    put_fact(out, "limpid", LIMPID_VERSION);
    lp_bytes_puts(out, "</dl>\n");
}

// ---- faults ----

static void put_where(struct lp_bytes *out, const struct lp_fault *f) {
    if (f->layer >= 0) lp_bytes_printf(out, "layer %d, ", f->layer);
    put_element(out, "code", f->what);
}

static void put_measured(struct lp_bytes *out, const struct lp_report *r,
                         const struct lp_fault *f) {
    const struct lp_check *c = lp_report_view_check(r, f);
    lp_bytes_printf(out, "<p class=\"measured\">%s: ", lp_stage_name(f->stage));
    put_element(out, "bdi", f->check);
    if (c && c->figure[0]) {
        lp_bytes_puts(out, ", measured ");
        put_element(out, "bdi", c->figure);
        if (c->bound[0]) lp_bytes_puts(out, ", expected ");
        if (c->bound[0]) put_element(out, "bdi", c->bound);
    }
    lp_bytes_puts(out, "</p>");
}

static void put_faults(struct lp_bytes *out, const struct lp_report *r) {
    if (lp_report_view_faults(r, false) == 0) return;
    lp_bytes_puts(out, "<section><h2>What is wrong, and what to do</h2>\n<ol class=\"faults\">\n");
    for (size_t i = 0; i < r->n_faults; i++) {
        const struct lp_fault *f = &r->faults[i];
        if (f->follows) continue;
        lp_bytes_puts(out, "<li><p class=\"where\">");
        put_where(out, f);
        lp_bytes_puts(out, "</p>");
        put_element(out, "p class=\"advice\"", f->advice);
        put_measured(out, r, f);
        lp_bytes_puts(out, "</li>\n");
    }
    lp_bytes_puts(out, "</ol></section>\n");
}

static void put_follows(struct lp_bytes *out, const struct lp_report *r) {
    if (lp_report_view_faults(r, true) == 0) return;
    lp_bytes_puts(
        out, "<section><h2>What follows from it</h2>\n<p class=\"quiet\">Explained by what was "
             "found before; look at it again when that is mended.</p>\n"
             "<ul class=\"follows\">\n");
    for (size_t i = 0; i < r->n_faults; i++) {
        const struct lp_fault *f = &r->faults[i];
        if (!f->follows) continue;
        lp_bytes_printf(out, "<li>%s: ", lp_stage_name(f->stage));
        put_where(out, f);
        lp_bytes_puts(out, " (");
        put_element(out, "bdi", f->check);
        lp_bytes_puts(out, ")");
        put_element(out, "p", f->advice);
        lp_bytes_puts(out, "</li>\n");
    }
    lp_bytes_puts(out, "</ul></section>\n");
}

// ---- checks ----

static void put_badge(struct lp_bytes *out, enum lp_outcome outcome) {
    const char *name = lp_outcome_name(outcome);
    lp_bytes_printf(out, "<span class=\"badge %s\">%s</span>", name, name);
}

static void put_check(struct lp_bytes *out, const struct lp_check *c) {
    lp_bytes_puts(out, "<tr><td class=\"outcome\">");
    put_badge(out, c->outcome);
    lp_bytes_puts(out, "</td><td class=\"check\">");
    put(out, c->name);
    if (c->text[0]) put_element(out, "div class=\"quiet\"", c->text);
    lp_bytes_puts(out, "</td>");
    put_element(out, "td class=\"figure\"", c->figure);
    put_element(out, "td class=\"bound\"", c->bound);
    lp_bytes_puts(out, "<td class=\"time\">");
    put_seconds(out, c->seconds);
    lp_bytes_puts(out, "</td></tr>\n");
}

static void put_stage(struct lp_bytes *out, const struct lp_report *r, enum lp_stage stage) {
    size_t n = 0;
    for (size_t i = 0; i < r->n_checks; i++) n += r->checks[i].stage == stage;
    if (n == 0) return;
    lp_bytes_printf(out,
                    "<tbody><tr class=\"stage\"><th colspan=\"5\">%s<span "
                    "class=\"quiet\">%s</span></th></tr>\n",
                    lp_stage_name(stage), lp_report_view_stage(stage));
    for (size_t i = 0; i < r->n_checks; i++)
        if (r->checks[i].stage == stage) put_check(out, &r->checks[i]);
    lp_bytes_puts(out, "</tbody>\n");
}

static void put_checks(struct lp_bytes *out, const struct lp_report *r) {
    lp_bytes_puts(out, "<section><h2>What was looked at</h2>\n<p class=\"tally\">");
    for (int outcome = LP_CHECK_OK; outcome <= LP_CHECK_SKIPPED; outcome++) {
        size_t n = lp_report_view_count(r, outcome);
        if (n)
            lp_bytes_printf(out, "<span class=\"badge %s\">%zu %s</span>", lp_outcome_name(outcome),
                            n, lp_outcome_name(outcome));
    }
    lp_bytes_puts(out, "</p>\n<table><thead><tr><th class=\"c-outcome\">outcome</th><th>check</th>"
                       "<th class=\"c-figure\">measured</th><th class=\"c-bound\">expected</th>"
                       "<th class=\"c-time\">time</th></tr></thead>\n");
    for (int stage = 0; stage < LP_N_STAGES; stage++) put_stage(out, r, stage);
    lp_bytes_puts(out, "</table></section>\n");
}

// ---- plots ----

// The check that has the plot's name gives it its bound.
static const struct lp_check *bound_of(const struct lp_report *r, const struct lp_series *s) {
    for (size_t i = 0; i < r->n_checks; i++)
        if (isfinite(r->checks[i].limit) && strcmp(r->checks[i].name, s->name) == 0)
            return &r->checks[i];
    return NULL;
}

static void put_plots(struct lp_bytes *out, const struct lp_report *r) {
    if (r->n_series == 0) return;
    lp_bytes_puts(out, "<section><h2>Plots</h2>\n<div class=\"plots\">\n");
    for (size_t i = 0; i < r->n_series; i++) {
        lp_bytes_puts(out, "<figure>");
        lp_bytes_puts(out, "<figcaption>");
        if (!lp_report_view_escape_cut(out, r->series[i].name, 160)) out->failed = true;
        lp_bytes_puts(out, "</figcaption>\n");
        if (!lp_report_svg(out, &r->series[i], bound_of(r, &r->series[i]))) out->failed = true;
        lp_bytes_puts(out, "</figure>\n");
    }
    lp_bytes_puts(out, "</div></section>\n");
}

bool lp_report_html(const struct lp_report *r, struct lp_bytes *out) {
    put_head(out, r);
    put_verdict(out, r);
    put_facts(out, r);
    put_faults(out, r);
    put_follows(out, r);
    put_checks(out, r);
    put_plots(out, r);
    lp_bytes_puts(out,
                  "</main>\n<footer><p class=\"quiet\">fault: wrong, and the first cause that was "
                  "found. follows: wrong because of such a fault. note: nothing is wrong, but "
                  "you should know. skipped: not done, the text says why.</p></footer>\n"
                  "</body>\n</html>\n");
    return !out->failed;
}
