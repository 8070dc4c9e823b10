// Reading importance matrices. Entries stay where the file is mapped.
#include <float.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/grow.h"
#include "base/map.h"
#include "files/imatrix.h"
#include "gguf/gguf.h"

#define MAX_NAME_BYTES 1024

struct lp_imatrix {
    struct lp_mapped file;
    struct lp_gguf *gguf; // or NULL: the older form
    const char *from;     // for messages, while it is read
    struct lp_imatrix_entry *entries;
    size_t n, capacity;
    struct lp_map by_name;
    struct lp_str dataset;
    uint32_t n_chunks;
};

static float float_at(const uint8_t *values, uint64_t i) {
    float v;
    memcpy(&v, values + i * sizeof v, sizeof v);
    return v;
}

static lp_status add(struct lp_imatrix *m, const struct lp_imatrix_entry *e, struct lp_err *err) {
    uint32_t old;
    if (!LP_GROW(m->entries, m->capacity, m->n + 1) ||
        !lp_map_add(&m->by_name, e->name, (uint32_t)m->n, &old))
        return lp_err_memory(err, m->n * sizeof *m->entries, "the importance matrix");
    if (old != LP_MAP_NONE)
        return lp_err_set(err, LP_STATUS_FORMAT, "%s: there are two entries for %.*s", m->from,
                          LP_STR_ARGS(e->name));
    m->entries[m->n++] = *e;
    return LP_OK;
}

// ---- GGUF

static bool cut_suffix(struct lp_str name, const char *suffix, struct lp_str *stem) {
    size_t n = strlen(suffix);
    if (name.len <= n || memcmp(name.data + name.len - n, suffix, n) != 0) return false;
    *stem = (struct lp_str){name.data, name.len - n};
    return true;
}

static uint64_t n_values(const struct lp_gguf_tensor *t) {
    return t->n_bytes / sizeof(float);
}

static lp_status add_gguf(struct lp_imatrix *m, const struct lp_gguf_tensor *sums,
                          struct lp_str stem, struct lp_err *err) {
    char name[96];
    struct lp_str counts_name = {name, stem.len + strlen(".counts")};
    if (counts_name.len >= sizeof name)
        return lp_err_set(err, LP_STATUS_FORMAT, "%s: the name %.*s is too long", m->from,
                          LP_STR_ARGS(stem));
    memcpy(name, stem.data, stem.len);
    memcpy(name + stem.len, ".counts", strlen(".counts"));
    const struct lp_gguf_tensor *counts = lp_gguf_find_tensor(m->gguf, counts_name);
    if (!counts)
        return lp_err_set(err, LP_STATUS_FORMAT, "%s: %.*s.in_sum2 is there without its .counts",
                          m->from, LP_STR_ARGS(stem));
    if (sums->type != LP_TYPE_F32 || counts->type != LP_TYPE_F32)
        return lp_err_set(err, LP_STATUS_FORMAT, "%s: %.*s is %s with counts of %s, expected F32",
                          m->from, LP_STR_ARGS(stem), lp_type_info((uint32_t)sums->type)->name,
                          lp_type_info((uint32_t)counts->type)->name);
    if (n_values(sums) % n_values(counts) != 0)
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "%s: %.*s has %llu sums for %llu counts, which do not divide them",
                          m->from, LP_STR_ARGS(stem), (unsigned long long)n_values(sums),
                          (unsigned long long)n_values(counts));
    return add(m,
               &(struct lp_imatrix_entry){.name = stem,
                                          .n_values = n_values(sums),
                                          .n_counts = n_values(counts),
                                          .sums = sums->data,
                                          .counts = counts->data},
               err);
}

static lp_status read_about(struct lp_imatrix *m, struct lp_err *err) {
    struct lp_str type = {0};
    uint64_t chunks = 0;
    bool found;
    lp_status status = lp_gguf_get_str(m->gguf, "general.type", &type, &found, err);
    if (status) return lp_err_context(err, "%s", m->from);
    if (found ? !lp_str_is(type, "imatrix") : !lp_gguf_find(m->gguf, "imatrix.chunk_count"))
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "%s: general.type is '%.*s', expected imatrix; limpid imatrix makes one",
                          m->from, LP_STR_ARGS(type));
    status = lp_gguf_get_u64(m->gguf, "imatrix.chunk_count", UINT32_MAX, &chunks, &found, err);
    if (status) return lp_err_context(err, "%s", m->from);
    m->n_chunks = (uint32_t)chunks;
    const struct lp_gguf_kv *sets = lp_gguf_find(m->gguf, "imatrix.datasets");
    if (sets && sets->strings && sets->count > 0) m->dataset = sets->strings[sets->count - 1];
    return LP_OK;
}

