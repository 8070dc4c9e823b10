#include "lp_test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "files/new_file.h"

#define MB (UINT64_C(1) << 20)
#define JOB "a job\nof two lines\n"

static char folder[64];
static char *pattern; // 40 MB that are nowhere the same

static int make_folder(void **state) {
    (void)state;
    uint32_t x = 12345;
    signal(SIGXFSZ, SIG_IGN);
    pattern = malloc(40 * MB);
    for (uint64_t i = 0; pattern && i < 40 * MB; i += 4) {
        x = x * 1664525 + 1013904223;
        memcpy(pattern + i, &x, 4);
    }
    snprintf(folder, sizeof folder, "/tmp/limpid-newfile-XXXXXX");
    return pattern && mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    char command[100];
    free(pattern);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return chdir("/") == 0 && system(command) == 0 ? 0 : -1;
}

static int clean(void **state) {
    (void)state;
    return system("rm -rf ./*") == 0 ? 0 : -1;
}

static void put(const char *path, const void *data, uint64_t n) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static void holds_pattern(const char *path, uint64_t n) {
    char *text;
    size_t got;
    struct lp_err err;
    assert_int_equal(lp_file_read(path, 64 * MB, &text, &got, &err), LP_OK);
    assert_int_equal(got, n);
    assert_memory_equal(text, pattern, n);
    lp_free(text);
}

static bool there(const char *path) {
    struct stat st;
    return lstat(path, &st) == 0;
}

static struct lp_new_file_options options(uint64_t n, const char *job) {
    return (struct lp_new_file_options){.path = "out", .n_bytes = n, .job = job};
}

static struct lp_new_file *opened(const struct lp_new_file_options *o, uint64_t *done) {
    struct lp_new_file *f;
    struct lp_err err;
    if (lp_new_file_open(&f, o, done, &err)) fail_msg("%s", err.text);
    return f;
}

static void refused(const struct lp_new_file_options *o, lp_status status, const char *words) {
    struct lp_new_file *f;
    struct lp_err err;
    uint64_t done;
    assert_int_equal(lp_new_file_open(&f, o, &done, &err), status);
    if (!strstr(err.text, words)) fail_msg("'%s' lacks '%s'", err.text, words);
}

static void write_until(struct lp_new_file *f, uint64_t from, uint64_t to) {
    struct lp_err err;
    for (uint64_t at = from, n; at < to; at += n) {
        n = to - at < 3 * MB + 7 ? to - at : 3 * MB + 7;
        assert_int_equal(lp_new_file_write(f, at, pattern + at, n, &err), LP_OK);
    }
}

// ---- whole or not at all

static void it_appears_when_it_is_whole(void **state) {
    (void)state;
    struct lp_err err;
    struct lp_new_file_options o = options(MB, NULL);
    struct lp_new_file *f = opened(&o, NULL);
    write_until(f, 0, MB);
    assert_false(there("out"));
    assert_true(there("out.partial"));
    assert_int_equal(lp_new_file_finish(f, &err), LP_OK);
    lp_new_file_close(f);
    holds_pattern("out", MB);
    assert_false(there("out.partial"));
    assert_false(there("out.partial.state"));
}

static void copies_come_at_any_offset(void **state) {
    (void)state;
    struct lp_err err;
    uint64_t n = 20 * MB + 5;
    put("in", pattern, 40 * MB);
    int fd = open("in", O_RDONLY);
    struct lp_new_file_options o = options(n, NULL);
    struct lp_new_file *f = opened(&o, NULL);
    assert_int_equal(lp_new_file_copy(f, 3, fd, 3, n - 3, "in", &err), LP_OK);
    assert_int_equal(lp_new_file_write(f, 0, pattern, 3, &err), LP_OK);
    assert_int_equal(lp_new_file_finish(f, &err), LP_OK);
    lp_new_file_close(f);
    close(fd);
    holds_pattern("out", n);
}

