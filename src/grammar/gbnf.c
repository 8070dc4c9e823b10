// GBNF, llama.cpp's notation for grammars:
//
//     root  ::= "a" item{2,5} | [^0-9\n]* | ( . "\u00e9" )?    # a comment
//     item  ::= [a-z]+
//
// A rule ends with its line; within parentheses and behind "::=" and "|" it may go on on the next
// one. The grammar is the rule "root".
#include <stdio.h>

#include "base/map.h"
#include "base/utf8_step.h"
#include "grammar/build.h"
#include "base/grow.h"

#define MAX_NESTING 200 // of parentheses

struct gbnf {
    struct lp_gb *b;
    const char *at, *end, *begin;
    struct lp_map names; // of rules
    unsigned nesting;
    lp_gb_node *nodes; // a stack: elements of the sequences and alternatives that are open
    size_t n_nodes, nodes_capacity;
};

static bool fail(struct gbnf *g, const char *what) {
    size_t line = 1;
    for (const char *p = g->begin; p < g->at; p++) line += *p == '\n';
    char found[32] = "the end";
    if (g->at < g->end) {
        size_t n;
        lp_utf8_step((const unsigned char *)g->at, (size_t)(g->end - g->at), &n);
        snprintf(found, sizeof found, "'%.*s'", (int)n, g->at);
    }
    lp_gb_fail(g->b, LP_STATUS_INVALID, "the grammar's line %zu: %s, found %s", line, what,
               g->at < g->end && *g->at == '\n' ? "the end of the line" : found);
    return false;
}

// ---- characters ----

static bool is_name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

static bool at_char(const struct gbnf *g, char c) {
    return g->at < g->end && *g->at == c;
}

// Skips blanks and comments, with line ends if `lines`.
static void skip_space(struct gbnf *g, bool lines) {
    for (; g->at < g->end; g->at++) {
        if (*g->at == '#')
            while (g->at < g->end && *g->at != '\n') g->at++;
        if (g->at == g->end) return;
        bool is_line = *g->at == '\n' || *g->at == '\r';
        if (*g->at != ' ' && *g->at != '\t' && !(is_line && lines)) return;
    }
}

static bool read_hex(struct gbnf *g, int n_digits, uint32_t *out) {
    *out = 0;
    for (int i = 0; i < n_digits; i++, g->at++) {
        char c = g->at < g->end ? *g->at : 0;
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) return fail(g, "expected a hexadecimal digit");
        *out = *out << 4 | (uint32_t)digit;
    }
    if (*out > 0x10FFFF || (*out >= 0xD800 && *out <= 0xDFFF))
        return fail(g, "the code before this is no character");
    return true;
}

static bool read_escape(struct gbnf *g, uint32_t *out) {
    static const struct {
        char name, value;
    } simple[] = {{'n', '\n'}, {'r', '\r'}, {'t', '\t'}, {'\\', '\\'}, {'"', '"'},  {'[', '['},
                  {']', ']'},  {'-', '-'},  {'^', '^'},  {'/', '/'},   {'\'', '\''}};
    char c = ++g->at < g->end ? *g->at : 0;
    for (size_t i = 0; i < sizeof simple / sizeof *simple; i++)
        if (c == simple[i].name) {
            *out = (unsigned char)simple[i].value;
            g->at++;
            return true;
        }
    int n_digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (!n_digits) return fail(g, "expected an escape: \\n \\r \\t \\\\ \\\" \\[ \\] \\x \\u \\U");
    g->at++;
    return read_hex(g, n_digits, out);
}

// One character as it stands, or an escape.
static bool read_char(struct gbnf *g, uint32_t *out) {
    if (g->at == g->end || *g->at == '\n') return fail(g, "expected the end of the text or class");
    if (*g->at == '\\') return read_escape(g, out);
    const unsigned char *p = (const unsigned char *)g->at;
    size_t n;
    if (lp_utf8_step(p, (size_t)(g->end - g->at), &n) != LP_UTF8_WHOLE)
        return fail(g, "this is no valid UTF-8");
    *out = lp_utf8_code_point(p, n);
    g->at += n;
    return true;
}

static bool put_char(struct lp_bytes *text, uint32_t c) {
    char out[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = n; i-- > 1; c >>= 6) out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)(lead[n] | c);
    return lp_bytes_append(text, out, n);
}

// ---- elements ----

