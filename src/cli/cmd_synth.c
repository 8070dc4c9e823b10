// limpid synth: a model file with random weights, for tests of speed and scale.
#include <stdio.h>

#include "cli/args.h"
#include "cli/size_text.h"
#include "cli/wrote.h"
#include "files/synth.h"
#include "files/synth_models.h"

static void list_models(void) {
    const struct lp_synth_model *m;
    for (size_t i = 0; (m = lp_synth_model_at(i)); i++) printf("%-18s%s\n", m->name, m->what);
}

static void tell(const struct lp_synth_options *o, const struct lp_synth_result *r) {
    char size[LP_SIZE_TEXT_BYTES];
    double billions = (double)r->n_weights * 1e-9;
    lp_wrote(o->dry_run ? "would write" : "wrote", o->path, r->n_tensors, r->file_bytes);
    if (r->written_bytes != r->file_bytes)
        printf(", of which %s take disk space", lp_size_text(size, r->written_bytes));
    printf(", %.2f %s weights (%.2f bits per weight)", billions < 0.1 ? 1000 * billions : billions,
           billions < 0.1 ? "million" : "billion",
           8.0 * (double)r->file_bytes / (double)r->n_weights);
    if (!o->dry_run) lp_wrote_time(r->seconds, r->written_bytes, "");
    putchar('\n');
}

static int run(int argc, char **argv) {
    struct lp_synth_options o = {.types = "Q4_K_M", .seed = 1};
    struct lp_synth_result result;
    struct lp_texts sets = {0};
    const char *positional[2] = {NULL, NULL};
    bool list = false;
    int64_t layers = 0, seed = 1, threads = 0;
    const struct lp_option options[] = {
        {"--list", LP_OPT_FLAG, &list, NULL, "list the models by name"},
        {"--type", LP_OPT_TEXT, &o.types, "PRESET",
         "types of the weights, as of limpid quantize, or any type (default Q4_K_M)"},
        {"--experts", LP_OPT_TEXT, &o.experts, "TYPE",
         "another type for the routed experts; GATE_UP,DOWN: one for gate and up, one for down"},
        {"--layers", LP_OPT_INT, &layers, "N", "only so many layers (num_hidden_layers=N)"},
        {"--set", LP_OPT_TEXTS, &sets, "FIELD=VALUE",
         "set a field of config.json, such as vocab_size=32000; may be given several times"},
        {"--seed", LP_OPT_INT, &seed, "N", "of the random weights (default 1)"},
        {"--sparse", LP_OPT_FLAG, &o.sparse, NULL,
         "leave the routed experts out of the disk: they read as zeros"},
        {"--hollow", LP_OPT_FLAG, &o.hollow, NULL,
         "leave all weights out of it: a file for limpid inspect, which can compute nothing"},
        {"--dry-run", LP_OPT_FLAG, &o.dry_run, NULL, "only say how large the file would be"},
        {"--threads", LP_OPT_INT, &threads, "N", "default: a physical core each"},
        {"--force", LP_OPT_FLAG, &o.overwrite, NULL, "write over a file that is there"},
    };
    int status = lp_args_parse(argc, argv, &lp_cmd_synth, options,
                               sizeof options / sizeof options[0], positional, 2);
    if (status) return status < 0 ? LP_EXIT_OK : status;
    if (list) {
        list_models();
        return LP_EXIT_OK;
    }
    if (!positional[0] || !positional[1])
        return lp_usage(&lp_cmd_synth, "MODEL and OUT.gguf are needed; --list names the models");
    if (lp_check_threads(&lp_cmd_synth, threads)) return LP_EXIT_USAGE;
    char layers_set[48];
    snprintf(layers_set, sizeof layers_set, "num_hidden_layers=%lld", (long long)layers);
    if (layers && sets.n == LP_MAX_TEXTS)
        return lp_usage(&lp_cmd_synth,
                        "--set is given %d times, expected fewer where --layers is "
                        "given too",
                        LP_MAX_TEXTS);
    if (layers) sets.items[sets.n++] = layers_set;
    o.model = positional[0];
    o.path = positional[1];
    o.sets = sets.items;
    o.n_sets = sets.n;
    o.seed = (uint64_t)seed;
    o.n_threads = (int)threads;
    struct lp_err err;
    if (lp_synth(&o, &result, &err)) return lp_fail((limpid_error *)&err);
    tell(&o, &result);
    return LP_EXIT_OK;
}

const struct lp_command lp_cmd_synth = {
    "synth", "MODEL OUT.gguf [--type PRESET] [--layers N] [--set FIELD=VALUE]... [--sparse]",
    "a model file with random weights, for tests of speed and scale", run};
