// JSON Schema to grammar. What is valid is known from the standard; that the texts are in the form
// that is written (order of members, white space, no others) from docs/structured-output.md.
#include "grammar_rows.h"

#include "base/alloc.h"

#define OBJ(properties) "{\"type\":\"object\",\"properties\":{" properties "}"
#define CLOSED ",\"additionalProperties\":false}"

static void test_scalars(void **state) {
    (void)state;
    static const struct grammar_row rows[] = {
        {"{\"type\":\"null\"}", {"null"}, {"0", "\"null\"", " null", "null "}},
        {"{\"type\":\"boolean\"}", {"true", "false"}, {"0", "True", "null"}},
        {"{\"type\":\"integer\"}",
         {"0", "-1", "123456789012345678", "-999999999999999999"},
         {"1.0", "01", "+1", "1e3", "1234567890123456789", "", "-"}},
        {"{\"type\":\"number\"}",
         {"0", "-0.5", "3.14", "1e5", "2.5E-10", "1e+99"},
         {".5", "5.", "1e", "01.5", "1e100", "NaN"}},
        {"{\"type\":\"string\"}",
         {"\"\"", "\"a b\"", "\"\xE2\x82\xAC\"", "\"\\n\\\"\\\\\\/\"", "\"\\u20aC\"",
          "\"\\ud83d\\ude00\"", "\"\x7F\""},
         {"a", "\"", "\"\n\"", "\"\\x\"", "\"\\ud83d\"", "\"\\ude00\"", "\"\\u12\"", "\"\xC3\""}},
        {"{\"type\":[\"string\",\"null\"]}", {"\"a\"", "null"}, {"1", "true"}},
        {"{\"type\":[\"integer\",\"number\"]}", {"1", "1.5"}, {"\"1\""}},
        {"{\"type\":\"string\",\"nullable\":true}", {"null", "\"\""}, {"1"}},
        {"{\"type\":\"string\",\"nullable\":false}", {"\"\""}, {"null"}},
        {"true", {"null", "1", "[]", "{\"a\": [1, {}]}"}, {"", "nul", "{a:1}", "[1,]"}},
        {"{}", {"null", "\"x\""}, {"x"}},
        {"{\"title\":\"t\",\"description\":\"d\",\"default\":3,\"examples\":[1],\"x-order\":2}",
         {"1"},
         {"x"}},
        {"{\"minimum\":3}", {"3", "4.5"}, {"2", "\"a\""}}, // about numbers: a number is written
    };
    CHECK_ROWS(LP_GRAMMAR_SCHEMA, rows);
}

