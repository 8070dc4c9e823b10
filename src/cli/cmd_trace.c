// limpid trace: what the JSON lines of a trace tell (--trace, the dump of a crash, an answer of
// GET /debug/trace): all in short, or one request step by step.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/args.h"
#include "cli/trace_files.h"

// What was left out is said whatever the format, and does not disturb it.
static void tell_skipped(const char *path, const struct lp_view_notes *notes) {
    if (notes->n_skipped > 0)
        fprintf(stderr, "limpid: %s: %lld line%s no event%s and skipped\n", path,
                (long long)notes->n_skipped, notes->n_skipped == 1 ? " is" : "s are",
                notes->n_skipped == 1 ? "" : "s");
    if (notes->cut)
        fprintf(stderr, "limpid: %s: the last line ends in its middle and was skipped\n", path);
}

// Lines and requests are told by one rank.
static void tell_rank(const struct lp_trace_files *files, const struct lp_view_asked *asked) {
    if (files->n > 1 && (asked->request || asked->format == LP_VIEW_JSON) &&
        asked->format != LP_VIEW_CHROME)
        fprintf(stderr, "limpid: this is by the first of %zu ranks; --rank N has another's\n",
                files->n);
}

static int write_view(const struct lp_trace_files *files, const struct lp_view_asked *asked,
                      FILE *out) {
    struct lp_err err;
    struct lp_view_notes notes;
    size_t shown = 0;
    lp_status status =
        files->n > 1 || asked->steps
            ? lp_view_write_ranks(files->files, files->n, asked, out, &shown, &notes, &err)
            : lp_view_write(files->files[0].lines, asked->request, asked->format, out, &notes,
                            &err);
    const char *path = files->files[shown].path;
    if (status) {
        if (status == LP_STATUS_FORMAT) lp_err_context(&err, "%s", path);
        return lp_fail((limpid_error *)&err);
    }
    tell_skipped(path, &notes);
    if (!notes.found)
        return lp_fail_text("%s has no request '%s'; limpid trace %s lists those it has", path,
                            asked->request, path);
    tell_rank(files, asked);
    return LP_EXIT_OK;
}

// What is mapped must not be cut off while it is read.
static int open_output(FILE **out, const char *output, const struct lp_trace_files *files) {
    if (!output) return LP_EXIT_OK;
    for (size_t i = 0; i < files->n; i++)
        if (lp_file_is_same(output, files->files[i].path))
            return lp_fail_text("%s is what is read; write elsewhere", output);
    FILE *file = fopen(output, "w");
    if (!file) return lp_fail_text("cannot write %s: %s", output, strerror(errno));
    *out = file;
    return LP_EXIT_OK;
}

static int show(const char *const *paths, size_t n, int64_t rank, const struct lp_view_asked *asked,
                const char *output) {
    struct lp_trace_files files;
    FILE *out = stdout;
    int status = lp_trace_files_open(&files, paths, n);
    if (!status && rank >= 0) status = lp_trace_files_keep(&files, rank);
    if (!status) status = open_output(&out, output, &files);
    if (!status) status = write_view(&files, asked, out);
    if (out != stdout && fclose(out) != 0 && !status)
        status = lp_fail_text("cannot write %s: %s", output, strerror(errno));
    lp_trace_files_release(&files);
    return status;
}

static int run(int argc, char **argv) {
    static const char *paths[LP_TRACE_MOST_FILES]; // missing ones stay NULL
    const char *format_name = "text", *output = NULL;
    struct lp_view_asked asked = {0};
    int64_t rank = -1;
    size_t n = 0;
    const struct lp_option options[] = {
        {"--request", LP_OPT_TEXT, &asked.request, "ID",
         "only this request: its id, or the number of a sequence"},
        {"--steps", LP_OPT_FLAG, &asked.steps, NULL,
         "a line for every step: what each rank did and waited, and who was waited for"},
        {"--rank", LP_OPT_INT, &rank, "N", "only this rank of several"},
        {"--format", LP_OPT_TEXT, &format_name, "NAME",
         "text (default), json (the lines), chrome (for ui.perfetto.dev)"},
        {"--output", LP_OPT_TEXT, &output, "F", "write to a file"},
    };
    int status = lp_args_parse(argc, argv, &lp_cmd_trace, options,
                               sizeof options / sizeof options[0], paths, LP_TRACE_MOST_FILES);
    if (status) return status < 0 ? LP_EXIT_OK : status;
    while (n < LP_TRACE_MOST_FILES && paths[n]) n++;
    if (n == 0) return lp_usage(&lp_cmd_trace, "FILE is needed ('-': standard input)");
    if (!lp_view_format_parse(format_name, &asked.format))
        return lp_usage(&lp_cmd_trace, "--format is '%s', expected text, json or chrome",
                        format_name);
    if (asked.steps && (asked.request || asked.format != LP_VIEW_TEXT))
        return lp_usage(&lp_cmd_trace, "--steps is a text about all requests");
    return show(paths, n, rank, &asked, output);
}

const struct lp_command lp_cmd_trace = {
    "trace",
    "FILE ... [--request ID | --steps] [--rank N] [--format text|json|chrome] [--output F]",
    "tells what a trace holds, or what happened to one request, step by step; the traces of "
    "several "
    "ranks (FILE.rank1 ... beside FILE, or named one by one) are put on one time line",
    run};
