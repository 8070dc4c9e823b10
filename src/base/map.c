// Open addressing with linear probing, at most two thirds full.
#include "base/map.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/random.h>

#include "base/alloc.h"
#include "base/checked.h"

struct lp_map_slot {
    struct lp_str key; // data NULL = empty
    uint64_t hash;
    uint32_t value;
};

static uint64_t seed(void) {
    static _Atomic uint64_t value;
    uint64_t v = atomic_load_explicit(&value, memory_order_relaxed);
    if (v) return v;
    if (getrandom(&v, sizeof v, GRND_NONBLOCK) != sizeof v)
        v = (uint64_t)getpid() * 0x9e3779b97f4a7c15u;
    v |= 1;
    uint64_t expected = 0;
    if (!atomic_compare_exchange_strong(&value, &expected, v)) return expected;
    return v;
}

static uint64_t hash_bytes(struct lp_str key) {
    uint64_t h = seed() ^ (key.len * 0x9e3779b97f4a7c15u);
    size_t i = 0;
    for (; i + 8 <= key.len; i += 8) {
        uint64_t w;
        memcpy(&w, key.data + i, 8);
        __uint128_t m = (__uint128_t)(h ^ w) * 0xd6e8feb86659fd93u;
        h = (uint64_t)m ^ (uint64_t)(m >> 64);
    }
    uint64_t w = 0;
    if (key.len > i) memcpy(&w, key.data + i, key.len - i);
    __uint128_t m = (__uint128_t)(h ^ w ^ 0xa0761d6478bd642fu) * 0xe7037ed1a0b428dbu;
    return (uint64_t)m ^ (uint64_t)(m >> 64);
}

static struct lp_map_slot *find(const struct lp_map *map, struct lp_str key, uint64_t hash) {
    size_t mask = map->n_slots - 1;
    for (size_t i = hash & mask;; i = (i + 1) & mask) {
        struct lp_map_slot *slot = &map->slots[i];
        if (!slot->key.data || (slot->hash == hash && lp_str_equal(slot->key, key))) return slot;
    }
}

bool lp_map_reserve(struct lp_map *map, size_t n) {
    size_t need, n_slots = 16;
    if (!lp_mul_size(n, 3, &need)) return false;
    need = need / 2 + 1;
    while (n_slots < need)
        if (!lp_mul_size(n_slots, 2, &n_slots)) return false;
    if (n_slots <= map->n_slots) return true;
    struct lp_map bigger = {.slots = lp_alloc(n_slots, sizeof *bigger.slots), .n_slots = n_slots};
    if (!bigger.slots) return false;
    for (size_t i = 0; i < map->n_slots; i++)
        if (map->slots[i].key.data)
            *find(&bigger, map->slots[i].key, map->slots[i].hash) = map->slots[i];
    bigger.n_used = map->n_used;
    lp_free(map->slots);
    *map = bigger;
    return true;
}

bool lp_map_add(struct lp_map *map, struct lp_str key, uint32_t value, uint32_t *old) {
    if (!key.data) key.data = "";
    if (!lp_map_reserve(map, map->n_used + 1)) return false;
    uint64_t hash = hash_bytes(key);
    struct lp_map_slot *slot = find(map, key, hash);
    if (old) *old = slot->key.data ? slot->value : LP_MAP_NONE;
    if (slot->key.data) return true;
    *slot = (struct lp_map_slot){key, hash, value};
    map->n_used++;
    return true;
}

uint32_t lp_map_get(const struct lp_map *map, struct lp_str key) {
    if (!map->n_slots) return LP_MAP_NONE;
    if (!key.data) key.data = "";
    const struct lp_map_slot *slot = find(map, key, hash_bytes(key));
    return slot->key.data ? slot->value : LP_MAP_NONE;
}

void lp_map_release(struct lp_map *map) {
    lp_free(map->slots);
    *map = (struct lp_map){0};
}