static void test_strings(void **state) {
    (void)state;
    static const struct grammar_row rows[] = {
        {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
         {"\"ab\"", "\"\xE2\x82\xAC\xF0\x9F\x98\x80\xC3\xA9\"", "\"\\n\\u0041\"",
          "\"\\ud83d\\ude00x\""},
         {"\"a\"", "\"abcd\"", "\"\\ud83d\\ude00\""}},
        {"{\"type\":\"string\",\"maxLength\":0}", {"\"\""}, {"\"a\""}},
        {"{\"type\":\"string\",\"maxLength\":65535}", {"\"\"", "\"abc\""}, {"abc"}},
        {"{\"type\":\"string\",\"pattern\":\"^[a-z]+$\"}", {"\"abc\""}, {"\"\"", "\"aB\""}},
        {"{\"type\":\"string\",\"pattern\":\"b+\"}",
         {"\"b\"", "\"abc\"",
          "\"\xE2\x82\xAC"
          "bb\\n\""},
         {"\"ac\"", "\"\""}},
        {"{\"type\":\"string\",\"pattern\":\"^x\"}", {"\"x\"", "\"xyz\""}, {"\"yx\""}},
        {"{\"type\":\"string\",\"pattern\":\"y$\"}", {"\"xy\""}, {"\"yx\""}},
        {"{\"type\":\"string\",\"pattern\":\"^a|b$\"}", {"\"ax\"", "\"xb\""}, {"\"xa\"", "\"bx\""}},
        {"{\"type\":\"string\",\"pattern\":\"^[\\\"\\\\\\\\/\\\\n]$\"}",
         {"\"\\\"\"", "\"\\\\\"", "\"/\"", "\"\\n\""},
         {"\"\"\"", "\"\\\"", "\"\n\"", "\"n\""}},
        {"{\"type\":\"string\",\"pattern\":\"^\\\\u0001$\"}", {"\"\\u0001\""}, {"\"\x01\""}},
        {"{\"type\":\"string\",\"pattern\":\"^a\\\"b$\"}", {"\"a\\\"b\""}, {"\"a\"b\""}},
        {"{\"type\":\"string\",\"pattern\":\"^[a-z]+$\",\"minLength\":2,\"maxLength\":4}",
         {"\"ab\"", "\"abcd\""},
         {"\"a\"", "\"abcde\""}},
        {"{\"type\":\"string\",\"pattern\":\"^A[a-z]*9$\",\"maxLength\":3}",
         {"\"A9\"", "\"Ab9\""},
         {"\"Abc9\""}},
        {"{\"type\":\"string\",\"pattern\":\"^(ab)+$\",\"minLength\":3,\"maxLength\":5}",
         {"\"abab\""},
         {"\"ab\"", "\"ababab\""}},
        {"{\"type\":\"string\",\"format\":\"date\"}",
         {"\"2024-02-29\"", "\"1999-12-31\"", "\"2000-02-29\""},
         {"\"2023-02-29\"", "\"2024-13-01\"", "\"2024-04-31\"", "\"1900-02-29\"", "\"24-1-1\""}},
        {"{\"type\":\"string\",\"format\":\"time\"}",
         {"\"23:59:59Z\"", "\"00:00:00.5+01:30\""},
         {"\"24:00:00Z\"", "\"12:60:00Z\"", "\"12:00:00\""}},
        {"{\"type\":\"string\",\"format\":\"date-time\"}",
         {"\"2024-01-31T10:20:30Z\"", "\"2024-01-31T10:20:30.123456-08:00\""},
         {"\"2024-01-31 10:20:30Z\"", "\"2024-01-31\"", "\"2024-02-30T10:20:30Z\""}},
        {"{\"type\":\"string\",\"format\":\"uuid\"}",
         {"\"123e4567-e89b-12d3-A456-426614174000\""},
         {"\"123e4567e89b12d3a456426614174000\"", "\"123e4567-e89b-12d3-a456-42661417400g\""}},
        {"{\"type\":\"string\",\"format\":\"email\"}",
         {"\"ann.lee+x@mail.example.com\"", "\"a@b.io\""},
         {"\"a@b\"", "\"a b@c.de\"", "\".a@b.de\"", "\"a@-b.de\""}},
        {"{\"type\":\"string\",\"format\":\"ipv4\"}",
         {"\"0.0.0.0\"", "\"255.255.255.255\"", "\"192.168.1.10\""},
         {"\"256.1.1.1\"", "\"1.2.3\"", "\"01.2.3.4\""}},
        {"{\"type\":\"string\",\"format\":\"ipv6\"}",
         {"\"::\"", "\"::1\"", "\"2001:db8::8a2e:370:7334\"", "\"1:2:3:4:5:6:7:8\"", "\"fe80::\""},
         {"\"1:2:3\"", "\"1::2::3\"", "\"12345::\"", "\"1:2:3:4:5:6:7:8:9\""}},
        {"{\"type\":\"string\",\"format\":\"uri\"}",
         {"\"https://example.com:8080/a/b?x=1&y=%20#top\"", "\"mailto:a@b.de\"", "\"urn:isbn:1\""},
         {"\"example.com\"", "\"http://a b\"", "\"http://a/%zz\""}},
        {"{\"type\":\"string\",\"format\":\"hostname\"}",
         {"\"localhost\"", "\"a-b.example.com\""},
         {"\"-a\"", "\"a..b\"", "\"a_b\""}},
        {"{\"type\":\"string\",\"format\":\"duration\"}",
         {"\"P1Y2M3DT4H5M6S\"", "\"PT5M\"", "\"P3W\""},
         {"\"P\"", "\"PT\"", "\"P1H\"", "\"1D\""}},
        {"{\"type\":\"string\",\"format\":\"email\",\"pattern\":\"^x$\"}",
         {"\"x\""},
         {"\"a@b.io\""}},
        {"{\"type\":\"string\",\"format\":\"password\"}", {"\"x\""}, {"1"}},
    };
    CHECK_ROWS(LP_GRAMMAR_SCHEMA, rows);
}

static void test_numbers(void **state) {
    (void)state;
    static const struct grammar_row rows[] = {
        {"{\"type\":\"integer\",\"minimum\":0}", {"0", "7", "999999999999999999"}, {"-1", "1.5"}},
        {"{\"type\":\"integer\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":10}",
         {"1", "9"},
         {"0", "10", "-1", "11"}},
        {"{\"type\":\"integer\",\"minimum\":-5,\"maximum\":5}",
         {"-5", "0", "5"},
         {"-6", "6", "-0"}},
        {"{\"type\":\"integer\",\"minimum\":1.5,\"maximum\":3.5}", {"2", "3"}, {"1", "4"}},
        {"{\"type\":\"integer\",\"minimum\":-9007199254740991,\"maximum\":9007199254740991}",
         {"9007199254740991", "-9007199254740991"},
         {"9007199254740992", "-9007199254740992"}},
        {"{\"type\":\"integer\",\"maximum\":18446744073709551615}", {"5", "-5"}, {"5.5"}},
        {"{\"type\":\"integer\",\"minimum\":5,\"exclusiveMinimum\":7}", {"8"}, {"5", "7"}},
        {"{\"type\":\"integer\",\"minimum\":5,\"exclusiveMinimum\":true}", {"6"}, {"5"}},
        {"{\"type\":\"integer\",\"format\":\"int32\"}",
         {"2147483647", "-2147483648"},
         {"2147483648", "-2147483649"}},
        {"{\"type\":\"integer\",\"format\":\"int64\"}", {"2147483648"}, {"x"}},
        {"{\"type\":\"integer\",\"multipleOf\":5}", {"0", "5", "-15", "100"}, {"1", "-7", "12"}},
        {"{\"type\":\"integer\",\"multipleOf\":7,\"minimum\":15,\"maximum\":40}",
         {"21", "28", "35"},
         {"14", "20", "42"}},
        {"{\"type\":\"number\",\"multipleOf\":100}",
         {"0", "300", "-12300"},
         {"50", "100.5", "1e2"}},
        {"{\"type\":\"number\",\"minimum\":0,\"maximum\":1}",
         {"0", "1", "0.5", "0.00001", "1.0", "0.99999999999999"},
         {"-0.1", "1.1", "1.01", "2", "1e-3"}},
        {"{\"type\":\"number\",\"exclusiveMinimum\":0}",
         {"0.1", "5", "1234.5"},
         {"0", "0.0", "-1"}},
        {"{\"type\":\"number\",\"exclusiveMaximum\":0.5}",
         {"0.49", "-3", "0"},
         {"0.5", "0.50", "1"}},
        {"{\"type\":\"number\",\"minimum\":-2.25,\"maximum\":-1.5}",
         {"-2.25", "-1.5", "-2", "-1.75", "-2.2"},
         {"-2.26", "-1.4", "-1", "2", "0"}},
        {"{\"type\":\"number\",\"minimum\":1e-20,\"maximum\":3}",
         {"1", "0.1"},
         {"0", "0.0", "3.1"}},
        {"{\"type\":\"number\",\"maximum\":1e300}", {"999999999999999", "-1.5"}, {"1e5"}},
        {"{\"type\":\"number\",\"minimum\":0.1}", {"0.1", "0.10", "0.11", "1"}, {"0.09", "0"}},
    };
    CHECK_ROWS(LP_GRAMMAR_SCHEMA, rows);
}

