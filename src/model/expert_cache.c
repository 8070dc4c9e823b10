#include "model/expert_cache.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "model/expert_profile.h"
#include "model/expert_slots.h"
#include "model/weight_list.h"

// Guesses are read for at most this part of the slots, so that they do not drive each other out, and
// of those from a router for at most this part, the surest first. They are to fill the time in which
// the disk would be idle; what is begun beyond that is paid for by the reads that are needed. (Decode
// of a 12 GB model at 40 %, a single run of 40 tokens: 8.4 % more bytes than without guesses. Two such
// runs of an older rule, an early and a late one: 20 % and 9 %.)
#define GUESS_SLOTS 4
#define GUESS_READS 4
// A guess is worth its read where it comes true at least so often; the mean is over some 100 guesses.
#define GUESS_PRECISION 0.5
#define GUESS_MEMORY 0.99

struct source { // what an operation of one layer sees
    struct lp_expert_cache *cache;
    int32_t layer;
    struct lp_expert_source source;
};

struct use {        // of a slot
    int32_t item;   // -1: none
    bool pinned;    // by the rows that run
    bool guessed;   // came as a guess, and no step has used it yet
    bool dropped;   // reads of it were let go while it was loading
    uint64_t guard; // number of the guess that named it last
};

struct lp_expert_cache {
    struct lp_expert_layout layout;
    struct lp_expert_slots *slots;
    struct lp_expert_policy policy;
    int32_t n_slots, n_items; // n_items: n_layers * n_experts, whether a layer has experts or not
    struct use *uses;         // [n_slots]
    int32_t *slot_of;         // [n_items]; -1: absent
    const uint8_t **places;   // [n_items][LP_EXPERT_MAX_PARTS] as the weights' mats: see mats_of
    const uint8_t **absent;   // the same: where the file is mapped
    struct source *sources;   // [n_layers]
    int32_t last_layer;       // of begin: a lower one begins a new pass of the model
    int64_t n_rows_left;      // of the last begin: rows that its experts did not fit
    int32_t *rows;            // [n_experts] rows of this begin that chose the expert
    int32_t *chosen;          // [n_experts] the experts with rows
    int32_t n_chosen;
    int32_t *order; // [n_items] for sorting
    // The last guess: its layer, and which experts it named.
    int32_t guess_layer;
    uint64_t guess_number;
    uint64_t *guess_of;      // [n_experts] number of the guess that named the expert last
    int32_t *loads, n_loads; // [n_slots] slots that it loads
    bool no_guesses, count_guess;
    double precision;
    char *profile;
    uint64_t identity;
    struct lp_expert_stats stats;
};

// ---- places

// The places of one part of a layer's experts: [n_experts].
static const uint8_t **mats_of(const struct lp_expert_cache *c, const uint8_t **places,
                               int32_t layer, int part) {
    return places +
           ((size_t)layer * LP_EXPERT_MAX_PARTS + (size_t)part) * (size_t)c->layout.n_experts;
}

static void put_place(struct lp_expert_cache *c, int32_t item, int32_t slot) {
    int32_t layer = item / c->layout.n_experts, expert = item % c->layout.n_experts;
    for (int p = 0; p < c->layout.layers[layer].n_parts; p++)
        mats_of(c, c->places, layer, p)[expert] = slot < 0
                                                      ? mats_of(c, c->absent, layer, p)[expert]
                                                      : lp_expert_slots_place(c->slots, slot, p);
}

static void empty_slot(struct lp_expert_cache *c, int32_t slot) {
    if (c->uses[slot].item < 0) return;
    c->slot_of[c->uses[slot].item] = -1;
    put_place(c, c->uses[slot].item, -1);
    c->uses[slot].item = -1;
}

static void fill_slot(struct lp_expert_cache *c, int32_t slot, int32_t item, bool ahead) {
    empty_slot(c, slot);
    c->uses[slot] = (struct use){
        .item = item, .pinned = !ahead, .guessed = ahead, .guard = ahead ? c->guess_number : 0};
    c->slot_of[item] = slot;
    lp_expert_slots_load(c->slots, slot, item / c->layout.n_experts, item % c->layout.n_experts,
                         ahead);
    put_place(c, item, slot);
}

