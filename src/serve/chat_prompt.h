// The prompt of a conversation: rendered by the model's template, in tokens, and what the reader of
// the answer must know of it.
#ifndef LP_SERVE_CHAT_PROMPT_H
#define LP_SERVE_CHAT_PROMPT_H

#include "serve/chat_request.h"
#include "serve/completion.h"
#include "text/reply.h"

// What the answer's reader must know of the prompt.
struct lp_chat_prompt {
    struct lp_bytes text; // rendered
    enum lp_reply_syntax syntax;
    bool in_reasoning; // it ends within <think>
    bool reads_tools;  // tool calls may come
    json_t *tools;     // those of the request, or NULL; owned
    size_t n_exact;    // tokens at its beginning that are those of an earlier turn, not of its text
};

void lp_chat_prompt_release(struct lp_chat_prompt *p);
// Renders and tokenizes. Where messages hold tool calls that this server made, the prompt has the
// very tokens that were generated. Takes nothing over. ids: from lp_alloc. False with the error.
bool lp_chat_prompt_make(struct lp_service *service, const struct lp_chat_request *r,
                         struct lp_chat_prompt *prompt, int32_t **ids, size_t *n_ids,
                         struct lp_api_error *err);
// The same, and the completion is admitted: c and prompt are filled. Takes r->params over.
bool lp_chat_admit(struct lp_completion *c, struct lp_service *service, struct lp_chat_request *r,
                   struct lp_chat_prompt *prompt, struct lp_api_error *err);

#endif
