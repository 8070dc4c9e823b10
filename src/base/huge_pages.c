#include "base/huge_pages.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/topology.h"

// n_bytes up to whole huge pages, in *padded; false on overflow.
static bool pad(size_t n_bytes, size_t *padded) {
    if (!lp_add_size(n_bytes, LP_HUGE_PAGE_BYTES - 1, padded)) return false;
    *padded &= ~(LP_HUGE_PAGE_BYTES - 1);
    return true;
}

// A refusal leaves ordinary pages, which are right too.
static void ask(void *block, size_t n_huge_bytes) {
    if (n_huge_bytes) (void)madvise(block, n_huge_bytes, MADV_HUGEPAGE);
}

void *lp_huge_alloc(size_t n, size_t size, bool huge) {
    size_t bytes;
    if (!lp_mul_size(n, size, &bytes)) return NULL;
    if (bytes < LP_HUGE_MIN_BYTES) return lp_alloc_aligned(bytes, 1);
    if (!pad(bytes, &bytes)) return NULL;
    void *block = lp_alloc_at(bytes, LP_HUGE_PAGE_BYTES);
    if (block && huge) ask(block, bytes);
    if (block) lp_topology_interleave(block, bytes);
    return block;
}

// One huge page more than is needed is mapped and what lies outside given back.
void *lp_huge_map(size_t n_bytes, bool huge) {
    size_t bytes, mapped;
    if (!n_bytes || !pad(n_bytes, &bytes) || !lp_add_size(bytes, LP_HUGE_PAGE_BYTES, &mapped))
        return NULL;
    char *at = mmap(NULL, mapped, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return NULL;
    size_t before = -(uintptr_t)at & (LP_HUGE_PAGE_BYTES - 1);
    if (before) munmap(at, before);
    if (mapped - before > bytes) munmap(at + before + bytes, mapped - before - bytes);
    uint64_t ready = huge ? lp_huge_ready_bytes("/proc/buddyinfo") : 0;
    ask(at + before, ready < bytes ? (size_t)ready : bytes);
    lp_topology_interleave(at + before, bytes);
    return at + before;
}

void lp_huge_unmap(void *block, size_t n_bytes) {
    size_t bytes;
    if (block && pad(n_bytes, &bytes)) munmap(block, bytes);
}

// "Node 0, zone   Normal   4381   1093 ...": a column per order from 0 on.
uint64_t lp_huge_ready_bytes(const char *path) {
    enum { HUGE_ORDER = 9 }; // 512 pages
    char line[512], zone[32];
    uint64_t n = 0;
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) {
        int at = 0, used;
        unsigned node, count;
        if (sscanf(line, "Node %u, zone %31s%n", &node, zone, &at) != 2) continue;
        for (int order = 0; sscanf(line + at, "%u%n", &count, &used) == 1; order++, at += used)
            if (order >= HUGE_ORDER) n += (uint64_t)count << (order - HUGE_ORDER);
    }
    if (f) fclose(f);
    return n * LP_HUGE_PAGE_BYTES;
}
