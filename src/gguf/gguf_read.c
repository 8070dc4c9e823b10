// The header of one GGUF file: magic, version, counts, key/value pairs (1-5 of the list in gguf.h);
// the tensor descriptors are gguf_tensors.c's. One pass, nothing is trusted: a count is held
// against the bytes left before anything is allocated for it.
#include <inttypes.h>

#include "base/checked.h"
#include "gguf/gguf_parts.h"

static bool has_nul(struct lp_str s) {
    return s.len && memchr(s.data, 0, s.len);
}

lp_status lp_gguf_read_string(struct lp_cursor *c, struct lp_str *out, const char *what,
                              uint64_t index, uint64_t of, struct lp_err *err) {
    uint64_t claimed;
    if (lp_cursor_string(c, out, &claimed)) {
        if (claimed <= LP_GGUF_MAX_STRING_BYTES) return LP_OK;
        return lp_err_set(err, LP_STATUS_LIMIT,
                          "%s %" PRIu64 " of %" PRIu64 " is %" PRIu64
                          " bytes long, at most %u are read",
                          what, index, of, claimed, LP_GGUF_MAX_STRING_BYTES);
    }
    if (lp_cursor_left(c) < 8)
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "the file ends inside the length of %s %" PRIu64 " of %" PRIu64
                          "; it is cut off, fetch it again",
                          what, index, of);
    return lp_err_set(err, LP_STATUS_FORMAT,
                      "%s %" PRIu64 " of %" PRIu64 " says it is %" PRIu64
                      " bytes long, but only %" PRIu64
                      " bytes of the file are left; it is cut off or damaged",
                      what, index, of, claimed, lp_cursor_left(c) - 8);
}

static lp_status cut_off(const struct lp_gguf_part *part, struct lp_str key, struct lp_err *err) {
    return lp_err_set(err, LP_STATUS_FORMAT,
                      "the file ends at byte %" PRIu64
                      " inside the value of key %.*s; it is cut off, fetch it again",
                      part->n_bytes, LP_STR_ARGS(key));
}

// ---- values ----

static lp_status read_strings(struct lp_gguf_part *part, struct lp_cursor *c, struct lp_gguf_kv *kv,
                              struct lp_err *err) {
    uint64_t most = lp_cursor_left(c) / 8; // every string has a length field
    if (kv->count > most)
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "key %.*s says it holds %" PRIu64 " strings, but the %" PRIu64
                          " bytes left of the file have room for %" PRIu64
                          " at most; it is cut off or damaged",
                          LP_STR_ARGS(kv->key), kv->count, lp_cursor_left(c), most);
    if (kv->count > LP_GGUF_MAX_STRINGS)
        return lp_err_set(err, LP_STATUS_LIMIT,
                          "key %.*s holds %" PRIu64 " strings, at most %u are read",
                          LP_STR_ARGS(kv->key), kv->count, LP_GGUF_MAX_STRINGS);
    struct lp_str *strings = lp_arena_alloc(&part->strings, (size_t)kv->count, sizeof *strings);
    if (!strings)
        return lp_err_memory(err, (size_t)kv->count * sizeof *strings, "strings of a key");
    kv->strings = strings;
    for (uint64_t i = 0; i < kv->count; i++) {
        lp_status status = lp_gguf_read_string(c, &strings[i], "string", i + 1, kv->count, err);
        if (!status) continue;
        lp_err_context(err, "key %.*s", LP_STR_ARGS(kv->key));
        return status;
    }
    return LP_OK;
}

static lp_status check_bools(const struct lp_gguf_kv *kv, struct lp_err *err) {
    for (uint64_t i = 0; i < kv->count; i++)
        if (kv->data[i] > 1)
            return lp_err_set(
                err, LP_STATUS_FORMAT,
                "key %.*s holds the byte %u where a bool is expected (element %" PRIu64
                "); only 0 and 1 are bools",
                LP_STR_ARGS(kv->key), kv->data[i], i);
    return LP_OK;
}

static lp_status read_elements(struct lp_gguf_part *part, struct lp_cursor *c,
                               struct lp_gguf_kv *kv, struct lp_err *err) {
    kv->data = c->at;
    if (kv->element_type == LP_GGUF_STRING) return read_strings(part, c, kv, err);
    uint64_t n_bytes;
    if (!lp_mul_u64(kv->count, lp_gguf_value_bytes(kv->element_type), &n_bytes) ||
        n_bytes > lp_cursor_left(c)) {
        if (kv->type != LP_GGUF_ARRAY) return cut_off(part, kv->key, err);
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "key %.*s says it holds %" PRIu64 " elements of %s, but only %" PRIu64
                          " bytes of the file are left; it is cut off or damaged",
                          LP_STR_ARGS(kv->key), kv->count,
                          lp_gguf_value_type_name(kv->element_type), lp_cursor_left(c));
    }
    (void)lp_cursor_take(c, n_bytes, &kv->data);
    return kv->element_type == LP_GGUF_BOOL ? check_bools(kv, err) : LP_OK;
}

