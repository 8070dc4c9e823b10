// Regular expressions: from source to a tree.
#include "grammar/regex.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/utf8_step.h"
#include "grammar/regex_class.h"

#define MAX_GROUPS 64 // nested
#define ARENA_BYTES ((size_t)64 << 20)

// ---- reading ----

lp_gb_node lp_regex_fail(struct lp_regex_reader *in, lp_status status, const char *format, ...) {
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    size_t character = 1;
    for (size_t i = 0; i < in->at && i < in->source.len; i++)
        character += ((unsigned char)in->source.data[i] & 0xC0) != 0x80;
    return lp_gb_fail(in->b, status, "%s, character %zu: %s", in->what, character, text);
}

bool lp_regex_at(const struct lp_regex_reader *in, const char *text) {
    size_t n = strlen(text);
    return n <= in->source.len - in->at && !memcmp(in->source.data + in->at, text, n);
}

bool lp_regex_take(struct lp_regex_reader *in, const char *text) {
    if (!lp_regex_at(in, text)) return false;
    in->at += strlen(text);
    return true;
}

uint32_t lp_regex_next(struct lp_regex_reader *in) {
    const unsigned char *at = (const unsigned char *)in->source.data + in->at;
    size_t n;
    if (lp_utf8_step(at, in->source.len - in->at, &n) != LP_UTF8_WHOLE) {
        lp_regex_fail(in, LP_STATUS_INVALID, "this is no valid UTF-8");
        in->at = in->source.len;
        return 0;
    }
    in->at += n;
    return lp_utf8_code_point(at, n);
}

static bool at_end(const struct lp_regex_reader *in) {
    return in->at >= in->source.len || lp_gb_failed(in->b);
}

// ---- the tree ----

struct parser {
    struct lp_regex_reader in;
    struct lp_arena *arena;
    size_t n_nodes;
    int depth;
};

static struct lp_regex_node *new_node(struct parser *p, enum lp_regex_kind kind) {
    if (lp_gb_failed(p->in.b)) return NULL;
    if (++p->n_nodes > LP_GRAMMAR_MAX_NODES) {
        lp_regex_fail(&p->in, LP_STATUS_LIMIT, "more than %d parts", LP_GRAMMAR_MAX_NODES);
        return NULL;
    }
    struct lp_regex_node *node = lp_arena_alloc(p->arena, 1, sizeof *node);
    if (node)
        node->kind = kind;
    else
        lp_gb_fail(p->in.b, LP_STATUS_MEMORY, "out of memory: the regular expression");
    return node;
}

static struct lp_regex_node *class_node(struct parser *p, struct lp_char_ranges *set) {
    lp_char_ranges_normalise(set);
    struct lp_regex_node *node = new_node(p, LP_REGEX_CLASS);
    if (node) {
        node->ranges = lp_arena_alloc(p->arena, set->n + 1, sizeof *node->ranges);
        node->n_ranges = set->n;
        if (!node->ranges || set->failed) {
            lp_gb_fail(p->in.b, LP_STATUS_MEMORY, "out of memory: the regular expression");
            node = NULL;
        } else if (set->n) {
            memcpy(node->ranges, set->items, set->n * sizeof *node->ranges);
        }
    }
    lp_char_ranges_release(set);
    return node;
}

static struct lp_regex_node *any_text(struct parser *p) {
    struct lp_char_ranges all = {0};
    lp_char_ranges_add(&all, 0, LP_CHAR_MAX);
    struct lp_regex_node *node = class_node(p, &all);
    struct lp_regex_node *repeat = new_node(p, LP_REGEX_REPEAT);
    if (!repeat) return NULL;
    repeat->max = -1;
    repeat->children = node;
    return repeat;
}

// ---- quantifiers ----

static bool read_count(struct lp_regex_reader *in, int64_t *out) {
    size_t start = in->at;
    int64_t n = 0;
    while (in->at < in->source.len && in->source.data[in->at] >= '0' &&
           in->source.data[in->at] <= '9') {
        if (n <= LP_GRAMMAR_MAX_REPEAT) n = n * 10 + (in->source.data[in->at] - '0');
        in->at++;
    }
    *out = n;
    return in->at > start;
}