static bool is_accepted(struct lp_grammar *grammar, const char *format, double value) {
    char text[64];
    snprintf(text, sizeof text, format, value);
    return lp_grammar_matches(grammar, lp_str_from(text));
}

// All whole numbers around the bounds, against comparison.
static void test_integer_ranges_are_exact(void **state) {
    (void)state;
    static const int bounds[] = {-1201, -1000, -999, -101, -100, -17, -1,  0,
                                 1,     9,     10,   85,   99,   100, 999, 1130};
    enum { N = sizeof bounds / sizeof *bounds };
    for (int i = 0; i < N; i++)
        for (int k = i; k < N; k++) {
            const int multiple = 1 + (i + k) % 3 * 3; // 1, 4, 7
            char schema[160];
            snprintf(schema, sizeof schema,
                     "{\"type\":\"integer\",\"minimum\":%d,\"maximum\":%d,\"multipleOf\":%d}",
                     bounds[i], bounds[k], multiple);
            struct lp_grammar *grammar;
            bool is_empty = true;
            for (int n = bounds[i]; n <= bounds[k]; n++) is_empty &= n % multiple != 0;
            lp_status status = lp_grammar_compile(&grammar, LP_GRAMMAR_SCHEMA, lp_str_from(schema),
                                                  NULL, NULL, NULL, NULL);
            assert_int_equal(status, is_empty ? LP_STATUS_INVALID : LP_OK);
            for (int n = -1300; !is_empty && n <= 1300; n += 1 + (n % 13 == 0 ? 5 : 0)) {
                bool valid = n >= bounds[i] && n <= bounds[k] && n % multiple == 0;
                if (is_accepted(grammar, "%.0f", n) != valid) fail_msg("%d of %s", n, schema);
            }
            lp_grammar_put(grammar);
        }
}

static void test_number_ranges_are_exact(void **state) {
    (void)state;
    static const double bounds[] = {-120.5, -100, -2.25, -0.125, 0, 0.001, 0.5, 1, 9.75, 10, 99.5};
    enum { N = sizeof bounds / sizeof *bounds };
    for (int i = 0; i < N; i++)
        for (int k = i + 1; k < N; k++) {
            char schema[160];
            snprintf(schema, sizeof schema,
                     "{\"type\":\"number\",\"minimum\":%g,\"exclusiveMaximum\":%g}", bounds[i],
                     bounds[k]);
            struct lp_grammar *grammar = compile_row(LP_GRAMMAR_SCHEMA, schema);
            for (int n = -1000; n <= 1000; n++) {
                double value = n / 8.0; // exact, three digits
                bool valid = value >= bounds[i] && value < bounds[k];
                if (n == 0) continue; // may be -0.000
                if (is_accepted(grammar, "%.3f", value) != valid)
                    fail_msg("%g of %s", value, schema);
            }
            lp_grammar_put(grammar);
        }
}

