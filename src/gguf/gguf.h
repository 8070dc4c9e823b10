// Reading GGUF files (versions 2 and 3, little-endian), single or split, memory-mapped.
//
//   1. magic "GGUF"          4 bytes          5. key/value pairs
//   2. version               u32              6. tensor descriptors
//   3. tensor count          u64              7. padding to general.alignment from the file start
//   4. key/value count       u64              8. tensor data, each tensor padded to the alignment
//
// The reader trusts nothing: every count, length, offset and type is checked against the file and
// against the limits in docs/gguf.md before it is used, and a damaged file gives one sentence that
// names the key or tensor, its value and what was expected. Nothing is copied but the directory:
// strings, arrays and tensor data are views into the mapped file, valid until lp_gguf_close.
//
// A split set (PREFIX-00001-of-00004.gguf ...) is one logical file: lp_gguf_open takes any part.
#ifndef LP_GGUF_GGUF_H
#define LP_GGUF_GGUF_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/status.h"
#include "quant/quant.h"

#define LP_GGUF_VALUE_LIST(X)                                                                      \
    X(U8, 0, 1)                                                                                    \
    X(I8, 1, 1)                                                                                    \
    X(U16, 2, 2)                                                                                   \
    X(I16, 3, 2)                                                                                   \
    X(U32, 4, 4)                                                                                   \
    X(I32, 5, 4)                                                                                   \
    X(F32, 6, 4)                                                                                   \
    X(BOOL, 7, 1)                                                                                  \
    X(STRING, 8, 0)                                                                                \
    X(ARRAY, 9, 0)                                                                                 \
    X(U64, 10, 8)                                                                                  \
    X(I64, 11, 8)                                                                                  \
    X(F64, 12, 8)

enum lp_gguf_value_type {
#define LP_GGUF_VALUE_ENUM(name, id, bytes) LP_GGUF_##name = id,
    LP_GGUF_VALUE_LIST(LP_GGUF_VALUE_ENUM)
#undef LP_GGUF_VALUE_ENUM
};

// One metadata pair. Scalars hold one element; arrays `count` elements of element_type (never
// ARRAY). `data` points at the first element in the file, unaligned.
struct lp_gguf_kv {
    struct lp_str key;
    enum lp_gguf_value_type type;         // ARRAY for arrays
    enum lp_gguf_value_type element_type; // = type for scalars
    uint64_t count;                       // 1 for scalars
    const uint8_t *data;
    const struct lp_str *strings; // element_type STRING: `count` views; else NULL
};

struct lp_gguf_tensor {
    struct lp_str name;
    lp_type type;
    uint32_t n_dims;            // 1..4 as in the file
    uint64_t ne[4];             // fastest axis first; unused ones are 1
    const uint8_t *data;        // NULL only where `mats` is not
    const uint8_t *const *mats; // NULL, or [ne[2]]: matrices that do not lie in one piece. No file
                                // read by lp_gguf_open or lp_gguf_parse has any; see
                                // gguf_assemble.h
    bool in_memory; // the data is the process's own, not that of a mapped file (gguf_assemble.h)
    uint64_t n_bytes;
    uint32_t shard;       // which part of the set
    uint64_t file_offset; // of the data, in that part
};

// Matrix m (ne[0] x ne[1] values) of a tensor; m < ne[2] * ne[3].
static inline const uint8_t *lp_gguf_tensor_mat(const struct lp_gguf_tensor *t, uint64_t m) {
    return t->mats ? t->mats[m] : t->data + t->n_bytes / (t->ne[2] * t->ne[3]) * m;
}

struct lp_gguf;

// Opens a file or, given any part of a split set, the whole set (all parts' headers are checked
// first; every missing part is named in one message). Errors: IO, FORMAT, MEMORY, LIMIT.
lp_status lp_gguf_open(struct lp_gguf **out, const char *path, struct lp_err *err);
void lp_gguf_close(struct lp_gguf *gguf); // NULL is allowed
// Takes bytes of a mapped file out of this process's memory as far as they fill pages; they come back
// from the file when they are read again. Bytes that are in no mapped file stay where they are.
void lp_gguf_drop_pages(const struct lp_gguf *gguf, const void *data, size_t n_bytes);

// Parses a file image in memory (fuzzing, tests); no split sets. `data` must outlive the result.
lp_status lp_gguf_parse(struct lp_gguf **out, const uint8_t *data, uint64_t n_bytes,
                        const char *name, struct lp_err *err);

uint32_t lp_gguf_version(const struct lp_gguf *gguf);  // of the first part
uint32_t lp_gguf_n_shards(const struct lp_gguf *gguf); // 1 for a single file
const char *lp_gguf_shard_path(const struct lp_gguf *gguf, uint32_t shard);
uint64_t lp_gguf_file_bytes(const struct lp_gguf *gguf); // all parts together
uint32_t lp_gguf_alignment(const struct lp_gguf *gguf, uint32_t shard);

uint64_t lp_gguf_n_kv(const struct lp_gguf *gguf); // of the first part, in file order
const struct lp_gguf_kv *lp_gguf_kv_at(const struct lp_gguf *gguf, uint64_t i);
const struct lp_gguf_kv *lp_gguf_find(const struct lp_gguf *gguf, const char *key); // or NULL
const struct lp_gguf_kv *lp_gguf_find_key(const struct lp_gguf *gguf, struct lp_str key);

uint64_t lp_gguf_n_tensors(const struct lp_gguf *gguf); // all parts, in order of part then file
const struct lp_gguf_tensor *lp_gguf_tensor_at(const struct lp_gguf *gguf, uint64_t i);
const struct lp_gguf_tensor *lp_gguf_find_tensor(const struct lp_gguf *gguf, struct lp_str name);

// Typed getters. Integer types of any width are taken for an integer when the value fits, F32/F64
// for a float; anything else is a FORMAT error naming key, type and expectation. *found (may be
// NULL, then a missing key is an error) says whether the key exists; *out is untouched when not.
lp_status lp_gguf_get_u64(const struct lp_gguf *gguf, const char *key, uint64_t max, uint64_t *out,
                          bool *found, struct lp_err *err);
lp_status lp_gguf_get_f32(const struct lp_gguf *gguf, const char *key, float *out, bool *found,
                          struct lp_err *err); // NaN and infinity are errors
lp_status lp_gguf_get_bool(const struct lp_gguf *gguf, const char *key, bool *out, bool *found,
                           struct lp_err *err); // BOOL 0/1 only
lp_status lp_gguf_get_str(const struct lp_gguf *gguf, const char *key, struct lp_str *out,
                          bool *found, struct lp_err *err);

// Element i of an array or scalar as an integer (any integer type or BOOL). Caller checked i <
// count and that element_type is integral (lp_gguf_is_integral).
bool lp_gguf_is_integral(enum lp_gguf_value_type type);
bool lp_gguf_is_float(enum lp_gguf_value_type type);
int64_t lp_gguf_int_at(const struct lp_gguf_kv *kv, uint64_t i); // U64 above INT64_MAX: INT64_MAX
double lp_gguf_float_at(const struct lp_gguf_kv *kv, uint64_t i);
const char *lp_gguf_value_type_name(enum lp_gguf_value_type type); // "u32", "string", ...
#define LP_GGUF_NO_TYPE UINT32_MAX
// Bytes of a value; 0 for STRING and ARRAY, whose length varies; LP_GGUF_NO_TYPE: no type has this id.
uint32_t lp_gguf_value_bytes(uint32_t type);
// Whether type and value are the same, bit by bit.
bool lp_gguf_same_value(const struct lp_gguf_kv *a, const struct lp_gguf_kv *b);

#endif
