// The reply parser over a table of texts (reply_cases.h), whole and in pieces; what it does while a
// text is still coming; damaged texts; memory that runs out.
#include "lp_test.h"

#include "base/alloc.h"
#include "base/rng.h"
#include "reply_cases.h"

struct heard {
    struct lp_bytes reasoning, content, calls, arguments;
    int32_t n_calls, open; // open: the call that has begun and not ended, or -1
    int n_pieces, n_argument_pieces;
    bool bad;
};

static bool hear(void *user, const struct lp_reply_piece *piece) {
    struct heard *h = user;
    struct lp_str text = piece->text;
    json_t *value;
    h->n_pieces++;
    switch (piece->kind) {
    case LP_REPLY_REASONING:
        h->bad |= !text.len || h->n_calls;
        return lp_bytes_append(&h->reasoning, text.data, text.len);
    case LP_REPLY_CONTENT:
        h->bad |= !text.len || h->open >= 0;
        return lp_bytes_append(&h->content, text.data, text.len);
    case LP_REPLY_CALL:
        h->bad |= h->open >= 0 || piece->call != h->n_calls || !text.len;
        h->open = h->n_calls++;
        return lp_bytes_append(&h->calls, text.data, text.len);
    case LP_REPLY_ARGUMENTS:
        h->bad |= piece->call != h->open || !text.len;
        h->n_argument_pieces++;
        return lp_bytes_append(&h->arguments, text.data, text.len);
    case LP_REPLY_CALL_END:
        h->bad |= piece->call != h->open || text.len;
        h->open = -1;
        value = json_loadb(h->arguments.data, h->arguments.len,
                           JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
        h->bad |= !json_is_object(value);
        json_decref(value);
        lp_bytes_append(&h->calls, h->arguments.data, h->arguments.len);
        lp_bytes_clear(&h->arguments);
        return lp_bytes_puts(&h->calls, "\n");
    }
    return false;
}

static void release(struct heard *h) {
    lp_bytes_release(&h->reasoning);
    lp_bytes_release(&h->content);
    lp_bytes_release(&h->calls);
    lp_bytes_release(&h->arguments);
    *h = (struct heard){.open = -1};
}

static json_t *tools;

static struct lp_reply *parser(enum lp_reply_syntax syntax, bool in_reasoning, bool with_tools,
                               struct heard *h) {
    const struct lp_reply_params params = {.syntax = syntax,
                                           .in_reasoning = in_reasoning,
                                           .tools = with_tools ? tools : NULL,
                                           .sink = hear,
                                           .user = h};
    struct lp_reply *r = NULL;
    struct lp_err err = {0};
    *h = (struct heard){.open = -1};
    assert_int_equal(lp_reply_new(&r, &params, &err), LP_OK);
    return r;
}

// 0: whole; else pieces of up to that many bytes, of random length if rng is given.
static int parse(const struct reply_case *c, struct lp_str text, size_t most, struct lp_rng *rng,
                 struct heard *h) {
    struct lp_reply *r = parser(c->syntax, c->in_reasoning, c->tools, h);
    for (size_t at = 0, n; at < text.len; at += n) {
        n = !most ? text.len : rng ? 1 + (size_t)(lp_rng_u64(rng) % most) : most;
        if (n > text.len - at) n = text.len - at;
        char *piece = malloc(n); // so that a sanitizer sees a byte read too far
        memcpy(piece, text.data + at, n);
        assert_true(lp_reply_push(r, (struct lp_str){piece, n}));
        free(piece);
    }
    assert_true(lp_reply_finish(r));
    h->bad |= h->open >= 0 || h->n_calls != lp_reply_n_calls(r);
    int n_repairs = lp_reply_n_repairs(r);
    lp_reply_free(r);
    return n_repairs;
}

static void check(const struct reply_case *c, size_t most, struct lp_rng *rng) {
    struct heard h;
    int n_repairs = parse(c, lp_str_from(c->text), most, rng, &h);
    if (h.bad || !lp_str_is(lp_bytes_view(&h.reasoning), c->reasoning) ||
        !lp_str_is(lp_bytes_view(&h.content), c->content) ||
        !lp_str_is(lp_bytes_view(&h.calls), c->calls) || n_repairs != c->n_repairs)
        fail_msg("row %d (%s), pieces of %zu: %s\n reasoning [%s]\n content [%s]\n calls [%s]\n "
                 "%d repairs, bad %d",
                 (int)(c - reply_cases), lp_reply_syntax_name(c->syntax), most, c->text,
                 lp_bytes_view(&h.reasoning).data, lp_bytes_view(&h.content).data,
                 lp_bytes_view(&h.calls).data, n_repairs, h.bad);
    release(&h);
}

static void test_cases(void **state) {
    (void)state;
    struct lp_rng rng;
    lp_rng_init(&rng, 1);
    for (int i = 0; i < N_REPLY_CASES; i++) {
        check(&reply_cases[i], 0, NULL);
        check(&reply_cases[i], 1, NULL);
        for (int k = 0; k < 20; k++) check(&reply_cases[i], 2 + 3 * (size_t)k, &rng);
    }
}

static bool same(const struct lp_bytes *a, const struct lp_bytes *b) {
    return lp_str_equal(lp_bytes_view(a), lp_bytes_view(b));
}

// Random damage: whatever comes of it, it does not depend on the pieces, and every call's arguments
// are an object.
static void test_damaged_texts(void **state) {
    (void)state;
    struct lp_rng rng;
    lp_rng_init(&rng, 7);
    for (int k = 0; k < 6000; k++) {
        const struct reply_case *c = &reply_cases[lp_rng_u64(&rng) % N_REPLY_CASES];
        const struct reply_case *other = &reply_cases[lp_rng_u64(&rng) % N_REPLY_CASES];
        struct lp_bytes text = {0};
        lp_bytes_puts(&text, c->text);
        for (int n = 1 + (int)(lp_rng_u64(&rng) % 3); n && text.len; n--) {
            size_t from = lp_rng_u64(&rng) % text.len, left = text.len - from;
            size_t len = 1 + lp_rng_u64(&rng) % (left < 24 ? left : 24);
            if (lp_rng_u64(&rng) % 3) { // out with it
                memmove(text.data + from, text.data + from + len, left - len);
                text.len -= len;
            } else if (lp_rng_u64(&rng) % 2) { // bytes of another case
                size_t n_other = strlen(other->text);
                for (size_t i = 0; n_other && i < len; i++)
                    text.data[from + i] = other->text[lp_rng_u64(&rng) % n_other];
            } else {
                lp_bytes_puts(&text, other->text);
            }
        }
        struct heard whole, cut;
        int repairs = parse(c, lp_bytes_view(&text), 0, NULL, &whole);
        int repairs_cut = parse(c, lp_bytes_view(&text), 1 + (size_t)k % 13, &rng, &cut);
        if (whole.bad || cut.bad || repairs != repairs_cut ||
            !same(&whole.reasoning, &cut.reasoning) || !same(&whole.content, &cut.content) ||
            !same(&whole.calls, &cut.calls))
            fail_msg("%s (%s): [%s] [%s] [%s]\n cut: [%s] [%s] [%s]", text.data,
                     lp_reply_syntax_name(c->syntax), lp_bytes_view(&whole.reasoning).data,
                     lp_bytes_view(&whole.content).data, lp_bytes_view(&whole.calls).data,
                     lp_bytes_view(&cut.reasoning).data, lp_bytes_view(&cut.content).data,
                     lp_bytes_view(&cut.calls).data);
        release(&whole);
        release(&cut);
        lp_bytes_release(&text);
    }
}

// Without tools the text is reasoning, </think>, content, and nothing of it is lost.
static void test_nothing_is_lost_without_tools(void **state) {
    (void)state;
    for (int i = 0; i < N_REPLY_CASES; i++) {
        struct reply_case c = reply_cases[i];
        struct heard h;
        c.tools = false;
        c.in_reasoning = true;
        struct lp_bytes text = {0};
        lp_bytes_puts(&text, "x");
        lp_bytes_puts(&text, c.text);
        parse(&c, lp_bytes_view(&text), 3, NULL, &h);
        const char *end = strstr(text.data, "</think>");
        size_t n = end ? (size_t)(end - text.data) : text.len;
        assert_int_equal(h.reasoning.len, n);
        assert_memory_equal(h.reasoning.data, text.data, n);
        if (end) {
            end += strlen("</think>");
            end += strspn(end, "\r\n");
            assert_string_equal(lp_bytes_view(&h.content).data, end);
        } else {
            assert_int_equal(h.content.len, 0);
        }
        release(&h);
        lp_bytes_release(&text);
    }
}

static void push(struct lp_reply *r, const char *text) {
    assert_true(lp_reply_push(r, lp_str_from(text)));
}

// Each piece as soon as it can be known.
static void test_streams(void **state) {
    (void)state;
    struct heard h;
    struct lp_reply *r = parser(LP_SYNTAX_GLM, true, true, &h);
    assert_true(lp_reply_in_reasoning(r));
    push(r, "I think");
    assert_string_equal(h.reasoning.data, "I think");
    push(r, " so.</th");
    assert_string_equal(h.reasoning.data, "I think so.");
    push(r, "ink>\nYes, ");
    assert_false(lp_reply_in_reasoning(r));
    assert_string_equal(h.content.data, "Yes,");
    push(r, "sir. <tool");
    assert_string_equal(h.content.data, "Yes, sir.");
    push(r, "_call>get_weather");
    assert_int_equal(h.n_calls, 0);
    push(r, "<arg_key>");
    assert_string_equal(h.calls.data, "get_weather");
    push(r, "city</arg_key><arg_value>Par");
    assert_string_equal(h.arguments.data, "{\"city\": \"Par");
    push(r, "is\n</arg_");
    assert_string_equal(h.arguments.data, "{\"city\": \"Paris\\n");
    push(r, "value><arg_key>days</arg_key><arg_value>1");
    push(r, "2</arg_value>");
    assert_string_equal(h.arguments.data, "{\"city\": \"Paris\\n\", \"days\": 12");
    push(r, "</tool_call>");
    assert_int_equal(h.open, -1);
    assert_int_equal(lp_reply_n_calls(r), 1);
    assert_true(lp_reply_finish(r));
    assert_string_equal(h.content.data, "Yes, sir.");
    lp_reply_free(r);
    release(&h);
}

// In DeepSeek's and Qwen's styles too, and a name is sent before the arguments come.
static void test_streams_json(void **state) {
    (void)state;
    struct heard h;
    struct lp_reply *r = parser(LP_SYNTAX_HERMES, false, true, &h);
    push(r, "<tool_call>\n{\"name\": \"f\", \"arguments\": {");
    assert_string_equal(h.calls.data, "f");
    push(r, "\"a\": \"some te");
    assert_string_equal(h.arguments.data, "{\"a\": \"some te");
    push(r, "xt\", \"b\": [1, 2");
    assert_string_equal(h.arguments.data, "{\"a\": \"some text\", \"b\": [1");
    lp_reply_free(r);
    release(&h);
}

static void test_long_argument_comes_in_pieces(void **state) {
    (void)state;
    static const struct {
        enum lp_reply_syntax syntax;
        const char *before, *behind;
    } styles[] = {
        {LP_SYNTAX_GLM, "<tool_call>get_weather<arg_key>city</arg_key><arg_value>",
         "</arg_value></tool_call>"},
        {LP_SYNTAX_DEEPSEEK_V31,
         "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": \"",
         "\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
        {LP_SYNTAX_DEEPSEEK_V32,
         "<｜DSML｜function_calls><｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"a\" "
         "string=\"true\">",
         "</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜function_calls>"},
        {LP_SYNTAX_KIMI,
         "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
         "{\"a\": \"",
         "\"}<|tool_call_end|><|tool_calls_section_end|>"},
        {LP_SYNTAX_HERMES, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"",
         "\"}}</tool_call>"},
    };
    for (size_t i = 0; i < sizeof styles / sizeof *styles; i++) {
        struct heard h;
        struct lp_reply *r = parser(styles[i].syntax, false, true, &h);
        push(r, styles[i].before);
        for (int k = 0; k < 256; k++) push(r, "some tex"); // 2 KB
        assert_true(h.n_argument_pieces > 250);
        push(r, styles[i].behind);
        assert_int_equal(h.open, -1);
        assert_true(lp_reply_finish(r));
        assert_int_equal(lp_reply_n_repairs(r), 0);
        assert_false(h.bad);
        lp_reply_free(r);
        release(&h);
    }
}

// Pieces hold whole characters, however the text is cut, and ill-formed bytes are replaced as
// Python's bytes.decode(errors="replace") does.
static bool whole_characters(void *user, const struct lp_reply_piece *piece) {
    json_t *text = json_stringn(piece->text.data, piece->text.len);
    assert_true(text || !piece->text.len);
    json_decref(text);
    return hear(user, piece);
}

static void test_characters_are_whole(void **state) {
    (void)state;
    static const char text[] = "</think>\xE2\x82\xAC\xE2\x82\xF0\x9F\x98\x80\xFF\xC3";
    struct heard h = {.open = -1};
    struct lp_reply_params params = {.in_reasoning = true, .sink = whole_characters, .user = &h};
    struct lp_reply *r;
    assert_int_equal(lp_reply_new(&r, &params, NULL), LP_OK);
    for (size_t i = 0; i + 1 < sizeof text; i++)
        assert_true(lp_reply_push(r, (struct lp_str){text + i, 1}));
    assert_true(lp_reply_finish(r));
    assert_string_equal(h.content.data,
                        "\xE2\x82\xAC\xEF\xBF\xBD\xF0\x9F\x98\x80\xEF\xBF\xBD\xEF\xBF\xBD");
    lp_reply_free(r);
    release(&h);
}

// 100 KB of what looks like tags, a few bytes at a time: a square of that would not come to an end.
static void test_long_texts_are_linear(void **state) {
    (void)state;
    static const char *const units[] = {
        "<",  " ",  "<tool_call>", "</tool_call>",         "\n<", "<arg_key>",
        "\\", "</", "{\"a\":[",    "<tool_call>{\"x\":\"", "}"};
    static const char *const starts[] = {"",
                                         "<tool_call>get_weather<arg_key>city</arg_key><arg_value>",
                                         "<tool_call>get_weather<arg_key>days</arg_key><arg_value>",
                                         "<tool_call>get_weather<arg_key>",
                                         "<tool_call>get_weather",
                                         "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"",
                                         "<tool_call>{\"arguments\": {\"a\": \""};
    for (size_t s = 0; s < sizeof starts / sizeof *starts; s++) {
        for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
            struct heard h;
            struct lp_reply *r = parser(s < 5 ? LP_SYNTAX_GLM : LP_SYNTAX_HERMES, false, true, &h);
            push(r, starts[s]);
            for (size_t n = 0; n < 100000; n += strlen(units[u])) push(r, units[u]);
            assert_true(lp_reply_finish(r));
            assert_false(h.bad);
            lp_reply_free(r);
            release(&h);
        }
    }
}

static void test_detect(void **state) {
    (void)state;
    static const struct {
        const char *path;
        enum lp_reply_syntax syntax;
    } rows[] = {{"tests/data/chat/glm_tags.jinja", LP_SYNTAX_GLM},
                {"tests/data/chat/mini.jinja", LP_SYNTAX_GLM},
                {"tests/data/chat/deepseek_calls.jinja", LP_SYNTAX_DEEPSEEK_V3},
                {"tests/data/chat/deepseek_switch.jinja", LP_SYNTAX_DEEPSEEK_V31},
                {"tests/data/chat/qwen_think.jinja", LP_SYNTAX_HERMES},
                {"tests/data/chat/llama_headers.jinja", LP_SYNTAX_PLAIN},
                {"tests/data/chat/chatml.jinja", LP_SYNTAX_PLAIN}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        static char text[1 << 16];
        FILE *file = fopen(rows[i].path, "rb");
        assert_non_null(file);
        text[fread(text, 1, sizeof text - 1, file)] = 0;
        fclose(file);
        assert_string_equal(lp_reply_syntax_name(lp_reply_detect(text)),
                            lp_reply_syntax_name(rows[i].syntax));
    }
    assert_int_equal(lp_reply_detect(NULL), LP_SYNTAX_PLAIN);
    assert_int_equal(lp_reply_detect("<tool_call>\n<function=f>"), LP_SYNTAX_PLAIN);
    assert_int_equal(lp_reply_detect("'<|tool_call_begin|>' + id"), LP_SYNTAX_KIMI);
    assert_int_equal(lp_reply_detect("<｜DSML｜invoke"), LP_SYNTAX_DEEPSEEK_V32);
}

static void test_names(void **state) {
    (void)state;
    for (int i = LP_SYNTAX_PLAIN; i <= LP_SYNTAX_HERMES; i++) {
        enum lp_reply_syntax syntax;
        assert_true(
            lp_reply_syntax_from_name(lp_reply_syntax_name((enum lp_reply_syntax)i), &syntax));
        assert_int_equal(syntax, i);
        const char *const *markers = lp_reply_markers(syntax);
        assert_string_equal(markers[0], "<think>");
        assert_string_equal(markers[1], "</think>");
    }
    enum lp_reply_syntax syntax;
    assert_false(lp_reply_syntax_from_name("xml", &syntax));
}

static bool refuse(void *user, const struct lp_reply_piece *piece) {
    (void)piece;
    return --*(int *)user > 0;
}

static void test_sink_refuses(void **state) {
    (void)state;
    int left = 2;
    struct lp_reply_params params = {
        .syntax = LP_SYNTAX_GLM, .tools = tools, .sink = refuse, .user = &left};
    struct lp_reply *r;
    assert_int_equal(lp_reply_new(&r, &params, NULL), LP_OK);
    assert_true(lp_reply_push(r, lp_str_from("a")));
    assert_false(lp_reply_push(r, lp_str_from("<tool_call>get_time</tool_call>b")));
    assert_false(lp_reply_push(r, lp_str_from("c")));
    assert_false(lp_reply_finish(r));
    assert_int_equal(left, 0); // never asked again
    lp_reply_free(r);
}

static bool ignore(void *user, const struct lp_reply_piece *piece) {
    (void)user;
    (void)piece;
    return true;
}

static bool parse_or_fail(const struct reply_case *c) {
    struct lp_reply_params params = {
        .syntax = c->syntax, .in_reasoning = c->in_reasoning, .tools = tools, .sink = ignore};
    struct lp_reply *r = NULL;
    struct lp_err err = {0};
    if (lp_reply_new(&r, &params, &err)) {
        assert_int_equal(err.status, LP_STATUS_MEMORY);
        return false;
    }
    bool ok = true;
    struct lp_str text = lp_str_from(c->text);
    for (size_t at = 0; ok && at < text.len; at += 7)
        ok = lp_reply_push(r,
                           (struct lp_str){text.data + at, text.len - at < 7 ? text.len - at : 7});
    ok = ok && lp_reply_finish(r);
    lp_reply_free(r);
    return ok;
}

static void test_memory_runs_out(void **state) {
    (void)state;
    for (int i = 0; i < N_REPLY_CASES; i++) {
        bool ok = false;
        for (size_t nth = 1; !ok; nth++) {
            lp_alloc_fail_after(nth);
            ok = parse_or_fail(&reply_cases[i]);
            lp_alloc_fail_after(0);
            assert_true(nth < 1000);
        }
    }
}

// A tool whose name no call can have ("my tool") is never called, also where its name and a key have
// run together: what was written is content.
static void test_tool_without_a_good_name(void **state) {
    static const char text[] =
        "<tool_call>my toolcity</arg_key><arg_value>Rome</arg_value></tool_call>";
    struct heard h = {.open = -1};
    struct lp_reply *r;
    struct lp_err err;
    (void)state;
    json_t *odd = json_loads("[{\"type\": \"function\", \"function\": {\"name\": \"my tool\", "
                             "\"parameters\": {\"properties\": {\"city\": {}}}}}]",
                             0, NULL);
    const struct lp_reply_params params = {
        .syntax = LP_SYNTAX_GLM, .tools = odd, .sink = hear, .user = &h};
    assert_int_equal(lp_reply_new(&r, &params, &err), LP_OK);
    assert_true(lp_reply_push(r, lp_str_from(text)) && lp_reply_finish(r));
    assert_int_equal(h.n_calls, 0);
    assert_false(h.bad);
    assert_string_equal(h.content.data, text);
    lp_reply_free(r);
    json_decref(odd);
    release(&h);
}

static int load_tools(void **state) {
    (void)state;
    tools = json_loads(reply_tools, 0, NULL);
    return tools ? 0 : -1;
}

static int free_tools(void **state) {
    (void)state;
    json_decref(tools);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases),
                                       cmocka_unit_test(test_damaged_texts),
                                       cmocka_unit_test(test_nothing_is_lost_without_tools),
                                       cmocka_unit_test(test_streams),
                                       cmocka_unit_test(test_streams_json),
                                       cmocka_unit_test(test_long_argument_comes_in_pieces),
                                       cmocka_unit_test(test_characters_are_whole),
                                       cmocka_unit_test(test_long_texts_are_linear),
                                       cmocka_unit_test(test_detect),
                                       cmocka_unit_test(test_names),
                                       cmocka_unit_test(test_sink_refuses),
                                       cmocka_unit_test(test_tool_without_a_good_name),
                                       cmocka_unit_test(test_memory_runs_out)};
    return cmocka_run_group_tests(tests, load_tools, free_tools);
}
