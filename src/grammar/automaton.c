// From nodes to states, backwards: compile(node, next) makes the states of a node that lead to the
// state `next` and returns the first, so that no state is made that leads nowhere.
#include "grammar/automaton.h"

#include "grammar/automaton_parts.h"
#include "base/grow.h"

#define MAX_STATES ((size_t)1 << 20)
#define MAX_NEED 255 // fits lp_state.need

// ---- single states ----

uint32_t lp_compile_state(struct lp_compile *c, struct lp_state state) {
    struct lp_automaton *a = c->a;
    if (c->b->failed) return 0;
    if (a->n_states % 1024 == 0 && lp_gb_is_late(c->b)) return 0;
    if (a->n_states >= MAX_STATES)
        lp_gb_fail(c->b, LP_STATUS_LIMIT, "the grammar needs more than %zu states; make it smaller",
                   MAX_STATES);
    else if (!LP_GROW(a->states, a->states_capacity, a->n_states + 1))
        lp_gb_fail(c->b, LP_STATUS_MEMORY, "out of memory: the states of the grammar");
    if (c->b->failed) return 0;
    a->states[a->n_states] = state;
    return (uint32_t)a->n_states++;
}

uint32_t lp_compile_byte(struct lp_compile *c, uint8_t low, uint8_t high, uint32_t target) {
    if (target == 0) return 0;
    return lp_compile_state(c, (struct lp_state){.kind = LP_STATE_BYTE,
                                                 .need = c->a->states[target].need,
                                                 .low = low,
                                                 .high = high,
                                                 .a = target});
}

uint32_t lp_compile_edges(struct lp_compile *c, const struct lp_edge *edges, size_t n) {
    struct lp_automaton *a = c->a;
    if (n == 0 || c->b->failed) return 0;
    if (n == 1) return lp_compile_byte(c, edges[0].low, edges[0].high, edges[0].target);
    if (!LP_GROW(a->edges, a->edges_capacity, a->n_edges + n)) {
        lp_gb_fail(c->b, LP_STATUS_MEMORY, "out of memory: the states of the grammar");
        return 0;
    }
    uint8_t need = MAX_NEED;
    size_t first = a->n_edges;
    for (size_t i = 0; i < n; i++) {
        uint8_t theirs = a->states[edges[i].target].need;
        if (theirs < need) need = theirs;
        a->edges[a->n_edges++] = edges[i];
    }
    return lp_compile_state(
        c, (struct lp_state){
               .kind = LP_STATE_EDGES, .need = need, .a = (uint32_t)first, .b = (uint32_t)n});
}

uint32_t lp_compile_split(struct lp_compile *c, const uint32_t *targets, size_t n) {
    struct lp_automaton *a = c->a;
    if (n == 0 || c->b->failed) return 0;
    if (n == 1) return targets[0];
    if (!LP_GROW(a->targets, a->targets_capacity, a->n_targets + n)) {
        lp_gb_fail(c->b, LP_STATUS_MEMORY, "out of memory: the states of the grammar");
        return 0;
    }
    uint8_t need = MAX_NEED;
    size_t first = a->n_targets;
    for (size_t i = 0; i < n; i++) {
        if (a->states[targets[i]].need < need) need = a->states[targets[i]].need;
        a->targets[a->n_targets++] = targets[i];
    }
    return lp_compile_state(
        c, (struct lp_state){
               .kind = LP_STATE_SPLIT, .need = need, .a = (uint32_t)first, .b = (uint32_t)n});
}

// ---- nodes ----

static uint32_t compile_text(struct lp_compile *c, const struct lp_gb_item *item, uint32_t next) {
    for (int32_t i = item->n - 1; i >= 0; i--) {
        uint8_t byte = (uint8_t)c->b->text.data[item->first + i];
        next = lp_compile_byte(c, byte, byte, next);
    }
    return next;
}

static uint32_t compile_sequence(struct lp_compile *c, const struct lp_gb_item *item,
                                 uint32_t next) {
    for (int32_t i = item->n - 1; i >= 0 && next; i--)
        next = lp_compile_node(c, c->b->children[item->first + i], next);
    return next;
}

