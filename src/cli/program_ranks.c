#include "cli/program_ranks.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/args.h"
#include "cli/ranks_watch.h"
#include "dist/comm.h"
#include "doctor/ranks_exam.h"

limpid_ranks *lp_program_ranks;

// The value of --ranks: NULL if it is not given.
static const char *given_ranks(int argc, char **argv) {
    static const char name[] = "--ranks";
    for (int i = 2; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strncmp(argv[i], name, sizeof name - 1) != 0) continue;
        if (argv[i][sizeof name - 1] == '=') return argv[i] + sizeof name;
        if (!argv[i][sizeof name - 1]) return i + 1 < argc ? argv[i + 1] : "";
    }
    return NULL;
}

static bool is_one_of(const char *name, const char *const *list) {
    for (; *list; list++)
        if (strcmp(name, *list) == 0) return true;
    return false;
}

// One process alone counts too, so that it does not launch others.
static bool is_launched(void) {
    return getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMIX_RANK") || getenv("PMI_RANK");
}

// What tells a program to stop. Returns the mask that was before they were blocked.
static sigset_t block_stops(void) {
    sigset_t stops, before;
    sigemptyset(&stops);
    sigaddset(&stops, SIGINT);
    sigaddset(&stops, SIGTERM);
    sigaddset(&stops, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &stops, &before);
    return before;
}

// A server is to end its requests when it is told to stop, and mpirun kills at once; but it passes SIGUSR1 on,
// which means the same to the server. So mpirun runs in a group of its own, which a terminal's Ctrl-C does
// not reach, and this process waits for it.
static volatile sig_atomic_t mpirun_process;

static void pass_on(int number) {
    (void)number;
    kill(mpirun_process, SIGUSR1);
}

static int supervise(char *const *command) {
    const struct sigaction stop = {.sa_handler = pass_on, .sa_flags = SA_RESTART};
    const pid_t self = getpid();
    const sigset_t before = block_stops(); // until there is somebody to pass them on to
    int status = 0;
    mpirun_process = fork();
    if (mpirun_process < 0) return lp_fail_text("cannot start mpirun: %s", strerror(errno));
    if (mpirun_process == 0) {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (getppid() != self) _exit(LP_EXIT_FAILURE); // it has gone in between
        if (!freopen("/dev/null", "r", stdin)) return -1;
        execvp(command[0], command);
        return -1;
    }
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    while (waitpid(mpirun_process, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : LP_EXIT_FAILURE;
}

// Threads are bound by the processes themselves, if at all. More processes than cores is for the user to
// decide, who has named the number. Where a rank dies mpirun tells the others to end (SIGTERM), and some seconds
// later kills them: time for rank 0 to answer those who wait.
static int become_mpirun(const char *n, int argc, char **argv) {
    char self[4096];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    const char *const head[] = {"mpirun",
                                "-n",
                                n,
                                "--bind-to",
                                "none",
                                "--quiet",
                                "--oversubscribe",
                                "--mca",
                                "odls_base_sigkill_timeout",
                                "5"};
    const size_t n_head = sizeof head / sizeof *head;
    const char **all = calloc(n_head + (size_t)argc + 3, sizeof *all);
    size_t at = 0;
    if (!all || length < 0) return lp_fail_text("cannot start %s ranks: %s", n, strerror(errno));
    self[length] = 0;
    for (size_t i = 0; i < n_head; i++) all[at++] = head[i];
    if (geteuid() == 0) all[at++] = "--allow-run-as-root"; // mpirun refuses otherwise
    setenv("HOME", "/",
           0); // without it and an entry in passwd, as containers have it, PMIx 4.2 crashes
    all[at++] = self;
    for (int i = 1; i < argc; i++) all[at++] = argv[i];
    if (strcmp(argv[1], "serve") == 0) {
        const int ended = supervise((char *const *)(void *)all);
        if (ended >= 0) return ended;
    } else {
        execvp(all[0], (char *const *)(void *)all);
    }
    const int status =
        lp_fail_text("cannot start mpirun, which --ranks %s needs: %s; install Open MPI (Debian: "
                     "openmpi-bin)",
                     n, strerror(errno));
    free(all);
    return status;
}

static int check_number(const char *n) {
    char *end;
    errno = 0;
    const long value = strtol(n, &end, 10);
    if (end != n && !*end && !errno && value >= 1 && value <= LP_COMM_MAX_SIZE) return LP_EXIT_OK;
    lp_fail_text("--ranks is '%s', expected 1 to %d", n, LP_COMM_MAX_SIZE);
    return LP_EXIT_USAGE;
}

static int check_size(const char *n) {
    const int32_t size = limpid_ranks_size(lp_program_ranks);
    if (!n || atol(n) == size) return LP_EXIT_OK;
    lp_fail_text("--ranks is %s, and %d processes were started; leave it out under a launcher", n,
                 size);
    return LP_EXIT_USAGE;
}

// MPI has threads of its own, which must not take the signals that a command waits for.
static limpid_status join(limpid_error *err) {
    const sigset_t before = block_stops();
    const limpid_status status = limpid_ranks_join(&lp_program_ranks, err);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}

int lp_program_ranks_begin(int argc, char **argv) {
    limpid_error err;
    static const char *const take_ranks[] = {"run",    "serve", "bench", "dump",
                                             "doctor", "diff",  NULL};
    const bool takes = is_one_of(argv[1], take_ranks);
    const char *n = given_ranks(argc, argv);
    if (strcmp(argv[1], "inspect") == 0 && !is_launched()) return -1; // it plans for them
    int status = n ? check_number(n) : LP_EXIT_OK;
    if (status) return status;
    if (n && !takes) {
        lp_fail_text("--ranks is for run, serve, bench, dump, doctor, diff and inspect; %s works "
                     "in one process",
                     argv[1]);
        return LP_EXIT_USAGE;
    }
    if (n && !is_launched() && atol(n) > 1) return become_mpirun(n, argc, argv);
    if (join(&err)) return lp_fail(&err);
    if (lp_program_ranks && lp_ranks_watch_begin(lp_program_ranks)) return LP_EXIT_FAILURE;
    if (limpid_ranks_rank(lp_program_ranks) == 0) {
        status = check_size(n);
        if (!status && lp_program_ranks && !takes) {
            lp_fail_text("%s works in one process; start it without a launcher", argv[1]);
            status = LP_EXIT_USAGE;
        }
        return status ? lp_program_ranks_end(status) : -1;
    }
    // The launcher sends its signals to all; it is rank 0 that ends the others.
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGUSR1, SIG_IGN);
    lp_program_ranks->on_exam = lp_ranks_attend;
    status = limpid_ranks_follow(lp_program_ranks, &err) ? lp_fail(&err) : LP_EXIT_OK;
    return lp_program_ranks_end(status);
}

int lp_program_ranks_end(int status) {
    if (lp_program_ranks) lp_ranks_watch_end();
    limpid_ranks_leave(lp_program_ranks);
    lp_program_ranks = NULL;
    return status;
}
