// What an engine tells of itself: limpid_engine_trace after requests on the mini model.
#include "lp_test.h"

#include "engine/engine.h"

static limpid_model *model;
static limpid_engine *engine;

static int set_up(void **state) {
    (void)state;
    limpid_error err;
    limpid_engine_options o = limpid_engine_default_options();
    o.n_context = 512;
    o.chunk = 64;
    o.max_queue = 1;
    o.max_seqs = 2;
    if (limpid_model_open(&model, "models/mini-glm-dsa.gguf", NULL, &err)) return -1;
    return limpid_engine_new(&engine, model, &o, &err) ? -1 : 0;
}

static int tear_down(void **state) {
    (void)state;
    limpid_error err;
    limpid_status status = limpid_engine_free(engine, &err);
    limpid_model_close(model);
    return status ? -1 : 0;
}

static int32_t prompt[400];

static limpid_request *submit(const char *id, size_t n_prompt, int64_t max_tokens) {
    limpid_request *request = NULL;
    limpid_error err;
    limpid_request_options o = limpid_request_default_options();
    for (size_t i = 0; i < 400; i++) prompt[i] = (int32_t)(20 + 3 * i);
    o.tokens = prompt;
    o.n_tokens = n_prompt;
    o.max_tokens = max_tokens;
    o.temperature = 0;
    o.ignore_eos = true;
    o.id = id;
    if (limpid_request_new(&request, engine, &o, &err)) return NULL;
    return request;
}

static void finish(limpid_request *request) {
    limpid_event event;
    limpid_error err;
    assert_non_null(request);
    do assert_int_equal(limpid_request_next(request, &event, &err), LIMPID_OK);
    while (event.kind != LIMPID_EVENT_DONE);
    limpid_request_free(request);
}

static char *trace_of(const char *id) {
    static struct {
        char *text;
        size_t n;
    } got;
    limpid_error err;
    assert_int_equal(limpid_engine_trace(engine, id, &got.text, &got.n, &err), LIMPID_OK);
    assert_int_equal(strlen(got.text), got.n);
    return got.text;
}

static int count(const char *text, const char *what) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at++) n++;
    return n;
}

static void assert_says(const char *text, int n, const char *what) {
    if (count(text, what) != n) fail_msg("%d of %s in\n%s", count(text, what), what, text);
}

static void a_request_is_told_step_by_step(void **state) {
    (void)state;
    finish(submit("first", 150, 4));
    finish(submit("second", 150, 2));
    char *text = trace_of("first");
    assert_says(text, 1, "\"event\":\"model\"");
    assert_says(text, 1, "\"operation\":\"mla_absorbed\",\"type\":\"\",\"kernel\":\"");
    assert_says(text, 1, "\"what\":\"submitted\"");
    assert_says(text, 1, "\"what\":\"admitted\"");
    assert_says(text, 1, "\"what\":\"ended\"");
    assert_says(text, 1, "\"n_prompt\":150,\"n_cached\":0,\"n_from_disk\":0,\"source\":\"none\"");
    assert_says(text, 2, "\"n_prompt\":64,\"n_answer\":0,\"n_draft\":0,\"id\":\"first\"");
    assert_says(text, 1, "\"n_past\":128,\"n_prompt\":22,\"n_answer\":0,");
    assert_says(text, 3, "\"n_prompt\":0,\"n_answer\":1,\"n_draft\":0,");
    assert_says(text, 4, "\"event\":\"token\"");
    assert_says(text, 4, "\"logprob\":null,\"rank\":-1,");
    assert_says(text, 6, "\"event\":\"schedule\"");
    assert_says(text, 6, "\"event\":\"step\"");
    assert_says(text, 6, "\"event\":\"attention\""); // one for all layers
    assert_says(text, 6, "\"layer\":0,\"last_layer\":4,");
    assert_says(text, 3, "\"event\":\"expert_load\""); // of the steps with a prompt
    assert_says(text, 0, "second");
    limpid_free(text);
    text = trace_of("second"); // the pages before the last token are known
    assert_says(text, 1,
                "\"n_prompt\":150,\"n_cached\":149,\"n_from_disk\":0,\"source\":\"prefix tree\"");
    assert_says(text, 2, "\"event\":\"chunk\"");
    assert_says(text, 1, "\"n_past\":149,\"n_prompt\":1,\"n_answer\":0,");
    limpid_free(text);
}

