// What rank 0 tells all others to do: a kind and its bytes, checked on arrival.
#ifndef LP_DIST_ORDER_H
#define LP_DIST_ORDER_H

#include "base/bytes.h"
#include "dist/comm.h"

enum lp_order_kind {
    LP_ORDER_END,        // leave
    LP_ORDER_MODEL_OPEN, // engine/follow.c
    LP_ORDER_MODEL_CLOSE,
    LP_ORDER_ENGINE_NEW,
    LP_ORDER_ENGINE_FREE,
    LP_ORDER_STEP, // model/ranks_orders.c
    LP_ORDER_DRAFT,
    LP_ORDER_PAGE_COPY,
    LP_ORDER_PAGE_READ,
    LP_ORDER_PAGE_WRITE,
    LP_ORDER_EXAM, // doctor/ranks_exam.h
    LP_ORDER_WALK_END,
    LP_ORDER_N_KINDS,
};

struct lp_order {
    enum lp_order_kind kind;
    int32_t owner;   // of the model or engine that it is for
    uint64_t number; // of all orders of these ranks; counts from 1
    uint64_t hash;   // of the bytes
    struct lp_bytes bytes;
};

// Rank 0. order->kind, owner and bytes: what to send; number and hash are filled in.
void lp_order_give(struct lp_comm *world, struct lp_order *order);
// The others: waits for the next one; bytes are written over. Errors: IO (the communicator has failed, or
// what came is not what rank 0 sent).
lp_status lp_order_take(struct lp_comm *world, struct lp_order *order, struct lp_err *err);

// Writing and reading of bytes. A read past the end gives zeros and sets `failed`.
struct lp_order_reader {
    const uint8_t *data;
    size_t n, at;
    bool failed;
};
bool lp_order_put(struct lp_order *order, const void *data, size_t n_bytes); // false: out of memory
void lp_order_get(struct lp_order_reader *from, void *to, size_t n_bytes);
// n_bytes of it where they lie, to be copied: not aligned. NULL past the end.
const uint8_t *lp_order_skip(struct lp_order_reader *from, size_t n_bytes);

#endif
