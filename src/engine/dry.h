// DRY ("don't repeat yourself"): a token that would go on with a passage that stands earlier in the
// text loses more, the longer the passage is (as described for text-generation-webui, where it
// comes from, and as in llama.cpp; docs/sampling.md).
//
//     text:      ... a b c X ... Y a b c
//                    -----         -----   the last 3 tokens stand there before, followed by X:
//     logit of X -= multiplier * base^(3 - allowed_length), if 3 >= allowed_length
//
// An id that follows several matches counts with the longest. A match never reaches over a breaker,
// and breakers themselves lose nothing. The work is linear in the length of the text.
#ifndef LP_ENGINE_DRY_H
#define LP_ENGINE_DRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define LP_DRY_MAX_MATCH 1024 // longer matches count as this long: bounds the memory, not the text

struct lp_dry {
    double multiplier, base;
    int32_t allowed_length;
    bool *is_breaker; // [n_vocab]
    int32_t *overlap; // [LP_DRY_MAX_MATCH]
};

// The caller has checked: multiplier > 0, base >= 1, 1 <= allowed_length <= LP_DRY_MAX_MATCH,
// breakers in the vocabulary.
lp_status lp_dry_init(struct lp_dry *dry, double multiplier, double base, int32_t allowed_length,
                      const int32_t *breakers, size_t n_breakers, int32_t n_vocab,
                      struct lp_err *err);
void lp_dry_release(struct lp_dry *dry); // zeros are allowed

// tokens [n]: the text so far. scratch [n_vocab]: zero before and after.
void lp_dry_apply(struct lp_dry *dry, float *logits, int32_t *scratch, const int32_t *tokens,
                  int64_t n);

#endif
