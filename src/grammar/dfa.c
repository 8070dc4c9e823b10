// One step: the targets of a byte, then everything that can be reached from them without one.
//
// That second part ends, since rules are not left-recursive and what was seen is not seen twice; it
// is bounded, since a grammar can be so ambiguous that there is no end in practice. Counted
// repetitions are gone through last and lowest count first: of two counts that may both stop, the
// higher one allows nothing that the lower does not, and is left out.
#include "grammar/dfa.h"

#include <stdlib.h>

#include "base/grow.h"

#define MAX_SET_CONFIGS 4000
#define MAX_SEEN 40000
#define LARGE_BYTES ((size_t)8 << 20)      // trimmed behind the work that took them
#define TOO_LARGE_BYTES ((size_t)48 << 20) // work that needs more fails
#define MAX_WORK 2000000                   // configurations in one piece of work: some 0.1 s

// ---- what was seen ----

static size_t seen_slot(const struct lp_closure *k, struct lp_config config) {
    uint64_t h = ((uint64_t)config.state << 32 | config.stack) * 0x9e3779b97f4a7c15u;
    size_t slot = (size_t)(h >> 32) & (k->n_seen_slots - 1);
    while (k->stamps[slot] == k->stamp &&
           (k->seen[slot].state != config.state || k->seen[slot].stack != config.stack))
        slot = (slot + 1) & (k->n_seen_slots - 1);
    return slot;
}

static bool grow_seen(struct lp_closure *k) {
    if (2 * (k->n_seen + 1) <= k->n_seen_slots) return true;
    struct lp_closure bigger = *k;
    bigger.n_seen_slots = k->n_seen_slots ? 2 * k->n_seen_slots : 64;
    bigger.seen = lp_alloc(bigger.n_seen_slots, sizeof *bigger.seen);
    bigger.stamps = lp_alloc(bigger.n_seen_slots, sizeof *bigger.stamps);
    if (!bigger.seen || !bigger.stamps) {
        lp_free(bigger.seen);
        lp_free(bigger.stamps);
        return false;
    }
    for (size_t i = 0; i < k->n_seen_slots; i++) {
        if (k->stamps[i] != k->stamp) continue;
        size_t slot = seen_slot(&bigger, k->seen[i]);
        bigger.seen[slot] = k->seen[i];
        bigger.stamps[slot] = k->stamp;
    }
    lp_free(k->seen);
    lp_free(k->stamps);
    *k = bigger;
    return true;
}

static void fail(struct lp_dfa *d, enum lp_dfa_failure failure) {
    if (!d->failure) d->failure = failure;
}

