#include "gguf/gguf_prefetch.h"

#include "base/direct_read.h"
#include "base/huge_pages.h"
#include "base/progress.h"
#include "gguf/gguf_parts.h"

// Of pieces of 1 to 16 MiB and 4 to 64 at once, all from here on gave the full rate of the disk
// (docs/performance.md).
#define PIECE_BYTES ((uint64_t)4 << 20)
#define DEPTH 16

// The data of one part: bytes begin .. end of the file, begin a multiple of LP_DIRECT_ALIGN.
struct span {
    struct lp_direct_file file;
    uint64_t begin, end;
    unsigned char *memory; // [end - begin]
};

struct prefetch {
    struct lp_gguf *gguf;
    struct span *spans; // [n_parts]
    uint32_t part;      // the next piece: of this part
    uint64_t at;        // from this byte of the file
    uint64_t total_bytes, done_bytes;
    struct lp_direct_queue *queue;
    struct lp_direct_read reads[DEPTH];
    struct lp_progress bar;
};

// Fills spans [n_parts]; returns the sum of their bytes.
static uint64_t find_spans(const struct lp_gguf *gguf, struct span *spans) {
    uint64_t total = 0;
    for (uint32_t i = 0; i < gguf->n_parts; i++)
        spans[i] = (struct span){.file.fd = -1, .begin = UINT64_MAX};
    for (uint64_t i = 0; i < gguf->n_tensors; i++) {
        const struct lp_gguf_tensor *t = &gguf->tensors[i];
        struct span *s = &spans[t->shard];
        uint64_t begin = t->file_offset & ~(uint64_t)(LP_DIRECT_ALIGN - 1);
        uint64_t end = t->file_offset + t->n_bytes; // inside the file: checked by the reader
        if (begin < s->begin) s->begin = begin;
        if (end > s->end) s->end = end;
    }
    for (uint32_t i = 0; i < gguf->n_parts; i++) {
        if (spans[i].end == 0) spans[i].begin = 0; // a part without tensors
        total += spans[i].end - spans[i].begin;
    }
    return total;
}

static lp_status check_memory(const struct prefetch *p, uint64_t available, struct lp_err *err) {
    if (p->total_bytes <= available && p->total_bytes <= SIZE_MAX) return LP_OK;
    return lp_err_set(
        err, LP_STATUS_MEMORY,
        "the weights take %.1f GB of memory when they are read ahead, and %.1f GB are "
        "free; without --prefetch the file is mapped and takes none of its own",
        (double)p->total_bytes * 1e-9, (double)available * 1e-9);
}

static lp_status open_part(struct prefetch *p, uint32_t i, bool huge, struct lp_err *err) {
    const struct lp_gguf_part *part = &p->gguf->parts[i];
    struct span *s = &p->spans[i];
    if (s->end == 0) return LP_OK;
    lp_status status = lp_direct_open(&s->file, part->path, err);
    if (status) return status;
    if (s->file.n_bytes != part->n_bytes)
        return lp_err_set(err, LP_STATUS_IO,
                          "%s has %llu bytes and had %llu when it was opened; it is being written",
                          part->path, (unsigned long long)s->file.n_bytes,
                          (unsigned long long)part->n_bytes);
    s->memory = lp_huge_map((size_t)(s->end - s->begin), huge);
    return s->memory ? LP_OK : lp_err_memory(err, (size_t)(s->end - s->begin), part->path);
}

// Submits the next piece through `read`; false: there is none left.
static bool submit_next(struct prefetch *p, struct lp_direct_read *read) {
    while (p->part < p->gguf->n_parts && p->at >= p->spans[p->part].end) {
        p->part++;
        p->at = p->part < p->gguf->n_parts ? p->spans[p->part].begin : 0;
    }
    if (p->part == p->gguf->n_parts) return false;
    const struct span *s = &p->spans[p->part];
    uint64_t n = s->end - p->at < PIECE_BYTES ? s->end - p->at : PIECE_BYTES;
    *read = (struct lp_direct_read){.file = &s->file,
                                    .offset = p->at,
                                    .n_bytes = (size_t)n,
                                    .buffer = s->memory + (p->at - s->begin)};
    p->at += n;
    lp_direct_submit(p->queue, read);
    return true;
}

// By threads, not io_uring: the pages that are read into are made by whoever asks for the read, which
// takes as long as the disk, and of a ring that is one thread.
static lp_status read_all(struct prefetch *p, struct lp_err *err) {
    struct lp_direct_read *done;
    lp_status status = lp_direct_queue_new(&p->queue, DEPTH, LP_DIRECT_POOL, err);
    if (status) return status;
    lp_progress_init(&p->bar, "reading", p->total_bytes);
    p->at = p->spans[0].begin;
    for (int i = 0; i < DEPTH && submit_next(p, &p->reads[i]); i++) continue;
    while (!status && lp_direct_n_pending(p->queue)) {
        status = lp_direct_wait(p->queue, &done, err);
        if (status) break;
        p->done_bytes += done->n_bytes;
        lp_progress_update(&p->bar, p->done_bytes);
        submit_next(p, done);
    }
    lp_direct_queue_free(p->queue); // before the memory that it reads into
    lp_progress_finish(&p->bar);
    return status;
}

// From here on nothing fails.
static void move_tensors(struct prefetch *p) {
    for (uint32_t i = 0; i < p->gguf->n_parts; i++) {
        struct lp_gguf_part *part = &p->gguf->parts[i];
        part->memory = p->spans[i].memory;
        part->memory_bytes = (size_t)(p->spans[i].end - p->spans[i].begin);
        p->spans[i].memory = NULL;
    }
    for (uint64_t i = 0; i < p->gguf->n_tensors; i++) {
        struct lp_gguf_tensor *t = &p->gguf->tensors[i];
        const unsigned char *memory = p->gguf->parts[t->shard].memory;
        t->data = memory + (t->file_offset - p->spans[t->shard].begin);
        t->in_memory = true;
    }
}

lp_status lp_gguf_prefetch(struct lp_gguf *gguf, const struct lp_gguf_prefetch_options *options,
                           struct lp_err *err) {
    struct prefetch *p = lp_alloc(1, sizeof *p);
    if (p) p->spans = lp_alloc(gguf->n_parts, sizeof *p->spans);
    if (!p || !p->spans) {
        lp_free(p);
        return lp_err_memory(err, gguf->n_parts * sizeof *p->spans, "reading a file ahead");
    }
    p->gguf = gguf;
    p->total_bytes = find_spans(gguf, p->spans);
    lp_status status = check_memory(p, options->available_bytes, err);
    for (uint32_t i = 0; i < gguf->n_parts && !status; i++)
        status = open_part(p, i, options->huge_pages, err);
    if (!status) status = read_all(p, err);
    if (!status) move_tensors(p);
    for (uint32_t i = 0; i < gguf->n_parts; i++) {
        struct span *s = &p->spans[i];
        lp_direct_close(&s->file);
        if (s->memory) lp_huge_unmap(s->memory, (size_t)(s->end - s->begin));
    }
    lp_free(p->spans);
    lp_free(p);
    return status;
}

lp_status lp_gguf_prefetch_bytes(const struct lp_gguf *gguf, uint64_t *bytes, struct lp_err *err) {
    struct span *spans = lp_alloc(gguf->n_parts, sizeof *spans);
    if (!spans) return lp_err_memory(err, gguf->n_parts * sizeof *spans, "reading a file ahead");
    *bytes = find_spans(gguf, spans);
    lp_free(spans);
    return LP_OK;
}
