// Reads of large files past the page cache, several at once: at the rate of the disk, without
// driving other files out of memory. Through io_uring where the system lets this process have it
// (kernel 5.6 and later, not every container), else through a pool of threads that call pread.
// Both have this one interface and give the same bytes.
//
// A queue, its reads and the order of calls:
//
//     lp_direct_open(&file, path)      lp_direct_queue_new(&queue, depth, ...)
//     read[i] = {.file = &file, .offset = ..., .n_bytes = ..., .buffer = ..., .owner = ...}
//     lp_direct_submit(queue, &read[i])                   at once, any number of them
//     lp_direct_wait(queue, &done) or lp_direct_poll      one finished read a call, in any order
//     lp_direct_queue_free(queue)      lp_direct_close(&file)
//
// Threads: a queue is used by one thread at a time (another may take it over, in order, as after a
// lock); a file by any number of queues.
#ifndef LP_BASE_DIRECT_READ_H
#define LP_BASE_DIRECT_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/checked.h"
#include "base/status.h"

// What offsets, addresses and lengths of direct reads are multiples of: a page, which is as much as
// any disk of today asks for.
#define LP_DIRECT_ALIGN 4096

struct lp_direct_file {
    int fd;      // -1: not open
    bool direct; // false: the file system knows no direct reads (tmpfs); then by the page cache
    uint64_t n_bytes; // when it was opened
    char *path;       // of the caller's words, for errors
};

// Opens a regular file for reading. Errors: IO, naming the path; MEMORY. Close with
// lp_direct_close, after the queues that read it have given back their reads or are freed.
lp_status lp_direct_open(struct lp_direct_file *file, const char *path, struct lp_err *err);
// The same through the page cache: for bytes that are likely there already.
lp_status lp_direct_open_cached(struct lp_direct_file *file, const char *path, struct lp_err *err);
void lp_direct_close(struct lp_direct_file *file); // one that is not open (fd -1) is allowed

// One read, in the caller's memory: the queue holds its address from submit until wait or poll
// gives it back, and nobody may touch it or its buffer meanwhile. The caller sets the first five.
//
//     offset, a multiple of LP_DIRECT_ALIGN          offset + n_bytes
//       |<--------------- n_bytes ------------------------->|.......|
//       buffer[0]                                    buffer[lp_direct_room(n_bytes)]
//
// Bytes of the buffer past n_bytes, up to its room, may be overwritten. For bytes at any place of a
// file: lp_direct_place.
struct lp_direct_read {
    const struct lp_direct_file *file;
    uint64_t offset; // multiple of LP_DIRECT_ALIGN
    size_t n_bytes;  // at least 1
    void *buffer;    // address: multiple of LP_DIRECT_ALIGN; room: lp_direct_room(n_bytes)
    void *owner;     // the caller's; not touched

    // The queue's.
    size_t done; // bytes that are there
    int error;   // errno of its failure, 0 for none, LP_DIRECT_ENDED
    int64_t result;
    struct lp_direct_read *next;
};

#define LP_DIRECT_ENDED (-1) // the file ends before offset + n_bytes

// Room that a buffer for n_bytes needs. n_bytes is one that lp_direct_place or the caller bounded.
static inline size_t lp_direct_room(size_t n_bytes) {
    return (n_bytes + (LP_DIRECT_ALIGN - 1)) & ~(size_t)(LP_DIRECT_ALIGN - 1);
}

// Bytes begin .. begin + n_bytes of a file as a read: sets read->offset and read->n_bytes to the
// smallest aligned window. Returns where in the buffer byte `begin` will lie. The caller has checked
// that begin + n_bytes does not overflow.
static inline size_t lp_direct_place(struct lp_direct_read *read, uint64_t begin, size_t n_bytes) {
    size_t before = (size_t)(begin & (LP_DIRECT_ALIGN - 1));
    read->offset = begin - before;
    read->n_bytes = n_bytes + before;
    return before;
}

enum lp_direct_way { LP_DIRECT_AUTO, LP_DIRECT_RING, LP_DIRECT_POOL };
struct lp_direct_queue;

// depth: reads that are on their way at once, 1 to 1024; more that are submitted wait for their
// turn in order. way: AUTO; the others force one (RING is UNSUPPORTED where the system refuses it).
// Errors: INVALID, MEMORY, UNSUPPORTED, LIMIT (no thread could be started).
lp_status lp_direct_queue_new(struct lp_direct_queue **out, int depth, enum lp_direct_way way,
                              struct lp_err *err);
// Waits for the reads that are on their way and forgets those that wait. NULL is allowed.
void lp_direct_queue_free(struct lp_direct_queue *queue);
const char *lp_direct_queue_way(const struct lp_direct_queue *queue); // "io_uring" or "pread"

// Puts one read in. Never waits for the disk; never fails: what is wrong with a read comes out of
// wait or poll with it.
void lp_direct_submit(struct lp_direct_queue *queue, struct lp_direct_read *read);
// Reads that are in: submitted and not given back.
size_t lp_direct_n_pending(const struct lp_direct_queue *queue);

// Gives one finished read back, waiting for one if need be; *out NULL if none is in. The status is
// that of the read (also its `error`): IO, in a sentence that names path and byte, both for a
// failure of the disk and for a file that is shorter than it was. A failure with *out NULL is one of
// the queue itself; free it.
lp_status lp_direct_wait(struct lp_direct_queue *queue, struct lp_direct_read **out,
                         struct lp_err *err);
// The same, but *out is NULL where none has finished yet.
lp_status lp_direct_poll(struct lp_direct_queue *queue, struct lp_direct_read **out,
                         struct lp_err *err);

#endif
