#include "lp_test.h"

#include <pthread.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "trace/trace.h"

static char path[64];

static void make_path(void) {
    strcpy(path, "/tmp/limpid-trace-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
}

static char *content(void) {
    struct lp_err err;
    char *text;
    size_t len;
    assert_int_equal(lp_file_read(path, 1 << 28, &text, &len, &err), LP_OK);
    return text;
}

static void events_are_json_lines(void **state) {
    (void)state;
    struct lp_trace *trace;
    struct lp_err err;
    make_path();
    assert_int_equal(lp_trace_open(&trace, path, &err), LP_OK);
    assert_true(lp_trace_is_full(trace));
    lp_trace_emit_step(trace, &(struct lp_trace_step){.step = 3,
                                                      .n_tokens = 17,
                                                      .n_sequences = 1,
                                                      .duration_us = -1,
                                                      .rows_sent = 5,
                                                      .bytes_sent = 640});
    lp_trace_emit_attention(
        trace, &(struct lp_trace_attention){.layer = 2, .route = "a\"b\\", .reason = "tab\there"});
    assert_int_equal(lp_trace_close(trace, &err), LP_OK);
    char *text = content();
    assert_non_null(strstr(text, "{\"event\":\"step\",\"time_us\":"));
    assert_non_null(strstr(text, "\"step\":3,\"n_tokens\":17,\"n_sequences\":1,\"duration_us\":-1,"
                                 "\"rows_sent\":5,\"bytes_sent\":640}\n"));
    assert_non_null(
        strstr(text, "\"route\":\"a\\\"b\\\\\",\"reason\":\"tab?here\",\"kernel\":\"\"}\n"));
    lp_free(text);
    unlink(path);
}

static void no_trace_is_silent_and_bad_paths_are_named(void **state) {
    (void)state;
    struct lp_trace *trace;
    struct lp_err err;
    lp_trace_emit_step(NULL, &(struct lp_trace_step){0});
    assert_false(lp_trace_is_full(NULL));
    assert_int_equal(lp_trace_close(NULL, &err), LP_OK);
    assert_int_equal(lp_trace_open(&trace, "/nonexistent/dir/t.jsonl", &err), LP_STATUS_IO);
    assert_non_null(strstr(err.text, "/nonexistent/dir/t.jsonl"));
}

static void a_full_disk_is_reported(void **state) {
    (void)state;
    struct lp_trace *trace;
    struct lp_err err;
    if (access("/dev/full", W_OK) != 0) skip();
    assert_int_equal(lp_trace_open(&trace, "/dev/full", &err), LP_OK);
    for (int i = 0; i < 1000; i++) lp_trace_emit_step(trace, &(struct lp_trace_step){.step = i});
    assert_int_equal(lp_trace_close(trace, &err), LP_STATUS_IO);
    assert_string_equal(
        err.text, "the trace /dev/full is incomplete: writing it failed: No space left on device");
}

static void without_memory_nothing_is_opened(void **state) {
    (void)state;
    struct lp_trace *trace = NULL;
    struct lp_err err;
    make_path();
    for (int with_file = 0; with_file < 2; with_file++) {
        lp_status status = LP_STATUS_MEMORY;
        for (size_t nth = 1; status; nth++) {
            assert_true(nth < 20);
            lp_alloc_fail_after(nth);
            status = lp_trace_open(&trace, with_file ? path : NULL, &err);
            lp_alloc_fail_after(0);
            assert_true(status == LP_OK || status == LP_STATUS_MEMORY);
        }
        assert_int_equal(lp_trace_close(trace, &err), LP_OK);
    }
    unlink(path);
}

// A thread that gets no ring of its own writes to the shared one: nothing is lost.
static void without_memory_for_a_ring_events_are_shared(void **state) {
    (void)state;
    struct lp_trace *trace;
    struct lp_bytes out = {0};
    struct lp_err err;
    assert_int_equal(lp_trace_open(&trace, NULL, &err), LP_OK);
    lp_alloc_fail_after(1);
    lp_trace_emit_step(trace, &(struct lp_trace_step){.step = 1});
    lp_alloc_fail_after(0);
    lp_trace_emit_step(trace, &(struct lp_trace_step){.step = 2});
    assert_int_equal(lp_trace_text(trace, NULL, &out, &err), LP_OK);
    assert_non_null(strstr(out.data, "\"step\":1,"));
    assert_non_null(strstr(strstr(out.data, "\"step\":1,"), "\"step\":2,"));
    lp_bytes_release(&out);
    assert_int_equal(lp_trace_close(trace, &err), LP_OK);
}

// ---- many threads

#define N_THREADS 4
#define N_EVENTS (3 * LP_TRACE_EVENTS) // so that every ring must be emptied while it is written

struct job {
    struct lp_trace *trace;
    int64_t sequence, n;
};

static void *emit_all(void *user) {
    const struct job *job = user;
    for (int64_t i = 0; i < job->n; i++)
        lp_trace_emit_draft(job->trace,
                            &(struct lp_trace_draft){.step = i, .sequence = job->sequence});
    return NULL;
}

static void run_threads(struct lp_trace *trace, int n_threads, int64_t n_events) {
    pthread_t threads[80];
    struct job jobs[80];
    for (int t = 0; t < n_threads; t++) {
        jobs[t] = (struct job){trace, t, n_events};
        assert_int_equal(pthread_create(&threads[t], NULL, emit_all, &jobs[t]), 0);
    }
    for (int t = 0; t < n_threads; t++) pthread_join(threads[t], NULL);
}

// Every line whole; of each sequence every event, in order of number and time. Returns how many.
static int64_t check_lines(char *text, int n_sequences, int64_t next[]) {
    int64_t n = 0;
    unsigned long long last_us[80] = {0};
    for (int t = 0; t < n_sequences; t++) next[t] = 0;
    for (char *line = text, *end; *line; line = end + 1, n++) {
        unsigned long long us;
        long long step, sequence;
        int length = 0;
        end = strchr(line, '\n');
        assert_non_null(end);
        *end = 0; // or sscanf looks for the end of the whole text
        int got = sscanf(line,
                         "{\"event\":\"draft\",\"time_us\":%llu,\"thread\":%*u,\"step\":%lld,"
                         "\"sequence\":%lld,\"n_draft\":0,\"n_accepted\":0}%n",
                         &us, &step, &sequence, &length);
        assert_int_equal(got, 3);
        assert_int_equal(line[length], 0);
        assert_in_range(sequence, 0, n_sequences - 1);
        assert_int_equal(step, next[sequence]++);
        assert_true(us >= last_us[sequence]);
        last_us[sequence] = us;
    }
    return n;
}

static void a_file_loses_nothing(void **state) {
    (void)state;
    struct lp_trace *trace;
    struct lp_err err;
    int64_t next[80];
    make_path();
    assert_int_equal(lp_trace_open(&trace, path, &err), LP_OK);
    run_threads(trace, N_THREADS, N_EVENTS);
    assert_int_equal(lp_trace_close(trace, &err), LP_OK);
    char *text = content();
    assert_int_equal(check_lines(text, N_THREADS, next), (int64_t)N_THREADS * N_EVENTS);
    for (int t = 0; t < N_THREADS; t++) assert_int_equal(next[t], N_EVENTS);
    lp_free(text);
    unlink(path);
}

// More threads at a time than there are rings, and many more one behind the other.
static void many_threads_lose_nothing(void **state) {
    (void)state;
    struct lp_trace *trace;
    struct lp_err err;
    int64_t next[80];
    make_path();
    assert_int_equal(lp_trace_open(&trace, path, &err), LP_OK);
    run_threads(trace, 80, 2000);
    assert_int_equal(lp_trace_close(trace, &err), LP_OK);
    char *text = content();
    assert_int_equal(check_lines(text, 80, next), 80 * 2000);
    lp_free(text);
    assert_int_equal(lp_trace_open(&trace, path, &err), LP_OK);
    for (int i = 0; i < 200; i++) {
        pthread_t thread;
        struct job job = {trace, i, 1};
        assert_int_equal(pthread_create(&thread, NULL, emit_all, &job), 0);
        pthread_join(thread, NULL);
    }
    assert_int_equal(lp_trace_close(trace, &err), LP_OK);
    text = content();
    int n = 0;
    for (const char *p = text; (p = strchr(p, '\n')) != NULL; p++) n++;
    assert_int_equal(n, 200);
    lp_free(text);
    unlink(path);
}

static void two_traces_of_one_thread_keep_apart(void **state) {
    (void)state;
    struct lp_trace *traces[2];
    struct lp_bytes out[2] = {{0}, {0}};
    struct lp_err err;
    for (int i = 0; i < 2; i++) assert_int_equal(lp_trace_open(&traces[i], NULL, &err), LP_OK);
    for (int i = 0; i < 10; i++)
        lp_trace_emit_draft(traces[i % 2], &(struct lp_trace_draft){.step = i, .sequence = i % 2});
    for (int i = 0; i < 2; i++) {
        assert_int_equal(lp_trace_text(traces[i], NULL, &out[i], &err), LP_OK);
        assert_null(strstr(out[i].data, i ? "\"sequence\":0," : "\"sequence\":1,"));
        assert_non_null(strstr(out[i].data, i ? "\"step\":9," : "\"step\":8,"));
        lp_bytes_release(&out[i]);
        assert_int_equal(lp_trace_close(traces[i], &err), LP_OK);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_are_json_lines),
        cmocka_unit_test(no_trace_is_silent_and_bad_paths_are_named),
        cmocka_unit_test(a_full_disk_is_reported),
        cmocka_unit_test(without_memory_nothing_is_opened),
        cmocka_unit_test(without_memory_for_a_ring_events_are_shared),
        cmocka_unit_test(a_file_loses_nothing),
        cmocka_unit_test(many_threads_lose_nothing),
        cmocka_unit_test(two_traces_of_one_thread_keep_apart)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