static lp_status read_gguf(struct lp_imatrix *m, const uint8_t *data, uint64_t n_bytes,
                           struct lp_err *err) {
    lp_status status = lp_gguf_parse(&m->gguf, data, n_bytes, m->from, err);
    if (!status) status = read_about(m, err);
    for (uint64_t i = 0; !status && i < lp_gguf_n_tensors(m->gguf); i++) {
        const struct lp_gguf_tensor *t = lp_gguf_tensor_at(m->gguf, i);
        struct lp_str stem;
        if (cut_suffix(t->name, ".in_sum2", &stem)) status = add_gguf(m, t, stem, err);
    }
    return status;
}

// ---- the older form

struct cursor {
    const uint8_t *at;
    uint64_t left;
};

static bool take_i32(struct cursor *c, int32_t *out) {
    if (c->left < sizeof *out) return false;
    memcpy(out, c->at, sizeof *out);
    c->at += sizeof *out;
    c->left -= sizeof *out;
    return true;
}

static bool take_bytes(struct cursor *c, uint64_t n, const uint8_t **out) {
    if (n > c->left) return false;
    *out = c->at;
    c->at += n;
    c->left -= n;
    return true;
}

static lp_status no_imatrix(const struct lp_imatrix *m, struct lp_err *err, const char *what,
                            long long value) {
    return lp_err_set(err, LP_STATUS_FORMAT,
                      "%s is no importance matrix: it does not begin with GGUF, and as the older "
                      "form, entry %zu has %s %lld",
                      m->from, m->n + 1, what, value);
}

static lp_status cut_off(const struct lp_imatrix *m, struct lp_err *err) {
    return lp_err_set(err, LP_STATUS_FORMAT,
                      "%s ends inside entry %zu; it was cut off, or is no "
                      "importance matrix",
                      m->from, m->n + 1);
}

static lp_status read_entry(struct lp_imatrix *m, struct cursor *c, struct lp_err *err) {
    struct lp_imatrix_entry e = {.n_counts = 1};
    int32_t len, values;
    const uint8_t *name;
    if (!take_i32(c, &len)) return cut_off(m, err);
    if (len < 1 || len > MAX_NAME_BYTES) return no_imatrix(m, err, "a name of bytes", len);
    if (!take_bytes(c, (uint64_t)len, &name) || !take_i32(c, &e.n_calls) || !take_i32(c, &values))
        return cut_off(m, err);
    if (values < 1) return no_imatrix(m, err, "a number of values", values);
    e.name = (struct lp_str){(const char *)name, (size_t)len};
    e.n_values = (uint64_t)values;
    if (!take_bytes(c, e.n_values * sizeof(float), &e.sums)) return cut_off(m, err);
    return add(m, &e, err);
}

static lp_status read_older(struct lp_imatrix *m, const uint8_t *data, uint64_t n_bytes,
                            struct lp_err *err) {
    struct cursor c = {data, n_bytes};
    int32_t n, chunks, len;
    const uint8_t *dataset;
    if (!take_i32(&c, &n)) return cut_off(m, err);
    if (n < 1)
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "%s is no importance matrix: it does not begin with GGUF, and as the "
                          "older form it has %d entries",
                          m->from, n);
    for (int32_t i = 0; i < n; i++) {
        lp_status status = read_entry(m, &c, err);
        if (status) return status;
    }
    if (!take_i32(&c, &chunks)) return LP_OK;
    m->n_chunks = chunks > 0 ? (uint32_t)chunks : 0;
    if (take_i32(&c, &len) && len > 0 && take_bytes(&c, (uint64_t)len, &dataset))
        m->dataset = (struct lp_str){(const char *)dataset, (size_t)len};
    return LP_OK;
}

// ---- both