static void test_values(void **state) {
    (void)state;
    static const struct grammar_row rows[] = {
        {"{\"enum\":[\"a\",1,null,true,2.5]}",
         {"\"a\"", "1", "null", "true", "2.5"},
         {"\"b\"", "1.0", "false", "a"}},
        {"{\"const\":{\"a\":[1,{\"b\":\"x\\n\\\"\"}],\"c\":{}}}",
         {"{\"a\":[1,{\"b\":\"x\\n\\\"\"}],\"c\":{}}",
          "{\"a\": [1, {\"b\": \"x\\n\\\"\"}], \"c\": {}}",
          "{\n  \"a\": [\n    1,\n    {\"b\":\"x\\n\\\"\"}\n  ],\n  \"c\": {}\n}"},
         {"{\"c\":{},\"a\":[1,{\"b\":\"x\\n\\\"\"}]}", "{}"}},
        {"{\"const\":0.1}", {"0.1"}, {"0.10000000000000001", "0"}},
        {"{\"const\":1e300}", {"1e+300"}, {"1"}},
        {"{\"enum\":[1,\"a\",null],\"type\":[\"string\",\"null\"]}", {"\"a\"", "null"}, {"1"}},
        {"{\"enum\":[1,5,9],\"minimum\":4}", {"5", "9"}, {"1"}},
        {"{\"enum\":[\"a\",\"bb\",\"ccc\"],\"minLength\":2,\"pattern\":\"^[a-b]+$\"}",
         {"\"bb\""},
         {"\"a\"", "\"ccc\""}},
        {"{\"enum\":[{\"a\":1},{\"a\":\"x\"},{}],\"properties\":{\"a\":{\"type\":\"integer\"}},"
         "\"required\":[\"a\"]}",
         {"{\"a\":1}"},
         {"{\"a\":\"x\"}", "{}"}},
        {"{\"const\":2,\"enum\":[1,2]}", {"2"}, {"1"}},
        {"{\"enum\":[\"\xE2\x82\xAC\",\"\\ud83d\\ude00\"]}",
         {"\"\xE2\x82\xAC\"", "\"\xF0\x9F\x98\x80\""},
         {"\"\\u20ac\""}},
    };
    CHECK_ROWS(LP_GRAMMAR_SCHEMA, rows);
}

static void test_arrays(void **state) {
    (void)state;
    static const struct grammar_row rows[] = {
        {"{\"type\":\"array\"}", {"[]", "[ ]", "[1, \"a\", [null]]"}, {"[1,]", "[", "{}"}},
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}",
         {"[]", "[1]", "[1,2,3]", "[\n  1,\n  2\n]"},
         {"[\"a\"]", "[1,null]", "[1  ,2]", "[1 ,2]", "[\n\n1]"}},
        {"{\"type\":\"array\",\"items\":{\"type\":\"null\"},\"minItems\":2,\"maxItems\":3}",
         {"[null,null]", "[null, null, null]"},
         {"[]", "[null]", "[null,null,null,null]"}},
        {"{\"type\":\"array\",\"items\":{\"type\":\"null\"},\"maxItems\":1}",
         {"[]", "[null]"},
         {"[null,null]"}},
        {"{\"type\":\"array\",\"maxItems\":0}", {"[]"}, {"[1]"}},
        {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}]}",
         {"[]", "[1]", "[1,\"a\"]", "[1,\"a\",null,true]"},
         {"[\"a\"]", "[1,2]"}},
        {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}],"
         "\"items\":false,\"minItems\":2}",
         {"[1,\"a\"]"},
         {"[]", "[1]", "[1,\"a\",2]"}},
        {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"null\"}],\"items\":{\"type\":"
         "\"integer\"},"
         "\"minItems\":2,\"maxItems\":3}",
         {"[null,1]", "[null,1,2]"},
         {"[null]", "[null,1,2,3]", "[1,2]"}},
        {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"null\"},false]}",
         {"[]", "[null]"},
         {"[null,1]"}},
        {"{\"items\":{\"type\":\"integer\"}}", {"[1]"}, {"[\"a\"]", "1"}},
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"uniqueItems\":false}",
         {"[1,1]"},
         {"1"}},
    };
    CHECK_ROWS(LP_GRAMMAR_SCHEMA, rows);
}

