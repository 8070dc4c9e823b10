// What a model writes as events of the Responses API: their order, as OpenAI's reference has it,
// and that deltas, items and the answer's object say the same. Without a model: the pieces are
// written here.
#include "lp_test.h"

#include "serve/responses.h"
#include "serve/responses_items.h"

#define MAX_EVENTS 64

static struct lp_service service = {.model_id = "tiny"};
static struct lp_answer a;
static struct lp_chat_answer chat;
static struct lp_chat_choice choice;
static struct lp_chat_call calls[2];
static struct lp_responses_state items;
static struct lp_bytes out;
static json_t *events[MAX_EVENTS];
static size_t n_events;

static int begin(void **state) {
    (void)state;
    a = (struct lp_answer){.service = &service, .state = &chat, .created = 1700000000};
    a.completion.n_choices = 1;
    choice = (struct lp_chat_choice){.calls = calls};
    items = (struct lp_responses_state){0};
    chat = (struct lp_chat_answer){.id = "resp_1",
                                   .choices = &choice,
                                   .echo = json_pack("{s:f, s:[]}", "temperature", 1.0, "tools"),
                                   .extra = &items};
    n_events = 0;
    return 0;
}

static int end(void **state) {
    (void)state;
    lp_responses_state_release(&items);
    lp_bytes_release(&out);
    json_decref(chat.echo);
    json_decref(choice.logprobs);
    for (size_t i = 0; i < n_events; i++) json_decref(events[i]);
    for (size_t i = 0; i < 2; i++) {
        lp_bytes_release(&calls[i].name);
        lp_bytes_release(&calls[i].arguments);
    }
    return 0;
}

static void push(enum lp_reply_kind kind, int32_t call, const char *text, struct lp_bytes *to) {
    struct lp_reply_piece piece = {.kind = kind, .call = call, .text = lp_str_from(text)};
    if (kind == LP_REPLY_CALL) { // as chat_answer.c does
        choice.n_calls++;
        snprintf(calls[call].id, sizeof calls[call].id, "call_%d", (int)call);
        lp_bytes_puts(&calls[call].name, text);
    } else if (kind == LP_REPLY_ARGUMENTS) {
        lp_bytes_puts(&calls[call].arguments, text);
    }
    assert_true(lp_responses_format.piece(&a, &choice, &piece, to));
}

// One event is "event: NAME", "data: JSON" and a blank line, and both name it alike.
static void read_events(void) {
    for (char *at = out.data, *next; *at; at = next) {
        char name[64];
        char *data = strstr(at, "\ndata: "), *stop = strstr(at, "\n\n");
        assert_true(sscanf(at, "event: %63s", name) == 1 && data && stop && data < stop);
        *stop = 0;
        next = stop + 2;
        assert_true(n_events < MAX_EVENTS);
        json_t *event = events[n_events] = json_loads(data + 7, 0, NULL);
        assert_non_null(event);
        assert_string_equal(json_string_value(json_object_get(event, "type")), name);
        assert_int_equal(json_integer_value(json_object_get(event, "sequence_number")), n_events);
        n_events++;
    }
}

static const char *string_at(size_t event, const char *key) {
    const char *found = json_string_value(json_object_get(events[event], key));
    if (!found) fail_msg("event %zu has no %s", event, key);
    return found;
}

