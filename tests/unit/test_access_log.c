// Every line is one JSON object, whatever clients send, and whole among threads.
#include "lp_test.h"

#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <unistd.h>

#include "serve/access_log.h"

static json_t *line_of(const struct lp_access *a, int64_t unix_ms) {
    struct lp_bytes out = {0};
    json_error_t e;
    assert_true(lp_access_log_line(&out, a, unix_ms));
    assert_true(out.len > 2 && out.data[out.len - 1] == '\n');
    assert_null(memchr(out.data, '\n', out.len - 1));
    json_t *line = json_loadb(out.data, out.len, 0, &e);
    assert_non_null(line);
    assert_int_equal(json_object_size(line), 13);
    lp_bytes_release(&out);
    return line;
}

static void text_is(const json_t *line, const char *name, const char *expected) {
    assert_string_equal(json_string_value(json_object_get(line, name)), expected);
}

static void number_is(const json_t *line, const char *name, double expected) {
    assert_true(json_is_number(json_object_get(line, name)));
    assert_true(fabs(json_number_value(json_object_get(line, name)) - expected) < 1e-9);
}

static void a_generation_has_all_fields(void **state) {
    (void)state;
    struct lp_access a = {.id = "req-1",
                          .client = "::1",
                          .method = "POST",
                          .path = "/v1/completions",
                          .status = 200,
                          .began_ns = 5000000000,
                          .first_token_ns = 5012500000,
                          .end_ns = 5100000000,
                          .generates = true,
                          .stream = true,
                          .prompt_tokens = 12,
                          .cached_tokens = 8,
                          .completion_tokens = 3,
                          .finish = "stop"};
    json_t *line = line_of(&a, 1767259502125); // date -u -d @1767259502
    text_is(line, "time", "2026-01-01T09:25:02.125Z");
    text_is(line, "request_id", "req-1");
    text_is(line, "client", "::1");
    text_is(line, "method", "POST");
    text_is(line, "path", "/v1/completions");
    text_is(line, "finish", "stop");
    number_is(line, "status", 200);
    number_is(line, "duration_ms", 100);
    number_is(line, "ttft_ms", 12.5);
    number_is(line, "prompt_tokens", 12);
    number_is(line, "cached_tokens", 8);
    number_is(line, "completion_tokens", 3);
    assert_true(json_is_true(json_object_get(line, "stream")));
    json_decref(line);
}

static void what_did_not_happen_is_null(void **state) {
    (void)state;
    struct lp_access a = {.id = "x", .method = "GET", .path = "/health", .status = 200};
    json_t *line = line_of(&a, 0);
    text_is(line, "time", "1970-01-01T00:00:00.000Z");
    const char *names[] = {"stream", "prompt_tokens", "cached_tokens", "completion_tokens",
                           "finish", "ttft_ms"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_true(json_is_null(json_object_get(line, names[i])));
    json_decref(line);
}

static void hostile_paths_and_clients_that_left_are_logged(void **state) {
    (void)state;
    struct lp_access a = {.id = "\"}{", .method = "G\nT", .path = "/\"\\\n\xff\x01"};
    json_t *line = line_of(&a, 0);
    text_is(line, "path", "/\"\\\n\xEF\xBF\xBD\x01");
    number_is(line, "status", 499);
    json_decref(line);
}

#define N_THREADS 4
#define N_LINES 200

static void *write_lines(void *user) {
    struct lp_access a = {.id = "id", .method = "GET", .path = "/a/path/of/some/length"};
    for (int i = 0; i < N_LINES; i++) lp_access_log_write(user, &a);
    return NULL;
}

static void lines_of_many_threads_are_whole(void **state) {
    (void)state;
    char path[] = "/tmp/lp_access_XXXXXX", text[4096];
    struct lp_access_log *log;
    pthread_t threads[N_THREADS];
    int fd = mkstemp(path), n = 0;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "{}\n", 3), 3); // a line from before stays
    assert_int_equal(lp_access_log_open(&log, path, NULL), LP_OK);
    for (int i = 0; i < N_THREADS; i++) pthread_create(&threads[i], NULL, write_lines, log);
    for (int i = 0; i < N_THREADS; i++) pthread_join(threads[i], NULL);
    lp_access_log_close(log);
    FILE *file = fopen(path, "r");
    for (; fgets(text, sizeof text, file); n++) {
        json_t *line = json_loads(text, 0, NULL);
        assert_non_null(line);
        json_decref(line);
    }
    assert_int_equal(n, 1 + N_THREADS * N_LINES);
    fclose(file);
    close(fd);
    unlink(path);
}

static void a_file_that_cannot_be_opened_is_named(void **state) {
    (void)state;
    struct lp_access_log *log;
    struct lp_err err;
    assert_int_equal(lp_access_log_open(&log, "/nowhere/at/all.log", &err), LP_STATUS_IO);
    assert_non_null(strstr(err.text, "/nowhere/at/all.log"));
    lp_access_log_write(NULL, NULL); // no log: nothing
    lp_access_log_close(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_generation_has_all_fields),
        cmocka_unit_test(what_did_not_happen_is_null),
        cmocka_unit_test(hostile_paths_and_clients_that_left_are_logged),
        cmocka_unit_test(lines_of_many_threads_are_whole),
        cmocka_unit_test(a_file_that_cannot_be_opened_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
