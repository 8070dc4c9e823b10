// For the tests of grammars: random grammars, and a matcher for them that knows nothing of
// automata. It asks, by the definition of each element, where it can end when it begins at a place
// of a text of at most 63 bytes, and whether the rest of the text is the beginning of what it
// matches.
#ifndef TEST_GRAMMAR_NAIVE_H
#define TEST_GRAMMAR_NAIVE_H

#include "base/rng.h"
#include "base/utf8_step.h"
#include "grammar/build.h"

enum { N_NODES = 200, N_CHILDREN = 4, N_RULES = 4, N_TEXT = 63 };

enum naive_kind { N_TEXT_NODE, N_CLASS, N_SEQUENCE, N_CHOICE, N_REPEAT, N_USE };

struct naive_node {
    enum naive_kind kind;
    const char *text; // of a class: its characters
    bool negated;
    int n, children[N_CHILDREN];
    int min, max;
};

struct naive {
    struct naive_node nodes[N_NODES];
    int n_nodes, rules[N_RULES]; // rule 0 is the start
    const char *text;            // what is looked at
    int len;
    uint64_t ends[N_NODES][N_TEXT + 1]; // memory of naive_ends and naive_begins
    bool begins[N_NODES][N_TEXT + 1];
    uint8_t knows_ends[N_NODES][N_TEXT + 1], knows_begins[N_NODES][N_TEXT + 1];
};

// ---- matching ----

// Length of the character of a class at `at`, 0: none. *cut: the text ends within one.
static inline int naive_char(const struct naive *g, const struct naive_node *node, int at,
                             bool *cut) {
    const unsigned char *p = (const unsigned char *)g->text + at;
    int rest = g->len - at;
    size_t n = 0, step;
    *cut = false;
    if (rest == 0) return 0;
    if (node->negated) {
        enum lp_utf8_kind kind = lp_utf8_step(p, (size_t)rest, &n);
        *cut = kind == LP_UTF8_CUT;
        if (kind != LP_UTF8_WHOLE) return 0;
    }
    for (const char *c = node->text; *c; c += step) {
        lp_utf8_step((const unsigned char *)c, strlen(c), &step);
        bool same = memcmp(c, p, step < (size_t)rest ? step : (size_t)rest) == 0;
        if (same && step <= (size_t)rest) return node->negated ? 0 : (int)step;
        if (same && !node->negated) *cut = true;
    }
    return node->negated ? (int)n : 0;
}

static uint64_t naive_ends(struct naive *g, int id, int at);

static inline uint64_t naive_ends_from(struct naive *g, int id, uint64_t from) {
    uint64_t ends = 0;
    for (int at = 0; at <= g->len; at++)
        if (from >> at & 1) ends |= naive_ends(g, id, at);
    return ends;
}

static inline int naive_most(const struct naive_node *node) { // further rounds add nothing
    return node->max < 0 ? node->min + N_TEXT + 1 : node->max;
}

static inline uint64_t naive_find_ends(struct naive *g, const struct naive_node *node, int at) {
    uint64_t ends = 0, from = (uint64_t)1 << at;
    bool cut;
    int n;
    switch (node->kind) {
    case N_TEXT_NODE:
        n = (int)strlen(node->text);
        return n <= g->len - at && memcmp(node->text, g->text + at, (size_t)n) == 0 ? from << n : 0;
    case N_CLASS:
        n = naive_char(g, node, at, &cut);
        return n ? from << n : 0;
    case N_SEQUENCE:
        for (int i = 0; i < node->n; i++) from = naive_ends_from(g, node->children[i], from);
        return from;
    case N_CHOICE:
        for (int i = 0; i < node->n; i++) ends |= naive_ends(g, node->children[i], at);
        return ends;
    case N_USE:
        return naive_ends(g, g->rules[node->children[0]], at);
    case N_REPEAT:
        break;
    }
    for (int i = 0; i <= naive_most(node) && from; i++) {
        if (i >= node->min) ends |= from;
        from = naive_ends_from(g, node->children[0], from);
    }
    return ends;
}

static uint64_t naive_ends(struct naive *g, int id, int at) {
    if (!g->knows_ends[id][at]) {
        g->ends[id][at] = naive_find_ends(g, &g->nodes[id], at);
        g->knows_ends[id][at] = 1;
    }
    return g->ends[id][at];
}

