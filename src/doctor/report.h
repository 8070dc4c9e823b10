// What the doctor found: checks with their figures, faults with advice, series for plots, and the
// verdict. Filled by the stages in order; written as text, JSON or one HTML page.
//
// Of a fault that an earlier stage explains nothing is said twice: it "follows" from that one,
// stays in the table of checks and is not accused (lp_stage_explains).
#ifndef LP_DOCTOR_REPORT_H
#define LP_DOCTOR_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/status.h"

enum lp_stage {
    LP_STAGE_FILE,    // container, split set, names, metadata
    LP_STAGE_WEIGHTS, // values
    LP_STAGE_KERNELS, // dequantisers and dot products
    LP_STAGE_TOKENS,  // tokenizer and chat template
    LP_STAGE_LAYERS,  // every operation against ref, layer by layer
    LP_STAGE_ROUTES,  // expanded, absorbed, sparse below top-k
    LP_STAGE_CACHE,   // chunked, cached, batched, restored
    LP_STAGE_RANKS,   // several processes that run the model together
    LP_STAGE_SPARSE,  // what the indexer selects
    LP_STAGE_OUTPUT,  // what the model says
    LP_STAGE_AGAINST, // another engine's dump
    LP_N_STAGES,
};
const char *lp_stage_name(enum lp_stage stage);           // "file", "weights", ...
bool lp_stage_find(const char *name, enum lp_stage *out); // false for another name

enum lp_outcome {
    LP_CHECK_OK,
    LP_CHECK_NOTE, // nothing wrong, but a person should know
    LP_CHECK_FAULT,
    LP_CHECK_FOLLOWS, // wrong because of a fault that was found before
    LP_CHECK_SKIPPED, // not done; the text says why
};
const char *lp_outcome_name(enum lp_outcome outcome); // "ok", "note", "fault", "follows", "skipped"

struct lp_check {
    enum lp_stage stage;
    enum lp_outcome outcome;
    char *name;     // "tensors bound", stable, for people and scripts
    char *figure;   // as measured: "1,809 of 1,809", "3.1e-07"
    char *bound;    // what was expected: "all", "at most 1e-05"; "" where there is none
    char *text;     // one sentence
    double value;   // the figure as a number; NaN where it has none
    double limit;   // the bound as a number; NaN
    double seconds; // since the last check ended
};

struct lp_fault {
    enum lp_stage stage;
    char *check;   // name of the check that found it
    int32_t layer; // or -1
    char *what;    // tensor, operation or key: "blk.3.attn_k_b.weight", "mla_absorbed"
    char *advice;  // one or two sentences: what is wrong and what to do
    bool follows;  // explained by a fault of an earlier stage
};

struct lp_series { // for plots: one value per layer, row or position
    char *name;    // "divergence: residual stream against ref"
    char *x_label, *y_label;
    bool log_y;
    double *values; // [n]; NaN = not measured
    size_t n;
};

struct lp_report {
    char *path, *model; // model: "glm-dsa, 5 layers, 23.9 MB, mostly Q8_0" or ""
    bool quick;
    int n_stages; // only the first so many were examined; 0: all
    struct lp_check *checks;
    size_t n_checks;
    struct lp_fault *faults;
    size_t n_faults;
    struct lp_series *series;
    size_t n_series;
    char *verdict; // set by lp_report_close
    double seconds;
    bool failed;            // out of memory while noting something: lp_report_close says MEMORY
    uint64_t last_check_ns; // for lp_check.seconds
    void (*on_check)(void *user, const struct lp_check *check);
    void *user;
};

struct lp_report *lp_report_new(const char *path, bool quick); // NULL when out of memory
void lp_report_free(struct lp_report *report);                 // NULL is allowed

void lp_report_set_model(struct lp_report *report, const char *text); // copied

// Whether a fault of `earlier` explains one of `later`.
bool lp_stage_explains(enum lp_stage earlier, enum lp_stage later);
// Whether a fault was found that explains faults of this stage.
bool lp_report_explained(const struct lp_report *report, enum lp_stage stage);
bool lp_report_healthy(const struct lp_report *report); // no fault that does not follow

// A check with its figure and bound as texts and, where they are numbers, as numbers (else NaN).
// FAULT becomes FOLLOWS where an earlier stage explains it. All texts are copied.
struct lp_check_note {
    enum lp_stage stage;
    enum lp_outcome outcome;
    const char *name, *figure, *bound;
    double value, limit;
};
void lp_report_check(struct lp_report *report, const struct lp_check_note *note, const char *format,
                     ...) __attribute__((format(printf, 3, 4)));
// Short forms without numbers: NOTE, OK or SKIPPED with a sentence.
void lp_report_say(struct lp_report *report, enum lp_stage stage, enum lp_outcome outcome,
                   const char *name, const char *format, ...) __attribute__((format(printf, 5, 6)));
// A number against the most that is allowed: OK if value <= limit, else FAULT (NaN: FAULT).
// Returns whether it was OK. The check alone accuses nobody: call lp_report_fault too.
bool lp_report_measure(struct lp_report *report, enum lp_stage stage, const char *name,
                       double value, double limit, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

// Accuses. layer -1: none in particular. `advice`: what is wrong and what to do.
void lp_report_fault(struct lp_report *report, enum lp_stage stage, const char *check,
                     int32_t layer, const char *what, const char *advice_format, ...)
    __attribute__((format(printf, 6, 7)));

// A check that looked like a fault follows from what a later stage found.
void lp_report_follow(struct lp_report *report, const char *check);

// values: copied, [n].
void lp_report_series(struct lp_report *report, const char *name, const char *x_label,
                      const char *y_label, bool log_y, const double *values, size_t n);

// Makes the verdict. MEMORY if anything could not be noted.
lp_status lp_report_close(struct lp_report *report, struct lp_err *err);

// report_json.c, report_html.c. False when out of memory. (The terminal: cli/doctor_print.c.)
bool lp_report_json(const struct lp_report *report, struct lp_bytes *out);
bool lp_report_html(const struct lp_report *report, struct lp_bytes *out);

#endif
