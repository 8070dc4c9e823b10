// JSON made valid on its way. Expected values follow from the list at the head of reply_json.h;
// that they are JSON is asked of jansson.
#include "lp_test.h"

#include <jansson.h>

#include "text/reply_json.h"

struct row {
    const char *text, *json;
    const char *rest; // of a broken text: what was not written; NULL: it is whole
    int n_repairs;
};

static const struct row rows[] = {
    {"{}", "{}", NULL, 0},
    {"{\"a\": 1.0, \"b\" : [true, null, -2e+5, {\"c\": \"\\u00e9\\n\"}]}",
     "{\"a\": 1.0, \"b\" : [true, null, -2e+5, {\"c\": \"\\u00e9\\n\"}]}", NULL, 0},
    {"{\"a\": \"\\ud83d\\ude00\"}", "{\"a\": \"\\ud83d\\ude00\"}", NULL, 0},
    {"{\"a\": \"x\ny\tz\"}", "{\"a\": \"x\\ny\\tz\"}", NULL, 1},
    {"{\"a\": \"\\d \\' \\u12 \\\n\"}", "{\"a\": \"\\\\d ' \\\\u12 \\\\\\n\"}", NULL, 1},
    {"{\"a\": \"\\ud83d x \\ude00\", \"b\": \"\\ud83d\"}",
     "{\"a\": \"\\ufffd x \\ufffd\", \"b\": \"\\ufffd\"}", NULL, 2},
    {"{\"a\": \"\\ud83d\\ud83d\\ude00\"}", "{\"a\": \"\\ufffd\\ud83d\\ude00\"}", NULL, 1},
    {"{\"a\": \"\\ud83d\\n\"}", "{\"a\": \"\\ufffd\\n\"}", NULL, 1},
    {"{'a': 'say \"x\"'}", "{\"a\": \"say \\\"x\\\"\"}", NULL, 2},
    {"{a: True, b_2: None}", "{\"a\": true, \"b_2\": null}", NULL, 4},
    {"{\"a\": [1, 2, ], \"b\": {\"c\": 3,},}", "{\"a\": [1, 2], \"b\": {\"c\": 3}}", NULL, 3},
    {"{\"a\": [1, 2}", "{\"a\": [1, 2]}", NULL, 1},
    {"{\"a\": [{\"b\": 1]}", "{\"a\": [{\"b\": 1}]}", NULL, 1},
    {"{\"a\": 1, \"b\": oops}", "{\"a\": 1}", ", \"b\": oops}", 0},
    {"{\"a\": 01, \"b\": 2}", "{}", "\"a\": 01, \"b\": 2}", 0},
    {"{\"a\": \"b\" \"c\"}", "{\"a\": \"b\" }", "\"c\"}", 0},
    {"{\"a\": \"he said \"no\"\"}", "{\"a\": \"he said \"}", "no\"\"}", 0},
    {"{\"a\"; 1}", "{}", "\"a\"; 1}", 0},
    {"{\"a\": }", "{}", "\"a\": }", 0},
    {"{, \"a\": 1}", "{}", ", \"a\": 1}", 0},
    {"{1: 2}", "{}", "1: 2}", 0},
    {"[1}", "[1]", "}", 0},
    {"{\"a\": 1]", "{\"a\": 1}", "]", 0},
    {"{\"a\": [,]}", "{\"a\": []}", ",]}", 0},
    // cut off
    {"{\"a\": \"half", "{\"a\": \"half\"}", "", 0},
    {"{\"a\": \"half\\u12", "{\"a\": \"half\"}", "", 0},
    {"{\"a\": \"half\\ud83d", "{\"a\": \"half\\ufffd\"}", "", 1},
    {"{\"a\": [{\"b\": 12", "{\"a\": [{\"b\": 12}]}", "", 0},
    {"{\"a\": 1, \"b", "{\"a\": 1}", "", 0},
    {"{\"a\": 1, \"b\": ", "{\"a\": 1}", "", 0},
    {"{\"a\": 1, \"b\": tr", "{\"a\": 1}", "", 0},
    {"{\"a\": 1, ", "{\"a\": 1}", "", 0},
    {"{\"a\": 1e", "{}", "", 0},
    {"{", "{}", "", 0},
};

static void run(const struct row *row, size_t cut) {
    struct lp_reply_json json = {0};
    struct lp_bytes out = {0}, rest = {0};
    size_t n = strlen(row->text), at = 0;
    while (at < n && json.state == LP_JSON_READING) {
        size_t piece = n - at < cut ? n - at : cut;
        at += lp_reply_json_feed(&json, (struct lp_str){row->text + at, piece}, &out);
    }
    bool done = json.state == LP_JSON_DONE;
    if (!done) lp_reply_json_close(&json, &out);
    // Of a text that ends too early, what was held back is left out.
    if (at < n) lp_bytes_append(&rest, json.raw.data, json.raw.len);
    lp_bytes_append(&rest, row->text + at, n - at);
    if (done != !row->rest || strcmp(out.data, row->json) ||
        (row->rest && strcmp(rest.data, row->rest)) || json.n_repairs != row->n_repairs)
        fail_msg("%s: %s, rest %s, %d repairs, done %d", row->text, out.data, rest.data,
                 json.n_repairs, done);
    json_t *value = json_loads(out.data, 0, NULL);
    assert_non_null(value);
    json_decref(value);
    lp_reply_json_release(&json);
    lp_bytes_release(&out);
    lp_bytes_release(&rest);
}

static void test_rows(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t cut = 1; cut < 60; cut++) run(&rows[i], cut);
}

static void test_too_deep_is_broken(void **state) {
    (void)state;
    char text[LP_REPLY_JSON_DEPTH + 1];
    memset(text, '[', sizeof text);
    struct lp_reply_json json = {0};
    struct lp_bytes out = {0};
    assert_int_equal(lp_reply_json_feed(&json, (struct lp_str){text, sizeof text}, &out),
                     LP_REPLY_JSON_DEPTH);
    assert_int_equal(json.state, LP_JSON_BROKEN);
    lp_reply_json_close(&json, &out);
    assert_int_equal(out.len, 2 * LP_REPLY_JSON_DEPTH);
    lp_reply_json_release(&json);
    lp_bytes_release(&out);
}

static void test_length(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t length;
    } lengths[] = {{"{\"a\": 1} x", 8},  {"\"a\\\"b\",", 6}, {"12,", 2}, {"12", SIZE_MAX},
                   {"{\"a\"", SIZE_MAX}, {"nope,", 0},       {"}", 0}};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        size_t length;
        assert_true(lp_reply_json_length(lp_str_from(lengths[i].text), &length));
        assert_int_equal(length, lengths[i].length);
    }
}

static void test_unquote(void **state) {
    (void)state;
    struct lp_bytes out = {0};
    assert_true(lp_reply_json_unquote(lp_str_from("\"a\\\"\\u00e9\\ud83d\\ude00\\u0000b\""), &out));
    assert_int_equal(out.len, 10);
    assert_memory_equal(out.data, "a\"\xC3\xA9\xF0\x9F\x98\x80\0b", 10);
    lp_bytes_release(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows), cmocka_unit_test(test_too_deep_is_broken),
        cmocka_unit_test(test_length), cmocka_unit_test(test_unquote)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
