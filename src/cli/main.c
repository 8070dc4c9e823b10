// The program: a table of commands.
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "cli/args.h"

static const struct lp_command *const commands[] = {
    &lp_cmd_run,     &lp_cmd_serve,    &lp_cmd_dump,    &lp_cmd_tokenize,
    &lp_cmd_inspect, &lp_cmd_bench,    &lp_cmd_doctor,  &lp_cmd_trace,
    &lp_cmd_probe,   &lp_cmd_quantize, &lp_cmd_imatrix, &lp_cmd_synth,
    &lp_cmd_diff,    &lp_cmd_convert,  &lp_cmd_merge,   &lp_cmd_split};

static void print_commands(FILE *to) {
    fprintf(to, "limpid %s: inference for models with multi-head latent attention\n\n",
            limpid_version());
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        fprintf(to, "  limpid %s %s\n      %s\n", commands[i]->name, commands[i]->synopsis,
                commands[i]->summary);
    fputs("\nlimpid COMMAND --help lists a command's options.\n", to);
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
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(argv[1], commands[i]->name) == 0)
            return written(commands[i]->run(argc - 1, argv + 1));
    fprintf(stderr, "limpid: unknown command '%s'; limpid --help lists them\n", argv[1]);
    return LP_EXIT_USAGE;
}