static void test_objects(void **state) {
    (void)state;
    static const struct grammar_row rows[] = {
        {"{\"type\":\"object\"}", {"{}", "{\"a\":1}", "{ \"a\": {}, \"b\": [] }"}, {"{a:1}", "[]"}},
        {OBJ("\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"null\"}") ",\"required\":[\"a\","
                                                                       "\"b\"]" CLOSED,
         {"{\"a\":1,\"b\":null}", "{\"a\": 1, \"b\": null}", "{\n\t\"a\": 1,\n\t\"b\": null\n}"},
         {"{\"b\":null,\"a\":1}", "{\"a\":1}", "{}", "{\"a\":1,\"b\":null,\"c\":1}",
          "{\"a\":1 ,\"b\":null}"}},
        {OBJ("\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"null\"},\"c\":{\"type\":"
             "\"boolean\"}") CLOSED,
         {"{}", "{\"a\":1}", "{\"b\":null}", "{\"c\":true}", "{\"a\":1,\"c\":true}",
          "{\"b\":null,\"c\":true}", "{\"a\":1,\"b\":null,\"c\":false}"},
         {"{\"a\":1,}", "{,\"a\":1}", "{\"c\":true,\"a\":1}", "{\"a\":1,\"a\":1}"}},
        {OBJ("\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"null\"},\"c\":{\"type\":"
             "\"boolean\"}") ",\"required\":[\"b\"]" CLOSED,
         {"{\"b\":null}", "{\"a\":1,\"b\":null}", "{\"b\":null,\"c\":true}",
          "{\"a\":1,\"b\":null,\"c\":true}"},
         {"{}", "{\"a\":1}", "{\"a\":1,\"c\":true}"}},
        {OBJ("\"ab\":{\"type\":\"integer\"},\"ac\":{\"type\":\"null\"},\"a\":{\"type\":"
             "\"boolean\"}") "}",
         {"{}", "{\"ab\":1,\"x\":2}", "{\"x\":1,\"y\":\"z\"}", "{\"\":1}", "{\"abc\":\"s\"}",
          "{\"ad\":0}", "{\"a\":true,\"b\":0}", "{\"x\\u0061\":1}"},
         {"{\"ab\":\"s\"}", "{\"x\":1,\"ab\":\"s\"}", "{\"a\\u0062\":\"s\"}",
          "{\"x\":1,\"a\":true}"}},
        {OBJ("\"\":{\"type\":\"null\"},\"q\\\"\\n\":{\"type\":\"null\"}") "}",
         {"{\"\":null,\"q\\\"\\n\":null,\"x\":1}", "{\"q\":1}", "{\"q\\\"\":1}",
          "{\"q\\\"\\t\":1}"},
         {"{\"\":1}", "{\"q\\\"\\n\":1}"}},
        {OBJ("\"\xC3\xA9\":{\"type\":\"null\"}") "}",
         {"{\"\xC3\xA9\":null}", "{\"e\":1}", "{\"\xC3\xA8\":1}"},
         {"{\"\xC3\xA9\":1}", "{\"\\u00e9\":1}"}},
        {OBJ("\"a\":{\"type\":\"null\"}") ",\"additionalProperties\":{\"type\":\"integer\"}}",
         {"{\"a\":null,\"b\":1,\"c\":2}", "{\"b\":1}"},
         {"{\"b\":null}", "{\"a\":1}"}},
        {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"}}",
         {"{}", "{\"a\":1, \"b\":2}"},
         {"{\"a\":null}"}},
        {"{\"type\":\"object\",\"required\":[\"x\",\"y\"]}",
         {"{\"x\":1,\"y\":null}", "{\"x\":1,\"y\":2,\"z\":3}"},
         {"{}", "{\"x\":1}", "{\"z\":1,\"x\":1,\"y\":2}"}},
        {OBJ("\"a\":false,\"b\":{\"type\":\"null\"}") "}",
         {"{}", "{\"b\":null}", "{\"c\":1}"},
         {"{\"a\":1}"}},
        {OBJ("\"a\":true,\"b\":true,\"c\":true") ",\"minProperties\":2" CLOSED,
         {"{\"a\":1,\"b\":1}", "{\"a\":1,\"c\":1}", "{\"b\":1,\"c\":1}",
          "{\"a\":1,\"b\":1,\"c\":1}"},
         {"{}", "{\"a\":1}", "{\"c\":1}"}},
        {OBJ("\"a\":true,\"b\":true,\"c\":true") ",\"maxProperties\":1}",
         {"{}", "{\"a\":1}", "{\"c\":1}", "{\"x\":1}"},
         {"{\"a\":1,\"b\":1}", "{\"a\":1,\"x\":1}", "{\"x\":1,\"y\":1}"}},
        {"{\"type\":\"object\",\"minProperties\":1}", {"{\"a\":1}"}, {"{}"}},
        {OBJ("\"a\":true") ",\"minProperties\":2}",
         {"{\"a\":1,\"b\":2}"},
         {"{\"a\":1}", "{\"b\":1,\"b\":2}", "{}"}},
        {"{\"properties\":{\"a\":{\"type\":\"null\"}}}", {"{\"a\":null}"}, {"1"}},
        {OBJ("\"a\":{\"type\":\"object\",\"properties\":{\"b\":{\"type\":\"array\",\"items\":{"
             "\"type\":\"string\"}}},"
             "\"required\":[\"b\"],\"additionalProperties\":false}") ",\"required\":["
                                                                     "\"a\"]" CLOSED,
         {"{\"a\":{\"b\":[\"x\",\"y\"]}}",
          "{\n  \"a\": {\n    \"b\": [\n      \"x\"\n    ]\n  }\n}"},
         {"{\"a\":{}}", "{\"a\":{\"b\":[1]}}", "{\n                 \"a\":{\"b\":[]}}"}},
    };
    CHECK_ROWS(LP_GRAMMAR_SCHEMA, rows);
}

#define NODE                                                                                       \
    "{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},\"next\":{\"anyOf\":["      \
    "{\"$ref\":\"#/$defs/node\"},{\"type\":\"null\"}]}},\"required\":[\"v\",\"next\"],"            \
    "\"additionalProperties\":false}"

