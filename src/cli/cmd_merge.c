// limpid merge: a split set as one file.
#include <stdbool.h>

#include "base/alloc.h"
#include "cli/args.h"
#include "cli/copy_report.h"
#include "cli/find_model.h"
#include "files/merge.h"

static int run(int argc, char **argv) {
    const char *names[2] = {NULL, NULL};
    struct lp_merge_options options = {0};
    const struct lp_option rows[] = {
        {"--force", LP_OPT_FLAG, &options.overwrite, NULL, "replace OUT.gguf if it exists"},
    };
    int status = lp_args_parse(argc, argv, &lp_cmd_merge, rows, sizeof rows / sizeof rows[0], names,
                               sizeof names / sizeof names[0]);
    if (status) return status < 0 ? LP_EXIT_OK : status;
    if (!names[1]) return lp_usage(&lp_cmd_merge, "a part of the set and OUT.gguf are needed");
    const struct lp_model_wish wish = {&lp_cmd_merge, names[0], argc, argv, LP_MODEL_ANY};
    char *input;
    status = lp_find_model_for(&input, &wish);
    if (status) return status;
    struct lp_copy_report report;
    struct lp_err err;
    options.input = input;
    options.output = names[1];
    if (lp_merge(&options, &report, &err))
        status = lp_fail_text("%s", err.text);
    else
        lp_copy_report_print(options.output, &report);
    lp_free(input);
    return status;
}

const struct lp_command lp_cmd_merge = {"merge", "PART OUT.gguf [--force]",
                                        "makes one file of a split set, of which any part or the "
                                        "folder is named; killed and run again, "
                                        "it goes on",
                                        run};
