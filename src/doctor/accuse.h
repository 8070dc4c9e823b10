// Inside doctor: words that the stages share.
#ifndef LP_DOCTOR_ACCUSE_H
#define LP_DOCTOR_ACCUSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "doctor/report.h"

#define LP_WHAT_BYTES 128

// The key, tensor or token list that an error's sentence is about: what follows "metadata key ",
// "key " or "tensor ", or a word that begins with "tokenizer.". False where it names none.
bool lp_accuse_what(const char *sentence, char out[LP_WHAT_BYTES]);

// "1,809"
struct lp_number {
    char text[32];
};
struct lp_number lp_accuse_number(uint64_t n);

// Notes the outcome of a check that counts: FAULT where n_wrong > 0, else OK. The accusations
// themselves are the caller's. figure: "12 of 12".
void lp_accuse_counted(struct lp_report *report, enum lp_stage stage, const char *name,
                       uint64_t n_right, uint64_t n_wrong, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

#endif
