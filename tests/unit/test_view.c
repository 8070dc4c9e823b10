// What a small trace, written by hand, tells (view_lines.h): texts, lines, Chrome's format.
#include "lp_test.h"

#include <jansson.h>

#include "base/alloc.h"
#include "trace/view.h"
#include "view_lines.h"

static lp_status view_of(struct lp_str trace, const char *request, enum lp_view_format format,
                         char **text, struct lp_view_notes *notes, struct lp_err *err) {
    size_t n;
    FILE *out = open_memstream(text, &n);
    assert_non_null(out);
    lp_status status = lp_view_write(trace, request, format, out, notes, err);
    assert_int_equal(fclose(out), 0);
    return status;
}

static char *view(const char *lines, const char *request, enum lp_view_format format) {
    struct lp_view_notes notes;
    struct lp_err err;
    char *text;
    assert_int_equal(view_of(lp_str_from(lines), request, format, &text, &notes, &err), LP_OK);
    assert_true(notes.found);
    return text;
}

static void has(const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("'%s' is not in:\n%s", part, text);
}

static void has_not(const char *text, const char *part) {
    if (strstr(text, part)) fail_msg("'%s' is in:\n%s", part, text);
}

// ---- text

static void a_request_is_told_step_by_step(void **state) {
    (void)state;
    char *text = view(trace_lines, "req-a", LP_VIEW_TEXT);
    static const char *const lines[] = {
        "request req-a, sequence 3, choice 0\n",
        "0.000600 s  submitted: prompt of 600 tokens\n",
        "0.001000 s  admitted: 600 tokens (prompt 600), 64 of them known, 536 to compute\n",
        "known from the prefix tree: 64 tokens, 32 of them read from disk\n",
        "0.002001 s  step 10: 512 prompt tokens at 64-575 of 600, with 1 other, 41.2 ms\n",
        "layers 0-1, 4: expanded (many), avx2_mla; indexer full, top 256\n",
        "layers 2-3: sparse (selected), avx2_mla; indexer full, top 256\n",
        "experts: 30 of all layers were hit; most tokens (77) went to expert 4 of layer 1\n",
        "0.050001 s  step 11: 24 prompt tokens at 576-599 of 600, alone, 2.5 ms\n",
        "gave 258 (-0.25)\n",
        "0.060001 s  steps 12-14: one token each at 600-602, with 1 other, 2.0 ms each (longest "
        "3.1 "
        "ms in step 13)\n",
        "layers 0-4: absorbed (few), avx2_mla; indexer full, top 256\n",
        "gave 1744 (-2.50), 1745 (-9.75, rank 12), 1746 (-1.00)\n",
        "0.080000 s  ended: prompt of 600 tokens and 4 behind it, 603 computed\n",
        "in all 5 steps of 49.7 ms; 4 tokens given out\n",
        "kernels    matmul Q8_0: avx2_q8_0\n",
    };
    const char *at = text;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) { // in this order
        has(at, lines[i]);
        at = strstr(at, lines[i]) + strlen(lines[i]);
    }
    has_not(text, "req-b");
    free(text);
}

static void what_is_open_or_refused_says_so(void **state) {
    (void)state;
    char *text = view(trace_lines, "req-b", LP_VIEW_TEXT);
    has(text, "step 10: one token at 10, with 1 other, 41.2 ms\n");
    has(text, "steps 12-14: one token each at 11-13");
    has(text, "pre-empted: prompt of 10 tokens and 4 behind it, 0 computed\n");
    has(text, "pre-empted 1 time; its end is not in the trace\n");
    free(text);
    text = view(trace_lines, "req-c", LP_VIEW_TEXT);
    has(text, "rejected: prompt of 9000 tokens\n");
    free(text);
}

static void a_summary_counts(void **state) {
    (void)state;
    char *text = view(trace_lines, NULL, LP_VIEW_TEXT);
    has(text, "model      m.gguf: glm-dsa, 5 layers, backend cpu, 2 threads\n");
    has(text,
        "steps      5 that took 49.7 ms, 108.6 tokens and 9.9 ms each on average; at most 2 ran "
        "together and 1 waited\n"); // (513 + 24 + 3 * 2) / 5
    has(text,
        "slowest    step 10: 41.2 ms (513 tokens of 2 sequences)\n           step 13: 3.1 ms");
    has(text, "sequences  2, 1 ended, 1 without an end in the trace, 1 request rejected, 1 "
              "pre-emption\n");
    has(text, "tokens     610 of prompts, 64 of them cached (32 from disk); 4 given out\n");
    has(text, "35 x absorbed, avx2_mla (few)\n"); // layers of 7 spans
    has(text, "8 x expanded, avx2_mla (many)\n");
    has(text, "2 x sparse, avx2_mla (selected)\n");
    has(text, "1 x new_kind\n");
    has_not(text, "crash");
    free(text);
}

