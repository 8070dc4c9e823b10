// Reads of experts from their files, in the background: a thread with two lines of waiting pieces.
//
//     urgent   what a step waits for, in order
//     ahead    guesses at what comes next: begun only while nothing urgent waits, and few at a time,
//              so that they never stand long in the way of what is urgent
//
// The bytes come by direct reads (base/direct_read.h), past the page cache: through io_uring, or by
// a pool of threads where the system does not let this process have it.
//
// Threads: lp_expert_reader_add, _raise and _drop may be called by any thread; `done` is called by
// the reader's own thread, without a lock.
#ifndef LP_MODEL_EXPERT_READER_H
#define LP_MODEL_EXPERT_READER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/direct_read.h"

#define LP_EXPERT_PIECE_BYTES ((size_t)1 << 20) // of one read: enough for the full rate of a disk

// The caller sets read.file, offset, n_bytes, buffer and owner (base/direct_read.h); its memory from
// add until done, or until drop has given it back.
struct lp_expert_piece {
    struct lp_direct_read read;
    struct lp_expert_piece *next; // the reader's
    bool waiting, ahead;          // the reader's
};

struct lp_expert_reader;

// err: NULL, or why the bytes are not there.
typedef void (*lp_expert_done)(void *user, struct lp_expert_piece *piece, const struct lp_err *err);

// Errors: MEMORY, LIMIT (no thread could be started), UNSUPPORTED (a way that is forced).
lp_status lp_expert_reader_new(struct lp_expert_reader **out, enum lp_direct_way way,
                               lp_expert_done done, void *user, struct lp_err *err);
// Waits for what is under way; pieces that still wait are forgotten. NULL is allowed.
void lp_expert_reader_free(struct lp_expert_reader *reader);
const char *lp_expert_reader_way(const struct lp_expert_reader *reader); // "io_uring" or "pread"

// `pieces` are one behind the other in memory.
void lp_expert_reader_add(struct lp_expert_reader *reader, struct lp_expert_piece *pieces,
                          int32_t n_pieces, bool ahead);
// Those of the pieces that wait among the guesses become urgent.
void lp_expert_reader_raise(struct lp_expert_reader *reader, struct lp_expert_piece *pieces,
                            int32_t n_pieces);
// Takes those of the pieces out that still wait. Returns how many: `done` is not called for them.
int32_t lp_expert_reader_drop(struct lp_expert_reader *reader, struct lp_expert_piece *pieces,
                              int32_t n_pieces);

#endif
