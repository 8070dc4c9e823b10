// Conversations to prompts with the small model: what is rendered, which tokens stand, what the
// answer may be; and that no allocation that fails, ours or jansson's, is more than an error.
#include "lp_test.h"

#include "base/alloc.h"
#include "serve/fields.h"
#include "serve/openai_chat.h"

#define MODEL "models/mini-glm-dsa.gguf"
#define TOOL                                                                                       \
    "{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": "         \
    "\"object\", \"properties\": {\"a\": {\"type\": \"string\"}}}}}"

static struct lp_service service;

static int set_up(void **state) {
    (void)state;
    limpid_error err;
    limpid_engine_options o = limpid_engine_default_options();
    if (limpid_model_open(&service.model, MODEL, NULL, &err)) return -1;
    o.n_context = 256;
    if (limpid_engine_new(&service.engine, service.model, &o, &err)) return -1;
    service.model_id = "mini";
    service.aliases = "";
    service.chat_template = limpid_model_chat_template(service.model);
    service.syntax = lp_reply_detect(service.chat_template);
    service.sampling.temperature = service.sampling.top_p = 1;
    service.sampling.repetition_penalty = 1;
    service.turns = lp_turns_new(1 << 20);
    return service.turns ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    lp_turns_free(service.turns);
    limpid_error err;
    limpid_engine_free(service.engine, &err);
    limpid_model_close(service.model);
    return 0;
}

// ---- one request ----

struct made {
    struct lp_completion completion;
    struct lp_chat_prompt prompt;
    struct lp_api_error err;
    bool ok;
};

static struct made make(const char *body) {
    struct made m = {.ok = false};
    struct lp_chat_request r = {0};
    json_t *root = lp_body_parse(body, strlen(body), 256, &m.err);
    m.ok = root && lp_openai_chat_request(&r, &service, root, true, &m.err) &&
           lp_chat_admit(&m.completion, &service, &r, &m.prompt, &m.err);
    lp_chat_request_release(&r);
    json_decref(root);
    return m;
}

static void release(struct made *m) {
    lp_completion_release(&m->completion);
    lp_chat_prompt_release(&m->prompt);
}

static struct made made(const char *body) {
    struct made m = make(body);
    if (!m.ok) fail_msg("%s: %s", body, m.err.message);
    return m;
}

static void the_prompt_tells_where_the_answer_begins(void **state) {
    (void)state;
    static const struct {
        const char *more, *text;
        bool in_reasoning;
    } rows[] = {
        {"", "[gMASK]<sop><|user|>Hi<|assistant|><think>", true},
        {", \"chat_template_kwargs\": {\"enable_thinking\": false}",
         "[gMASK]<sop><|user|>Hi<|assistant|></think>", false},
        {", \"reasoning_effort\": \"none\"", "[gMASK]<sop><|user|>Hi<|assistant|></think>", false},
        {", \"thinking\": {\"type\": \"enabled\"}", "[gMASK]<sop><|user|>Hi<|assistant|><think>",
         true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char body[300];
        snprintf(body, sizeof body, "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]%s}",
                 rows[i].more);
        struct made m = made(body);
        assert_string_equal(m.prompt.text.data, rows[i].text);
        assert_int_equal(m.prompt.in_reasoning, rows[i].in_reasoning);
        assert_int_equal(m.completion.params.n_prompts, 1);
        release(&m);
    }
}

static void a_message_goes_on(void **state) {
    (void)state;
    struct made m =
        made("{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": "
             "\"assistant\", \"content\": \"Hello\"}], \"continue_final_message\": true}");
    assert_string_equal(m.prompt.text.data,
                        "[gMASK]<sop><|user|>Hi<|assistant|><think></think>Hello");
    assert_false(m.prompt.in_reasoning);
    release(&m);
    m = made("{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", "
             "\"content\": \"<think>So\"}], \"continue_final_message\": true}");
    assert_string_equal(m.prompt.text.data, "[gMASK]<sop><|user|>Hi<|assistant|><think>So");
    assert_true(m.prompt.in_reasoning);
    release(&m);
}

static void forms_and_tools_become_one_grammar(void **state) {
    (void)state;
    static const struct {
        const char *more, *kind;
        bool after; // the reasoning
    } rows[] = {
        {"", NULL, false},
        {", \"tools\": [" TOOL "]", NULL, false},
        {", \"tools\": [" TOOL "], \"tool_choice\": \"required\"", "tools", true},
        {", \"tools\": [" TOOL "], \"tool_choice\": \"none\"", NULL, false},
        {", \"tools\": [" TOOL "], \"parallel_tool_calls\": false", "tools", true},
        {", \"tools\": [" TOOL "], \"response_format\": {\"type\": \"json_object\"}", "tools",
         true},
        {", \"tools\": [" TOOL "], \"guided_regex\": \"a\"", "regex", true},
        {", \"guided_regex\": \"a\"", "regex", true},
        {", \"guided_regex\": \"a\", \"reasoning_effort\": \"none\"", "regex", false},
    };
    int32_t end_think = limpid_token_find(service.model, "</think>", 8);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char body[600];
        snprintf(body, sizeof body, "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]%s}",
                 rows[i].more);
        struct made m = made(body);
        const struct lp_completion_params *p = &m.completion.params;
        if (rows[i].kind)
            assert_string_equal(p->grammar_kind, rows[i].kind);
        else
            assert_null(p->grammar_kind);
        assert_int_equal(p->grammar_after, rows[i].after ? end_think : -1);
        release(&m);
    }
}

