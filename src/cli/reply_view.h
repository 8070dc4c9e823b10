// An answer on its way to a person: printed as it comes, and kept in its two parts for the turns
// that follow.
//
// Dimmed, reasoning stands out by its look and its tags are left out; plain, the text is printed as
// the model wrote it. Control characters never reach a terminal.
#ifndef LP_CLI_REPLY_VIEW_H
#define LP_CLI_REPLY_VIEW_H

#include <stdio.h>

#include "base/bytes.h"
#include "limpid.h"
#include "text/reply.h"

struct lp_reply_view {
    FILE *to;
    bool dims;     // reasoning is dimmed
    bool terminal; // control characters are replaced
    bool is_dim;   // now
    bool started;  // something of the running part has been printed
    struct lp_reply *reply;
    struct lp_bytes reasoning, content; // as pieces came; without tags
    bool failed;                        // without memory
};

// in_reasoning: the prompt ended within <think>. Errors: MEMORY. Release in any case.
lp_status lp_reply_view_init(struct lp_reply_view *view, const limpid_model *model,
                             bool in_reasoning, FILE *to, struct lp_err *err);
// An lp_generator_sink; user: the view. False without memory, or when `to` cannot be written.
bool lp_reply_view_push(void *user, const char *text, size_t n_bytes);
// The answer has ended: prints what was held back and makes the look normal. False as above.
bool lp_reply_view_finish(struct lp_reply_view *view);
void lp_reply_view_release(struct lp_reply_view *view);

#endif
