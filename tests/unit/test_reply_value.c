// Types of values written as text. Expected values: the rule at lp_reply_typed_value, and what
// Python's json.loads and ast.literal_eval make of the texts.
#include "lp_test.h"

#include <jansson.h>

#include "text/reply.h"
#include "text/reply_value.h"

struct row {
    const char *schema, *text, *json; // schema NULL: none; json: as written into the arguments
    bool repaired;
};

static const struct row rows[] = {
    // A string is the text itself.
    {"{\"type\": \"string\"}", "Paris", "\"Paris\"", false},
    {"{\"type\": \"string\"}", "", "\"\"", false},
    {"{\"type\": \"string\"}", " 12 ", "\" 12 \"", false},
    {"{\"type\": \"string\"}", "\"quoted\"", "\"\\\"quoted\\\"\"", false},
    {"{\"type\": \"string\"}", "a\nb\t\\\x01\x7f", "\"a\\nb\\t\\\\\\u0001\x7f\"", false},
    {"{\"type\": \"string\"}", "null", "\"null\"", false},
    {"{\"enum\": [\"1\", \"2\"]}", "1", "\"1\"", false},
    {"{\"const\": \"5\"}", "5", "\"5\"", false},
    {"{\"allOf\": [{\"type\": \"string\"}, {}]}", "7", "\"7\"", false},
    {"{\"type\": [\"string\"]}", "true", "\"true\"", false},
    // Other types are JSON; numbers keep their text.
    {"{\"type\": \"integer\"}", "5", "5", false},
    {"{\"type\": \"integer\"}", " 5\n", "5", false},
    {"{\"type\": \"number\"}", "1.0", "1.0", false},
    {"{\"type\": \"number\"}", "1E5", "1E5", false},
    {"{\"type\": \"integer\"}", "123456789012345678901234567890", "123456789012345678901234567890",
     false},
    {"{\"type\": \"boolean\"}", "true", "true", false},
    {"{\"type\": \"array\"}", "[1, \"a\", null]", "[1, \"a\", null]", false},
    {"{\"type\": \"object\"}", "{\"a\": {\"b\": [1.50]}}", "{\"a\": {\"b\": [1.50]}}", false},
    // Python's spelling.
    {"{\"type\": \"boolean\"}", "True", "true", true},
    {"{\"type\": \"boolean\"}", "False", "false", true},
    {"{\"type\": [\"integer\", \"null\"]}", "None", "null", true},
    {"{\"type\": \"object\"}", "{'a': True, 'b': [None, 'x']}",
     "{\"a\": true, \"b\": [null, \"x\"]}", true},
    {"{\"type\": \"array\"}", "['it\\'s', 'a \"b\"', '\\x41']",
     "[\"it's\", \"a \\\"b\\\"\", \"\\u0041\"]", true},
    {"{\"type\": \"array\"}", "[1, 2,]", "[1, 2]", true},
    // What is neither is the text.
    {"{\"type\": \"integer\"}", "five", "\"five\"", true},
    {"{\"type\": \"integer\"}", "", "\"\"", true},
    {"{\"type\": \"integer\"}", "01", "\"01\"", true},
    {"{\"type\": \"number\"}", "1.", "\"1.\"", true},
    {"{\"type\": \"number\"}", "NaN", "\"NaN\"", true},
    {"{\"type\": \"array\"}", "[1, 2", "\"[1, 2\"", true},
    {"{\"type\": \"object\"}", "{\"a\": 1} x", "\"{\\\"a\\\": 1} x\"", true},
    // Unknown: JSON, else the text.
    {NULL, "5", "5", false},
    {NULL, "red", "\"red\"", false},
    {NULL, "True", "\"True\"", false},
    {NULL, "\"red\"", "\"red\"", false},
    {NULL, "{\"a\": 1}", "{\"a\": 1}", false},
    {NULL, "{'a': 1}", "\"{'a': 1}\"", false},
    {NULL, "", "\"\"", false},
    {"{}", "[]", "[]", false},
    {"{\"$ref\": \"#/x\"}", "x", "\"x\"", false},
    {"{\"type\": \"integer\", \"enum\": [\"a\"]}", "3", "3", false}, // contradicts itself
    // A string among others: JSON of one of the others, else the text.
    {"{\"anyOf\": [{\"type\": \"string\"}, {\"type\": \"null\"}]}", "null", "null", false},
    {"{\"anyOf\": [{\"type\": \"string\"}, {\"type\": \"null\"}]}", "75001", "\"75001\"", false},
    {"{\"type\": [\"string\", \"integer\"]}", "75001", "75001", false},
    {"{\"type\": [\"string\", \"integer\"]}", "7.5", "\"7.5\"", false},
    {"{\"type\": [\"string\", \"number\"]}", "7.5", "7.5", false},
    {"{\"type\": [\"string\", \"integer\"]}", "\"7\"", "\"\\\"7\\\"\"", false},
    {"{\"oneOf\": [{\"type\": \"array\"}, {\"type\": \"string\"}]}", "[1]", "[1]", false},
    {"{\"oneOf\": [{\"type\": \"array\"}, {\"type\": \"string\"}]}", "[1", "\"[1\"", false},
    {"{\"type\": \"string\", \"nullable\": true}", "null", "null", false},
};

static void test_rows(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *row = &rows[i];
        json_t *schema = row->schema ? json_loads(row->schema, 0, NULL) : NULL;
        assert_true(!row->schema || schema);
        struct lp_bytes out = {0};
        bool repaired;
        assert_true(lp_reply_value_write(&out, lp_str_from(row->text), lp_reply_value_types(schema),
                                         &repaired));
        if (strcmp(out.data, row->json) || repaired != row->repaired)
            fail_msg("row %zu, %s: %s (repaired: %d)", i, row->text, out.data, repaired);
        json_t *value = lp_reply_typed_value(lp_str_from(row->text), schema);
        json_t *same = json_loads(row->json, JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL, NULL);
        json_t *integer = json_loads(row->json, JSON_DECODE_ANY, NULL);
        assert_non_null(value);
        assert_true(json_equal(value, integer ? integer : same));
        json_decref(value);
        json_decref(same);
        json_decref(integer);
        json_decref(schema);
        lp_bytes_release(&out);
    }
}

static void test_schema_nests_without_end(void **state) {
    (void)state;
    json_t *schema = json_pack("{s:s}", "type", "string");
    for (int i = 0; i < 5000; i++) schema = json_pack("{s:[o]}", "anyOf", schema);
    assert_int_equal(lp_reply_value_types(schema), LP_VALUE_ANY);
    json_decref(schema);
}

static void test_deep_text(void **state) {
    (void)state;
    enum { DEPTH = 100000 };
    char *text = malloc(DEPTH);
    memset(text, '[', DEPTH);
    json_t *value = lp_reply_typed_value((struct lp_str){text, DEPTH}, NULL);
    assert_int_equal(json_string_length(value), DEPTH);
    json_decref(value);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows),
                                       cmocka_unit_test(test_schema_nests_without_end),
                                       cmocka_unit_test(test_deep_text)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