// ---- which slot is taken

static bool goes_before(const struct lp_expert_cache *c, const struct use *a, const struct use *b) {
    bool guarded_a = a->guard == c->guess_number, guarded_b = b->guard == c->guess_number;
    if (guarded_a != guarded_b) return guarded_b;
    return lp_expert_policy_before(&c->policy, a->item, b->item);
}

// A slot that may be taken now; -1: none. for_guess: what was just guessed may not.
static int32_t find_slot(const struct lp_expert_cache *c, bool for_guess) {
    int32_t best = -1;
    for (int32_t i = 0; i < c->n_slots; i++) {
        const struct use *u = &c->uses[i];
        enum lp_expert_state state = lp_expert_slots_state(c->slots, i);
        if (state == LP_EXPERT_LOADING || u->pinned) continue;
        if (u->item < 0 || state == LP_EXPERT_VOID) return i;
        if (for_guess && u->guard == c->guess_number) continue;
        if (best < 0 || goes_before(c, u, &c->uses[best])) best = i;
    }
    return best;
}

// For a step there is always one: its experts fit, and a guess that still loads ends.
static int32_t wait_for_slot(struct lp_expert_cache *c) {
    for (;;) {
        uint64_t n_ended = lp_expert_slots_get_stats(c->slots).n_ended;
        int32_t slot = find_slot(c, false);
        if (slot >= 0) return slot;
        lp_expert_slots_wait_any(c->slots, n_ended);
    }
}

// ---- a step

static bool is_here(const struct lp_expert_cache *c, int32_t expert) {
    return expert >= c->layout.first_expert && expert < c->layout.first_expert + c->layout.n_here;
}

// Counts the experts of the first rows that fit into the slots together. Returns these rows.
static int64_t choose(struct lp_expert_cache *c, const int32_t *ids, int64_t n_rows) {
    const int32_t n_used = c->layout.n_used;
    int64_t t = 0;
    memset(c->rows, 0, (size_t)c->layout.n_experts * sizeof *c->rows);
    c->n_chosen = 0;
    for (; t < n_rows; t++) {
        const int32_t *row = ids + t * n_used;
        int32_t n_new = 0;
        for (int32_t j = 0; j < n_used; j++) n_new += is_here(c, row[j]) && c->rows[row[j]] == 0;
        if (c->n_chosen + n_new > c->n_slots) break;
        for (int32_t j = 0; j < n_used; j++)
            if (is_here(c, row[j]) && c->rows[row[j]]++ == 0) c->chosen[c->n_chosen++] = row[j];
    }
    return t;
}

static int compare_ids(const void *a, const void *b) {
    return *(const int32_t *)a - *(const int32_t *)b;
}

// Guesses that did not come true, and whose reads have not begun, are let go.
static void drop_guesses(struct lp_expert_cache *c) {
    for (int32_t i = 0; i < c->n_loads; i++) {
        int32_t slot = c->loads[i];
        if (c->uses[slot].pinned || lp_expert_slots_state(c->slots, slot) != LP_EXPERT_LOADING)
            continue;
        lp_expert_slots_drop(c->slots, slot);
        c->uses[slot].dropped = true;
    }
    c->n_loads = 0;
}

static void count_guess(struct lp_expert_cache *c, int32_t layer) {
    if (!c->count_guess || c->guess_layer != layer) return;
    for (int32_t i = 0; i < c->n_chosen; i++)
        if (c->guess_of[c->chosen[i]] == c->guess_number) {
            c->stats.n_right_guesses++;
            c->precision += 1 - GUESS_MEMORY;
        }
    c->count_guess = false;
}

