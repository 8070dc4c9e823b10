// What models write and what is to become of it. From the published formats of the families (GLM's,
// DeepSeek's, Kimi's and Qwen's chat templates) and from slips of models that users of other
// engines have reported. Arguments are compared byte by byte.
#ifndef REPLY_CASES_H
#define REPLY_CASES_H

#include "text/reply.h"

struct reply_case {
    enum lp_reply_syntax syntax;
    bool in_reasoning, tools;
    const char *text, *reasoning, *content;
    const char *calls; // name{arguments} of each, a line end behind each
    int n_repairs;
};

// clang-format off
static const char reply_tools[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"parameters\": {\"type\": \"object\","
    "  \"properties\": {\"city\": {\"type\": \"string\"}, \"days\": {\"type\": \"integer\"},"
    "   \"metric\": {\"type\": \"boolean\"}, \"where\": {\"type\": \"object\"}, \"tags\": {\"type\": \"array\"},"
    "   \"ratio\": {\"type\": \"number\"},"
    "   \"note\": {\"anyOf\": [{\"type\": \"string\"}, {\"type\": \"null\"}]}}}}},"
    " {\"type\": \"function\", \"function\": {\"name\": \"grep\", \"parameters\": {\"properties\":"
    "   {\"_toolbox\": {\"type\": \"string\"}}}}},"
    " {\"type\": \"function\", \"function\": {\"name\": \"grep_tool\", \"parameters\": {\"properties\":"
    "   {\"pattern\": {\"type\": \"string\"}, \"n\": {\"type\": \"integer\"}}}}},"
    " {\"type\": \"function\", \"function\": {\"name\": \"get_time\"}}]";

#define K(key) "<arg_key>" key "</arg_key>"
#define V(value) "<arg_value>" value "</arg_value>"
#define CALL(text) "<tool_call>" text "</tool_call>"
#define CITY CALL("get_weather" K("city") V("Paris"))
#define CITY_OUT "get_weather{\"city\": \"Paris\"}\n"

#define DS_SECTION(text) "<｜tool▁calls▁begin｜>" text "<｜tool▁calls▁end｜>"
#define DS_CALL(text) "<｜tool▁call▁begin｜>" text "<｜tool▁call▁end｜>"
#define DS_SEP "<｜tool▁sep｜>"
#define DS_V3(name, json) DS_CALL("function" DS_SEP name "\n```json\n" json "\n```")
#define DS_V31(name, json) DS_CALL(name DS_SEP json)

#define DSML(text) "<｜DSML｜function_calls>" text "</｜DSML｜function_calls>"
#define INVOKE(name, text) "<｜DSML｜invoke name=\"" name "\">" text "</｜DSML｜invoke>"
#define PARAMETER(attributes, text) "<｜DSML｜parameter " attributes ">" text "</｜DSML｜parameter>"

#define KIMI(text) "<|tool_calls_section_begin|>" text "<|tool_calls_section_end|>"
#define KIMI_CALL(id, json) "<|tool_call_begin|>" id "<|tool_call_argument_begin|>" json "<|tool_call_end|>"

static const struct reply_case reply_cases[] = {
    // ---- reasoning; the same for all syntaxes ----
    {LP_SYNTAX_PLAIN, true, false, "I think.</think>Yes.", "I think.", "Yes.", "", 0},
    {LP_SYNTAX_PLAIN, true, false, "\nI think.\n</think>\n\nYes.\n", "\nI think.\n", "Yes.\n", "", 0},
    {LP_SYNTAX_PLAIN, false, false, "<think>I think.</think>Yes.", "I think.", "Yes.", "", 0},
    {LP_SYNTAX_PLAIN, false, false, " \n<think>\nI think.\n</think>\n\n  Yes.", "\nI think.\n", "  Yes.", "", 0},
    {LP_SYNTAX_PLAIN, true, false, "<think>I think.</think>Yes.", "I think.", "Yes.", "", 0},
    {LP_SYNTAX_PLAIN, true, false, "\n<think>a<think>b</think>c", "a<think>b", "c", "", 0},
    {LP_SYNTAX_PLAIN, true, false, "I think and", "I think and", "", "", 0},
    {LP_SYNTAX_PLAIN, true, false, "", "", "", "", 0},
    {LP_SYNTAX_PLAIN, true, false, "\n\n</think>\n\nYes.", "", "Yes.", "", 0},
    {LP_SYNTAX_PLAIN, true, false, "</think>a</think>b", "", "a</think>b", "", 0},
    {LP_SYNTAX_PLAIN, false, false, "a</think>b", "", "a</think>b", "", 0},
    {LP_SYNTAX_PLAIN, false, false, "a<think>b</think>", "", "a<think>b</think>", "", 0},
    {LP_SYNTAX_PLAIN, false, false, "\n\nYes.", "", "\n\nYes.", "", 0},
    {LP_SYNTAX_PLAIN, false, false, "\n", "", "\n", "", 0},
    {LP_SYNTAX_PLAIN, true, false, "a </thin", "a </thin", "", "", 0},
    {LP_SYNTAX_PLAIN, true, false, "1 < 2 <</think>x", "1 < 2 <", "x", "", 0},
    {LP_SYNTAX_PLAIN, false, true, CITY, "", CITY, "", 0},
    {LP_SYNTAX_GLM, true, false, "why</think>" CITY, "why", CITY, "", 0},
    {LP_SYNTAX_DEEPSEEK_V3, true, false, "<think>\nHm\xE2\x80\xA6</think>\n\nZw\xC3\xB6lf", "\nHm\xE2\x80\xA6", "Zw\xC3\xB6lf", "", 0},
    {LP_SYNTAX_KIMI, false, true, "<think>hm</think>\r\nOK", "hm", "OK", "", 0},

    // ---- GLM ----
    {LP_SYNTAX_GLM, false, true, CITY, "", "", CITY_OUT, 0},
    {LP_SYNTAX_GLM, true, true, "I need the weather.</think>Let me look." CITY, "I need the weather.", "Let me look.", CITY_OUT, 0},
    {LP_SYNTAX_GLM, true, true, "why\n</think>\n\n" CITY "\n", "why\n", "", CITY_OUT, 0},
    {LP_SYNTAX_GLM, false, true, "Let me look.\n\n" CITY, "", "Let me look.", CITY_OUT, 0},
    {LP_SYNTAX_GLM, false, true, "Look.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>\n",
     "", "Look.", CITY_OUT, 0},
    {LP_SYNTAX_GLM, false, true, CALL("get_weather" K("city") V("A \"b\"\n\\c\t<d> </arg> é")), "", "",
     "get_weather{\"city\": \"A \\\"b\\\"\\n\\\\c\\t<d> </arg> é\"}\n", 0},
    {LP_SYNTAX_GLM, false, true,
     CALL("get_weather" K("days") V("3") K("metric") V("true") K("where") V("{\"lat\": 1.50}") K("tags") V("[\"a\", 2]")
          K("ratio") V("1.0") K("note") V("null") K("city") V("")), "", "",
     "get_weather{\"days\": 3, \"metric\": true, \"where\": {\"lat\": 1.50}, \"tags\": [\"a\", 2], \"ratio\": 1.0,"
     " \"note\": null, \"city\": \"\"}\n", 0},
    {LP_SYNTAX_GLM, false, true, CALL("get_weather" K("metric") V("True") K("where") V("{'a': None}")), "", "",
     "get_weather{\"metric\": true, \"where\": {\"a\": null}}\n", 2},
    {LP_SYNTAX_GLM, false, true, CALL("get_weather" K("days") V("a few") K("note") V("12345")), "", "",
     "get_weather{\"days\": \"a few\", \"note\": \"12345\"}\n", 1},
    {LP_SYNTAX_GLM, false, true, CALL("get_time"), "", "", "get_time{}\n", 0},
    {LP_SYNTAX_GLM, false, true, CALL("\nget_time\n"), "", "", "get_time{}\n", 0},
    {LP_SYNTAX_GLM, false, true, CITY "\n" CALL("get_time") "\n\n" CITY, "", "", CITY_OUT "get_time{}\n" CITY_OUT, 0},
    {LP_SYNTAX_GLM, false, true, "a\n" CITY "\nb\n" CALL("get_time") " c \n", "", "a\nb c \n", CITY_OUT "get_time{}\n", 0},
    {LP_SYNTAX_GLM, false, true, CALL("mcp.files:read-2" K("n") V("7") K("s") V("x y") K("u") V("99999999999999999999")), "", "",
     "mcp.files:read-2{\"n\": 7, \"s\": \"x y\", \"u\": 99999999999999999999}\n", 0},
    {LP_SYNTAX_GLM, false, true, CALL("get_weather" K(" city \n") " \n " V(" Paris ")), "", "", "get_weather{\"city\": \" Paris \"}\n", 0},
    // a call inside the reasoning
    {LP_SYNTAX_GLM, true, true, "I look" CITY "done", "I look", "done", CITY_OUT, 1},
    {LP_SYNTAX_GLM, true, true, "use <tool_call> tags</think>ok" CITY, "use <tool_call> tags", "ok", CITY_OUT, 0},
    {LP_SYNTAX_GLM, true, true, "\n" CITY, "", "", CITY_OUT, 1},
    {LP_SYNTAX_GLM, true, true, "I look" CITY "\n</think>\n\ndone</think>", "I look", "done</think>", CITY_OUT, 1},
    {LP_SYNTAX_GLM, true, true, "a" CITY "b" CITY "</think>" CITY, "a", "b", CITY_OUT CITY_OUT CITY_OUT, 1},
    // missing tags
    {LP_SYNTAX_GLM, false, true, CALL("get_weather" K("city") "Paris</arg_value>"), "", "", CITY_OUT, 1},
    {LP_SYNTAX_GLM, false, true, CALL("get_weather" K("city") "\nParis</arg_value>" K("days") "3</arg_value>"), "", "",
     "get_weather{\"city\": \"Paris\", \"days\": 3}\n", 2},
    {LP_SYNTAX_GLM, false, true, CALL("get_weather" K("city") "<arg_value>Paris"), "", "", CITY_OUT, 1},
    {LP_SYNTAX_GLM, false, true, CALL("get_weather" K("city") "<arg_value>Paris") "\n" CALL("get_time"), "", "", CITY_OUT "get_time{}\n", 1},
    {LP_SYNTAX_GLM, false, true, CALL("get_weather" K("city") "<arg_value>Paris" K("days") V("3")), "", "",
     "get_weather{\"city\": \"Paris\", \"days\": 3}\n", 1},
    {LP_SYNTAX_GLM, false, true, CALL("get_weather" K("days") "<arg_value>3" K("city") V("Paris")), "", "",
     "get_weather{\"days\": 3, \"city\": \"Paris\"}\n", 1},
    {LP_SYNTAX_GLM, false, true, "<tool_call>get_weather" K("city") "<arg_value>Paris<tool_call>get_time</tool_call>", "", "",
     CITY_OUT "get_time{}\n", 2},
    {LP_SYNTAX_GLM, false, true, CALL("grep_toolpattern</arg_key>" V("TODO")), "", "", "grep_tool{\"pattern\": \"TODO\"}\n", 1},
    {LP_SYNTAX_GLM, false, true, CALL("grep_tool\npattern</arg_key>\n" V("TODO")), "", "", "grep_tool{\"pattern\": \"TODO\"}\n", 1},
    {LP_SYNTAX_GLM, false, true, CALL("grep_toolbox</arg_key>" V("x")), "", "", "grep{\"_toolbox\": \"x\"}\n", 1},
    {LP_SYNTAX_GLM, false, true, CALL("grep_toolother</arg_key>" V("x")), "", "", "grep_tool{\"other\": \"x\"}\n", 1},
    {LP_SYNTAX_GLM, false, true, CALL("grep_tool" K("pattern") V("a") "n</arg_key>" V("4")), "", "", "grep_tool{\"pattern\": \"a\", \"n\": 4}\n", 1},
    {LP_SYNTAX_GLM, false, true, CALL("get_weather<arg_key>city" V("Paris")), "", "", CITY_OUT, 1},
    {LP_SYNTAX_GLM, false, true, CALL("unknownkey</arg_key>" V("x")), "", CALL("unknownkey</arg_key>" V("x")), "", 0},
    {LP_SYNTAX_GLM, false, true, "<tool_call>get_weather" K("city") V("Paris"), "", "", CITY_OUT, 1},
    {LP_SYNTAX_GLM, false, true, "<tool_call>get_weather" K("city") V("Paris") "\n" CALL("get_time"), "", "", CITY_OUT "get_time{}\n", 1},
    {LP_SYNTAX_GLM, false, true, "<tool_call>get_weather" K("city") V("Paris") "\nThat is all.", "", "That is all.", CITY_OUT, 1},
    {LP_SYNTAX_GLM, false, true, CALL("get_weather" K("city") V("Paris") "</arg_value>"), "", "", CITY_OUT, 1},
    {LP_SYNTAX_GLM, false, true, CALL("get_weather, " K("city") V("Paris")), "", CALL("get_weather, " K("city") V("Paris")), "", 0},
    {LP_SYNTAX_GLM, false, true, CALL("get_weather" K("city") V("Paris") ", " K("days") V("3")), "", ", ",
     "get_weather{\"city\": \"Paris\", \"days\": 3}\n", 1},
    {LP_SYNTAX_GLM, false, true, CALL("get_weather" K("city") K("days") V("3")), "", K("city"), "get_weather{\"days\": 3}\n", 1},
    {LP_SYNTAX_GLM, false, true, CALL("get_weather" K("city") V("Paris") K("city") V("Rome") K("days") V("1")), "", "",
     "get_weather{\"city\": \"Paris\", \"days\": 1}\n", 1},
    // tags inside values
    {LP_SYNTAX_GLM, false, true, CALL("get_weather" K("city") V("a </tool_call> b <tool_call> c <arg_key> d")), "", "",
     "get_weather{\"city\": \"a </tool_call> b <tool_call> c <arg_key> d\"}\n", 0},
    {LP_SYNTAX_GLM, false, true, CALL("get_weather" K("city") V("</think><think>")), "", "", "get_weather{\"city\": \"</think><think>\"}\n", 0},
    // cut off
    {LP_SYNTAX_GLM, false, true, "<tool_call>get_weather" K("city") "<arg_value>Par", "", "", "get_weather{\"city\": \"Par\"}\n", 2},
    {LP_SYNTAX_GLM, false, true, "<tool_call>get_weather" K("city") "<arg_value>Paris</arg_", "", "", "get_weather{\"city\": \"Paris</arg_\"}\n", 2},
    {LP_SYNTAX_GLM, false, true, "<tool_call>get_weather" K("tags") "<arg_value>[1, 2", "", "", "get_weather{\"tags\": \"[1, 2\"}\n", 3},
    {LP_SYNTAX_GLM, false, true, "<tool_call>get_weather" K("city") V("Paris") "<arg_key>da", "", "", CITY_OUT, 1},
    {LP_SYNTAX_GLM, false, true, "<tool_call>get_weather" K("city"), "", "", "get_weather{}\n", 1},
    {LP_SYNTAX_GLM, false, true, "<tool_call>get_weather<", "", "<tool_call>get_weather<", "", 0},
    {LP_SYNTAX_GLM, false, true, "<tool_call>get_weat", "", "<tool_call>get_weat", "", 0},
    {LP_SYNTAX_GLM, false, true, "a <tool_call>", "", "a <tool_call>", "", 0},
    {LP_SYNTAX_GLM, false, true, "a \n<tool_c", "", "a \n<tool_c", "", 0},
    {LP_SYNTAX_GLM, false, true, "<tool_call>get_time", "", "", "get_time{}\n", 1},
    // no calls
    {LP_SYNTAX_GLM, false, true, CALL("no such name" K("a") V("b")), "", CALL("no such name" K("a") V("b")), "", 0},
    {LP_SYNTAX_GLM, false, true, CALL("") "x", "", CALL("") "x", "", 0},
    {LP_SYNTAX_GLM, false, true, "x \n<tool_call>\n{\"name\": \"f\"}", "", "x \n<tool_call>\n{\"name\": \"f\"}", "", 0},
    {LP_SYNTAX_GLM, false, true, "<tool_call><tool_call>get_time</tool_call>", "", "<tool_call>", "get_time{}\n", 0},
    {LP_SYNTAX_GLM, false, true, "a</tool_call>b", "", "a</tool_call>b", "", 0},

    // ---- DeepSeek V3, R1 ----
    {LP_SYNTAX_DEEPSEEK_V3, false, true, "Sure.\n" DS_SECTION(DS_V3("get_weather", "{\"city\": \"Paris\"}")), "", "Sure.", CITY_OUT, 0},
    {LP_SYNTAX_DEEPSEEK_V3, true, true, "hm\n</think>\n\n" DS_SECTION(DS_V3("get_weather", "{\"city\":\"Paris\"}") "\n" DS_V3("get_time", "{}")),
     "hm\n", "", "get_weather{\"city\":\"Paris\"}\nget_time{}\n", 0},
    {LP_SYNTAX_DEEPSEEK_V3, false, true, DS_SECTION(DS_V3("f", "{\"t\": \"``` }<｜tool▁call▁end｜> \\\" \"}")), "", "",
     "f{\"t\": \"``` }<｜tool▁call▁end｜> \\\" \"}\n", 0},
    {LP_SYNTAX_DEEPSEEK_V3, false, true, DS_SECTION(DS_V31("get_weather", "{\"city\": \"Paris\"}")) "ok", "", "ok", CITY_OUT, 1},
    {LP_SYNTAX_DEEPSEEK_V3, false, true, DS_CALL("function" DS_SEP "get_weather\n{\"city\": \"Paris\"}"), "", "", CITY_OUT, 2},
    {LP_SYNTAX_DEEPSEEK_V3, false, true, DS_SECTION("none"), "", DS_SECTION("none"), "", 0},
    {LP_SYNTAX_DEEPSEEK_V3, false, true, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function" DS_SEP "get_weather\n```json\n{\"city\": \"Par",
     "", "", "get_weather{\"city\": \"Par\"}\n", 1},

    // ---- DeepSeek V3.1 ----
    {LP_SYNTAX_DEEPSEEK_V31, true, true, "hm</think>" DS_SECTION(DS_V31("get_weather", "{\"city\": \"Paris\"}") DS_V31("get_time", "{}")), "hm", "",
     CITY_OUT "get_time{}\n", 0},
    {LP_SYNTAX_DEEPSEEK_V31, true, true, "hm" DS_SECTION(DS_V31("get_time", "{ }")), "hm", "", "get_time{ }\n", 1},
    {LP_SYNTAX_DEEPSEEK_V31, false, true, DS_SECTION(DS_V3("get_weather", "{\"city\": \"Paris\"}")), "", "", CITY_OUT, 1},
    {LP_SYNTAX_DEEPSEEK_V31, false, true, DS_SECTION(DS_V31("get_time", "")), "", "", "get_time{}\n", 1},
    {LP_SYNTAX_DEEPSEEK_V31, false, true, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_time" DS_SEP "{}", "", "", "get_time{}\n", 1},
    {LP_SYNTAX_DEEPSEEK_V31, false, true, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_time" DS_SEP "{}<｜tool▁calls▁end｜>", "", "", "get_time{}\n", 1},
    {LP_SYNTAX_DEEPSEEK_V31, false, true, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_ti", "", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_ti", "", 0},
    {LP_SYNTAX_DEEPSEEK_V31, false, true, DS_SECTION(DS_V31("f", "{\"a\": [1, 2, \"b\": 3} x")), "", ": 3} x", "f{\"a\": [1, 2, \"b\"]}\n", 1},
    {LP_SYNTAX_DEEPSEEK_V31, false, true, DS_SECTION(DS_V31("f", "{\"a\": \"two\nlines\", 'b': True,}")), "", "",
     "f{\"a\": \"two\\nlines\", \"b\": true}\n", 4},
    {LP_SYNTAX_DEEPSEEK_V31, false, true, DS_SECTION(DS_V31("f", "{\"a\": \"no end}")), "", "", "f{\"a\": \"no end}\"}\n", 1},

    // ---- DeepSeek V3.2 ----
    {LP_SYNTAX_DEEPSEEK_V32, true, true, "hm</think>Look.\n\n" DSML("\n" INVOKE("get_weather", "\n" PARAMETER("name=\"city\" string=\"true\"", "Paris") "\n"
     PARAMETER("name=\"days\" string=\"false\"", "3") "\n") "\n"), "hm", "Look.", "get_weather{\"city\": \"Paris\", \"days\": 3}\n", 0},
    {LP_SYNTAX_DEEPSEEK_V32, false, true, DSML(INVOKE("get_time", "") INVOKE("f", PARAMETER("name=\"a\" string=\"false\"", "[1, {\"b\": null}]"))), "", "",
     "get_time{}\nf{\"a\": [1, {\"b\": null}]}\n", 0},
    {LP_SYNTAX_DEEPSEEK_V32, false, true, DSML(INVOKE("get_weather", PARAMETER("name=\"city\"", "12") PARAMETER("name=\"days\"", "12"))), "", "",
     "get_weather{\"city\": \"12\", \"days\": 12}\n", 0},
    {LP_SYNTAX_DEEPSEEK_V32, false, true, DSML(INVOKE("f", PARAMETER("name=\"a\" string=\"false\"", "nope"))), "", "", "f{\"a\": \"nope\"}\n", 1},
    {LP_SYNTAX_DEEPSEEK_V32, false, true, "<｜DSML｜tool_calls>" INVOKE("get_time", "") "</｜DSML｜tool_calls>!", "", "!", "get_time{}\n", 0},
    {LP_SYNTAX_DEEPSEEK_V32, false, true, INVOKE("get_time", ""), "", "", "get_time{}\n", 1},
    {LP_SYNTAX_DEEPSEEK_V32, false, true, "<｜DSML｜function_calls><｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"a\" string=\"true\">x</｜DSML｜function_calls>",
     "", "", "f{\"a\": \"x\"}\n", 2},
    {LP_SYNTAX_DEEPSEEK_V32, false, true, "<｜DSML｜invoke>", "", "<｜DSML｜invoke>", "", 0},
    {LP_SYNTAX_DEEPSEEK_V32, false, true, "<｜DSML｜function_calls> text", "", "<｜DSML｜function_calls> text", "", 0},

    // ---- Kimi ----
    {LP_SYNTAX_KIMI, false, true, "Look. " KIMI(KIMI_CALL("functions.get_weather:0", "{\"city\": \"Paris\"}") KIMI_CALL("functions.get_time:1", "{}")), "",
     "Look.", CITY_OUT "get_time{}\n", 0},
    {LP_SYNTAX_KIMI, true, true, "hm</think>" KIMI("\n" KIMI_CALL("get_weather:12 ", " {\"city\": \"Paris\"}\n") "\n"), "hm", "", CITY_OUT, 0},
    {LP_SYNTAX_KIMI, false, true, KIMI_CALL("functions.get_time:0", "{}") "<|tool_calls_section_end|>", "", "", "get_time{}\n", 1},
    {LP_SYNTAX_KIMI, false, true, KIMI(KIMI_CALL("functions.f:0", "\"{\\\"a\\\": 1}\"")), "", "", "f{\"a\": 1}\n", 1},
    {LP_SYNTAX_KIMI, false, true, KIMI(KIMI_CALL("functions.f:0", "[1]")), "", KIMI(KIMI_CALL("functions.f:0", "[1]")), "", 0},

    // ---- Hermes, Qwen ----
    {LP_SYNTAX_HERMES, false, true, CALL("\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n"), "", "", CITY_OUT, 0},
    {LP_SYNTAX_HERMES, true, true, "hm\n</think>\n\nLook.\n" CALL("{\"name\": \"get_time\", \"arguments\": {}}") "\n" CALL("{\"name\": \"get_time\"}"), "hm\n",
     "Look.", "get_time{}\nget_time{}\n", 0},
    {LP_SYNTAX_HERMES, false, true, CALL("{\"arguments\": {\"city\": \"Paris\"}, \"name\": \"get_weather\"}"), "", "", CITY_OUT, 0},
    {LP_SYNTAX_HERMES, false, true, CALL("{\"id\": 1, \"name\": \"f\", \"parameters\": {\"a\": 1e5}}"), "", "", "f{\"a\": 1e5}\n", 0},
    {LP_SYNTAX_HERMES, false, true, CALL("{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}"), "", "", "f{\"a\": 1}\n", 1},
    {LP_SYNTAX_HERMES, false, true, CALL("{\"name\": \"f\", \"arguments\": null}"), "", "", "f{}\n", 0},
    {LP_SYNTAX_HERMES, false, true, CALL("{\"name\": \"f\", \"arguments\": {\"a\": 1}"), "", "", "f{\"a\": 1}\n", 1},
    {LP_SYNTAX_HERMES, false, true, CALL("{\"name\": \"f\", \"arguments\": {\"a\": 1}}}"), "", "", "f{\"a\": 1}\n", 1},
    {LP_SYNTAX_HERMES, false, true, CALL("{\"name\": \"f\", \"arguments\": {\"a\": \"x</tool_call> y\"}}"), "", "", "f{\"a\": \"x</tool_call> y\"}\n", 0},
    {LP_SYNTAX_HERMES, false, true, CALL("{\"name\": \"f\", \"arguments\": {\"a\": \"x}}"), "", "", "f{\"a\": \"x}}\"}\n", 1},
    {LP_SYNTAX_HERMES, false, true, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}", "", "", "f{\"a\": 1}\n", 1},
    {LP_SYNTAX_HERMES, false, true, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n" CALL("{\"name\": \"g\"}"), "", "", "f{\"a\": 1}\ng{}\n", 1},
    {LP_SYNTAX_HERMES, false, true, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}} then text", "", "then text", "f{\"a\": 1}\n", 1},
    {LP_SYNTAX_HERMES, false, true, "<tool_call>{\"name\": \"f\", \"argum", "", "<tool_call>{\"name\": \"f\", \"argum", "", 0},
    {LP_SYNTAX_HERMES, false, true, CALL("{\"arguments\": {}}"), "", CALL("{\"arguments\": {}}"), "", 0},
    {LP_SYNTAX_HERMES, false, true, CALL("{\"name\": \"no name\", \"arguments\": {}}"), "", CALL("{\"name\": \"no name\", \"arguments\": {}}"), "", 0},
    {LP_SYNTAX_HERMES, false, true, CALL("[1]") CALL("not JSON"), "", CALL("[1]") CALL("not JSON"), "", 0},
};
// clang-format on

#undef K
#undef V
#undef CALL

enum { N_REPLY_CASES = sizeof reply_cases / sizeof *reply_cases };

#endif
