// The conversation of a Responses request: "instructions" and the items of "input" become messages
// in OpenAI's chat form.
#ifndef LP_SERVE_RESPONSES_INPUT_H
#define LP_SERVE_RESPONSES_INPUT_H

#include <jansson.h>

#include "serve/api_error.h"

// An array of messages, a new reference: their content is a string; an assistant's may also have
// reasoning_content and tool_calls. NULL with the error, which names the item.
json_t *lp_responses_input(const json_t *root, struct lp_api_error *err);

#endif
