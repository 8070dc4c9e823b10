#include "grammar/config_sets.h"

#include <stdlib.h>

#include "base/grow.h"

static uint32_t mix(uint32_t hash, uint32_t value) {
    uint64_t m = ((uint64_t)hash ^ value ^ 0x9e3779b9u) * 0xd6e8feb86659fd93u;
    return (uint32_t)(m >> 32) ^ (uint32_t)m;
}

// ---- tables ----

static bool grow_table(struct lp_id_table *t) {
    if (3 * (t->n_used + 1) <= 2 * t->n_slots) return true;
    size_t n = t->n_slots ? 2 * t->n_slots : 64;
    struct lp_id_table bigger = {.ids = lp_alloc(n, sizeof *bigger.ids),
                                 .hashes = lp_alloc(n, sizeof *bigger.hashes),
                                 .n_slots = n,
                                 .n_used = t->n_used};
    if (!bigger.ids || !bigger.hashes) {
        lp_free(bigger.ids);
        lp_free(bigger.hashes);
        return false;
    }
    for (size_t i = 0; i < t->n_slots; i++) {
        if (!t->ids[i]) continue;
        size_t at = t->hashes[i] & (n - 1);
        while (bigger.ids[at]) at = (at + 1) & (n - 1);
        bigger.ids[at] = t->ids[i];
        bigger.hashes[at] = t->hashes[i];
    }
    lp_free(t->ids);
    lp_free(t->hashes);
    *t = bigger;
    return true;
}

static void put(struct lp_id_table *t, size_t slot, uint32_t hash, uint32_t id) {
    t->ids[slot] = id;
    t->hashes[slot] = hash;
    t->n_used++;
}

static void release_table(struct lp_id_table *t) {
    lp_free(t->ids);
    lp_free(t->hashes);
}

// ---- frames ----

uint32_t lp_config_sets_frame(struct lp_config_sets *c, enum lp_frame_kind kind, uint32_t value,
                              uint32_t count, uint32_t parent, uint32_t depth) {
    struct lp_id_table *t = &c->frame_table;
    if (kind != LP_FRAME_HOLE) depth = c->frames[parent].depth + (kind == LP_FRAME_RETURN);
    uint32_t hash = mix(mix(mix(mix(0, kind), value), count), parent);
    if (!grow_table(t) || !LP_GROW(c->frames, c->frames_capacity, c->n_frames + 1)) return 0;
    size_t slot = hash & (t->n_slots - 1);
    for (; t->ids[slot]; slot = (slot + 1) & (t->n_slots - 1)) {
        const struct lp_frame *f = &c->frames[t->ids[slot]];
        if (t->hashes[slot] == hash && f->kind == kind && f->value == value && f->count == count &&
            f->parent == parent && f->depth == depth)
            return t->ids[slot];
    }
    c->frames[c->n_frames] = (struct lp_frame){.value = value,
                                               .parent = parent,
                                               .count = (uint16_t)count,
                                               .depth = (uint16_t)depth,
                                               .kind = (uint8_t)kind};
    put(t, slot, hash, (uint32_t)c->n_frames);
    return (uint32_t)c->n_frames++;
}

// ---- sets ----

static int by_state(const void *a, const void *b) {
    const struct lp_config *x = a, *y = b;
    if (x->state != y->state) return x->state < y->state ? -1 : 1;
    return x->stack < y->stack ? -1 : x->stack > y->stack;
}

static bool same_configs(const struct lp_config_sets *c, uint32_t id,
                         const struct lp_config *configs, size_t n) {
    const struct lp_config_set *set = &c->sets[id];
    return set->n == n &&
           (n == 0 || memcmp(c->configs + set->first, configs, n * sizeof *configs) == 0);
}

static bool make_room(struct lp_config_sets *c, size_t n) {
    return grow_table(&c->set_table) && LP_GROW(c->sets, c->sets_capacity, c->n_sets + 1) &&
           LP_GROW(c->configs, c->configs_capacity, c->n_configs + n) &&
           LP_GROW(c->next, c->next_capacity, (c->n_sets + 1) * c->n_classes);
}

// Ascending, each once. Returns how many are left.
static size_t sort_configs(struct lp_config *configs, size_t n) {
    size_t kept = 0;
    if (n > 1) qsort(configs, n, sizeof *configs, by_state);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || by_state(&configs[i], &configs[kept - 1]) != 0) configs[kept++] = configs[i];
    return kept;
}

uint32_t lp_config_sets_set(struct lp_config_sets *c, struct lp_config *configs, size_t n,
                            bool can_end, uint8_t holes) {
    struct lp_id_table *t = &c->set_table;
    uint32_t hash = 0;
    if (!make_room(c, n)) return 0;
    n = sort_configs(configs, n);
    for (size_t i = 0; i < n; i++) hash = mix(mix(hash, configs[i].state), configs[i].stack);
    size_t slot = hash & (t->n_slots - 1);
    for (; t->ids[slot]; slot = (slot + 1) & (t->n_slots - 1))
        if (t->hashes[slot] == hash && same_configs(c, t->ids[slot], configs, n))
            return t->ids[slot];
    struct lp_config_set set = {
        .first = (uint32_t)c->n_configs, .n = (uint32_t)n, .can_end = can_end, .holes = holes};
    c->sets[c->n_sets] = set;
    memset(c->next + c->n_sets * c->n_classes, 0, c->n_classes * sizeof *c->next);
    if (n) memcpy(c->configs + c->n_configs, configs, n * sizeof *configs);
    c->n_configs += n;
    put(t, slot, hash, (uint32_t)c->n_sets);
    return (uint32_t)c->n_sets++;
}

// ---- all of it ----

bool lp_config_sets_init(struct lp_config_sets *c, uint32_t n_classes) {
    *c = (struct lp_config_sets){.n_classes = n_classes, .n_sets = 1};
    if (!LP_GROW(c->frames, c->frames_capacity, 1) || !make_room(c, 0)) return false;
    c->frames[0] = (struct lp_frame){0}; // the empty stack
    c->n_frames = 1;
    c->sets[0] = (struct lp_config_set){0}; // no set
    return lp_config_sets_set(c, NULL, 0, false, 0) == LP_SET_DEAD;
}

void lp_config_sets_release(struct lp_config_sets *c) {
    lp_free(c->frames);
    lp_free(c->configs);
    lp_free(c->sets);
    lp_free(c->next);
    release_table(&c->frame_table);
    release_table(&c->set_table);
    *c = (struct lp_config_sets){0};
}

size_t lp_config_sets_bytes(const struct lp_config_sets *c) {
    return c->n_frames * sizeof *c->frames + c->n_configs * sizeof *c->configs +
           c->n_sets * (sizeof *c->sets + c->n_classes * sizeof *c->next) +
           8 * (c->frame_table.n_slots + c->set_table.n_slots);
}
