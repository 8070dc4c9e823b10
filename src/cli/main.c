// The program: a table of commands, in groups.
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "cli/args.h"
#include "cli/program_ranks.h"
#include "cli/wrap.h"

#define MAX_COMMANDS 6

static const struct group {
    const char *title;
    const struct lp_command *commands[MAX_COMMANDS + 1]; // ends with NULL
} groups[] = {
    {"Run and serve", {&lp_cmd_run, &lp_cmd_serve, &lp_cmd_bench, &lp_cmd_tokenize}},
    {"Look and debug",
     {&lp_cmd_inspect, &lp_cmd_doctor, &lp_cmd_diff, &lp_cmd_dump, &lp_cmd_probe, &lp_cmd_trace}},
    {"Files",
     {&lp_cmd_convert, &lp_cmd_quantize, &lp_cmd_imatrix, &lp_cmd_merge, &lp_cmd_split,
      &lp_cmd_synth}},
};
#define N_GROUPS (sizeof groups / sizeof groups[0])

static void print_command(FILE *to, const struct lp_command *command) {
    char head[64];
    int indent = snprintf(head, sizeof head, "  limpid %s", command->name);
    lp_wrap(to, head, command->synopsis, (size_t)indent + 1);
    lp_wrap(to, "     ", command->summary, 6);
}

static void print_commands(FILE *to) {
    fprintf(to, "limpid %s: inference for models with multi-head latent attention\n",
            limpid_version());
    for (size_t g = 0; g < N_GROUPS; g++) {
        fprintf(to, "\n%s\n\n", groups[g].title);
        for (const struct lp_command *const *c = groups[g].commands; *c; c++) print_command(to, *c);
    }
    fputs("\nlimpid COMMAND --help lists a command's options.\n", to);
}

static const struct lp_command *find_command(const char *name) {
    for (size_t g = 0; g < N_GROUPS; g++)
        for (const struct lp_command *const *c = groups[g].commands; *c; c++)
            if (strcmp(name, (*c)->name) == 0) return *c;
    return NULL;
}

// A command that could not print what it found has failed (a full disk, a closed pipe).
static int written(int status) {
    errno = 0;
    if ((fflush(stdout) == 0 && !ferror(stdout)) || status) return status;
    return lp_fail_text("cannot write to standard output%s%s", errno ? ": " : "",
                        errno ? strerror(errno) : "");
}

int main(int argc, char **argv) {
    limpid_error err;
    signal(SIGPIPE, SIG_IGN); // a closed pipe is an error of the write that meets it
    signal(SIGXFSZ, SIG_IGN); // so is a file that may not grow any more
    if (limpid_dump_on_crash(NULL, &err)) lp_fail(&err); // what was asked for can be done yet
#ifdef LIMPID_FAULTS
    if (argc > 2 && strcmp(argv[1], "--fault") == 0) {
        if (!lp_fault_plant(argv[2])) return lp_fail_text("there is no fault '%s'", argv[2]);
        argv += 2;
        argc -= 2;
    }
#endif
    if (argc < 2) {
        print_commands(stderr);
        return LP_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        print_commands(stdout);
        return written(LP_EXIT_OK);
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("limpid %s\n", limpid_version());
        return written(LP_EXIT_OK);
    }
    const struct lp_command *command = find_command(argv[1]);
    if (command) {
        const int status = lp_program_ranks_begin(argc, argv);
        if (status >= 0) return status;
        return lp_program_ranks_end(written(command->run(argc - 1, argv + 1)));
    }
    fprintf(stderr, "limpid: unknown command '%s'; limpid --help lists them\n", argv[1]);
    return LP_EXIT_USAGE;
}
