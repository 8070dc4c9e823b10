// The slots of the cache of experts: their memory, what is in them, and the reads that fill them.
// Which item lies where is decided elsewhere (expert_cache.c); here an item is brought into a slot.
//
// Threads: one thread loads, raises, drops; any may ask for a state and wait for it.
#ifndef LP_MODEL_EXPERT_SLOTS_H
#define LP_MODEL_EXPERT_SLOTS_H

#include "base/direct_read.h"
#include "model/expert_layout.h"

enum lp_expert_state {
    LP_EXPERT_FREE,    // nothing is in the slot
    LP_EXPERT_LOADING, // its bytes are on their way
    LP_EXPERT_READY,
    LP_EXPERT_VOID, // it holds any bytes: a read failed, or was dropped half-way
};

struct lp_expert_slots;

// layout: must outlive the result. Errors: IO, MEMORY, LIMIT, UNSUPPORTED.
lp_status lp_expert_slots_new(struct lp_expert_slots **out, const struct lp_expert_layout *layout,
                              const struct lp_gguf *gguf, int32_t n_slots, enum lp_direct_way way,
                              struct lp_err *err);
void lp_expert_slots_free(struct lp_expert_slots *slots); // waits for reads; NULL is allowed

// Begins to read an expert of a layer into a slot that is not loading. ahead: behind all reads that
// are not (expert_reader.h).
void lp_expert_slots_load(struct lp_expert_slots *slots, int32_t slot, int32_t layer,
                          int32_t expert, bool ahead);
void lp_expert_slots_raise(struct lp_expert_slots *slots, int32_t slot); // no longer only ahead
// Forgets those reads of a loading slot that have not begun. Its state will be VOID, or READY if all
// had begun.
void lp_expert_slots_drop(struct lp_expert_slots *slots, int32_t slot);

enum lp_expert_state lp_expert_slots_state(const struct lp_expert_slots *slots, int32_t slot);
// Where a part of the expert in the slot lies: set by load, filled when it is ready.
const uint8_t *lp_expert_slots_place(const struct lp_expert_slots *slots, int32_t slot, int part);
void lp_expert_slots_wait(struct lp_expert_slots *slots, int32_t slot); // until it is not loading
// Until the number of reads of experts that have ended is no longer n_ended, or nothing is loading.
void lp_expert_slots_wait_any(struct lp_expert_slots *slots, uint64_t n_ended);

bool lp_expert_slots_has_failed(const struct lp_expert_slots *slots);
lp_status lp_expert_slots_failure(struct lp_expert_slots *slots,
                                  struct lp_err *err); // and forgets it

struct lp_expert_slots_stats {
    uint64_t n_ended, read_bytes, wait_ns;
    size_t bytes;      // of the slots
    int32_t n_loading; // slots, now
    const char *way;
};
struct lp_expert_slots_stats lp_expert_slots_get_stats(struct lp_expert_slots *slots);

#endif
