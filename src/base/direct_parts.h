// Between the files of a direct read queue: direct_read.c keeps the order of the reads, an engine
// (direct_ring.c, direct_pool.c) brings parts of files into memory.
#ifndef LP_BASE_DIRECT_PARTS_H
#define LP_BASE_DIRECT_PARTS_H

#include "base/direct_read.h"

struct lp_direct_list { // first in, first out, by lp_direct_read.next
    struct lp_direct_read *first, *last;
};

struct lp_direct_queue {
    const struct lp_direct_engine *engine;
    void *state; // the engine's
    int depth, n_flying;
    size_t n_pending;
    struct lp_direct_list waiting, finished;
};

// One pread that is to be made: the next part of a read.
struct lp_direct_part {
    int fd;
    void *to;
    size_t n_bytes;
    uint64_t offset;
};

// Called by the thread that uses the queue.
struct lp_direct_engine {
    const char *name;
    lp_status (*start)(struct lp_direct_queue *queue, struct lp_err *err); // sets queue->state
    void (*stop)(struct lp_direct_queue *queue);                           // nothing is flying
    // Begins the next part of the read (lp_direct_next_part); at most depth are flying.
    void (*launch)(struct lp_direct_queue *queue, struct lp_direct_read *read);
    // Calls lp_direct_landed for each part that has landed; with `wait` for at least one. The errno
    // of a failure of the engine itself, or 0.
    int (*collect)(struct lp_direct_queue *queue, bool wait);
};

extern const struct lp_direct_engine lp_direct_ring, lp_direct_pool;

void lp_direct_list_add(struct lp_direct_list *list, struct lp_direct_read *read);
struct lp_direct_read *lp_direct_list_take(struct lp_direct_list *list); // NULL: it is empty

struct lp_direct_part lp_direct_next_part(const struct lp_direct_read *read);
// `result`: what pread gave for the part, or minus errno. Launches what remains of the read.
void lp_direct_landed(struct lp_direct_queue *queue, struct lp_direct_read *read, int64_t result);

#endif
