// The grammars of a model: compiled by whoever submits a request, kept for those that come with the
// same one, so that the masks found for one serve the others.
#ifndef LP_ENGINE_GRAMMAR_CACHE_H
#define LP_ENGINE_GRAMMAR_CACHE_H

#include "grammar/grammar.h"
#include "text/tokenizer.h"

struct lp_grammar_cache; // thread-safe

// The vocabulary: ids of `never` ([n_vocab], of a model; not copied) are in no mask. Errors:
// MEMORY.
lp_status lp_grammar_cache_new(struct lp_grammar_cache **out, const struct lp_tokenizer *tok,
                               const bool *never, int32_t n_vocab, struct lp_err *err);
// Matchers must be gone. NULL is allowed.
void lp_grammar_cache_free(struct lp_grammar_cache *cache);

// The grammar of a kind ("json", "json_schema", ...: grammar/grammar.h) and source, with a
// reference for the caller. Errors: those of lp_grammar_compile; INVALID for an unknown kind.
lp_status lp_grammar_cache_take(struct lp_grammar_cache *cache, const char *kind,
                                struct lp_str source, struct lp_grammar **out, struct lp_err *err);

#endif
