// limpid imatrix: how large the activations are that meet each column of every matrix, for limpid
// quantize --imatrix.
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/file.h"
#include "cli/args.h"
#include "cli/find_model.h"
#include "cli/interrupt.h"
#include "cli/output_file.h"
#include "cli/wrote.h"
#include "engine/model_file.h"
#include "files/imatrix_collect.h"

#define MAX_CHUNK 65536

static int check_settings(const struct lp_imatrix_options *o, int64_t threads) {
    if (!o->model || !o->text || (!o->output && !o->older))
        return lp_usage(&lp_cmd_imatrix, "MODEL, -f TEXT and -o OUT.gguf are needed");
    if (o->output && o->older && strcmp(o->output, o->older) == 0)
        return lp_usage(&lp_cmd_imatrix, "-o and --legacy name one file, %s; two are written",
                        o->output);
    if (o->chunk < 2 || o->chunk > MAX_CHUNK)
        return lp_usage(&lp_cmd_imatrix, "--chunk is %lld, expected 2 to %d", (long long)o->chunk,
                        MAX_CHUNK);
    return lp_check_threads(&lp_cmd_imatrix, threads);
}

// Hours of work go into these: what cannot be written is said at once.
static int check_output(const struct lp_imatrix_options *o, const char *path) {
    struct lp_err err;
    if (!path) return LP_EXIT_OK;
    if (lp_model_file_holds(o->model, path) || lp_file_is_same(path, o->text))
        return lp_fail_text("%s is read here, and would be written over; name another file", path);
    if (!o->overwrite && lp_file_is_same(path, path))
        return lp_fail_text("%s exists; --force writes over it", path);
    return lp_output_check(path, &err) ? lp_fail_text("%s", err.text) : LP_EXIT_OK;
}

static void print_result(const struct lp_imatrix_options *o, const struct lp_imatrix_result *r) {
    const char *out = o->output ? o->output : o->older;
    struct stat st;
    if (r->stopped)
        fprintf(stderr, "limpid: stopped after %lld of %lld chunks\n", (long long)r->n_chunks,
                (long long)(o->max_chunks && o->max_chunks < r->n_chunks_of_text
                                ? o->max_chunks
                                : r->n_chunks_of_text));
    if (r->n_unmet)
        fprintf(stderr,
                "limpid: no token chose %lld of %lld experts' matrices; a longer or more varied "
                "text meets more\n",
                (long long)r->n_unmet, (long long)r->n_experts);
    lp_wrote("wrote", out, (uint64_t)r->n_entries, stat(out, &st) ? 0 : (uint64_t)st.st_size);
    printf(", from %lld chunks (%lld tokens), in %.1f s (%.1f tokens/s)", (long long)r->n_chunks,
           (long long)r->n_tokens, r->seconds,
           r->seconds > 0 ? (double)r->n_tokens / r->seconds : 0.0);
    lp_wrote_memory();
    putchar('\n');
}

static int collect(struct lp_imatrix_options *o) {
    struct lp_imatrix_result result;
    struct lp_err err;
    int status = check_output(o, o->output);
    if (!status) status = check_output(o, o->older);
    if (status) return status;
    if (lp_interrupt_watch(-1)) o->stop = lp_interrupted;
    if (lp_imatrix_collect(o, &result, &err))
        status = lp_fail_text("%s", err.text);
    else
        print_result(o, &result);
    if (o->stop) lp_interrupt_unwatch();
    return status;
}

static int run(int argc, char **argv) {
    struct lp_imatrix_options o = {.chunk = 512, .backend = "cpu"};
    const char *model = NULL;
    char *found = NULL;
    int64_t threads = 0;
    const struct lp_option options[] = {
        {"-f", LP_OPT_TEXT, &o.text, "TEXT",
         "a file of text, as varied as what the model is for; Ctrl-C writes what has been counted"},
        {"-o", LP_OPT_TEXT, &o.output, "OUT.gguf", "where to write it"},
        {"--legacy", LP_OPT_TEXT, &o.older, "OUT.dat", "write the older binary form, too or alone"},
        {"--chunk", LP_OPT_INT, &o.chunk, "N",
         "tokens that are read together, each chunk from an empty context; default 512"},
        {"--chunks", LP_OPT_INT, &o.max_chunks, "N", "no more chunks than these; default: all"},
        {"--process-output", LP_OPT_FLAG, &o.with_output, NULL, "the output matrix too"},
        {"--threads", LP_OPT_INT, &threads, "N", "threads; default: a physical core each"},
        {"--backend", LP_OPT_TEXT, &o.backend, "NAME", "cpu (default) or ref"},
        {"--force", LP_OPT_FLAG, &o.overwrite, NULL, "write over files that exist"},
    };
    int status = lp_args_parse(argc, argv, &lp_cmd_imatrix, options,
                               sizeof options / sizeof options[0], &model, 1);
    if (status) return status < 0 ? LP_EXIT_OK : status;
    o.model = model;
    status = check_settings(&o, threads);
    const struct lp_model_wish wish = {&lp_cmd_imatrix, model, argc, argv, LP_MODEL_PRECISE};
    if (!status) status = lp_find_model_for(&found, &wish);
    o.model = found;
    o.n_threads = (int)threads;
    if (!status) status = collect(&o);
    lp_free(found);
    return status;
}

const struct lp_command lp_cmd_imatrix = {
    "imatrix", "MODEL -f TEXT -o OUT.gguf [--chunk N] [--chunks N] [--legacy OUT.dat]",
    "collects the importances of columns from a text, for quantize --imatrix", run};
