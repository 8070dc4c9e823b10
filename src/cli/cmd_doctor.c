// limpid doctor: examines a model, prints what is found as it is found, writes the report as JSON
// and as a page. Exit status 0 healthy, 1 fault found, 2 could not run.
#include "doctor/doctor.h"

#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "base/workers.h"
#include "cli/args.h"
#include "cli/doctor_print.h"
#include "cli/find_model.h"
#include "cli/model_folder.h"
#include "cli/output_file.h"
#include "cli/program_ranks.h"
#include "engine/follow.h"
#include "engine/model_file.h"

enum { EXIT_HEALTHY = 0, EXIT_FAULT = 1, EXIT_COULD_NOT_RUN = 2 };

struct visit {
    struct lp_doctor_options options;
    struct lp_common common;
    const char *json, *html, *until;      // where to; the last stage; or NULL
    struct lp_doctor_view view, progress; // of checks and verdict; of what comes next
};

static bool is_stdout(const char *path) {
    return path && strcmp(path, "-") == 0;
}

static int could_not(const struct lp_err *err) {
    lp_fail_text("%s", err->text);
    return EXIT_COULD_NOT_RUN;
}

// ---- while it goes on ----

static void begin_stage(void *user, enum lp_stage stage, double expected_s) {
    lp_doctor_print_stage(&((struct visit *)user)->progress, stage, expected_s);
}

static void end_check(void *user, const struct lp_check *check) {
    lp_doctor_print_check(&((struct visit *)user)->view, check);
}

// ---- the report's files ----

// Minutes of work are not to end in a file that cannot be written, nor in a model written over.
static int check_output(const struct visit *v, const char *option, const char *path) {
    struct lp_err err;
    if (!path || is_stdout(path)) return EXIT_HEALTHY;
    if (lp_name_ends(path, ".gguf") || lp_model_file_holds(v->options.path, path) ||
        lp_file_is_same(path, v->options.against))
        return lp_usage(&lp_cmd_doctor, "%s is '%s', which is to be examined, not written to",
                        option, path);
    return lp_output_check(path, &err) ? could_not(&err) : EXIT_HEALTHY;
}

static int write_one(const char *path, const struct lp_report *report, const char *what,
                     bool (*make)(const struct lp_report *, struct lp_bytes *)) {
    struct lp_bytes text = {0};
    struct lp_err err = {0};
    if (!path) return EXIT_HEALTHY;
    lp_status status = make(report, &text) ? LP_OK : lp_err_memory(&err, 0, what);
    if (!status) status = lp_output_write(path, lp_bytes_view(&text), &err);
    lp_bytes_release(&text);
    return status ? could_not(&err) : EXIT_HEALTHY;
}

static int write_files(const struct visit *v, const struct lp_report *report) {
    int json = write_one(v->json, report, "the report as JSON", lp_report_json);
    int html = write_one(v->html, report, "the report as a page", lp_report_html);
    return json ? json : html;
}

// ---- the visit ----

// A dump that could not be compared with is no sign of health.
static bool was_compared(const struct lp_report *report) {
    for (size_t i = 0; i < report->n_checks; i++)
        if (report->checks[i].stage == LP_STAGE_AGAINST &&
            report->checks[i].outcome == LP_CHECK_SKIPPED &&
            strcmp(report->checks[i].name, "against") == 0)
            return false;
    return true;
}

static int examine(struct visit *v) {
    struct lp_err err;
    struct lp_report *report;
    if (lp_doctor_run(&report, &v->options, &err)) return could_not(&err);
    int status = write_files(v, report);
    lp_doctor_print_end(&v->view, report);
    if (v->view.failed) {
        lp_err_memory(&err, 0, "the report as text");
        status = could_not(&err);
    }
    if ((fflush(stdout) || ferror(stdout)) && !status) {
        lp_fail_text("cannot write to standard output");
        status = EXIT_COULD_NOT_RUN;
    }
    if (!status) status = lp_report_healthy(report) ? EXIT_HEALTHY : EXIT_FAULT;
    if (status == EXIT_HEALTHY && !was_compared(report)) status = EXIT_COULD_NOT_RUN;
    lp_report_free(report);
    return status;
}

static int parse(struct visit *v, int argc, char **argv, const char **model) {
    enum { N_OWN = 5 };
    static const char *const taken[] = {"--threads",       "--backend",     "--cpu",
                                        "--log",           "--ranks",       "--pipeline",
                                        "--shard-experts", "--rank-timeout"};
    struct lp_option common[LP_N_COMMON],
        options[N_OWN + LP_N_COMMON] = {
            {"--quick", LP_OPT_FLAG, &v->options.quick, NULL,
             "samples of layers and rows, short prompts: seconds on any size"},
            {"--json", LP_OPT_TEXT, &v->json, "F",
             "write the report as JSON (- = standard output)"},
            {"--html", LP_OPT_TEXT, &v->html, "F",
             "write the report as one web page (- = standard output)"},
            {"--against", LP_OPT_TEXT, &v->options.against, "DUMP",
             "compare with another engine's hidden states and logits (docs/doctor.md)"},
            {"--until", LP_OPT_TEXT, &v->until, "STAGE",
             "the last stage to examine: file, weights, kernels, tokens, layers, routes, cache, "
             "ranks, sparse, output"},
        };
    size_t n = N_OWN;
    lp_common_options(&v->common, common);
    for (size_t i = 0; i < LP_N_COMMON; i++)
        for (size_t k = 0; k < sizeof taken / sizeof taken[0]; k++)
            if (strcmp(common[i].name, taken[k]) == 0) options[n++] = common[i];
    return lp_args_parse(argc, argv, &lp_cmd_doctor, options, n, model, 1);
}

