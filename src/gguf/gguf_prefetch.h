// The tensor data of an open file, or of all parts of a set, read into memory of the process by
// large direct reads, many at once. For a file that the page cache does not hold: mapped, it comes
// in page by page as it is touched, far below the rate of the disk.
#ifndef LP_GGUF_GGUF_PREFETCH_H
#define LP_GGUF_GGUF_PREFETCH_H

#include "gguf/gguf.h"

struct lp_gguf_prefetch_options {
    bool huge_pages;
    uint64_t available_bytes; // of memory; UINT64_MAX: not known, try
};

// Afterwards every tensor's data is in memory (in_memory), and metadata stays where it is mapped.
// Draws progress on standard error. Only for what lp_gguf_open gave; while nobody uses it yet.
// Errors: IO (a failed read, or a file that is shorter than it was), MEMORY (it does not fit; the
// sentence says what is there), LIMIT. After one the file is as it was.
lp_status lp_gguf_prefetch(struct lp_gguf *gguf, const struct lp_gguf_prefetch_options *options,
                           struct lp_err *err);

// The same of some bytes alone, for a process that needs no others: they are marked where the file is mapped, read,
// and then looked up. What is not marked stays mapped.
struct lp_gguf_ahead;
lp_status lp_gguf_ahead_new(struct lp_gguf_ahead **out, struct lp_gguf *gguf, struct lp_err *err);
void lp_gguf_ahead_free(struct lp_gguf_ahead *ahead); // NULL is allowed; what was read is gguf's
// mapped: of one tensor's data. Errors: MEMORY.
lp_status lp_gguf_ahead_mark(struct lp_gguf_ahead *ahead, const void *mapped, uint64_t n_bytes,
                             struct lp_err *err);
// Once. Errors as above.
lp_status lp_gguf_ahead_read(struct lp_gguf_ahead *ahead,
                             const struct lp_gguf_prefetch_options *options, struct lp_err *err);
// Where bytes that were marked, and have been read, are.
const void *lp_gguf_ahead_at(const struct lp_gguf_ahead *ahead, const void *mapped);
// Starts reading mapped bytes into the page cache, as far as the system wants to.
void lp_gguf_will_need(const struct lp_gguf *gguf, const void *mapped, size_t n_bytes);

// Bytes of memory that lp_gguf_prefetch takes: from the first tensor of each part to the last.
// Errors: MEMORY.
lp_status lp_gguf_prefetch_bytes(const struct lp_gguf *gguf, uint64_t *bytes, struct lp_err *err);

#endif
