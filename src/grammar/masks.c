// What keeps walks over the vocabulary rare. A walk for a string of JSON visits every node of the
// tree, some milliseconds; most masks must come without one.
//
//   1. A set's mask is kept, and the mask of a set like it is its mask: a count that stays away
//      from its bounds for longer than a token is as good as any other ("canonical", for each
//      length of tokens on its own, so that the many short tokens see bounds only when they are
//      near).
//   2. A walk is made with what lies deep on the stack replaced by a "hole", so that a string costs
//      one walk wherever it stands. Where a token reaches the hole (a quote, a bracket behind it),
//      the node is noted as an exit; then the few tokens below exits are walked through with what
//      really lies there. If too much of the tree lies below exits, the next more of the stack is
//      looked at.
//
// Bounds: masks of MASK_BYTES stay, the least recently used go; a piece of work is bounded by the
// automaton's (dfa.h).
#include "grammar/masks.h"

#include "base/grow.h"

#define MASK_BYTES ((size_t)8 << 20)
#define N_LEVELS 3    // rules of the stack that are kept above a hole: 0, 1, 2
#define CUT_DEPTH 128 // no deeper stack is cut; a hole counts as this deep
#define CUT_NEED 64   // no grammar that must nest deeper than this is cut
#define OPEN_SHARE 8  // at most that part of the tree may lie below exits
#define OPEN_NODES 64 // or that many nodes

// ---- the cache ----

static struct lp_mask *new_mask(struct lp_masks *m, bool has_bits) {
    size_t bytes = sizeof(struct lp_mask) + (has_bits ? m->n_words * sizeof(uint32_t) : 0);
    struct lp_mask *mask = lp_alloc(bytes, 1);
    if (!mask) {
        m->dfa->failure = LP_DFA_MEMORY;
        return NULL;
    }
    mask->bytes = bytes;
    mask->n_references = 1;
    return mask;
}

void lp_mask_put(struct lp_mask *mask) {
    if (!mask || --mask->n_references) return;
    lp_free(mask->exits);
    lp_free(mask);
}

static void unlink_mask(struct lp_masks *m, struct lp_mask *mask) {
    *(mask->newer ? &mask->newer->older : &m->newest) = mask->older;
    *(mask->older ? &mask->older->newer : &m->oldest) = mask->newer;
}

static void link_newest(struct lp_masks *m, struct lp_mask *mask) {
    mask->newer = NULL;
    mask->older = m->newest;
    *(m->newest ? &m->newest->newer : &m->oldest) = mask;
    m->newest = mask;
}

static void forget(struct lp_masks *m, struct lp_mask *mask) {
    unlink_mask(m, mask);
    m->bytes -= mask->bytes;
    m->dfa->sets.sets[mask->set].masks[mask->slot] = NULL;
    lp_mask_put(mask);
}

void lp_masks_clear(struct lp_masks *m) {
    while (m->newest) forget(m, m->newest);
}

// Hands a mask over to the cache. It stays until others are kept.
static const struct lp_mask *keep(struct lp_masks *m, uint32_t set, unsigned slot,
                                  struct lp_mask *mask) {
    mask->bytes += mask->exits_capacity * sizeof *mask->exits;
    while (m->oldest && m->bytes + mask->bytes > MASK_BYTES) forget(m, m->oldest);
    mask->set = set;
    mask->slot = (uint8_t)slot;
    mask->is_empty = true;
    for (size_t i = 0; i < m->n_words && !mask->is_too_open && mask->is_empty; i++)
        mask->is_empty = mask->bits[i] == 0;
    m->bytes += mask->bytes;
    m->dfa->sets.sets[set].masks[slot] = mask;
    link_newest(m, mask);
    return mask;
}

static struct lp_mask *find(struct lp_masks *m, uint32_t set, unsigned slot) {
    struct lp_mask *mask = m->dfa->sets.sets[set].masks[slot];
    if (mask && mask != m->newest) {
        unlink_mask(m, mask);
        link_newest(m, mask);
    }
    return mask;
}

// ---- one walk ----

struct walk {
    const struct lp_trie_part *part;
    uint32_t *bits;
    struct lp_mask *exits; // where to note exits, or NULL
    size_t n_open;         // nodes below them
};

static bool note_exit(struct lp_masks *m, struct walk *w, uint32_t node, uint8_t holes) {
    struct lp_mask *mask = w->exits;
    if (!LP_GROW(mask->exits, mask->exits_capacity, mask->n_exits + 1)) {
        m->dfa->failure = LP_DFA_MEMORY;
        return false;
    }
    mask->exits[mask->n_exits++] = (struct lp_mask_exit){node, holes};
    w->n_open += w->part->nodes[node].skip - node;
    mask->is_too_open = w->n_open > w->part->n_nodes / OPEN_SHARE + OPEN_NODES;
    return !mask->is_too_open;
}

