// Arrays: the items with a schema of their own, then the others.
#include "grammar/node_list.h"
#include "grammar/schema.h"

struct items {
    int64_t min, max; // of all; max -1: any number
    lp_gb_node rest;  // an item behind the first ones; LP_SCHEMA_NEVER: there is none
};

static lp_gb_node emit_item(struct lp_schema *s, json_t *schema, const char *keyword, size_t i) {
    size_t mark;
    if (strcmp(keyword, "items") == 0)
        lp_schema_enter(s, keyword, NULL, &mark);
    else
        lp_schema_enter_item(s, keyword, i, &mark);
    lp_gb_node node = lp_schema_emit(s, schema);
    lp_schema_leave(s, mark);
    return node;
}

// At most so many: max, or before the first one that nothing can fulfil.
static void lower_max(struct items *items, size_t n) {
    if (items->max < 0 || items->max > (int64_t)n) items->max = (int64_t)n;
}

// Items of one schema, min to max of them, the first without a comma.
static lp_gb_node emit_same(struct lp_schema *s, struct items *items) {
    lp_gb_node first = items->rest;
    int64_t min = items->min > 0 ? items->min - 1 : 0;
    int64_t max = items->max < 0 ? -1 : items->max - 1;
    if (max == 0) return lp_jg_brackets(s->jg, '[', first, items->min == 0);
    lp_gb_rule rule = lp_gb_declare(s->b, "item");
    lp_gb_define(s->b, rule, first);
    lp_gb_node more = lp_jg_after_comma(s->jg, lp_gb_use(s->b, rule));
    lp_gb_node all = LP_GB_SEQ(s->b, lp_gb_use(s->b, rule), lp_gb_repeat(s->b, more, min, max));
    return lp_jg_brackets(s->jg, '[', all, items->min == 0);
}

// The first items, each of its own schema, then the others: [a(, b(, c(, rest)*)?)?]
static lp_gb_node emit_prefix(struct lp_schema *s, struct items *items, struct lp_gb_list *prefix) {
    int64_t n = (int64_t)prefix->n;
    lp_gb_node tail = 0;
    if (items->rest != LP_SCHEMA_NEVER && (items->max < 0 || items->max > n)) {
        int64_t min = items->min > n ? items->min - n : 0;
        tail = lp_gb_repeat(s->b, lp_jg_after_comma(s->jg, items->rest), min,
                            items->max < 0 ? -1 : items->max - n);
    }
    for (int64_t i = n; i-- > 0;) {
        lp_gb_node node = prefix->items[i];
        if (i) node = lp_jg_after_comma(s->jg, node);
        if (tail) node = LP_GB_SEQ(s->b, node, tail);
        tail = i && i >= items->min ? lp_gb_optional(s->b, node) : node;
    }
    return lp_jg_brackets(s->jg, '[', tail, items->min == 0);
}

lp_gb_node lp_schema_array(struct lp_schema *s, json_t *flat) {
    struct items items = {lp_schema_count(s, flat, "minItems", 0),
                          lp_schema_count(s, flat, "maxItems", -1), LP_SCHEMA_NEVER};
    json_t *schemas = json_object_get(flat, "prefixItems"),
           *others = json_object_get(flat, "items");
    struct lp_gb_list prefix = {0};
    size_t n = json_array_size(schemas);
    for (size_t i = 0; i < n && (items.max < 0 || (int64_t)i < items.max); i++) {
        if (lp_gb_failed(s->b)) break;
        lp_gb_node node = emit_item(s, json_array_get(schemas, i), "prefixItems", i);
        if (node == LP_SCHEMA_NEVER) lower_max(&items, i);
        if (node != LP_SCHEMA_NEVER) lp_gb_list_add(s->b, &prefix, node);
    }
    if (items.max < 0 || items.max > (int64_t)n)
        items.rest = others ? emit_item(s, others, "items", 0) : lp_jg_use(s->jg, LP_JG_VALUE);
    if (items.rest == LP_SCHEMA_NEVER) lower_max(&items, prefix.n);
    lp_gb_node node;
    if (lp_gb_failed(s->b))
        node = 0;
    else if (items.max >= 0 && items.min > items.max)
        node = lp_schema_never(s, "there can be at most %lld items and must be at least %lld",
                               (long long)items.max, (long long)items.min);
    else if (items.max == 0)
        node = lp_jg_brackets(s->jg, '[', 0, false);
    else
        node = prefix.n ? emit_prefix(s, &items, &prefix) : emit_same(s, &items);
    lp_free(prefix.items);
    return node;
}
