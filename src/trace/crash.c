#include "trace/crash.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "trace/trace_json.h"
#include "trace/trace_parts.h"

#define STACK_BYTES ((size_t)128 << 10)
#define MOST_WAIT_MS 2000 // for a thread that is writing to a trace file

const int lp_crash_signals[LP_CRASH_N_SIGNALS] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
static const char *const signal_names[LP_CRASH_N_SIGNALS] = {"SIGSEGV", "SIGBUS", "SIGILL",
                                                             "SIGFPE", "SIGABRT"};

static struct lp_trace *_Atomic traces[LP_CRASH_TRACES];
static _Atomic uint32_t writer; // the thread that writes the dump; 0: no crash

static struct { // set before the handlers are
    bool installed;
    int dir_fd;
    char dir[1024];
} place;

// Of the handler alone, which has room for them nowhere else.
static struct lp_trace_reader reader;
static char buffer[4 * LP_TRACE_JSON_BYTES];

// ---- which traces

void lp_crash_add(struct lp_trace *trace) {
    for (int i = 0; i < LP_CRASH_TRACES; i++) {
        struct lp_trace *none = NULL;
        if (atomic_compare_exchange_strong(&traces[i], &none, trace)) return;
    }
}

bool lp_crash_is_writing(void) {
    return atomic_load(&writer) != 0;
}

void lp_crash_remove(struct lp_trace *trace) {
    for (int i = 0; i < LP_CRASH_TRACES; i++) {
        struct lp_trace *expected = trace;
        atomic_compare_exchange_strong(&traces[i], &expected, NULL);
    }
    while (lp_crash_is_writing()) poll(NULL, 0, 1000); // the handler may be reading it
}

// ---- the dump. What follows, up to install, is async-signal-safe.

struct crash {
    int signal_number;
    const char *signal;
    const siginfo_t *info;
    int own_fd; // limpid-crash-PID.jsonl; -1: not opened
    char own_name[64];
    size_t n_events;
    const char *path; // of the last trace that was written; NULL: none
    bool failed;
};

static void add(char *text, size_t n_bytes, const char *more) {
    size_t used = strlen(text), n = strlen(more);
    if (n >= n_bytes - used) n = n_bytes - used - 1;
    memcpy(text + used, more, n);
    text[used + n] = 0;
}

static void add_number(char *text, size_t n_bytes, uint64_t value, unsigned base) {
    char digits[65];
    size_t at = sizeof digits - 1;
    digits[at] = 0;
    do digits[--at] = "0123456789abcdef"[value % base];
    while (value /= base);
    add(text, n_bytes, digits + at);
}

static void put_crash_line(struct crash *crash, const struct lp_trace *trace, int fd) {
    const siginfo_t *info = crash->info;
    struct lp_trace_crash event = {.signal = crash->signal,
                                   .code = info->si_code,
                                   .pid = getpid(),
                                   .version = LIMPID_VERSION,
                                   .n_overwritten =
                                       trace->fd >= 0 ? 0 : (int64_t)lp_trace_n_overwritten(trace)};
    struct lp_trace_record record = {
        .time_ns = lp_clock_ns(), .thread = lp_trace_thread(), .kind = LP_TRACE_KIND_crash};
    if (info->si_code > 0 && crash->signal_number != SIGABRT) {
        add(event.address, sizeof event.address, "0x");
        add_number(event.address, sizeof event.address, (uint64_t)(uintptr_t)info->si_addr, 16);
    }
    memcpy(record.payload, &event, sizeof event);
    size_t n = lp_trace_json(&record, trace->start_ns, buffer);
    if (!lp_trace_write_all(fd, buffer, n)) crash->failed = true;
}

