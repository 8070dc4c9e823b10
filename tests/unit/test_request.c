// Requests on the mini model. Expected texts are torch's (tests/mini/skills.jsonl).
#include "lp_test.h"

#include <math.h>

#include "limpid.h"

static limpid_model *model;
static limpid_engine *engine;

static int open_all(void **state) {
    (void)state;
    limpid_error err;
    limpid_engine_options options = limpid_engine_default_options();
    options.n_context = 256;
    if (limpid_model_open(&model, "models/mini-glm-dsa.gguf", NULL, &err)) return -1;
    return limpid_engine_new(&engine, model, &options, &err) ? -1 : 0;
}

static int close_all(void **state) {
    (void)state;
    limpid_engine_free(engine, NULL);
    limpid_model_close(model);
    return 0;
}

struct result {
    char text[2048];
    size_t len;
    char finish[16], stop[32];
    int n_tokens, n_prompt_events;
    int64_t n_cached, n_prompt;
    float first_logprob;
};

static void generate(limpid_request_options *o, const char *prompt, struct result *out) {
    limpid_request *request;
    limpid_event event;
    limpid_error err;
    int32_t *ids;
    size_t n_ids;
    *out = (struct result){0};
    assert_int_equal(
        limpid_tokenize(model, prompt, strlen(prompt), LIMPID_SPECIAL, &ids, &n_ids, &err),
        LIMPID_OK);
    o->tokens = ids;
    o->n_tokens = n_ids;
    if (limpid_request_new(&request, engine, o, &err)) fail_msg("%s", err.text);
    limpid_free(ids); // the request has its copy
    do {
        if (limpid_request_next(request, &event, &err)) fail_msg("%s", err.text);
        if (event.kind == LIMPID_EVENT_PROMPT) {
            out->n_prompt_events++;
            continue;
        }
        if (event.kind == LIMPID_EVENT_TOKEN && out->n_tokens++ == 0)
            out->first_logprob = event.logprob;
        memcpy(out->text + out->len, event.text, event.text_len);
        out->len += event.text_len;
    } while (event.kind != LIMPID_EVENT_DONE);
    snprintf(out->finish, sizeof out->finish, "%s", event.finish_reason);
    snprintf(out->stop, sizeof out->stop, "%s", event.stop_text ? event.stop_text : "");
    out->n_cached = event.n_cached;
    out->n_prompt = event.n_prompt;
    assert_int_equal(event.n_generated, out->n_tokens);
    limpid_request_free(request);
}

static limpid_request_options greedy(int64_t max_tokens) {
    limpid_request_options o = limpid_request_default_options();
    o.temperature = 0;
    o.max_tokens = max_tokens;
    return o;
}

static void answers_and_stops_at_the_end_token(void **state) {
    (void)state;
    struct result r;
    limpid_request_options o = greedy(96);
    generate(&o, "[gMASK]<sop><|user|>706 + 31<|assistant|></think>", &r);
    assert_string_equal(r.text, "706 + 31 = 737");
    assert_string_equal(r.finish, "stop");
    assert_string_equal(r.stop, "");
}

static void ends_at_max_tokens(void **state) {
    (void)state;
    struct result r;
    limpid_request_options o = greedy(2); // digits are tokens of their own: " ", "4"
    o.n_logprobs = 0;
    generate(&o, "1, 2, 3,", &r);
    assert_string_equal(r.text, " 4");
    assert_string_equal(r.finish, "length");
    assert_true(r.first_logprob > -0.5f && r.first_logprob <= 0);
}

static void stop_texts_cross_tokens_and_are_left_out(void **state) {
    (void)state;
    struct result r;
    const char *const stops[] = {"= 7", "zzz"};
    limpid_request_options o = greedy(96);
    o.stop = stops;
    o.n_stop = 2;
    generate(&o, "[gMASK]<sop><|user|>706 + 31<|assistant|></think>", &r);
    assert_string_equal(r.text, "706 + 31 ");
    assert_string_equal(r.finish, "stop");
    assert_string_equal(r.stop, "= 7");
}

static void min_tokens_holds_stops_back(void **state) {
    (void)state;
    struct result r;
    const char *const stops[] = {" "};
    limpid_request_options o = greedy(96);
    o.stop = stops;
    o.n_stop = 1;
    generate(&o, "[gMASK]<sop><|user|>706 + 31<|assistant|></think>", &r);
    assert_string_equal(r.text, "706");
    o.min_tokens = 6; // a digit a token: "706", " +", " ", ...
    generate(&o, "[gMASK]<sop><|user|>706 + 31<|assistant|></think>", &r);
    assert_true(r.n_tokens >= 6);
    assert_memory_equal(r.text, "706 + ", 6);
    assert_string_equal(r.stop, " ");
    o = greedy(40);
    o.min_tokens = 30; // the answer has fewer, so its end token is held back
    generate(&o, "[gMASK]<sop><|user|>706 + 31<|assistant|></think>", &r);
    assert_true(r.n_tokens >= 30);
}

