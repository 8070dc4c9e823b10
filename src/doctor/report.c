// The data of a report, and the verdict. Nothing here fails half-way: what cannot be noted for want
// of memory is remembered, and lp_report_close says so.
#include "doctor/report.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "doctor/report_view.h"

static const char *const stage_names[LP_N_STAGES] = {"file",   "weights", "kernels", "tokens",
                                                     "layers", "routes",  "cache",   "ranks",
                                                     "sparse", "output",  "against"};
static const char *const outcome_names[] = {"ok", "note", "fault", "follows", "skipped"};

const char *lp_stage_name(enum lp_stage stage) {
    return stage_names[stage];
}

bool lp_stage_find(const char *name, enum lp_stage *out) {
    for (int i = 0; i < LP_N_STAGES; i++)
        if (strcmp(name, stage_names[i]) == 0) {
            *out = (enum lp_stage)i;
            return true;
        }
    return false;
}

const char *lp_outcome_name(enum lp_outcome outcome) {
    return outcome_names[outcome];
}

// What a later stage sees depends on these earlier ones. Kernels and layers compare two backends on
// the same weights and inputs, so a wrong file or weight disturbs neither; where weights are no
// numbers the stages that run the model are left out.
#define BIT(stage) (1u << LP_STAGE_##stage)
static const unsigned explained_by[LP_N_STAGES] = {
    [LP_STAGE_WEIGHTS] = BIT(FILE),
    [LP_STAGE_TOKENS] = BIT(FILE),
    [LP_STAGE_LAYERS] = BIT(KERNELS),
    [LP_STAGE_ROUTES] = BIT(KERNELS) | BIT(LAYERS),
    [LP_STAGE_CACHE] = BIT(KERNELS) | BIT(LAYERS) | BIT(ROUTES),
    [LP_STAGE_RANKS] = BIT(FILE) | BIT(KERNELS) | BIT(LAYERS) | BIT(ROUTES),
    [LP_STAGE_SPARSE] = BIT(FILE) | BIT(WEIGHTS) | BIT(KERNELS) | BIT(LAYERS) | BIT(ROUTES),
    [LP_STAGE_OUTPUT] = BIT(FILE) | BIT(WEIGHTS) | BIT(KERNELS) | BIT(TOKENS) | BIT(LAYERS) |
                        BIT(ROUTES) | BIT(CACHE) | BIT(SPARSE),
    [LP_STAGE_AGAINST] = BIT(FILE) | BIT(WEIGHTS) | BIT(KERNELS) | BIT(TOKENS) | BIT(LAYERS) |
                         BIT(ROUTES) | BIT(CACHE),
};

bool lp_stage_explains(enum lp_stage earlier, enum lp_stage later) {
    return explained_by[later] >> earlier & 1;
}

bool lp_report_explained(const struct lp_report *r, enum lp_stage stage) {
    for (size_t i = 0; i < r->n_faults; i++)
        if (lp_stage_explains(r->faults[i].stage, stage)) return true;
    return false;
}

bool lp_report_healthy(const struct lp_report *r) {
    for (size_t i = 0; i < r->n_faults; i++)
        if (!r->faults[i].follows) return false;
    return true;
}

static char *copy(struct lp_report *r, const char *text) {
    char *c = lp_strdup(text ? text : "");
    if (!c) r->failed = true;
    return c;
}

static char *format_text(struct lp_report *r, const char *format, va_list args) {
    char text[2048];
    vsnprintf(text, sizeof text, format, args);
    return copy(r, text);
}

struct lp_report *lp_report_new(const char *path, bool quick) {
    struct lp_report *r = lp_alloc(1, sizeof *r);
    if (!r) return NULL;
    r->quick = quick;
    r->path = copy(r, path);
    r->model = copy(r, "");
    r->last_check_ns = lp_clock_ns();
    if (r->failed) {
        lp_report_free(r);
        return NULL;
    }
    return r;
}

static void release_check(struct lp_check *c) {
    lp_free(c->name);
    lp_free(c->figure);
    lp_free(c->bound);
    lp_free(c->text);
}

