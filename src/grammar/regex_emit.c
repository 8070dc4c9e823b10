// Regular expressions: lengths of their texts, and from the tree to a grammar.
#include "grammar/char_ranges.h"
#include "grammar/json_grammar.h"
#include "grammar/node_list.h"
#include "grammar/regex.h"

// ---- lengths in characters ----

#define NO_END INT64_MAX

struct span {
    int64_t min, max; // NO_END: any
};

static int64_t add(int64_t a, int64_t b) {
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? NO_END : sum;
}

static int64_t times(int64_t a, int64_t b) {
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? NO_END : product;
}

static struct span span_of(const struct lp_regex_node *node) {
    struct span span = {0, 0};
    switch (node->kind) {
    case LP_REGEX_CLASS:
        return (struct span){1, 1};
    case LP_REGEX_REPEAT:
        span = span_of(node->children);
        span.min = times(span.min, node->min);
        span.max = !span.max ? 0 : node->max < 0 ? NO_END : times(span.max, node->max);
        return span;
    case LP_REGEX_SEQUENCE:
        for (const struct lp_regex_node *c = node->children; c; c = c->next) {
            struct span one = span_of(c);
            span.min = add(span.min, one.min);
            span.max = add(span.max, one.max);
        }
        return span;
    case LP_REGEX_CHOICE:
        span.min = NO_END;
        for (const struct lp_regex_node *c = node->children; c; c = c->next) {
            struct span one = span_of(c);
            if (one.min < span.min) span.min = one.min;
            if (one.max > span.max) span.max = one.max;
        }
        return span;
    }
    return span;
}

static enum lp_regex_fit fit(struct lp_regex_node *node, int64_t min, int64_t max);

static enum lp_regex_fit fit_repeat(struct lp_regex_node *node, int64_t min, int64_t max) {
    struct span one = span_of(node->children);
    if (one.min != one.max || !one.min) return LP_REGEX_CANNOT;
    int64_t fewest = min / one.min + (min % one.min != 0);
    int64_t most = max == NO_END ? -1 : max / one.min;
    if (fewest > node->min) node->min = fewest;
    if (most >= 0 && (node->max < 0 || most < node->max)) node->max = most;
    return node->max >= 0 && node->max < node->min ? LP_REGEX_NEVER : LP_REGEX_FITS;
}

// All parts but one have a fixed length: that one gets what is left.
static enum lp_regex_fit fit_sequence(struct lp_regex_node *node, int64_t min, int64_t max) {
    struct lp_regex_node *open = NULL;
    int64_t fixed = 0;
    for (struct lp_regex_node *c = node->children; c; c = c->next) {
        struct span one = span_of(c);
        if (one.min == one.max)
            fixed = add(fixed, one.min);
        else if (open)
            return LP_REGEX_CANNOT;
        else
            open = c;
    }
    if (!open || fixed > max) return LP_REGEX_NEVER;
    return fit(open, min > fixed ? min - fixed : 0, max == NO_END ? NO_END : max - fixed);
}

static enum lp_regex_fit fit_choice(struct lp_regex_node *node, int64_t min, int64_t max) {
    struct lp_regex_node **link = &node->children;
    while (*link) {
        enum lp_regex_fit one = fit(*link, min, max);
        if (one == LP_REGEX_CANNOT) return one;
        if (one == LP_REGEX_NEVER)
            *link = (*link)->next;
        else
            link = &(*link)->next;
    }
    return node->children ? LP_REGEX_FITS : LP_REGEX_NEVER;
}

static enum lp_regex_fit fit(struct lp_regex_node *node, int64_t min, int64_t max) {
    struct span all = span_of(node);
    if (all.min >= min && all.max <= max) return LP_REGEX_FITS;
    if (all.max < min || all.min > max) return LP_REGEX_NEVER;
    switch (node->kind) {
    case LP_REGEX_REPEAT:
        return fit_repeat(node, min, max);
    case LP_REGEX_SEQUENCE:
        return fit_sequence(node, min, max);
    case LP_REGEX_CHOICE:
        return fit_choice(node, min, max);
    case LP_REGEX_CLASS:
        break;
    }
    return LP_REGEX_CANNOT;
}