// {m}, {m,}, {m,n}. False, and nothing is taken: a brace that means itself.
static bool read_braces(struct lp_regex_reader *in, int64_t *min, int64_t *max) {
    size_t start = in->at;
    if (lp_regex_take(in, "{,")) {
        int64_t n;
        if (read_count(in, &n) && lp_regex_at(in, "}"))
            lp_regex_fail(in, LP_STATUS_INVALID,
                          "\"{,n}\" means different things to different "
                          "readers: write {0,n}");
        in->at = start;
        return false;
    }
    if (!lp_regex_take(in, "{")) return false;
    bool good = read_count(in, min);
    *max = *min;
    if (good && lp_regex_take(in, ",") && !read_count(in, max)) *max = -1;
    if (good && lp_regex_take(in, "}")) return true;
    in->at = start;
    return false;
}

static bool read_quantifier(struct lp_regex_reader *in, int64_t *min, int64_t *max) {
    *min = 0;
    *max = -1;
    if (lp_regex_take(in, "*")) return true;
    if (lp_regex_take(in, "+")) return *min = 1, true;
    if (lp_regex_take(in, "?")) return *max = 1, true;
    return read_braces(in, min, max);
}

static struct lp_regex_node *quantified(struct parser *p, struct lp_regex_node *atom) {
    struct lp_regex_reader *in = &p->in;
    int64_t min, max;
    if (!read_quantifier(in, &min, &max)) return atom;
    if (min > LP_GRAMMAR_MAX_REPEAT || max > LP_GRAMMAR_MAX_REPEAT)
        lp_regex_fail(in, LP_STATUS_LIMIT, "a repetition of more than %d times",
                      LP_GRAMMAR_MAX_REPEAT);
    else if (max >= 0 && max < min)
        lp_regex_fail(in, LP_STATUS_INVALID, "the repetition {%lld,%lld} has no number",
                      (long long)min, (long long)max);
    if (lp_regex_at(in, "+"))
        lp_regex_fail(in, LP_STATUS_UNSUPPORTED, "possessive quantifiers are not supported");
    lp_regex_take(in, "?"); // a lazy one: the same texts
    int64_t again;
    if (read_quantifier(in, &again, &again))
        lp_regex_fail(in, LP_STATUS_INVALID, "two quantifiers for one thing");
    struct lp_regex_node *repeat = new_node(p, LP_REGEX_REPEAT);
    if (!repeat) return NULL;
    repeat->min = min;
    repeat->max = max;
    repeat->children = atom;
    return repeat;
}

// ---- groups ----

static struct lp_regex_node *parse_choice(struct parser *p);

static void skip_name(struct lp_regex_reader *in) {
    while (in->at < in->source.len && in->source.data[in->at] != '>') in->at++;
    if (!lp_regex_take(in, ">"))
        lp_regex_fail(in, LP_STATUS_INVALID, "the name of this group has no \">\"");
}

// What may follow "(?". False: it is not supported.
static bool open_group(struct lp_regex_reader *in) {
    if (!lp_regex_take(in, "?")) return true;
    if (lp_regex_take(in, ":")) return true;
    const char *what = "flags inside an expression are";
    if (lp_regex_at(in, "=") || lp_regex_at(in, "!"))
        what = "lookahead is";
    else if (lp_regex_at(in, "<=") || lp_regex_at(in, "<!"))
        what = "lookbehind is";
    else if (lp_regex_at(in, ">"))
        what = "atomic groups are";
    else if (lp_regex_at(in, "P="))
        what = "backreferences are";
    else if (lp_regex_at(in, "#"))
        what = "comments are";
    else if (lp_regex_at(in, "("))
        what = "conditions are";
    else if (lp_regex_take(in, "P<") || lp_regex_take(in, "<")) {
        skip_name(in);
        return !lp_gb_failed(in->b);
    }
    lp_regex_fail(in, LP_STATUS_UNSUPPORTED, "%s not supported", what);
    return false;
}

static struct lp_regex_node *parse_group(struct parser *p) {
    if (p->depth >= MAX_GROUPS) {
        lp_regex_fail(&p->in, LP_STATUS_LIMIT, "groups nested deeper than %d", MAX_GROUPS);
        return NULL;
    }
    if (!open_group(&p->in)) return NULL;
    p->depth++;
    struct lp_regex_node *node = parse_choice(p);
    p->depth--;
    if (node && !lp_regex_take(&p->in, ")"))
        lp_regex_fail(&p->in, LP_STATUS_INVALID, "a group is not closed: \")\" is missing");
    return node;
}

