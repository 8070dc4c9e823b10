// limpid run: text to standard output; with --chat, or without -p, a conversation.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/rng.h"
#include "base/file.h"
#include "cli/args.h"
#include "cli/find_model.h"
#include "cli/generator.h"
#include "cli/memory_check.h"
#include "cli/repl.h"

#define MAX_GRAMMAR_BYTES (1 << 20)

struct settings {
    struct lp_common common;
    const char *path, *prompt, *system;
    const char *schema, *grammar, *regex;
    bool chat, no_think, stats;
};

static int open_model(struct lp_generator *g, const struct settings *s) {
    limpid_error err;
    char *path;
    uint64_t start = lp_clock_ns();
    int status = s->path ? lp_find_model(&path, s->path, &lp_cmd_run)
                         : lp_find_builtin(&path, &lp_cmd_run, "running");
    if (status) return status;
    limpid_engine_options options = lp_common_engine_options(&s->common);
    options.speculate = (int32_t)g->speculate;
    status = lp_memory_check_and_open(&s->common, path, &options, &g->model);
    lp_free(path);
    if (status) return status;
    if (limpid_engine_new(&g->engine, g->model, &options, &err)) return lp_fail_setting(&err);
    g->load_ns = lp_clock_ns() - start;
    return LP_EXIT_OK;
}

static bool write_text(void *user, const char *text, size_t n_bytes) {
    (void)user;
    fwrite(text, 1, n_bytes, stdout);
    return fflush(stdout) == 0 && !ferror(stdout);
}

static int continue_text(struct lp_generator *g, const char *prompt) {
    int status =
        lp_generator_run(g, prompt, strlen(prompt), LIMPID_SPECIAL | LIMPID_BOS, write_text, NULL);
    putchar('\n');
    return status; // main looks whether all could be written
}

static int generate(struct lp_generator *g, const struct settings *s) {
    enum lp_thinking thinking = s->no_think ? LP_THINK_OFF : LP_THINK_DEFAULT;
    int status = !s->prompt ? lp_repl_run(g, s->system, thinking)
                 : s->chat  ? lp_repl_ask(g, s->system, thinking, s->prompt)
                            : continue_text(g, s->prompt);
    if (s->stats) lp_generator_print_stats(g, stderr);
    return status;
}

// At most one of --json-schema, --grammar and --regex.
static int take_grammar(struct lp_generator *g, const struct settings *s) {
    const char *path = s->schema ? s->schema : s->grammar;
    struct lp_err err;
    g->grammar_after = -1;
    if ((s->schema != NULL) + (s->grammar != NULL) + (s->regex != NULL) > 1)
        return lp_usage(&lp_cmd_run, "--json-schema, --grammar and --regex exclude one another");
    if (s->regex) {
        g->grammar_kind = "regex";
        g->grammar = lp_strdup(s->regex);
        g->grammar_len = strlen(s->regex);
        return g->grammar ? LP_EXIT_OK : lp_fail_text("out of memory: --regex");
    }
    if (!path) return LP_EXIT_OK;
    g->grammar_kind = s->schema ? "json_schema" : "gbnf";
    return lp_file_read(path, MAX_GRAMMAR_BYTES, &g->grammar, &g->grammar_len, &err)
               ? lp_fail_text("%s: %s", s->schema ? "--json-schema" : "--grammar", err.text)
               : LP_EXIT_OK;
}

static int check(struct lp_generator *g) {
    if (g->speculate > 16)
        return lp_usage(&lp_cmd_run, "--speculate is %lld, expected 0 to 16",
                        (long long)g->speculate);
    int status = lp_sampling_check(&g->sampling, &lp_cmd_run);
    if (!status && g->sampling.seed < 0) {
        struct lp_rng rng;
        lp_rng_init(&rng, lp_clock_ns() ^ (uint64_t)getpid());
        g->sampling.seed = (int64_t)(lp_rng_u64(&rng) >> 16);
    }
    return status;
}

#define N_OWN 11
#define N_OPTIONS (N_OWN + LP_N_SAMPLING + LP_N_COMMON)

static int run(int argc, char **argv) {
    struct lp_generator g = {.sampling = lp_sampling_unset()};
    struct settings s = {0};
    limpid_error err;
    struct lp_option options[N_OPTIONS] = {
        {"-p", LP_OPT_TEXT, &s.prompt, "TEXT", "the prompt; without it, an interactive chat"},
        {"--chat", LP_OPT_FLAG, &s.chat, NULL, "put the prompt through the file's chat template"},
        {"--system", LP_OPT_TEXT, &s.system, "TEXT", "system message of the chat"},
        {"--no-think", LP_OPT_FLAG, &s.no_think, NULL,
         "ask the chat template for an answer without reasoning"},
        {"--stop", LP_OPT_TEXT, &g.stop, "TEXT", "end before this text"},
        {"--ignore-eos", LP_OPT_FLAG, &g.ignore_eos, NULL, "go on past the end tokens"},
        {"--json-schema", LP_OPT_TEXT, &s.schema, "FILE", "the answer is JSON of this schema"},
        {"--grammar", LP_OPT_TEXT, &s.grammar, "FILE", "the answer matches this grammar (GBNF)"},
        {"--regex", LP_OPT_TEXT, &s.regex, "TEXT", "the answer matches this regular expression"},
        {"--speculate", LP_OPT_INT, &g.speculate, "N",
         "tokens to draft with the model's MTP layer, 0 (default) to 16; the text stays the same"},
        {"--stats", LP_OPT_FLAG, &s.stats, NULL,
         "print load time, tokens per second and peak memory"},
    };
    lp_sampling_options(&g.sampling, options + N_OWN);
    lp_common_options(&s.common, options + N_OWN + LP_N_SAMPLING);
    int status = lp_args_parse(argc, argv, &lp_cmd_run, options, N_OPTIONS, &s.path, 1);
    if (status) return status < 0 ? LP_EXIT_OK : status;
    status = check(&g);
    if (!status) status = take_grammar(&g, &s);
    if (!status) status = open_model(&g, &s);
    if (!status) lp_sampling_settle(&g.sampling, 0, g.model);
    if (!status) status = generate(&g, &s);
    if (limpid_engine_free(g.engine, &err) && !status) status = lp_fail(&err);
    limpid_model_close(g.model);
    lp_free(g.grammar);
    return status;
}

const struct lp_command lp_cmd_run = {
    "run", "[MODEL] [-p TEXT] [-n N] [--temp T] [--seed S] [--chat] [--ctx N] [--stats]",
    "generates text; without -p, an interactive chat; without MODEL, with the built-in one", run};
