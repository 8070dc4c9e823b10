// Name -> index: a hash map for tensors, keys, tokens. The map keeps views of the keys; the caller
// keeps their bytes alive and in place. Keys may hold any bytes. The hash is seeded per process so
// that a file cannot be built to make every lookup slow.
#ifndef LP_BASE_MAP_H
#define LP_BASE_MAP_H

#include <stdint.h>

#include "base/bytes.h"

struct lp_map {
    struct lp_map_slot *slots;
    size_t n_slots, n_used;
};

// Makes room for n keys. False when out of memory. Zero-initialise the map first.
bool lp_map_reserve(struct lp_map *map, size_t n);

// Adds key -> value. *old (may be NULL) gets the value that was there, or LP_MAP_NONE. An existing
// key keeps its old value. False when out of memory.
bool lp_map_add(struct lp_map *map, struct lp_str key, uint32_t value, uint32_t *old);

#define LP_MAP_NONE UINT32_MAX
uint32_t lp_map_get(const struct lp_map *map, struct lp_str key); // or LP_MAP_NONE
void lp_map_release(struct lp_map *map);

#endif