static void test_references_and_combinations(void **state) {
    (void)state;
    static const struct grammar_row rows[] = {
        {"{\"$ref\":\"#/$defs/node\",\"$defs\":{\"node\":" NODE "}}",
         {"{\"v\":1,\"next\":null}",
          "{\"v\":1,\"next\":{\"v\":2,\"next\":{\"v\":3,\"next\":null}}}"},
         {"{\"v\":1}", "{\"v\":1,\"next\":{\"v\":2}}", "null"}},
        {"{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}", {"[]", "[[],[[]]]"}, {"[1]"}},
        {"{\"$ref\":\"#/definitions/a~1b%20c\",\"definitions\":{\"a/b c\":{\"type\":\"null\"}}}",
         {"null"},
         {"1"}},
        {"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"null\"}]}", {"1", "null"}, {"\"a\""}},
        {"{\"anyOf\":[{\"type\":\"integer\"},false]}", {"1"}, {"null"}},
        {"{\"type\":\"integer\",\"anyOf\":[{\"maximum\":2},{\"minimum\":8}]}",
         {"1", "9"},
         {"5", "1.5"}},
        {"{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]}", {"1", "\"a\""}, {"null"}},
        {"{\"oneOf\":[{\"const\":\"a\"},{\"const\":\"b\"}]}", {"\"a\"", "\"b\""}, {"\"c\""}},
        {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"a\"},\"n\":{\"type\":"
         "\"integer\"}},"
         "\"required\":[\"k\",\"n\"]},{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"b\"}}"
         ","
         "\"required\":[\"k\"]}],\"discriminator\":{\"propertyName\":\"k\"}}",
         {"{\"k\":\"a\",\"n\":1}", "{\"k\":\"b\"}"},
         {"{\"k\":\"a\"}", "{\"k\":\"c\"}"}},
        {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"a\":true},\"required\":[\"a\"],"
         "\"additionalProperties\":false},"
         "{\"type\":\"object\",\"properties\":{\"b\":true},\"required\":[\"b\"],"
         "\"additionalProperties\":false}]}",
         {"{\"a\":1}", "{\"b\":1}"},
         {"{}", "{\"a\":1,\"b\":1}"}},
        {"{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},"
         "\"required\":[\"a\"]},"
         "{\"type\":\"object\",\"properties\":{\"b\":{\"type\":\"null\"}},\"required\":[\"b\"]}]}",
         {"{\"a\":1,\"b\":null}", "{\"a\":1,\"b\":null,\"c\":2}"},
         {"{\"a\":1}", "{\"b\":null}", "{\"a\":\"x\",\"b\":null}"}},
        {"{\"allOf\":[{\"properties\":{\"a\":{\"minimum\":3}}},{\"properties\":{\"a\":{\"type\":"
         "\"integer\",\"maximum\":5}}}],"
         "\"type\":\"object\",\"required\":[\"a\"]}",
         {"{\"a\":3}", "{\"a\":5}"},
         {"{\"a\":2}", "{\"a\":6}", "{\"a\":3.5}"}},
        {"{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":true},\"additionalProperties\":"
         "false},"
         "{\"properties\":{\"b\":true}}]}",
         {"{}", "{\"a\":1}"},
         {"{\"b\":1}", "{\"a\":1,\"b\":1}"}},
        {"{\"allOf\":[{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\"}]},{\"anyOf\":[{"
         "\"type\":\"string\"},"
         "{\"type\":\"null\"}]}]}",
         {"\"a\""},
         {"1", "null"}},
        {"{\"allOf\":[{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"}]},{\"items\":{"
         "\"minimum\":2}}]}",
         {"[]", "[2]", "[3,4.5]"},
         {"[1]", "[2.5]", "[3,1]"}},
        {"{\"$ref\":\"#/$defs/"
         "p\",\"required\":[\"b\"],\"$defs\":{\"p\":{\"type\":\"object\",\"properties\":"
         "{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"integer\"}},\"additionalProperties\":"
         "false}}}",
         {"{\"b\":1}", "{\"a\":1,\"b\":1}"},
         {"{\"a\":1}", "{}"}},
        {"{\"type\":\"object\",\"properties\":{\"x\":{\"$ref\":\"#/$defs/"
         "n\",\"nullable\":true}},\"required\":[\"x\"],"
         "\"$defs\":{\"n\":{\"type\":\"integer\"}}}",
         {"{\"x\":null}", "{\"x\":1}"},
         {"{\"x\":\"a\"}"}},
        // Pydantic: an optional field, and an enumeration behind a reference.
        {"{\"$defs\":{\"Color\":{\"enum\":[\"red\",\"green\"],\"title\":\"Color\",\"type\":"
         "\"string\"}},"
         "\"properties\":{\"c\":{\"allOf\":[{\"$ref\":\"#/$defs/"
         "Color\"}],\"default\":\"red\"},\"n\":{\"anyOf\":"
         "[{\"type\":\"string\"},{\"type\":\"null\"}],\"default\":null,\"title\":\"N\"}},"
         "\"required\":[\"n\"],"
         "\"title\":\"Item\",\"type\":\"object\"}",
         {"{\"n\":null}", "{\"c\":\"green\",\"n\":\"x\"}"},
         {"{\"c\":\"blue\",\"n\":null}", "{\"c\":\"red\"}"}},
        // A schema that comes back inside what merging makes of it.
        {"{\"$ref\":\"#/$defs/"
         "t\",\"$defs\":{\"t\":{\"type\":\"object\",\"properties\":{\"k\":{\"allOf\":"
         "[{\"$ref\":\"#/$defs/"
         "t\"},{\"required\":[\"v\"]}]},\"v\":{\"type\":\"integer\"}},\"additionalProperties\":"
         "false}}}",
         {"{}", "{\"k\":{\"k\":{\"v\":1},\"v\":2}}", "{\"v\":1}"},
         {"{\"k\":{}}", "{\"k\":{\"k\":{},\"v\":1}}"}},
    };
    CHECK_ROWS(LP_GRAMMAR_SCHEMA, rows);
}