// Marks the tokens of nodes from ... to - 1 that `set`, which stands at the node above them,
// allows. False after a failure, or when exits became too many.
static bool walk(struct lp_masks *m, struct walk *w, uint32_t set, uint32_t from, uint32_t to) {
    const struct lp_trie_node *nodes = w->part->nodes;
    if (from == to) return true;
    m->path[nodes[from].depth - 1] = set;
    for (uint32_t i = from; i < to;) {
        const struct lp_trie_node *node = &nodes[i];
        uint32_t next = lp_dfa_step(m->dfa, m->path[node->depth - 1], node->byte);
        if (next <= LP_SET_DEAD) {
            if (!next) return false;
            i = node->skip;
            continue;
        }
        m->path[node->depth] = next;
        for (uint32_t t = node->first_id; t < node[1].first_id; t++)
            w->bits[w->part->ids[t] / 32] |= (uint32_t)1 << w->part->ids[t] % 32;
        uint8_t holes = w->exits ? m->dfa->sets.sets[next].holes : 0;
        if (holes && !note_exit(m, w, i, holes)) return false;
        i++;
    }
    return true;
}

// ---- canonical counts ----

static uint32_t canonical_count(const struct lp_repetition *r, uint32_t count, uint32_t max_bytes) {
    uint32_t rounds = max_bytes / r->min_len + 2; // that one token may end
    uint32_t min = (uint32_t)r->min, max = (uint32_t)r->max;
    if (count < min) return count + rounds < min ? min - rounds - 1 : count;
    if (r->max < 0 || count + rounds >= max) return count;
    return max - rounds - 1 > min ? max - rounds - 1 : min;
}

static uint32_t canonical_frame(struct lp_masks *m, uint32_t id, uint32_t parent, unsigned part) {
    struct lp_config_sets *c = &m->dfa->sets;
    const struct lp_frame f = c->frames[id];
    uint32_t count = f.count;
    if (f.kind == LP_FRAME_COUNT)
        count = canonical_count(&m->dfa->a->repetitions[f.value], count,
                                m->trie->parts[part].max_depth);
    if (parent == f.parent && count == f.count) return id;
    return lp_config_sets_frame(c, f.kind, f.value, count, parent, f.depth);
}

// Puts the frames from `stack` down to the one above `end` on m->climb. False without memory.
static bool climb_down(struct lp_masks *m, uint32_t stack, uint32_t end) {
    m->n_climb = 0;
    for (; stack != end; stack = m->dfa->sets.frames[stack].parent) {
        if (!LP_GROW(m->climb, m->climb_capacity, m->n_climb + 1)) {
            m->dfa->failure = LP_DFA_MEMORY;
            return false;
        }
        m->climb[m->n_climb++] = stack;
    }
    return true;
}

static uint32_t canonical_stack(struct lp_masks *m, uint32_t stack, unsigned part) {
    struct lp_config_sets *c = &m->dfa->sets;
    uint32_t known = stack;
    while (known && !c->frames[known].canonical[part]) known = c->frames[known].parent;
    if (!climb_down(m, stack, known)) return 0;
    uint32_t canonical = known ? c->frames[known].canonical[part] : 0;
    while (m->n_climb) {
        uint32_t id = m->climb[--m->n_climb];
        canonical = canonical_frame(m, id, canonical, part);
        if (!canonical) {
            m->dfa->failure = LP_DFA_MEMORY;
            return 0;
        }
        c->frames[id].canonical[part] = canonical;
    }
    return canonical;
}

// Makes m->configs a copy of a set's configurations. False without memory.
static bool copy_configs(struct lp_masks *m, uint32_t set) {
    const struct lp_config_set *s = &m->dfa->sets.sets[set];
    if (!LP_GROW(m->configs, m->configs_capacity, s->n)) {
        m->dfa->failure = LP_DFA_MEMORY;
        return false;
    }
    if (s->n) memcpy(m->configs, m->dfa->sets.configs + s->first, s->n * sizeof *m->configs);
    return true;
}

// The set of m->configs, which were made of those of `set`.
static uint32_t changed_set(struct lp_masks *m, uint32_t set) {
    const struct lp_config_set *s = &m->dfa->sets.sets[set];
    uint32_t id = lp_config_sets_set(&m->dfa->sets, m->configs, s->n, s->can_end, 0);
    if (!id) m->dfa->failure = LP_DFA_MEMORY;
    return id;
}