static bool naive_begins(struct naive *g, int id, int at);

static inline bool naive_begins_from(struct naive *g, int id, uint64_t from) {
    bool begins = false;
    for (int at = 0; at <= g->len && !begins; at++)
        begins = (from >> at & 1) && naive_begins(g, id, at);
    return begins;
}

static inline bool naive_find_begins(struct naive *g, const struct naive_node *node, int at) {
    uint64_t from = (uint64_t)1 << at;
    int rest = g->len - at;
    bool cut;
    switch (node->kind) {
    case N_TEXT_NODE:
        return (int)strlen(node->text) >= rest &&
               memcmp(node->text, g->text + at, (size_t)rest) == 0;
    case N_CLASS:
        return naive_char(g, node, at, &cut) == rest || cut;
    case N_CHOICE:
        for (int i = 0; i < node->n; i++)
            if (naive_begins(g, node->children[i], at)) return true;
        return false;
    case N_USE:
        return naive_begins(g, g->rules[node->children[0]], at);
    case N_SEQUENCE:
        for (int i = 0; i < node->n; i++) {
            if (naive_begins_from(g, node->children[i], from)) return true;
            from = naive_ends_from(g, node->children[i], from);
        }
        return from >> g->len & 1;
    case N_REPEAT:
        break;
    }
    for (int i = 0; i <= naive_most(node) && from; i++) {
        if (i >= node->min && (from >> g->len & 1)) return true;
        if (i < naive_most(node) && naive_begins_from(g, node->children[0], from)) return true;
        from = naive_ends_from(g, node->children[0], from);
    }
    return false;
}

// Is the text from `at` to its end the beginning of something that node matches?
static bool naive_begins(struct naive *g, int id, int at) {
    if (at == g->len) return true; // every node of these grammars matches something
    if (!g->knows_begins[id][at]) {
        g->begins[id][at] = naive_find_begins(g, &g->nodes[id], at);
        g->knows_begins[id][at] = 1;
    }
    return g->begins[id][at];
}

static inline void naive_look_at(struct naive *g, const char *text, int len) {
    g->text = text;
    g->len = len;
    memset(g->knows_ends, 0, (size_t)g->n_nodes * sizeof g->knows_ends[0]);
    memset(g->knows_begins, 0, (size_t)g->n_nodes * sizeof g->knows_begins[0]);
}
static inline bool naive_matches(struct naive *g, const char *text, int len) {
    naive_look_at(g, text, len);
    return naive_ends(g, g->rules[0], 0) >> len & 1;
}
static inline bool naive_may_begin(struct naive *g, const char *text, int len) {
    naive_look_at(g, text, len);
    return naive_begins(g, g->rules[0], 0);
}

// ---- random grammars ----

static inline int naive_pick(struct lp_rng *rng, int n) {
    return (int)(lp_rng_u64(rng) % (uint64_t)n);
}

static inline int naive_add(struct naive *g, struct naive_node node) {
    g->nodes[g->n_nodes] = node;
    return g->n_nodes++;
}

static inline int naive_leaf(struct naive *g, struct lp_rng *rng) {
    static const char *const texts[] = {"a", "b",   "ab",       "ba",        "(",
                                        ")", "abc", "\xC3\xA9", "c\xC3\xA9", ""};
    static const char *const classes[] = {"ab", "bc", "\xC3\xA9\xC3\xA8", "a(\xE2\x82\xAC",
                                          "abc()"};
    if (naive_pick(rng, 2))
        return naive_add(
            g, (struct naive_node){.kind = N_TEXT_NODE, .text = texts[naive_pick(rng, 10)]});
    return naive_add(g, (struct naive_node){.kind = N_CLASS,
                                            .text = classes[naive_pick(rng, 5)],
                                            .negated = naive_pick(rng, 4) == 0});
}

