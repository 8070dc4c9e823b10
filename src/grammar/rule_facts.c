// Facts of rules are least fixed points: all rules begin as "matches nothing", and are looked at
// until nothing changes. In the order of `order` (what is used comes first) that is one round for
// rules without recursion.
#include "grammar/rule_facts.h"

#include "base/grow.h"
#include "grammar/utf8_ranges.h"

#define SATURATED 0x3FFFFFFFu

static uint32_t add(uint32_t a, uint32_t b) {
    return a > SATURATED - b ? SATURATED : a + b;
}

static uint32_t times(uint32_t a, uint32_t n) {
    uint64_t product = (uint64_t)a * n;
    return product > SATURATED ? SATURATED : (uint32_t)product;
}

static const struct lp_node_facts NEVER = {.need = LP_NEED_NEVER, .min_len = SATURATED};

// ---- walking over rules: depth first, without recursion ----

struct visit {
    lp_gb_rule rule;
    size_t first, next; // of its uses in `uses`
};

struct walk {
    struct lp_gb *b;
    const struct lp_rule_facts *facts; // for left uses; NULL: all uses
    lp_gb_rule *uses;
    size_t n_uses, uses_capacity;
    struct visit *stack;
    size_t n_stack, stack_capacity;
    uint8_t *state; // [n_rules]: 0 unseen, 1 on the stack, 2 done
};

static void put_use(struct walk *w, lp_gb_rule rule) {
    if (w->b->failed) return;
    if (!LP_GROW(w->uses, w->uses_capacity, w->n_uses + 1))
        lp_gb_fail(w->b, LP_STATUS_MEMORY, "out of memory: the rules of the grammar");
    else
        w->uses[w->n_uses++] = rule;
}

// The rules that a node uses; with facts: those that can stand at its very beginning.
static void collect_uses(struct walk *w, lp_gb_node node) {
    const struct lp_gb_item *item = &w->b->items[node];
    if (item->kind == LP_GB_USE) put_use(w, item->first);
    if (item->kind == LP_GB_REPEAT) collect_uses(w, item->first);
    if (item->kind != LP_GB_SEQUENCE && item->kind != LP_GB_CHOICE) return;
    for (int32_t i = 0; i < item->n; i++) {
        lp_gb_node child = w->b->children[item->first + i];
        collect_uses(w, child);
        if (item->kind == LP_GB_SEQUENCE && w->facts && !w->facts->nodes[child].nullable) return;
    }
}

static void enter(struct walk *w, lp_gb_rule rule) {
    const struct lp_gb_rule_item *item = &w->b->rules[rule];
    w->state[rule] = 1;
    if (!item->node) {
        lp_gb_fail(w->b, LP_STATUS_INVALID, "rule \"%s\" is used, but not defined", item->name);
        return;
    }
    if (!LP_GROW(w->stack, w->stack_capacity, w->n_stack + 1)) {
        lp_gb_fail(w->b, LP_STATUS_MEMORY, "out of memory: the rules of the grammar");
        return;
    }
    w->stack[w->n_stack++] = (struct visit){rule, w->n_uses, w->n_uses};
    collect_uses(w, item->node);
}

// Goes through all rules that `rule` leads to. order (may be NULL) gets those that are done.
static void walk_from(struct walk *w, lp_gb_rule rule, struct lp_rule_facts *order) {
    enter(w, rule);
    while (w->n_stack && !w->b->failed) {
        struct visit *top = &w->stack[w->n_stack - 1];
        if (top->next == w->n_uses) {
            w->n_uses = top->first;
            w->state[top->rule] = 2;
            if (order) order->order[order->n_order++] = top->rule;
            w->n_stack--;
            continue;
        }
        lp_gb_rule used = w->uses[top->next++];
        if (w->state[used] == 0)
            enter(w, used);
        else if (w->state[used] == 1 && w->facts)
            lp_gb_fail(w->b, LP_STATUS_INVALID,
                       "rule \"%s\" is left-recursive: it can begin with itself without any text "
                       "in between; write it right-recursive or with a repetition",
                       w->b->rules[used].name);
    }
}

