// A trace made readable. What a file of --trace or of a crash holds, or what an engine remembers
// (limpid_engine_trace), is JSON lines; here they become a text for people, the lines of one
// request, or a trace in Chrome's format, which Perfetto opens.
//
//   view_lines.c   one line after another, each checked
//   view_index.c   a first pass over all: sequences, whose they are, their steps, figures
//   then           view_summary.c  text: what happened at all, from the index alone
//                  view_story.c    text: one request, step by step
//                  view_chrome.c   Chrome's format
//
// Of several ranks, which write a trace each:
//
//   view_rank.c    a pass over each: its steps, and by what clock
//   view_clock.c   one clock for all
//   view_ranks.c   text: who is slow, who waits, in which steps, and what is missing
//
// The lines may come from anywhere: hostile ones are skipped and counted, memory grows with the
// number of sequences and of different words, not with the number of events (but for the steps of
// the one request that is told, and of several ranks).
#ifndef LP_TRACE_VIEW_H
#define LP_TRACE_VIEW_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/bytes.h"
#include "base/status.h"

enum lp_view_format { LP_VIEW_TEXT, LP_VIEW_JSON, LP_VIEW_CHROME, LP_VIEW_N_FORMATS };

// "text", "json", "chrome". False for another name.
bool lp_view_format_parse(const char *name, enum lp_view_format *out);

struct lp_view_notes {
    int64_t n_events;  // lines that are events
    int64_t n_skipped; // lines that are none
    bool cut;          // the last line ends in its middle; it is not among the skipped
    bool found;        // there is something of the request that was asked for
};

// request: an id that a caller gave (of ids longer than the trace keeps, the beginning that it
// keeps), or where nobody has that id the number of a sequence; NULL: all. Where it is not found
// (notes->found) nothing is written. Errors: FORMAT (no event at all), MEMORY, IO (of out).
lp_status lp_view_write(struct lp_str trace, const char *request, enum lp_view_format format,
                        FILE *out, struct lp_view_notes *notes, struct lp_err *err);

// ---- several ranks

struct lp_view_file { // the trace of one rank
    const char *path;
    const char *why;     // it is not there, or NULL
    struct lp_str lines; // where it is
    int64_t rank;        // if the trace does not say which
};

struct lp_view_asked {
    const char *request; // as above
    enum lp_view_format format;
    bool steps; // text: a list of all steps
};

// Joins them on one clock. What is of one rank alone (a request, lines) is that of the lowest which is
// there; notes are its. *shown: its place in files. Errors: as above, and INVALID (two are of one rank).
lp_status lp_view_write_ranks(const struct lp_view_file *files, size_t n,
                              const struct lp_view_asked *asked, FILE *out, size_t *shown,
                              struct lp_view_notes *notes, struct lp_err *err);

#endif
