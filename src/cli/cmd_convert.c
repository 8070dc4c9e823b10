// limpid convert: a Hugging Face folder as one GGUF file.
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/clean.h"
#include "cli/args.h"
#include "cli/find_model.h"
#include "cli/shell_quote.h"
#include "cli/wrote.h"
#include "files/convert.h"
#include "files/quantize_presets.h"
#include "hf/hf_folder.h"

struct settings {
    struct lp_convert_options options;
    const char *type;
    bool verbose;
};

// ---- what is left out

static bool is_first_with_reason(const struct lp_hf_plan *plan, uint64_t i) {
    for (uint64_t k = 0; k < i; k++)
        if (plan->ignored[k].reason == plan->ignored[i].reason) return false;
    return true;
}

static uint64_t count_reason(const struct lp_hf_plan *plan, const char *reason) {
    uint64_t n = 0;
    for (uint64_t k = 0; k < plan->n_ignored; k++) n += plan->ignored[k].reason == reason;
    return n;
}

// Reasons are static texts and few: the same reason is the same pointer.
static void tell_ignored(const struct lp_hf_plan *plan, bool verbose) {
    char name[256];
    for (uint64_t i = 0; i < plan->n_ignored; i++) {
        const struct lp_hf_ignored *one = &plan->ignored[i];
        if (verbose)
            fprintf(stderr, "limpid: %s is not used: %s\n",
                    lp_clean_text(name, sizeof name, lp_str_from(one->name)), one->reason);
        else if ((i == 0 || one->reason != plan->ignored[i - 1].reason) &&
                 is_first_with_reason(plan, i)) {
            uint64_t n = count_reason(plan, one->reason);
            fprintf(stderr, "limpid: %llu array%s not used (--verbose lists): %s\n",
                    (unsigned long long)n, n == 1 ? " is" : "s are", one->reason);
        }
    }
}

// ---- what was written

static void tell_result(const struct settings *s, const struct lp_convert_result *r) {
    const struct lp_convert_options *o = &s->options;
    lp_wrote("wrote", o->out, r->n_tensors, r->n_bytes);
    lp_wrote_time(r->seconds, r->n_bytes, "");
    lp_wrote_memory();
    if (r->n_kept)
        printf("; %llu matrices stay quantised as they were", (unsigned long long)r->n_kept);
    if (r->n_rounded)
        printf("; %llu matrices were rounded to %s", (unsigned long long)r->n_rounded,
               o->keep ? "BF16 (from FP8)" : lp_type_info((uint32_t)o->type)->name);
    if (r->n_exchanged)
        printf("; %llu of them to %s, since their rows are no multiple of its block",
               (unsigned long long)r->n_exchanged, lp_type_info((uint32_t)r->exchange)->name);
    if (!r->n_rounded && !r->n_exchanged) printf("; no value was rounded");
    putchar('\n');
}

static int convert(const struct settings *s) {
    struct lp_convert *c = NULL;
    struct lp_convert_result result;
    struct lp_err err;
    lp_status status = lp_convert_open(&c, &s->options, &err);
    if (!status) {
        tell_ignored(lp_convert_plan(c), s->verbose);
        status = lp_convert_run(c, &result, &err);
    }
    if (!status) tell_result(s, &result);
    lp_convert_close(c);
    return status ? lp_fail_text("%s", err.text) : LP_EXIT_OK;
}

// ---- the folder

static bool is_gguf(const char *path) {
    char magic[4] = {0};
    FILE *f = fopen(path, "rb");
    bool read = f && fread(magic, sizeof magic, 1, f) == 1;
    if (f) fclose(f);
    return read && memcmp(magic, "GGUF", sizeof magic) == 0;
}

static int refuse_file(const char *path, const char *out) {
    struct lp_bytes text = {0};
    lp_shell_quote_path(&text, path);
    if (is_gguf(path)) {
        lp_bytes_puts(&text, " is a GGUF file already; other types are made by\n"
                             "    limpid quantize ");
        lp_shell_quote_path(&text, path);
        lp_bytes_puts(&text, " ");
        lp_shell_quote_path(&text, out);
        lp_bytes_puts(&text, " Q4_K_M");
    } else
        lp_bytes_puts(&text, " is no Hugging Face model; name the folder with config.json and "
                             "*.safetensors");
    lp_fail_text("%s", text.data ? text.data : "out of memory");
    lp_bytes_release(&text);
    return LP_EXIT_FAILURE;
}

static int find_and_convert(struct settings *s, int argc, char **argv) {
    const struct lp_model_wish wish = {&lp_cmd_convert, s->options.folder, argc, argv,
                                       LP_MODEL_FOLDER};
    char *found = NULL;
    int status = lp_find_model_for(&found, &wish);
    if (status) return status;
    s->options.folder = found;
    status = lp_hf_is_folder(found) ? convert(s) : refuse_file(found, s->options.out);
    lp_free(found);
    return status;
}

// ---- options

static int read_type(struct settings *s) {
    s->options.keep = strcasecmp(s->type, "auto") == 0;
    if (s->options.keep || lp_quant_type_parse(lp_str_from(s->type), &s->options.type))
        return LP_EXIT_OK;
    return lp_usage(&lp_cmd_convert, "--outtype is '%s', expected auto, %s", s->type,
                    lp_quant_type_list());
}

static int run(int argc, char **argv) {
    struct settings s = {.type = "auto"};
    int64_t threads = 0;
    const char *positional[2] = {NULL, NULL};
    const struct lp_option options[] = {
        {"--outtype", LP_OPT_TEXT, &s.type, "TYPE",
         "type of the matrices: auto (default) keeps the precision of the folder; F32, F16, BF16, "
         "Q8_0, Q6_K, ..."},
        {"--no-mtp", LP_OPT_FLAG, &s.options.without_mtp, NULL,
         "leave out the layers that predict further tokens"},
        {"--name", LP_OPT_TEXT, &s.options.name, "NAME", "general.name of the file"},
        {"--threads", LP_OPT_INT, &threads, "N", "default: a physical core each"},
        {"--force", LP_OPT_FLAG, &s.options.overwrite, NULL, "write over a file that is there"},
        {"--verbose", LP_OPT_FLAG, &s.verbose, NULL, "list every array that is not used"},
    };
    int status = lp_args_parse(argc, argv, &lp_cmd_convert, options,
                               sizeof options / sizeof options[0], positional, 2);
    if (status) return status < 0 ? LP_EXIT_OK : status;
    if (!positional[0] || !positional[1])
        return lp_usage(&lp_cmd_convert, "DIR (a folder with config.json and *.safetensors) and "
                                         "OUT.gguf are needed");
    status = lp_check_threads(&lp_cmd_convert, threads);
    if (!status) status = read_type(&s);
    if (status) return status;
    s.options.folder = positional[0];
    s.options.out = positional[1];
    s.options.n_threads = (int)threads;
    return find_and_convert(&s, argc, argv);
}

const struct lp_command lp_cmd_convert = {
    "convert", "DIR OUT.gguf [--outtype TYPE] [--no-mtp] [--name NAME] [--force]",
    "a Hugging Face folder as a GGUF file", run};
