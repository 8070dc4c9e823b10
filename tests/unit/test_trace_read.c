#include "lp_test.h"

#include "base/alloc.h"
#include "trace/trace.h"

static struct lp_trace *trace;

static int set_up(void **state) {
    (void)state;
    return lp_trace_open(&trace, NULL, NULL);
}
static int tear_down(void **state) {
    (void)state;
    return lp_trace_close(trace, NULL);
}

static char *text_of(const char *request_id) {
    struct lp_bytes out = {0};
    struct lp_err err;
    assert_int_equal(lp_trace_text(trace, request_id, &out, &err), LP_OK);
    assert_int_equal(strlen(out.data), out.len);
    return out.data;
}

static void request(int64_t sequence, const char *what, const char *id) {
    struct lp_trace_request event = {.sequence = sequence, .what = what};
    lp_trace_copy(event.id, sizeof event.id, id);
    lp_trace_emit_request(trace, &event);
}
static void chunk(int64_t step, int64_t sequence, const char *id) {
    struct lp_trace_chunk event = {.step = step, .sequence = sequence};
    lp_trace_copy(event.id, sizeof event.id, id);
    lp_trace_emit_chunk(trace, &event);
}
static void step(int64_t number) {
    lp_trace_emit_step(trace, &(struct lp_trace_step){.step = number});
}
static void token(int64_t number, int64_t sequence) {
    lp_trace_emit_token(trace, &(struct lp_trace_token){.step = number, .sequence = sequence});
}

// What the lines say, as "event:step/sequence", '-' for a field that is not there.
static void assert_lines(char *text, const char *const want[], size_t n) {
    size_t i = 0;
    for (char *line = text, *end; *line; line = end + 1, i++) {
        char event[32], got[64], number[24] = "-", sequence[24] = "-";
        end = strchr(line, '\n');
        *end = 0;
        assert_int_equal(sscanf(line, "{\"event\":\"%31[a-z_]", event), 1);
        const char *at = strstr(line, "\"step\":");
        if (at) sscanf(at, "\"step\":%23[0-9-]", number);
        if ((at = strstr(line, "\"sequence\":")) != NULL)
            sscanf(at, "\"sequence\":%23[0-9-]", sequence);
        snprintf(got, sizeof got, "%s:%s/%s", event, number, sequence);
        assert_true(i < n);
        assert_string_equal(got, want[i]);
    }
    assert_int_equal(i, n);
    lp_free(text);
}
#define ASSERT_LINES(text, ...)                                                                    \
    do {                                                                                           \
        const char *const want_[] = {__VA_ARGS__};                                                 \
        assert_lines(text, want_, sizeof want_ / sizeof want_[0]);                                 \
    } while (0)

static void a_request_is_told_with_its_steps(void **state) {
    (void)state;
    lp_trace_emit_model(trace, &(struct lp_trace_model){.architecture = "a"});
    request(0, "submitted", "other");
    request(1, "submitted", "mine");
    request(-1, "rejected", "mine");
    request(-1, "rejected", "other");
    chunk(7, 0, "other"), step(7), token(7, 0);
    chunk(8, 0, "other"), chunk(8, 1, "mine"), step(8), token(8, 0), token(8, 1);
    chunk(9, 0, "other"), step(9);
    chunk(10, 1, "mine"), step(10), token(10, 1);
    request(1, "ended", "mine");
    ASSERT_LINES(text_of("mine"), "model:-/-", "request:-/1", "request:-/-1", "chunk:8/1",
                 "step:8/-", "token:8/1", "chunk:10/1", "step:10/-", "token:10/1", "request:-/1");
    ASSERT_LINES(text_of("nobody"), "model:-/-");
    ASSERT_LINES(text_of("min"), "model:-/-"); // ids are compared whole
}

static void long_ids_are_known_by_what_is_kept(void **state) {
    (void)state;
    char id[100];
    memset(id, 'x', sizeof id - 1);
    id[sizeof id - 1] = 0;
    request(4, "submitted", id);
    ASSERT_LINES(text_of(id), "request:-/4");
}

// Facts stay and the newest events are there, in order, after any number of others.
static void the_last_events_are_kept(void **state) {
    (void)state;
    enum { N = 2 * LP_TRACE_EVENTS + 100 };
    lp_trace_emit_model(trace, &(struct lp_trace_model){.architecture = "a"});
    request(5, "submitted", "lost");
    for (int64_t i = 0; i < N; i++) step(i);
    chunk(N, 5, "lost"); // the id is in every chunk
    token(N, 5);
    char *text = text_of(NULL);
    int64_t n_lines = 0, next = N - LP_TRACE_EVENTS + 2;
    for (char *line = text, *end; *line; line = end + 1, n_lines++) {
        end = strchr(line, '\n');
        *end = 0; // or each look into a line goes through the whole text
        if (n_lines == 0) assert_non_null(strstr(line, "\"event\":\"model\""));
        const char *at = strstr(line, "\"event\":\"step\"") ? strstr(line, "\"step\":") : NULL;
        if (at) assert_int_equal(strtoll(strchr(at, ':') + 1, NULL, 10), next++);
    }
    assert_int_equal(next, N);
    assert_int_equal(n_lines, 1 + LP_TRACE_EVENTS);
    lp_free(text);
    ASSERT_LINES(text_of("lost"), "model:-/-", "chunk:131172/5", "token:131172/5");
}

static void each_failing_allocation_is_told(void **state) {
    (void)state;
    for (int64_t i = 0; i < 700; i++) chunk(i, 1, "mine"), step(i);
    for (int with_id = 0; with_id < 2; with_id++) {
        lp_status status = LP_STATUS_MEMORY;
        for (size_t nth = 1; status; nth++) {
            struct lp_bytes out = {0};
            struct lp_err err;
            lp_alloc_fail_after(nth);
            status = lp_trace_text(trace, with_id ? "mine" : NULL, &out, &err);
            lp_alloc_fail_after(0);
            lp_bytes_release(&out);
            assert_true(status == LP_OK || status == LP_STATUS_MEMORY);
        }
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_request_is_told_with_its_steps), TEST(long_ids_are_known_by_what_is_kept),
        TEST(the_last_events_are_kept), TEST(each_failing_allocation_is_told)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
