// Traces of several ranks, written by hand, on one time line: three ranks on two hosts, whose clocks differ.
#include "lp_test.h"

#include <jansson.h>

#include "base/alloc.h"
#include "trace/view.h"

// Step s is planned at 1000 s (+ 1000), begins 20 us later, and its token is there 900 us later. Rank 0 is
// on host a; ranks 1 and 2 on b, with clocks that are ahead by 70000 and 65000 us.
#define N_STEPS 5
enum { AHEAD_1 = 70000, AHEAD_2 = 65000 };

struct part { // of a step, by rank 0's clock
    int64_t late_us, own_us, exchange_us;
};

static const struct part parts[3][N_STEPS] = {
    {{0, 300, 500}, {0, 300, 500}, {0, 700, 100}, {0, 300, 500}, {0, 300, 500}},
    {{5, 700, 90}, {5, 700, 90}, {5, 300, 490}, {5, 700, 90}, {5, 200, 590}},
    {{9, 100, 680}, {9, 100, 680}, {9, 200, 580}, {9, 100, 680}, {390, 250, 150}},
};

static void put(struct lp_bytes *out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void put(struct lp_bytes *out, const char *format, ...) {
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    assert_true(lp_bytes_puts(out, line));
}

static void put_process(struct lp_bytes *out, int rank, const char *host, int64_t monotonic_us) {
    put(out,
        "{\"event\":\"process\",\"time_us\":5,\"thread\":7,\"rank\":%d,\"n_ranks\":3,\"pid\":%d,"
        "\"monotonic_us\":%lld,\"wall_us\":1700000000000000,\"host\":\"%s\"}\n",
        rank, 100 + rank, (long long)monotonic_us, host);
}

static void put_step(struct lp_bytes *out, int rank, int64_t ahead_us, int step) {
    const struct part *p = &parts[rank][step];
    const int64_t plan_us = 1000 + 1000 * step + ahead_us, took_us = p->own_us + p->exchange_us;
    const long long end_us = plan_us + 20 + p->late_us + took_us;
    if (rank == 0)
        put(out,
            "{\"event\":\"chunk\",\"time_us\":%lld,\"thread\":7,\"step\":%d,\"sequence\":%d,"
            "\"n_answer\":1,\"id\":\"req-%d\"}\n",
            (long long)plan_us, step, step / 4, step / 4);
    put(out,
        "{\"event\":\"attention\",\"time_us\":%lld,\"thread\":7,\"step\":%d,\"layer\":0,"
        "\"sequence\":%d,\"route\":\"absorbed\"}\n",
        end_us - 10, step, step / 4);
    put(out,
        "{\"event\":\"operation\",\"time_us\":%lld,\"thread\":7,\"step\":%d,\"operation\":"
        "\"ranks\",\"n_calls\":2,\"duration_ns\":%lld}\n",
        end_us, step, (long long)p->exchange_us * 1000);
    put(out,
        "{\"event\":\"step\",\"time_us\":%lld,\"thread\":7,\"step\":%d,\"n_tokens\":1,"
        "\"n_sequences\":1,\"duration_us\":%lld}\n",
        end_us, step, (long long)took_us);
    // of a draft behind the step: no part of it
    put(out,
        "{\"event\":\"operation\",\"time_us\":%lld,\"thread\":7,\"step\":%d,\"operation\":"
        "\"ranks\",\"n_calls\":2,\"duration_ns\":9000000}\n",
        end_us + 2, step);
    if (rank == 0)
        put(out,
            "{\"event\":\"token\",\"time_us\":%lld,\"thread\":7,\"step\":%d,\"sequence\":%d,"
            "\"position\":%d,\"token\":1}\n",
            (long long)plan_us + 920, step, step / 4, step);
}

struct run {
    struct lp_bytes lines[3];
    struct lp_view_file files[3];
};

static void make(struct run *run, bool told) {
    static const char *const paths[] = {"t", "t.rank1", "t.rank2"};
    static const char *const hosts[] = {"a", "b", "b"};
    static const int64_t aheads[] = {0, AHEAD_1, AHEAD_2}, monotonic[] = {900, 5000, 10000};
    *run = (struct run){0};
    for (int rank = 0; rank < 3; rank++) {
        struct lp_bytes *out = &run->lines[rank];
        if (told) put_process(out, rank, hosts[rank], monotonic[rank]);
        for (int step = 0; step < N_STEPS; step++) put_step(out, rank, aheads[rank], step);
        run->files[rank] =
            (struct lp_view_file){.path = paths[rank], .lines = lp_bytes_view(out), .rank = rank};
    }
}

static void release(struct run *run) {
    for (int i = 0; i < 3; i++) lp_bytes_release(&run->lines[i]);
}

static lp_status write_view(const struct run *run, size_t n, const struct lp_view_asked *asked,
                            char **text, struct lp_err *err) {
    struct lp_view_notes notes;
    size_t size, shown;
    FILE *out = open_memstream(text, &size);
    assert_non_null(out);
    lp_status status = lp_view_write_ranks(run->files, n, asked, out, &shown, &notes, err);
    assert_int_equal(fclose(out), 0);
    return status;
}

static char *view(const struct run *run, size_t n, const struct lp_view_asked *asked) {
    struct lp_err err;
    char *text;
    assert_int_equal(write_view(run, n, asked, &text, &err), LP_OK);
    return text;
}

static void has(const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("'%s' is not in:\n%s", part, text);
}

static void has_not(const char *text, const char *part) {
    if (strstr(text, part)) fail_msg("'%s' is in:\n%s", part, text);
}

static const struct lp_view_asked in_short = {NULL, LP_VIEW_TEXT, false},
                                  by_step = {NULL, LP_VIEW_TEXT, true},
                                  as_chrome = {NULL, LP_VIEW_CHROME, false};

// ---- text

static void every_step_names_who_is_slow_and_who_is_waited_for(void **state) {
    (void)state;
    struct run run;
    make(&run, true);
    char *text = view(&run, 3, &by_step);
    has(text, "ranks      traces of 3 of 3\n");
    has(text, "own + exchanges, ms, of rank 0, 1, 2\n");
    has(text, "       0   0.001020       0.80          1          1  0.30 + 0.50, 0.70 + 0.09, "
              "0.10 + 0.68\n");
    has(text, "       2   0.003020       0.80          0          0  0.70 + 0.10, ");
    // the last one began late
    has(text, "       4   0.005020       0.80          0          2  0.30 + 0.50, 0.20 + 0.59, "
              "0.25 + 0.15\n");
    has(text,
        "       0        5       4.00       1.90       2.10        2          1  a, the common "
        "clock\n");
    has(text,
        "       1        5       3.95       2.60       1.35        3          3  b, by 5 common "
        "steps, +- 0.0");
    has(text, "       2        5       3.52       0.75       2.77        0          1  b, by 5 ");
    has_not(text, "not whole");
    has_not(text, "missing");
    has_not(text, "doubtful");
    free(text);
    text = view(&run, 3, &in_short);
    has(text, "the slowest steps\n");
    has(text, "\n\ntrace      ");
    has(text, "process    rank 0 on a, of 3 ranks, process 100\n");
    free(text);
    release(&run);
}

static void a_rank_that_was_cut_off_is_told(void **state) {
    (void)state;
    struct run run;
    make(&run, true);
    struct lp_view_file *file = &run.files[1];
    const char *cut = strstr(file->lines.data, "\"step\",\"time_us\":73"); // step 2's end
    file->lines.len = (size_t)(cut - file->lines.data) + 12;
    run.files[2].why = "cannot open t.rank2";
    run.files[2].lines = (struct lp_str){0};
    char *text = view(&run, 3, &by_step);
    has(text, "ranks      traces of 2 of 3\n");
    has(text, "not whole  rank 1: its last step is 1, that of others 4; step 2 had begun; its last "
              "line ends in its middle\n");
    has(text, "missing    rank 2: cannot open t.rank2\n");
    has(text, "       3   0.004020       0.80          -          -  0.30 + 0.50, none\n");
    free(text);
    release(&run);
}

static void a_rank_that_ends_between_two_steps_is_told(void **state) {
    (void)state;
    struct run run;
    make(&run, true);
    put(&run.lines[0],
        "{\"event\":\"chunk\",\"time_us\":6000,\"thread\":7,\"step\":5,\"sequence\":1,"
        "\"n_answer\":1,\"id\":\"req-1\"}\n");
    run.files[0].lines = lp_bytes_view(&run.lines[0]);
    char *text = view(&run, 3, &in_short);
    has(text, "not whole  rank 0: step 5 had begun\n");
    has(text, "not whole  rank 1: its last step is 4, others had begun step 5\n");
    has(text, "not whole  rank 2: its last step is 4, others had begun step 5\n");
    free(text);
    release(&run);
}

static void a_crash_of_a_rank_is_told(void **state) {
    (void)state;
    struct run run;
    make(&run, true);
    put(&run.lines[2], "{\"event\":\"crash\",\"time_us\":99000,\"signal\":\"SIG\\u001bSEGV\"}\n");
    run.files[2].lines = lp_bytes_view(&run.lines[2]);
    char *text = view(&run, 3, &in_short);
    has(text, "not whole  rank 2: SIG?SEGV ended the process\n");
    free(text);
    release(&run);
}

// Whichever file it is that is not there, the first that is stands for the whole.
static void without_rank_0_there_is_a_view_too(void **state) {
    (void)state;
    struct run run;
    make(&run, true);
    run.files[0].lines = (struct lp_str){"", 0};
    char *text = view(&run, 3, &in_short);
    has(text, "ranks      traces of 2 of 3\n");
    has(text, "missing    rank 0: t holds no event\n");
    has(text, "       1        5 ");
    has(text, "  b, the same host's clock\n"); // of rank 2
    has(text, "process    rank 1 on b, ");
    free(text);
    release(&run);
}

static void what_names_no_rank_goes_by_its_file(void **state) {
    (void)state;
    struct run run;
    make(&run, false);
    char *text = view(&run, 3, &by_step);
    has(text, "host not told, by 5 common steps, +- 0.0");
    has(text, "own + exchanges, ms, of rank 0, 1, 2\n");
    free(text);
    // of a dump of the rings nobody knows exchanges
    run.files[0].lines =
        lp_str_from("{\"event\":\"step\",\"time_us\":100,\"step\":0,\"duration_us\":50}\n");
    run.files[1].lines =
        lp_str_from("{\"event\":\"step\",\"time_us\":100,\"step\":0,\"duration_us\":60}\n");
    text = view(&run, 2, &by_step);
    has(text, "0.06          1          -  0.05 in all, 0.06 in all\n");
    has(text, "not aligned");
    free(text);
    release(&run);
}

static void two_traces_of_a_rank_are_refused(void **state) {
    (void)state;
    struct run run;
    struct lp_err err;
    char *text;
    make(&run, true);
    run.files[2].lines = run.files[1].lines;
    assert_int_equal(write_view(&run, 3, &in_short, &text, &err), LP_STATUS_INVALID);
    has(err.text, "are both of rank 1");
    free(text);
    for (int i = 0; i < 3; i++) run.files[i].lines = (struct lp_str){"\n", 1};
    assert_int_equal(write_view(&run, 3, &in_short, &text, &err), LP_STATUS_FORMAT);
    assert_string_equal(text, "");
    free(text);
    release(&run);
}

// ---- one request, lines

static void what_one_rank_knows_is_of_the_lowest(void **state) {
    (void)state;
    struct run run;
    make(&run, true);
    char *text = view(&run, 3, &(struct lp_view_asked){.format = LP_VIEW_JSON});
    assert_int_equal(strlen(text), run.files[0].lines.len);
    free(text);
    text = view(&run, 3, &(struct lp_view_asked){.request = "req-1"});
    has(text, "request req-1, sequence 1");
    has(text, "step 4: ");
    has_not(text, "ranks      ");
    free(text);
    release(&run);
}

// ---- Chrome's format

static int64_t of(const json_t *event, const char *field) {
    return (int64_t)json_integer_value(json_object_get(event, field));
}

static const char *name_of(const json_t *event) {
    return json_string_value(json_object_get(event, "name"));
}

static const json_t *find(const json_t *events, const char *name, int64_t process) {
    size_t i;
    json_t *e;
    json_array_foreach(events, i, e) {
        if (strcmp(name_of(e), name) == 0 && of(e, "pid") == process) return e;
    }
    return NULL;
}

static const char *process_name(const json_t *events, int64_t process) {
    const json_t *e = find(events, "process_name", process);
    assert_non_null(e);
    return json_string_value(json_object_get(json_object_get(e, "args"), "name"));
}

static void chrome_has_a_process_for_each_rank_on_one_clock(void **state) {
    (void)state;
    struct run run;
    make(&run, true);
    char *text = view(&run, 3, &as_chrome);
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    const json_t *events = json_object_get(root, "traceEvents");
    assert_string_equal(process_name(events, 0), "rank 0 on a");
    assert_string_equal(process_name(events, 1), "rank 1 on b");
    assert_string_equal(process_name(events, 2), "rank 2 on b");
    assert_string_equal(process_name(events, 3), "requests");
    const int64_t begins = of(find(events, "step 0", 0), "ts"); // 0 is the first event of all
    for (int rank = 0; rank < 3; rank++)
        for (int step = 0; step < N_STEPS; step++) {
            char name[32];
            snprintf(name, sizeof name, "step %d", step);
            const json_t *e = find(events, name, rank);
            assert_non_null(e);
            const int64_t off = of(e, "ts") - begins - 1000 * step - parts[rank][step].late_us;
            assert_true(off >= -66 && off <= 66); // the error that the text tells
            if (rank == 0) assert_int_equal(off, 0);
        }
    size_t i;
    json_t *e;
    json_array_foreach(events, i, e) {
        assert_true(of(e, "ts") >= 0);
        if (strcmp(name_of(e), "absorbed") == 0 && of(e, "pid") == 3) // rank 0's alone
            assert_true(of(json_object_get(e, "args"), "time_us") < 10000);
    }
    assert_non_null(find(events, "exchanges", 1));
    assert_non_null(find(events, "request", 3));
    json_decref(root);
    free(text);
    release(&run);
}

static void chrome_of_a_request_has_its_steps_of_all_ranks(void **state) {
    (void)state;
    struct run run;
    make(&run, true);
    char *text =
        view(&run, 3, &(struct lp_view_asked){.request = "req-1", .format = LP_VIEW_CHROME});
    json_t *root = json_loads(text, 0, NULL);
    const json_t *events = json_object_get(root, "traceEvents");
    for (int rank = 0; rank < 3; rank++) {
        assert_non_null(find(events, "step 4", rank));
        assert_null(find(events, "step 3", rank));
    }
    json_decref(root);
    free(text);
    release(&run);
}

static void lack_of_memory_is_an_error(void **state) {
    (void)state;
    struct run run;
    make(&run, true);
    static const struct lp_view_asked *const all[] = {&in_short, &by_step, &as_chrome};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        for (size_t nth = 1;; nth++) {
            struct lp_err err;
            char *text;
            lp_alloc_fail_after(nth);
            lp_status status = write_view(&run, 3, all[i], &text, &err);
            lp_alloc_fail_after(0);
            free(text);
            if (status == LP_OK) break;
            assert_int_equal(status, LP_STATUS_MEMORY);
            assert_true(nth < 10000);
        }
    release(&run);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_step_names_who_is_slow_and_who_is_waited_for),
        cmocka_unit_test(a_rank_that_was_cut_off_is_told),
        cmocka_unit_test(a_rank_that_ends_between_two_steps_is_told),
        cmocka_unit_test(a_crash_of_a_rank_is_told),
        cmocka_unit_test(without_rank_0_there_is_a_view_too),
        cmocka_unit_test(what_names_no_rank_goes_by_its_file),
        cmocka_unit_test(two_traces_of_a_rank_are_refused),
        cmocka_unit_test(what_one_rank_knows_is_of_the_lowest),
        cmocka_unit_test(chrome_has_a_process_for_each_rank_on_one_clock),
        cmocka_unit_test(chrome_of_a_request_has_its_steps_of_all_ranks),
        cmocka_unit_test(lack_of_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
