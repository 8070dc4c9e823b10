// The examination on a terminal, as it goes on, and its end: faults, then the verdict, last of all.
// On what is no terminal the same in plain lines, one for each thing, for grep.
#ifndef LP_CLI_DOCTOR_PRINT_H
#define LP_CLI_DOCTOR_PRINT_H

#include <stdio.h>

#include "doctor/report.h"

struct lp_doctor_view {
    FILE *to;
    int width;   // columns; 0 = lines are not broken
    bool fancy;  // colours, and ticks for words
    bool failed; // out of memory, something was not printed
};

// Width and colours of this stream: none where it is no terminal; NO_COLOR and TERM=dumb turn
// colours off.
void lp_doctor_view_init(struct lp_doctor_view *view, FILE *to);

// "weights: about 40 s". LP_N_STAGES: the whole examination. expected_s 0: not known.
void lp_doctor_print_stage(struct lp_doctor_view *view, enum lp_stage stage, double expected_s);
void lp_doctor_print_check(struct lp_doctor_view *view, const struct lp_check *check);
void lp_doctor_print_end(struct lp_doctor_view *view, const struct lp_report *report);

#endif
