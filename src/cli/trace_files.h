// The files of a trace: one, or one for each rank of a run (FILE, FILE.rank1, FILE.rank2 ...).
#ifndef LP_CLI_TRACE_FILES_H
#define LP_CLI_TRACE_FILES_H

#include "base/alloc.h"
#include "base/file.h"
#include "trace/view.h"

#define LP_TRACE_MOST_FILES 1024

struct lp_trace_files {
    struct lp_view_file *files; // [n]
    struct lp_mapped *maps;     // [n]
    size_t n;
    struct lp_bytes piped; // what came on standard input
    struct lp_arena texts; // paths and reasons
};

// Opens paths[0..n). Beside one alone, those of the other ranks: as many as it says that there were, or
// if it does not say, as far as there are; one that cannot be read, or says that it is of another run,
// has its `why`. On failure prints the
// error and returns the exit status. Release it either way.
int lp_trace_files_open(struct lp_trace_files *files, const char *const *paths, size_t n);
// Keeps the file of one rank. On failure prints the error.
int lp_trace_files_keep(struct lp_trace_files *files, int64_t rank);
void lp_trace_files_release(struct lp_trace_files *files);

#endif