// An expert that has a slot: whether it is of use there.
static bool keep(struct lp_expert_cache *c, int32_t slot) {
    struct use *u = &c->uses[slot];
    u->pinned = true;
    if (u->dropped) lp_expert_slots_wait(c->slots, slot); // it becomes void, or is whole after all
    enum lp_expert_state state = lp_expert_slots_state(c->slots, slot);
    if (state == LP_EXPERT_VOID) return false;
    if (state == LP_EXPERT_LOADING) lp_expert_slots_raise(c->slots, slot);
    *(u->guessed ? &c->stats.n_ahead : &c->stats.n_hits) += 1;
    u->guessed = false;
    return true;
}

int64_t lp_expert_cache_begin(struct lp_expert_cache *c, int32_t layer, const int32_t *ids,
                              int64_t n_rows) {
    int64_t n = choose(c, ids, n_rows);
    const int32_t first = layer * c->layout.n_experts;
    // A layer whose rows do not fit at once comes again for the rest: the same tokens.
    bool continued = layer == c->last_layer && n_rows == c->n_rows_left;
    if (layer <= c->last_layer && !continued) lp_expert_policy_pass(&c->policy, n_rows);
    c->last_layer = layer;
    c->n_rows_left = n_rows - n;
    count_guess(c, layer);
    qsort(c->chosen, (size_t)c->n_chosen, sizeof *c->chosen, compare_ids);
    int32_t n_missing = 0;
    for (int32_t i = 0; i < c->n_chosen; i++) {
        int32_t item = first + c->chosen[i], slot = c->slot_of[item];
        lp_expert_policy_use(&c->policy, item, c->rows[c->chosen[i]]);
        if (slot < 0 || !keep(c, slot)) c->order[n_missing++] = item;
    }
    drop_guesses(c);
    for (int32_t i = 0; i < n_missing; i++) {
        int32_t slot = c->slot_of[c->order[i]];
        fill_slot(c, slot < 0 ? wait_for_slot(c) : slot, c->order[i], false);
    }
    c->stats.n_misses += (uint64_t)n_missing;
    if (layer == c->guess_layer) c->guess_number++; // it has had its time: nothing is guarded now
    return n;
}

void lp_expert_cache_end(struct lp_expert_cache *c) {
    for (int32_t i = 0; i < c->n_slots; i++) c->uses[i].pinned = false;
}

// Operations count experts from the first that is here.
static int32_t slot_of(const struct source *s, int32_t expert) {
    const struct lp_expert_layout *x = &s->cache->layout;
    return s->cache->slot_of[s->layer * x->n_experts + x->first_expert + expert];
}

static bool is_resident(void *user, int32_t expert) {
    const struct source *s = user;
    int32_t slot = slot_of(s, expert);
    return slot < 0 || lp_expert_slots_state(s->cache->slots, slot) != LP_EXPERT_LOADING;
}

static void wait_for(void *user, int32_t expert) {
    const struct source *s = user;
    int32_t slot = slot_of(s, expert);
    if (slot >= 0) lp_expert_slots_wait(s->cache->slots, slot);
}

const struct lp_expert_source *lp_expert_cache_source(struct lp_expert_cache *c, int32_t layer) {
    return &c->sources[layer].source;
}

// ---- guesses

bool lp_expert_cache_guesses(const struct lp_expert_cache *c) {
    return !c->no_guesses;
}

bool lp_expert_cache_is_idle(struct lp_expert_cache *c) {
    return lp_expert_slots_get_stats(c->slots).n_loading == 0;
}

