// The builder: checks and keeps nodes. What they mean is in rule_facts.c and automaton.c.
#include "grammar/build_parts.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/utf8_step.h"
#include "base/grow.h"

#define MAX_TEXT_BYTES ((size_t)4 << 20)
#define MAX_RANGES 500000
#define MAX_TREE_DEPTH 1000 // of nodes in nodes: what walks a tree is recursive
#define MAX_CODE_POINT 0x10FFFFu

struct lp_gb *lp_gb_new(void) {
    struct lp_gb *b = lp_alloc(1, sizeof *b);
    if (!b) return NULL;
    b->text.max_bytes = MAX_TEXT_BYTES;
    b->deadline_ns = lp_clock_thread_ns() + (uint64_t)LP_GRAMMAR_COMPILE_MS * 1000000;
    if (!LP_GROW(b->items, b->items_capacity, 1)) {
        lp_free(b);
        return NULL;
    }
    b->items[0] = (struct lp_gb_item){.kind = LP_GB_NEVER};
    b->n_items = 1;
    return b;
}

void lp_gb_free(struct lp_gb *b) {
    if (!b) return;
    for (size_t i = 0; i < b->n_rules; i++) lp_free(b->rules[i].name);
    lp_free(b->rules);
    lp_free(b->items);
    lp_free(b->ranges);
    lp_free(b->children);
    lp_bytes_release(&b->text);
    lp_free(b);
}

// ---- failures ----

bool lp_gb_failed(const struct lp_gb *b) {
    return b->failed;
}

