// From a source by its kind to a grammar.
#include "grammar/build.h"

bool lp_grammar_kind_from_name(const char *name, enum lp_grammar_kind *out) {
    static const char *const names[] = {
        [LP_GRAMMAR_JSON] = "json",   [LP_GRAMMAR_SCHEMA] = "json_schema",
        [LP_GRAMMAR_REGEX] = "regex", [LP_GRAMMAR_CHOICE] = "choice",
        [LP_GRAMMAR_GBNF] = "gbnf",   [LP_GRAMMAR_TOOLS] = "tools"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i], name) != 0) continue;
        *out = (enum lp_grammar_kind)i;
        return true;
    }
    return false;
}

static lp_gb_node compile_source(struct lp_gb *b, enum lp_grammar_kind kind, struct lp_str source,
                                 lp_find_token_fn find_token, void *user) {
    switch (kind) {
    case LP_GRAMMAR_JSON:
        return lp_grammar_from_json(b);
    case LP_GRAMMAR_SCHEMA:
        return lp_grammar_from_schema(b, source);
    case LP_GRAMMAR_REGEX:
        return lp_grammar_from_regex(b, source);
    case LP_GRAMMAR_CHOICE:
        return lp_grammar_from_choice(b, source);
    case LP_GRAMMAR_GBNF:
        return lp_grammar_from_gbnf(b, source);
    case LP_GRAMMAR_TOOLS:
        return lp_grammar_from_tools(b, source, find_token, user);
    }
    return lp_gb_fail(b, LP_STATUS_INVALID, "a grammar of kind %d does not exist", (int)kind);
}

lp_status lp_grammar_compile(struct lp_grammar **out, enum lp_grammar_kind kind,
                             struct lp_str source, const struct lp_token_trie *trie,
                             lp_find_token_fn find_token, void *user, struct lp_err *err) {
    *out = NULL;
    if (source.len > LP_GRAMMAR_MAX_SOURCE)
        return lp_err_set(err, LP_STATUS_LIMIT,
                          "the grammar has %zu bytes, at most %zu can be used", source.len,
                          LP_GRAMMAR_MAX_SOURCE);
    struct lp_gb *b = lp_gb_new();
    if (!b) return lp_err_memory(err, 0, "the grammar");
    lp_gb_rule start = lp_gb_declare(b, "the grammar");
    lp_gb_define(b, start, compile_source(b, kind, source, find_token, user));
    lp_status status = lp_gb_finish(b, start, trie, out, err);
    lp_gb_free(b);
    return status;
}