// The experts of a layer that one of n_rows tokens will more likely use than not, most used first,
// into c->chosen. A token uses expert e with p_e = n_used * (its part of the layer's uses of late); of the layer's
// uses those that are here are taken for their part of it.
static int32_t by_use(struct lp_expert_cache *c, int32_t layer, int64_t n_rows) {
    const struct lp_expert_layout *x = &c->layout;
    const int32_t first = layer * x->n_experts, end = x->first_expert + x->n_here;
    const double n_used = (double)x->n_used * x->n_here / x->n_experts;
    int32_t n = 0;
    double sum = 0;
    for (int32_t e = x->first_expert; e < end; e++)
        sum += 1 + lp_expert_policy_count(&c->policy, first + e);
    for (int32_t e = x->first_expert; e < end; e++) {
        double p = n_used * (1 + lp_expert_policy_count(&c->policy, first + e)) / sum;
        if (p < 1 && pow(1 - p, (double)n_rows) > 0.5) continue;
        int32_t at = n++; // insertion: they are few
        for (; at > 0 && lp_expert_policy_before(&c->policy, first + c->chosen[at - 1], first + e);
             at--)
            c->chosen[at] = c->chosen[at - 1];
        c->chosen[at] = e;
    }
    return n;
}

// The different ones of ids [n_rows, n_used], every row's best before every row's second, into
// c->chosen.
static int32_t different(struct lp_expert_cache *c, const int32_t *ids, int64_t n_rows) {
    int32_t n = 0;
    for (int32_t j = 0; j < c->layout.n_used; j++)
        for (int64_t t = 0; t < n_rows; t++) {
            int32_t e = ids[t * c->layout.n_used + j];
            if (!is_here(c, e) || c->guess_of[e] == c->guess_number) continue;
            c->guess_of[e] = c->guess_number;
            c->chosen[n++] = e;
        }
    return n;
}

void lp_expert_cache_guess(struct lp_expert_cache *c, int32_t layer, const int32_t *ids,
                           int64_t n_rows) {
    const int32_t first = layer * c->layout.n_experts;
    c->guess_number++;
    c->guess_layer = layer;
    c->count_guess = ids != NULL;
    int32_t n_chosen = ids ? different(c, ids, n_rows) : by_use(c, layer, n_rows);
    for (int32_t i = 0; i < n_chosen; i++) {
        int32_t slot = c->slot_of[first + c->chosen[i]];
        if (slot >= 0) c->uses[slot].guard = c->guess_number;
    }
    bool trusted = !ids || c->precision >= GUESS_PRECISION;
    if (ids) {
        c->stats.n_guesses += (uint64_t)n_chosen;
        for (int32_t i = 0; i < n_chosen; i++) c->precision *= GUESS_MEMORY;
    }
    int32_t most = c->n_slots / GUESS_SLOTS;
    if (ids && most > n_chosen / GUESS_READS) most = n_chosen / GUESS_READS;
    for (int32_t i = 0; i < n_chosen && trusted && c->n_loads < most; i++) {
        int32_t item = first + c->chosen[i], slot;
        if (c->slot_of[item] >= 0) continue;
        if ((slot = find_slot(c, true)) < 0) return;
        fill_slot(c, slot, item, true);
        c->loads[c->n_loads++] = slot;
    }
}

// ---- failures and figures

bool lp_expert_cache_has_failed(struct lp_expert_cache *c) {
    return lp_expert_slots_has_failed(c->slots);
}

lp_status lp_expert_cache_failure(struct lp_expert_cache *c, struct lp_err *err) {
    return lp_expert_slots_failure(c->slots, err);
}

struct lp_expert_stats lp_expert_cache_get_stats(struct lp_expert_cache *c) {
    struct lp_expert_slots_stats slots = lp_expert_slots_get_stats(c->slots);
    struct lp_expert_stats stats = c->stats;
    stats.n_slots = c->n_slots;
    stats.n_items = (int32_t)c->layout.n_items;
    stats.dense_bytes = c->layout.dense_bytes;
    stats.expert_bytes = c->layout.expert_bytes;
    stats.cache_bytes = slots.bytes;
    stats.n_reads = slots.n_ended;
    stats.read_bytes = slots.read_bytes;
    stats.wait_ns = slots.wait_ns;
    stats.way = slots.way;
    return stats;
}

// ---- the profile