static void release_fault(struct lp_fault *f) {
    lp_free(f->check);
    lp_free(f->what);
    lp_free(f->advice);
}

static void release_series(struct lp_series *s) {
    lp_free(s->name);
    lp_free(s->x_label);
    lp_free(s->y_label);
    lp_free(s->values);
}

void lp_report_free(struct lp_report *r) {
    if (!r) return;
    for (size_t i = 0; i < r->n_checks; i++) release_check(&r->checks[i]);
    for (size_t i = 0; i < r->n_faults; i++) release_fault(&r->faults[i]);
    for (size_t i = 0; i < r->n_series; i++) release_series(&r->series[i]);
    lp_free(r->checks);
    lp_free(r->faults);
    lp_free(r->series);
    lp_free(r->path);
    lp_free(r->model);
    lp_free(r->verdict);
    lp_free(r);
}

void lp_report_set_model(struct lp_report *r, const char *text) {
    char *own = copy(r, text);
    if (!own) return;
    lp_free(r->model);
    r->model = own;
}

// Room for one more at the end of an array; NULL when out of memory.
static void *one_more(struct lp_report *r, void **array, size_t n, size_t size) {
    if ((n & (n - 1)) == 0) { // grown at powers of two
        void *grown = lp_realloc(*array, n ? 2 * n : 1, size);
        if (!grown) {
            r->failed = true;
            return NULL;
        }
        *array = grown;
    }
    void *at = (char *)*array + n * size;
    memset(at, 0, size);
    return at;
}

static void add_check(struct lp_report *r, const struct lp_check_note *note, const char *format,
                      va_list args) {
    struct lp_check *c = one_more(r, (void **)&r->checks, r->n_checks, sizeof *c);
    if (!c) return;
    uint64_t now = lp_clock_ns();
    bool follows = note->outcome == LP_CHECK_FAULT && lp_report_explained(r, note->stage);
    *c = (struct lp_check){.stage = note->stage,
                           .outcome = follows ? LP_CHECK_FOLLOWS : note->outcome,
                           .name = copy(r, note->name),
                           .figure = copy(r, note->figure),
                           .bound = copy(r, note->bound),
                           .text = format_text(r, format, args),
                           .value = note->value,
                           .limit = note->limit,
                           .seconds = (double)(now - r->last_check_ns) * 1e-9};
    r->last_check_ns = now;
    if (r->failed) { // what is in the report is whole
        release_check(c);
        return;
    }
    r->n_checks++;
    if (r->on_check) r->on_check(r->user, c);
}

void lp_report_check(struct lp_report *r, const struct lp_check_note *note, const char *format,
                     ...) {
    va_list args;
    va_start(args, format);
    add_check(r, note, format, args);
    va_end(args);
}

void lp_report_say(struct lp_report *r, enum lp_stage stage, enum lp_outcome outcome,
                   const char *name, const char *format, ...) {
    struct lp_check_note note = {
        .stage = stage, .outcome = outcome, .name = name, .value = NAN, .limit = NAN};
    va_list args;
    va_start(args, format);
    add_check(r, &note, format, args);
    va_end(args);
}

bool lp_report_measure(struct lp_report *r, enum lp_stage stage, const char *name, double value,
                       double limit, const char *format, ...) {
    char figure[32], bound[48];
    bool ok = value <= limit;
    snprintf(figure, sizeof figure, "%.3g", value);
    snprintf(bound, sizeof bound, "at most %.3g", limit);
    struct lp_check_note note = {.stage = stage,
                                 .outcome = ok ? LP_CHECK_OK : LP_CHECK_FAULT,
                                 .name = name,
                                 .figure = figure,
                                 .bound = bound,
                                 .value = value,
                                 .limit = limit};
    va_list args;
    va_start(args, format);
    add_check(r, &note, format, args);
    va_end(args);
    return ok;
}

