// The table: name, option, where it is kept, what it may be.
#include "cli/sample_options.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

struct row {
    const char *name, *option;
    enum lp_option_kind kind; // INT or FLOAT
    size_t offset;
    double min, max;
    bool above_min; // min itself is not allowed
    const char *argument, *help;
};

#define AT(field) offsetof(struct lp_sampling, field)
// Whole numbers beyond 2^53 are no seeds that a double in JSON could carry.
#define MAX_WHOLE 9007199254740992.0

static const struct row rows[LP_N_SAMPLING] = {
    {"temperature", "--temp", LP_OPT_FLOAT, AT(temperature), 0, 100, false, "T",
     "temperature; 0 always takes the most probable token (default: the file's, or 0)"},
    {"top_p", "--top-p", LP_OPT_FLOAT, AT(top_p), 0, 1, true, "P",
     "sample from the most probable tokens that add up to P"},
    {"top_k", "--top-k", LP_OPT_INT, AT(top_k), 0, INT32_MAX, false, "K",
     "sample from the K most probable tokens"},
    {"min_p", "--min-p", LP_OPT_FLOAT, AT(min_p), 0, 1, false, "P",
     "leave out tokens less probable than P times the most probable one"},
    {"repetition_penalty", "--repeat-penalty", LP_OPT_FLOAT, AT(repetition_penalty), 0, 10, true,
     "R", "make tokens of prompt and answer less probable (1 = off)"},
    {"presence_penalty", "--presence-penalty", LP_OPT_FLOAT, AT(presence_penalty), -2, 2, false,
     "R", "take R off what the answer holds already (0 = off)"},
    {"frequency_penalty", "--frequency-penalty", LP_OPT_FLOAT, AT(frequency_penalty), -2, 2, false,
     "R", "take R off for each time that the answer holds it (0 = off)"},
    {"max_tokens", "-n", LP_OPT_INT, AT(max_tokens), 0, MAX_WHOLE, false, "N",
     "most tokens to generate (default: to the end of the context)"},
    {"seed", "--seed", LP_OPT_INT, AT(seed), 0, (double)INT64_MAX, false, "S",
     "same seed, same text (default: a new one each time)"},
};

struct lp_sampling lp_sampling_defaults(void) {
    return (struct lp_sampling){.top_p = 1, .repetition_penalty = 1, .max_tokens = -1, .seed = -1};
}

struct lp_sampling lp_sampling_unset(void) {
    struct lp_sampling s = lp_sampling_defaults();
    s.temperature = s.top_p = s.min_p = s.repetition_penalty = NAN;
    s.top_k = -1;
    return s;
}

static void *field(struct lp_sampling *s, const struct row *row) {
    return (char *)s + row->offset;
}

static double value_of(const struct lp_sampling *s, const struct row *row) {
    const void *at = (const char *)s + row->offset;
    return row->kind == LP_OPT_INT ? (double)*(const int64_t *)at : *(const double *)at;
}

void lp_sampling_options(struct lp_sampling *s, struct lp_option *out) {
    for (size_t i = 0; i < LP_N_SAMPLING; i++)
        out[i] = (struct lp_option){rows[i].option, rows[i].kind, field(s, &rows[i]),
                                    rows[i].argument, rows[i].help};
}

static bool is_in_range(const struct row *row, double value) {
    return value <= row->max && (row->above_min ? value > row->min : value >= row->min);
}

static lp_status fail_range(const struct row *row, const char *called, const char *value,
                            struct lp_err *err) {
    const char *kind = row->kind == LP_OPT_INT ? "a whole number, " : "";
    if (row->max >= MAX_WHOLE)
        return lp_err_set(err, LP_STATUS_INVALID, "%s is '%s', expected %s%g or more", called,
                          value, kind, row->min);
    return lp_err_set(err, LP_STATUS_INVALID, "%s is '%s', expected %s%s %g and at most %.10g",
                      called, value, kind, row->above_min ? "more than" : "at least", row->min,
                      row->max);
}

static bool is_unset(const struct row *row, double value) {
    return row->kind == LP_OPT_INT ? value == -1 : isnan(value);
}

