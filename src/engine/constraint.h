// What one choice may write next: a grammar, from its first token or from a marker on, and the end
// tokens, which may come when what was written is whole.
#ifndef LP_ENGINE_CONSTRAINT_H
#define LP_ENGINE_CONSTRAINT_H

#include "grammar/grammar.h"

struct lp_constraint_params {
    struct lp_grammar *grammar; // a reference is taken
    int32_t after;              // the grammar holds behind the first token of this id; -1: at once
    int32_t n_vocab;
    const bool *never; // [n_vocab] ids that are never generated
    // [n_ends] tokens that end the choice, not copied. The first n_finals may come at the end; the
    // others never (ignore_eos).
    const int32_t *ends;
    size_t n_ends, n_finals;
};

struct lp_constraint;

lp_status lp_constraint_new(struct lp_constraint **out, const struct lp_constraint_params *params,
                            struct lp_err *err);
void lp_constraint_free(struct lp_constraint *c); // NULL is allowed

// Finds what may come next. *is_over: nothing may, not even an end token; the choice ends as it is.
// INVALID: the grammar cannot be followed any further; the request must fail. (Not LIMIT, which is
// of the context.)
lp_status lp_constraint_next(struct lp_constraint *c, bool *is_over, struct lp_err *err);
// Bits as lp_matcher_mask's, of what lp_constraint_next found: at least one, of an id that is not
// `never`. Valid until the next call on c.
const uint32_t *lp_constraint_allowed(const struct lp_constraint *c);
// Takes up a token that was allowed; an end token changes nothing. INVALID as above.
lp_status lp_constraint_accept(struct lp_constraint *c, int32_t id, struct lp_err *err);

#endif
