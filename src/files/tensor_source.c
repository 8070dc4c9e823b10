#include "files/tensor_source.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "files/gguf_slice.h"
#include "hf/hf.h"

// ---- GGUF

static lp_status open_parts(struct lp_source *s, struct lp_err *err) {
    uint32_t n = lp_gguf_n_shards(s->gguf);
    s->fds = lp_alloc(n, sizeof *s->fds);
    s->parts = lp_gguf_source_paths(s->gguf);
    if (!s->fds || !s->parts) return lp_err_memory(err, n * sizeof *s->parts, "the parts");
    s->inputs = s->parts;
    s->n_inputs = n;
    for (; s->n_fds < n; s->n_fds++) {
        int fd = open(s->parts[s->n_fds], O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            return lp_err_set(err, LP_STATUS_IO, "cannot open %s: %s", s->parts[s->n_fds],
                              strerror(errno));
        s->fds[s->n_fds] = fd;
    }
    return LP_OK;
}

static lp_status copy_keys(struct lp_source *s, struct lp_err *err) {
    s->writer = lp_gguf_writer_new(3);
    if (!s->writer) return lp_err_memory(err, 0, "the metadata");
    for (uint64_t i = 0; i < lp_gguf_n_kv(s->gguf); i++) {
        const struct lp_gguf_kv *kv = lp_gguf_kv_at(s->gguf, i);
        bool split = kv->key.len > 6 && memcmp(kv->key.data, "split.", 6) == 0;
        if (!split) lp_gguf_writer_copy(s->writer, kv);
    }
    return LP_OK;
}

// NAME.weight and NAME.scale
static lp_status find_factors(const struct lp_source *s, struct lp_source_tensor *t,
                              struct lp_err *err) {
    char name[96];
    if (t->name.len < 8 || t->name.len >= sizeof name ||
        memcmp(t->name.data + t->name.len - 7, ".weight", 7) != 0)
        return LP_OK;
    memcpy(name, t->name.data, t->name.len - 7);
    memcpy(name + t->name.len - 7, ".scale", 6);
    const struct lp_gguf_tensor *f =
        lp_gguf_find_tensor(s->gguf, (struct lp_str){name, t->name.len - 1});
    if (!f) return LP_OK;
    uint64_t n = f->n_bytes / sizeof(float), n_mats = t->ne[2] * t->ne[3];
    if (f->type != LP_TYPE_F32 || (n != 1 && n != n_mats))
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "tensor %.*s has %llu values of %s, expected F32, one for each of the "
                          "%llu matrices of its .weight",
                          LP_STR_ARGS(f->name), (unsigned long long)n,
                          lp_type_info((uint32_t)f->type)->name, (unsigned long long)n_mats);
    t->factors = f->data;
    t->n_factors = n;
    t->has_factor = true;
    return LP_OK;
}

static lp_status list_gguf(struct lp_source *s, struct lp_err *err) {
    lp_status status = LP_OK;
    for (uint64_t i = 0; i < s->n_tensors && !status; i++) {
        const struct lp_gguf_tensor *g = lp_gguf_tensor_at(s->gguf, i);
        struct lp_source_tensor *t = &s->tensors[i];
        *t = (struct lp_source_tensor){.name = g->name,
                                       .type = g->type,
                                       .n_dims = g->n_dims,
                                       .n_rows = g->ne[1] * g->ne[2] * g->ne[3],
                                       .of = g};
        memcpy(t->ne, g->ne, sizeof t->ne);
        t->row_bytes = g->n_bytes / t->n_rows;
        status = find_factors(s, t, err);
    }
    return status;
}

static lp_status open_gguf(struct lp_source *s, const char *path, struct lp_err *err) {
    lp_status status = lp_gguf_open(&s->gguf, path, err);
    if (!status) status = open_parts(s, err);
    if (!status) status = copy_keys(s, err);
    if (status) return status;
    s->n_tensors = lp_gguf_n_tensors(s->gguf);
    s->tensors = lp_alloc(s->n_tensors, sizeof *s->tensors);
    if (!s->tensors) return lp_err_memory(err, s->n_tensors * sizeof *s->tensors, "the tensors");
    return list_gguf(s, err);
}

// Reads, and has the kernel read what comes a few pieces later.
static lp_status read_part(const struct lp_source *s, const struct lp_gguf_tensor *g,
                           uint64_t offset, uint8_t *out, uint64_t n, struct lp_err *err) {
    int fd = s->fds[g->shard];
    off_t at = (off_t)(g->file_offset + offset);
    posix_fadvise(fd, at + (off_t)n, (off_t)(4 * n), POSIX_FADV_WILLNEED);
    while (n > 0) {
        ssize_t got = pread(fd, out, n, at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0)
            return lp_err_set(err, LP_STATUS_IO, "cannot read %s: %s", s->parts[g->shard],
                              got < 0 ? strerror(errno) : "it has become shorter");
        out += got;
        at += got;
        n -= (uint64_t)got;
    }
    return LP_OK;
}

