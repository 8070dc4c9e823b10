// Reading .safetensors files, single or in shards, memory-mapped.
//
//   8 bytes length n, n bytes JSON {name: {dtype, shape, data_offsets}, "__metadata__": {...}},
//   then the data. Little-endian, row-major.
//
// Everything is checked against the file before it is stored: JSON size and depth, dtype, shape,
// that shape and dtype give just the bytes of data_offsets, that these lie in the file, that no two
// arrays overlap. Data is a view into the map, not aligned.
#ifndef LP_GGUF_SAFETENSORS_H
#define LP_GGUF_SAFETENSORS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#define LP_ST_MAX_DIMS 8

// dtype, its name in files, bits per value
#define LP_ST_DTYPE_LIST(X)                                                                        \
    X(BOOL, "BOOL", 8)                                                                             \
    X(U8, "U8", 8)                                                                                 \
    X(I8, "I8", 8)                                                                                 \
    X(F8_E4M3, "F8_E4M3", 8)                                                                       \
    X(F8_E5M2, "F8_E5M2", 8)                                                                       \
    X(F8_E8M0, "F8_E8M0", 8)                                                                       \
    X(I16, "I16", 16)                                                                              \
    X(U16, "U16", 16)                                                                              \
    X(F16, "F16", 16)                                                                              \
    X(BF16, "BF16", 16)                                                                            \
    X(I32, "I32", 32)                                                                              \
    X(U32, "U32", 32)                                                                              \
    X(F32, "F32", 32)                                                                              \
    X(I64, "I64", 64)                                                                              \
    X(U64, "U64", 64)                                                                              \
    X(F64, "F64", 64)

enum lp_st_dtype {
#define LP_ST_DTYPE_ENUM(name, text, bits) LP_ST_##name,
    LP_ST_DTYPE_LIST(LP_ST_DTYPE_ENUM)
#undef LP_ST_DTYPE_ENUM
        LP_ST_OTHER, // not in the list: whether shape and bytes fit is not known, so not checked
};

// name and data live as long as what they were read with.
struct lp_st_array {
    char *name;
    enum lp_st_dtype dtype;
    char dtype_name[24];          // as in the file, cut
    int32_t n_dims;               // 0 for a scalar
    int64_t dims[LP_ST_MAX_DIMS]; // outermost first, none negative
    int64_t n_values;             // the product of dims
    const uint8_t *data;          // not aligned
    uint64_t n_bytes;
    uint32_t file; // of those that were opened, from 0
};

struct lp_safetensors;

// Errors of all three: IO, FORMAT, LIMIT, MEMORY; *out is then NULL.
//
// One file, from memory that outlives the result (fuzzing, tests). `from` names it in messages.
lp_status lp_safetensors_parse(struct lp_safetensors **out, const void *data, uint64_t n_bytes,
                               const char *from, struct lp_err *err);
// One file by its path.
lp_status lp_safetensors_open(struct lp_safetensors **out, const char *path, struct lp_err *err);

// Those of a folder: the shards that model.safetensors.index.json names (plain names of files, each
// of which must be there and hold what the index says; every missing one is named in one message),
// or without an index model.safetensors, all of model-00001-of-0000N.safetensors, or the one
// *.safetensors file there is.
lp_status lp_safetensors_open_folder(struct lp_safetensors **out, const char *folder,
                                     struct lp_err *err);
void lp_safetensors_close(struct lp_safetensors *st); // NULL is allowed

uint64_t lp_safetensors_count(const struct lp_safetensors *st);
const struct lp_st_array *lp_safetensors_at(const struct lp_safetensors *st, uint64_t i);
const struct lp_st_array *lp_safetensors_find(const struct lp_safetensors *st,
                                              const char *name);     // or NULL
uint64_t lp_safetensors_file_bytes(const struct lp_safetensors *st); // all files together

#endif