// Kinds of operation are summed over the steps: 3 of 4 ms, and 1.
static void a_summary_says_where_time_went(void **state) {
    (void)state;
    char *text =
        view("{\"event\":\"operation\",\"time_us\":9,\"thread\":7,\"step\":1,\"operation\":"
             "\"experts\",\"n_calls\":4,\"duration_ns\":1000000}\n"
             "{\"event\":\"operation\",\"time_us\":9,\"thread\":7,\"step\":1,\"operation\":"
             "\"head\",\"n_calls\":1,\"duration_ns\":1000000}\n"
             "{\"event\":\"operation\",\"time_us\":19,\"thread\":7,\"step\":2,\"operation\":"
             "\"experts\",\"n_calls\":4,\"duration_ns\":2000000}\n"
             "{\"event\":\"operation\",\"time_us\":19,\"thread\":7,\"step\":2,\"operation\":"
             "\"other\",\"n_calls\":1,\"duration_ns\":-5}\n",
             NULL, LP_VIEW_TEXT);
    has(text, "operations  75.0 % experts, 3.0 ms\n            25.0 % head, 1.0 ms\n");
    has(text, "             0.0 % other, ");
    free(text);
}

static void a_crash_is_named_with_its_step(void **state) {
    (void)state;
    char lines[sizeof trace_lines + 1024];
    snprintf(lines, sizeof lines, "%s%s%s", trace_lines, CHUNK(90000, 15, 2, 0, 10, 4, 0, "req-b"),
             "{\"event\":\"crash\"," AT(
                 90050) "\"signal\":\"SIGSEGV\",\"code\":1,\"address\":"
                        "\"0x10\",\"pid\":9,\"version\":\"1\",\"n_overwritten\":3}\n");
    char *text = view(lines, NULL, LP_VIEW_TEXT);
    has(text, "crash      SIGSEGV at 0x10 in step 15");
    has(text, "3 older events had been overwritten");
    free(text);
    text = view(lines, "req-b", LP_VIEW_TEXT);
    has(text, "step 15: 10 prompt tokens and 4 tokens at 0-13 of 10, did not end: the program "
              "crashed\n");
    has(text, "; the program crashed before its end\n");
    free(text);
}

static void hostile_words_do_not_reach_the_terminal(void **state) {
    (void)state;
    char *text = view(ADMITTED(1, 0, "ended\\u001b[2J", 1, 1, 1, 0, "a\\u001bb\\n")
                          ATTENTION(2, 0, 0, 0, 0, "x\\u0007", "\\u009by"),
                      NULL, LP_VIEW_TEXT);
    for (const char *p = text; *p; p++) assert_true(*p == '\n' || (unsigned char)*p >= 0x20);
    has(text, "a?b?");
    has(text, "x?");
    free(text);
    text = view(CHUNK(1, 9007199254740992, 0, 9007199254740992, 9007199254740992, 1, 1, "a")
                    STEP(2, 9007199254740992, -1, -9007199254740992, -5),
                "a", LP_VIEW_TEXT);
    has(text, "request a, sequence 0");
    free(text);
}

// ---- which events

static int n_lines(const char *text) {
    int n = 0;
    for (; *text; text++) n += *text == '\n';
    return n;
}

static void lines_of_a_request_are_its_own_and_its_steps(void **state) {
    (void)state;
    char *text = view(trace_lines, "req-a", LP_VIEW_JSON);
    // model, kernel, new_kind; its 3 requests, cache; schedule 10, 11; its 5 chunks; 3 + 1 + 3
    // times attention; expert_load; 5 steps; 4 tokens
    assert_int_equal(n_lines(text), 3 + 4 + 2 + 5 + 7 + 1 + 5 + 4);
    has_not(text, "req-b");
    has_not(text, "\"sequence\":2");
    has(text, STEP(43200, 10, 513, 2, 41200));
    free(text);
    text = view(trace_lines, "2", LP_VIEW_JSON); // the number of a sequence
    has(text, "req-b");
    has_not(text, "\"step\":11,"); // it had no part in it
    has_not(text, "\"sequence\":3");
    free(text);
    text = view(trace_lines, NULL, LP_VIEW_JSON);
    assert_string_equal(text, trace_lines);
    free(text);
}

static void ids_are_matched_as_far_as_they_are_kept(void **state) {
    (void)state;
    char id[80], lines[512], cut[64];
    memset(id, 'x', sizeof id - 1);
    id[sizeof id - 1] = 0;
    snprintf(cut, sizeof cut, "%.63s", id);
    snprintf(lines, sizeof lines,
             "{\"event\":\"request\",\"time_us\":1,\"sequence\":77,\"what\":\"admitted\",\"id\":\"%"
             "s\"}\n"
             "{\"event\":\"request\",\"time_us\":1,\"sequence\":5,\"what\":\"admitted\",\"id\":"
             "\"77\"}\n",
             cut);
    char *text = view(lines, id, LP_VIEW_TEXT);
    has(text, "sequence 77");
    free(text);
    text = view(lines, "77", LP_VIEW_TEXT); // an id goes before a number
    has(text, "request 77, sequence 5");
    free(text);
    struct lp_view_notes notes;
    struct lp_err err;
    static const char *const others[] = {"xxx", "7", "077", "", "-1"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        assert_int_equal(view_of(lp_str_from(lines), others[i], LP_VIEW_TEXT, &text, &notes, &err),
                         LP_OK);
        assert_false(notes.found);
        assert_string_equal(text, "");
        free(text);
    }
}

