// Each crash is a child of this process: a fresh one, since handlers are the whole process's. It
// dies of its signal, says one sentence, and leaves a dump.
#include "lp_test.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "trace/crash.h"
#include "trace/trace.h"

static char folder[64], file[128], said[4096];
static char *dump;

static int set_up(void **state) {
    (void)state;
    strcpy(folder, "/tmp/limpid-test-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    snprintf(file, sizeof file, "%s/trace.jsonl", folder);
    dump = NULL;
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    DIR *dir = opendir(folder);
    struct dirent *entry;
    while (dir && (entry = readdir(dir)) != NULL)
        if (entry->d_name[0] != '.') unlinkat(dirfd(dir), entry->d_name, 0);
    if (dir) closedir(dir);
    lp_free(dump);
    return rmdir(folder);
}

static void step(struct lp_trace *trace, int64_t i) {
    lp_trace_emit_step(trace, &(struct lp_trace_step){.step = i});
}

// Runs a child that installs the handlers and crashes. Returns the signal it died of; its dump and
// what it said are in `dump` (NULL: no such file) and `said`. path: of the dump, or NULL for
// limpid-crash-PID.jsonl.
static int crash(void (*child)(void), const char *path) {
    int fds[2], status;
    char own[160];
    struct lp_err err;
    size_t n = 0, len;
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(fds[1], STDERR_FILENO);
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        if (lp_crash_install(folder, &err) == LP_OK) child();
        _exit(99);
    }
    close(fds[1]);
    for (ssize_t got; (got = read(fds[0], said + n, sizeof said - 1 - n)) > 0;) n += (size_t)got;
    said[n] = 0;
    close(fds[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    snprintf(own, sizeof own, "%s/limpid-crash-%d.jsonl", folder, (int)pid);
    if (lp_file_read(path ? path : own, 1 << 28, &dump, &len, &err)) dump = NULL;
    return WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status);
}

static struct { // what a dump says
    int n_lines;
    int64_t first_step, n_steps; // of its step events
    bool in_order;               // they come one after the other, without a gap
    int n_crashes;
    char last[1024];
} told;

static bool begins(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

// Every line is whole and is an event. Takes the dump apart.
static void read_dump(void) {
    memset(&told, 0, sizeof told);
    told.in_order = true;
    assert_non_null(dump);
    for (char *line = dump, *end; *line; line = end + 1, told.n_lines++) {
        end = strchr(line, '\n');
        assert_non_null(end);
        *end = 0; // or each look into a line goes through the whole text
        assert_true(begins(line, "{\"event\":\""));
        assert_int_equal(end[-1], '}');
        told.n_crashes += begins(line, "{\"event\":\"crash\"");
        if (begins(line, "{\"event\":\"step\"")) {
            int64_t number = strtoll(strchr(strstr(line, "\"step\":"), ':') + 1, NULL, 10);
            if (told.n_steps == 0) told.first_step = number;
            told.in_order = told.in_order && number == told.first_step + told.n_steps;
            told.n_steps++;
        }
        if (!end[1]) snprintf(told.last, sizeof told.last, "%s", line);
    }
    lp_free(dump);
    dump = NULL;
}

static void assert_told(int64_t first_step, int64_t n_steps, const char *signal) {
    assert_int_equal(told.first_step, first_step);
    assert_int_equal(told.n_steps, n_steps);
    assert_true(told.in_order);
    assert_int_equal(told.n_crashes, 1);
    assert_true(begins(told.last, "{\"event\":\"crash\","));
    assert_non_null(strstr(told.last, signal));
}

// ---- without a file

static void raise_abort(void) {
    struct lp_trace *trace;
    if (lp_trace_open(&trace, NULL, NULL)) return;
    for (int64_t i = 0; i < 100; i++) step(trace, i);
    abort();
}

static void the_rings_go_to_a_file_of_their_own(void **state) {
    (void)state;
    const char *name;
    assert_int_equal(crash(raise_abort, NULL), SIGABRT);
    read_dump();
    assert_told(0, 100, "\"signal\":\"SIGABRT\",");
    assert_non_null(strstr(told.last, "\"n_overwritten\":0}"));
    assert_non_null(strstr(said, "limpid: SIGABRT: the program has crashed; "));
    name = strstr(said, "/limpid-crash-");
    assert_non_null(name);
    assert_int_equal(strncmp(name - strlen(folder), folder, strlen(folder)), 0);
    assert_non_null(strstr(said, "(limpid trace /tmp/"));
    assert_int_equal(strchr(said, '\n') - said, (long)strlen(said) - 1); // one line
}

static void write_through_null(void) {
    struct lp_trace *trace;
    if (lp_trace_open(&trace, NULL, NULL)) return;
    step(trace, 1);
    volatile uintptr_t address = 0x10;
    *(volatile int *)address = 1;
}

static void a_fault_tells_its_address(void **state) {
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_UNDEFINED__)
    skip(); // the sanitizer sees the pointer first
#endif
    assert_int_equal(crash(write_through_null, NULL), SIGSEGV);
    read_dump();
    assert_told(1, 1, "\"signal\":\"SIGSEGV\",\"code\":1,\"address\":\"0x10\",");
}

static void raise_each(int number) {
    struct lp_trace *trace;
    if (lp_trace_open(&trace, NULL, NULL)) return;
    step(trace, 7);
    raise(number);
}
static void raise_segv(void) {
    raise_each(SIGSEGV);
}
static void raise_bus(void) {
    raise_each(SIGBUS);
}
static void raise_ill(void) {
    raise_each(SIGILL);
}
static void raise_fpe(void) {
    raise_each(SIGFPE);
}

static void each_signal_takes_its_course(void **state) {
    (void)state;
    static const struct {
        int number;
        void (*child)(void);
        const char *name;
    } rows[] = {{SIGSEGV, raise_segv, "\"SIGSEGV\""},
                {SIGBUS, raise_bus, "\"SIGBUS\""},
                {SIGILL, raise_ill, "\"SIGILL\""},
                {SIGFPE, raise_fpe, "\"SIGFPE\""}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(crash(rows[i].child, NULL), rows[i].number);
        read_dump();
        assert_told(7, 1, rows[i].name);
    }
}

static void fill_and_crash(void) {
    struct lp_trace *trace;
    if (lp_trace_open(&trace, NULL, NULL)) return;
    for (int64_t i = 0; i < LP_TRACE_EVENTS + 5000; i++) step(trace, i);
    raise(SIGSEGV);
}

static void what_was_overwritten_is_counted(void **state) {
    (void)state;
    assert_int_equal(crash(fill_and_crash, NULL), SIGSEGV);
    read_dump();
    assert_told(5000, LP_TRACE_EVENTS, "\"n_overwritten\":5000}");
}

static void crash_without_trace(void) {
    raise(SIGSEGV);
}

static void without_an_engine_no_file_is_made(void **state) {
    (void)state;
    assert_int_equal(crash(crash_without_trace, NULL), SIGSEGV);
    assert_null(dump);
    assert_non_null(strstr(said, "it had no engine"));
}

// ---- with a file

static void crash_with_file(void) {
    struct lp_trace *trace;
    if (lp_trace_open(&trace, file, NULL)) return;
    for (int64_t i = 0; i < 300000; i++) step(trace, i); // some drained, some not
    raise(SIGSEGV);
}

static void a_trace_file_is_completed(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(crash(crash_with_file, file), SIGSEGV);
        read_dump();
        assert_told(0, 300000, "\"signal\":\"SIGSEGV\",");
        assert_non_null(strstr(said, file));
    }
}

