// limpid trace: what the JSON lines of a trace tell (--trace, the dump of a crash, an answer of
// GET /debug/trace): all in short, or one request step by step.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "cli/args.h"
#include "cli/output_file.h"
#include "trace/view.h"

#define MOST_INPUT (UINT64_C(1) << 30) // of a pipe, which is kept in memory

struct input {
    struct lp_mapped map;
    struct lp_bytes bytes; // of standard input
};

static int read_input(struct input *in, const char *path) {
    char piece[65536];
    size_t n;
    struct lp_err err;
    if (strcmp(path, "-") != 0)
        return lp_mapped_open(&in->map, path, &err) ? lp_fail((limpid_error *)&err) : LP_EXIT_OK;
    in->bytes.max_bytes = MOST_INPUT;
    while ((n = fread(piece, 1, sizeof piece, stdin)) > 0)
        if (!lp_bytes_append(&in->bytes, piece, n))
            return lp_fail_text("standard input is larger than 1 GiB or than memory; give a file");
    return ferror(stdin) ? lp_fail_text("cannot read standard input: %s", strerror(errno))
                         : LP_EXIT_OK;
}

static void release_input(struct input *in) {
    lp_mapped_close(&in->map);
    lp_bytes_release(&in->bytes);
}

static struct lp_str view_of(const struct input *in) {
    if (in->map.data) return (struct lp_str){(const char *)in->map.data, in->map.n_bytes};
    return lp_bytes_view(&in->bytes);
}

// What was left out is said whatever the format, and does not disturb it.
static void tell_skipped(const char *path, const struct lp_view_notes *notes) {
    if (notes->n_skipped > 0)
        fprintf(stderr, "limpid: %s: %lld line%s no event%s and skipped\n", path,
                (long long)notes->n_skipped, notes->n_skipped == 1 ? " is" : "s are",
                notes->n_skipped == 1 ? "" : "s");
    if (notes->cut)
        fprintf(stderr, "limpid: %s: the last line ends in its middle and was skipped\n", path);
}

static int write_view(const struct input *in, const char *path, const char *request,
                      enum lp_view_format format, FILE *out) {
    struct lp_err err;
    struct lp_view_notes notes;
    if (lp_view_write(view_of(in), request, format, out, &notes, &err)) {
        if (err.status == LP_STATUS_FORMAT) lp_err_context(&err, "%s", path);
        return lp_fail((limpid_error *)&err);
    }
    tell_skipped(path, &notes);
    if (notes.found) return LP_EXIT_OK;
    return lp_fail_text("%s has no request '%s'; limpid trace %s lists those it has", path, request,
                        path);
}

// What is mapped must not be cut off while it is read.
static int open_output(FILE **out, const char *output, const char *path) {
    if (!output) return LP_EXIT_OK;
    if (lp_file_is_same(output, path))
        return lp_fail_text("%s is what is read; write elsewhere", output);
    FILE *file = fopen(output, "w");
    if (!file) return lp_fail_text("cannot write %s: %s", output, strerror(errno));
    *out = file;
    return LP_EXIT_OK;
}

static int run(int argc, char **argv) {
    const char *path = NULL, *request = NULL, *format_name = "text", *output = NULL;
    enum lp_view_format format;
    struct input in = {0};
    const struct lp_option options[] = {
        {"--request", LP_OPT_TEXT, &request, "ID",
         "only this request: its id, or the number of a sequence"},
        {"--format", LP_OPT_TEXT, &format_name, "NAME",
         "text (default), json (the lines), chrome (for ui.perfetto.dev)"},
        {"--output", LP_OPT_TEXT, &output, "F", "write to a file"},
    };
    int status = lp_args_parse(argc, argv, &lp_cmd_trace, options,
                               sizeof options / sizeof options[0], &path, 1);
    if (status) return status < 0 ? LP_EXIT_OK : status;
    if (!path) return lp_usage(&lp_cmd_trace, "FILE is needed ('-': standard input)");
    if (!lp_view_format_parse(format_name, &format))
        return lp_usage(&lp_cmd_trace, "--format is '%s', expected text, json or chrome",
                        format_name);
    status = read_input(&in, path);
    FILE *out = stdout;
    if (!status) status = open_output(&out, output, path);
    if (!status) status = write_view(&in, path, request, format, out);
    if (out != stdout && fclose(out) != 0 && !status)
        status = lp_fail_text("cannot write %s: %s", output, strerror(errno));
    release_input(&in);
    return status;
}

const struct lp_command lp_cmd_trace = {
    "trace", "FILE [--request ID] [--format text|json|chrome] [--output F]",
    "tells what a trace holds, or what happened to one request, step by step", run};
