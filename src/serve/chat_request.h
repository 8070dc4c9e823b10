// A conversation that asks for an answer, as every chat API hands it over: messages and tools in
// OpenAI's form, what the template shall know, how to sample.
#ifndef LP_SERVE_CHAT_REQUEST_H
#define LP_SERVE_CHAT_REQUEST_H

#include <jansson.h>

#include "serve/completion_params.h"
#include "serve/service.h"

enum lp_tool_choice { LP_TOOLS_AUTO, LP_TOOLS_NONE, LP_TOOLS_REQUIRED, LP_TOOLS_NAMED };

struct lp_chat_request {
    json_t *messages;  // OpenAI's form; owned
    json_t *tools;     // OpenAI's form, owned; NULL: none
    json_t *variables; // of the template, owned; NULL: none
    enum lp_tool_choice tool_choice;
    char *tool_name;     // NAMED
    bool one_call;       // parallel_tool_calls is false
    bool continue_final; // the last message is an assistant's that the answer goes on
    struct lp_completion_params params; // all but prompts
};

// Empty request with the defaults of every chat API: temperature 1, max_tokens to the end of the
// context.
void lp_chat_request_init(struct lp_chat_request *r);
void lp_chat_request_release(struct lp_chat_request *r);

// May a tool have this name? Models write calls with plain names only. False with the error of path.
bool lp_chat_check_tool_name(const char *name, const char *path, struct lp_api_error *err);
bool lp_chat_has_tool(const struct lp_chat_request *r, const char *name); // of r->tools, checked
// Sets a template variable, taking the value over; a later one stands. False without memory.
bool lp_chat_set_variable(struct lp_chat_request *r, const char *name, json_t *value);
// Thinking on or off, under the names that templates know.
bool lp_chat_set_thinking(struct lp_chat_request *r, bool on);
// "none", "minimal", "low", "medium", "high", "xhigh", "max" as what the model's template makes of
// it (docs/api-chat.md).
bool lp_chat_set_effort(struct lp_chat_request *r, const struct lp_service *service,
                        const char *effort, struct lp_api_error *err);

#endif