static lp_gb_node parse_text(struct gbnf *g) {
    struct lp_bytes text = {0};
    bool ok = true;
    g->at++;
    while (ok && !at_char(g, '"')) {
        uint32_t c;
        ok = read_char(g, &c) && put_char(&text, c);
    }
    if (ok) g->at++;
    if (text.failed) lp_gb_fail(g->b, LP_STATUS_MEMORY, "out of memory: the grammar");
    lp_gb_node node = ok ? lp_gb_text(g->b, lp_bytes_view(&text)) : 0;
    lp_bytes_release(&text);
    return node;
}

static bool parse_range(struct gbnf *g, struct lp_gb_range *range) {
    if (!read_char(g, &range->first)) return false;
    range->last = range->first;
    if (!at_char(g, '-') || (g->end - g->at > 1 && g->at[1] == ']')) return true;
    g->at++;
    if (!read_char(g, &range->last)) return false;
    return range->first <= range->last || fail(g, "the range before this runs backwards");
}

static lp_gb_node parse_class(struct gbnf *g) {
    struct lp_gb_range *ranges = NULL;
    size_t n = 0, capacity = 0;
    bool negated = g->end - g->at > 1 && g->at[1] == '^', ok = true;
    g->at += negated ? 2 : 1;
    while (ok && !at_char(g, ']')) {
        if (!(ok = LP_GROW(ranges, capacity, n + 1)))
            lp_gb_fail(g->b, LP_STATUS_MEMORY, "out of memory: the grammar");
        else
            ok = parse_range(g, &ranges[n++]);
    }
    if (ok) g->at++;
    lp_gb_node node = ok ? lp_gb_class(g->b, ranges, n, negated) : 0;
    lp_free(ranges);
    return node;
}

static struct lp_str read_name(struct gbnf *g) {
    struct lp_str name = {g->at, 0};
    while (g->at < g->end && is_name_char(*g->at)) g->at++;
    name.len = (size_t)(g->at - name.data);
    return name;
}

static lp_gb_rule rule_of(struct gbnf *g, struct lp_str name) {
    uint32_t known = lp_map_get(&g->names, name);
    if (known != LP_MAP_NONE) return (lp_gb_rule)known;
    char *text = lp_strndup(name.data, name.len);
    lp_gb_rule rule = text ? lp_gb_declare(g->b, text) : 0;
    if (!text || !lp_map_add(&g->names, name, (uint32_t)rule, NULL))
        lp_gb_fail(g->b, LP_STATUS_MEMORY, "out of memory: the grammar");
    lp_free(text);
    return rule;
}

static lp_gb_node parse_alternatives(struct gbnf *g);

static lp_gb_node parse_group(struct gbnf *g) {
    if (++g->nesting > MAX_NESTING) {
        fail(g, "parentheses are nested too deeply");
        return 0;
    }
    g->at++;
    lp_gb_node node = parse_alternatives(g);
    if (lp_gb_failed(g->b)) return 0;
    g->nesting--;
    if (!at_char(g, ')')) {
        fail(g, "expected ')'");
        return 0;
    }
    g->at++;
    return node;
}

static lp_gb_node parse_element(struct gbnf *g) {
    if (at_char(g, '"')) return parse_text(g);
    if (at_char(g, '[')) return parse_class(g);
    if (at_char(g, '(')) return parse_group(g);
    if (at_char(g, '.')) {
        g->at++;
        return lp_gb_class(g->b, NULL, 0, true);
    }
    if (at_char(g, '<') || at_char(g, '!'))
        return lp_gb_fail(g->b, LP_STATUS_UNSUPPORTED,
                          "tokens in a grammar (<...>) are not supported; write their text");
    return lp_gb_use(g->b, rule_of(g, read_name(g)));
}

// ---- repetitions ----

static bool read_number(struct gbnf *g, int64_t *out) {
    if (g->at == g->end || *g->at < '0' || *g->at > '9') return fail(g, "expected a number");
    for (*out = 0; g->at < g->end && *g->at >= '0' && *g->at <= '9'; g->at++)
        if (*out < INT32_MAX) *out = *out * 10 + (*g->at - '0');
    return true;
}

// {m}, {m,} or {m,n}
static bool read_bounds(struct gbnf *g, int64_t *min, int64_t *max) {
    g->at++;
    skip_space(g, false);
    if (!read_number(g, min)) return false;
    *max = *min;
    skip_space(g, false);
    if (at_char(g, ',')) {
        g->at++;
        skip_space(g, false);
        *max = -1;
        if (!at_char(g, '}') && !read_number(g, max)) return false;
        skip_space(g, false);
    }
    if (!at_char(g, '}')) return fail(g, "expected '}'");
    g->at++;
    return true;
}

