// A grammar in GBNF and a text: compiled or refused with a sentence, then followed through the text
// byte by byte, each byte a token. What is checked: the mask and accept agree; what the matcher
// says of the end is what lp_grammar_matches says; a mask is never empty where there is no end.
//
// The input is the grammar, a NUL, and the text.
#include <stdlib.h>

#include "base/log.h"
#include "grammar/grammar_parts.h"

enum { N_VOCAB = 260, MAX_TEXT = 200 };

static bool token_bytes(void *user, int32_t id, struct lp_bytes *out) {
    static const char *const more[] = {"aa", "\"}", "((((((((((((((((((", "ab"};
    char byte = (char)id;
    (void)user;
    return id < 256 ? lp_bytes_append(out, &byte, 1) : lp_bytes_puts(out, more[id - 256]);
}

static void follow(struct lp_grammar *g, struct lp_str text) {
    struct lp_matcher *m;
    if (lp_matcher_new(&m, g, NULL)) abort();
    size_t i = 0;
    for (; i < text.len; i++) {
        int32_t byte = (unsigned char)text.data[i];
        const uint32_t *mask = lp_matcher_mask(m);
        if (!mask && !lp_matcher_failure(m)[0]) abort();
        bool is_allowed = mask && (mask[byte / 32] >> byte % 32 & 1);
        // A grammar that is too ambiguous may allow less in one of the two.
        if (lp_matcher_accept(m, byte) != is_allowed && mask && !g->dfa.was_cut) abort();
        if (!is_allowed) break;
    }
    bool can_end = i == text.len && lp_matcher_can_end(m);
    if (lp_grammar_matches(g, text) != can_end && !g->dfa.was_cut && !lp_matcher_failure(m)[0])
        abort();
    lp_matcher_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct lp_token_trie *trie;
    lp_log_set_level(LP_LOG_ERROR);
    if (!trie && lp_token_trie_new(&trie, N_VOCAB, token_bytes, NULL, NULL, NULL)) abort();
    const uint8_t *end = size ? memchr(data, 0, size) : NULL;
    size_t n = end ? (size_t)(end - data) : size;
    struct lp_str source = {(const char *)data, n}, text = {"", 0};
    if (end) text = (struct lp_str){(const char *)end + 1, size - n - 1};
    if (text.len > MAX_TEXT) text.len = MAX_TEXT;
    struct lp_grammar *g;
    struct lp_err err = {0};
    lp_status status = lp_grammar_compile(&g, LP_GRAMMAR_GBNF, source, trie, NULL, NULL, &err);
    if (status) {
        if (g || !err.text[0] || status == LP_STATUS_MEMORY) abort();
        return 0;
    }
    follow(g, text);
    lp_grammar_put(g);
    return 0;
}
