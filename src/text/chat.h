// Chat templates: the Jinja subset that the templates inside GGUF files use, with transformers'
// settings (trim_blocks, lstrip_blocks, one trailing newline dropped, no autoescape, its own
// tojson). Templates are untrusted: depth, steps and output are bounded, and nothing outside is
// reachable.
#ifndef LP_TEXT_CHAT_H
#define LP_TEXT_CHAT_H

#include <jansson.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/status.h"

struct lp_jinja; // a parsed template

struct lp_jinja_limits {
    uint64_t max_steps;        // evaluated nodes; 0 = 20 million
    uint64_t max_output_bytes; // 0 = 64 MiB
    uint64_t max_memory_bytes; // 0 = 256 MiB
};

// Errors: FORMAT with line number and the construct at fault; UNSUPPORTED for Jinja outside the
// subset (named); LIMIT (nesting, size).
lp_status lp_jinja_parse(struct lp_jinja **out, struct lp_str source, struct lp_err *err);
void lp_jinja_free(struct lp_jinja *jinja); // NULL is allowed

// Renders with the variables of a JSON object (key order kept). Appends to *out. Errors: INVALID
// when the template calls raise_exception (its message is the error text: "chat template: ..."),
// FORMAT for a run-time fault (line number), LIMIT. Strings may hold any bytes but NUL-free UTF-8
// is expected. Thread-safe: the template is not changed.
lp_status lp_jinja_render(const struct lp_jinja *jinja, const json_t *variables,
                          const struct lp_jinja_limits *limits, struct lp_bytes *out,
                          struct lp_err *err);

// Renders a conversation as transformers' apply_chat_template does.
struct lp_chat_params {
    const json_t *messages; // array in OpenAI's form; not changed
    const json_t *tools;    // array in OpenAI's form, or NULL
    const json_t *kwargs;   // object: further template variables (enable_thinking ...), or NULL
    bool add_generation_prompt;
    struct lp_str bos_token, eos_token; // texts of the tokens; may be empty
};

// Prepares the messages as vLLM does (tool-call arguments given as JSON text are parsed to an
// object, missing content becomes null, role "developer" becomes "system", content given as a list
// of text parts becomes their texts joined by line ends unless the template itself loops over
// content) and renders. Errors: INVALID naming messages[i] and the field.
lp_status lp_chat_render(const struct lp_jinja *jinja, const struct lp_chat_params *params,
                         struct lp_bytes *out, struct lp_err *err);

#endif
