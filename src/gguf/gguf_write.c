#include "gguf/gguf_write.h"

#include "base/checked.h"
#include "base/grow.h"
#include "gguf/gguf_parts.h"

struct pair {
    char *key;
    struct lp_bytes value; // type, then the value, as in the file
};

struct tensor {
    char *name;
    lp_type type;
    uint32_t n_dims;
    uint64_t ne[4], n_bytes, offset; // offset: from the data start
};

struct lp_gguf_writer {
    uint32_t version, alignment;
    struct pair *pairs;
    size_t n_pairs, pairs_capacity;
    struct lp_map keys; // -> index in pairs
    struct tensor *tensors;
    size_t n_tensors, tensors_capacity;
    struct lp_map names; // of tensors -> index
    uint64_t data_bytes; // padded
    struct lp_bytes header;
    struct lp_err err; // the first failure of a setter
};

struct lp_gguf_writer *lp_gguf_writer_new(uint32_t version) {
    struct lp_gguf_writer *w = lp_alloc(1, sizeof *w);
    if (!w) return NULL;
    w->version = version;
    w->alignment = LP_GGUF_DEFAULT_ALIGNMENT;
    return w;
}

static void release_pair(struct pair *pair) {
    lp_free(pair->key);
    lp_bytes_release(&pair->value);
}

void lp_gguf_writer_free(struct lp_gguf_writer *w) {
    if (!w) return;
    for (size_t i = 0; i < w->n_pairs; i++) release_pair(&w->pairs[i]);
    for (size_t i = 0; i < w->n_tensors; i++) lp_free(w->tensors[i].name);
    lp_free(w->pairs);
    lp_free(w->tensors);
    lp_map_release(&w->keys);
    lp_map_release(&w->names);
    lp_bytes_release(&w->header);
    lp_free(w);
}

// ---- keys

// The pair of a key, or NULL.
static struct pair *find(const struct lp_gguf_writer *w, const char *key) {
    uint32_t i = lp_map_get(&w->keys, lp_str_from(key));
    return i == LP_MAP_NONE ? NULL : &w->pairs[i];
}

// The pair of a key, which is made where there is none; NULL without memory.
static struct pair *find_or_add(struct lp_gguf_writer *w, struct lp_str key) {
    uint32_t i = lp_map_get(&w->keys, key);
    if (i != LP_MAP_NONE) return &w->pairs[i];
    struct pair pair = {.key = lp_strndup(key.data, key.len)};
    struct lp_str own = {pair.key, key.len};
    if (!pair.key || !LP_GROW(w->pairs, w->pairs_capacity, w->n_pairs + 1) ||
        !lp_map_add(&w->keys, own, (uint32_t)w->n_pairs, NULL)) {
        lp_free(pair.key);
        return NULL;
    }
    w->pairs[w->n_pairs] = pair;
    return &w->pairs[w->n_pairs++];
}

// The value of a key to be filled, empty but for its type; NULL after a failure.
static struct lp_bytes *begin(struct lp_gguf_writer *w, struct lp_str key, uint32_t type) {
    if (w->err.status) return NULL;
    if (key.len == 0 || key.len > LP_GGUF_MAX_KEY_BYTES || memchr(key.data, 0, key.len)) {
        lp_err_set(&w->err, LP_STATUS_INVALID,
                   "the key '%.*s' cannot be written: it is empty, longer than %u bytes or holds a "
                   "NUL byte",
                   LP_STR_ARGS(key), LP_GGUF_MAX_KEY_BYTES);
        return NULL;
    }
    struct pair *pair = find_or_add(w, key);
    if (!pair) {
        lp_err_memory(&w->err, key.len, "metadata");
        return NULL;
    }
    lp_bytes_clear(&pair->value);
    lp_bytes_append(&pair->value, &type, sizeof type);
    return &pair->value;
}

static void end(struct lp_gguf_writer *w, const struct lp_bytes *value) {
    if (value->failed && !w->err.status) lp_err_memory(&w->err, value->len, "metadata");
}

static void put_scalar(struct lp_gguf_writer *w, const char *key, enum lp_gguf_value_type type,
                       const void *value, size_t n) {
    struct lp_bytes *to = begin(w, lp_str_from(key), type);
    if (!to) return;
    lp_bytes_append(to, value, n);
    end(w, to);
}

void lp_gguf_writer_u16(struct lp_gguf_writer *w, const char *key, uint16_t value) {
    put_scalar(w, key, LP_GGUF_U16, &value, sizeof value);
}

void lp_gguf_writer_u32(struct lp_gguf_writer *w, const char *key, uint32_t value) {
    put_scalar(w, key, LP_GGUF_U32, &value, sizeof value);
}

void lp_gguf_writer_i32(struct lp_gguf_writer *w, const char *key, int32_t value) {
    put_scalar(w, key, LP_GGUF_I32, &value, sizeof value);
}

void lp_gguf_writer_f32(struct lp_gguf_writer *w, const char *key, float value) {
    put_scalar(w, key, LP_GGUF_F32, &value, sizeof value);
}