#define PUSH(d, list, item)                                                                        \
    do {                                                                                           \
        struct lp_closure *k_ = &(d)->closure;                                                     \
        if (LP_GROW(k_->list, k_->list##_capacity, k_->n_##list + 1))                              \
            k_->list[k_->n_##list++] = (item);                                                     \
        else                                                                                       \
            fail(d, LP_DFA_MEMORY);                                                                \
    } while (0)

// ---- closure ----

static void begin_closure(struct lp_dfa *d) {
    struct lp_closure *k = &d->closure;
    if (++k->stamp == 0) { // after 2^32 of them old stamps would be new again
        if (k->n_seen_slots) memset(k->stamps, 0, k->n_seen_slots * sizeof *k->stamps);
        k->stamp = 1;
    }
    k->n_todo = k->n_found = k->n_rounds = k->n_done = k->n_seen = 0;
    k->can_end = false;
    k->holes = 0;
}

static void visit(struct lp_dfa *d, uint32_t state, uint32_t stack) {
    struct lp_closure *k = &d->closure;
    struct lp_config config = {state, stack};
    if (d->failure || state == 0) return;
    if (d->sets.frames[stack].depth + d->a->states[state].need > LP_GRAMMAR_MAX_DEPTH) return;
    if (!grow_seen(k)) {
        fail(d, LP_DFA_MEMORY);
        return;
    }
    size_t slot = seen_slot(k, config);
    if (k->stamps[slot] == k->stamp) return;
    k->stamps[slot] = k->stamp;
    k->seen[slot] = config;
    k->n_seen++;
    PUSH(d, todo, config);
}

static uint32_t frame(struct lp_dfa *d, enum lp_frame_kind kind, uint32_t value, int32_t count,
                      uint32_t parent) {
    uint32_t id = lp_config_sets_frame(&d->sets, kind, value, (uint32_t)count, parent, 0);
    if (!id) fail(d, LP_DFA_MEMORY);
    return id;
}

static void visit_counted(struct lp_dfa *d, uint32_t repetition, int32_t count, uint32_t parent) {
    uint32_t stack = frame(d, LP_FRAME_COUNT, repetition, count, parent);
    if (stack) visit(d, d->a->repetitions[repetition].body, stack);
}

static void end_rule(struct lp_dfa *d, struct lp_config config) {
    const struct lp_frame *top = &d->sets.frames[config.stack];
    if (config.stack != 0 && top->kind == LP_FRAME_RETURN) {
        visit(d, top->value, top->parent);
        return;
    }
    if (config.stack == 0)
        d->closure.can_end = true;
    else
        d->closure.holes |= (uint8_t)(1u << top->value);
    PUSH(d, found, config);
}

// Behind the body of a repetition: kept until everything else has been looked at.
static void end_round(struct lp_dfa *d, uint32_t stack) {
    const struct lp_frame *top = &d->sets.frames[stack];
    struct lp_round round = {top->value, top->parent, top->count + 1};
    PUSH(d, rounds, round);
}

static void go_on(struct lp_dfa *d, struct lp_config config) {
    const struct lp_state *state = &d->a->states[config.state];
    d->work++;
    switch ((enum lp_state_kind)state->kind) {
    case LP_STATE_BYTE:
    case LP_STATE_EDGES:
    case LP_STATE_TOKEN:
        PUSH(d, found, config);
        break;
    case LP_STATE_SPLIT:
        for (uint32_t i = 0; i < state->b; i++) visit(d, d->a->targets[state->a + i], config.stack);
        break;
    case LP_STATE_JUMP:
        visit(d, d->a->rules[state->a], config.stack);
        break;
    case LP_STATE_CALL: {
        uint32_t stack = frame(d, LP_FRAME_RETURN, state->b, 0, config.stack);
        if (stack) visit(d, d->a->rules[state->a], stack);
        break;
    }
    case LP_STATE_ENTER:
        if (d->a->repetitions[state->a].min == 0)
            visit(d, d->a->repetitions[state->a].next, config.stack);
        visit_counted(d, state->a, 0, config.stack);
        break;
    case LP_STATE_LOOP:
        end_round(d, config.stack);
        break;
    case LP_STATE_END:
        end_rule(d, config);
        break;
    case LP_STATE_DEAD:
        break;
    }
}

// Was the repetition gone through, on the same stack, with a count that allows all that this does?
static bool is_covered(struct lp_dfa *d, struct lp_round round) {
    struct lp_closure *k = &d->closure;
    if (round.count < d->a->repetitions[round.repetition].min) return false;
    for (size_t i = 0; i < k->n_done; i++) {
        struct lp_round *done = &k->done[i];
        if (done->repetition != round.repetition || done->parent != round.parent) continue;
        if (done->count <= round.count) return true;
        done->count = round.count;
        return false;
    }
    PUSH(d, done, round);
    return false;
}

static void go_round(struct lp_dfa *d, struct lp_round round) {
    const struct lp_repetition *r = &d->a->repetitions[round.repetition];
    int32_t count = round.count;
    d->work++;
    if (is_covered(d, round)) return;
    if (count >= r->min) visit(d, r->next, round.parent);
    if (r->max < 0 && count > r->min) count = r->min; // any further count is the same
    if (r->max < 0 || count < r->max) visit_counted(d, round.repetition, count, round.parent);
}

static int by_count(const void *a, const void *b) {
    const struct lp_round *x = a, *y = b;
    return x->count - y->count;
}

static bool is_too_much(struct lp_dfa *d) {
    if (d->work > d->work_limit) fail(d, LP_DFA_TOO_LONG);
    if (lp_config_sets_bytes(&d->sets) > TOO_LARGE_BYTES) fail(d, LP_DFA_TOO_LARGE);
    if (d->closure.n_seen <= MAX_SEEN && d->closure.n_found <= MAX_SET_CONFIGS)
        return d->failure != LP_DFA_OK;
    d->was_cut = true;
    return true;
}

// The set of what was visited and all that follows from it.
static uint32_t close_set(struct lp_dfa *d) {
    struct lp_closure *k = &d->closure;
    while (k->n_todo || k->n_rounds) {
        while (k->n_todo && !is_too_much(d)) go_on(d, k->todo[--k->n_todo]);
        if (is_too_much(d)) return d->failure ? 0 : LP_SET_DEAD;
        size_t n = k->n_rounds;
        if (n > 1) qsort(k->rounds, n, sizeof *k->rounds, by_count);
        for (size_t i = 0; i < n && !d->failure; i++) go_round(d, k->rounds[i]);
        k->n_rounds = 0; // going round adds none itself
    }
    if (d->failure) return 0;
    uint32_t set = lp_config_sets_set(&d->sets, k->found, k->n_found, k->can_end, k->holes);
    if (!set) fail(d, LP_DFA_MEMORY);
    return set;
}

// ---- steps ----

static void visit_over_byte(struct lp_dfa *d, struct lp_config config, uint8_t byte) {
    const struct lp_state *state = &d->a->states[config.state];
    if (state->kind == LP_STATE_BYTE && state->low <= byte && byte <= state->high)
        visit(d, state->a, config.stack);
    if (state->kind != LP_STATE_EDGES) return;
    for (uint32_t i = 0; i < state->b; i++) {
        const struct lp_edge *edge = &d->a->edges[state->a + i];
        if (edge->low <= byte && byte <= edge->high) visit(d, edge->target, config.stack);
    }
}

uint32_t lp_dfa_find(struct lp_dfa *d, uint32_t set, uint32_t class_of_byte) {
    begin_closure(d);
    for (uint32_t i = 0; i < d->sets.sets[set].n; i++) {
        d->work++;
        visit_over_byte(d, d->sets.configs[d->sets.sets[set].first + i],
                        d->a->byte_of[class_of_byte]);
    }
    uint32_t next = close_set(d);
    d->sets.next[(size_t)set * d->sets.n_classes + class_of_byte] = next;
    return next;
}

uint32_t lp_dfa_token(struct lp_dfa *d, uint32_t set, int32_t id) {
    begin_closure(d);
    for (uint32_t i = 0; i < d->sets.sets[set].n; i++) {
        struct lp_config config = d->sets.configs[d->sets.sets[set].first + i];
        const struct lp_state *state = &d->a->states[config.state];
        if (state->kind == LP_STATE_TOKEN && state->a == (uint32_t)id)
            visit(d, state->b, config.stack);
    }
    return close_set(d);
}

uint32_t lp_dfa_return(struct lp_dfa *d, const uint32_t *stacks, size_t n) {
    begin_closure(d);
    for (size_t i = 0; i < n; i++) {
        const struct lp_frame *top = &d->sets.frames[stacks[i]];
        visit(d, top->value, top->parent);
    }
    return close_set(d);
}

// ---- all of it ----

static uint32_t find_start(struct lp_dfa *d) {
    begin_closure(d);
    visit(d, d->a->start, 0);
    return d->start = close_set(d);
}

void lp_dfa_begin(struct lp_dfa *d) {
    d->work = 0;
    d->work_limit = MAX_WORK;
    d->failure = LP_DFA_OK;
}

bool lp_dfa_init(struct lp_dfa *d, const struct lp_automaton *a) {
    *d = (struct lp_dfa){.a = a};
    lp_dfa_begin(d);
    return lp_config_sets_init(&d->sets, a->n_classes) && find_start(d) != 0;
}

static void release_closure(struct lp_closure *k) {
    lp_free(k->todo);
    lp_free(k->found);
    lp_free(k->rounds);
    lp_free(k->done);
    lp_free(k->seen);
    lp_free(k->stamps);
}

void lp_dfa_release(struct lp_dfa *d) {
    lp_config_sets_release(&d->sets);
    release_closure(&d->closure);
}

// ---- memory ----

void lp_dfa_hold(struct lp_dfa *d, struct lp_dfa_holder *holder) {
    *holder = (struct lp_dfa_holder){.set = d->start, .next = d->holders};
    if (d->holders) d->holders->previous = holder;
    d->holders = holder;
}

void lp_dfa_drop(struct lp_dfa *d, struct lp_dfa_holder *holder) {
    if (holder->next) holder->next->previous = holder->previous;
    if (holder->previous)
        holder->previous->next = holder->next;
    else
        d->holders = holder->next;
}

bool lp_dfa_is_large(const struct lp_dfa *d) {
    size_t bytes = lp_config_sets_bytes(&d->sets);
    return bytes > LARGE_BYTES && bytes > 2 * d->trimmed_bytes;
}

// The same stack among the frames of `to`; *failed without memory.
static uint32_t copy_stack(const struct lp_config_sets *from, struct lp_config_sets *to,
                           uint32_t stack, uint32_t *copies, bool *failed) {
    uint32_t at = stack, below = 0;
    while (at && !copies[at]) { // turn the list round, so that the lowest frame comes first
        copies[at] = UINT32_MAX - below;
        below = at;
        at = from->frames[at].parent;
    }
    uint32_t parent = at ? copies[at] : 0;
    while (below) {
        const struct lp_frame *f = &from->frames[below];
        uint32_t above = UINT32_MAX - copies[below];
        parent = lp_config_sets_frame(to, f->kind, f->value, f->count, parent, f->depth);
        *failed = *failed || !parent;
        copies[below] = parent ? parent : 1;
        below = above;
    }
    return parent;
}

static uint32_t copy_set(const struct lp_config_sets *from, struct lp_config_sets *to, uint32_t id,
                         uint32_t *copies, struct lp_config *scratch) {
    const struct lp_config_set *set = &from->sets[id];
    bool failed = false;
    for (uint32_t i = 0; i < set->n; i++) {
        struct lp_config config = from->configs[set->first + i];
        scratch[i].state = config.state;
        scratch[i].stack = copy_stack(from, to, config.stack, copies, &failed);
    }
    return failed ? 0 : lp_config_sets_set(to, scratch, set->n, set->can_end, set->holes);
}

bool lp_dfa_trim(struct lp_dfa *d) {
    struct lp_config_sets fresh;
    uint32_t *copies = lp_alloc(d->sets.n_frames, sizeof *copies);
    uint32_t *moved = lp_alloc(d->sets.n_sets, sizeof *moved);
    struct lp_config *scratch = lp_alloc(MAX_SET_CONFIGS + 1, sizeof *scratch);
    bool ok = lp_config_sets_init(&fresh, d->a->n_classes) && copies && moved && scratch;
    if (ok) {
        moved[LP_SET_DEAD] = LP_SET_DEAD;
        ok = (moved[d->start] = copy_set(&d->sets, &fresh, d->start, copies, scratch)) != 0;
    }
    for (struct lp_dfa_holder *h = d->holders; h && ok; h = h->next)
        if (!moved[h->set])
            ok = (moved[h->set] = copy_set(&d->sets, &fresh, h->set, copies, scratch)) != 0;
    if (ok) {
        for (struct lp_dfa_holder *h = d->holders; h; h = h->next) h->set = moved[h->set];
        d->start = moved[d->start];
        struct lp_config_sets old = d->sets;
        d->sets = fresh;
        fresh = old;
    }
    d->trimmed_bytes = lp_config_sets_bytes(&d->sets);
    lp_config_sets_release(&fresh);
    lp_free(copies);
    lp_free(moved);
    lp_free(scratch);
    return ok;
}