lp_gb_node lp_gb_fail(struct lp_gb *b, lp_status status, const char *format, ...) {
    if (b->failed) return 0;
    char text[LP_ERR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    b->failed = true;
    lp_err_set(&b->err, status, "%s", text);
    return 0;
}

lp_status lp_gb_error(const struct lp_gb *b, struct lp_err *err) {
    if (!b->failed) return LP_OK;
    return lp_err_set(err, b->err.status, "%s", b->err.text);
}

static lp_gb_node fail_memory(struct lp_gb *b) {
    return lp_gb_fail(b, LP_STATUS_MEMORY, "out of memory: the grammar");
}

bool lp_gb_is_late(struct lp_gb *b) {
    if (!b->failed && lp_clock_thread_ns() > b->deadline_ns)
        lp_gb_fail(b, LP_STATUS_LIMIT,
                   "the grammar takes longer than %d ms to compile; make it smaller",
                   LP_GRAMMAR_COMPILE_MS);
    return b->failed;
}

// ---- nodes ----

static lp_gb_node add(struct lp_gb *b, struct lp_gb_item item) {
    if (b->failed) return 0;
    if (b->n_items % 256 == 0 && lp_gb_is_late(b)) return 0;
    if (b->n_items > LP_GRAMMAR_MAX_NODES)
        return lp_gb_fail(b, LP_STATUS_LIMIT, "the grammar has more than %d elements",
                          LP_GRAMMAR_MAX_NODES);
    if (item.depth > MAX_TREE_DEPTH)
        return lp_gb_fail(b, LP_STATUS_LIMIT, "the grammar nests elements deeper than %d",
                          MAX_TREE_DEPTH);
    if (!LP_GROW(b->items, b->items_capacity, b->n_items + 1)) return fail_memory(b);
    b->items[b->n_items] = item;
    return (lp_gb_node)b->n_items++;
}

lp_gb_node lp_gb_empty(struct lp_gb *b) {
    return add(b, (struct lp_gb_item){.kind = LP_GB_EMPTY});
}

lp_gb_node lp_gb_never(struct lp_gb *b) {
    return add(b, (struct lp_gb_item){.kind = LP_GB_NEVER});
}

static bool is_utf8(struct lp_str text) {
    for (size_t at = 0, n; at < text.len; at += n)
        if (lp_utf8_step((const unsigned char *)text.data + at, text.len - at, &n) != LP_UTF8_WHOLE)
            return false;
    return true;
}

lp_gb_node lp_gb_text(struct lp_gb *b, struct lp_str text) {
    if (b->failed) return 0;
    if (text.len == 0) return lp_gb_empty(b);
    if (!is_utf8(text))
        return lp_gb_fail(b, LP_STATUS_INVALID, "a text of the grammar is no valid UTF-8");
    size_t first = b->text.len;
    if (text.len > MAX_TEXT_BYTES - first)
        return lp_gb_fail(b, LP_STATUS_LIMIT, "the grammar's texts have more than %zu bytes",
                          MAX_TEXT_BYTES);
    if (!lp_bytes_append(&b->text, text.data, text.len)) return fail_memory(b);
    return add(b, (struct lp_gb_item){
                      .kind = LP_GB_TEXT, .first = (int32_t)first, .n = (int32_t)text.len});
}

lp_gb_node lp_gb_token(struct lp_gb *b, int32_t id) {
    return add(b, (struct lp_gb_item){.kind = LP_GB_TOKEN, .first = id});
}

// ---- character classes ----

static int by_first(const void *a, const void *b) {
    const struct lp_gb_range *x = a, *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

// Ascending, disjoint, not touching. Returns how many are left.
static size_t merge(struct lp_gb_range *ranges, size_t n) {
    size_t kept = 0;
    if (n) qsort(ranges, n, sizeof *ranges, by_first);
    for (size_t i = 0; i < n; i++) {
        if (kept && ranges[i].first <= ranges[kept - 1].last + 1) {
            if (ranges[i].last > ranges[kept - 1].last) ranges[kept - 1].last = ranges[i].last;
        } else {
            ranges[kept++] = ranges[i];
        }
    }
    return kept;
}

static void put_range(struct lp_gb *b, uint32_t first, uint32_t last) {
    if (first <= last) b->ranges[b->n_ranges++] = (struct lp_gb_range){first, last};
}

// Surrogates are no characters: U+D800 to U+DFFF are left out.
static void put_characters(struct lp_gb *b, uint32_t first, uint32_t last) {
    put_range(b, first, last < 0xD800 ? last : 0xD7FF);
    put_range(b, first > 0xDFFF ? first : 0xE000, last);
}

static bool check_ranges(struct lp_gb *b, const struct lp_gb_range *ranges, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (ranges[i].first > ranges[i].last || ranges[i].last > MAX_CODE_POINT)
            lp_gb_fail(b, LP_STATUS_INVALID,
                       "a character class has the range U+%04X to U+%04X, which is no range of "
                       "characters",
                       ranges[i].first, ranges[i].last);
    return !b->failed;
}

lp_gb_node lp_gb_class(struct lp_gb *b, const struct lp_gb_range *ranges, size_t n, bool negated) {
    if (b->failed || !check_ranges(b, ranges, n)) return 0;
    // Room for what the class becomes (n + 2 at most), and behind it for the sorted ranges.
    size_t first = b->n_ranges, need = first + 2 * n + 2;
    if (need > MAX_RANGES)
        return lp_gb_fail(b, LP_STATUS_LIMIT,
                          "the grammar's character classes have more than %d ranges", MAX_RANGES);
    if (!LP_GROW(b->ranges, b->ranges_capacity, need)) return fail_memory(b);
    struct lp_gb_range *sorted = b->ranges + first + n + 2;
    if (n) memcpy(sorted, ranges, n * sizeof *sorted);
    n = merge(sorted, n);
    uint32_t next = 0; // behind the ranges so far
    for (size_t i = 0; i < n; i++) {
        if (!negated) put_characters(b, sorted[i].first, sorted[i].last);
        if (negated && sorted[i].first > next) put_characters(b, next, sorted[i].first - 1);
        next = sorted[i].last + 1;
    }
    if (negated && next <= MAX_CODE_POINT) put_characters(b, next, MAX_CODE_POINT);
    if (b->n_ranges == first) return lp_gb_never(b);
    return add(b, (struct lp_gb_item){.kind = LP_GB_CLASS,
                                      .first = (int32_t)first,
                                      .n = (int32_t)(b->n_ranges - first)});
}

// ---- nodes of nodes ----

// Marks a node as part of another. False fails the builder: a number that is none, or used before.
static bool take(struct lp_gb *b, lp_gb_node node) {
    if (b->failed) return false;
    if (node <= 0 || (size_t)node >= b->n_items || b->items[node].is_used)
        lp_gb_fail(b, LP_STATUS_INVALID,
                   "element %d of the grammar is used twice or does not exist", (int)node);
    else
        b->items[node].is_used = true;
    return !b->failed;
}

static lp_gb_node add_list(struct lp_gb *b, enum lp_gb_kind kind, const lp_gb_node *nodes,
                           size_t n) {
    if (b->failed) return 0;
    if (n == 1) return nodes[0];
    if (!LP_GROW(b->children, b->children_capacity, b->n_children + n)) return fail_memory(b);
    uint16_t depth = 0;
    size_t first = b->n_children;
    for (size_t i = 0; i < n; i++) {
        if (!take(b, nodes[i])) return 0;
        b->children[b->n_children++] = nodes[i];
        if (b->items[nodes[i]].depth > depth) depth = b->items[nodes[i]].depth;
    }
    return add(b, (struct lp_gb_item){.kind = (uint8_t)kind,
                                      .depth = (uint16_t)(depth + 1),
                                      .first = (int32_t)first,
                                      .n = (int32_t)n});
}

lp_gb_node lp_gb_sequence(struct lp_gb *b, const lp_gb_node *nodes, size_t n) {
    return n ? add_list(b, LP_GB_SEQUENCE, nodes, n) : lp_gb_empty(b);
}

lp_gb_node lp_gb_choice(struct lp_gb *b, const lp_gb_node *nodes, size_t n) {
    return n ? add_list(b, LP_GB_CHOICE, nodes, n) : lp_gb_never(b);
}

lp_gb_node lp_gb_repeat(struct lp_gb *b, lp_gb_node node, int64_t min, int64_t max) {
    if (b->failed) return 0;
    if (max < 0) max = -1;
    if (min < 0 || (max >= 0 && max < min))
        return lp_gb_fail(b, LP_STATUS_INVALID,
                          "a repetition of at least %lld and at most %lld times", (long long)min,
                          (long long)max);
    if (min > LP_GRAMMAR_MAX_REPEAT || max > LP_GRAMMAR_MAX_REPEAT)
        return lp_gb_fail(b, LP_STATUS_LIMIT, "a repetition of %lld times, at most %d can be held",
                          (long long)(max > min ? max : min), LP_GRAMMAR_MAX_REPEAT);
    if (min == 1 && max == 1) return node;
    if (!take(b, node)) return 0;
    if (max == 0) return lp_gb_empty(b);
    return add(b, (struct lp_gb_item){.kind = LP_GB_REPEAT,
                                      .depth = (uint16_t)(b->items[node].depth + 1),
                                      .first = node,
                                      .min = (int32_t)min,
                                      .max = (int32_t)max});
}

lp_gb_node lp_gb_optional(struct lp_gb *b, lp_gb_node node) {
    return lp_gb_repeat(b, node, 0, 1);
}

// ---- rules ----

lp_gb_rule lp_gb_declare(struct lp_gb *b, const char *name) {
    if (b->failed) return 0;
    if (b->n_rules >= LP_GRAMMAR_MAX_NODES)
        return lp_gb_fail(b, LP_STATUS_LIMIT, "the grammar has more than %d rules",
                          LP_GRAMMAR_MAX_NODES);
    if (!LP_GROW(b->rules, b->rules_capacity, b->n_rules + 1)) return fail_memory(b);
    char *copy = lp_strdup(name ? name : "");
    if (!copy) return fail_memory(b);
    b->rules[b->n_rules] = (struct lp_gb_rule_item){.name = copy};
    return (lp_gb_rule)b->n_rules++;
}

static bool is_rule(struct lp_gb *b, lp_gb_rule rule) {
    if (!b->failed && (rule < 0 || (size_t)rule >= b->n_rules))
        lp_gb_fail(b, LP_STATUS_INVALID, "rule %d of the grammar does not exist", (int)rule);
    return !b->failed;
}

void lp_gb_define(struct lp_gb *b, lp_gb_rule rule, lp_gb_node node) {
    if (!is_rule(b, rule)) return;
    if (b->rules[rule].node)
        lp_gb_fail(b, LP_STATUS_INVALID, "rule \"%s\" of the grammar is defined twice",
                   b->rules[rule].name);
    else if (take(b, node))
        b->rules[rule].node = node;
}

lp_gb_node lp_gb_use(struct lp_gb *b, lp_gb_rule rule) {
    if (!is_rule(b, rule)) return 0;
    return add(b, (struct lp_gb_item){.kind = LP_GB_USE, .first = rule});
}
