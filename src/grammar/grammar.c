// Compiled grammars: from a builder to states, references, whole texts.
#include "grammar/grammar_parts.h"

#include "base/alloc.h"
#include "base/log.h"

// ---- making one ----

static lp_status make(struct lp_grammar *g, struct lp_gb *b, lp_gb_rule start,
                      const struct lp_token_trie *trie, struct lp_err *err) {
    const struct lp_writable *writable = trie ? &trie->writable : NULL;
    struct lp_rule_facts facts;
    lp_rule_facts_make(&facts, b, start, writable);
    lp_automaton_make(&g->automaton, b, start, &facts, writable);
    lp_rule_facts_release(&facts);
    if (b->failed) return lp_gb_error(b, err);
    g->trie = trie;
    if (!lp_dfa_init(&g->dfa, &g->automaton) || (trie && !lp_masks_init(&g->masks, &g->dfa, trie)))
        return lp_err_memory(err, 0, "the grammar");
    if (g->dfa.start == LP_SET_DEAD)
        return lp_err_set(err, LP_STATUS_LIMIT,
                          "the grammar has too many ways to begin; make it less ambiguous");
    return LP_OK;
}

static void destroy(struct lp_grammar *g) {
    if (g->trie) lp_masks_release(&g->masks);
    lp_dfa_release(&g->dfa);
    lp_automaton_release(&g->automaton);
    pthread_mutex_destroy(&g->lock);
    lp_free(g);
}

lp_status lp_gb_finish(struct lp_gb *b, lp_gb_rule start, const struct lp_token_trie *trie,
                       struct lp_grammar **out, struct lp_err *err) {
    *out = NULL;
    if (b->failed) return lp_gb_error(b, err);
    if (start < 0 || (size_t)start >= b->n_rules)
        return lp_err_set(err, LP_STATUS_INVALID, "rule %d of the grammar does not exist",
                          (int)start);
    struct lp_grammar *g = lp_alloc(1, sizeof *g);
    if (!g) return lp_err_memory(err, sizeof *g, "the grammar");
    g->n_references = 1;
    pthread_mutex_init(&g->lock, NULL);
    lp_status status = make(g, b, start, trie, err);
    if (status)
        destroy(g);
    else
        *out = g;
    return status;
}

struct lp_grammar *lp_grammar_take(struct lp_grammar *g) {
    atomic_fetch_add(&g->n_references, 1);
    return g;
}

void lp_grammar_put(struct lp_grammar *g) {
    if (g && atomic_fetch_sub(&g->n_references, 1) == 1) destroy(g);
}

// ---- using one ----

void lp_grammar_trim(struct lp_grammar *g) {
    if (!lp_dfa_is_large(&g->dfa)) return;
    if (g->trie) lp_masks_clear(&g->masks);
    if (!lp_dfa_trim(&g->dfa)) lp_log(LP_LOG_WARN, "no memory to make a grammar's tables smaller");
}

bool lp_grammar_matches(struct lp_grammar *g, struct lp_str text) {
    struct lp_dfa_holder at;
    pthread_mutex_lock(&g->lock);
    lp_dfa_hold(&g->dfa, &at);
    for (size_t i = 0; i < text.len && at.set != LP_SET_DEAD; i++) {
        lp_dfa_begin(&g->dfa);
        uint32_t next = lp_dfa_step(&g->dfa, at.set, (uint8_t)text.data[i]);
        at.set = next ? next : LP_SET_DEAD;
        lp_grammar_trim(g);
    }
    bool can_end = g->dfa.sets.sets[at.set].can_end;
    lp_dfa_drop(&g->dfa, &at);
    pthread_mutex_unlock(&g->lock);
    return can_end;
}
