// The "logprobs" object of a completion: four arrays of equal length, one element per token.
#ifndef LP_SERVE_LOGPROBS_H
#define LP_SERVE_LOGPROBS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

// How a token is shown: its text, or "bytes:\xe2\x82" where its bytes are not whole characters
// (or hold a NUL).
bool lp_logprobs_show(struct lp_bytes *out, struct lp_str token); // false without memory

// Counts the characters of text that comes in pieces. Ill-formed bytes count as the U+FFFD they
// become.
struct lp_char_count {
    int64_t n;             // characters that are complete
    unsigned char held[4]; // the beginning of the next one
    size_t n_held;
};
void lp_char_count_add(struct lp_char_count *count, struct lp_str piece);

struct lp_token_logprob {
    json_t *text; // as lp_logprobs_show shows it; taken over
    bool has_logprob;
    double logprob;
    json_t *top;    // {text: log-probability}, taken over; NULL: null
    int64_t offset; // characters before it in the choice's text
};

struct lp_logprobs {
    json_t *tokens, *token_logprobs, *top_logprobs, *text_offset;
};
bool lp_logprobs_add(struct lp_logprobs *l,
                     const struct lp_token_logprob *one); // false without memory
json_t *lp_logprobs_take(struct lp_logprobs *l); // the object; l is then empty. NULL without memory
void lp_logprobs_release(struct lp_logprobs *l);

#endif