static void are_types(const char *const *types, size_t n) {
    for (size_t i = 0; i < n && i < n_events; i++)
        assert_string_equal(string_at(i, "type"), types[i]);
    assert_int_equal(n_events, n);
}
#define ARE_TYPES(...)                                                                             \
    are_types((const char *const[]){__VA_ARGS__},                                                  \
              sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static void write_all(struct lp_bytes *to) {
    assert_true(lp_responses_format.start(&a, &choice, to));
    push(LP_REPLY_REASONING, 0, "I ", to);
    push(LP_REPLY_REASONING, 0, "think.", to);
    push(LP_REPLY_CONTENT, 0, "Let me look.", to);
    push(LP_REPLY_CALL, 0, "f", to);
    push(LP_REPLY_ARGUMENTS, 0, "{\"x\": ", to);
    push(LP_REPLY_ARGUMENTS, 0, "1}", to);
    push(LP_REPLY_CALL_END, 0, "", to);
    push(LP_REPLY_CALL, 1, "g", to);
    push(LP_REPLY_ARGUMENTS, 1, "{}", to);
    push(LP_REPLY_CALL_END, 1, "", to);
    choice.done = true;
    assert_true(lp_responses_format.done(&a, &choice, to));
}

static void events_come_in_the_order_of_the_api(void **state) {
    (void)state;
    write_all(&out);
    assert_true(lp_responses_format.base.end(&a, &out));
    read_events();
    ARE_TYPES("response.created", "response.in_progress", //
              "response.output_item.added", "response.content_part.added",
              "response.reasoning_text.delta", "response.reasoning_text.delta",
              "response.reasoning_text.done", "response.content_part.done",
              "response.output_item.done", //
              "response.output_item.added", "response.content_part.added",
              "response.output_text.delta", "response.output_text.done",
              "response.content_part.done", "response.output_item.done", //
              "response.output_item.added", "response.function_call_arguments.delta",
              "response.function_call_arguments.delta", "response.function_call_arguments.done",
              "response.output_item.done", //
              "response.output_item.added", "response.function_call_arguments.delta",
              "response.function_call_arguments.done", "response.output_item.done", //
              "response.completed");
    assert_string_equal(string_at(6, "text"), "I think.");
    assert_string_equal(string_at(12, "text"), "Let me look.");
    assert_string_equal(string_at(18, "arguments"), "{\"x\": 1}");
    const json_t *added = json_object_get(events[15], "item");
    assert_string_equal(json_string_value(json_object_get(added, "arguments")), "");
    assert_string_equal(json_string_value(json_object_get(added, "status")), "in_progress");
}

static void the_answers_object_has_the_items_that_were_sent(void **state) {
    (void)state;
    static const size_t done[] = {8, 14, 19, 23};
    write_all(&out);
    assert_true(lp_responses_format.base.end(&a, &out));
    read_events();
    const json_t *object = json_object_get(events[24], "response"),
                 *output = json_object_get(object, "output");
    assert_int_equal(json_array_size(output), 4);
    for (size_t i = 0; i < 4; i++) {
        const json_t *item = json_array_get(output, i);
        assert_true(json_equal(item, json_object_get(events[done[i]], "item")));
        assert_int_equal(json_integer_value(json_object_get(events[done[i]], "output_index")), i);
        assert_string_equal(json_string_value(json_object_get(item, "status")), "completed");
    }
    assert_string_equal(json_string_value(json_object_get(object, "status")), "completed");
    assert_true(json_is_null(json_object_get(object, "incomplete_details")));
    assert_true(json_is_real(json_object_get(object, "temperature")));
    json_t *whole = lp_responses_format.base.whole(&a);
    assert_true(json_equal(json_object_get(whole, "output"), output));
    json_decref(whole);
}

static void a_whole_answer_has_the_items_of_a_stream(void **state) {
    (void)state;
    static const char *const kinds[] = {"reasoning", "message", "function_call", "function_call"};
    write_all(NULL);
    json_t *whole = lp_responses_format.base.whole(&a);
    const json_t *output = json_object_get(whole, "output");
    assert_int_equal(json_array_size(output), 4);
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(json_string_value(json_object_get(json_array_get(output, i), "type")),
                            kinds[i]);
    assert_string_equal(json_string_value(json_object_get(json_array_get(output, 2), "arguments")),
                        "{\"x\": 1}");
    assert_string_equal(json_string_value(json_object_get(json_array_get(output, 3), "call_id")),
                        "call_1");
    json_decref(whole);
}

static void what_the_limit_cuts_is_incomplete(void **state) {
    (void)state;
    push(LP_REPLY_REASONING, 0, "a", &out);
    push(LP_REPLY_CONTENT, 0, "b", &out);
    choice.done = choice.hit_length = true;
    assert_true(lp_responses_format.done(&a, &choice, &out));
    assert_true(lp_responses_format.base.end(&a, &out));
    read_events();
    const json_t *object = json_object_get(events[n_events - 1], "response"),
                 *output = json_object_get(object, "output");
    assert_string_equal(string_at(n_events - 1, "type"), "response.incomplete");
    assert_string_equal(json_string_value(json_object_get(object, "status")), "incomplete");
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(object, "incomplete_details"), "reason")),
        "max_output_tokens");
    assert_string_equal(json_string_value(json_object_get(json_array_get(output, 0), "status")),
                        "completed");
    assert_string_equal(json_string_value(json_object_get(json_array_get(output, 1), "status")),
                        "incomplete");
}

