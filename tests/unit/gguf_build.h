// A small writer of GGUF images for the tests of src/gguf, written from the format alone: it writes
// exactly what it is told, right or wrong, so that each test can break one thing.
#ifndef LP_TEST_GGUF_BUILD_H
#define LP_TEST_GGUF_BUILD_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"

enum {
    GB_U8,
    GB_I8,
    GB_U16,
    GB_I16,
    GB_U32,
    GB_I32,
    GB_F32,
    GB_BOOL,
    GB_STR,
    GB_ARR,
    GB_U64,
    GB_I64,
    GB_F64
};
enum { GB_TYPE_F32 = 0, GB_TYPE_Q8_0 = 8, GB_TYPE_Q8_1 = 9, GB_TYPE_I32 = 26, GB_TYPE_BF16 = 30 };

static inline void gb_u8(struct lp_bytes *b, uint8_t v) {
    lp_bytes_append(b, &v, 1);
}
static inline void gb_u32(struct lp_bytes *b, uint32_t v) {
    lp_bytes_append(b, &v, 4);
}
static inline void gb_u64(struct lp_bytes *b, uint64_t v) {
    lp_bytes_append(b, &v, 8);
}
static inline void gb_strn(struct lp_bytes *b, const char *text, size_t n) {
    gb_u64(b, n);
    lp_bytes_append(b, text, n);
}
static inline void gb_str(struct lp_bytes *b, const char *text) {
    gb_strn(b, text, strlen(text));
}

static inline void gb_header(struct lp_bytes *b, uint32_t version, uint64_t n_tensors,
                             uint64_t n_kv) {
    lp_bytes_append(b, "GGUF", 4);
    gb_u32(b, version);
    gb_u64(b, n_tensors);
    gb_u64(b, n_kv);
}

// key and type; the value follows.
static inline void gb_key(struct lp_bytes *b, const char *key, uint32_t type) {
    gb_str(b, key);
    gb_u32(b, type);
}
static inline void gb_kv_u32(struct lp_bytes *b, const char *key, uint32_t v) {
    gb_key(b, key, GB_U32);
    gb_u32(b, v);
}
static inline void gb_kv_raw(struct lp_bytes *b, const char *key, uint32_t type, const void *v,
                             size_t n) {
    gb_key(b, key, type);
    lp_bytes_append(b, v, n);
}
static inline void gb_kv_str(struct lp_bytes *b, const char *key, const char *v) {
    gb_key(b, key, GB_STR);
    gb_str(b, v);
}
static inline void gb_kv_arr(struct lp_bytes *b, const char *key, uint32_t element_type,
                             uint64_t n) {
    gb_key(b, key, GB_ARR);
    gb_u32(b, element_type);
    gb_u64(b, n);
}

static inline void gb_tensor(struct lp_bytes *b, const char *name, uint32_t n_dims,
                             const uint64_t *ne, uint32_t type, uint64_t offset) {
    gb_str(b, name);
    gb_u32(b, n_dims);
    for (uint32_t i = 0; i < n_dims; i++) gb_u64(b, ne[i]);
    gb_u32(b, type);
    gb_u64(b, offset);
}
static inline void gb_tensor_1d(struct lp_bytes *b, const char *name, uint64_t n, uint32_t type,
                                uint64_t offset) {
    gb_tensor(b, name, 1, &n, type, offset);
}

static inline void gb_pad(struct lp_bytes *b, size_t alignment) {
    while (b->len % alignment) gb_u8(b, 0);
}
static inline void gb_fill(struct lp_bytes *b, size_t n, uint8_t first) {
    for (size_t i = 0; i < n; i++) gb_u8(b, (uint8_t)(first + i));
}

static inline int gb_write(const struct lp_bytes *b, const char *path) {
    FILE *f = fopen(path, "wb");
    if (!f) return -1;
    size_t n = fwrite(b->data, 1, b->len, f);
    return fclose(f) == 0 && n == b->len ? 0 : -1;
}

#endif