// ---- beside other threads

static struct lp_trace *shared;

static void *emit_for_ever(void *user) {
    (void)user;
    for (int64_t i = 0;; i++)
        lp_trace_emit_draft(shared, &(struct lp_trace_draft){.step = i, .sequence = 1});
    return NULL;
}

static void crash_beside_writers(const char *path) {
    pthread_t threads[2];
    if (lp_trace_open(&shared, path, NULL)) return;
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, emit_for_ever, NULL);
    for (int64_t i = 0; i < 20000; i++) step(shared, i);
    usleep(20000);
    raise(SIGSEGV);
}
static void crash_beside_writers_in_memory(void) {
    crash_beside_writers(NULL);
}
static void crash_beside_writers_with_file(void) {
    crash_beside_writers(file);
}

static void other_threads_may_write_meanwhile(void **state) {
    (void)state;
    for (int with_file = 0; with_file < 2; with_file++) {
        assert_int_equal(
            crash(with_file ? crash_beside_writers_with_file : crash_beside_writers_in_memory,
                  with_file ? file : NULL),
            SIGSEGV);
        read_dump();
        assert_told(0, 20000, "\"SIGSEGV\"");
    }
}

static void *crash_in_thread(void *user) {
    (void)user;
    struct lp_crash_stack stack;
    lp_crash_stack_set(&stack);
    step(shared, 3);
    raise(SIGSEGV);
    return NULL;
}
static void crash_twice(void) {
    pthread_t threads[4];
    if (lp_trace_open(&shared, NULL, NULL)) return;
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, crash_in_thread, NULL);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
}

static void one_dump_where_several_threads_crash(void **state) {
    (void)state;
    assert_int_equal(crash(crash_twice, NULL), SIGSEGV);
    read_dump();
    assert_int_equal(told.n_crashes, 1);
    assert_true(begins(told.last, "{\"event\":\"crash\","));
}

// ---- no stack left

static volatile bool deep_enough; // never
static int deeper(volatile char *above) {
    volatile char block[4096];
    block[0] = above ? (char)(above[0] + 1) : 0;
    return (deep_enough ? 0 : deeper(block)) + block[0];
}
static void *overflow(void *user) {
    struct lp_crash_stack stack;
    lp_crash_stack_set(&stack);
    step(shared, 9);
    int n = deeper(user);
    lp_crash_stack_release(&stack);
    return (void *)(intptr_t)n;
}
static void overflow_in_thread(void) {
    pthread_t thread;
    if (lp_trace_open(&shared, NULL, NULL)) return;
    pthread_create(&thread, NULL, overflow, NULL);
    pthread_join(thread, NULL);
}
static void overflow_in_main(void) {
    if (lp_trace_open(&shared, NULL, NULL)) return;
    step(shared, 9);
    if (deeper(NULL)) step(shared, 10);
}

static void a_stack_overflow_is_dumped_too(void **state) {
    (void)state;
    void (*const children[])(void) = {overflow_in_main, overflow_in_thread};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(crash(children[i], NULL), SIGSEGV);
        read_dump();
        assert_told(9, 1, "\"SIGSEGV\"");
    }
}

static void a_missing_directory_is_named(void **state) {
    (void)state;
    struct lp_err err;
    assert_int_equal(lp_crash_install("/nonexistent/dir", &err), LP_STATUS_IO);
    assert_non_null(strstr(err.text, "/nonexistent/dir"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(the_rings_go_to_a_file_of_their_own), TEST(a_fault_tells_its_address),
        TEST(each_signal_takes_its_course),        TEST(what_was_overwritten_is_counted),
        TEST(without_an_engine_no_file_is_made),   TEST(a_trace_file_is_completed),
        TEST(other_threads_may_write_meanwhile),   TEST(one_dump_where_several_threads_crash),
        TEST(a_stack_overflow_is_dumped_too),      TEST(a_missing_directory_is_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
