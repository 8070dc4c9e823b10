#include "engine/grammar_cache.h"

#include <pthread.h>
#include <semaphore.h>
#include <string.h>

#include "base/alloc.h"

#define N_KEPT 32
#define N_COMPILERS 2 // at a time: steps need the processors too

struct kept {
    struct lp_grammar *grammar; // or NULL
    enum lp_grammar_kind kind;
    char *source;
    size_t source_len;
    uint64_t used; // when, counted by `clock`
};

struct lp_grammar_cache {
    const struct lp_tokenizer *tok;
    const bool *never;
    int32_t n_vocab;
    sem_t compilers;
    pthread_mutex_t lock;       // of what follows
    struct lp_token_trie *trie; // made for the first grammar
    struct kept kept[N_KEPT];
    uint64_t clock;
};

lp_status lp_grammar_cache_new(struct lp_grammar_cache **out, const struct lp_tokenizer *tok,
                               const bool *never, int32_t n_vocab, struct lp_err *err) {
    struct lp_grammar_cache *c = lp_alloc(1, sizeof *c);
    if (!c) return lp_err_memory(err, sizeof *c, "the grammars of a model");
    c->tok = tok;
    c->never = never;
    c->n_vocab = n_vocab;
    pthread_mutex_init(&c->lock, NULL);
    sem_init(&c->compilers, 0, N_COMPILERS);
    *out = c;
    return LP_OK;
}

static void drop(struct kept *k) {
    lp_grammar_put(k->grammar);
    lp_free(k->source);
    *k = (struct kept){0};
}

void lp_grammar_cache_free(struct lp_grammar_cache *c) {
    if (!c) return;
    for (size_t i = 0; i < N_KEPT; i++) drop(&c->kept[i]);
    lp_token_trie_free(c->trie);
    sem_destroy(&c->compilers);
    pthread_mutex_destroy(&c->lock);
    lp_free(c);
}

// ---- the vocabulary ----

// End tokens are no text, whatever they are called: when they may come is not the grammar's to say.
static bool is_written(const struct lp_grammar_cache *c, int32_t id) {
    return !c->never[id] && !lp_tokenizer_is_stop(c->tok, id);
}

static bool token_bytes(void *user, int32_t id, struct lp_bytes *out) {
    const struct lp_grammar_cache *c = user;
    return is_written(c, id) && lp_tokenizer_piece(c->tok, id, false, out);
}

static int32_t find_token(void *user, struct lp_str text) {
    const struct lp_grammar_cache *c = user;
    int32_t id = lp_tokenizer_find(c->tok, text);
    return id >= 0 && lp_tokenizer_is_special(c->tok, id) && is_written(c, id) ? id : -1;
}

static lp_status make_trie(struct lp_grammar_cache *c, struct lp_err *err) {
    bool *is_control = lp_alloc((size_t)c->n_vocab, sizeof *is_control);
    if (!is_control) return lp_err_memory(err, (size_t)c->n_vocab, "the tree of the vocabulary");
    for (int32_t id = 0; id < c->n_vocab; id++)
        is_control[id] = is_written(c, id) && lp_tokenizer_is_special(c->tok, id);
    lp_status status = lp_token_trie_new(&c->trie, c->n_vocab, token_bytes, c, is_control, err);
    lp_free(is_control);
    return status;
}

// ---- grammars ----

static struct lp_grammar *find(struct lp_grammar_cache *c, enum lp_grammar_kind kind,
                               struct lp_str source) {
    for (size_t i = 0; i < N_KEPT; i++) {
        struct kept *k = &c->kept[i];
        if (!k->grammar || k->kind != kind ||
            !lp_str_equal(source, (struct lp_str){k->source, k->source_len}))
            continue;
        k->used = ++c->clock;
        return lp_grammar_take(k->grammar);
    }
    return NULL;
}

// In place of the one that was used least recently. Without memory it is not kept.
static void keep(struct lp_grammar_cache *c, enum lp_grammar_kind kind, struct lp_str source,
                 struct lp_grammar *grammar) {
    struct kept *oldest = &c->kept[0];
    char *copy = lp_strndup(source.len ? source.data : "", source.len);
    if (!copy) return;
    for (size_t i = 1; i < N_KEPT; i++)
        if (c->kept[i].used < oldest->used) oldest = &c->kept[i];
    drop(oldest);
    *oldest = (struct kept){.grammar = lp_grammar_take(grammar),
                            .kind = kind,
                            .source = copy,
                            .source_len = source.len,
                            .used = ++c->clock};
}

lp_status lp_grammar_cache_take(struct lp_grammar_cache *c, const char *kind_name,
                                struct lp_str source, struct lp_grammar **out, struct lp_err *err) {
    enum lp_grammar_kind kind;
    if (!lp_grammar_kind_from_name(kind_name, &kind))
        return lp_err_set(
            err, LP_STATUS_INVALID,
            "grammar_kind is '%s', expected json, json_schema, regex, choice, gbnf or "
            "tools",
            kind_name);
    pthread_mutex_lock(&c->lock);
    lp_status status = c->trie ? LP_OK : make_trie(c, err);
    *out = status ? NULL : find(c, kind, source);
    pthread_mutex_unlock(&c->lock);
    if (status || *out) return status;
    // Without the lock: those whose grammar is known need not wait.
    while (sem_wait(&c->compilers)) {
    }
    status = lp_grammar_compile(out, kind, source, c->trie, find_token, c, err);
    sem_post(&c->compilers);
    if (status) return status;
    pthread_mutex_lock(&c->lock);
    struct lp_grammar *same = find(c, kind, source); // somebody was quicker
    if (same) {
        lp_grammar_put(*out);
        *out = same;
    } else {
        keep(c, kind, source, *out);
    }
    pthread_mutex_unlock(&c->lock);
    return LP_OK;
}
