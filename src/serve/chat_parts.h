// Inside of a conversation's way to a prompt: what chat_request.c, chat_turns.c, chat_constraint.c and
// chat_prompt.c share.
#ifndef LP_SERVE_CHAT_PARTS_H
#define LP_SERVE_CHAT_PARTS_H

#include "serve/chat_prompt.h"
#include "serve/turns.h"

// ---- chat_request.c: of messages ----

bool lp_chat_is_assistant(const json_t *message);
struct lp_str lp_chat_trimmed_end(struct lp_str text); // without white space at its end
// Appends the text of a message: a string, or parts. False without memory.
bool lp_chat_content_text(const json_t *message, struct lp_bytes *out);

// ---- chat_turns.c ----

// The turn that made one of the message's calls, or NULL; to be put back.
struct lp_turn *lp_chat_turn_of(const struct lp_service *service, const json_t *message);
// Gives an assistant's message its reasoning_content: as it came under either name, else as it was
// generated. False without memory.
bool lp_chat_add_reasoning(const struct lp_service *service, json_t *message);
// Is it what the client was given? It may have been edited.
bool lp_chat_turn_is_given(const json_t *message, const struct lp_turn *turn);

// ---- chat_constraint.c ----

// Joins the form of the answer and the request's tools in params' grammar, which holds behind the
// reasoning. False with the error.
bool lp_chat_constrain(struct lp_service *service, const struct lp_chat_request *r,
                       struct lp_completion_params *params, const struct lp_chat_prompt *prompt,
                       struct lp_api_error *err);
// Markers of the syntax that are control tokens: their text is shown. False without memory.
bool lp_chat_show_markers(const struct lp_completion *c, const struct lp_chat_prompt *prompt,
                          struct lp_completion_params *params);

#endif