static lp_status read_array_head(struct lp_gguf_part *part, struct lp_cursor *c,
                                 struct lp_gguf_kv *kv, struct lp_err *err) {
    uint32_t type;
    if (!lp_cursor_u32(c, &type) || !lp_cursor_u64(c, &kv->count))
        return cut_off(part, kv->key, err);
    if (type == LP_GGUF_ARRAY)
        return lp_err_set(
            err, LP_STATUS_UNSUPPORTED,
            "key %.*s is an array of arrays, which no known model has and limpid does not read",
            LP_STR_ARGS(kv->key));
    if (lp_gguf_value_bytes(type) == LP_GGUF_NO_TYPE)
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "key %.*s is an array of type %u, expected a type of 0 to 12",
                          LP_STR_ARGS(kv->key), type);
    if (kv->count > LP_GGUF_MAX_ELEMENTS)
        return lp_err_set(err, LP_STATUS_LIMIT,
                          "key %.*s says it holds %" PRIu64 " elements, at most %u are read",
                          LP_STR_ARGS(kv->key), kv->count, LP_GGUF_MAX_ELEMENTS);
    kv->element_type = (enum lp_gguf_value_type)type;
    return LP_OK;
}

// ---- pairs ----

static lp_status read_key(struct lp_gguf_part *part, struct lp_cursor *c, uint32_t i, uint64_t n_kv,
                          struct lp_gguf_kv *kv, struct lp_err *err) {
    lp_status status = lp_gguf_read_string(c, &kv->key, "the key of pair", i + 1, n_kv, err);
    if (status) return status;
    if (kv->key.len == 0)
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "the key of pair %u of %" PRIu64
                          " is empty; the pair count is wrong or the file is damaged",
                          i + 1, n_kv);
    if (kv->key.len > LP_GGUF_MAX_KEY_BYTES)
        return lp_err_set(err, LP_STATUS_LIMIT,
                          "the key of pair %u of %" PRIu64
                          " is %zu bytes long, at most %u are allowed",
                          i + 1, n_kv, kv->key.len, LP_GGUF_MAX_KEY_BYTES);
    if (has_nul(kv->key))
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "the key of pair %u of %" PRIu64 " (%.*s...) holds a NUL byte", i + 1,
                          n_kv, LP_STR_ARGS(kv->key));
    uint32_t old;
    if (!lp_map_add(&part->keys, kv->key, i, &old))
        return lp_err_memory(err, 0, "the table of keys");
    if (old != LP_MAP_NONE)
        return lp_err_set(
            err, LP_STATUS_FORMAT,
            "key %.*s occurs twice (pairs %u and %u); which value is meant cannot be known",
            LP_STR_ARGS(kv->key), old + 1, i + 1);
    return LP_OK;
}

static lp_status read_pair(struct lp_gguf_part *part, struct lp_cursor *c, uint32_t i,
                           uint64_t n_kv, struct lp_err *err) {
    struct lp_gguf_kv *kv = &part->kvs[i];
    lp_status status = read_key(part, c, i, n_kv, kv, err);
    if (status) return status;
    uint32_t type;
    if (!lp_cursor_u32(c, &type)) return cut_off(part, kv->key, err);
    if (lp_gguf_value_bytes(type) == LP_GGUF_NO_TYPE)
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "key %.*s has value type %u, expected a type of 0 to 12",
                          LP_STR_ARGS(kv->key), type);
    kv->type = kv->element_type = (enum lp_gguf_value_type)type;
    kv->count = 1;
    if (type == LP_GGUF_ARRAY && (status = read_array_head(part, c, kv, err))) return status;
    return read_elements(part, c, kv, err);
}

static lp_status read_pairs(struct lp_gguf_part *part, struct lp_cursor *c, uint64_t n_kv,
                            struct lp_err *err) {
    part->kvs = lp_alloc((size_t)n_kv, sizeof *part->kvs);
    if (!part->kvs) return lp_err_memory(err, (size_t)n_kv * sizeof *part->kvs, "the metadata");
    if (!lp_map_reserve(&part->keys, (size_t)n_kv))
        return lp_err_memory(err, (size_t)n_kv * 48, "the table of keys");
    for (uint32_t i = 0; i < n_kv; i++) {
        lp_status status = read_pair(part, c, i, n_kv, err);
        if (status) return status;
        part->n_kv = i + 1;
    }
    return LP_OK;
}

// ---- the file ----

