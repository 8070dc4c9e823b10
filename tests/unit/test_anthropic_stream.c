// Pieces of an answer as Anthropic's events and as a whole message. What the events build, by the
// rules of Anthropic's streaming reference, must be that message.
#include "lp_test.h"

#include <jansson.h>

#include "base/alloc.h"
#include "serve/anthropic_parts.h"

static struct lp_service service = {.model_id = "m"};
static struct lp_answer a;
static struct lp_chat_answer chat;
static struct lp_chat_choice choice;
static struct lp_chat_call calls[2];
static struct lp_anthropic_content content;

struct step {
    enum lp_reply_kind kind;
    int call;
    const char *text;
};

static void set_up(void) {
    memset(&content, 0, sizeof content);
    memset(calls, 0, sizeof calls);
    chat = (struct lp_chat_answer){
        .format = &lp_anthropic_format, .id = "msg_1", .choices = &choice, .extra = &content};
    choice = (struct lp_chat_choice){.calls = calls, .n_prompt = 10, .n_cached = 4, .stop_id = -1};
    a = (struct lp_answer){.format = &lp_anthropic_format.base,
                           .service = &service,
                           .completion = {.n_choices = 1, .params = {.n = 1}},
                           .generation = {.n_prompt_tokens = 10, .n_cached = 4, .n_generated = 7},
                           .state = &chat};
}

static void tear_down(void) {
    for (size_t i = 0; i < content.n_blocks; i++) lp_bytes_release(&content.blocks[i].text);
    lp_free(content.blocks);
    for (size_t i = 0; i < 2; i++) {
        lp_bytes_release(&calls[i].name);
        lp_bytes_release(&calls[i].arguments);
    }
}

// As chat_answer.c does it: what the choice holds first, then the format.
static void take(const struct step *step, struct lp_bytes *out) {
    const struct lp_reply_piece piece = {step->kind, step->call, lp_str_from(step->text)};
    struct lp_chat_call *call = &calls[step->call];
    if (step->kind == LP_REPLY_CALL) {
        snprintf(call->id, sizeof call->id, "toolu_%d", step->call);
        assert_true(lp_bytes_puts(&call->name, step->text));
        choice.n_calls++;
    }
    if (step->kind == LP_REPLY_ARGUMENTS) assert_true(lp_bytes_puts(&call->arguments, step->text));
    assert_true(lp_anthropic_piece(&a, &choice, &piece, out));
}

static void run(const struct step *steps, size_t n, struct lp_bytes *out) {
    assert_true(lp_anthropic_start(&a, &choice, out));
    for (size_t i = 0; i < n; i++) take(&steps[i], out);
    assert_true(lp_anthropic_done(&a, &choice, out));
    if (out) assert_true(lp_anthropic_end(&a, out));
}

static const char *text_of(const json_t *object, const char *name) {
    return json_string_value(json_object_get(object, name));
}

// ---- a client ----

struct client {
    json_t *message;
    struct lp_bytes open; // text of the open block
    size_t n_events;
};

static void append(struct client *c, const json_t *block, const json_t *delta) {
    static const char *const members[][3] = {{"text_delta", "text", "text"},
                                             {"thinking_delta", "thinking", "thinking"},
                                             {"signature_delta", "signature", "thinking"},
                                             {"input_json_delta", "partial_json", "tool_use"}};
    for (size_t i = 0; i < 4; i++) {
        if (strcmp(text_of(delta, "type"), members[i][0]) != 0) continue;
        assert_string_equal(text_of(block, "type"), members[i][2]);
        assert_true(lp_bytes_puts(&c->open, text_of(delta, members[i][1])));
        return;
    }
    fail_msg("a delta of type %s", text_of(delta, "type"));
}

static void stop(struct client *c, json_t *block) {
    const char *type = text_of(block, "type");
    const char *text = c->open.data ? c->open.data : "";
    if (strcmp(type, "tool_use") == 0)
        json_object_set_new(block, "input", json_loads(text, 0, NULL));
    else
        json_object_set_new(block, type, json_string(text));
    lp_bytes_clear(&c->open);
}

static void receive(struct client *c, const json_t *event, const char *type) {
    json_t *blocks = json_object_get(c->message, "content");
    size_t index = (size_t)json_integer_value(json_object_get(event, "index"));
    c->n_events++;
    if (strcmp(type, "message_start") == 0) {
        assert_int_equal(c->n_events, 1);
        c->message = json_deep_copy(json_object_get(event, "message"));
    } else if (strcmp(type, "ping") == 0) {
        assert_int_equal(c->n_events, 2);
    } else if (strcmp(type, "content_block_start") == 0) {
        assert_int_equal(index, json_array_size(blocks));
        json_array_append_new(blocks, json_deep_copy(json_object_get(event, "content_block")));
    } else if (strcmp(type, "content_block_delta") == 0) {
        assert_int_equal(index, json_array_size(blocks) - 1);
        append(c, json_array_get(blocks, index), json_object_get(event, "delta"));
    } else if (strcmp(type, "content_block_stop") == 0) {
        assert_int_equal(index, json_array_size(blocks) - 1);
        stop(c, json_array_get(blocks, index));
    } else if (strcmp(type, "message_delta") == 0) {
        json_object_update(c->message, json_object_get(event, "delta"));
        json_object_set(c->message, "usage", json_object_get(event, "usage"));
    } else {
        assert_string_equal(type, "message_stop");
    }
}

