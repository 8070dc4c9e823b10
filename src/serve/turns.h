// What the model has generated for tool calls that may come back: by the id of the call, the tokens
// of the whole turn and of the prompt before it. A client sends a call back as JSON; rendering and
// tokenizing that again may give other tokens than those in the prefix cache.
//
// Bounded in bytes; the turn that was used longest ago leaves first. Thread-safe.
#ifndef LP_SERVE_TURNS_H
#define LP_SERVE_TURNS_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/status.h"

#define LP_TURNS_BYTES ((size_t)64 << 20)

struct lp_turn { // read only once it is kept
    atomic_int n_users;
    struct lp_str prompt;    // its text, rendered
    struct lp_str text;      // that was generated, control tokens shown, without an end token
    struct lp_str reasoning; // the part of it that is reasoning, as the client got it
    struct lp_str end;       // text of the end token that ended it, or ""
    struct lp_str message;   // the rest, as the client got it (chat_prompt.c): JSON
    const int32_t *ids;      // [n_prompt + n_answer]
    size_t n_prompt, n_answer;
};

struct lp_turns;
struct lp_turns *lp_turns_new(size_t max_bytes); // NULL without memory
void lp_turns_free(struct lp_turns *turns);      // NULL is allowed
// Copies what `turn` points to. A turn that is too large or without memory is not kept: it is a
// matter of speed alone.
void lp_turns_keep(struct lp_turns *turns, const char *const *call_ids, size_t n_calls,
                   const struct lp_turn *turn);
// NULL: none. Put it back when it is no longer needed.
struct lp_turn *lp_turns_find(struct lp_turns *turns, const char *call_id);
void lp_turn_put(struct lp_turn *turn); // NULL is allowed

#endif
