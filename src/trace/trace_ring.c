#include "trace/trace_ring.h"

#include "base/alloc.h"

struct lp_trace_ring *lp_trace_ring_new(uint64_t n) {
    struct lp_trace_ring *ring = lp_alloc(1, sizeof *ring);
    if (!ring) return NULL;
    ring->n = n;
    ring->slots = lp_alloc(n, sizeof *ring->slots); // zero pages: taken as they are written
    if (ring->slots) return ring;
    lp_free(ring);
    return NULL;
}

void lp_trace_ring_free(struct lp_trace_ring *ring) {
    if (!ring) return;
    lp_free(ring->slots);
    lp_free(ring);
}

// Stores of words are releases so that seq's odd value is seen before any of them, loads are
// acquires so that the second look at seq comes after all of them. On x86 these are plain moves.
static void put(struct lp_trace_slot *slot, size_t word, uint64_t value) {
    atomic_store_explicit(&slot->words[word], value, memory_order_release);
}
static uint64_t get(const struct lp_trace_slot *slot, size_t word) {
    return atomic_load_explicit(&slot->words[word], memory_order_acquire);
}

void lp_trace_ring_write(struct lp_trace_ring *ring, const struct lp_trace_record *record,
                         size_t n_bytes) {
    uint64_t i = atomic_load_explicit(&ring->head, memory_order_relaxed);
    struct lp_trace_slot *slot = &ring->slots[i & (ring->n - 1)];
    atomic_store_explicit(&slot->seq, 2 * i + 1, memory_order_relaxed);
    put(slot, 0, record->time_ns);
    put(slot, 1, record->thread | (uint64_t)record->kind << 32);
    for (size_t w = 0; w < (n_bytes + 7) / 8; w++) put(slot, 2 + w, record->payload[w]);
    atomic_store_explicit(&slot->seq, 2 * i + 2, memory_order_release);
    atomic_store_explicit(&ring->head, i + 1, memory_order_release);
}

bool lp_trace_ring_read(const struct lp_trace_ring *ring, uint64_t i,
                        struct lp_trace_record *record) {
    const struct lp_trace_slot *slot = &ring->slots[i & (ring->n - 1)];
    if (atomic_load_explicit(&slot->seq, memory_order_acquire) != 2 * i + 2) return false;
    record->time_ns = get(slot, 0);
    uint64_t what = get(slot, 1);
    record->thread = (uint32_t)what;
    record->kind = (uint32_t)(what >> 32);
    for (size_t w = 0; w < LP_TRACE_WORDS; w++) record->payload[w] = get(slot, 2 + w);
    return atomic_load_explicit(&slot->seq, memory_order_relaxed) == 2 * i + 2;
}
