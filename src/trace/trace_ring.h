// A ring of events: written by one thread at a time without a lock, read by any.
//
//   slot of event i = slots[i % n]:   seq: 2i + 1 while it is written, 2i + 2 when it is there
//                                     words: time, thread and kind, payload
//
//   R1. head counts the events written. It is raised behind the slot's last store.
//   R2. A reader of event i takes the words between two looks at seq; both must be 2i + 2.
//       Otherwise the event has been overwritten, or is being so: it is gone.
//   R3. Words are atomic: a torn slot is a wrong value that R2 throws away, never a data race.
//   R4. Where nothing may be lost, tail counts the events that are in the file, and the writer
//       waits while head - tail = n.
// Reading is async-signal-safe.
#ifndef LP_TRACE_TRACE_RING_H
#define LP_TRACE_TRACE_RING_H

#include <stdatomic.h>

#include "trace/trace.h"

#define LP_TRACE_WORDS (LP_TRACE_PAYLOAD_BYTES / 8)

struct lp_trace_record { // one event, taken out
    uint64_t time_ns;
    uint32_t thread, kind;
    uint64_t payload[LP_TRACE_WORDS]; // the event's struct
};

struct lp_trace_slot {
    _Atomic uint64_t seq;
    _Atomic uint64_t words[2 + LP_TRACE_WORDS];
};

struct lp_trace_ring {
    struct lp_trace_slot *slots;
    uint64_t n;             // a power of two
    _Atomic uint32_t owner; // the thread that writes; 0: whoever holds the trace's lock
    _Atomic uint64_t head, tail;
};

// n: a power of two. NULL without memory.
struct lp_trace_ring *lp_trace_ring_new(uint64_t n);
void lp_trace_ring_free(struct lp_trace_ring *ring); // NULL is allowed

// By the one writer. n_bytes: of the payload that are set.
void lp_trace_ring_write(struct lp_trace_ring *ring, const struct lp_trace_record *record,
                         size_t n_bytes);

// False: event i is not there any more (or not yet).
bool lp_trace_ring_read(const struct lp_trace_ring *ring, uint64_t i,
                        struct lp_trace_record *record);

#endif