static void an_answer_without_text_is_an_empty_message(void **state) {
    (void)state;
    assert_true(lp_responses_format.done(&a, &choice, &out));
    read_events();
    ARE_TYPES("response.output_item.added", "response.content_part.added",
              "response.output_text.done", "response.content_part.done",
              "response.output_item.done");
    assert_string_equal(string_at(2, "text"), "");
}

static void a_failure_ends_a_stream_with_what_there_is(void **state) {
    (void)state;
    struct lp_api_error err;
    lp_api_fail(&err, 504, "request_timeout", "too late");
    push(LP_REPLY_CONTENT, 0, "half", &out);
    lp_bytes_clear(&out); // so that the events that follow are the first
    items.n_events = 0;
    assert_true(lp_responses_format.base.stream_error(&a, &err, &out));
    read_events();
    ARE_TYPES("response.created", "response.in_progress", "error", "response.failed");
    assert_string_equal(string_at(2, "message"), "too late");
    assert_string_equal(string_at(2, "code"), "request_timeout");
    const json_t *object = json_object_get(events[3], "response");
    assert_string_equal(json_string_value(json_object_get(object, "status")), "failed");
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(object, "error"), "code")),
        "server_error");
    const json_t *item = json_array_get(json_object_get(object, "output"), 0);
    assert_string_equal(json_string_value(json_object_get(item, "status")), "incomplete");
}

static void add_token(const char *text) {
    json_t *bytes = json_array();
    for (const char *p = text; *p; p++) json_array_append_new(bytes, json_integer(*p));
    if (!choice.logprobs) choice.logprobs = json_array();
    json_array_append_new(choice.logprobs,
                          json_pack("{s:s, s:f, s:o, s:[]}", "token", text, "logprob", -0.5,
                                    "bytes", bytes, "top_logprobs"));
}

// Tokens of reasoning, of the tags and of calls are none of the message.
static void logprobs_are_those_of_the_messages_text(void **state) {
    (void)state;
    chat.with_logprobs = true;
    add_token("hm");
    push(LP_REPLY_REASONING, 0, "hm", &out);
    add_token("</think>");
    add_token("<");
    add_token("b");
    push(LP_REPLY_CONTENT, 0, "<b", &out);
    add_token(" c");
    push(LP_REPLY_CONTENT, 0, " c", &out);
    add_token("<tool_call>");
    add_token("f");
    push(LP_REPLY_CALL, 0, "f", &out);
    push(LP_REPLY_CALL_END, 0, "", &out);
    add_token("</tool_call>");
    add_token("d");
    push(LP_REPLY_CONTENT, 0, "d", &out);
    add_token("<|user|>");
    assert_true(lp_responses_format.done(&a, &choice, &out));
    static const char *const expected[] = {"<", "b", " c"};
    const json_t *first = items.items[1].logprobs, *last = items.items[3].logprobs;
    assert_int_equal(json_array_size(first), 3);
    for (size_t i = 0; i < 3; i++)
        assert_string_equal(json_string_value(json_object_get(json_array_get(first, i), "token")),
                            expected[i]);
    assert_int_equal(json_array_size(last), 1);
    assert_string_equal(json_string_value(json_object_get(json_array_get(last, 0), "token")), "d");
}

static void bytes_that_are_no_utf8_are_cleaned(void **state) {
    (void)state;
    push(LP_REPLY_CONTENT, 0, "a\xff", &out);
    assert_true(lp_responses_format.done(&a, &choice, &out));
    read_events();
    assert_string_equal(string_at(2, "delta"), "a\xef\xbf\xbd");
    assert_string_equal(string_at(3, "text"), "a\xef\xbf\xbd");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(events_come_in_the_order_of_the_api, begin, end),
        cmocka_unit_test_setup_teardown(the_answers_object_has_the_items_that_were_sent, begin,
                                        end),
        cmocka_unit_test_setup_teardown(a_whole_answer_has_the_items_of_a_stream, begin, end),
        cmocka_unit_test_setup_teardown(what_the_limit_cuts_is_incomplete, begin, end),
        cmocka_unit_test_setup_teardown(an_answer_without_text_is_an_empty_message, begin, end),
        cmocka_unit_test_setup_teardown(a_failure_ends_a_stream_with_what_there_is, begin, end),
        cmocka_unit_test_setup_teardown(logprobs_are_those_of_the_messages_text, begin, end),
        cmocka_unit_test_setup_teardown(bytes_that_are_no_utf8_are_cleaned, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