static int before_by_count(const void *a, const void *b, void *user) { // most used first
    const struct lp_expert_cache *c = user;
    int32_t left = *(const int32_t *)a, right = *(const int32_t *)b;
    if (lp_expert_policy_before(&c->policy, left, right)) return 1;
    return lp_expert_policy_before(&c->policy, right, left) ? -1 : 0;
}

// The experts of the profile that fit, in the order in which they lie in the file.
static lp_status fill_slots(struct lp_expert_cache *c, struct lp_err *err) {
    int32_t n = 0, n_fit;
    uint64_t began = lp_clock_ns();
    for (int32_t i = 0; i < c->n_items; i++)
        if (lp_expert_policy_count(&c->policy, i) > 0) c->order[n++] = i;
    qsort_r(c->order, (size_t)n, sizeof *c->order, before_by_count, c);
    n_fit = n < c->n_slots ? n : c->n_slots;
    qsort(c->order, (size_t)n_fit, sizeof *c->order, compare_ids);
    for (int32_t i = 0; i < n_fit; i++) fill_slot(c, i, c->order[i], false);
    for (int32_t i = 0; i < n_fit; i++) lp_expert_slots_wait(c->slots, i);
    lp_expert_cache_end(c);
    double seconds = (double)(lp_clock_ns() - began) * 1e-9;
    double bytes = (double)lp_expert_slots_get_stats(c->slots).read_bytes;
    lp_log(LP_LOG_INFO, "%d experts of the profile %s were read in %.1f s (%.2f GB/s)", n_fit,
           c->profile, seconds, bytes / seconds * 1e-9);
    return lp_expert_cache_failure(c, err);
}

// A profile that cannot be used is no reason not to start.
static lp_status read_profile(struct lp_expert_cache *c, const struct lp_gguf *gguf,
                              struct lp_err *err) {
    struct lp_err why;
    bool missing;
    float *counts = lp_alloc((size_t)c->n_items, sizeof *counts);
    if (!counts) return lp_err_memory(err, (size_t)c->n_items * sizeof *counts, "a profile");
    c->identity = lp_expert_profile_identity(gguf);
    lp_status status = lp_expert_profile_read(c->profile, c->identity, (uint32_t)c->n_items, counts,
                                              &missing, &why);
    if (status && !missing) lp_log(LP_LOG_WARN, "%s", why.text);
    for (int32_t i = 0; i < c->n_items && !status; i++)
        if (c->layout.layers[i / c->layout.n_experts].n_parts &&
            is_here(c, i % c->layout.n_experts))
            lp_expert_policy_set(&c->policy, i, (double)counts[i]);
    lp_free(counts);
    return status ? LP_OK : fill_slots(c, err);
}

static void write_profile(struct lp_expert_cache *c) {
    struct lp_err why;
    float *counts = lp_alloc((size_t)c->n_items, sizeof *counts);
    lp_status status = counts ? LP_OK : lp_err_memory(&why, (size_t)c->n_items * 4, "a profile");
    for (int32_t i = 0; i < c->n_items && !status; i++)
        counts[i] = (float)lp_expert_policy_count(&c->policy, i);
    if (!status)
        status =
            lp_expert_profile_write(c->profile, c->identity, (uint32_t)c->n_items, counts, &why);
    if (status) lp_log(LP_LOG_WARN, "the expert profile is not kept: %s", why.text);
    lp_free(counts);
}

// ---- making

// Pages of a weight come into memory now, and stay there where the system lets them be locked.
static void keep_weight(const struct lp_weight *w, bool *lock) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const size_t n_bytes = lp_weight_span_bytes(w);
    for (int64_t i = 0; i < w->n_mats && n_bytes > 0; i++) {
        const uintptr_t data = (uintptr_t)lp_weight_mat(w, i), begin = data & ~(page - 1);
        const size_t n = data + n_bytes - begin;
        madvise((void *)begin, n, MADV_WILLNEED);
        madvise((void *)begin, n, MADV_POPULATE_READ);
        if (!*lock || mlock((void *)begin, n) == 0) continue;
        lp_log(LP_LOG_INFO, "the parts of the model that every token needs cannot be locked in "
                            "memory (ulimit -l); they are in memory, but may be driven out");
        *lock = false;
    }
}