lp_status lp_imatrix_parse(struct lp_imatrix **out, const uint8_t *data, uint64_t n_bytes,
                           const char *name, struct lp_err *err) {
    struct lp_imatrix *m = lp_alloc(1, sizeof *m);
    *out = NULL;
    if (!m) return lp_err_memory(err, sizeof *m, "the importance matrix");
    m->from = name;
    bool is_gguf = n_bytes >= 4 && memcmp(data, "GGUF", 4) == 0;
    lp_status status =
        is_gguf ? read_gguf(m, data, n_bytes, err) : read_older(m, data, n_bytes, err);
    if (!status && m->n == 0)
        status =
            lp_err_set(err, LP_STATUS_FORMAT, "%s: the importance matrix has no entries", name);
    m->from = NULL;
    if (status) {
        lp_imatrix_close(m);
        m = NULL;
    }
    *out = m;
    return status;
}

lp_status lp_imatrix_open(struct lp_imatrix **out, const char *path, struct lp_err *err) {
    struct lp_mapped file;
    *out = NULL;
    lp_status status = lp_mapped_open(&file, path, err);
    if (status) return status;
    status = lp_imatrix_parse(out, file.data, file.n_bytes, path, err);
    if (status)
        lp_mapped_close(&file);
    else
        (*out)->file = file;
    return status;
}

void lp_imatrix_close(struct lp_imatrix *m) {
    if (!m) return;
    lp_gguf_close(m->gguf);
    lp_map_release(&m->by_name);
    lp_mapped_close(&m->file);
    lp_free(m->entries);
    lp_free(m);
}

uint64_t lp_imatrix_n_entries(const struct lp_imatrix *m) {
    return m->n;
}

const struct lp_imatrix_entry *lp_imatrix_at(const struct lp_imatrix *m, uint64_t i) {
    return &m->entries[i];
}

const struct lp_imatrix_entry *lp_imatrix_find(const struct lp_imatrix *m, struct lp_str name) {
    uint32_t i = lp_map_get(&m->by_name, name);
    return i == LP_MAP_NONE ? NULL : &m->entries[i];
}

struct lp_str lp_imatrix_dataset(const struct lp_imatrix *m) {
    return m->dataset;
}

uint32_t lp_imatrix_n_chunks(const struct lp_imatrix *m) {
    return m->n_chunks;
}

bool lp_imatrix_fits(const struct lp_imatrix_entry *e, uint64_t n_in, uint64_t n_mats) {
    if (e->n_values == n_in) return e->n_counts == 1; // of one matrix
    return e->n_values % n_mats == 0 && e->n_values / n_mats == n_in &&
           (e->n_counts == 1 || e->n_counts == n_mats);
}

static lp_status check_floats(const struct lp_imatrix_entry *e, const char *what,
                              const uint8_t *values, uint64_t n, struct lp_err *err) {
    for (uint64_t i = 0; i < n; i++) {
        float v = float_at(values, i);
        if (v >= 0 && v <= FLT_MAX) continue;
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "the importance matrix has the %s %g for %.*s (number %llu), expected 0 "
                          "or more; it is damaged, collect it again",
                          what, (double)v, LP_STR_ARGS(e->name), (unsigned long long)i);
    }
    return LP_OK;
}

lp_status lp_imatrix_check(const struct lp_imatrix_entry *e, struct lp_err *err) {
    lp_status status = check_floats(e, "sum", e->sums, e->n_values, err);
    return status || !e->counts ? status : check_floats(e, "count", e->counts, e->n_counts, err);
}

static double count_of(const struct lp_imatrix_entry *e, uint64_t mat) {
    if (!e->counts) return e->n_calls > 0 ? e->n_calls : 1;
    return float_at(e->counts, e->n_counts == 1 ? 0 : mat);
}

bool lp_imatrix_means(const struct lp_imatrix_entry *e, uint64_t n_in, uint64_t n_mats,
                      uint64_t mat, float *out) {
    bool shared = e->n_values == n_in && n_mats > 1;
    const uint8_t *sums = e->sums + (shared ? 0 : mat * n_in * sizeof(float));
    double count = count_of(e, shared ? 0 : mat);
    if (!(count > 0)) return false;
    for (uint64_t i = 0; i < n_in; i++) {
        double mean = float_at(sums, i) / count;
        if (!(mean >= 0) || !(mean <= FLT_MAX)) return false;
        out[i] = (float)mean;
    }
    return true;
}
