#include "cli/doctor_print.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/alloc.h"
#include "doctor/report_view.h"

enum {
    MAX_WIDTH = 100, // lines longer than that are hard to read
    NARROW = 64,     // less has no room for columns
    MARK = 8,        // columns: outcome, stage, name, time
    STAGE = 8,
    NAME = 30,
    RESULT = 30, // where lines are not broken
    TIME = 8,
};

#define NORMAL "\033[0m"
#define BOLD "\033[1m"
#define DIM "\033[2m"
#define RED "\033[31m"
#define GREEN "\033[32m"
#define YELLOW "\033[33m"

static const struct {
    const char *tick, *colour;
} marks[] = {
    [LP_CHECK_OK] = {"✓", GREEN},       [LP_CHECK_NOTE] = {"!", YELLOW},
    [LP_CHECK_FAULT] = {"✗", BOLD RED}, [LP_CHECK_FOLLOWS] = {"↳", RED},
    [LP_CHECK_SKIPPED] = {"-", DIM},
};

void lp_doctor_view_init(struct lp_doctor_view *view, FILE *to) {
    const char *no_color = getenv("NO_COLOR"), *terminal = getenv("TERM");
    struct winsize size = {0};
    *view = (struct lp_doctor_view){.to = to};
    if (isatty(fileno(to)) != 1) return;
    view->fancy =
        !(no_color && *no_color) && terminal && *terminal && strcmp(terminal, "dumb") != 0;
    view->width = ioctl(fileno(to), TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : 80;
    if (view->width > MAX_WIDTH) view->width = MAX_WIDTH;
    if (view->width < 20) view->width = 20;
}

// ---- text in columns ----

// Characters of the first bytes; wide ones count as one, too.
static int columns(const char *text, size_t bytes) {
    int n = 0;
    for (size_t i = 0; i < bytes; i++) n += ((unsigned char)text[i] & 0xc0) != 0x80;
    return n;
}

static int columns_of(const char *text) {
    return columns(text, strlen(text));
}

// Bytes of the first n characters.
static size_t bytes_of(const char *text, int n) {
    const char *p = text;
    while (*p && (((unsigned char)*p & 0xc0) == 0x80 || n-- > 0)) p++;
    return (size_t)(p - text);
}

static void put_spaces(const struct lp_doctor_view *v, int n) {
    if (n > 0) fprintf(v->to, "%*s", n, "");
}

static void set(const struct lp_doctor_view *v, const char *colour) {
    if (v->fancy) fputs(colour, v->to);
}

// Puts a text from column `at` on, broken at spaces (a long word anywhere), further lines indented.
// The text is clean. Returns the column where it ends.
static int put_broken(const struct lp_doctor_view *v, const char *text, int at, int indent) {
    int room = v->width - indent < 4 ? 4 : v->width - indent;
    bool space = false; // before the next word, if that stays in this line
    while (*text) {
        size_t word = strcspn(text, " ");
        int n = columns(text, word);
        if (v->width && at > indent && at + space + n > v->width) {
            fputc('\n', v->to);
            put_spaces(v, indent);
            at = indent;
            space = false;
        }
        if (v->width && n > room) word = bytes_of(text, n = room);
        put_spaces(v, space);
        fwrite(text, 1, word, v->to);
        at += space + n;
        text += word;
        space = *text == ' ';
        text += strspn(text, " ");
    }
    return at;
}

// A heading and a text that may be hostile, further lines indented. `colour` may be "".
static void put_entry(struct lp_doctor_view *v, const char *colour, const char *heading, int indent,
                      const char *text) {
    char *clean = lp_report_view_clean(text);
    int at = columns_of(heading);
    if (!clean) {
        v->failed = true;
        return;
    }
    set(v, colour);
    fputs(heading, v->to);
    put_spaces(v, indent - at);
    put_broken(v, clean, indent > at ? indent : at, indent);
    if (*colour) set(v, NORMAL);
    fputc('\n', v->to);
    lp_free(clean);
}

static const char *time_text(char out[32], double s) {
    if (s < 99.5)
        snprintf(out, 32, s < 9.95 ? "%.1f s" : "%.0f s", s);
    else if (s < 5400)
        snprintf(out, 32, "%.0f min", s / 60);
    else
        snprintf(out, 32, "%.1f h", s / 3600);
    return out;
}

static const char *about_text(char out[32], double s) {
    if (s < 99.5) return snprintf(out, 32, "%.0f s", s), out;
    return time_text(out, s);
}

// ---- while it goes on ----

void lp_doctor_print_stage(struct lp_doctor_view *v, enum lp_stage stage, double expected_s) {
    char text[32];
    set(v, DIM);
    fputs(stage < LP_N_STAGES ? lp_stage_name(stage) : "the whole examination", v->to);
    if (expected_s > 0)
        fprintf(v->to, ": about %s", expected_s < 1.5 ? "a second" : about_text(text, expected_s));
    set(v, NORMAL);
    fputc('\n', v->to);
    fflush(v->to);
}

// Outcome and stage; returns the column behind them.
static int put_mark(const struct lp_doctor_view *v, const struct lp_check *c) {
    bool narrow = v->width && v->width < NARROW;
    set(v, marks[c->outcome].colour);
    if (v->fancy)
        fputs(marks[c->outcome].tick, v->to);
    else
        fprintf(v->to, "%-*s", narrow ? 0 : MARK - 1, lp_outcome_name(c->outcome));
    set(v, NORMAL);
    fputc(' ', v->to);
    if (narrow) return v->fancy ? 2 : columns_of(lp_outcome_name(c->outcome)) + 1;
    set(v, DIM);
    fprintf(v->to, "%-*s ", STAGE, lp_stage_name(c->stage));
    set(v, NORMAL);
    return (v->fancy ? 2 : MARK) + STAGE + 1;
}

static bool make_result(const struct lp_check *c, struct lp_bytes *out) {
    lp_bytes_puts(out, c->figure);
    if (c->bound[0]) lp_bytes_printf(out, out->len ? " (%s)" : "expected: %s", c->bound);
    return !out->failed && lp_bytes_puts(out, "");
}

// Name, result and time, in columns where they fit, else the result on lines of its own.
static void put_columns(const struct lp_doctor_view *v, int at, const char *name,
                        const char *result, const char *time) {
    bool narrow = v->width && v->width < NARROW;
    int start = at, end = v->width ? v->width - TIME : 0;
    at = put_broken(&(struct lp_doctor_view){.to = v->to, .width = end}, name, at, start);
    int column = start + NAME + 1 > at + 2 ? start + NAME + 1 : at + 2;
    bool below = v->width && (narrow || column + columns_of(result) > end);
    if (!below) {
        put_spaces(v, column - at);
        fputs(result, v->to);
        at = column + columns_of(result);
    }
    int gap = (v->width ? v->width : start + NAME + 1 + RESULT + TIME) - columns_of(time) - at;
    put_spaces(v, gap > 2 ? gap : 2);
    set(v, DIM);
    fputs(time, v->to);
    set(v, NORMAL);
    fputc('\n', v->to);
    if (!below || !*result) return;
    put_spaces(v, start);
    put_broken(v, result, start, start);
    fputc('\n', v->to);
}

void lp_doctor_print_check(struct lp_doctor_view *v, const struct lp_check *c) {
    char time[32];
    struct lp_bytes raw = {0};
    char *name = lp_report_view_clean(c->name), *result = NULL, *text = NULL;
    if (make_result(c, &raw)) result = lp_report_view_clean(raw.data);
    if (c->outcome != LP_CHECK_OK) text = lp_report_view_clean(c->text);
    if (name && result) {
        int at = put_mark(v, c);
        put_columns(v, at, name, result, time_text(time, c->seconds));
        if (text && *text) {
            put_spaces(v, at);
            put_broken(v, text, at, at);
            fputc('\n', v->to);
        }
    }
    v->failed = v->failed || !name || !result || (c->outcome != LP_CHECK_OK && !text);
    fflush(v->to);
    lp_free(name);
    lp_free(result);
    lp_free(text);
    lp_bytes_release(&raw);
}

// ---- the end ----

static void put_fault(struct lp_doctor_view *v, const struct lp_report *r, const struct lp_fault *f,
                      size_t number) {
    int indent = v->width && v->width < NARROW ? 6 : 13;
    const struct lp_check *c = lp_report_view_check(r, f);
    struct lp_bytes line = {0};
    char heading[24];
    if (f->layer >= 0) lp_bytes_printf(&line, "layer %d, ", f->layer);
    lp_bytes_puts(&line, f->what);
    snprintf(heading, sizeof heading, "%2zu. ", number);
    put_entry(v, BOLD RED, heading, 4, line.data);
    lp_bytes_clear(&line);
    lp_bytes_printf(&line, "%s, %s", lp_stage_name(f->stage), f->check);
    put_entry(v, "", "    found by ", indent, line.data);
    lp_bytes_clear(&line);
    if (c && make_result(c, &line) && line.len)
        put_entry(v, "", "    measured ", indent, line.data);
    put_entry(v, "", "    what now ", indent, f->advice);
    v->failed = v->failed || line.failed;
    lp_bytes_release(&line);
}

// Checks that failed because of these faults, by their names.
static void put_follows(struct lp_doctor_view *v, const struct lp_report *r) {
    struct lp_bytes names = {0};
    size_t n = lp_report_view_count(r, LP_CHECK_FOLLOWS);
    if (n == 0) return;
    lp_bytes_printf(&names, "%zu more check%s failed, as %s must with %s: ", n, n == 1 ? "" : "s",
                    n == 1 ? "it" : "they",
                    lp_report_view_faults(r, false) == 1 ? "this fault" : "these faults");
    const char *between = "";
    for (size_t i = 0; i < r->n_checks; i++) {
        if (r->checks[i].outcome != LP_CHECK_FOLLOWS) continue;
        lp_bytes_printf(&names, "%s%s (%s)", between, r->checks[i].name,
                        lp_stage_name(r->checks[i].stage));
        between = ", ";
    }
    fputc('\n', v->to);
    put_entry(v, "", "", 0, names.data);
    v->failed = v->failed || names.failed;
    lp_bytes_release(&names);
}

void lp_doctor_print_end(struct lp_doctor_view *v, const struct lp_report *r) {
    size_t n = 0;
    char time[32];
    struct lp_bytes line = {0};
    bool healthy = lp_report_healthy(r);
    for (size_t i = 0; i < r->n_faults; i++) {
        if (r->faults[i].follows) continue;
        fputc('\n', v->to);
        put_fault(v, r, &r->faults[i], ++n);
    }
    put_follows(v, r);
    fputc('\n', v->to);
    lp_bytes_printf(&line, "%s, examined %s in %s", r->model[0] ? r->model : r->path,
                    r->quick ? "quickly" : "in full", time_text(time, r->seconds));
    put_entry(v, DIM, "", 0, line.data);
    lp_bytes_clear(&line);
    lp_bytes_printf(&line, "verdict: %s. %s", healthy ? "healthy" : "fault found", r->verdict);
    put_entry(v, healthy ? BOLD GREEN : BOLD RED, "", 0, line.data);
    v->failed = v->failed || line.failed;
    lp_bytes_release(&line);
    fflush(v->to);
}