// ---- facts of nodes ----

static bool is_writable(const struct lp_writable *writable, const struct lp_utf8_sequence *s) {
    for (int i = 0; i < s->n; i++) {
        bool any = false;
        for (int byte = s->low[i]; byte <= s->high[i] && !any; byte++) any = writable->bytes[byte];
        if (!any) return false;
    }
    return true;
}

static struct lp_node_facts facts_of_class(const struct lp_gb *b, const struct lp_gb_item *item,
                                           const struct lp_writable *writable) {
    struct lp_node_facts f = NEVER;
    struct lp_utf8_sequence sequences[LP_UTF8_MAX_SEQUENCES];
    f.n_states = 1;
    for (int32_t i = 0; i < item->n; i++) {
        const struct lp_gb_range *range = &b->ranges[item->first + i];
        size_t n = lp_utf8_sequences(range->first, range->last, sequences);
        for (size_t j = 0; j < n; j++) {
            f.n_states += sequences[j].n - 1u;
            if (writable && !is_writable(writable, &sequences[j])) continue;
            f.need = 0;
            if (f.min_len > sequences[j].n) f.min_len = sequences[j].n;
        }
    }
    return f;
}

static struct lp_node_facts facts_of_leaf(const struct lp_gb *b, const struct lp_gb_item *item,
                                          const struct lp_writable *w) {
    struct lp_node_facts f = {.n_states = 1};
    if (item->kind == LP_GB_EMPTY) f.nullable = true;
    if (item->kind == LP_GB_NEVER) f = NEVER;
    if (item->kind == LP_GB_CLASS) f = facts_of_class(b, item, w);
    if (item->kind == LP_GB_TEXT) {
        f.min_len = f.n_states = (uint32_t)item->n;
        for (int32_t i = 0; i < item->n && w; i++)
            if (!w->bytes[(unsigned char)b->text.data[item->first + i]]) return NEVER;
    }
    if (item->kind == LP_GB_TOKEN) {
        f.min_len = 1;
        if (w && (item->first < 0 || item->first >= w->n_vocab || !w->is_control[item->first]))
            return NEVER;
    }
    return f;
}

static struct lp_node_facts facts_of_repeat(const struct lp_gb_item *item,
                                            struct lp_node_facts body) {
    struct lp_node_facts f = body;
    if (item->min == 0 || body.nullable) {
        f.nullable = true;
        f.need = 0;
        f.min_len = 0;
    } else if (body.need != LP_NEED_NEVER) {
        f.min_len = times(body.min_len, (uint32_t)item->min);
    }
    uint32_t copies = (uint32_t)(item->max < 0 ? item->min : item->max);
    f.n_states = times(add(body.n_states, 1), copies);
    if (f.n_states > LP_EXPANDED_STATES) f.n_states = add(body.n_states, 2);
    return f;
}

struct scan {
    const struct lp_gb *b;
    struct lp_rule_facts *facts;
    const struct lp_writable *writable;
    bool is_first; // round: leaves are looked at once
};

static struct lp_node_facts look(struct scan *s, lp_gb_node node);

static struct lp_node_facts facts_of_sequence(struct scan *s, const struct lp_gb_item *item) {
    struct lp_node_facts f = {.nullable = true};
    for (int32_t i = 0; i < item->n; i++) {
        struct lp_node_facts child = look(s, s->b->children[item->first + i]);
        f.nullable = f.nullable && child.nullable;
        if (child.need > f.need) f.need = child.need;
        f.min_len = add(f.min_len, child.min_len);
        f.n_states = add(f.n_states, child.n_states);
    }
    return f;
}

