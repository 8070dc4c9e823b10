// What a model may write: a context-free grammar over bytes, and which tokens of a vocabulary it
// allows next.
//
//     source (JSON schema, regular expression, choices, GBNF, tool calls)
//       --> builder (build.h): rules of texts, character classes, sequences, choices, repetitions
//       --> lp_grammar: states of a pushdown automaton, shared by all requests that ask for it
//       --> lp_matcher: where one sequence is; asks for a mask over tokens, is told each token
//
// Fails closed: a token that the grammar does not allow is never in a mask. Every size is bounded:
// nothing that a client sends may take more than the limits below.
#ifndef LP_GRAMMAR_GRAMMAR_H
#define LP_GRAMMAR_GRAMMAR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/status.h"

#define LP_GRAMMAR_MAX_SOURCE ((size_t)1 << 20) // bytes of a schema, expression or grammar
#define LP_GRAMMAR_MAX_NODES 200000             // of a built grammar
#define LP_GRAMMAR_MAX_DEPTH 256                // of nested rules while matching
#define LP_GRAMMAR_MAX_REPEAT 10000             // {m,n}, minLength, ...: larger is refused
#define LP_GRAMMAR_COMPILE_MS 2000              // of a processor; what takes longer is refused

// ---- a vocabulary as a trie of bytes ----

// The bytes of token id, appended to out; false: the token is never written by a grammar (control,
// unused). Called once for each id, while the trie is made.
typedef bool (*lp_token_bytes_fn)(void *user, int32_t id, struct lp_bytes *out);

struct lp_token_trie;
// control: ids that only a grammar's token element (lp_gb_token) matches, never text. Tokens of no
// bytes are never allowed. Errors: MEMORY.
lp_status lp_token_trie_new(struct lp_token_trie **out, int32_t n_vocab, lp_token_bytes_fn bytes,
                            void *user, const bool *is_control, struct lp_err *err);
void lp_token_trie_free(struct lp_token_trie *trie); // NULL is allowed

// ---- grammars ----

enum lp_grammar_kind {
    LP_GRAMMAR_JSON,   // any JSON object; source is empty
    LP_GRAMMAR_SCHEMA, // JSON Schema
    LP_GRAMMAR_REGEX,  // the whole answer matches it
    LP_GRAMMAR_CHOICE, // a JSON array of texts, one of which is the answer
    LP_GRAMMAR_GBNF,   // llama.cpp's notation; begins with the rule "root"
    LP_GRAMMAR_TOOLS,  // tool calls in a model's own syntax (lp_grammar_from_tools)
};
// "json", "json_schema", "regex", "choice", "gbnf", "tools"; false if there is none of that name.
bool lp_grammar_kind_from_name(const char *name, enum lp_grammar_kind *out);

struct lp_grammar; // counted references; thread-safe

// Errors: INVALID names what is wrong and where, in words for the client; UNSUPPORTED names the
// keyword or construct that is not supported; LIMIT; MEMORY. find_token (may be NULL): the id of a
// control token by its text, or -1 (for TOOLS).
typedef int32_t (*lp_find_token_fn)(void *user, struct lp_str text);
lp_status lp_grammar_compile(struct lp_grammar **out, enum lp_grammar_kind kind,
                             struct lp_str source, const struct lp_token_trie *trie,
                             lp_find_token_fn find_token, void *user, struct lp_err *err);
struct lp_grammar *lp_grammar_take(struct lp_grammar *grammar); // one reference more
void lp_grammar_put(struct lp_grammar *grammar);                // NULL is allowed
// Does the whole text match? For tests and checks; needs no vocabulary.
bool lp_grammar_matches(struct lp_grammar *grammar, struct lp_str text);

// ---- one sequence ----

struct lp_matcher;
// Takes a reference of the grammar; the trie must outlive it. Errors: MEMORY.
lp_status lp_matcher_new(struct lp_matcher **out, struct lp_grammar *grammar, struct lp_err *err);
void lp_matcher_free(struct lp_matcher *matcher); // NULL is allowed
// Bit id % 32 of word id / 32: token id may come next. [(n_vocab + 31) / 32], valid until the next
// call on this matcher. End tokens are the caller's: they may come when lp_matcher_can_end. NULL
// without memory, past a limit, or where nothing may come and what was written is not whole: the
// request must fail with lp_matcher_failure.
const uint32_t *lp_matcher_mask(struct lp_matcher *matcher);
// Why the last mask or token was refused, a sentence; "" if it was not.
const char *lp_matcher_failure(const struct lp_matcher *matcher);
bool lp_matcher_can_end(const struct lp_matcher *matcher); // what was written is whole
// False: it is not allowed (lp_matcher_failure), and nothing has changed.
bool lp_matcher_accept(struct lp_matcher *matcher, int32_t id);

#endif