// The kernel copies nothing into a pipe's end, nor out of a source that ends too soon.
static void a_source_that_ends_too_soon_is_named(void **state) {
    (void)state;
    struct lp_err err;
    put("in", pattern, 100);
    int fd = open("in", O_RDONLY);
    struct lp_new_file_options o = options(MB, NULL);
    struct lp_new_file *f = opened(&o, NULL);
    assert_int_equal(lp_new_file_copy(f, 0, fd, 0, 200, "in", &err), LP_STATUS_IO);
    assert_non_null(strstr(err.text, "in ends at byte 100"));
    lp_new_file_close(f);
    close(fd);
    assert_false(there("out.partial"));
    assert_false(there("out.partial.state"));
}

static void a_file_of_another_size_is_not_finished(void **state) {
    (void)state;
    struct lp_err err;
    struct lp_new_file_options o = options(10, NULL);
    struct lp_new_file *f = opened(&o, NULL);
    assert_int_equal(lp_new_file_write(f, 0, pattern, 9, &err), LP_OK);
    assert_int_equal(lp_new_file_finish(f, &err), LP_STATUS_FORMAT);
    lp_new_file_close(f);
    assert_false(there("out"));
    assert_false(there("out.partial"));
}

static void what_stood_there_stays_and_keeps_its_mode_and_link(void **state) {
    (void)state;
    struct lp_err err;
    struct stat st;
    put("real", "old", 3);
    assert_int_equal(chmod("real", 0604), 0);
    assert_int_equal(symlink("real", "out"), 0);
    struct lp_new_file_options o = options(4, NULL);
    refused(&o, LP_STATUS_INVALID, "out exists already");
    o.overwrite = true;
    struct lp_new_file *f = opened(&o, NULL);
    lp_new_file_close(f); // given up
    char *text;
    size_t n;
    assert_int_equal(lp_file_read("real", 10, &text, &n, &err), LP_OK);
    assert_string_equal(text, "old");
    lp_free(text);
    f = opened(&o, NULL);
    write_until(f, 0, 4);
    assert_int_equal(lp_new_file_finish(f, &err), LP_OK);
    lp_new_file_close(f);
    holds_pattern("real", 4);
    assert_int_equal(lstat("out", &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(stat("real", &st), 0);
    assert_int_equal(st.st_mode & 07777, 0604);
}

// ---- what is refused

static void places_that_cannot_be(void **state) {
    (void)state;
    struct lp_new_file_options o = options(4, NULL);
    o.path = "no/such/out";
    refused(&o, LP_STATUS_IO, "the folder no/such/ cannot be reached: No such file");
    o.path = "/tmp";
    refused(&o, LP_STATUS_INVALID, "/tmp is a folder");
    o.path = "/dev/null";
    refused(&o, LP_STATUS_INVALID, "no regular file");
    o.path = "";
    refused(&o, LP_STATUS_INVALID, "0 bytes");
    assert_int_equal(symlink("nowhere", "link"), 0);
    o.path = "link";
    refused(&o, LP_STATUS_INVALID, "a link to a file that is not there");
}

static void an_input_is_never_written_over(void **state) {
    (void)state;
    const char *input = "in";
    put("in", pattern, 100);
    assert_int_equal(symlink("in", "soft"), 0);
    assert_int_equal(link("in", "hard"), 0);
    assert_int_equal(link("in", "out.partial"), 0);
    struct lp_new_file_options o = options(4, JOB);
    o.inputs = &input;
    o.n_inputs = 1;
    o.overwrite = true;
    static const char *const paths[] = {"in", "soft", "hard", "./in", "out"};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        o.path = paths[i];
        refused(&o, LP_STATUS_INVALID, "it is read (in)");
    }
    holds_pattern("in", 100);
}

static void a_partial_file_of_others_is_left_alone(void **state) {
    (void)state;
    put("out.partial", pattern, 100);
    struct lp_new_file_options o = options(4, JOB);
    refused(&o, LP_STATUS_INVALID, "out.partial is in the way");
    put("out.partial.state", pattern, 500);
    refused(&o, LP_STATUS_INVALID, "out.partial is in the way");
    holds_pattern("out.partial", 100);
    unlink("out.partial");
    assert_int_equal(mkfifo("out.partial", 0600), 0);
    refused(&o, LP_STATUS_INVALID, "out.partial is in the way");
}

static void a_disk_too_small_is_known_before(void **state) {
    (void)state;
    struct lp_new_file_options o = options(UINT64_C(1) << 60, JOB);
    refused(&o, LP_STATUS_LIMIT, "GB are free");
    assert_false(there("out.partial"));
    struct rlimit old, few = {MB, RLIM_INFINITY};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    few.rlim_max = old.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
    o.n_bytes = 2 * MB;
    refused(&o, LP_STATUS_LIMIT, "ulimit -f");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
}

static void two_do_not_write_one_file(void **state) {
    (void)state;
    struct lp_new_file_options o = options(4, JOB);
    struct lp_new_file *f = opened(&o, NULL);
    write_until(f, 0, 2);
    o.job = "another";
    refused(&o, LP_STATUS_BUSY, "is being written by another process");
    struct lp_err err;
    write_until(f, 2, 4);
    assert_int_equal(lp_new_file_finish(f, &err), LP_OK);
    lp_new_file_close(f);
    holds_pattern("out", 4);
}

// ---- going on

static void given_up_it_goes_on_where_it_was(void **state) {
    (void)state;
    struct lp_err err;
    uint64_t done = 1, n = 40 * MB;
    struct lp_new_file_options o = options(n, JOB);
    struct lp_new_file *f = opened(&o, &done);
    assert_int_equal(done, 0);
    write_until(f, 0, 10 * MB + 1);
    lp_new_file_close(f);
    assert_true(there("out.partial"));
    assert_int_equal(lp_new_file_check(&o, &done, &err), LP_OK);
    assert_int_equal(done, 10 * MB + 1);
    f = opened(&o, &done);
    assert_int_equal(done, 10 * MB + 1);
    write_until(f, done, n);
    assert_int_equal(lp_new_file_finish(f, &err), LP_OK);
    lp_new_file_close(f);
    holds_pattern("out", n);
    assert_false(there("out.partial.state"));
}

// Killed, with the page cache in place: what the state file says is written. A machine that went
// down in between (another boot id): what is on the disk.
static void killed_it_goes_on_after_what_the_state_says(void **state) {
    (void)state;
    struct lp_new_file_options o = options(40 * MB, JOB);
    pid_t child = fork();
    if (child == 0) {
        struct lp_err err;
        struct lp_new_file *f;
        if (lp_new_file_open(&f, &o, NULL, &err)) _exit(1);
        for (uint64_t at = 0; at < 30 * MB; at += MB)
            if (lp_new_file_write(f, at, pattern + at, MB, &err)) _exit(2);
        raise(SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    uint64_t done;
    struct lp_err err;
    assert_int_equal(lp_new_file_check(&o, &done, &err), LP_OK);
    assert_true(done >= 22 * MB && done <= 30 * MB);

    char *text;
    size_t n;
    assert_int_equal(lp_file_read("out.partial.state", MB, &text, &n, &err), LP_OK);
    char *boot = strstr(text, "boot    ");
    assert_non_null(boot);
    boot[8] = boot[8] == '0' ? '1' : '0';
    put("out.partial.state", text, n);
    lp_free(text);
    assert_int_equal(lp_new_file_check(&o, &done, &err), LP_OK);
    assert_int_equal(done, 0); // nothing was synced yet

    struct lp_new_file *f = opened(&o, &done);
    write_until(f, 0, 40 * MB);
    assert_int_equal(lp_new_file_finish(f, &err), LP_OK);
    lp_new_file_close(f);
    holds_pattern("out", 40 * MB);
}

// A disk that fills up, or here: a limit that comes down.
static void a_write_that_fails_keeps_what_is_there(void **state) {
    (void)state;
    struct lp_err err;
    struct rlimit old, few;
    uint64_t done;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    few = (struct rlimit){5 * MB, old.rlim_max};
    for (int resumable = 0; resumable < 2; resumable++) {
        struct lp_new_file_options o = options(10 * MB, resumable ? JOB : NULL);
        struct lp_new_file *f = opened(&o, NULL);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
        assert_int_equal(lp_new_file_write(f, 0, pattern, 4 * MB, &err), LP_OK);
        lp_status status = lp_new_file_write(f, 4 * MB, pattern + 4 * MB, 6 * MB, &err);
        lp_new_file_close(f);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        assert_int_equal(status, LP_STATUS_IO);
        assert_non_null(strstr(err.text, "File too large"));
        assert_int_equal(strstr(err.text, "the same command goes on") != NULL, resumable);
        assert_int_equal(there("out.partial"), resumable);
        assert_int_equal(there("out.partial.state"), resumable);
        assert_int_equal(lp_new_file_check(&o, &done, &err), LP_OK);
        assert_int_equal(done, resumable ? 4 * MB : 0);
    }
}

// Past LP_NEW_FILE_SYNC_BYTES a thread brings to the disk what is written, while more is.
static void what_a_thread_has_synced_survives_the_machine(void **state) {
    (void)state;
    struct lp_err err;
    uint64_t done, n = LP_NEW_FILE_SYNC_BYTES + 44 * MB, at = 0;
    struct lp_new_file_options o = options(2 * n, JOB);
    if (lp_new_file_room("out", "out", 4 * n, &err)) skip();
    struct lp_new_file *f = opened(&o, NULL);
    for (; at < n; at += 30 * MB)
        assert_int_equal(lp_new_file_write(f, at, pattern, 30 * MB, &err), LP_OK);
    lp_new_file_close(f); // waits for the thread
    char *text, *boot, expected[40];
    size_t length;
    assert_int_equal(lp_file_read("out.partial.state", MB, &text, &length, &err), LP_OK);
    boot = strstr(text, "boot    ");
    boot[8] = boot[8] == '0' ? '1' : '0';
    snprintf(expected, sizeof expected, "synced  %020llu", (unsigned long long)(270 * MB));
    assert_non_null(strstr(text, expected)); // the first piece past 256 MiB
    put("out.partial.state", text, length);
    lp_free(text);
    assert_int_equal(lp_new_file_check(&o, &done, &err), LP_OK);
    assert_int_equal(done, 270 * MB);
}

static void another_job_or_file_begins_again(void **state) {
    (void)state;
    struct lp_err err;
    uint64_t done;
    struct lp_new_file_options o = options(4 * MB, JOB);
    struct lp_new_file *f = opened(&o, NULL);
    write_until(f, 0, 2 * MB);
    lp_new_file_close(f);
    o.job = "another job";
    assert_int_equal(lp_new_file_check(&o, &done, &err), LP_OK);
    assert_int_equal(done, 0);
    o.job = JOB;
    o.n_bytes = MB; // fewer than are there
    assert_int_equal(lp_new_file_check(&o, &done, &err), LP_OK);
    assert_int_equal(done, 0);
    o.n_bytes = 4 * MB;
    assert_int_equal(truncate("out.partial", MB), 0); // not as it was left
    assert_int_equal(lp_new_file_check(&o, &done, &err), LP_OK);
    assert_int_equal(done, 0);
    assert_int_equal(truncate("out.partial", 4 * MB), 0);
    assert_int_equal(rename("out.partial", "x"), 0); // another inode
    put("out.partial", pattern, 4 * MB);
    assert_int_equal(lp_new_file_check(&o, &done, &err), LP_OK);
    assert_int_equal(done, 0);
}

static void a_whole_file_is_known_until_it_is_forgotten(void **state) {
    (void)state;
    struct lp_err err;
    uint64_t done;
    struct lp_new_file_options o = options(MB, JOB);
    o.keep_state = true;
    struct lp_new_file *f = opened(&o, NULL);
    write_until(f, 0, MB);
    assert_int_equal(lp_new_file_finish(f, &err), LP_OK);
    lp_new_file_close(f);
    assert_true(there("out.partial.state"));
    f = opened(&o, &done);
    assert_int_equal(done, MB);
    assert_int_equal(lp_new_file_finish(f, &err), LP_OK);
    lp_new_file_close(f);
    holds_pattern("out", MB);
    o.job = "another";
    refused(&o, LP_STATUS_INVALID, "exists already");
    o.job = JOB;
    lp_new_file_forget("out");
    assert_false(there("out.partial.state"));
    refused(&o, LP_STATUS_INVALID, "exists already");
}

// ---- signals

static int end_by(int number, const char *job) {
    struct lp_new_file_options o = options(4 * MB, job);
    int status;
    pid_t child = fork();
    if (child == 0) {
        struct lp_err err;
        struct lp_new_file *f;
        int null = open("/dev/null", O_WRONLY);
        dup2(null, 2);
        if (lp_new_file_open(&f, &o, NULL, &err)) _exit(1);
        if (lp_new_file_write(f, 0, pattern, MB, &err)) _exit(2);
        lp_new_file_write(f, MB, pattern + MB, MB, &err);
        raise(number);
        _exit(3);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status);
}

static void a_signal_removes_what_cannot_go_on(void **state) {
    (void)state;
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(end_by(numbers[i], NULL), numbers[i]);
        assert_false(there("out.partial"));
        assert_false(there("out.partial.state"));
        assert_int_equal(end_by(numbers[i], JOB), numbers[i]);
        assert_true(there("out.partial"));
        assert_true(there("out.partial.state"));
        clean(NULL);
    }
}

static void a_signal_that_is_ignored_stays_so(void **state) {
    (void)state;
    signal(SIGHUP, SIG_IGN); // nohup
    assert_int_equal(end_by(SIGHUP, NULL), -3);
    signal(SIGHUP, SIG_DFL);
    struct sigaction action;
    assert_int_equal(sigaction(SIGINT, NULL, &action), 0);
    assert_true(action.sa_handler == SIG_DFL); // all is as it was before
}

static void without_memory_nothing_is_left(void **state) {
    (void)state;
    struct lp_new_file_options o = options(4, JOB);
    bool ok = false;
    for (size_t nth = 1; !ok && nth < 100; nth++) {
        struct lp_new_file *f;
        struct lp_err err;
        lp_alloc_fail_after(nth);
        lp_status status = lp_new_file_open(&f, &o, NULL, &err);
        lp_alloc_fail_after(0);
        ok = status == LP_OK;
        if (!ok) assert_int_equal(status, LP_STATUS_MEMORY);
        lp_new_file_close(f);
        assert_false(there("out.partial"));
    }
    assert_true(ok);
}

int main(void) {
#define TEST(name) cmocka_unit_test_teardown(name, clean)
    const struct CMUnitTest tests[] = {
        TEST(it_appears_when_it_is_whole),
        TEST(copies_come_at_any_offset),
        TEST(a_source_that_ends_too_soon_is_named),
        TEST(a_file_of_another_size_is_not_finished),
        TEST(what_stood_there_stays_and_keeps_its_mode_and_link),
        TEST(places_that_cannot_be),
        TEST(an_input_is_never_written_over),
        TEST(a_partial_file_of_others_is_left_alone),
        TEST(a_disk_too_small_is_known_before),
        TEST(two_do_not_write_one_file),
        TEST(given_up_it_goes_on_where_it_was),
        TEST(killed_it_goes_on_after_what_the_state_says),
        TEST(a_write_that_fails_keeps_what_is_there),
        TEST(what_a_thread_has_synced_survives_the_machine),
        TEST(another_job_or_file_begins_again),
        TEST(a_whole_file_is_known_until_it_is_forgotten),
        TEST(a_signal_removes_what_cannot_go_on),
        TEST(a_signal_that_is_ignored_stays_so),
        TEST(without_memory_nothing_is_left),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