static int open_own(struct crash *crash) {
    if (crash->own_fd >= 0) return crash->own_fd;
    crash->own_name[0] = 0; // an earlier trace may have tried
    add(crash->own_name, sizeof crash->own_name, "limpid-crash-");
    add_number(crash->own_name, sizeof crash->own_name, (uint64_t)getpid(), 10);
    add(crash->own_name, sizeof crash->own_name, ".jsonl");
    crash->own_fd = openat(place.dir_fd, crash->own_name,
                           O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    return crash->own_fd;
}

// Nobody else writes to the file: no drain begins any more, and one that runs comes to its end.
// False: it does not, or it was this thread's; the file may end within a line.
static bool wait_for_drainer(const struct lp_trace *trace) {
    uint32_t me = lp_trace_thread(), drainer;
    for (int ms = 0; (drainer = atomic_load(&trace->drainer)) != 0 && drainer != me; ms++) {
        if (ms == MOST_WAIT_MS) return false;
        poll(NULL, 0, 1);
    }
    return drainer == 0;
}

static void dump_trace(struct crash *crash, const struct lp_trace *trace) {
    const struct lp_trace_record *record;
    int fd = trace->fd >= 0 ? trace->fd : open_own(crash);
    size_t used = 0;
    crash->path = trace->fd >= 0 ? trace->path : crash->own_name;
    if (fd < 0) {
        crash->failed = true;
        return;
    }
    if (trace->fd >= 0 && !wait_for_drainer(trace)) buffer[used++] = '\n';
    lp_trace_reader_init(&reader, trace, trace->fd >= 0);
    while ((record = lp_trace_reader_next(&reader)) != NULL) {
        used += lp_trace_json(record, trace->start_ns, buffer + used);
        crash->n_events++;
        if (sizeof buffer - used >= LP_TRACE_JSON_BYTES) continue;
        if (!lp_trace_write_all(fd, buffer, used)) crash->failed = true;
        used = 0;
    }
    if (!lp_trace_write_all(fd, buffer, used)) crash->failed = true;
    put_crash_line(crash, trace, fd);
}

static void add_place(char *text, size_t n_bytes, const struct crash *crash) {
    if (crash->path == crash->own_name) {
        add(text, n_bytes, place.dir);
        add(text, n_bytes, "/");
    }
    add(text, n_bytes, strcmp(crash->path, "-") == 0 ? "standard error" : crash->path);
}

static void say(const struct crash *crash) {
    char text[2048] = "limpid: ";
    add(text, sizeof text, crash->signal);
    if (!crash->path)
        add(text, sizeof text, ": the program has crashed; it had no engine, so nothing is traced");
    else if (crash->failed)
        add(text, sizeof text,
            ": the program has crashed; what it did last could not be written whole to ");
    else
        add(text, sizeof text, ": the program has crashed; what it did last is in ");
    if (crash->path) add_place(text, sizeof text, crash);
    if (crash->path && !crash->failed && strcmp(crash->path, "-") != 0) {
        add(text, sizeof text, " (limpid trace ");
        add_place(text, sizeof text, crash);
        add(text, sizeof text, " reads it)");
    }
    add(text, sizeof text, "\n");
    lp_trace_write_all(STDERR_FILENO, text, strlen(text));
}

// A fault of the processor comes again when the handler returns; other signals are sent again.
static void take_course(int signal_number, const siginfo_t *info) {
    struct sigaction action = {.sa_handler = SIG_DFL};
    sigemptyset(&action.sa_mask);
    sigaction(signal_number, &action, NULL);
    if (info->si_code <= 0 || signal_number == SIGABRT) raise(signal_number);
}

static void on_crash(int signal_number, siginfo_t *info, void *context) {
    (void)context;
    int error = errno;
    uint32_t nobody = 0, me = lp_trace_thread();
    if (!atomic_compare_exchange_strong(&writer, &nobody, me)) {
        while (nobody != me) poll(NULL, 0, 1000); // until the other thread ends the program
        take_course(signal_number, info);         // a crash within this handler
        return;
    }
    struct crash crash = {.signal_number = signal_number, .info = info, .own_fd = -1};
    for (size_t i = 0; i < LP_CRASH_N_SIGNALS; i++)
        if (lp_crash_signals[i] == signal_number) crash.signal = signal_names[i];
    for (int i = 0; i < LP_CRASH_TRACES; i++) {
        const struct lp_trace *trace = atomic_load(&traces[i]);
        if (trace) dump_trace(&crash, trace);
    }
    say(&crash);
    errno = error;
    take_course(signal_number, info);
}

// ---- setting up

void lp_crash_stack_set(struct lp_crash_stack *stack) {
    stack_t now;
    stack->block = NULL;
    if (!place.installed || sigaltstack(NULL, &now) != 0 || !(now.ss_flags & SS_DISABLE)) return;
    stack->block = lp_alloc(STACK_BYTES, 1);
    if (stack->block) sigaltstack(&(stack_t){.ss_sp = stack->block, .ss_size = STACK_BYTES}, NULL);
}

void lp_crash_stack_release(struct lp_crash_stack *stack) {
    if (stack->block) sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL);
    lp_free(stack->block);
    stack->block = NULL;
}

static void set_main_stack(void) {
    static char block[STACK_BYTES];
    stack_t now;
    if (sigaltstack(NULL, &now) == 0 && now.ss_flags & SS_DISABLE)
        sigaltstack(&(stack_t){.ss_sp = block, .ss_size = sizeof block}, NULL);
}

lp_status lp_crash_install(const char *dir, struct lp_err *err) {
    const char *name = dir && dir[0] ? dir : ".";
    int fd = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return lp_err_set(err, LP_STATUS_IO, "cannot open the directory %s for a crash's trace: %s",
                          name, strerror(errno));
    if (place.installed) close(place.dir_fd);
    place.dir_fd = fd;
    place.dir[0] = 0;
    add(place.dir, sizeof place.dir, name);
    if (place.installed) return LP_OK;
    place.installed = true;
    set_main_stack();
    struct sigaction action = {.sa_sigaction = on_crash, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < LP_CRASH_N_SIGNALS; i++) sigaction(lp_crash_signals[i], &action, NULL);
    return LP_OK;
}
