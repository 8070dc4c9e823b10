// One sequence in a grammar: a set of configurations, and the mask that was asked for last.
#include "base/alloc.h"
#include "grammar/grammar_parts.h"

struct lp_matcher {
    struct lp_grammar *grammar;
    struct lp_dfa_holder at;
    struct lp_mask *mask; // of `at`, or NULL
    bool can_end;
    const char *failure;
};

lp_status lp_matcher_new(struct lp_matcher **out, struct lp_grammar *grammar, struct lp_err *err) {
    struct lp_matcher *m = lp_alloc(1, sizeof *m);
    *out = NULL;
    if (!m) return lp_err_memory(err, sizeof *m, "a place in the grammar");
    m->grammar = lp_grammar_take(grammar);
    m->failure = "";
    pthread_mutex_lock(&grammar->lock);
    lp_dfa_hold(&grammar->dfa, &m->at);
    m->can_end = grammar->dfa.sets.sets[m->at.set].can_end;
    pthread_mutex_unlock(&grammar->lock);
    *out = m;
    return LP_OK;
}

void lp_matcher_free(struct lp_matcher *m) {
    if (!m) return;
    pthread_mutex_lock(&m->grammar->lock);
    lp_dfa_drop(&m->grammar->dfa, &m->at);
    lp_mask_put(m->mask);
    pthread_mutex_unlock(&m->grammar->lock);
    lp_grammar_put(m->grammar);
    lp_free(m);
}

// Why nothing comes next; other: when nothing has failed.
static const char *failure_text(const struct lp_dfa *dfa, const char *other) {
    switch (dfa->failure) {
    case LP_DFA_OK:
        break;
    case LP_DFA_MEMORY:
        return "out of memory: the tokens that the grammar allows";
    case LP_DFA_TOO_LARGE:
        return "the grammar is too ambiguous here: it takes too much memory to find the tokens "
               "that "
               "it allows";
    case LP_DFA_TOO_LONG:
        return "the grammar is too ambiguous here: it takes too long to find the tokens that it "
               "allows";
    }
    return dfa->was_cut ? "the grammar is too ambiguous here: no way on could be followed" : other;
}

const uint32_t *lp_matcher_mask(struct lp_matcher *m) {
    struct lp_grammar *g = m->grammar;
    if (m->mask) return m->mask->bits;
    pthread_mutex_lock(&g->lock);
    lp_dfa_begin(&g->dfa);
    struct lp_mask *mask = lp_masks_take(&g->masks, m->at.set);
    if (mask && mask->is_empty && !m->can_end) {
        lp_mask_put(mask);
        mask = NULL;
    }
    m->failure =
        mask ? "" : failure_text(&g->dfa, "no token of the vocabulary goes on as the grammar asks");
    m->mask = mask;
    lp_grammar_trim(g);
    pthread_mutex_unlock(&g->lock);
    return mask ? mask->bits : NULL;
}

const char *lp_matcher_failure(const struct lp_matcher *m) {
    return m->failure;
}

bool lp_matcher_can_end(const struct lp_matcher *m) {
    return m->can_end;
}

// The set behind a token, LP_SET_DEAD if it is not allowed; 0 after a failure.
static uint32_t behind(struct lp_grammar *g, uint32_t set, int32_t id) {
    if (id < 0 || id >= g->trie->n_vocab) return LP_SET_DEAD;
    if (g->trie->is_control[id]) return lp_dfa_token(&g->dfa, set, id);
    struct lp_str text = lp_token_trie_bytes(g->trie, id);
    if (text.len == 0) return LP_SET_DEAD;
    for (size_t i = 0; i < text.len && set > LP_SET_DEAD; i++)
        set = lp_dfa_step(&g->dfa, set, (uint8_t)text.data[i]);
    return set;
}

bool lp_matcher_accept(struct lp_matcher *m, int32_t id) {
    struct lp_grammar *g = m->grammar;
    pthread_mutex_lock(&g->lock);
    lp_dfa_begin(&g->dfa);
    uint32_t set = behind(g, m->at.set, id);
    bool is_allowed = set > LP_SET_DEAD;
    m->failure =
        is_allowed ? "" : failure_text(&g->dfa, "the grammar does not allow the token that came");
    if (is_allowed) {
        lp_mask_put(m->mask);
        m->mask = NULL;
        m->at.set = set;
        m->can_end = g->dfa.sets.sets[set].can_end;
    }
    lp_grammar_trim(g);
    pthread_mutex_unlock(&g->lock);
    return is_allowed;
}