void lp_gguf_writer_bool(struct lp_gguf_writer *w, const char *key, bool value) {
    uint8_t byte = value;
    put_scalar(w, key, LP_GGUF_BOOL, &byte, 1);
}

static void put_string(struct lp_bytes *to, struct lp_str value) {
    uint64_t n = value.len;
    lp_bytes_append(to, &n, sizeof n);
    lp_bytes_append(to, value.data, value.len);
}

void lp_gguf_writer_str(struct lp_gguf_writer *w, const char *key, struct lp_str value) {
    struct lp_bytes *to = begin(w, lp_str_from(key), LP_GGUF_STRING);
    if (!to) return;
    put_string(to, value);
    end(w, to);
}

static struct lp_bytes *begin_array(struct lp_gguf_writer *w, struct lp_str key,
                                    enum lp_gguf_value_type type, uint64_t count) {
    struct lp_bytes *to = begin(w, key, LP_GGUF_ARRAY);
    uint32_t id = type;
    if (!to) return NULL;
    lp_bytes_append(to, &id, sizeof id);
    lp_bytes_append(to, &count, sizeof count);
    return to;
}

void lp_gguf_writer_array(struct lp_gguf_writer *w, const char *key, enum lp_gguf_value_type type,
                          const void *data, uint64_t count) {
    struct lp_bytes *to = begin_array(w, lp_str_from(key), type, count);
    if (!to) return;
    lp_bytes_append(to, data, (size_t)count * lp_gguf_value_bytes(type));
    end(w, to);
}

void lp_gguf_writer_strings(struct lp_gguf_writer *w, const char *key, const struct lp_str *values,
                            uint64_t count) {
    struct lp_bytes *to = begin_array(w, lp_str_from(key), LP_GGUF_STRING, count);
    if (!to) return;
    for (uint64_t i = 0; i < count; i++) put_string(to, values[i]);
    end(w, to);
}

void lp_gguf_writer_copy(struct lp_gguf_writer *w, const struct lp_gguf_kv *kv) {
    struct lp_bytes *to = kv->type == LP_GGUF_ARRAY
                              ? begin_array(w, kv->key, kv->element_type, kv->count)
                              : begin(w, kv->key, kv->type);
    if (!to) return;
    if (kv->element_type == LP_GGUF_STRING)
        for (uint64_t i = 0; i < kv->count; i++) put_string(to, kv->strings[i]);
    else
        lp_bytes_append(to, kv->data, (size_t)kv->count * lp_gguf_value_bytes(kv->element_type));
    end(w, to);
}

// Later pairs move up, so the map is made anew: removing is rare.
void lp_gguf_writer_remove(struct lp_gguf_writer *w, const char *key) {
    struct pair *pair = find(w, key);
    if (!pair || w->err.status) return;
    lp_map_release(&w->keys);
    release_pair(pair);
    w->n_pairs--;
    memmove(pair, pair + 1, (size_t)(w->pairs + w->n_pairs - pair) * sizeof *pair);
    for (size_t i = 0; i < w->n_pairs && !w->err.status; i++)
        if (!lp_map_add(&w->keys, lp_str_from(w->pairs[i].key), (uint32_t)i, NULL))
            lp_err_memory(&w->err, 0, "metadata");
}

bool lp_gguf_writer_has(const struct lp_gguf_writer *w, const char *key) {
    return find(w, key) != NULL;
}

// ---- tensors

static lp_status size_of(struct tensor *t, struct lp_str name, struct lp_err *err) {
    const struct lp_type_info *info = lp_type_info((uint32_t)t->type);
    uint64_t product = 1;
    if (!info || t->n_dims < 1 || t->n_dims > 4)
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "tensor %.*s has type %d and %u dimensions, expected a known type and 1 "
                          "to 4 dimensions",
                          LP_STR_ARGS(name), (int)t->type, t->n_dims);
    bool fits = true;
    for (uint32_t d = 0; d < t->n_dims && fits; d++)
        fits = t->ne[d] > 0 && lp_mul_u64(product, t->ne[d], &product) && product <= INT64_MAX;
    if (fits && t->ne[0] % info->block_values)
        return lp_err_set(
            err, LP_STATUS_FORMAT,
            "tensor %.*s has rows of %llu values, which %s (blocks of %u) cannot hold",
            LP_STR_ARGS(name), (unsigned long long)t->ne[0], info->name, info->block_values);
    if (!fits || !lp_mul_u64(product / info->block_values, info->block_bytes, &t->n_bytes) ||
        t->n_bytes > INT64_MAX)
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "tensor %.*s has a dimension of 0, or 2^63 values or bytes or more",
                          LP_STR_ARGS(name));
    return LP_OK;
}

