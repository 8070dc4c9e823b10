// Looking things up in an open GGUF: metadata with its type checked, tensors by name or index,
// facts about the parts. A getter takes any width of integer, but never a string, bool or float for
// one: a value of the wrong class is an error that names key, type and expectation.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "gguf/gguf_parts.h"

// ---- values ----

const char *lp_gguf_value_type_name(enum lp_gguf_value_type type) {
    static const char *const names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "string", "array", "u64", "i64", "f64"};
    return (unsigned)type < sizeof names / sizeof names[0] ? names[type] : "unknown";
}

uint32_t lp_gguf_value_bytes(uint32_t type) {
    static const uint32_t bytes[] = {
#define VALUE_BYTES(name, id, n) [id] = n,
        LP_GGUF_VALUE_LIST(VALUE_BYTES)
#undef VALUE_BYTES
    };
    return type < sizeof bytes / sizeof bytes[0] ? bytes[type] : LP_GGUF_NO_TYPE;
}

bool lp_gguf_same_value(const struct lp_gguf_kv *a, const struct lp_gguf_kv *b) {
    if (a->type != b->type || a->element_type != b->element_type || a->count != b->count)
        return false;
    if (a->element_type != LP_GGUF_STRING)
        return memcmp(a->data, b->data, (size_t)a->count * lp_gguf_value_bytes(a->element_type)) ==
               0;
    for (uint64_t i = 0; i < a->count; i++)
        if (!lp_str_equal(a->strings[i], b->strings[i])) return false;
    return true;
}

bool lp_gguf_is_float(enum lp_gguf_value_type type) {
    return type == LP_GGUF_F32 || type == LP_GGUF_F64;
}

bool lp_gguf_is_integral(enum lp_gguf_value_type type) {
    return (unsigned)type <= LP_GGUF_F64 && type != LP_GGUF_STRING && type != LP_GGUF_ARRAY &&
           !lp_gguf_is_float(type);
}

#define LOAD(type, data, i)                                                                        \
    ({                                                                                             \
        type value_;                                                                               \
        memcpy(&value_, (data) + (i) * sizeof value_, sizeof value_);                              \
        value_;                                                                                    \
    })

// Magnitude and sign apart, so that u64 and i64 both fit.
static uint64_t load_integer(const struct lp_gguf_kv *kv, uint64_t i, bool *negative) {
    int64_t v = 0;
    switch (kv->element_type) {
    case LP_GGUF_U8:
    case LP_GGUF_BOOL:
        v = LOAD(uint8_t, kv->data, i);
        break;
    case LP_GGUF_I8:
        v = LOAD(int8_t, kv->data, i);
        break;
    case LP_GGUF_U16:
        v = LOAD(uint16_t, kv->data, i);
        break;
    case LP_GGUF_I16:
        v = LOAD(int16_t, kv->data, i);
        break;
    case LP_GGUF_U32:
        v = LOAD(uint32_t, kv->data, i);
        break;
    case LP_GGUF_I32:
        v = LOAD(int32_t, kv->data, i);
        break;
    case LP_GGUF_I64:
        v = LOAD(int64_t, kv->data, i);
        break;
    case LP_GGUF_U64:
        *negative = false;
        return LOAD(uint64_t, kv->data, i);
    default:
        break;
    }
    *negative = v < 0;
    return v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
}

int64_t lp_gguf_int_at(const struct lp_gguf_kv *kv, uint64_t i) {
    bool negative;
    uint64_t magnitude = load_integer(kv, i, &negative);
    if (negative) return magnitude > INT64_MAX ? INT64_MIN : -(int64_t)magnitude;
    return magnitude > INT64_MAX ? INT64_MAX : (int64_t)magnitude;
}

double lp_gguf_float_at(const struct lp_gguf_kv *kv, uint64_t i) {
    if (kv->element_type == LP_GGUF_F32) return (double)LOAD(float, kv->data, i);
    if (kv->element_type == LP_GGUF_F64) return LOAD(double, kv->data, i);
    return (double)lp_gguf_int_at(kv, i);
}

// ---- typed getters ----

static const struct lp_gguf_kv *part_kv(const struct lp_gguf_part *part, struct lp_str key) {
    uint32_t i = lp_map_get(&part->keys, key);
    return i == LP_MAP_NONE ? NULL : &part->kvs[i];
}

const struct lp_gguf_kv *lp_gguf_get_part_kv(const struct lp_gguf_part *part, const char *key) {
    return part_kv(part, lp_str_from(key));
}

static lp_status find_kv(const struct lp_gguf_part *part, const char *key, const char *expected,
                         const struct lp_gguf_kv **kv, bool *found, struct lp_err *err) {
    *kv = lp_gguf_get_part_kv(part, key);
    if (found) *found = *kv != NULL;
    if (*kv || found) return LP_OK;
    return lp_err_set(err, LP_STATUS_FORMAT, "key %s is missing, expected %s", key, expected);
}

static lp_status wrong_type(const struct lp_gguf_kv *kv, const char *expected, struct lp_err *err) {
    bool array = kv->type == LP_GGUF_ARRAY;
    return lp_err_set(err, LP_STATUS_FORMAT, "key %.*s has type %s%s, expected %s",
                      LP_STR_ARGS(kv->key), array ? "array of " : "",
                      lp_gguf_value_type_name(kv->element_type), expected);
}

