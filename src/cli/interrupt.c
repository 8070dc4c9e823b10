// Handlers that only set, write and restore: all of it is safe inside a signal.
#include "cli/interrupt.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <termios.h>
#include <unistd.h>

static volatile sig_atomic_t interrupted;
static int ends[2] = {-1, -1}; // of the pipe; written once, before the handlers are set
static int terminal = -1;
static struct termios before;
static bool has_before;

static const int woken_by[] = {SIGINT, SIGWINCH, SIGCONT};
static const int ended_by[] = {SIGTERM, SIGHUP, SIGQUIT};

static void on_wake(int number) {
    int saved = errno;
    unsigned char byte = (unsigned char)number;
    if (number == SIGINT) interrupted = 1;
    ssize_t n = write(ends[1], &byte, 1); // full: whoever reads it is woken already
    (void)n;
    errno = saved;
}

static void on_end(int number) {
    static const char paste_off[] = "\033[?2004l";
    if (has_before) {
        tcsetattr(terminal, TCSANOW, &before);
        ssize_t n = write(terminal, paste_off, sizeof paste_off - 1);
        (void)n;
    }
    raise(number); // SA_RESETHAND: the default action now
}

static void handle(const int *numbers, size_t n, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < n; i++) sigaction(numbers[i], &action, NULL);
}

bool lp_interrupt_watch(int terminal_fd) {
    if (ends[0] < 0 && pipe2(ends, O_NONBLOCK | O_CLOEXEC)) return false;
    terminal = terminal_fd;
    has_before = tcgetattr(terminal_fd, &before) == 0;
    handle(woken_by, sizeof woken_by / sizeof woken_by[0], on_wake, SA_RESTART);
    handle(ended_by, sizeof ended_by / sizeof ended_by[0], on_end, SA_RESETHAND);
    return true;
}

void lp_interrupt_unwatch(void) {
    handle(woken_by, sizeof woken_by / sizeof woken_by[0], SIG_DFL, 0);
    handle(ended_by, sizeof ended_by / sizeof ended_by[0], SIG_DFL, 0);
}

int lp_interrupt_pipe(void) {
    return ends[0];
}

bool lp_interrupted(void *unused) {
    (void)unused;
    return interrupted;
}

void lp_interrupt_clear(void) {
    char bytes[64];
    while (ends[0] >= 0 && read(ends[0], bytes, sizeof bytes) > 0) continue;
    interrupted = 0;
}