static int check_settings(struct visit *v) {
    const struct lp_common *c = &v->common;
    limpid_error err;
    struct stat st;
    if (c->threads > 1024)
        return lp_usage(&lp_cmd_doctor, "--threads is %lld, expected 1 to 1024",
                        (long long)c->threads);
    enum lp_stage last;
    if (v->until && (!lp_stage_find(v->until, &last) || last == LP_STAGE_AGAINST))
        return lp_usage(&lp_cmd_doctor,
                        "--until is '%s', expected file, weights, kernels, tokens, layers, routes, "
                        "cache, ranks, sparse or output",
                        v->until);
    if (v->until && v->options.against)
        return lp_usage(&lp_cmd_doctor, "--until ends before --against: give one of them");
    if (v->until) v->options.n_stages = (int)last + 1;
    if (is_stdout(v->json) && is_stdout(v->html))
        return lp_usage(&lp_cmd_doctor, "--json and --html cannot both go to standard output");
    if (v->json && v->html && strcmp(v->json, v->html) == 0)
        return lp_usage(&lp_cmd_doctor, "--json and --html are both '%s'", v->json);
    if (v->options.against && stat(v->options.against, &st))
        return lp_usage(&lp_cmd_doctor, "--against is '%s', and there is no such file or folder",
                        v->options.against);
    // What loading warns about is in the report.
    if (limpid_set_log_level(c->log ? c->log : "error", &err)) {
        lp_fail(&err);
        return EXIT_COULD_NOT_RUN;
    }
    if (c->pipeline > 1 && !lp_program_ranks)
        return lp_usage(&lp_cmd_doctor, "--pipeline needs several ranks; give --ranks too");
    if (c->pipeline < 0 || c->pipeline > LP_COMM_MAX_SIZE)
        return lp_usage(&lp_cmd_doctor, "--pipeline is %lld, expected 1 to %d",
                        (long long)c->pipeline, LP_COMM_MAX_SIZE);
    if (!lp_shard_experts_parse(c->shard_experts ? c->shard_experts : "auto",
                                &v->options.shard_experts))
        return lp_usage(&lp_cmd_doctor, "--shard-experts is '%s', expected auto, split or whole",
                        c->shard_experts);
    v->options.ranks = lp_program_ranks;
    v->options.pipeline = (int32_t)c->pipeline;
    v->options.rank_limit_s = c->rank_timeout;
    v->options.rank_threads = (int)c->threads;
    v->options.n_threads = c->threads || !lp_program_ranks
                               ? (int)c->threads
                               : lp_ranks_threads(lp_program_ranks, lp_cpu_count());
    v->options.backend = c->backend;
    v->options.cpu_level = c->cpu_level;
    return EXIT_HEALTHY;
}

static int visit(struct visit *v, const char *model) {
    char *path = NULL;
    bool alone = is_stdout(v->json) || is_stdout(v->html); // on standard output
    lp_doctor_view_init(&v->view, alone ? stderr : stdout);
    lp_doctor_view_init(&v->progress, stderr);
    v->options.on_stage = begin_stage;
    v->options.on_check = end_check;
    v->options.user = v;
    if (check_settings(v)) return EXIT_COULD_NOT_RUN;
    if (model ? lp_find_model(&path, model, &lp_cmd_doctor)
              : lp_find_builtin(&path, &lp_cmd_doctor, "examining"))
        return EXIT_COULD_NOT_RUN;
    v->options.path = path;
    int status = check_output(v, "--json", v->json);
    if (!status) status = check_output(v, "--html", v->html);
    if (!status) status = examine(v);
    lp_free(path);
    return status;
}

static int run(int argc, char **argv) {
    struct visit v = {0};
    const char *model = NULL;
    int status = parse(&v, argc, argv, &model);
    if (status < 0) return EXIT_HEALTHY; // the help
    return status ? EXIT_COULD_NOT_RUN : visit(&v, model);
}

const struct lp_command lp_cmd_doctor = {
    "doctor",
    "[MODEL] [--quick] [--json F] [--html F] [--against DUMP] [--until STAGE] [--threads N] "
    "[--backend NAME] [--cpu LEVEL] [--ranks N]",
    "says why a model talks nonsense: in the file, the weights, a kernel, the tokens, a route, the "
    "cache",
    run};