static struct lp_node_facts facts_of_choice(struct scan *s, const struct lp_gb_item *item) {
    struct lp_node_facts f = NEVER;
    f.n_states = 1;
    for (int32_t i = 0; i < item->n; i++) {
        struct lp_node_facts child = look(s, s->b->children[item->first + i]);
        f.nullable = f.nullable || child.nullable;
        if (child.need < f.need) f.need = child.need;
        if (child.min_len < f.min_len) f.min_len = child.min_len;
        f.n_states = add(f.n_states, child.n_states);
    }
    return f;
}

static struct lp_node_facts look(struct scan *s, lp_gb_node node) {
    const struct lp_gb_item *item = &s->b->items[node];
    struct lp_node_facts f = s->facts->nodes[node];
    if (item->kind == LP_GB_SEQUENCE) {
        f = facts_of_sequence(s, item);
    } else if (item->kind == LP_GB_CHOICE) {
        f = facts_of_choice(s, item);
    } else if (item->kind == LP_GB_REPEAT) {
        f = facts_of_repeat(item, look(s, item->first));
    } else if (item->kind == LP_GB_USE) {
        f = s->facts->rules[item->first];
        if (f.need < LP_NEED_NEVER - 1) f.need++;
        f.n_states = 1;
    } else if (s->is_first) {
        f = facts_of_leaf(s->b, item, s->writable);
    }
    s->facts->nodes[node] = f;
    return f;
}

static void find_facts(struct lp_rule_facts *facts, struct lp_gb *b,
                       const struct lp_writable *writable) {
    struct scan s = {.b = b, .facts = facts, .writable = writable, .is_first = true};
    for (bool changed = true; changed && !lp_gb_is_late(b); s.is_first = false) {
        changed = false;
        for (size_t i = 0; i < facts->n_order; i++) {
            if (i % 256 == 0 && lp_gb_is_late(b)) return;
            struct lp_node_facts *rule = &facts->rules[facts->order[i]];
            struct lp_node_facts now = look(&s, b->rules[facts->order[i]].node);
            changed = changed || now.nullable != rule->nullable || now.need != rule->need ||
                      now.min_len != rule->min_len;
            *rule = now;
        }
    }
}

// ---- all of it ----

static bool make_room(struct lp_rule_facts *facts, struct walk *w) {
    struct lp_gb *b = w->b;
    facts->nodes = lp_alloc(b->n_items, sizeof *facts->nodes);
    facts->rules = lp_alloc(b->n_rules, sizeof *facts->rules);
    facts->order = lp_alloc(b->n_rules, sizeof *facts->order);
    w->state = lp_alloc(b->n_rules, 1);
    if (!facts->nodes || !facts->rules || !facts->order || !w->state) {
        lp_gb_fail(b, LP_STATUS_MEMORY, "out of memory: the rules of the grammar");
        return false;
    }
    for (size_t i = 0; i < b->n_rules; i++) facts->rules[i] = NEVER;
    return true;
}

void lp_rule_facts_make(struct lp_rule_facts *facts, struct lp_gb *b, lp_gb_rule start,
                        const struct lp_writable *writable) {
    struct walk w = {.b = b};
    *facts = (struct lp_rule_facts){0};
    if (!b->failed && make_room(facts, &w)) {
        walk_from(&w, start, facts);
        find_facts(facts, b, writable);
        memset(w.state, 0, b->n_rules);
        w.facts = facts;
        for (size_t i = 0; i < facts->n_order && !lp_gb_is_late(b); i++)
            if (w.state[facts->order[i]] == 0) walk_from(&w, facts->order[i], NULL);
    }
    lp_free(w.uses);
    lp_free(w.stack);
    lp_free(w.state);
}

void lp_rule_facts_release(struct lp_rule_facts *facts) {
    lp_free(facts->nodes);
    lp_free(facts->rules);
    lp_free(facts->order);
    *facts = (struct lp_rule_facts){0};
}
