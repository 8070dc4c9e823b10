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

// Bytes of memory that it takes: from the first tensor of each part to the last.
// Errors: MEMORY.
lp_status lp_gguf_prefetch_bytes(const struct lp_gguf *gguf, uint64_t *bytes, struct lp_err *err);

#endif
