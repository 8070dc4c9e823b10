// A conversation that asks for an answer, as every chat API hands it over: messages and tools in
// OpenAI's form, what the template shall know, how to sample. Becomes one prompt of a completion.
#ifndef LP_SERVE_CHAT_PROMPT_H
#define LP_SERVE_CHAT_PROMPT_H

#include <jansson.h>

#include "serve/completion.h"
#include "serve/turns.h"
#include "text/reply.h"

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

// What the answer's reader must know of the prompt.
struct lp_chat_prompt {
    struct lp_bytes text; // rendered
    enum lp_reply_syntax syntax;
    bool in_reasoning; // it ends within <think>
    bool reads_tools;  // tool calls may come
    json_t *tools;     // those of the request, or NULL; owned
    size_t n_exact;    // tokens at its beginning that are those of an earlier turn, not of its text
};

// Empty request with the defaults of every chat API: temperature 1, max_tokens to the end of the
// context.
void lp_chat_request_init(struct lp_chat_request *r);
void lp_chat_request_release(struct lp_chat_request *r);
void lp_chat_prompt_release(struct lp_chat_prompt *p);

// Sets a template variable, taking the value over; a later one stands. False without memory.
bool lp_chat_set_variable(struct lp_chat_request *r, const char *name, json_t *value);
// Thinking on or off, under the names that templates know.
bool lp_chat_set_thinking(struct lp_chat_request *r, bool on);
// "none", "minimal", "low", "medium", "high", "xhigh", "max" as what the model's template makes of
// it (docs/api.md).
bool lp_chat_set_effort(struct lp_chat_request *r, const struct lp_service *service,
                        const char *effort, struct lp_api_error *err);

// Renders and tokenizes. Where messages hold tool calls that this server made, the prompt has the
// very tokens that were generated. Takes nothing over. ids: from lp_alloc. False with the error.
bool lp_chat_prompt_make(struct lp_service *service, const struct lp_chat_request *r,
                         struct lp_chat_prompt *prompt, int32_t **ids, size_t *n_ids,
                         struct lp_api_error *err);
// The same, and the completion is admitted: c and prompt are filled. Takes r->params over.
bool lp_chat_admit(struct lp_completion *c, struct lp_service *service, struct lp_chat_request *r,
                   struct lp_chat_prompt *prompt, struct lp_api_error *err);

#endif
