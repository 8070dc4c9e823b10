// The members of an object in their order, with the commas between them.
//
// A comma belongs to what follows it, but before the first required member to what precedes it, so
// that it is always clear whether there is one:   { (a ,)? (b ,)? c (, d)? (, e)? (, other)* }
// Without a required member, any may be the first: one half or the other has it.
// Where members are counted, what may follow depends on the number so far: a rule for each.
#include "grammar/node_list.h"
#include "grammar/schema_object.h"

#define MAX_COUNTED 20000 // members times numbers

static lp_gb_node member(struct lp_schema *s, struct lp_member *m) {
    return m->has_rule ? lp_gb_use(s->b, m->rule) : m->node;
}

static void make_rule(struct lp_schema *s, struct lp_member *m) {
    m->has_rule = true;
    m->rule = lp_gb_declare(s->b, "member");
    lp_gb_define(s->b, m->rule, m->node);
}

// (, other){min,max}
static lp_gb_node others(struct lp_schema *s, const struct lp_members *all, int64_t min,
                         int64_t max) {
    if (!all->has_others) return lp_gb_empty(s->b);
    return lp_gb_repeat(s->b, lp_jg_after_comma(s->jg, lp_gb_use(s->b, all->other)), min, max);
}

// Appends (, m) for the members first to last.
static void add_after_comma(struct lp_schema *s, struct lp_members *all, size_t first, size_t last,
                            struct lp_gb_list *out) {
    for (size_t i = first; i < last && !lp_gb_failed(s->b); i++) {
        lp_gb_node node = lp_jg_after_comma(s->jg, member(s, &all->items[i]));
        lp_gb_list_add(s->b, out, all->items[i].is_required ? node : lp_gb_optional(s->b, node));
    }
}

static lp_gb_node with_required(struct lp_schema *s, struct lp_members *all, size_t required) {
    struct lp_gb_list list = {0};
    for (size_t i = 0; i < required && !lp_gb_failed(s->b); i++) {
        lp_gb_node comma = LP_GB_SEQ(s->b, lp_gb_word(s->b, ","), lp_jg_use(s->jg, LP_JG_SPACE));
        lp_gb_list_add(s->b, &list,
                       lp_gb_optional(s->b, LP_GB_SEQ(s->b, member(s, &all->items[i]), comma)));
    }
    lp_gb_list_add(s->b, &list, member(s, &all->items[required]));
    add_after_comma(s, all, required + 1, all->n, &list);
    lp_gb_list_add(s->b, &list, others(s, all, 0, -1));
    return lp_gb_list_sequence(s->b, &list);
}

// At least one of the members first to last, all of which are optional.
static lp_gb_node some_of(struct lp_schema *s, struct lp_members *all, size_t first, size_t last) {
    if (last - first == 1) return member(s, &all->items[first]);
    size_t middle = first + (last - first) / 2;
    struct lp_gb_list list = {0};
    lp_gb_list_add(s->b, &list, some_of(s, all, first, middle));
    add_after_comma(s, all, middle, last, &list);
    lp_gb_node in_first = lp_gb_list_sequence(s->b, &list);
    return LP_GB_CHOICE(s->b, in_first, some_of(s, all, middle, last));
}

static lp_gb_node first_other(struct lp_schema *s, const struct lp_members *all, int64_t min,
                              int64_t max) {
    return LP_GB_SEQ(s->b, lp_gb_use(s->b, all->other),
                     others(s, all, min > 0 ? min - 1 : 0, max < 0 ? -1 : max - 1));
}

static lp_gb_node without_required(struct lp_schema *s, struct lp_members *all) {
    for (size_t i = 0; i < all->n; i++) make_rule(s, &all->items[i]);
    struct lp_gb_list ways = {0};
    if (all->n)
        lp_gb_list_add(s->b, &ways,
                       LP_GB_SEQ(s->b, some_of(s, all, 0, all->n), others(s, all, 0, -1)));
    if (all->has_others) lp_gb_list_add(s->b, &ways, first_other(s, all, 0, -1));
    lp_gb_node content = ways.n ? lp_gb_list_choice(s->b, &ways) : 0;
    lp_free(ways.items);
    return lp_jg_brackets(s->jg, '{', content, true);
}

// ---- counted ----

struct counted {
    struct lp_schema *s;
    struct lp_members *all;
    int64_t top;       // from here on the number does not matter any more
    lp_gb_rule *rules; // [n + 1][top + 1]; -1: nothing can follow
};