int lp_sampling_check(const struct lp_sampling *s, const struct lp_command *command) {
    struct lp_err err;
    char text[32];
    for (size_t i = 0; i < LP_N_SAMPLING; i++) {
        double value = value_of(s, &rows[i]);
        if (is_unset(&rows[i], value) || is_in_range(&rows[i], value)) continue;
        snprintf(text, sizeof text, "%.10g", value);
        fail_range(&rows[i], rows[i].option, text, &err);
        return lp_usage(command, "%s", err.text);
    }
    return LP_EXIT_OK;
}

static const struct row *find(const char *name) {
    for (size_t i = 0; i < LP_N_SAMPLING; i++)
        if (strcmp(rows[i].name, name) == 0) return &rows[i];
    return NULL;
}

lp_status lp_sampling_set(struct lp_sampling *s, const char *name, const char *value,
                          struct lp_err *err) {
    const struct row *row = find(name);
    char *end;
    if (!row)
        return lp_err_set(err, LP_STATUS_INVALID, "there is no setting '%s'; /set lists them",
                          name);
    errno = 0;
    if (row->kind == LP_OPT_INT) {
        long long whole = strtoll(value, &end, 10);
        if (end == value || *end || errno || !is_in_range(row, (double)whole))
            return fail_range(row, name, value, err);
        *(int64_t *)field(s, row) = whole;
        return LP_OK;
    }
    double real = strtod(value, &end);
    if (end == value || *end || !isfinite(real) || !is_in_range(row, real))
        return fail_range(row, name, value, err);
    *(double *)field(s, row) = real;
    return LP_OK;
}

void lp_sampling_settle(struct lp_sampling *s, double temperature, const limpid_model *model) {
    const limpid_model_sampling m = limpid_model_get_sampling(model);
    const struct {
        const char *name;
        double suggested, otherwise;
    } list[] = {{"temperature", m.temperature, temperature},
                {"top_p", m.top_p, 1},
                {"top_k", m.top_k, 0},
                {"min_p", m.min_p, 0},
                {"repetition_penalty", m.repetition_penalty, 1}};
    struct lp_bytes taken = {0};
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        const struct row *row = find(list[i].name);
        double value = list[i].suggested;
        if (!is_unset(row, value_of(s, row))) continue;
        bool use = isfinite(value) && is_in_range(row, value);
        if (!use) value = list[i].otherwise;
        if (row->kind == LP_OPT_INT)
            *(int64_t *)field(s, row) = (int64_t)value;
        else
            *(double *)field(s, row) = value;
        if (use && value != list[i].otherwise)
            lp_bytes_printf(&taken, "%s%s %g", taken.len ? ", " : "", row->name, value);
    }
    if (taken.len && !taken.failed)
        fprintf(stderr, "limpid: settings from the model's file: %s (options override them)\n",
                taken.data);
    lp_bytes_release(&taken);
}

void lp_sampling_print(const struct lp_sampling *s, FILE *to) {
    for (size_t i = 0; i < LP_N_SAMPLING; i++) {
        double value = value_of(s, &rows[i]);
        if (rows[i].kind == LP_OPT_INT && value == -1)
            fprintf(to, "%-19s to the end of the context\n", rows[i].name);
        else if (rows[i].kind == LP_OPT_INT)
            fprintf(to, "%-19s %" PRId64 "\n", rows[i].name,
                    *(const int64_t *)((const char *)s + rows[i].offset));
        else
            fprintf(to, "%-19s %g\n", rows[i].name, value);
    }
}

void lp_sampling_apply(const struct lp_sampling *s, int64_t room, limpid_request_options *o) {
    o->max_tokens = s->max_tokens >= 0 ? s->max_tokens : room > 0 ? room : 1;
    o->temperature = (float)s->temperature;
    o->top_p = (float)s->top_p;
    o->top_k = (int32_t)s->top_k;
    o->min_p = (float)s->min_p;
    o->repetition_penalty = (float)s->repetition_penalty;
    o->presence_penalty = (float)s->presence_penalty;
    o->frequency_penalty = (float)s->frequency_penalty;
    o->seed = (uint64_t)s->seed;
}