static uint32_t canonical_set(struct lp_masks *m, uint32_t set, unsigned part) {
    uint32_t canonical = m->dfa->sets.sets[set].canonical[part];
    if (canonical || m->dfa->a->n_repetitions == 0) return canonical ? canonical : set;
    if (!copy_configs(m, set)) return 0;
    for (uint32_t i = 0; i < m->dfa->sets.sets[set].n; i++) {
        m->configs[i].stack = canonical_stack(m, m->configs[i].stack, part);
        if (m->dfa->failure) return 0;
    }
    canonical = changed_set(m, set);
    m->dfa->sets.sets[set].canonical[part] = canonical;
    return canonical;
}

// ---- holes ----

struct cut {
    uint32_t set;
    uint32_t stacks[LP_MAX_HOLES]; // what really lies in each hole: a RETURN frame is on top
    unsigned n_holes;
};

// The frame at which a stack is cut, 0 if it has no more than `level` rules.
static uint32_t find_cut(const struct lp_config_sets *c, uint32_t stack, unsigned level) {
    for (; stack; stack = c->frames[stack].parent)
        if (c->frames[stack].kind == LP_FRAME_RETURN && level-- == 0) return stack;
    return 0;
}

// Replaces what lies from `below` down. 0 after a failure.
static uint32_t cut_stack(struct lp_masks *m, uint32_t stack, uint32_t below, uint32_t hole) {
    struct lp_config_sets *c = &m->dfa->sets;
    uint32_t cut = lp_config_sets_frame(c, LP_FRAME_HOLE, hole, 0, 0, CUT_DEPTH);
    if (!climb_down(m, stack, below)) return 0;
    while (m->n_climb && cut) {
        const struct lp_frame f = c->frames[m->climb[--m->n_climb]];
        cut = lp_config_sets_frame(c, f.kind, f.value, f.count, cut, 0);
    }
    if (!cut) m->dfa->failure = LP_DFA_MEMORY;
    return cut;
}

// False after a failure. Without holes the set is as it was: there is nothing to cut, or too many
// different stacks.
static bool cut_set(struct lp_masks *m, struct cut *cut, uint32_t set, unsigned level) {
    const struct lp_config_sets *c = &m->dfa->sets;
    *cut = (struct cut){.set = set};
    if (!copy_configs(m, set)) return false;
    for (uint32_t i = 0; i < c->sets[set].n; i++) {
        struct lp_config *config = &m->configs[i];
        uint32_t below = find_cut(c, config->stack, level);
        if (!below) continue;
        unsigned hole = 0;
        while (hole < cut->n_holes && cut->stacks[hole] != below) hole++;
        if (hole == LP_MAX_HOLES || c->frames[config->stack].depth > CUT_DEPTH) {
            cut->n_holes = 0;
            return true;
        }
        if (hole == cut->n_holes) cut->stacks[cut->n_holes++] = below;
        if (!(config->stack = cut_stack(m, config->stack, below, hole))) return false;
    }
    if (cut->n_holes) cut->set = changed_set(m, set);
    return cut->set != 0;
}

static const struct lp_mask *local_mask(struct lp_masks *m, uint32_t set, unsigned part) {
    const struct lp_mask *found = find(m, set, LP_MASK_LOCAL + part);
    if (found) return found;
    struct lp_mask *mask = new_mask(m, true);
    if (!mask) return NULL;
    struct walk w = {.part = &m->trie->parts[part], .bits = mask->bits, .exits = mask};
    if (walk(m, &w, set, 0, w.part->n_nodes)) return keep(m, set, LP_MASK_LOCAL + part, mask);
    bool is_too_open = mask->is_too_open;
    lp_mask_put(mask);
    if (!is_too_open || !(mask = new_mask(m, false))) return NULL;
    mask->is_too_open = true; // remembered, so that it is not tried again
    return keep(m, set, LP_MASK_LOCAL + part, mask);
}

static uint32_t behind_holes(struct lp_masks *m, const struct cut *cut, uint8_t holes,
                             unsigned part) {
    uint32_t stacks[LP_MAX_HOLES];
    size_t n = 0;
    for (unsigned i = 0; i < cut->n_holes; i++)
        if (holes >> i & 1) stacks[n++] = cut->stacks[i];
    uint32_t set = lp_dfa_return(m->dfa, stacks, n);
    return set ? canonical_set(m, set, part) : 0;
}

