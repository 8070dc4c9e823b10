// One series of a report as a plot: SVG to stand in an HTML page, whose style sheet (report.css)
// gives it its colours. Nothing in it runs or is fetched.
#ifndef LP_DOCTOR_REPORT_SVG_H
#define LP_DOCTOR_REPORT_SVG_H

#include "doctor/report.h"

// `bound`: a check whose limit is drawn as a line, with its bound as the label; or NULL. What was
// not measured (NaN) is a gap, an infinity a mark at the edge. On a logarithmic axis what is not
// positive lies on a line of its own below it. False without memory.
bool lp_report_svg(struct lp_bytes *out, const struct lp_series *series,
                   const struct lp_check *bound);

#endif