static void multiply(const struct lp_source_tensor *t, uint64_t first, uint64_t n, float *out) {
    for (uint64_t r = 0; r < n; r++) {
        float factor;
        uint64_t mat = t->n_factors == 1 ? 0 : (first + r) / t->ne[1];
        memcpy(&factor, t->factors + mat * sizeof factor, sizeof factor);
        for (uint64_t i = 0; i < t->ne[0]; i++) out[r * t->ne[0] + i] *= factor;
    }
}

// ---- folder

static lp_status open_folder(struct lp_source *s, const char *path, struct lp_err *err) {
    s->folder = lp_alloc(1, sizeof *s->folder);
    if (!s->folder) return lp_err_memory(err, sizeof *s->folder, "the folder");
    lp_status status =
        lp_hf_plan_make(s->folder, path, &(struct lp_hf_plan_options){.for_file = true}, err);
    if (!status) status = lp_folder_files_list(&s->files, path, err);
    if (status) return status;
    s->inputs = (const char *const *)s->files.paths;
    s->n_inputs = (uint32_t)s->files.n;
    s->writer = s->folder->writer;
    s->n_tensors = s->folder->n_tensors;
    s->tensors = lp_alloc(s->n_tensors, sizeof *s->tensors);
    if (!s->tensors) return lp_err_memory(err, s->n_tensors * sizeof *s->tensors, "the tensors");
    for (uint64_t i = 0; i < s->n_tensors; i++) {
        const struct lp_hf_tensor *h = &s->folder->tensors[i];
        struct lp_source_tensor *t = &s->tensors[i];
        *t = (struct lp_source_tensor){.name = lp_str_from(h->name),
                                       .type = h->keep_f32 ? LP_TYPE_F32 : h->source_type,
                                       .n_dims = h->n_dims,
                                       .ne = {1, 1, 1, 1},
                                       .of = h};
        memcpy(t->ne, h->ne, h->n_dims * sizeof *t->ne);
        t->n_rows = t->ne[1] * t->ne[2] * t->ne[3];
        if (!lp_type_row_bytes(t->type, t->ne[0], &t->row_bytes))
            return lp_err_set(err, LP_STATUS_FORMAT, "tensor %s: rows of %llu values cannot be %s",
                              h->name, (unsigned long long)t->ne[0],
                              lp_type_info((uint32_t)t->type)->name);
    }
    return LP_OK;
}

// ---- both

lp_status lp_source_open(struct lp_source *out, const char *path, struct lp_err *err) {
    *out = (struct lp_source){0};
    lp_status status =
        lp_hf_is_folder(path) ? open_folder(out, path, err) : open_gguf(out, path, err);
    if (status) return status;
    if (!lp_map_reserve(&out->by_name, out->n_tensors))
        return lp_err_memory(err, out->n_tensors * 16, "the tensors' names");
    for (uint64_t i = 0; i < out->n_tensors; i++) {
        const struct lp_source_tensor *t = &out->tensors[i];
        out->n_bytes += t->row_bytes * t->n_rows;
        if (!lp_map_add(&out->by_name, t->name, (uint32_t)i, NULL))
            return lp_err_memory(err, out->n_tensors * 16, "the tensors' names");
    }
    return LP_OK;
}

void lp_source_release(struct lp_source *s) {
    for (uint32_t i = 0; i < s->n_fds; i++) close(s->fds[i]);
    if (s->folder)
        lp_hf_plan_release(s->folder); // the writer is the plan's
    else
        lp_gguf_writer_free(s->writer);
    lp_free(s->folder);
    lp_gguf_close(s->gguf);
    lp_map_release(&s->by_name);
    lp_free(s->tensors);
    lp_free(s->parts);
    lp_folder_files_release(&s->files);
    lp_free(s->fds);
    *s = (struct lp_source){0};
}

const struct lp_source_tensor *lp_source_find(const struct lp_source *s, struct lp_str name) {
    uint32_t i = lp_map_get(&s->by_name, name);
    return i == LP_MAP_NONE ? NULL : &s->tensors[i];
}

lp_status lp_source_pack(const struct lp_source *s, const struct lp_source_tensor *t,
                         uint64_t first, uint64_t n, void *out, struct lp_err *err) {
    if (s->folder) return lp_hf_tensor_pack(s->folder, t->of, (int64_t)first, (int64_t)n, out, err);
    return read_part(s, t->of, first * t->row_bytes, out, n * t->row_bytes, err);
}

lp_status lp_source_rows(const struct lp_source *s, const struct lp_source_tensor *t,
                         uint64_t first, uint64_t n, float *out, void *scratch,
                         struct lp_err *err) {
    if (s->folder)
        return lp_hf_tensor_rows(s->folder, t->of, (int64_t)first, (int64_t)n, true, out, err);
    lp_status status = lp_source_pack(s, t, first, n, scratch, err);
    if (status) return status;
    lp_type_info((uint32_t)t->type)->dequant(scratch, out, (size_t)(n * t->ne[0]));
    if (t->factors) multiply(t, first, n, out);
    return LP_OK;
}

void lp_source_forget(const struct lp_source *s, const struct lp_source_tensor *t) {
    if (s->folder) lp_hf_tensor_forget(t->of);
}