void lp_report_fault(struct lp_report *r, enum lp_stage stage, const char *check, int32_t layer,
                     const char *what, const char *advice_format, ...) {
    struct lp_fault *f = one_more(r, (void **)&r->faults, r->n_faults, sizeof *f);
    if (!f) return;
    va_list args;
    va_start(args, advice_format);
    *f = (struct lp_fault){.stage = stage,
                           .check = copy(r, check),
                           .layer = layer,
                           .what = copy(r, what),
                           .advice = format_text(r, advice_format, args),
                           .follows = lp_report_explained(r, stage)};
    va_end(args);
    if (r->failed)
        release_fault(f);
    else
        r->n_faults++;
}

void lp_report_follow(struct lp_report *r, const char *check) {
    for (size_t i = 0; i < r->n_checks; i++)
        if (strcmp(r->checks[i].name, check) == 0 && r->checks[i].outcome == LP_CHECK_FAULT)
            r->checks[i].outcome = LP_CHECK_FOLLOWS;
}

void lp_report_series(struct lp_report *r, const char *name, const char *x_label,
                      const char *y_label, bool log_y, const double *values, size_t n) {
    struct lp_series *s = one_more(r, (void **)&r->series, r->n_series, sizeof *s);
    if (!s) return;
    double *own = lp_alloc(n ? n : 1, sizeof *own);
    if (!own) {
        r->failed = true;
        return;
    }
    memcpy(own, values, n * sizeof *own);
    *s = (struct lp_series){.name = copy(r, name),
                            .x_label = copy(r, x_label),
                            .y_label = copy(r, y_label),
                            .log_y = log_y,
                            .values = own,
                            .n = n};
    if (r->failed)
        release_series(s);
    else
        r->n_series++;
}

// What was found to be sound before the first fault: the reader need not look there.
static void say_sound(enum lp_stage first_bad, struct lp_bytes *out) {
    bool file = first_bad > LP_STAGE_FILE, weights = first_bad > LP_STAGE_WEIGHTS;
    bool engine = first_bad > LP_STAGE_LAYERS;
    if (!file) return;
    lp_bytes_puts(out, "The file is whole and every tensor is bound");
    if (weights)
        lp_bytes_puts(out, engine ? ", the weights look sane" : " and the weights look sane");
    if (engine) lp_bytes_puts(out, " and every kernel agrees with its definition");
    lp_bytes_puts(out, ". ");
}

static void say_faults(const struct lp_report *r, struct lp_bytes *out) {
    size_t n = 0;
    const struct lp_fault *first = NULL;
    for (size_t i = 0; i < r->n_faults; i++) {
        if (r->faults[i].follows) continue;
        if (!first) first = &r->faults[i];
        n++;
    }
    say_sound(first->stage, out);
    lp_bytes_puts(out, first->advice);
    if (out->len && out->data[out->len - 1] != '.') lp_bytes_puts(out, ".");
    if (n == 2) lp_bytes_puts(out, " One more fault is listed.");
    if (n > 2) lp_bytes_printf(out, " %zu more faults are listed.", n - 1);
}

static void say_healthy(const struct lp_report *r, struct lp_bytes *out) {
    size_t skipped = lp_report_view_count(r, LP_CHECK_SKIPPED);
    lp_bytes_printf(out, "No fault found: %zu checks passed%s",
                    lp_report_view_count(r, LP_CHECK_OK),
                    r->quick ? " (quick: samples only; run without --quick before trusting it "
                               "fully)"
                             : "");
    if (skipped) lp_bytes_printf(out, ", %zu could not be made and say why", skipped);
    if (r->n_stages)
        lp_bytes_printf(out, "; nothing behind the stage %s was examined",
                        lp_stage_name((enum lp_stage)(r->n_stages - 1)));
    lp_bytes_puts(out, ".");
}

lp_status lp_report_close(struct lp_report *r, struct lp_err *err) {
    struct lp_bytes text = {0};
    if (lp_report_healthy(r))
        say_healthy(r, &text);
    else
        say_faults(r, &text);
    lp_free(r->verdict);
    r->verdict = text.failed ? NULL : copy(r, text.data);
    lp_bytes_release(&text);
    return r->failed || !r->verdict ? lp_err_memory(err, 0, "the doctor's report") : LP_OK;
}
