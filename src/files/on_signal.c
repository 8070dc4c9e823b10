// A table of pointers that a handler walks: it only unlinks and writes, which a handler may.
#include "files/on_signal.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#define N_SLOTS 16
static _Atomic(const struct lp_on_signal *) slots[N_SLOTS];

static const int ended_by[] = {SIGINT, SIGTERM, SIGHUP};
#define N_SIGNALS (sizeof ended_by / sizeof ended_by[0])

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // of what follows
static int n_added;
static bool is_set[N_SIGNALS];

static void on_end(int number) {
    int saved = errno;
    for (int i = 0; i < N_SLOTS; i++) {
        const struct lp_on_signal *what = atomic_load(&slots[i]);
        if (!what) continue;
        for (int j = 0; j < 2; j++)
            if (what->remove[j]) unlink(what->remove[j]);
        ssize_t n = what->note ? write(2, what->note, strlen(what->note)) : 0;
        (void)n;
    }
    errno = saved;
    raise(number); // SA_RESETHAND: the default action now
}

static void set_handlers(void) {
    struct sigaction old, action = {.sa_handler = on_end, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < N_SIGNALS; i++) {
        is_set[i] = sigaction(ended_by[i], NULL, &old) == 0 && !(old.sa_flags & SA_SIGINFO) &&
                    old.sa_handler == SIG_DFL;
        if (is_set[i]) sigaction(ended_by[i], &action, NULL);
    }
}

static void reset_handlers(void) {
    for (size_t i = 0; i < N_SIGNALS; i++)
        if (is_set[i]) signal(ended_by[i], SIG_DFL);
}

int lp_on_signal_add(const struct lp_on_signal *what) {
    int slot = 0;
    pthread_mutex_lock(&lock);
    while (slot < N_SLOTS && atomic_load(&slots[slot])) slot++;
    if (slot < N_SLOTS) {
        atomic_store(&slots[slot], what);
        if (n_added++ == 0) set_handlers();
    }
    pthread_mutex_unlock(&lock);
    return slot < N_SLOTS ? slot : -1;
}

void lp_on_signal_drop(int slot) {
    if (slot < 0) return;
    pthread_mutex_lock(&lock);
    atomic_store(&slots[slot], NULL);
    if (--n_added == 0) reset_handlers();
    pthread_mutex_unlock(&lock);
}