// ---- without memory ----

// Of jansson's allocations; the nth from now and all behind it fail. 0: none.
static size_t json_left;

static void *json_allocate(size_t n) {
    if (json_left && --json_left == 0) {
        json_left = 1;
        return NULL;
    }
    return malloc(n);
}

static const char *const bodies[] = {
    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be brief.\"}, {\"role\": \"user\", "
    "\"content\": [{\"type\": \"text\", \"text\": \"Hi\"}]}], \"tools\": [" TOOL "], "
    "\"tool_choice\": {\"type\": \"function\", \"function\": {\"name\": \"f\"}}, \"stop\": "
    "[\"x\"]}",
    "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", "
    "\"reasoning\": \"So.\", \"tool_calls\": [{\"id\": \"call_1\", \"type\": \"function\", "
    "\"function\": {\"name\": \"f\", \"arguments\": \"{\\\"a\\\": \\\"b\\\"}\"}}]}, {\"role\": "
    "\"tool\", \"tool_call_id\": \"call_1\", \"content\": \"c\"}], \"tools\": [" TOOL "], "
    "\"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"schema\": {\"const\": "
    "1}}}, \"logit_bias\": {\"5\": 1}}",
};

// Whatever fails, the answer is an error or the same as ever: nothing is left out silently.
static void sweep(const char *body, bool of_jansson) {
    struct made whole = made(body);
    bool done = false;
    for (size_t n = 1; n < 20000 && !done; n++) {
        if (of_jansson)
            json_left = n;
        else
            lp_alloc_fail_after(n);
        struct made m = make(body);
        done = of_jansson ? json_left > 1 : m.ok;
        json_left = 0;
        lp_alloc_fail_after(0);
        if (m.ok) {
            const struct lp_completion_prompt *a = m.completion.prompts,
                                              *b = whole.completion.prompts;
            assert_int_equal(a->n_ids, b->n_ids);
            assert_memory_equal(a->ids, b->ids, a->n_ids * sizeof *a->ids);
            assert_int_equal(m.completion.params.n_grammar, whole.completion.params.n_grammar);
            assert_int_equal(m.completion.params.n_stop, whole.completion.params.n_stop);
            assert_int_equal(m.completion.params.n_bias, whole.completion.params.n_bias);
        }
        release(&m);
    }
    assert_true(done);
    release(&whole);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) sweep(bodies[i], false);
    json_set_alloc_funcs(json_allocate, free);
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) sweep(bodies[i], true);
    json_set_alloc_funcs(malloc, free);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_prompt_tells_where_the_answer_begins),
        cmocka_unit_test(a_message_goes_on),
        cmocka_unit_test(forms_and_tools_become_one_grammar),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