static void a_stop_text_may_name_a_control_token(void **state) {
    (void)state;
    struct result r;
    const char *const stops[] = {"zzz",
                                 "<|user|>"}; // the token that the model ends its answers with
    limpid_request_options o = greedy(96);
    o.stop = stops;
    o.n_stop = 2;
    o.ignore_eos = true;
    generate(&o, "[gMASK]<sop><|user|>706 + 31<|assistant|></think>", &r);
    assert_string_equal(r.text, "706 + 31 = 737");
    assert_string_equal(r.finish, "stop");
    assert_string_equal(r.stop, "<|user|>");
}

static void the_context_is_never_cut_silently(void **state) {
    (void)state;
    struct result r;
    limpid_request_options o = greedy(100000);
    o.ignore_eos = true;
    generate(&o, "Once upon a time", &r);
    assert_string_equal(r.finish, "length");
    assert_int_equal(r.n_prompt + r.n_tokens, 256); // as n_context says, and as the server counts
    generate(&o, "Once upon a time", &r); // and the next request has the whole context again
    assert_int_equal(r.n_prompt + r.n_tokens, 256);
    int32_t ids[300] = {0};
    limpid_request *request;
    limpid_error err;
    o.tokens = ids;
    o.n_tokens = 300;
    assert_int_equal(limpid_request_new(&request, engine, &o, &err), LIMPID_LIMIT);
    assert_non_null(strstr(err.text, "300"));
    assert_non_null(strstr(err.text, "256"));
}

static void prompt_log_probabilities(void **state) {
    (void)state;
    struct result r;
    limpid_request_options o = greedy(0);
    o.n_logprobs = 2;
    o.prompt_logprobs = true;
    generate(&o, "Monday, Tuesday, Wednesday", &r);
    assert_int_equal(r.n_prompt_events, r.n_prompt);
    assert_int_equal(r.n_tokens, 0);
}

static void a_known_prefix_gives_the_same_text(void **state) {
    (void)state;
    struct result cold, warm;
    limpid_request_options o = greedy(20);
    generate(&o, "April, May, June,", &cold);
    assert_int_equal(cold.n_cached, 0);
    generate(&o, "April, May, June,", &warm); // all but the last prompt token is there
    assert_int_equal(warm.n_cached, warm.n_prompt - 1);
    assert_string_equal(warm.text, cold.text);
    generate(&o, "April, May,", &warm);
    assert_int_equal(warm.n_cached, warm.n_prompt - 1);
    generate(&o, "April, May, August,", &warm);
    assert_true(warm.n_cached > 0 && warm.n_cached < warm.n_prompt - 1);
}

static void same_seed_same_text(void **state) {
    (void)state;
    struct result a, b;
    limpid_request_options o = limpid_request_default_options();
    o.max_tokens = 40;
    o.seed = 11;
    o.temperature = 1.2f;
    generate(&o, "Once upon a time", &a);
    generate(&o, "Once upon a time", &b);
    assert_string_equal(a.text, b.text);
    o.seed = 12;
    generate(&o, "Once upon a time", &b);
    assert_string_not_equal(a.text, b.text);
}

static void bad_requests_are_named(void **state) {
    (void)state;
    limpid_request *request;
    limpid_error err;
    const int32_t good[] = {1}, bad[] = {1, 999999};
    limpid_request_options o = greedy(1);
    o.tokens = good;
    assert_int_equal(limpid_request_new(&request, engine, &o, &err), LIMPID_INVALID);
    o.tokens = bad;
    o.n_tokens = 2;
    assert_int_equal(limpid_request_new(&request, engine, &o, &err), LIMPID_INVALID);
    assert_non_null(strstr(err.text, "999999"));
    o.n_tokens = 1;
    o.temperature = -1;
    assert_int_equal(limpid_request_new(&request, engine, &o, &err), LIMPID_INVALID);
    o.temperature = 0;
    o.max_tokens = -5;
    assert_int_equal(limpid_request_new(&request, engine, &o, &err), LIMPID_INVALID);
    assert_non_null(strstr(err.text, "-5"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(answers_and_stops_at_the_end_token),
                                       cmocka_unit_test(ends_at_max_tokens),
                                       cmocka_unit_test(stop_texts_cross_tokens_and_are_left_out),
                                       cmocka_unit_test(min_tokens_holds_stops_back),
                                       cmocka_unit_test(a_stop_text_may_name_a_control_token),
                                       cmocka_unit_test(the_context_is_never_cut_silently),
                                       cmocka_unit_test(prompt_log_probabilities),
                                       cmocka_unit_test(a_known_prefix_gives_the_same_text),
                                       cmocka_unit_test(same_seed_same_text),
                                       cmocka_unit_test(bad_requests_are_named)};
    return cmocka_run_group_tests(tests, open_all, close_all);
}