lp_status lp_gguf_writer_add(struct lp_gguf_writer *w, struct lp_str name, lp_type type,
                             uint32_t n_dims, const uint64_t *ne, struct lp_err *err) {
    struct tensor t = {.type = type, .n_dims = n_dims};
    uint32_t old;
    if (name.len == 0 || name.len > LP_GGUF_MAX_NAME_BYTES || memchr(name.data, 0, name.len))
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "tensor name '%.*s' is empty, longer than %u bytes or holds a NUL byte",
                          LP_STR_ARGS(name), LP_GGUF_MAX_NAME_BYTES);
    if (w->n_tensors >= LP_GGUF_MAX_TENSORS)
        return lp_err_set(err, LP_STATUS_LIMIT, "more than %u tensors", LP_GGUF_MAX_TENSORS);
    for (uint32_t d = 0; d < n_dims && d < 4; d++) t.ne[d] = ne[d];
    lp_status status = size_of(&t, name, err);
    if (status) return status;
    t.name = lp_strndup(name.data, name.len);
    struct lp_str own = {t.name, name.len};
    if (!t.name || !LP_GROW(w->tensors, w->tensors_capacity, w->n_tensors + 1) ||
        !lp_map_add(&w->names, own, (uint32_t)w->n_tensors, &old)) {
        lp_free(t.name);
        return lp_err_memory(err, 0, "the tensor directory");
    }
    if (old != LP_MAP_NONE) {
        lp_free(t.name);
        return lp_err_set(err, LP_STATUS_FORMAT, "tensor %.*s would be in the file twice",
                          LP_STR_ARGS(name));
    }
    w->tensors[w->n_tensors++] = t;
    return LP_OK;
}

uint64_t lp_gguf_writer_n_tensors(const struct lp_gguf_writer *w) {
    return w->n_tensors;
}

// ---- the header

static lp_status set_alignment(struct lp_gguf_writer *w, struct lp_err *err) {
    const struct pair *pair = find(w, "general.alignment");
    if (!pair) return LP_OK;
    const struct lp_bytes *value = &pair->value; // type, u32
    if (value->len == 8) memcpy(&w->alignment, value->data + 4, 4);
    uint32_t a = w->alignment;
    if (value->len == 8 && a >= LP_GGUF_MIN_ALIGNMENT && a <= LP_GGUF_MAX_ALIGNMENT &&
        (a & (a - 1)) == 0)
        return LP_OK;
    return lp_err_set(err, LP_STATUS_INVALID,
                      "general.alignment is %u, expected a u32, a power of two from %u to %u", a,
                      LP_GGUF_MIN_ALIGNMENT, LP_GGUF_MAX_ALIGNMENT);
}

static lp_status place_tensors(struct lp_gguf_writer *w, struct lp_err *err) {
    for (size_t i = 0; i < w->n_tensors; i++) {
        uint64_t padded;
        w->tensors[i].offset = w->data_bytes;
        if (!lp_align_u64(w->tensors[i].n_bytes, w->alignment, &padded) ||
            !lp_add_u64(w->data_bytes, padded, &w->data_bytes) || w->data_bytes > INT64_MAX / 2)
            return lp_err_set(err, LP_STATUS_FORMAT,
                              "the tensors together have 2^62 bytes or more");
    }
    return LP_OK;
}

static void encode(struct lp_gguf_writer *w) {
    struct lp_bytes *to = &w->header;
    uint64_t n_tensors = w->n_tensors, n_kv = w->n_pairs;
    lp_bytes_append(to, "GGUF", 4);
    lp_bytes_append(to, &w->version, 4);
    lp_bytes_append(to, &n_tensors, 8);
    lp_bytes_append(to, &n_kv, 8);
    for (size_t i = 0; i < w->n_pairs; i++) {
        put_string(to, lp_str_from(w->pairs[i].key));
        lp_bytes_append(to, w->pairs[i].value.data, w->pairs[i].value.len);
    }
    for (size_t i = 0; i < w->n_tensors; i++) {
        const struct tensor *t = &w->tensors[i];
        uint32_t type = (uint32_t)t->type;
        put_string(to, lp_str_from(t->name));
        lp_bytes_append(to, &t->n_dims, 4);
        lp_bytes_append(to, t->ne, 8 * t->n_dims);
        lp_bytes_append(to, &type, 4);
        lp_bytes_append(to, &t->offset, 8);
    }
    while (w->n_tensors && !to->failed && to->len % w->alignment) lp_bytes_append(to, "", 1);
}

lp_status lp_gguf_writer_finish(struct lp_gguf_writer *w, struct lp_err *err) {
    if (w->err.status) return lp_err_set(err, w->err.status, "%s", w->err.text);
    lp_status status = set_alignment(w, err);
    if (!status) status = place_tensors(w, err);
    if (status) return status;
    encode(w);
    return w->header.failed ? lp_err_memory(err, w->header.len, "the header") : LP_OK;
}

struct lp_str lp_gguf_writer_header(const struct lp_gguf_writer *w) {
    return lp_bytes_view(&w->header);
}

uint64_t lp_gguf_writer_offset(const struct lp_gguf_writer *w, uint64_t tensor) {
    return w->header.len + w->tensors[tensor].offset;
}

uint64_t lp_gguf_writer_bytes(const struct lp_gguf_writer *w, uint64_t tensor) {
    return w->tensors[tensor].n_bytes;
}

uint64_t lp_gguf_writer_total(const struct lp_gguf_writer *w) {
    return w->header.len + w->data_bytes;
}