static uint32_t compile_choice(struct lp_compile *c, const struct lp_gb_item *item, uint32_t next) {
    uint32_t *targets = lp_alloc((size_t)item->n + 1, sizeof *targets);
    size_t n = 0;
    if (!targets) {
        lp_gb_fail(c->b, LP_STATUS_MEMORY, "out of memory: the states of the grammar");
        return 0;
    }
    const lp_gb_node *children = c->b->children + item->first;
    if ((targets[0] = lp_compile_texts(c, children, item->n, next))) n = 1;
    for (int32_t i = 0; i < item->n; i++) {
        if (c->b->items[children[i]].kind == LP_GB_TEXT) continue;
        if ((targets[n] = lp_compile_node(c, children[i], next))) n++;
    }
    uint32_t state = lp_compile_split(c, targets, n);
    lp_free(targets);
    return state;
}

static uint32_t compile_use(struct lp_compile *c, lp_gb_rule rule, uint32_t next) {
    unsigned need = c->facts->rules[rule].need;
    if (next == LP_STATE_END) // the frame of this rule serves the other too
        return need > MAX_NEED ? 0
                               : lp_compile_state(c, (struct lp_state){.kind = LP_STATE_JUMP,
                                                                       .need = (uint8_t)need,
                                                                       .a = (uint32_t)rule});
    if (++need < c->a->states[next].need) need = c->a->states[next].need;
    if (need > MAX_NEED) return 0;
    return lp_compile_state(
        c, (struct lp_state){
               .kind = LP_STATE_CALL, .need = (uint8_t)need, .a = (uint32_t)rule, .b = next});
}

// ---- repetitions ----

// Any number of times: a state that leads into the body and out of it, and the body back to it.
static uint32_t compile_star(struct lp_compile *c, lp_gb_node body, uint32_t next) {
    uint32_t loop = lp_compile_split(c, (uint32_t[]){next, next}, 2);
    if (!loop) return 0;
    uint32_t first = lp_compile_node(c, body, loop);
    if (first) c->a->targets[c->a->states[loop].a + 1] = first;
    return loop;
}

// min copies, then a loop or max - min copies each of which may lead out.
static uint32_t compile_copies(struct lp_compile *c, lp_gb_node body, int32_t min, int32_t max,
                               uint32_t next) {
    uint32_t state = max < 0 ? compile_star(c, body, next) : next;
    for (int32_t i = min; i < max && state; i++) {
        uint32_t first = lp_compile_node(c, body, state);
        if (!first) break;
        state = lp_compile_split(c, (uint32_t[]){first, next}, 2);
    }
    for (int32_t i = 0; i < min && state; i++) state = lp_compile_node(c, body, state);
    return state;
}

// One copy of the body, and a counter on the stack.
static uint32_t compile_counted(struct lp_compile *c, lp_gb_node body, int32_t min, int32_t max,
                                uint32_t next) {
    struct lp_automaton *a = c->a;
    const struct lp_node_facts *facts = &c->facts->nodes[body];
    unsigned out = a->states[next].need, again = facts->need > out ? facts->need : out;
    if (again > MAX_NEED) return min == 0 ? next : 0;
    if (!LP_GROW(a->repetitions, a->repetitions_capacity, a->n_repetitions + 1)) {
        lp_gb_fail(c->b, LP_STATUS_MEMORY, "out of memory: the states of the grammar");
        return 0;
    }
    uint32_t index = (uint32_t)a->n_repetitions++;
    uint32_t loop = lp_compile_state(c, (struct lp_state){.kind = LP_STATE_LOOP,
                                                          .need = (uint8_t)(min < 2 ? out : again),
                                                          .a = index});
    uint32_t first = loop ? lp_compile_node(c, body, loop) : 0;
    a->repetitions[index] = (struct lp_repetition){.min = min,
                                                   .max = max,
                                                   .body = first,
                                                   .next = next,
                                                   .min_len = facts->min_len ? facts->min_len : 1};
    if (!first) return min == 0 ? next : 0;
    return lp_compile_state(c, (struct lp_state){.kind = LP_STATE_ENTER,
                                                 .need = (uint8_t)(min == 0 ? out : again),
                                                 .a = index});
}