static struct lp_regex_node *parse_atom(struct parser *p) {
    struct lp_regex_reader *in = &p->in;
    if (lp_regex_take(in, "(")) return parse_group(p);
    if (lp_regex_at(in, "*") || lp_regex_at(in, "+") || lp_regex_at(in, "?"))
        lp_regex_fail(in, LP_STATUS_INVALID, "there is nothing to repeat");
    if (lp_regex_at(in, "^") || lp_regex_at(in, "$"))
        lp_regex_fail(in, LP_STATUS_UNSUPPORTED,
                      "\"%c\" is supported only at the ends of the expression or of one of its "
                      "outer alternatives",
                      in->source.data[in->at]);
    int64_t min, max;
    size_t start = in->at;
    if (read_braces(in, &min, &max)) {
        in->at = start;
        lp_regex_fail(in, LP_STATUS_INVALID, "there is nothing to repeat");
    }
    struct lp_char_ranges set = {0};
    if (!lp_gb_failed(in->b)) lp_regex_read_class(in, &set);
    return class_node(p, &set);
}

static struct lp_regex_node *parse_sequence(struct parser *p) {
    struct lp_regex_node *sequence = new_node(p, LP_REGEX_SEQUENCE);
    if (!sequence) return NULL;
    struct lp_regex_node **end = &sequence->children;
    while (!at_end(&p->in) && !lp_regex_at(&p->in, "|") && !lp_regex_at(&p->in, ")")) {
        if (lp_regex_at(&p->in, "$") && p->depth == 0) break;
        struct lp_regex_node *atom = parse_atom(p);
        if (atom) atom = quantified(p, atom);
        if (!atom) return NULL;
        *end = atom;
        end = &atom->next;
    }
    return sequence;
}

static struct lp_regex_node *parse_choice(struct parser *p) {
    struct lp_regex_node *choice = new_node(p, LP_REGEX_CHOICE);
    if (!choice) return NULL;
    struct lp_regex_node **end = &choice->children;
    do {
        *end = parse_sequence(p);
        if (!*end) return NULL;
        end = &(*end)->next;
    } while (lp_regex_take(&p->in, "|"));
    return choice;
}

// ---- the whole ----

// An outer alternative with its anchors.
static struct lp_regex_node *parse_outer(struct parser *p, bool search) {
    bool begins = lp_regex_take(&p->in, "^");
    struct lp_regex_node *middle = parse_sequence(p);
    bool ends = lp_regex_take(&p->in, "$");
    if (!at_end(&p->in) && !lp_regex_at(&p->in, "|"))
        lp_regex_fail(&p->in, ends ? LP_STATUS_UNSUPPORTED : LP_STATUS_INVALID, "%s",
                      ends ? "\"$\" is supported only at the end of the expression or of one of "
                             "its outer alternatives"
                           : "this \")\" closes nothing");
    if (!middle || !search || (begins && ends)) return middle;
    struct lp_regex_node *outer = new_node(p, LP_REGEX_SEQUENCE);
    struct lp_regex_node *before = begins ? NULL : any_text(p);
    struct lp_regex_node *after = ends ? NULL : any_text(p);
    if (lp_gb_failed(p->in.b)) return NULL;
    outer->children = before ? before : middle;
    if (before) before->next = middle;
    middle->next = after;
    return outer;
}

bool lp_regex_parse(struct lp_regex *regex, struct lp_gb *b, struct lp_str source, bool search,
                    const char *what) {
    *regex = (struct lp_regex){.arena = {.max_bytes = ARENA_BYTES}};
    if (source.len > LP_GRAMMAR_MAX_SOURCE)
        lp_gb_fail(b, LP_STATUS_LIMIT, "%s: longer than %zu bytes", what, LP_GRAMMAR_MAX_SOURCE);
    struct parser p = {.in = {b, source, 0, what}, .arena = &regex->arena};
    struct lp_regex_node *root = new_node(&p, LP_REGEX_CHOICE);
    struct lp_regex_node **end = root ? &root->children : NULL;
    bool more = root != NULL;
    while (more) {
        *end = parse_outer(&p, search);
        if (!*end) break;
        end = &(*end)->next;
        more = lp_regex_take(&p.in, "|");
    }
    regex->root = root;
    return !lp_gb_failed(b);
}

void lp_regex_release(struct lp_regex *regex) {
    lp_arena_release(&regex->arena);
    *regex = (struct lp_regex){0};
}

lp_gb_node lp_grammar_from_regex(struct lp_gb *b, struct lp_str source) {
    struct lp_regex regex;
    lp_gb_node node = 0;
    if (lp_regex_parse(&regex, b, source, false, "regular expression"))
        node = lp_regex_emit(&regex, b, LP_REGEX_AS_TEXT);
    lp_regex_release(&regex);
    return node;
}
