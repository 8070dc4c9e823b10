// Overflow-safe size arithmetic. Each returns false on overflow and then leaves *out unspecified.
// Every size that comes from a file or a request goes through these before it is used.
#ifndef LP_BASE_CHECKED_H
#define LP_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool lp_mul_u64(uint64_t a, uint64_t b, uint64_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool lp_add_u64(uint64_t a, uint64_t b, uint64_t *out) {
    return !__builtin_add_overflow(a, b, out);
}
static inline bool lp_mul_size(size_t a, size_t b, size_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool lp_add_size(size_t a, size_t b, size_t *out) {
    return !__builtin_add_overflow(a, b, out);
}
// value rounded up to a multiple of a power of two.
static inline bool lp_align_u64(uint64_t value, uint64_t alignment, uint64_t *out) {
    if (!lp_add_u64(value, alignment - 1, out)) return false;
    *out &= ~(alignment - 1);
    return true;
}

// The same of a value that cannot come near 2^64: one checked before.
static inline uint64_t lp_pad_u64(uint64_t value, uint64_t alignment) {
    return (value + alignment - 1) & ~(alignment - 1);
}

#endif