static lp_status read_version(struct lp_gguf_part *part, struct lp_cursor *c, struct lp_err *err) {
    const uint8_t *magic;
    if (!lp_cursor_take(c, 4, &magic) || memcmp(magic, "GGUF", 4) != 0)
        return lp_err_set(
            err, LP_STATUS_FORMAT,
            "this is not a GGUF file: it does not begin with the four bytes GGUF (it has %" PRIu64
            " bytes)",
            part->n_bytes);
    if (!lp_cursor_u32(c, &part->version))
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "the file ends at byte %" PRIu64 " inside the version field",
                          part->n_bytes);
    uint32_t version = part->version;
    if (version == 2 || version == 3) return LP_OK;
    if (version == 1)
        return lp_err_set(
            err, LP_STATUS_UNSUPPORTED,
            "GGUF version 1 is obsolete (32-bit counts); convert the model again to get version 3");
    if (version != 0 && (version & 0xffff) == 0)
        return lp_err_set(err, LP_STATUS_UNSUPPORTED,
                          "the file is big-endian (version field 0x%08x); limpid reads "
                          "little-endian GGUF, convert the model again for this byte order",
                          version);
    return lp_err_set(err, LP_STATUS_FORMAT,
                      "GGUF version %u is unknown; limpid reads versions 2 and 3", version);
}

static lp_status check_count(uint64_t n, const char *what, uint64_t min_bytes, uint64_t cap,
                             uint64_t left, struct lp_err *err) {
    if (n > left / min_bytes)
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "the header says there are %" PRIu64 " %s, but the %" PRIu64
                          " bytes left of the file have room for %" PRIu64
                          " at most; it is cut off or damaged",
                          n, what, left, left / min_bytes);
    if (n > cap)
        return lp_err_set(err, LP_STATUS_LIMIT,
                          "the header says there are %" PRIu64 " %s, at most %" PRIu64 " are read",
                          n, what, cap);
    return LP_OK;
}

static lp_status read_counts(struct lp_gguf_part *part, struct lp_cursor *c, uint64_t *n_tensors,
                             uint64_t *n_kv, struct lp_err *err) {
    if (!lp_cursor_u64(c, n_tensors) || !lp_cursor_u64(c, n_kv))
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "the file ends at byte %" PRIu64 " inside the tensor and key counts",
                          part->n_bytes);
    uint64_t left = lp_cursor_left(c);
    lp_status status = check_count(*n_tensors, "tensors (n_tensors)", LP_GGUF_MIN_DESCRIPTOR_BYTES,
                                   LP_GGUF_MAX_TENSORS, left, err);
    if (status) return status;
    return check_count(*n_kv, "key/value pairs (n_kv)", LP_GGUF_MIN_PAIR_BYTES, LP_GGUF_MAX_KEYS,
                       left, err);
}

static lp_status read_alignment(struct lp_gguf_part *part, struct lp_err *err) {
    part->alignment = LP_GGUF_DEFAULT_ALIGNMENT;
    const struct lp_gguf_kv *kv = lp_gguf_get_part_kv(part, "general.alignment");
    if (!kv) return LP_OK;
    if (kv->type != LP_GGUF_U32)
        return lp_err_set(err, LP_STATUS_FORMAT, "key general.alignment has type %s, expected u32",
                          lp_gguf_value_type_name(kv->type));
    memcpy(&part->alignment, kv->data, 4);
    uint32_t a = part->alignment;
    if (a >= LP_GGUF_MIN_ALIGNMENT && a <= LP_GGUF_MAX_ALIGNMENT && (a & (a - 1)) == 0)
        return LP_OK;
    return lp_err_set(err, LP_STATUS_FORMAT,
                      "key general.alignment is %u, expected a power of two from %u to %u", a,
                      LP_GGUF_MIN_ALIGNMENT, LP_GGUF_MAX_ALIGNMENT);
}

lp_status lp_gguf_read_metadata(struct lp_gguf_part *part, struct lp_err *err) {
    static const uint8_t nothing[1];
    const uint8_t *data = part->data ? part->data : nothing; // an empty file has no map
    struct lp_cursor c = {data, data + part->n_bytes};
    uint64_t n_kv = 0;
    lp_status status = read_version(part, &c, err);
    if (!status) status = read_counts(part, &c, &part->n_tensors_said, &n_kv, err);
    if (!status) status = read_pairs(part, &c, n_kv, err);
    if (!status) status = read_alignment(part, err);
    if (status) lp_err_context(err, "%s", part->name);
    part->rest = c;
    return status;
}

lp_status lp_gguf_parse(struct lp_gguf **out, const uint8_t *data, uint64_t n_bytes,
                        const char *name, struct lp_err *err) {
    *out = NULL;
    struct lp_gguf *gguf = lp_gguf_shards_new(name, err);
    if (!gguf) return LP_STATUS_MEMORY;
    gguf->parts[0].data = data;
    gguf->parts[0].n_bytes = n_bytes;
    lp_status status = lp_gguf_read_metadata(&gguf->parts[0], err);
    if (!status) status = lp_gguf_tensors_read(gguf, 0, err);
    if (status)
        lp_gguf_close(gguf);
    else
        *out = gguf;
    return status;
}