// What is here of all weights but the routed experts.
static void keep_dense(struct lp_model *m) {
    struct lp_weight *list[LP_WEIGHT_LIST_LAYER], *others[LP_WEIGHT_LIST_OTHERS];
    bool lock = true;
    lp_weight_list_others(m, others);
    for (int i = 0; i < LP_WEIGHT_LIST_OTHERS; i++) keep_weight(others[i], &lock);
    for (int32_t l = 0; l < m->h.n_layers + m->has_mtp; l++) {
        lp_weight_list_layer(&m->layers[l], list);
        for (int i = 0; i < LP_WEIGHT_LIST_LAYER - LP_WEIGHT_LIST_EXPERTS; i++)
            keep_weight(list[i], &lock);
    }
}

// Each rank keeps the counts of its own experts.
static char *profile_path(const char *path, int32_t rank) {
    const size_t room = strlen(path) + sizeof ".rank2147483647";
    char *own = lp_alloc(room, 1);
    if (own && rank > 0)
        snprintf(own, room, "%s.rank%d", path, rank);
    else if (own)
        snprintf(own, room, "%s", path);
    return own;
}

// The places of a layer's experts, and the weights that go by them.
static void place_layer(struct lp_expert_cache *c, struct lp_model *model, int32_t l) {
    const struct lp_expert_layer *x = &c->layout.layers[l];
    struct lp_ffn *w = &model->layers[l].experts;
    struct lp_weight *weights[] = {&w->gate, &w->up, &w->down};
    const int32_t first = c->layout.first_expert;
    if (!x->n_parts) return;
    for (int p = 0; p < x->n_parts; p++)
        for (int32_t e = first; e < first + c->layout.n_here; e++)
            mats_of(c, c->places, l, p)[e] = mats_of(c, c->absent, l, p)[e] =
                lp_gguf_tensor_mat(x->parts[p].stack, (uint64_t)e);
    for (int i = 0; i < 3; i++) {
        int part = x->n_parts == 3 ? i : i / 2; // gate and up may be one stack
        const uint8_t *mat = lp_gguf_tensor_mat(x->parts[part].stack, (uint64_t)first);
        weights[i]->mats_offset = (size_t)((const uint8_t *)weights[i]->data - mat);
        weights[i]->mats = mats_of(c, c->places, l, part) + first;
        weights[i]->data = NULL;
    }
}

static lp_status take_arrays(struct lp_expert_cache *c, struct lp_err *err) {
    const struct lp_expert_layout *x = &c->layout;
    size_t n_experts = (size_t)x->n_experts, n_items = (size_t)c->n_items;
    size_t n_slots = (size_t)c->n_slots;
    c->uses = lp_alloc(n_slots, sizeof *c->uses);
    c->loads = lp_alloc(n_slots, sizeof *c->loads);
    c->slot_of = lp_alloc(n_items, sizeof *c->slot_of);
    c->order = lp_alloc(n_items, sizeof *c->order);
    c->places = lp_alloc(n_items * LP_EXPERT_MAX_PARTS, sizeof *c->places);
    c->absent = lp_alloc(n_items * LP_EXPERT_MAX_PARTS, sizeof *c->absent);
    c->sources = lp_alloc((size_t)x->n_layers, sizeof *c->sources);
    c->rows = lp_alloc(n_experts, sizeof *c->rows);
    c->chosen = lp_alloc(n_experts, sizeof *c->chosen);
    c->guess_of = lp_alloc(n_experts, sizeof *c->guess_of);
    if (!c->uses || !c->loads || !c->slot_of || !c->order || !c->places || !c->absent ||
        !c->sources || !c->rows || !c->chosen || !c->guess_of)
        return lp_err_memory(err, n_items * LP_EXPERT_MAX_PARTS * sizeof *c->places,
                             "the directory of experts");
    for (int32_t i = 0; i < c->n_slots; i++) c->uses[i].item = -1;
    for (int32_t i = 0; i < c->n_items; i++) c->slot_of[i] = -1;
    for (int32_t l = 0; l < x->n_layers; l++)
        c->sources[l] = (struct source){c, l, {&c->sources[l], is_resident, wait_for}};
    return LP_OK;
}

