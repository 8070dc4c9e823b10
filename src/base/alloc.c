#include "base/alloc.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

static size_t fail_in; // 0 = off; 1 = every allocation fails from now on

void lp_alloc_fail_after(size_t nth) {
    fail_in = nth;
}

static bool must_fail(void) {
    if (!fail_in) return false;
    if (fail_in == 1) return true;
    fail_in--;
    return false;
}

void *lp_alloc(size_t n, size_t size) {
    size_t bytes;
    if (must_fail() || !lp_mul_size(n, size, &bytes)) return NULL;
    return calloc(bytes ? bytes : 1, 1);
}

void *lp_realloc(void *old, size_t n, size_t size) {
    size_t bytes;
    if (must_fail() || !lp_mul_size(n, size, &bytes)) return NULL;
    return realloc(old, bytes ? bytes : 1);
}

void *lp_alloc_at(size_t n_bytes, size_t alignment) {
    size_t padded;
    if (must_fail() || !lp_add_size(n_bytes, alignment - 1, &padded)) return NULL;
    padded &= ~(alignment - 1);
    return aligned_alloc(alignment, padded ? padded : alignment);
}

void *lp_alloc_aligned(size_t n, size_t size) {
    size_t bytes;
    return lp_mul_size(n, size, &bytes) ? lp_alloc_at(bytes, 64) : NULL;
}

void lp_free(void *block) {
    free(block);
}

char *lp_strndup(const char *text, size_t n_bytes) {
    size_t bytes;
    if (!lp_add_size(n_bytes, 1, &bytes)) return NULL;
    char *copy = lp_alloc(bytes, 1);
    if (copy) memcpy(copy, text, n_bytes);
    return copy;
}

char *lp_strdup(const char *text) {
    return lp_strndup(text, strlen(text));
}

struct lp_arena_block {
    struct lp_arena_block *next;
    size_t used, size;
    _Alignas(16) unsigned char data[];
};

void *lp_arena_alloc(struct lp_arena *arena, size_t n, size_t size) {
    size_t bytes;
    if (!lp_mul_size(n, size, &bytes) || !lp_add_size(bytes, 15, &bytes)) return NULL;
    bytes &= ~(size_t)15;
    if (arena->max_bytes && bytes > arena->max_bytes - arena->used_bytes) return NULL;
    struct lp_arena_block *block = arena->blocks;
    if (!block || block->size - block->used < bytes) {
        size_t block_bytes = arena->block_bytes ? arena->block_bytes : 64 * 1024;
        if (block_bytes < bytes) block_bytes = bytes;
        size_t total;
        if (!lp_add_size(block_bytes, sizeof *block, &total)) return NULL;
        block = lp_alloc(total, 1);
        if (!block) return NULL;
        block->size = block_bytes;
        block->next = arena->blocks;
        arena->blocks = block;
    }
    void *result = block->data + block->used;
    block->used += bytes;
    arena->used_bytes += bytes;
    return result;
}

char *lp_arena_strndup(struct lp_arena *arena, const char *text, size_t n_bytes) {
    size_t bytes;
    if (!lp_add_size(n_bytes, 1, &bytes)) return NULL;
    char *copy = lp_arena_alloc(arena, bytes, 1);
    if (copy) memcpy(copy, text, n_bytes);
    return copy;
}

void lp_arena_release(struct lp_arena *arena) {
    while (arena->blocks) {
        struct lp_arena_block *next = arena->blocks->next;
        lp_free(arena->blocks);
        arena->blocks = next;
    }
    arena->used_bytes = 0;
}