lp_status lp_gguf_get_part_u64(const struct lp_gguf_part *part, const char *key, uint64_t max,
                               uint64_t *out, bool *found, struct lp_err *err) {
    const struct lp_gguf_kv *kv;
    lp_status status = find_kv(part, key, "an integer", &kv, found, err);
    if (status || !kv) return status;
    if (!lp_gguf_is_integral(kv->type) || kv->type == LP_GGUF_BOOL)
        return wrong_type(kv, "an integer", err);
    bool negative;
    uint64_t magnitude = load_integer(kv, 0, &negative);
    if (negative || magnitude > max)
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "key %s is %s%" PRIu64 ", expected an integer from 0 to %" PRIu64, key,
                          negative ? "-" : "", magnitude, max);
    *out = magnitude;
    return LP_OK;
}

static lp_status named(const struct lp_gguf *gguf, lp_status status, struct lp_err *err) {
    if (status) lp_err_context(err, "%s", gguf->parts[0].name);
    return status;
}

lp_status lp_gguf_get_u64(const struct lp_gguf *gguf, const char *key, uint64_t max, uint64_t *out,
                          bool *found, struct lp_err *err) {
    return named(gguf, lp_gguf_get_part_u64(&gguf->parts[0], key, max, out, found, err), err);
}

static lp_status get_f32(const struct lp_gguf_part *part, const char *key, float *out, bool *found,
                         struct lp_err *err) {
    const struct lp_gguf_kv *kv;
    lp_status status = find_kv(part, key, "a float", &kv, found, err);
    if (status || !kv) return status;
    if (!lp_gguf_is_float(kv->type)) return wrong_type(kv, "a float (f32 or f64)", err);
    double v = lp_gguf_float_at(kv, 0);
    if (!isfinite(v) || fabs(v) > (double)__FLT_MAX__)
        return lp_err_set(err, LP_STATUS_FORMAT, "key %s is %g, expected a finite float", key, v);
    *out = (float)v;
    return LP_OK;
}

lp_status lp_gguf_get_f32(const struct lp_gguf *gguf, const char *key, float *out, bool *found,
                          struct lp_err *err) {
    return named(gguf, get_f32(&gguf->parts[0], key, out, found, err), err);
}

static lp_status get_bool(const struct lp_gguf_part *part, const char *key, bool *out, bool *found,
                          struct lp_err *err) {
    const struct lp_gguf_kv *kv;
    lp_status status = find_kv(part, key, "a bool", &kv, found, err);
    if (status || !kv) return status;
    if (kv->type != LP_GGUF_BOOL) return wrong_type(kv, "a bool", err);
    *out = kv->data[0] != 0; // 0 or 1: checked by the reader
    return LP_OK;
}

lp_status lp_gguf_get_bool(const struct lp_gguf *gguf, const char *key, bool *out, bool *found,
                           struct lp_err *err) {
    return named(gguf, get_bool(&gguf->parts[0], key, out, found, err), err);
}

static lp_status get_str(const struct lp_gguf_part *part, const char *key, struct lp_str *out,
                         bool *found, struct lp_err *err) {
    const struct lp_gguf_kv *kv;
    lp_status status = find_kv(part, key, "a string", &kv, found, err);
    if (status || !kv) return status;
    if (kv->type != LP_GGUF_STRING) return wrong_type(kv, "a string", err);
    *out = kv->strings[0];
    return LP_OK;
}

lp_status lp_gguf_get_str(const struct lp_gguf *gguf, const char *key, struct lp_str *out,
                          bool *found, struct lp_err *err) {
    return named(gguf, get_str(&gguf->parts[0], key, out, found, err), err);
}

// ---- the directory ----

uint32_t lp_gguf_version(const struct lp_gguf *gguf) {
    return gguf->parts[0].version;
}
uint32_t lp_gguf_n_shards(const struct lp_gguf *gguf) {
    return gguf->n_parts;
}

const char *lp_gguf_shard_path(const struct lp_gguf *gguf, uint32_t shard) {
    return shard < gguf->n_parts ? gguf->parts[shard].path : NULL;
}

uint32_t lp_gguf_alignment(const struct lp_gguf *gguf, uint32_t shard) {
    return shard < gguf->n_parts ? gguf->parts[shard].alignment : 0;
}

uint64_t lp_gguf_file_bytes(const struct lp_gguf *gguf) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < gguf->n_parts; i++) sum += gguf->parts[i].n_bytes;
    return sum;
}

uint64_t lp_gguf_n_kv(const struct lp_gguf *gguf) {
    return gguf->parts[0].n_kv;
}

const struct lp_gguf_kv *lp_gguf_kv_at(const struct lp_gguf *gguf, uint64_t i) {
    return i < gguf->parts[0].n_kv ? &gguf->parts[0].kvs[i] : NULL;
}

const struct lp_gguf_kv *lp_gguf_find(const struct lp_gguf *gguf, const char *key) {
    return lp_gguf_find_key(gguf, lp_str_from(key));
}

const struct lp_gguf_kv *lp_gguf_find_key(const struct lp_gguf *gguf, struct lp_str key) {
    return part_kv(&gguf->parts[0], key);
}

uint64_t lp_gguf_n_tensors(const struct lp_gguf *gguf) {
    return gguf->n_tensors;
}

const struct lp_gguf_tensor *lp_gguf_tensor_at(const struct lp_gguf *gguf, uint64_t i) {
    return i < gguf->n_tensors ? &gguf->tensors[i] : NULL;
}

const struct lp_gguf_tensor *lp_gguf_find_tensor(const struct lp_gguf *gguf, struct lp_str name) {
    uint32_t i = lp_map_get(&gguf->names, name);
    return i == LP_MAP_NONE ? NULL : &gguf->tensors[i];
}
