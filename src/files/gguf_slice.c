#include "files/gguf_slice.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/checked.h"

// ---- the source ----

static lp_status open_part(struct lp_gguf_source *s, uint32_t shard, struct lp_err *err) {
    struct stat st;
    const char *path = lp_gguf_shard_path(s->gguf, shard);
    if (s->fd >= 0 && s->shard == shard) return LP_OK;
    if (s->fd >= 0) close(s->fd);
    s->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (s->fd < 0 || fstat(s->fd, &st))
        return lp_err_set(err, LP_STATUS_IO, "cannot open %s: %s", path, strerror(errno));
    posix_fadvise(s->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    s->shard = shard;
    s->fd_bytes = (uint64_t)st.st_size;
    return LP_OK;
}

lp_status lp_gguf_source_open(struct lp_gguf_source *s, const struct lp_gguf *gguf,
                              struct lp_err *err) {
    *s = (struct lp_gguf_source){.gguf = gguf, .fd = -1};
    lp_status status = open_part(s, lp_gguf_n_shards(gguf) - 1, err);
    s->last_end = s->fd_bytes;
    return status;
}

void lp_gguf_source_close(struct lp_gguf_source *s) {
    if (s->gguf && s->fd >= 0) close(s->fd);
    *s = (struct lp_gguf_source){.fd = -1};
}

const char **lp_gguf_source_paths(const struct lp_gguf *gguf) {
    const char **paths = lp_alloc(lp_gguf_n_shards(gguf), sizeof *paths);
    for (uint32_t i = 0; paths && i < lp_gguf_n_shards(gguf); i++)
        paths[i] = lp_gguf_shard_path(gguf, i);
    return paths;
}

lp_status lp_gguf_source_read(struct lp_gguf_source *s, uint32_t shard, uint64_t offset, void *out,
                              uint64_t n, struct lp_err *err) {
    lp_status status = open_part(s, shard, err);
    for (uint64_t got = 0; !status && got < n;) {
        ssize_t m = pread(s->fd, (char *)out + got, (size_t)(n - got), (off_t)(offset + got));
        if (m < 0 && errno == EINTR) continue;
        if (m <= 0)
            status =
                lp_err_set(err, LP_STATUS_IO, "cannot read %s at byte %llu: %s",
                           lp_gguf_shard_path(s->gguf, shard), (unsigned long long)(offset + got),
                           m < 0 ? strerror(errno) : "the file ends there");
        else
            got += (uint64_t)m;
    }
    return status;
}

// ---- sizes ----

// What a tensor takes in the slice. The sums were checked when the sources were opened, and another
// alignment adds less than 64 KiB to each of at most 2^20 tensors.
static uint64_t tensor_bytes(const struct lp_gguf_source *s, const struct lp_gguf_slice *slice,
                             uint64_t i) {
    const struct lp_gguf_tensor *t = lp_gguf_tensor_at(s->gguf, i);
    uint64_t bytes = lp_pad_u64(t->n_bytes, slice->alignment);
    bool last = i + 1 == lp_gguf_n_tensors(s->gguf);
    if (!last || lp_gguf_alignment(s->gguf, t->shard) != slice->alignment ||
        t->shard + 1 != lp_gguf_n_shards(s->gguf))
        return bytes;
    uint64_t there = s->last_end - t->file_offset;
    if (there < t->n_bytes) return t->n_bytes; // cut off meanwhile: reading it will say so
    return there < bytes ? there : bytes;
}

uint64_t lp_gguf_slice_bytes(const struct lp_gguf_source *s, const struct lp_gguf_slice *slice) {
    uint64_t bytes = slice->header.len + slice->padding.len;
    for (uint64_t i = 0; i < slice->n_tensors; i++)
        bytes += tensor_bytes(s, slice, slice->first + i);
    return bytes;
}

// ---- writing ----

struct writer {
    struct lp_gguf_source *source;
    const struct lp_gguf_slice *slice;
    struct lp_new_file *file;
    struct lp_progress *bar;
    uint64_t base, done; // done: bytes that were there before
    uint64_t at;         // of the file
};

static void tell(const struct writer *w) {
    lp_progress_update(w->bar, w->base + (w->at > w->done ? w->at : w->done));
}

// How much of the next n bytes is there already.
static uint64_t skipped(const struct writer *w, uint64_t n) {
    if (w->at >= w->done) return 0;
    return n < w->done - w->at ? n : w->done - w->at;
}

static lp_status put_bytes(struct writer *w, const void *data, uint64_t n, struct lp_err *err) {
    uint64_t skip = skipped(w, n);
    lp_status status = LP_OK;
    if (skip < n)
        status = lp_new_file_write(w->file, w->at + skip, (const char *)data + skip, n - skip, err);
    w->at += n;
    tell(w);
    return status;
}

static lp_status put_zeros(struct writer *w, uint64_t n, struct lp_err *err) {
    static const char zeros[4096];
    lp_status status = LP_OK;
    while (!status && n > 0) {
        uint64_t piece = n < sizeof zeros ? n : sizeof zeros;
        status = put_bytes(w, zeros, piece, err);
        n -= piece;
    }
    return status;
}

static lp_status put_source(struct writer *w, uint64_t offset, uint64_t n, struct lp_err *err) {
    const char *path = lp_gguf_shard_path(w->source->gguf, w->source->shard);
    lp_status status = LP_OK;
    uint64_t skip = skipped(w, n);
    w->at += skip, offset += skip, n -= skip;
    while (!status && n > 0) {
        uint64_t piece = n < LP_NEW_FILE_BUFFER_BYTES ? n : LP_NEW_FILE_BUFFER_BYTES;
        status = lp_new_file_copy(w->file, w->at, w->source->fd, offset, piece, path, err);
        w->at += piece, offset += piece, n -= piece;
        tell(w);
    }
    return status;
}

// Tensors from `i` on that lie in the source as they will in the slice; returns the one behind.
static uint64_t run_end(const struct writer *w, uint64_t i, uint64_t end) {
    const struct lp_gguf *gguf = w->source->gguf;
    uint32_t shard = lp_gguf_tensor_at(gguf, i)->shard;
    if (lp_gguf_alignment(gguf, shard) != w->slice->alignment) return i + 1;
    while (i < end && lp_gguf_tensor_at(gguf, i)->shard == shard) i++;
    return i;
}

static lp_status put_run(struct writer *w, uint64_t i, uint64_t end, struct lp_err *err) {
    const struct lp_gguf *gguf = w->source->gguf;
    const struct lp_gguf_tensor *first = lp_gguf_tensor_at(gguf, i),
                                *last = lp_gguf_tensor_at(gguf, end - 1);
    lp_status status = open_part(w->source, first->shard, err);
    if (status) return status;
    uint64_t want = 0, data_end = last->file_offset + last->n_bytes;
    for (uint64_t j = i; j < end; j++) want += tensor_bytes(w->source, w->slice, j);
    uint64_t copied = data_end - first->file_offset;
    if (lp_gguf_alignment(gguf, first->shard) == w->slice->alignment &&
        w->source->fd_bytes > data_end) { // the last one's padding, as far as it is there
        uint64_t there = w->source->fd_bytes - first->file_offset;
        copied = want < there ? want : there;
    }
    status = put_source(w, first->file_offset, copied, err);
    return status ? status : put_zeros(w, want - copied, err);
}

lp_status lp_gguf_slice_write(struct lp_gguf_source *s, const struct lp_gguf_slice *slice,
                              struct lp_new_file *f, uint64_t done, struct lp_progress *bar,
                              uint64_t base, struct lp_err *err) {
    struct writer w = {
        .source = s, .slice = slice, .file = f, .bar = bar, .base = base, .done = done};
    uint64_t end = slice->first + slice->n_tensors;
    lp_status status = put_bytes(&w, slice->header.data, slice->header.len, err);
    if (!status) status = put_bytes(&w, slice->padding.data, slice->padding.len, err);
    for (uint64_t i = slice->first, next; !status && i < end; i = next) {
        next = run_end(&w, i, end);
        status = put_run(&w, i, next, err);
    }
    return status;
}
