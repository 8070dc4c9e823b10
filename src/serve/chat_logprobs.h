// Log-probabilities in the form of OpenAI's chat API: {"token", "logprob", "bytes",
// "top_logprobs"}.
#ifndef LP_SERVE_CHAT_LOGPROBS_H
#define LP_SERVE_CHAT_LOGPROBS_H

#include <jansson.h>

#include "serve/completion.h"

// Appends the entry of a TOKEN event to the array, which is made if it is NULL. False without
// memory.
bool lp_chat_logprobs_add(json_t **entries, const struct lp_completion *c,
                          const limpid_event *event);

#endif