static void a_trace_without_an_event_is_none(void **state) {
    (void)state;
    struct lp_view_notes notes;
    struct lp_err err;
    char *text;
    static const char *const traces[] = {"", "\n\n", "hello\n", "{\"a\":1}\n"};
    for (size_t i = 0; i < sizeof traces / sizeof traces[0]; i++) {
        assert_int_equal(view_of(lp_str_from(traces[i]), NULL, LP_VIEW_JSON, &text, &notes, &err),
                         LP_STATUS_FORMAT);
        assert_string_equal(text, "");
        free(text);
    }
}

// ---- Chrome's format

static const json_t *find(const json_t *events, const char *phase, const char *name, int64_t ts) {
    size_t i;
    json_t *e;
    json_array_foreach(events, i,
                       e) if (strcmp(json_string_value(json_object_get(e, "ph")), phase) == 0 &&
                              strcmp(json_string_value(json_object_get(e, "name")), name) == 0 &&
                              json_integer_value(json_object_get(e, "ts")) == ts) return e;
    fail_msg("no %s '%s' at %lld", phase, name, (long long)ts);
    return NULL;
}

static int64_t of(const json_t *event, const char *field) {
    const json_t *value = json_object_get(event, field);
    assert_true(json_is_integer(value));
    return (int64_t)json_integer_value(value);
}

static void chrome_has_tracks_of_steps_and_sequences(void **state) {
    (void)state;
    char *text = view(trace_lines, NULL, LP_VIEW_CHROME);
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    const json_t *events = json_object_get(root, "traceEvents");
    assert_true(json_is_array(events));
    const json_t *step = find(events, "X", "step 10", 2000); // 43200 - 41200
    assert_int_equal(of(step, "dur"), 41200);
    assert_int_equal(of(step, "tid"), 7);
    const json_t *life = find(events, "X", "request", 600);
    assert_int_equal(of(life, "dur"), 80000 - 600);
    const json_t *token = find(events, "i", "token", 52600);
    assert_int_equal(of(token, "pid"), of(life, "pid"));
    assert_int_equal(of(token, "tid"), of(life, "tid"));
    assert_int_equal(of(json_object_get(token, "args"), "token"), 258);
    assert_string_equal(json_string_value(json_object_get(token, "s")), "t");
    find(events, "i", "sparse", 2003);
    find(events, "C", "sequences", 2000);
    find(events, "i", "pre-empted", 75000);
    json_decref(root);
    free(text);
}

static void formats_have_names(void **state) {
    (void)state;
    enum lp_view_format format;
    assert_true(lp_view_format_parse("chrome", &format));
    assert_int_equal(format, LP_VIEW_CHROME);
    assert_false(lp_view_format_parse("Text", &format));
    assert_false(lp_view_format_parse("", &format));
}

static void lack_of_memory_is_an_error(void **state) {
    (void)state;
    for (int format = 0; format < LP_VIEW_N_FORMATS; format++)
        for (int with = 0; with < 2; with++)
            for (size_t nth = 1;; nth++) {
                struct lp_view_notes notes;
                struct lp_err err;
                char *text;
                lp_alloc_fail_after(nth);
                lp_status status = view_of(lp_str_from(trace_lines), with ? "req-a" : NULL,
                                           (enum lp_view_format)format, &text, &notes, &err);
                lp_alloc_fail_after(0);
                free(text);
                if (status == LP_OK) break;
                assert_int_equal(status, LP_STATUS_MEMORY);
                assert_true(nth < 10000);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_is_told_step_by_step),
        cmocka_unit_test(what_is_open_or_refused_says_so),
        cmocka_unit_test(a_summary_counts),
        cmocka_unit_test(a_summary_says_where_time_went),
        cmocka_unit_test(a_crash_is_named_with_its_step),
        cmocka_unit_test(hostile_words_do_not_reach_the_terminal),
        cmocka_unit_test(lines_of_a_request_are_its_own_and_its_steps),
        cmocka_unit_test(ids_are_matched_as_far_as_they_are_kept),
        cmocka_unit_test(a_trace_without_an_event_is_none),
        cmocka_unit_test(chrome_has_tracks_of_steps_and_sequences),
        cmocka_unit_test(formats_have_names),
        cmocka_unit_test(lack_of_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