static void test_refusals(void **state) {
    (void)state;
    static const struct refused_row rows[] = {
        {"{\"type\":\"array\",\"uniqueItems\":true}", LP_STATUS_UNSUPPORTED,
         "#: the keyword \"uniqueItems\""},
        {OBJ("\"a/b\":{\"not\":{}}") "}", LP_STATUS_UNSUPPORTED,
         "#/properties/a~1b: the keyword \"not\""},
        {"{\"type\":\"array\",\"items\":{\"contains\":{}}}", LP_STATUS_UNSUPPORTED,
         "#/items: the keyword \"contains\""},
        {"{\"if\":{},\"then\":{}}", LP_STATUS_UNSUPPORTED, "\"if\""},
        {"{\"type\":\"object\",\"patternProperties\":{\"a\":{}}}", LP_STATUS_UNSUPPORTED,
         "\"patternProperties\""},
        {"{\"type\":\"object\",\"propertyNames\":{\"maxLength\":3}}", LP_STATUS_UNSUPPORTED,
         "\"propertyNames\""},
        {"{\"type\":\"object\",\"dependentRequired\":{\"a\":[\"b\"]}}", LP_STATUS_UNSUPPORTED,
         "\"dependentRequired\""},
        {"{\"unevaluatedProperties\":false}", LP_STATUS_UNSUPPORTED, "\"unevaluatedProperties\""},
        {"{\"type\":\"string\",\"format\":\"iri\"}", LP_STATUS_UNSUPPORTED, "\"iri\""},
        {"{\"type\":\"string\",\"pattern\":\"(?=a)\"}", LP_STATUS_UNSUPPORTED,
         "\"pattern\", character 3: lookahead"},
        {"{\"type\":\"string\",\"pattern\":\"(\"}", LP_STATUS_INVALID, "\")\" is missing"},
        {"{\"type\":\"string\",\"pattern\":\"a+b+\",\"maxLength\":4}", LP_STATUS_UNSUPPORTED,
         "open length"},
        {"{\"type\":\"number\",\"multipleOf\":0.01}", LP_STATUS_UNSUPPORTED, "\"multipleOf\""},
        {"{\"type\":\"integer\",\"multipleOf\":101}", LP_STATUS_UNSUPPORTED, "\"multipleOf\""},
        {"{\"type\":\"integer\",\"multipleOf\":0}", LP_STATUS_INVALID, "\"multipleOf\""},
        {"{\"type\":\"number\",\"minimum\":1e15}", LP_STATUS_UNSUPPORTED, "15 digits"},
        {"{\"items\":[{}]}", LP_STATUS_UNSUPPORTED, "prefixItems"},
        {"{\"$ref\":\"http://example.com/s\"}", LP_STATUS_UNSUPPORTED, "http://example.com/s"},
        {"{\"$ref\":\"#name\"}", LP_STATUS_UNSUPPORTED, "#name"},
        {"{\"$ref\":\"#/$defs/x\"}", LP_STATUS_INVALID, "there is no schema"},
        {"{\"$ref\":\"#\"}", LP_STATUS_LIMIT, "circle"},
        {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", LP_STATUS_UNSUPPORTED,
         "branches 0 and 1"},
        {"{\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}", LP_STATUS_UNSUPPORTED,
         "\"oneOf\""},
        {"{\"allOf\":[{\"pattern\":\"a\"},{\"pattern\":\"b\"}]}", LP_STATUS_UNSUPPORTED,
         "two different \"pattern\""},
        {"{\"type\":\"object\",\"minProperties\":2}", LP_STATUS_UNSUPPORTED, "\"minProperties\""},
        {"false", LP_STATUS_INVALID, "allows no value"},
        {"{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", LP_STATUS_INVALID,
         "#: the lower bound"},
        {"{\"type\":\"integer\",\"exclusiveMinimum\":3,\"maximum\":3}", LP_STATUS_INVALID,
         "lower bound"},
        {"{\"type\":\"string\",\"minLength\":3,\"maxLength\":2}", LP_STATUS_INVALID,
         "\"minLength\""},
        {"{\"type\":\"array\",\"minItems\":3,\"maxItems\":2}", LP_STATUS_INVALID, "at least 3"},
        {OBJ("\"a\":{\"type\":\"array\",\"items\":false,\"minItems\":1}") ",\"required\":[\"a\"]}",
         LP_STATUS_INVALID, "#/properties/a"},
        {"{\"type\":\"object\",\"required\":[\"a\"],\"additionalProperties\":false}",
         LP_STATUS_INVALID, "#/required/a"},
        {"{\"allOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]}", LP_STATUS_INVALID,
         "no value is valid"},
        {"{\"enum\":[1],\"type\":\"string\"}", LP_STATUS_INVALID, "\"enum\""},
        {"{\"$ref\":\"#/$defs/n\",\"$defs\":{\"n\":" OBJ(
             "\"n\":{\"$ref\":\"#/$defs/n\"}") ",\"required\":[\"n\"]}}}",
         LP_STATUS_INVALID, "matches no text"},
        {"{\"type\":\"strin\"}", LP_STATUS_INVALID, "\"type\" must be"},
        {"{\"type\":[]}", LP_STATUS_INVALID, "\"type\" must be"},
        {"{\"enum\":[]}", LP_STATUS_INVALID, "\"enum\" must be"},
        {"{\"required\":\"a\"}", LP_STATUS_INVALID, "\"required\" must be"},
        {"{\"properties\":[]}", LP_STATUS_INVALID, "\"properties\" must be"},
        {"{\"properties\":{\"a\":1}}", LP_STATUS_INVALID, "\"properties\" must be"},
        {"{\"minLength\":-1}", LP_STATUS_INVALID, "\"minLength\" must be"},
        {"{\"minLength\":1.5}", LP_STATUS_INVALID, "\"minLength\" must be"},
        {"{\"type\":\"string\",\"minLength\":10001}", LP_STATUS_LIMIT, "at most 10000"},
        {"{\"anyOf\":[]}", LP_STATUS_INVALID, "\"anyOf\" must be"},
        {"3", LP_STATUS_INVALID, "must be an object"},
        {"{\"type\":", LP_STATUS_INVALID, "no JSON"},
        {"", LP_STATUS_INVALID, "no JSON"},
        {"{\"const\":123456789012345678901234567890}", LP_STATUS_UNSUPPORTED, "64 bits"},
    };
    CHECK_REFUSED(LP_GRAMMAR_SCHEMA, rows);
}

