// The prefix cache: a tree of known prefixes over the pages of the KV cache.
//
//   root ── "The quick ..." (page 7, full) ─┬─ "... fox jumps" (page 2, full) ── "over" (page 9, 4 tokens)
//                                           └─ "... dog sleeps" (page 5, full)
//
// A node is one page and the tokens in it; its state depends on the path from the root to it (P5 of
// pages.h). Full nodes may have children; a node with fewer tokens is the end of a finished text.
//
//   T1. A node holds one reference to its page. Sequences that use the page hold others.
//   T2. A node whose page nobody else holds is idle; idle nodes without children are evicted, the
//       least recently used first. Where that is not enough, idle nodes with all that is below
//       them: every page that no table holds can be had.
//   T3. Tokens are compared, not only hashes: a hit is never another text's.
//   T4. A match may end within a page. What is shared whole is shared by reference, of the last
//       page the sequence gets its own copy (P4), so a hit of any length is the same as having
//       computed it.
//   T5. A state that met a non-finite number is forgotten, with all that was built on it.
//
//
// A cache of several parts (lp_kv_set_parts) has a tree for each: what is known in one is not in another. A table's
// part says which one it meets.
//
// The engine's thread uses it.
#ifndef LP_KV_PREFIX_H
#define LP_KV_PREFIX_H

#include "kv/pages.h"
#include "kv/store.h"

struct lp_prefix;

// store: where full pages are kept across runs, or NULL; not owned.
lp_status lp_prefix_new(struct lp_prefix **out, struct lp_kv *kv, struct lp_store *store,
                        struct lp_err *err);
void lp_prefix_free(struct lp_prefix *prefix); // gives all its pages back; NULL is allowed

// Evicts until n pages of a part are free. False: it cannot; tables hold the rest.
bool lp_prefix_make_room(struct lp_prefix *prefix, int32_t part, int64_t n);
int64_t lp_prefix_n_nodes(const struct lp_prefix *prefix);
int64_t lp_prefix_n_idle(const struct lp_prefix *prefix);

// How many of tokens[0..n) are known in a part, without taking anything; *n_shared (may be NULL): whole pages
// of them that somebody uses, so that they cost nothing.
int64_t lp_prefix_peek(const struct lp_prefix *prefix, int32_t part, const int32_t *tokens,
                       int64_t n, int64_t *n_shared);

struct lp_prefix_match {
    int64_t n_tokens; // that the table now holds
    bool has_draft;   // the MTP layer's state is whole
};

// Gives an empty table the longest known prefix of tokens[0..n): whole pages shared, the last one
// copied. own_last: the page of the last token is the table's own even if the match ends with it
// (its token will be computed again). Nothing known, or no page for the copy: n_tokens 0 or fewer
// than known. Errors: MEMORY; the table is then empty.
lp_status lp_prefix_attach(struct lp_prefix *prefix, struct lp_page_table *table,
                           const int32_t *tokens, int64_t n, bool own_last,
                           struct lp_prefix_match *match, struct lp_err *err);

// The same from another table of the same part that holds at least n tokens of the same text.
lp_status lp_prefix_fork(struct lp_prefix *prefix, struct lp_page_table *table,
                         const struct lp_page_table *from, int64_t n, bool own_last,
                         int64_t *n_tokens, struct lp_err *err);

// Brings at most max_pages pages of tokens[0..n) behind what a part's tree knows from the store into the
// tree. Returns how many. Evicts for them.
int64_t lp_prefix_load(struct lp_prefix *prefix, int32_t part, const int32_t *tokens, int64_t n,
                       int64_t max_pages);

// Takes note of the pages of a table whose first n tokens are computed. The last, incomplete page
// only with `finished`: the table must not be written afterwards. has_draft: the MTP layer's state
// of these tokens is whole. Without memory less is noted.
void lp_prefix_insert(struct lp_prefix *prefix, const struct lp_page_table *table,
                      const int32_t *tokens, int64_t n, bool finished, bool has_draft);
// Queues the full pages of tokens[0..n) that a part's tree knows for the store.
void lp_prefix_save(struct lp_prefix *prefix, int32_t part, const int32_t *tokens, int64_t n);
// Forgets every known page of tokens[0..n), in all parts, and what was built on them (T5).
void lp_prefix_forget(struct lp_prefix *prefix, const int32_t *tokens, int64_t n);

#endif
