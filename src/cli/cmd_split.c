// limpid split: a GGUF as several files, by size or by number of tensors.
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/args.h"
#include "cli/byte_size.h"
#include "cli/copy_report.h"
#include "cli/find_model.h"
#include "files/split.h"

static int read_size(const char *name, const char *text, uint64_t *bytes) {
    if (!text || lp_byte_size_parse(text, bytes)) return LP_EXIT_OK;
    return lp_usage(&lp_cmd_split, "%s is '%s', expected a size as 40G (10^9) or 4GiB (2^30)", name,
                    text);
}

static int check_prefix(const char *prefix) {
    size_t n = strlen(prefix);
    if (n == 0 || prefix[n - 1] == '/')
        return lp_usage(&lp_cmd_split,
                        "OUT_PREFIX is '%s'; put a name behind it: parts are named "
                        "OUT_PREFIX-00001-of-00002.gguf",
                        prefix);
    if (n > 5 && strcmp(prefix + n - 5, ".gguf") == 0)
        return lp_usage(&lp_cmd_split,
                        "OUT_PREFIX is '%s'; leave out .gguf: parts are named "
                        "OUT_PREFIX-00001-of-00002.gguf",
                        prefix);
    return LP_EXIT_OK;
}

static int split(const struct lp_model_wish *wish, struct lp_split_options *options) {
    char *input;
    int status = lp_find_model_for(&input, wish);
    if (status) return status;
    struct lp_copy_report report;
    struct lp_err err;
    options->input = input;
    if (lp_split(options, &report, &err))
        status = lp_fail_text("%s", err.text);
    else {
        struct lp_bytes what = {0};
        lp_bytes_printf(&what, "%s-00001-of-%05" PRIu32 ".gguf and so on", options->prefix,
                        report.n_parts);
        lp_copy_report_print(what.failed ? options->prefix : what.data, &report);
        lp_bytes_release(&what);
    }
    lp_free(input);
    return status;
}

static int run(int argc, char **argv) {
    const char *names[2] = {NULL, NULL}, *max_size = NULL, *max_data = NULL;
    int64_t max_tensors = -1;
    struct lp_split_options options = {0};
    struct lp_split_limits *limits = &options.limits;
    const struct lp_option rows[] = {
        {"--max-size", LP_OPT_TEXT, &max_size, "SIZE",
         "most bytes of a part: 40G, 500M (powers of 1000), 4GiB (1024); a tensor is never cut"},
        {"--max-data", LP_OPT_TEXT, &max_data, "SIZE",
         "the same, without its header: as llama-gguf-split's --split-max-size counts"},
        {"--max-tensors", LP_OPT_INT, &max_tensors, "N", "most tensors of a part"},
        {"--no-tensor-first-split", LP_OPT_FLAG, &limits->no_tensor_first, NULL,
         "part 1 has the metadata only"},
        {"--force", LP_OPT_FLAG, &options.overwrite, NULL, "replace parts that exist"},
    };
    int status = lp_args_parse(argc, argv, &lp_cmd_split, rows, sizeof rows / sizeof rows[0], names,
                               sizeof names / sizeof names[0]);
    if (status) return status < 0 ? LP_EXIT_OK : status;
    if (!names[1]) return lp_usage(&lp_cmd_split, "IN.gguf and OUT_PREFIX are needed");
    if (!!max_size + !!max_data + (max_tensors >= 0) != 1)
        return lp_usage(&lp_cmd_split, "give one of --max-size, --max-data, --max-tensors");
    if (max_tensors == 0) return lp_usage(&lp_cmd_split, "--max-tensors is 0, expected 1 or more");
    status = read_size("--max-size", max_size, &limits->max_bytes);
    if (!status) status = read_size("--max-data", max_data, &limits->max_data);
    if (!status) status = check_prefix(names[1]);
    if (status) return status;
    if (max_tensors > 0) limits->max_tensors = (uint64_t)max_tensors;
    options.prefix = names[1];
    return split(&(struct lp_model_wish){&lp_cmd_split, names[0], argc, argv, LP_MODEL_ANY},
                 &options);
}

const struct lp_command lp_cmd_split = {
    "split",
    "IN.gguf OUT_PREFIX (--max-size SIZE | --max-data SIZE | --max-tensors N) "
    "[--no-tensor-first-split] [--force]",
    "makes OUT_PREFIX-00001-of-0000N.gguf and so on of a file or a set; killed and run again, it "
    "goes on",
    run};
