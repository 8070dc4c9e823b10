// Arrays by name that another engine wrote: a .safetensors file, a folder of .npy files, or one .npy
// file. What is read is checked as anything from outside: every size and offset lies in the file.
//
//   safetensors   8 bytes length n, n bytes JSON {name: {dtype, shape, data_offsets}}, then the data
//   npy           0x93 "NUMPY", version, length, a Python dictionary with descr, fortran_order and
//                 shape, then the data; the array's name is the file's
// Little-endian, row-major. Arrays of other types are listed, but have no values.
#ifndef LP_DOCTOR_DUMP_READ_H
#define LP_DOCTOR_DUMP_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define LP_DUMP_MAX_DIMS 8

enum lp_dump_type {
    LP_DUMP_F32,
    LP_DUMP_F16,
    LP_DUMP_BF16,
    LP_DUMP_F64,
    LP_DUMP_I32,
    LP_DUMP_I64,
    LP_DUMP_OTHER,
};

struct lp_dump_array {
    char *name;
    enum lp_dump_type type;
    char type_name[24]; // as the file says
    int32_t n_dims;
    int64_t dims[LP_DUMP_MAX_DIMS]; // row-major, none negative
    int64_t n_values;
    const uint8_t *data; // not aligned
};

struct lp_dump;

// Errors: IO, FORMAT (names the file, the array and what is wrong), LIMIT, MEMORY.
lp_status lp_dump_open(struct lp_dump **out, const char *path, struct lp_err *err);
void lp_dump_free(struct lp_dump *dump); // NULL is allowed
size_t lp_dump_count(const struct lp_dump *dump);
const struct lp_dump_array *lp_dump_at(const struct lp_dump *dump, size_t i);
const struct lp_dump_array *lp_dump_find(const struct lp_dump *dump, const char *name); // or NULL

static inline bool lp_dump_is_float(const struct lp_dump_array *a) {
    return a->type <= LP_DUMP_F64;
}
static inline bool lp_dump_is_int(const struct lp_dump_array *a) {
    return a->type == LP_DUMP_I32 || a->type == LP_DUMP_I64;
}
// Values first ... first + n - 1, which are in the array, of a float type.
void lp_dump_floats(const struct lp_dump_array *array, int64_t first, int64_t n, float *out);
int64_t lp_dump_int(const struct lp_dump_array *array, int64_t i); // of an integer type

// From memory, which must outlive the dump. `from` names the file in messages.
lp_status lp_dump_read_safetensors(struct lp_dump **out, const void *data, uint64_t n_bytes,
                                   const char *from, struct lp_err *err);
lp_status lp_dump_read_npy(struct lp_dump **out, const char *name, const void *data,
                           uint64_t n_bytes, const char *from, struct lp_err *err);

#endif
