#include "lp_test.h"

#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "trace/trace.h"

static void events_are_json_lines(void **state) {
    (void)state;
    char path[] = "/tmp/limpid-trace-XXXXXX";
    int fd = mkstemp(path);
    struct lp_trace *trace;
    struct lp_err err;
    char *text;
    size_t len;
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(lp_trace_open(&trace, path, &err), LP_OK);
    lp_trace_emit_step(trace, &(struct lp_trace_step){
                                  .step = 3, .n_tokens = 17, .n_sequences = 1, .duration_us = -1});
    lp_trace_emit_attention(
        trace, &(struct lp_trace_attention){.layer = 2, .route = "a\"b\\", .reason = "tab\there"});
    assert_int_equal(lp_trace_close(trace, &err), LP_OK);
    assert_int_equal(lp_file_read(path, 1 << 20, &text, &len, &err), LP_OK);
    assert_non_null(strstr(text, "{\"event\":\"step\",\"time_us\":"));
    assert_non_null(
        strstr(text, "\"step\":3,\"n_tokens\":17,\"n_sequences\":1,\"duration_us\":-1}\n"));
    assert_non_null(
        strstr(text, "\"route\":\"a\\\"b\\\\\",\"reason\":\"tab?here\",\"kernel\":\"\"}\n"));
    lp_free(text);
    unlink(path);
}

static void off_is_silent_and_bad_paths_are_named(void **state) {
    (void)state;
    struct lp_trace *trace;
    struct lp_err err;
    lp_trace_emit_step(NULL, &(struct lp_trace_step){0});
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
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(events_are_json_lines),
                                       cmocka_unit_test(off_is_silent_and_bad_paths_are_named),
                                       cmocka_unit_test(a_full_disk_is_reported)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
