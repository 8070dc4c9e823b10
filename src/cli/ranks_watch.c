#include "cli/ranks_watch.h"

#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cli/args.h"

#define LOOK_NS 250000000 // between two looks at the ranks
#define END_S 10          // that a command has to end by itself behind a failure,
#define LAUNCHER_S 20     // and then its launcher

static struct {
    const limpid_ranks *ranks;
    pthread_t thread;
    sem_t over;
    pid_t launcher;
    atomic_flag follows; // a process waits for the launcher's end
} watch = {.follows = ATOMIC_FLAG_INIT};

// ---- the launcher

static bool is_open_mpi(pid_t process) {
    static const char *const names[] = {"mpirun", "mpiexec", "orterun",
                                        "orted",  "prterun", "prted"};
    char path[64], name[32] = "";
    snprintf(path, sizeof path, "/proc/%d/comm", (int)process);
    FILE *f = fopen(path, "r");
    if (!f) return false;
    if (!fgets(name, sizeof name, f)) name[0] = 0;
    fclose(f);
    name[strcspn(name, "\n")] = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

// mpirun ends when all hosts have told it that their processes are gone. One that is cut off tells nothing, and
// TCP tries for about 15 minutes: for so long a supervisor would not start anything again. A signal to end does
// not help (it makes mpirun 4.1 crash, or wait again), so a process that outlives this one kills it.
static void outlive_launcher(void) {
    const pid_t launcher = watch.launcher;
    if (getppid() != launcher || !is_open_mpi(launcher))
        return; // it has ended, or is not ours to end
    if (atomic_flag_test_and_set(&watch.follows)) return;
    const int handle = (int)syscall(SYS_pidfd_open, launcher, 0);
    if (handle < 0 || fork() != 0) return;
    // From here on in the new process, whose other threads are gone: system calls alone.
    struct pollfd ended = {.fd = dup2(handle, 0), .events = POLLIN};
    setsid();                             // what is done to the ranks' process group is not for it
    syscall(SYS_close_range, 1, ~0u, 0u); // mpirun waits for the end of what ranks write, too
    prctl(PR_SET_NAME, "limpid-ends-mpi");
    if (poll(&ended, 1, LAUNCHER_S * 1000) == 0)
        syscall(SYS_pidfd_send_signal, ended.fd, SIGKILL, NULL, 0u);
    _exit(LP_EXIT_OK);
}

// ---- the thread

static bool is_over(void) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += LOOK_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    return sem_clockwait(&watch.over, CLOCK_MONOTONIC, &until) == 0;
}

static void *run(void *unused) {
    limpid_error err;
    (void)unused;
    do {
        if (is_over()) return NULL;
    } while (!limpid_ranks_check(watch.ranks, &err));
    sleep(END_S);
    outlive_launcher();
    lp_fail(&err);
    _exit(LP_EXIT_FAILURE);
}

int lp_ranks_watch_begin(const limpid_ranks *ranks) {
    sigset_t all, before;
    watch.ranks = ranks;
    watch.launcher = getppid();
    sem_init(&watch.over, 0, 0);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(&watch.thread, NULL, run, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed ? lp_fail_text("cannot start a thread: %s", strerror(failed)) : LP_EXIT_OK;
}

void lp_ranks_watch_end(void) {
    if (limpid_ranks_check(watch.ranks, NULL)) {
        outlive_launcher();
        return;
    }
    sem_post(&watch.over);
    pthread_join(watch.thread, NULL);
}