// What stands behind an element, any number of times: * + ? {m,n}
static lp_gb_node parse_repetitions(struct gbnf *g, lp_gb_node node) {
    while (!lp_gb_failed(g->b)) {
        int64_t min = 0, max = -1;
        skip_space(g, g->nesting > 0);
        char c = g->at < g->end ? *g->at : 0;
        if (c == '{') {
            if (!read_bounds(g, &min, &max)) return 0;
        } else if (c == '*' || c == '+' || c == '?') {
            min = c == '+';
            max = c == '?' ? 1 : -1;
            g->at++;
        } else {
            return node;
        }
        node = lp_gb_repeat(g->b, node, min, max);
    }
    return 0;
}

// ---- sequences, alternatives, rules ----

static bool push_node(struct gbnf *g, lp_gb_node node) {
    if (!LP_GROW(g->nodes, g->nodes_capacity, g->n_nodes + 1))
        lp_gb_fail(g->b, LP_STATUS_MEMORY, "out of memory: the grammar");
    else
        g->nodes[g->n_nodes++] = node;
    return !lp_gb_failed(g->b);
}

// An alternative may go on behind the end of its line with '|'.
static bool is_continued(const struct gbnf *g) {
    struct gbnf ahead = *g;
    skip_space(&ahead, true);
    return at_char(&ahead, '|');
}

static lp_gb_node parse_sequence(struct gbnf *g) {
    size_t first = g->n_nodes;
    for (;;) {
        skip_space(g, g->nesting > 0);
        if (g->at == g->end || *g->at == '\n' || *g->at == '\r' || *g->at == '|' || *g->at == ')')
            break;
        bool begins = is_name_char(*g->at) || (*g->at && strchr("\"[(.<!", *g->at));
        if (!begins) {
            fail(g, "expected a rule's name, a text, a class or a group");
            return 0;
        }
        lp_gb_node node = parse_element(g);
        if (!push_node(g, parse_repetitions(g, node))) return 0;
    }
    lp_gb_node node = lp_gb_sequence(g->b, g->nodes + first, g->n_nodes - first);
    g->n_nodes = first;
    return node;
}

static lp_gb_node parse_alternatives(struct gbnf *g) {
    size_t first = g->n_nodes;
    skip_space(g, true);
    while (push_node(g, parse_sequence(g)) && is_continued(g)) {
        skip_space(g, true);
        g->at++;
        skip_space(g, true);
    }
    lp_gb_node node = lp_gb_choice(g->b, g->nodes + first, g->n_nodes - first);
    g->n_nodes = first;
    return node;
}

static void parse_rule(struct gbnf *g) {
    struct lp_str name = read_name(g);
    if (name.len == 0) {
        fail(g, "expected the name of a rule");
        return;
    }
    lp_gb_rule rule = rule_of(g, name);
    skip_space(g, false);
    if (g->end - g->at < 3 || memcmp(g->at, "::=", 3) != 0) {
        fail(g, "expected '::='");
        return;
    }
    g->at += 3;
    lp_gb_define(g->b, rule, parse_alternatives(g));
    if (!lp_gb_failed(g->b) && g->at < g->end && *g->at != '\n' && *g->at != '\r')
        fail(g, "expected the end of the rule");
}

lp_gb_node lp_grammar_from_gbnf(struct lp_gb *b, struct lp_str text) {
    struct gbnf g = {.b = b, .at = text.data, .begin = text.data, .end = text.data + text.len};
    if (!LP_GROW(g.nodes, g.nodes_capacity, 1))
        return lp_gb_fail(b, LP_STATUS_MEMORY, "out of memory: the grammar");
    skip_space(&g, true);
    while (g.at < g.end && !lp_gb_failed(b)) {
        parse_rule(&g);
        skip_space(&g, true);
    }
    uint32_t root = lp_map_get(&g.names, lp_str_from("root"));
    if (!lp_gb_failed(b) && root == LP_MAP_NONE)
        lp_gb_fail(b, LP_STATUS_INVALID, "the grammar has no rule \"root\"");
    lp_gb_node node = lp_gb_use(b, (lp_gb_rule)root);
    lp_map_release(&g.names);
    lp_free(g.nodes);
    return node;
}