// "$ref" chains that double at each step: small as rules, exponential where they are merged.
static void test_hostile_references_meet_a_limit(void **state) {
    (void)state;
    static const char *const steps[] = {
        "{\"type\":\"array\",\"prefixItems\":[{\"$ref\":\"#/$defs/%d\"},{\"$ref\":\"#/$defs/"
        "%d\"}]}",
        "{\"allOf\":[{\"$ref\":\"#/$defs/%d\"},{\"$ref\":\"#/$defs/%d\"}]}",
        "{\"allOf\":[{\"properties\":{\"x\":{\"$ref\":\"#/$defs/"
        "%d\"}}},{\"properties\":{\"x\":{\"$ref\":\"#/$defs/%d\"}}}]}",
        "{\"anyOf\":[{\"$ref\":\"#/$defs/%d\"},{\"$ref\":\"#/$defs/%d\"}],\"minimum\":1}",
        "{\"oneOf\":[{\"$ref\":\"#/$defs/%d\"},{\"$ref\":\"#/$defs/%d\"}]}",
    };
    static const lp_status statuses[] = {LP_OK, LP_STATUS_LIMIT, LP_STATUS_LIMIT, LP_STATUS_LIMIT,
                                         LP_STATUS_UNSUPPORTED};
    for (size_t k = 0; k < sizeof steps / sizeof *steps; k++) {
        struct lp_bytes text = {0};
        lp_bytes_puts(&text, "{\"$ref\":\"#/$defs/0\",\"$defs\":{");
        for (int i = 0; i < 30; i++) {
            lp_bytes_printf(&text, "\"%d\":", i);
            lp_bytes_printf(&text, steps[k], i + 1, i + 1);
            lp_bytes_puts(&text, ",");
        }
        lp_bytes_puts(&text, "\"30\":{\"type\":\"integer\"}}}");
        struct lp_grammar *grammar;
        struct lp_err err = {0};
        lp_status status = lp_grammar_compile(&grammar, LP_GRAMMAR_SCHEMA, lp_bytes_view(&text),
                                              NULL, NULL, NULL, &err);
        assert_int_equal(status, statuses[k]);
        lp_grammar_put(grammar);
        lp_bytes_release(&text);
    }
}

static void test_deep_schemas_are_refused(void **state) {
    (void)state;
    struct lp_bytes text = {0};
    for (int i = 0; i < 70; i++) lp_bytes_puts(&text, "{\"items\":");
    lp_bytes_puts(&text, "true");
    for (int i = 0; i < 70; i++) lp_bytes_puts(&text, "}");
    const struct refused_row row = {text.data, LP_STATUS_LIMIT, "nested deeper than 64"};
    check_refused(LP_GRAMMAR_SCHEMA, &row, 1);
    lp_bytes_release(&text);
}

// Allocations that fail, the first ones each in turn: MEMORY, and nothing leaks (a sanitizer sees
// to that).
static void test_failing_allocations(void **state) {
    (void)state;
    static const char schema[] =
        "{\"$ref\":\"#/$defs/"
        "t\",\"required\":[\"a\"],\"$defs\":{\"t\":{\"type\":\"object\",\"properties\":"
        "{\"a\":{\"type\":\"string\",\"pattern\":\"^[a-c]+x$\"},\"b\":{\"type\":\"integer\","
        "\"multipleOf\":7},"
        "\"c\":{\"oneOf\":[{\"const\":[1,\"x\"]},{\"$ref\":\"#/$defs/"
        "t\"}]}},\"maxProperties\":3}}}";
    lp_status status = LP_STATUS_MEMORY;
    size_t nth = 0;
    while (status == LP_STATUS_MEMORY && nth < 100000) {
        struct lp_grammar *grammar;
        struct lp_err err = {0};
        lp_alloc_fail_after(nth += 1 + nth / 40);
        status = lp_grammar_compile(&grammar, LP_GRAMMAR_SCHEMA, lp_str_from(schema), NULL, NULL,
                                    NULL, &err);
        lp_alloc_fail_after(0);
        lp_grammar_put(grammar);
    }
    assert_int_equal(status, LP_OK);
    assert_true(nth > 50);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scalars),
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_integer_ranges_are_exact),
        cmocka_unit_test(test_number_ranges_are_exact),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_objects),
        cmocka_unit_test(test_references_and_combinations),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_hostile_references_meet_a_limit),
        cmocka_unit_test(test_deep_schemas_are_refused),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