static uint32_t compile_repeat(struct lp_compile *c, const struct lp_gb_item *item, uint32_t next) {
    const struct lp_node_facts *body = &c->facts->nodes[item->first];
    int32_t min = body->nullable ? 0 : item->min, max = item->max;
    if (body->need == LP_NEED_NEVER) return min == 0 ? next : 0;
    int64_t copies = max < 0 ? min : max;
    if (copies <= 1 || copies * ((int64_t)body->n_states + 1) <= LP_EXPANDED_STATES)
        return compile_copies(c, item->first, min, max, next);
    return compile_counted(c, item->first, min, max, next);
}

uint32_t lp_compile_node(struct lp_compile *c, lp_gb_node node, uint32_t next) {
    const struct lp_gb_item *item = &c->b->items[node];
    if (c->b->failed || next == 0 || c->facts->nodes[node].need == LP_NEED_NEVER) return 0;
    switch ((enum lp_gb_kind)item->kind) {
    case LP_GB_EMPTY:
        return next;
    case LP_GB_NEVER:
        return 0;
    case LP_GB_TEXT:
        return compile_text(c, item, next);
    case LP_GB_CLASS:
        return lp_compile_class(c, item, next);
    case LP_GB_SEQUENCE:
        return compile_sequence(c, item, next);
    case LP_GB_CHOICE:
        return compile_choice(c, item, next);
    case LP_GB_REPEAT:
        return compile_repeat(c, item, next);
    case LP_GB_USE:
        return compile_use(c, item->first, next);
    case LP_GB_TOKEN:
        break;
    }
    return lp_compile_state(c, (struct lp_state){.kind = LP_STATE_TOKEN,
                                                 .need = c->a->states[next].need,
                                                 .a = (uint32_t)item->first,
                                                 .b = next});
}

// ---- all of it ----

static void mark_range(bool begins[257], uint8_t low, uint8_t high) {
    begins[low] = true;
    begins[high + 1] = true;
}

static void find_classes(struct lp_automaton *a) {
    bool begins[257] = {true};
    for (size_t i = 0; i < a->n_states; i++)
        if (a->states[i].kind == LP_STATE_BYTE)
            mark_range(begins, a->states[i].low, a->states[i].high);
    for (size_t i = 0; i < a->n_edges; i++) mark_range(begins, a->edges[i].low, a->edges[i].high);
    a->n_classes = 0;
    for (int byte = 0; byte < 256; byte++) {
        if (begins[byte]) a->byte_of[a->n_classes++] = (uint8_t)byte;
        a->class_of[byte] = (uint8_t)(a->n_classes - 1);
    }
}

void lp_automaton_make(struct lp_automaton *a, struct lp_gb *b, lp_gb_rule start,
                       const struct lp_rule_facts *facts, const struct lp_writable *writable) {
    struct lp_compile c = {.a = a, .b = b, .facts = facts, .writable = writable};
    *a = (struct lp_automaton){0};
    if (b->failed) return;
    if (!(a->rules = lp_alloc(b->n_rules, sizeof *a->rules))) {
        lp_gb_fail(b, LP_STATUS_MEMORY, "out of memory: the rules of the grammar");
        return;
    }
    if (facts->rules[start].need == LP_NEED_NEVER) {
        lp_gb_fail(b, LP_STATUS_INVALID, "the grammar matches no text at all%s",
                   writable ? " that this model's vocabulary can write" : "");
        return;
    }
    lp_compile_state(&c, (struct lp_state){.kind = LP_STATE_DEAD, .need = MAX_NEED});
    lp_compile_state(&c, (struct lp_state){.kind = LP_STATE_END});
    for (size_t i = 0; i < facts->n_order; i++)
        a->rules[facts->order[i]] = lp_compile_node(&c, b->rules[facts->order[i]].node, 1);
    a->start = a->rules[start];
    if (!b->failed && !a->start)
        lp_gb_fail(b, LP_STATUS_LIMIT, "the grammar nests rules deeper than %d", MAX_NEED);
    find_classes(a);
    lp_free(c.edges);
    lp_free(c.texts);
}

void lp_automaton_release(struct lp_automaton *a) {
    lp_free(a->states);
    lp_free(a->edges);
    lp_free(a->targets);
    lp_free(a->repetitions);
    lp_free(a->rules);
    *a = (struct lp_automaton){0};
}
