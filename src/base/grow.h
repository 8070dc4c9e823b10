// Room for one more element of an array that grows by doubling.
#ifndef LP_BASE_GROW_H
#define LP_BASE_GROW_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/alloc.h"

// Makes *array (of elements of `size` bytes, from lp_realloc or NULL) hold at least `need` of them.
// New elements are not zeroed. False without memory; the array then stays as it was.
#define LP_GROW(array, capacity, need)                                                             \
    ((size_t)(need) <= (size_t)(capacity) ||                                                       \
     lp_grow((void **)&(array), &(capacity), (need), sizeof *(array)))

static inline bool lp_grow(void **array, size_t *capacity, size_t need, size_t size) {
    size_t n = *capacity ? *capacity : 16;
    while (n < need) n *= 2;
    void *grown = lp_realloc(*array, n, size);
    if (!grown) return false;
    *array = grown;
    *capacity = n;
    return true;
}

#endif
