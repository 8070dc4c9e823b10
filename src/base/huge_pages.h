// Large blocks of memory on huge pages. A walk over 4 KiB pages in no order, as attention over a
// selection of keys makes it, spends much of its time on looking addresses up; pages of 2 MiB need
// 512 times fewer entries. They are asked for (transparent huge pages, madvise), not reserved: where
// the system has none, the block lies on ordinary pages.
#ifndef LP_BASE_HUGE_PAGES_H
#define LP_BASE_HUGE_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LP_HUGE_PAGE_BYTES ((size_t)2 << 20)
#define LP_HUGE_MIN_BYTES ((size_t)4 << 20) // smaller blocks lie on ordinary pages

// n * size bytes, not zeroed, at a 64-byte boundary; with `huge` and LP_HUGE_MIN_BYTES or more on
// huge pages, at the beginning of one. NULL when out of memory. Free with lp_free.
void *lp_huge_alloc(size_t n, size_t size, bool huge);

// Zeroed memory straight from the system and not counted as an allocation, for whole files; at the
// beginning of a huge page. Huge pages are asked for only as far as they lie ready: to have others
// made takes longer than the disk takes for what goes into them (docs/performance.md: 4.6 ms each in
// a virtual machine). NULL when the system gives none. Give back with lp_huge_unmap and the same
// size.
void *lp_huge_map(size_t n_bytes, bool huge);
void lp_huge_unmap(void *block, size_t n_bytes); // NULL is allowed

// Bytes of free huge pages that a file in the form of /proc/buddyinfo tells: for each zone the number
// of free blocks of 1, 2, 4, ... pages of 4 KiB. 0: none, or not known.
uint64_t lp_huge_ready_bytes(const char *path);

#endif
