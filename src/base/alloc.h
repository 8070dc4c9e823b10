// Memory: checked, counted allocation. All of limpid allocates through these, so that a test can
// make the nth allocation fail (lp_alloc_fail_after) and look for crashes and leaks.
#ifndef LP_BASE_ALLOC_H
#define LP_BASE_ALLOC_H

#include <stddef.h>

// n * size bytes, zeroed; NULL when out of memory or when n * size overflows. n == 0 gives a
// pointer that may be freed. Free with lp_free.
void *lp_alloc(size_t n, size_t size);

// As realloc for an array from lp_alloc: new bytes are not zeroed; on failure the old block stays.
void *lp_realloc(void *old, size_t n, size_t size);

// n * size bytes at a 64-byte boundary, not zeroed. Free with lp_free.
void *lp_alloc_aligned(size_t n, size_t size);
// n_bytes at a multiple of `alignment`, a power of two; not zeroed. Free with lp_free.
void *lp_alloc_at(size_t n_bytes, size_t alignment);

void lp_free(void *block); // NULL is allowed

char *lp_strdup(const char *text);
char *lp_strndup(const char *text, size_t n_bytes); // copies n_bytes, terminates

// Test hook: the nth allocation from now (1 = the next) and all later ones fail; 0 turns it off.
// Not for use with several threads.
void lp_alloc_fail_after(size_t nth);

// A bump arena: scratch of one step or one parse, released at once.
struct lp_arena {
    struct lp_arena_block *blocks;
    size_t block_bytes; // size of the next block; 0 = 64 KiB
    size_t used_bytes;  // handed out so far
    size_t max_bytes;   // 0 = unlimited; past it lp_arena_alloc gives NULL
};

void *lp_arena_alloc(struct lp_arena *arena, size_t n, size_t size); // zeroed, 16-byte aligned
char *lp_arena_strndup(struct lp_arena *arena, const char *text, size_t n_bytes);
void lp_arena_release(struct lp_arena *arena); // frees all blocks; the arena can be used again

#endif