enum lp_regex_fit lp_regex_fit(struct lp_regex *regex, int64_t min, int64_t max) {
    return fit(regex->root, min, max < 0 ? NO_END : max);
}

// ---- grammar ----

struct emitter {
    struct lp_gb *b;
    enum lp_regex_form form;
};

static bool is_single(const struct lp_regex_node *node) {
    return node->kind == LP_REGEX_CLASS && node->n_ranges == 1 &&
           node->ranges[0].first == node->ranges[0].last;
}

static lp_gb_node emit_class(struct emitter *e, const struct lp_regex_node *node) {
    if (e->form == LP_REGEX_IN_JSON) return lp_jg_class(e->b, node->ranges, node->n_ranges);
    if (e->form == LP_REGEX_AS_TEXT || is_single(node))
        return lp_gb_class(e->b, node->ranges, node->n_ranges, false);
    struct lp_char_ranges set = {0};
    lp_char_ranges_add_all(&set, node->ranges, node->n_ranges);
    lp_char_ranges_complement(&set);
    lp_char_ranges_add(&set, '<', '<');
    lp_gb_node out = set.failed ? lp_gb_fail(e->b, LP_STATUS_MEMORY, "out of memory: the grammar")
                                : lp_gb_class(e->b, set.items, set.n, true);
    lp_char_ranges_release(&set);
    return out;
}

static void put_utf8(struct lp_bytes *out, uint32_t c) {
    char bytes[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; c >>= 6) bytes[i] = (char)(0x80 | (c & 0x3F));
    bytes[0] = (char)(n == 1 ? c : (0xF00u >> n) | c);
    lp_bytes_append(out, bytes, n);
}

// A run of single characters is one text. *at: the first of them; then what follows the run.
static lp_gb_node emit_run(struct emitter *e, const struct lp_regex_node **at) {
    struct lp_bytes raw = {0}, out = {0};
    for (; *at && is_single(*at); *at = (*at)->next) put_utf8(&raw, (*at)->ranges[0].first);
    if (e->form == LP_REGEX_IN_JSON)
        lp_jg_escape(&out, lp_bytes_view(&raw));
    else
        lp_bytes_append(&out, raw.data, raw.len);
    lp_gb_node node = raw.failed || out.failed
                          ? lp_gb_fail(e->b, LP_STATUS_MEMORY, "out of memory: the grammar")
                          : lp_gb_text(e->b, lp_bytes_view(&out));
    lp_bytes_release(&raw);
    lp_bytes_release(&out);
    return node;
}

static lp_gb_node emit(struct emitter *e, const struct lp_regex_node *node) {
    struct lp_gb_list list = {0};
    switch (node->kind) {
    case LP_REGEX_CLASS:
        return emit_class(e, node);
    case LP_REGEX_REPEAT:
        return lp_gb_repeat(e->b, emit(e, node->children), node->min, node->max);
    case LP_REGEX_SEQUENCE:
        for (const struct lp_regex_node *c = node->children; c && !lp_gb_failed(e->b);) {
            if (is_single(c)) {
                lp_gb_list_add(e->b, &list, emit_run(e, &c));
            } else {
                lp_gb_list_add(e->b, &list, emit(e, c));
                c = c->next;
            }
        }
        return lp_gb_list_sequence(e->b, &list);
    case LP_REGEX_CHOICE:
        for (const struct lp_regex_node *c = node->children; c && !lp_gb_failed(e->b); c = c->next)
            lp_gb_list_add(e->b, &list, emit(e, c));
        return lp_gb_list_choice(e->b, &list);
    }
    return 0;
}

lp_gb_node lp_regex_emit(const struct lp_regex *regex, struct lp_gb *b, enum lp_regex_form form) {
    struct emitter e = {b, form};
    return lp_gb_failed(b) ? 0 : emit(&e, regex->root);
}