static json_t *build(const struct lp_bytes *stream, char *last_type) {
    struct client c = {0};
    char type[40] = "";
    for (const char *at = stream->data; *at;) {
        int n = 0;
        assert_int_equal(sscanf(at, "event: %39[a-z_]\ndata: %n", type, &n), 1);
        const char *end = strstr(at + n, "\n\n");
        json_t *event = json_loadb(at + n, (size_t)(end - at) - (size_t)n, 0, NULL);
        assert_non_null(event);
        assert_string_equal(text_of(event, "type"), type);
        receive(&c, event, type);
        json_decref(event);
        at = end + 2;
    }
    lp_bytes_release(&c.open);
    strcpy(last_type, type);
    return c.message;
}

// ---- tests ----

#define SAYS(kind, text)                                                                           \
    { LP_REPLY_##kind, 0, text }
#define CALLS(kind, call, text)                                                                    \
    { LP_REPLY_##kind, call, text }

static void both_give(const struct step *steps, size_t n, const char *expected_content,
                      const char *stop_reason, void (*end)(void)) {
    struct lp_bytes out = {0};
    char last[40];
    set_up();
    if (end) end();
    run(steps, n, &out);
    json_t *streamed = build(&out, last);
    assert_string_equal(last, "message_stop");
    tear_down();
    set_up();
    if (end) end();
    run(steps, n, NULL);
    json_t *whole = lp_anthropic_format.base.whole(&a),
           *wanted = json_loads(expected_content, 0, NULL);
    tear_down();
    char *texts[2] = {json_dumps(streamed, 0), json_dumps(whole, 0)};
    if (!json_equal(streamed, whole)) fail_msg("%s\n is not %s", texts[0], texts[1]);
    if (!json_equal(json_object_get(whole, "content"), wanted)) fail_msg("found %s", texts[1]);
    assert_string_equal(text_of(whole, "stop_reason"), stop_reason);
    json_t *usage = json_object_get(whole, "usage");
    assert_int_equal(json_integer_value(json_object_get(usage, "input_tokens")), 6);
    assert_int_equal(json_integer_value(json_object_get(usage, "cache_read_input_tokens")), 4);
    assert_int_equal(json_integer_value(json_object_get(usage, "output_tokens")), 7);
    free(texts[0]);
    free(texts[1]);
    json_decref(streamed);
    json_decref(whole);
    json_decref(wanted);
    lp_bytes_release(&out);
}

#define N(steps) (sizeof steps / sizeof steps[0])

static void blocks_come_in_the_order_of_generation(void **state) {
    (void)state;
    static const struct step steps[] = {SAYS(REASONING, "I "),
                                        SAYS(REASONING, "look."),
                                        SAYS(CONTENT, "Let me "),
                                        SAYS(CONTENT, "see."),
                                        CALLS(CALL, 0, "get_weather"),
                                        CALLS(ARGUMENTS, 0, "{\"city\": "),
                                        CALLS(ARGUMENTS, 0, "\"Paris\"}"),
                                        CALLS(CALL_END, 0, ""),
                                        CALLS(CALL, 1, "now"),
                                        CALLS(ARGUMENTS, 1, "{}"),
                                        CALLS(CALL_END, 1, ""),
                                        SAYS(CONTENT, "Done.")};
    both_give(
        steps, N(steps),
        "[{\"type\": \"thinking\", \"thinking\": \"I look.\", \"signature\": \"\"},"
        " {\"type\": \"text\", \"text\": \"Let me see.\"},"
        " {\"type\": \"tool_use\", \"id\": \"toolu_0\", \"name\": \"get_weather\", \"input\": "
        "{\"city\": \"Paris\"}},"
        " {\"type\": \"tool_use\", \"id\": \"toolu_1\", \"name\": \"now\", \"input\": {}},"
        " {\"type\": \"text\", \"text\": \"Done.\"}]",
        "tool_use", NULL);
}

static void hit_length(void) {
    choice.hit_length = true;
}

static void nothing_said_is_no_block(void **state) {
    (void)state;
    static const struct step steps[] = {SAYS(REASONING, ""), SAYS(CONTENT, "")};
    both_give(steps, N(steps), "[]", "end_turn", NULL);
    both_give(steps, 0, "[]", "max_tokens", hit_length);
}

static void meet_stop(void) {
    static char text[] = "END";
    choice.stop_text = text;
}

static void a_stop_text_is_named(void **state) {
    (void)state;
    static const struct step steps[] = {SAYS(CONTENT, "a")};
    both_give(steps, N(steps), "[{\"type\": \"text\", \"text\": \"a\"}]", "stop_sequence",
              meet_stop);
}

static void hide(void) {
    content.hide_thinking = true;
}

static void omitted_thinking_leaves_its_block(void **state) {
    (void)state;
    static const struct step steps[] = {SAYS(REASONING, "secret"), SAYS(REASONING, "s"),
                                        SAYS(CONTENT, "a")};
    both_give(steps, N(steps),
              "[{\"type\": \"thinking\", \"thinking\": \"\", \"signature\": \"\"}, {\"type\": "
              "\"text\", \"text\": \"a\"}]",
              "end_turn", hide);
}

static void an_error_ends_a_stream(void **state) {
    (void)state;
    struct lp_bytes out = {0};
    struct lp_api_error err;
    lp_api_fail(&err, 504, NULL, "too late");
    set_up();
    assert_true(lp_anthropic_stream_error(&a, &err, &out));
    assert_string_equal(out.data, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":"
                                  "\"timeout_error\",\"message\":\"too late\"}}\n\n");
    lp_bytes_clear(&out);
    assert_true(lp_anthropic_ping(&a, &out));
    assert_string_equal(out.data, "event: ping\ndata: {\"type\":\"ping\"}\n\n");
    lp_bytes_release(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_come_in_the_order_of_generation),
        cmocka_unit_test(nothing_said_is_no_block),
        cmocka_unit_test(a_stop_text_is_named),
        cmocka_unit_test(omitted_thinking_leaves_its_block),
        cmocka_unit_test(an_error_ends_a_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