static lp_status make(struct lp_expert_cache *c, struct lp_model *model,
                      const struct lp_expert_options *o, struct lp_err *err) {
    c->n_items = c->layout.n_layers * c->layout.n_experts;
    c->no_guesses = o->no_guesses;
    c->precision = 1;
    c->guess_layer = -1;
    lp_status status = lp_expert_policy_init(&c->policy, o->rule, c->n_items, err);
    if (!status) status = take_arrays(c, err);
    if (!status)
        status = lp_expert_slots_new(&c->slots, &c->layout, model->gguf, c->n_slots, o->way, err);
    if (status) return status;
    lp_log(LP_LOG_INFO,
           "%d of %lld experts fit into memory beside %.2f GB that every token needs; the others "
           "are read as they are needed (%s)",
           c->n_slots, (long long)c->layout.n_items, (double)c->layout.dense_bytes * 1e-9,
           lp_expert_slots_get_stats(c->slots).way);
    for (int32_t l = 0; l < c->layout.n_layers; l++) place_layer(c, model, l);
    keep_dense(model);
    if (!o->profile) return LP_OK;
    c->profile = profile_path(o->profile, model->ranks ? lp_comm_rank(model->ranks) : 0);
    return c->profile ? read_profile(c, model->gguf, err)
                      : lp_err_memory(err, strlen(o->profile), "a path");
}

lp_status lp_expert_cache_new(struct lp_expert_cache **out, struct lp_model *model,
                              const struct lp_expert_options *o, struct lp_err *err) {
    *out = NULL;
    if (!model->dev->backend->host_memory)
        return lp_err_set(err, LP_STATUS_UNSUPPORTED,
                          "a memory budget needs a backend that computes in the host's memory");
    struct lp_expert_cache *c = lp_alloc(1, sizeof *c);
    if (!c) return lp_err_memory(err, sizeof *c, "the cache of experts");
    lp_status status =
        lp_expert_layout_make(&c->layout, &model->h, &model->binding, model->gguf, err);
    if (!status) lp_expert_layout_divide(&c->layout, model);
    if (!status) status = lp_expert_layout_slots(&c->layout, o->budget_bytes, &c->n_slots, err);
    bool all_fits = !status && c->n_slots == c->layout.n_items;
    if (!status && !all_fits) status = make(c, model, o, err);
    if (all_fits) lp_log(LP_LOG_INFO, "the memory budget holds all of the model");
    if (status || all_fits)
        lp_expert_cache_free(c);
    else
        *out = c;
    return status;
}

static void log_guesses(const struct lp_expert_cache *c) {
    const struct lp_expert_stats *s = &c->stats;
    if (s->n_guesses)
        lp_log(LP_LOG_INFO, "%llu experts were guessed a layer ahead, %.1f %% of them rightly",
               (unsigned long long)s->n_guesses,
               100 * (double)s->n_right_guesses / (double)s->n_guesses);
}

void lp_expert_cache_free(struct lp_expert_cache *c) {
    if (!c) return;
    if (c->slots) log_guesses(c);
    if (c->profile && c->policy.n_uses) write_profile(c);
    lp_expert_slots_free(c->slots);
    lp_expert_policy_release(&c->policy);
    lp_expert_layout_release(&c->layout);
    lp_free(c->uses);
    lp_free(c->loads);
    lp_free(c->slot_of);
    lp_free(c->order);
    lp_free(c->places);
    lp_free(c->absent);
    lp_free(c->sources);
    lp_free(c->rows);
    lp_free(c->chosen);
    lp_free(c->guess_of);
    lp_free(c->profile);
    lp_free(c);
}
