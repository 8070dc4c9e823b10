// What the writers of a report share: finding things in it, and its texts made safe. Names in it
// come from files, so a text is never passed on as it is.
#ifndef LP_DOCTOR_REPORT_VIEW_H
#define LP_DOCTOR_REPORT_VIEW_H

#include "doctor/report.h"

// The check that a fault was found by, or NULL: of several with that name in that stage the last
// that failed.
const struct lp_check *lp_report_view_check(const struct lp_report *report,
                                            const struct lp_fault *fault);
size_t lp_report_view_count(const struct lp_report *report, enum lp_outcome outcome);
size_t lp_report_view_faults(const struct lp_report *report, bool follows);

// What the stage looks at, for people: "the values of the weights".
const char *lp_report_view_stage(enum lp_stage stage);

// A copy without control bytes and ill-formed UTF-8 (base/clean.h); NULL is "". NULL without
// memory; free with lp_free.
char *lp_report_view_clean(const char *text);
// Appends that copy escaped for HTML: as text and within quotes. False without memory.
bool lp_report_view_escape(struct lp_bytes *out, const char *text);
// The same, cut behind max_chars characters with "..." behind.
bool lp_report_view_escape_cut(struct lp_bytes *out, const char *text, size_t max_chars);

#endif
