// What a model has written, taken apart as it comes: reasoning, content, tool calls.
//
//     <think>I need the weather.</think>Let me look.<tool_call>get_weather<arg_key>city</arg_key>.
//            REASONING                  CONTENT                CALL       ARGUMENTS {"city": "...
//
// One parser for streams and whole answers: the pieces do not depend on how the text was cut when
// it was pushed (adjacent pieces of one kind joined). A text is never lost: what cannot be a tool
// call is text as it was written, where it stands. Nothing is held back longer than it takes to
// decide what it is. Time is linear in the text; memory is what is held back (white space that a
// call may follow, a value that is not a string).
//
// White space: </think> takes the line ends behind it along; what stands between </think>, calls
// and the end, and what is in front of a call, is dropped. Reasoning of white space only is none.
//
// Slips of the model are mended where it is plain what was meant, and counted:
//   - a call inside the reasoning ends it, if it turns out to be one; a </think> later is dropped
//   - tags left out: <arg_value>, </arg_value>, <arg_key> (then a name and a key that have run
//     together are parted by the known tools), </arg_key>, </tool_call>, a section's opening
//   - a key without a value, and text between pairs, become content behind the call
//   - a key that comes twice: the first value has been sent and stays
//   - a value that is not as its schema says: Python's spelling of JSON is read, anything else is a
//     string
//   - JSON arguments: see reply_json.h. Where they are broken beyond that, what came before is
//     closed to an object, and the rest, up to the end of the call, is content
//   - a text that ends inside a call: likewise closed; a pair whose value has not begun is left out
// A name that no tool has is a call all the same. One that is none ([A-Za-z0-9_.:-], up to 128
// bytes) makes the whole thing text.
#ifndef LP_TEXT_REPLY_H
#define LP_TEXT_REPLY_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/status.h"

#define LP_REPLY_THINK "<think>"      // reasoning begins, in all families,
#define LP_REPLY_END_THINK "</think>" // and ends

// How a family of models writes tool calls. All write reasoning as <think>...</think>.
enum lp_reply_syntax {
    LP_SYNTAX_PLAIN, // none
    LP_SYNTAX_GLM,   // <tool_call>NAME<arg_key>K</arg_key><arg_value>V</arg_value></tool_call>
    LP_SYNTAX_DEEPSEEK_V3,  // V3, R1: type, separator, name, fenced JSON between markers
    LP_SYNTAX_DEEPSEEK_V31, // name, separator, JSON between markers
    LP_SYNTAX_DEEPSEEK_V32, // XML-like blocks with the DSML marker
    LP_SYNTAX_KIMI,   // <|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>JSON...
    LP_SYNTAX_HERMES, // <tool_call>{"name": NAME, "arguments": {...}}</tool_call> (Qwen)
};

// From the chat template's source, which spells the markers. NULL or unknown: PLAIN.
enum lp_reply_syntax lp_reply_detect(const char *chat_template);
const char *lp_reply_syntax_name(enum lp_reply_syntax syntax); // "glm", "deepseek-v3", ...
// By that name; false if there is none.
bool lp_reply_syntax_from_name(const char *name, enum lp_reply_syntax *out);
// The markers of a syntax (the think tags too), NULL-terminated: those that are control tokens of a
// vocabulary must be shown in the text that is pushed.
const char *const *lp_reply_markers(enum lp_reply_syntax syntax);

#define LP_REPLY_MAX_NAME 128 // bytes of a tool's name
// May a call have this name? Of [A-Za-z0-9_.:-], 1 to MAX_NAME bytes.
bool lp_reply_name_ok(struct lp_str name);

enum lp_reply_kind {
    LP_REPLY_REASONING, // text
    LP_REPLY_CONTENT,   // text
    LP_REPLY_CALL,      // a tool call begins; text: its name, whole
    LP_REPLY_ARGUMENTS, // text: the next bytes of its arguments, a JSON object when complete
    LP_REPLY_CALL_END,  // no text; what came as ARGUMENTS is now whole
};

struct lp_reply_piece {
    enum lp_reply_kind kind;
    int32_t call;       // CALL, ARGUMENTS, CALL_END: counts from 0; else -1
    struct lp_str text; // whole UTF-8 characters; valid during the call
};

// False ends the push with false (no memory).
typedef bool (*lp_reply_sink)(void *user, const struct lp_reply_piece *piece);

struct lp_reply_params {
    enum lp_reply_syntax syntax;
    bool in_reasoning;   // the prompt ended with <think>
    const json_t *tools; // OpenAI's form (or a list of functions); NULL or empty: no tool calls are
                         // looked for, their tags are text. A reference is kept
    lp_reply_sink sink;
    void *user;
};

struct lp_reply; // a parser

// Errors: MEMORY.
lp_status lp_reply_new(struct lp_reply **out, const struct lp_reply_params *params,
                       struct lp_err *err);
void lp_reply_free(struct lp_reply *reply); // NULL is allowed
// The text may be cut anywhere, in a character too; ill-formed UTF-8 becomes U+FFFD. False without
// memory, or when the sink gave false; then so does every later call.
bool lp_reply_push(struct lp_reply *reply, struct lp_str text);
// The text has ended: gives out what was held back. A call of which no CALL has been sent is text,
// but for a known name with nothing behind it; any other gets its end.
bool lp_reply_finish(struct lp_reply *reply);
bool lp_reply_in_reasoning(const struct lp_reply *reply);
int32_t lp_reply_n_calls(const struct lp_reply *reply); // CALL pieces so far
// Slips of the model that were mended: a missing tag, a bad value, a call inside reasoning.
int32_t lp_reply_n_repairs(const struct lp_reply *reply);

// The JSON of a parameter that the model wrote as text (GLM, DSML), by the parameter's schema in
// OpenAI's form (may be NULL). The types that it allows are those of type, enum, const, anyOf,
// oneOf, allOf, nullable together.
//   - only strings: the text as it is
//   - strings and others: JSON of one of the others, else the text as it is
//   - no strings: JSON, numbers as they are written; else as Python writes it (True, None, single
//     quotes), with a comma too many, and so on; else the text as a string
//   - not said: JSON, else the text as a string
// DSML's string="true" is the first, string="false" the third. The parser writes the JSON text
// itself; this gives what jansson makes of it. A new reference, or NULL without memory.
json_t *lp_reply_typed_value(struct lp_str text, const json_t *schema);

#endif
