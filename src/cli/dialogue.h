// The messages of a conversation, in OpenAI's form, as a JSON array:
//
//     [system]  user assistant  user assistant ...  user [assistant]
//
// A turn is a user's message and what follows it up to the next one (assistant and, in a loaded
// file, tool messages).
#ifndef LP_CLI_DIALOGUE_H
#define LP_CLI_DIALOGUE_H

#include <jansson.h>
#include <stdbool.h>

#include "base/bytes.h"
#include "base/status.h"

struct lp_dialogue {
    json_t *messages;
};

lp_status lp_dialogue_init(struct lp_dialogue *d, struct lp_err *err); // MEMORY
void lp_dialogue_release(struct lp_dialogue *d);

// Errors of all that take text: INVALID (it is not UTF-8), MEMORY.
lp_status lp_dialogue_add_user(struct lp_dialogue *d, const char *text, struct lp_err *err);
// Empty reasoning: none.
lp_status lp_dialogue_add_answer(struct lp_dialogue *d, struct lp_str content,
                                 struct lp_str reasoning, struct lp_err *err);
// Replaces the system message; NULL takes it out.
lp_status lp_dialogue_set_system(struct lp_dialogue *d, const char *text, struct lp_err *err);
const char *lp_dialogue_system(const struct lp_dialogue *d); // NULL: none

bool lp_dialogue_drop_turn(struct lp_dialogue *d);   // the last one; false: there is none
bool lp_dialogue_drop_answer(struct lp_dialogue *d); // what stands behind the last user's message
void lp_dialogue_clear(struct lp_dialogue *d);       // all but the system message
size_t lp_dialogue_n_turns(const struct lp_dialogue *d);
bool lp_dialogue_is_answered(const struct lp_dialogue *d); // the last message is no user's

// ---- dialogue_file.c ----

// By the file's extension: .json (the array, which load reads) or .md (for reading). INVALID for
// another one, IO. An existing file is replaced whole or not at all.
lp_status lp_dialogue_save(const struct lp_dialogue *d, const char *path, struct lp_err *err);
// An array of messages, or an object with "messages". On failure nothing has changed. Errors: IO,
// FORMAT (what the first bad message is), LIMIT, MEMORY.
lp_status lp_dialogue_load(struct lp_dialogue *d, const char *path, struct lp_err *err);

#endif
