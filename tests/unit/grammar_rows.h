// Tables of sources with the texts that their grammars accept and reject.
#ifndef GRAMMAR_ROWS_H
#define GRAMMAR_ROWS_H

#include "lp_test.h"

#include "grammar/grammar.h"

#define MAX_TEXTS 12

struct grammar_row {
    const char *source;
    const char *yes[MAX_TEXTS], *no[MAX_TEXTS]; // NULL-terminated where shorter
};

struct refused_row {
    const char *source;
    lp_status status;
    const char *words; // in the sentence
};

static inline struct lp_grammar *compile_row(enum lp_grammar_kind kind, const char *source) {
    struct lp_grammar *grammar;
    struct lp_err err = {0};
    lp_status status =
        lp_grammar_compile(&grammar, kind, lp_str_from(source), NULL, NULL, NULL, &err);
    if (status) fail_msg("%s\n  of %s", err.text, source);
    return grammar;
}

static inline void check_rows(enum lp_grammar_kind kind, const struct grammar_row *rows, size_t n) {
    for (size_t i = 0; i < n; i++) {
        struct lp_grammar *grammar = compile_row(kind, rows[i].source);
        for (size_t k = 0; k < MAX_TEXTS && rows[i].yes[k]; k++)
            if (!lp_grammar_matches(grammar, lp_str_from(rows[i].yes[k])))
                fail_msg("rejected: %s\n  by %s", rows[i].yes[k], rows[i].source);
        for (size_t k = 0; k < MAX_TEXTS && rows[i].no[k]; k++)
            if (lp_grammar_matches(grammar, lp_str_from(rows[i].no[k])))
                fail_msg("accepted: %s\n  by %s", rows[i].no[k], rows[i].source);
        lp_grammar_put(grammar);
    }
}

static inline void check_refused(enum lp_grammar_kind kind, const struct refused_row *rows,
                                 size_t n) {
    for (size_t i = 0; i < n; i++) {
        struct lp_grammar *grammar;
        struct lp_err err = {0};
        lp_status status =
            lp_grammar_compile(&grammar, kind, lp_str_from(rows[i].source), NULL, NULL, NULL, &err);
        if (status != rows[i].status || grammar || !strstr(err.text, rows[i].words))
            fail_msg("status %s, \"%s\"\n  of %s", lp_status_name(status), err.text,
                     rows[i].source);
    }
}

#define CHECK_ROWS(kind, rows) check_rows(kind, rows, sizeof(rows) / sizeof *(rows))
#define CHECK_REFUSED(kind, rows) check_refused(kind, rows, sizeof(rows) / sizeof *(rows))

#endif
