#include "files/split_keys.h"

#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"

#define ALIGNMENT_KEY "general.alignment"
#define MOST_NAMED 8

static bool is_split_key(struct lp_str key) {
    return lp_str_is(key, LP_SPLIT_NO) || lp_str_is(key, LP_SPLIT_COUNT) ||
           lp_str_is(key, LP_SPLIT_TENSORS) || lp_str_is(key, LP_SPLIT_PADDING);
}

bool lp_split_keys_any(const struct lp_gguf *gguf) {
    return lp_gguf_find(gguf, LP_SPLIT_NO) || lp_gguf_find(gguf, LP_SPLIT_COUNT) ||
           lp_gguf_find(gguf, LP_SPLIT_TENSORS) || lp_gguf_find(gguf, LP_SPLIT_PADDING);
}

uint64_t lp_split_descriptor_bytes(const struct lp_gguf_tensor *t) {
    return 8 + t->name.len + 4 + 8 * (uint64_t)t->n_dims + 4 + 8;
}

struct lp_gguf_writer *lp_split_keys_writer(const struct lp_gguf *gguf) {
    struct lp_gguf_writer *w = lp_gguf_writer_new(lp_gguf_version(gguf));
    for (uint64_t i = 0; w && i < lp_gguf_n_kv(gguf); i++)
        if (!is_split_key(lp_gguf_kv_at(gguf, i)->key))
            lp_gguf_writer_copy(w, lp_gguf_kv_at(gguf, i));
    return w;
}

// ---- the header of one file ----

// The length of the metadata alone: a header without tensors has no padding.
static lp_status metadata_bytes(const struct lp_gguf *gguf, uint64_t *n_bytes, struct lp_err *err) {
    struct lp_gguf_writer *w = lp_split_keys_writer(gguf);
    if (!w) return lp_err_memory(err, 0, "a header");
    lp_status status = lp_gguf_writer_finish(w, err);
    *n_bytes = status ? 0 : lp_gguf_writer_header(w).len;
    lp_gguf_writer_free(w);
    return status;
}

static lp_status write_all_tensors(struct lp_merged_header *m, const struct lp_gguf *gguf,
                                   struct lp_err *err) {
    lp_status status = LP_OK;
    m->writer = lp_split_keys_writer(gguf);
    if (!m->writer) return lp_err_memory(err, 0, "a header");
    for (uint64_t i = 0; !status && i < lp_gguf_n_tensors(gguf); i++) {
        const struct lp_gguf_tensor *t = lp_gguf_tensor_at(gguf, i);
        status = lp_gguf_writer_add(m->writer, t->name, t->type, t->n_dims, t->ne, err);
    }
    return status ? status : lp_gguf_writer_finish(m->writer, err);
}

// Of one file that is no part of a set: what it has there.
static lp_status padding_of_file(struct lp_merged_header *m, struct lp_gguf_source *s,
                                 uint64_t unpadded, struct lp_err *err) {
    uint64_t n = m->padding.len;
    if (!lp_gguf_n_tensors(s->gguf)) n = s->last_end > unpadded ? s->last_end - unpadded : 0;
    if (n >= lp_gguf_alignment(s->gguf, 0))
        return lp_err_set(err, LP_STATUS_IO,
                          "%s was changed while it was read, run the command "
                          "again",
                          lp_gguf_shard_path(s->gguf, 0));
    m->own = lp_alloc((size_t)n, 1);
    if (!m->own) return lp_err_memory(err, (size_t)n, "a header");
    m->padding = (struct lp_str){(const char *)m->own, (size_t)n};
    return lp_gguf_source_read(s, 0, unpadded, m->own, n, err);
}

// Of a set: what part 1 says, if it can be.
static void padding_of_set(struct lp_merged_header *m, const struct lp_gguf *gguf) {
    const struct lp_gguf_kv *kv = lp_gguf_find(gguf, LP_SPLIT_PADDING);
    if (!kv || kv->type != LP_GGUF_ARRAY || kv->element_type != LP_GGUF_U8) return;
    bool fits = lp_gguf_n_tensors(gguf)
                    ? kv->count == m->padding.len
                    : kv->count < lp_gguf_alignment(gguf, 0) -
                                      (m->header.len - 1) % lp_gguf_alignment(gguf, 0);
    if (fits) m->padding = (struct lp_str){(const char *)kv->data, (size_t)kv->count};
}

lp_status lp_merged_header_make(struct lp_merged_header *m, struct lp_gguf_source *s,
                                struct lp_err *err) {
    const struct lp_gguf *gguf = s->gguf;
    uint64_t unpadded = 0;
    *m = (struct lp_merged_header){0};
    lp_status status = metadata_bytes(gguf, &unpadded, err);
    if (!status) status = write_all_tensors(m, gguf, err);
    if (status) return status;
    for (uint64_t i = 0; i < lp_gguf_n_tensors(gguf); i++)
        unpadded += lp_split_descriptor_bytes(lp_gguf_tensor_at(gguf, i));
    struct lp_str all = lp_gguf_writer_header(m->writer);
    m->header = (struct lp_str){all.data, (size_t)unpadded};
    struct lp_str usual = {all.data + unpadded, all.len - (size_t)unpadded};
    m->padding = usual;
    if (lp_gguf_n_shards(gguf) == 1 && !lp_split_keys_any(gguf))
        status = padding_of_file(m, s, unpadded, err);
    else
        padding_of_set(m, gguf);
    m->odd_padding = !lp_str_equal(m->padding, usual);
    return status;
}

void lp_merged_header_release(struct lp_merged_header *m) {
    lp_gguf_writer_free(m->writer);
    lp_free(m->own);
    *m = (struct lp_merged_header){0};
}

// ---- metadata of later parts ----

static void compare_part(const struct lp_gguf *all, const struct lp_gguf *part, const char *path,
                         uint64_t *n) {
    for (uint64_t i = 0; i < lp_gguf_n_kv(part); i++) {
        const struct lp_gguf_kv *kv = lp_gguf_kv_at(part, i);
        if (is_split_key(kv->key) || lp_str_is(kv->key, ALIGNMENT_KEY)) continue;
        const struct lp_gguf_kv *first = lp_gguf_find_key(all, kv->key);
        if (first && lp_gguf_same_value(first, kv)) continue;
        if ((*n)++ < MOST_NAMED)
            lp_log(LP_LOG_WARN, "%s: key %.*s %s; part 1's metadata is kept", path,
                   LP_STR_ARGS(kv->key),
                   first ? "has another value than in part 1" : "is not in part 1");
    }
}

lp_status lp_split_keys_compare(const struct lp_gguf *gguf, struct lp_err *err) {
    uint64_t n = 0;
    for (uint32_t i = 1; i < lp_gguf_n_shards(gguf); i++) {
        struct lp_mapped map;
        struct lp_gguf *part;
        const char *path = lp_gguf_shard_path(gguf, i);
        lp_status status = lp_mapped_open(&map, path, err);
        if (status) return status;
        status = lp_gguf_parse(&part, map.data, map.n_bytes, path, err);
        if (!status) compare_part(gguf, part, path, &n);
        lp_gguf_close(part);
        lp_mapped_close(&map);
        if (status) return status;
    }
    if (n > MOST_NAMED)
        lp_log(LP_LOG_WARN, "%llu more keys of later parts differ from part 1's or are not there",
               (unsigned long long)(n - MOST_NAMED));
    return LP_OK;
}