static inline int naive_random(struct naive *g, struct lp_rng *rng, int depth) {
    static const int bounds[][2] = {{0, 1},  {0, -1},  {1, -1},  {2, 3},
                                    {0, 40}, {30, 50}, {35, -1}, {3, 60}};
    struct naive_node node = {.kind = N_SEQUENCE};
    int kind = depth == 0 ? 0 : naive_pick(rng, 6);
    if (kind < 1 || g->n_nodes > N_NODES - 40) return naive_leaf(g, rng);
    if (kind == 1) { // a rule stands behind a byte, so that none is left-recursive
        node.n = 2;
        node.children[0] = naive_add(g, (struct naive_node){.kind = N_TEXT_NODE, .text = "("});
        node.children[1] = naive_add(
            g, (struct naive_node){.kind = N_USE, .children = {naive_pick(rng, N_RULES)}});
        return naive_add(g, node);
    }
    if (kind == 2) {
        int i = naive_pick(rng, 8);
        node = (struct naive_node){.kind = N_REPEAT, .min = bounds[i][0], .max = bounds[i][1]};
        node.children[0] = naive_random(g, rng, depth - 1);
        return naive_add(g, node);
    }
    if (kind == 3) node.kind = N_CHOICE;
    node.n = 2 + naive_pick(rng, N_CHILDREN - 1);
    for (int i = 0; i < node.n; i++) node.children[i] = naive_random(g, rng, depth - 1);
    return naive_add(g, node);
}

static inline void naive_make(struct naive *g, uint64_t seed) {
    struct lp_rng rng;
    lp_rng_init(&rng, seed);
    g->n_nodes = 0;
    for (int i = 0; i < N_RULES; i++) { // each rule can end without another
        struct naive_node rule = {.kind = N_CHOICE, .n = 2};
        rule.children[0] = naive_add(g, (struct naive_node){.kind = N_TEXT_NODE, .text = "b"});
        rule.children[1] = naive_random(g, &rng, 4);
        g->rules[i] = naive_add(g, rule);
    }
}

// ---- the same for the builder ----

static inline lp_gb_node naive_build_class(struct lp_gb *b, const struct naive_node *node) {
    struct lp_gb_range ranges[8];
    size_t n = 0, step;
    for (const unsigned char *c = (const unsigned char *)node->text; *c; c += step, n++) {
        lp_utf8_step(c, strlen((const char *)c), &step);
        uint32_t point = step == 1   ? c[0]
                         : step == 2 ? (c[0] & 0x1Fu) << 6 | (c[1] & 0x3Fu)
                                     : (c[0] & 0xFu) << 12 | (c[1] & 0x3Fu) << 6 | (c[2] & 0x3Fu);
        ranges[n] = (struct lp_gb_range){point, point};
    }
    return lp_gb_class(b, ranges, n, node->negated);
}

static inline lp_gb_node naive_build_node(const struct naive *g, struct lp_gb *b, int id,
                                          const lp_gb_rule *rules) {
    const struct naive_node *node = &g->nodes[id];
    lp_gb_node nodes[N_CHILDREN];
    if (node->kind == N_TEXT_NODE) return lp_gb_text(b, lp_str_from(node->text));
    if (node->kind == N_CLASS) return naive_build_class(b, node);
    if (node->kind == N_USE) return lp_gb_use(b, rules[node->children[0]]);
    if (node->kind == N_REPEAT)
        return lp_gb_repeat(b, naive_build_node(g, b, node->children[0], rules), node->min,
                            node->max);
    for (int i = 0; i < node->n; i++) nodes[i] = naive_build_node(g, b, node->children[i], rules);
    return node->kind == N_CHOICE ? lp_gb_choice(b, nodes, (size_t)node->n)
                                  : lp_gb_sequence(b, nodes, (size_t)node->n);
}

static inline lp_status naive_build(const struct naive *g, const struct lp_token_trie *trie,
                                    struct lp_grammar **out, struct lp_err *err) {
    struct lp_gb *b = lp_gb_new();
    lp_gb_rule rules[N_RULES];
    for (int i = 0; i < N_RULES; i++) rules[i] = lp_gb_declare(b, "rule");
    for (int i = 0; i < N_RULES; i++)
        lp_gb_define(b, rules[i], naive_build_node(g, b, g->rules[i], rules));
    lp_status status = lp_gb_finish(b, rules[0], trie, out, err);
    lp_gb_free(b);
    return status;
}

#endif