// Events of a step have its number, whatever ran between.
static void numbers_of_steps_agree(void **state) {
    (void)state;
    limpid_error err;
    finish(submit("a", 5, 3));
    assert_int_equal(limpid_engine_self_check(engine, false, NULL, &err), LIMPID_OK);
    finish(submit("b", 5, 3));
    char *text = trace_of("b");
    for (int step = 0; step < 6; step++) {
        char schedule[64], chunk[64], ran[64], token[64];
        snprintf(schedule, sizeof schedule, ",\"step\":%d,\"n_running\"", step);
        snprintf(chunk, sizeof chunk, ",\"step\":%d,\"sequence\":1,\"n_past\"", step);
        snprintf(ran, sizeof ran, ",\"step\":%d,\"n_tokens\":1,\"n_sequences\"", step);
        snprintf(token, sizeof token, ",\"step\":%d,\"sequence\":1,\"position\"", step);
        int n = step >= 3;
        assert_says(text, n, schedule);
        assert_says(text, n, chunk);
        assert_says(text, n, ran);
        assert_says(text, n, token);
        const char *begins = strstr(text, schedule);
        if (n) assert_true(begins < strstr(begins, chunk));
        if (n) assert_true(strstr(begins, chunk) < strstr(begins, token));
    }
    limpid_free(text);
}

static void what_is_refused_is_told(void **state) {
    (void)state;
    limpid_request *requests[3];
    for (int i = 0; i < 3; i++) requests[i] = submit("kept", 3, 2);
    assert_null(submit("too many", 3, 2));
    assert_null(submit("too long", 513, 2));
    for (int i = 0; i < 3; i++) finish(requests[i]);
    char *text = trace_of("too many");
    assert_says(text, 1, "\"sequence\":-1,\"what\":\"rejected\",\"choice\":-1,\"n_prompt\":3,");
    assert_says(text, 1, "\"event\":\"request\"");
    limpid_free(text);
    text = trace_of("too long");
    assert_says(text, 1, "\"what\":\"rejected\",\"choice\":-1,\"n_prompt\":513,");
    limpid_free(text);
    text = trace_of("kept");
    assert_says(text, 3, "\"what\":\"ended\"");
    limpid_free(text);
}

static void a_failure_tells_why(void **state) {
    (void)state;
    limpid_error err;
    limpid_event event;
    limpid_request *request;
    limpid_request_options o = limpid_request_default_options();
    o.tokens = prompt;
    o.n_tokens = 300;
    o.max_tokens = 200;
    o.timeout_ms = 1;
    o.id = "late";
    for (size_t i = 0; i < 400; i++) prompt[i] = (int32_t)(20 + 3 * i);
    assert_int_equal(limpid_request_new(&request, engine, &o, &err), LIMPID_OK);
    limpid_status status;
    do status = limpid_request_next(request, &event, &err);
    while (!status);
    assert_int_equal(status, LIMPID_TIMEOUT);
    limpid_request_free(request);
    char *text = trace_of("late");
    assert_says(text, 1, "\"message\":\"the request took longer than its limit of 1 ms\"");
    assert_says(text, 1, "\"what\":\"failed\"");
    limpid_free(text);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void) {
    const struct CMUnitTest tests[] = {TEST(a_request_is_told_step_by_step),
                                       TEST(numbers_of_steps_agree), TEST(what_is_refused_is_told),
                                       TEST(a_failure_tells_why)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