// Behind the declared members, with so many of them written. Names of others may come twice, and
// then count once: only the first of them is sure to count.
static lp_gb_node end_counted(struct counted *c, int64_t n) {
    const struct lp_members *all = c->all;
    int64_t missing = all->min > n ? all->min - n : 0;
    int64_t room = all->max < 0 ? -1 : all->max - n;
    if (missing > 1 || (missing && !all->has_others)) return LP_SCHEMA_NEVER;
    if (!all->has_others || room == 0) return missing ? LP_SCHEMA_NEVER : lp_gb_empty(c->s->b);
    if (n > 0) return others(c->s, all, missing, room);
    lp_gb_node first = first_other(c->s, all, missing, room);
    return missing ? first : lp_gb_optional(c->s->b, first);
}

static lp_gb_rule *rule_at(struct counted *c, size_t i, int64_t n) {
    return &c->rules[i * (size_t)(c->top + 1) + (size_t)(n < c->top ? n : c->top)];
}

// What may follow from member i on, with n written.
static lp_gb_node rest_counted(struct counted *c, size_t i, int64_t n) {
    struct lp_gb *b = c->s->b;
    struct lp_member *m = &c->all->items[i];
    struct lp_gb_list ways = {0};
    lp_gb_rule with = *rule_at(c, i + 1, n + 1), without = *rule_at(c, i + 1, n);
    if (with >= 0 && (c->all->max < 0 || n < c->all->max)) {
        lp_gb_node node = member(c->s, m);
        if (n) node = lp_jg_after_comma(c->s->jg, node);
        lp_gb_list_add(b, &ways, LP_GB_SEQ(b, node, lp_gb_use(b, with)));
    }
    if (without >= 0 && !m->is_required) lp_gb_list_add(b, &ways, lp_gb_use(b, without));
    if (ways.n) return lp_gb_list_choice(b, &ways);
    lp_free(ways.items);
    return LP_SCHEMA_NEVER;
}

static void make_counted(struct counted *c) {
    for (size_t i = c->all->n + 1; i-- > 0;)
        for (int64_t n = 0; n <= c->top && !lp_gb_failed(c->s->b); n++) {
            lp_gb_node node = i == c->all->n ? end_counted(c, n) : rest_counted(c, i, n);
            lp_gb_rule *rule = rule_at(c, i, n);
            *rule = -1;
            if (node == LP_SCHEMA_NEVER) continue;
            *rule = lp_gb_declare(c->s->b, "members");
            lp_gb_define(c->s->b, *rule, node);
        }
}

static lp_gb_node emit_counted(struct lp_schema *s, struct lp_members *all) {
    struct counted c = {.s = s, .all = all, .top = all->max >= 0 ? all->max : all->min};
    if (c.top < 1) c.top = 1;
    size_t size = (all->n + 1) * (size_t)(c.top + 1);
    if (size > MAX_COUNTED)
        return lp_schema_fail(s, LP_STATUS_LIMIT,
                              "%zu properties with \"minProperties\" or \"maxProperties\" up to "
                              "%lld are too many to be counted",
                              all->n, (long long)c.top);
    for (size_t i = 0; i < all->n; i++) make_rule(s, &all->items[i]);
    c.rules = lp_alloc(size, sizeof *c.rules);
    if (!c.rules) return lp_gb_fail(s->b, LP_STATUS_MEMORY, "out of memory: the grammar");
    make_counted(&c);
    lp_gb_rule start = lp_gb_failed(s->b) ? -1 : *rule_at(&c, 0, 0);
    lp_free(c.rules);
    if (start < 0 && all->has_others)
        return lp_schema_fail(s, LP_STATUS_UNSUPPORTED,
                              "\"minProperties\" %lld is not supported: it needs more than one "
                              "property that is not declared",
                              (long long)all->min);
    if (start < 0) return lp_schema_never(s, "no number of properties is right");
    lp_gb_node space = lp_jg_use(s->jg, LP_JG_SPACE);
    return LP_GB_SEQ(s->b, lp_gb_word(s->b, "{"), space, lp_gb_use(s->b, start),
                     lp_jg_use(s->jg, LP_JG_SPACE), lp_gb_word(s->b, "}"));
}

lp_gb_node lp_schema_members(struct lp_schema *s, struct lp_members *all) {
    size_t n_required = 0, required = all->n;
    for (size_t i = 0; i < all->n; i++) {
        n_required += all->items[i].is_required;
        if (all->items[i].is_required && required == all->n) required = i;
    }
    if (all->max >= 0 && (all->max < all->min || (int64_t)n_required > all->max))
        return lp_schema_never(s, "\"maxProperties\" is below what must be there");
    bool max_matters = all->max >= 0 && (all->has_others || all->max < (int64_t)all->n);
    if (!max_matters) all->max = -1;
    if (max_matters || all->min > (int64_t)n_required) return emit_counted(s, all);
    if (required == all->n) return without_required(s, all);
    return lp_jg_brackets(s->jg, '{', with_required(s, all, required), false);
}