static bool follow_exits(struct lp_masks *m, const struct cut *cut, const struct lp_mask *local,
                         struct walk *w, unsigned part) {
    uint32_t behind[1 << LP_MAX_HOLES] = {0}; // sets, by which holes were reached
    for (size_t i = 0; i < local->n_exits; i++) {
        struct lp_mask_exit exit = local->exits[i];
        uint32_t first = exit.node + 1, end = w->part->nodes[exit.node].skip;
        if (first == end) continue;
        uint32_t *set = &behind[exit.holes];
        if (!*set && !(*set = behind_holes(m, cut, exit.holes, part))) return false;
        if (!walk(m, w, *set, first, end)) return false;
    }
    return true;
}

// ---- masks ----

static void mark_control_tokens(struct lp_masks *m, uint32_t set, uint32_t *bits) {
    const struct lp_config_set *s = &m->dfa->sets.sets[set];
    for (uint32_t i = 0; i < s->n; i++) {
        const struct lp_state *state = &m->dfa->a->states[m->dfa->sets.configs[s->first + i].state];
        if (state->kind == LP_STATE_TOKEN) bits[state->a / 32] |= (uint32_t)1 << state->a % 32;
    }
}

static bool fill_mask(struct lp_masks *m, uint32_t set, unsigned part, uint32_t *bits) {
    struct walk w = {.part = &m->trie->parts[part], .bits = bits};
    mark_control_tokens(m, set, bits);
    for (unsigned level = 0; level < N_LEVELS && m->max_need <= CUT_NEED; level++) {
        struct cut cut;
        if (!cut_set(m, &cut, set, level)) return false;
        if (cut.n_holes == 0) continue;
        const struct lp_mask *local = local_mask(m, cut.set, part);
        if (!local) return false;
        if (local->is_too_open) continue;
        for (size_t i = 0; i < m->n_words; i++) bits[i] |= local->bits[i];
        return follow_exits(m, &cut, local, &w, part);
    }
    return walk(m, &w, set, 0, w.part->n_nodes);
}

static const struct lp_mask *full_mask(struct lp_masks *m, uint32_t set, unsigned part) {
    const struct lp_mask *found = find(m, set, LP_MASK_FULL + part);
    if (found) return found;
    struct lp_mask *mask = new_mask(m, true);
    if (!mask) return NULL;
    if (fill_mask(m, set, part, mask->bits)) return keep(m, set, LP_MASK_FULL + part, mask);
    lp_mask_put(mask);
    return NULL;
}

static bool add_full_mask(struct lp_masks *m, uint32_t set, unsigned part, uint32_t *bits) {
    uint32_t canonical = canonical_set(m, set, part);
    const struct lp_mask *full = canonical ? full_mask(m, canonical, part) : NULL;
    for (size_t i = 0; i < m->n_words && full; i++) bits[i] |= full->bits[i];
    return full != NULL;
}

struct lp_mask *lp_masks_take(struct lp_masks *m, uint32_t set) {
    struct lp_mask *mask = find(m, set, LP_MASK_ALL);
    if (!mask) {
        if (!(mask = new_mask(m, true))) return NULL;
        bool ok = true;
        for (unsigned part = 0; part < LP_SET_LENGTHS && ok; part++)
            if (m->trie->parts[part].n_nodes || part == 0)
                ok = add_full_mask(m, set, part, mask->bits);
        if (!ok) {
            lp_mask_put(mask);
            return NULL;
        }
        keep(m, set, LP_MASK_ALL, mask);
    }
    mask->n_references++;
    return mask;
}

// ---- all of it ----

bool lp_masks_init(struct lp_masks *m, struct lp_dfa *dfa, const struct lp_token_trie *trie) {
    uint32_t longest = 0;
    *m = (struct lp_masks){.dfa = dfa, .trie = trie, .n_words = ((size_t)trie->n_vocab + 31) / 32};
    for (int i = 0; i < LP_SET_LENGTHS; i++)
        if (trie->parts[i].max_depth > longest) longest = trie->parts[i].max_depth;
    for (size_t i = 0; i < dfa->a->n_states; i++)
        if (dfa->a->states[i].kind != LP_STATE_DEAD && dfa->a->states[i].need > m->max_need)
            m->max_need = dfa->a->states[i].need;
    m->path = lp_alloc(longest + 1, sizeof *m->path);
    return m->path != NULL;
}

void lp_masks_release(struct lp_masks *m) {
    if (m->dfa) lp_masks_clear(m);
    lp_free(m->path);
    lp_free(m->climb);
    lp_free(m->configs);
}
