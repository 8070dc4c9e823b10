#include "gguf/gguf_prefetch.h"

#include <stdlib.h>

#include "base/direct_read.h"
#include "base/huge_pages.h"
#include "base/progress.h"
#include "gguf/gguf_parts.h"

// Of pieces of 1 to 16 MiB and 4 to 64 at once, all from here on gave the full rate of the disk
// (docs/performance.md).
#define PIECE_BYTES ((uint64_t)4 << 20)
#define DEPTH 16

// A part's memory: of bytes begin .. end of the file, begin a multiple of LP_DIRECT_ALIGN.
struct span {
    struct lp_direct_file file;
    uint64_t begin, end;
    unsigned char *memory; // [end - begin]
};

// What is read of a part's span; begin as a span's.
struct range {
    uint32_t part;
    uint64_t begin, end;
};

struct prefetch {
    struct lp_gguf *gguf;
    struct span *spans;         // [n_parts]
    const struct range *ranges; // [n_ranges], none empty
    size_t n_ranges;
    size_t range; // the next piece: of this one
    uint64_t at;  // from this byte of the file
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
    if (p->range < p->n_ranges && p->at >= p->ranges[p->range].end) {
        p->range++;
        p->at = p->range < p->n_ranges ? p->ranges[p->range].begin : 0;
    }
    if (p->range == p->n_ranges) return false;
    const struct range *r = &p->ranges[p->range];
    const struct span *s = &p->spans[r->part];
    uint64_t n = r->end - p->at < PIECE_BYTES ? r->end - p->at : PIECE_BYTES;
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
    p->at = p->n_ranges ? p->ranges[0].begin : 0;
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

// The memory becomes the file's. From here on nothing fails.
static void give_memory(struct prefetch *p) {
    for (uint32_t i = 0; i < p->gguf->n_parts; i++) {
        struct lp_gguf_part *part = &p->gguf->parts[i];
        part->memory = p->spans[i].memory;
        part->memory_bytes = (size_t)(p->spans[i].end - p->spans[i].begin);
        p->spans[i].memory = NULL;
    }
}

static void move_tensors(struct lp_gguf *gguf, const struct span *spans) {
    for (uint64_t i = 0; i < gguf->n_tensors; i++) {
        struct lp_gguf_tensor *t = &gguf->tensors[i];
        const unsigned char *memory = gguf->parts[t->shard].memory;
        t->data = memory + (t->file_offset - spans[t->shard].begin);
        t->in_memory = true;
    }
}

// Reads the ranges, which lie in the spans, in order.
static lp_status read_ranges(struct lp_gguf *gguf, struct span *spans, const struct range *ranges,
                             size_t n_ranges, const struct lp_gguf_prefetch_options *options,
                             struct lp_err *err) {
    struct prefetch *p = lp_alloc(1, sizeof *p);
    if (!p) return lp_err_memory(err, sizeof *p, "reading a file ahead");
    *p = (struct prefetch){.gguf = gguf, .spans = spans, .ranges = ranges, .n_ranges = n_ranges};
    for (size_t i = 0; i < n_ranges; i++) p->total_bytes += ranges[i].end - ranges[i].begin;
    lp_status status = check_memory(p, options->available_bytes, err);
    for (uint32_t i = 0; i < gguf->n_parts && !status; i++)
        status = open_part(p, i, options->huge_pages, err);
    if (!status) status = read_all(p, err);
    if (!status) give_memory(p);
    for (uint32_t i = 0; i < gguf->n_parts; i++) {
        struct span *s = &spans[i];
        lp_direct_close(&s->file);
        if (s->memory) lp_huge_unmap(s->memory, (size_t)(s->end - s->begin));
        s->memory = NULL;
    }
    lp_free(p);
    return status;
}

lp_status lp_gguf_prefetch(struct lp_gguf *gguf, const struct lp_gguf_prefetch_options *options,
                           struct lp_err *err) {
    struct span *spans = lp_alloc(gguf->n_parts, sizeof *spans);
    struct range *ranges = lp_alloc(gguf->n_parts, sizeof *ranges);
    size_t n = 0;
    lp_status status = LP_OK;
    if (spans && ranges) {
        find_spans(gguf, spans);
        for (uint32_t i = 0; i < gguf->n_parts; i++)
            if (spans[i].end) ranges[n++] = (struct range){i, spans[i].begin, spans[i].end};
        status = read_ranges(gguf, spans, ranges, n, options, err);
        if (!status) move_tensors(gguf, spans);
    } else {
        status = lp_err_memory(err, gguf->n_parts * sizeof *spans, "reading a file ahead");
    }
    lp_free(ranges);
    lp_free(spans);
    return status;
}

lp_status lp_gguf_prefetch_bytes(const struct lp_gguf *gguf, uint64_t *bytes, struct lp_err *err) {
    struct span *spans = lp_alloc(gguf->n_parts, sizeof *spans);
    if (!spans) return lp_err_memory(err, gguf->n_parts * sizeof *spans, "reading a file ahead");
    *bytes = find_spans(gguf, spans);
    lp_free(spans);
    return LP_OK;
}

// ---- some bytes alone

struct lp_gguf_ahead {
    struct lp_gguf *gguf;
    struct span *spans; // [n_parts]
    struct range *ranges;
    size_t n, capacity;
};

lp_status lp_gguf_ahead_new(struct lp_gguf_ahead **out, struct lp_gguf *gguf, struct lp_err *err) {
    struct lp_gguf_ahead *a = lp_alloc(1, sizeof *a);
    if (a) a->spans = lp_alloc(gguf->n_parts, sizeof *a->spans);
    if (!a || !a->spans) {
        lp_free(a);
        return lp_err_memory(err, gguf->n_parts * sizeof *a->spans, "reading a file ahead");
    }
    a->gguf = gguf;
    for (uint32_t i = 0; i < gguf->n_parts; i++) a->spans[i].file.fd = -1;
    *out = a;
    return LP_OK;
}

void lp_gguf_ahead_free(struct lp_gguf_ahead *a) {
    if (!a) return;
    lp_free(a->spans);
    lp_free(a->ranges);
    lp_free(a);
}

// The part of the file where an address is mapped, or n_parts.
static uint32_t part_of(const struct lp_gguf *gguf, const void *mapped) {
    uint32_t i = 0;
    for (; i < gguf->n_parts; i++) {
        const uintptr_t from = (uintptr_t)gguf->parts[i].data, at = (uintptr_t)mapped;
        if (at >= from && at - from < gguf->parts[i].n_bytes) break;
    }
    return i;
}

lp_status lp_gguf_ahead_mark(struct lp_gguf_ahead *a, const void *mapped, uint64_t n_bytes,
                             struct lp_err *err) {
    const uint32_t i = part_of(a->gguf, mapped);
    if (i == a->gguf->n_parts || n_bytes == 0) return LP_OK;
    if (a->n == a->capacity) {
        const size_t capacity = a->capacity ? 2 * a->capacity : 1024;
        struct range *grown = lp_realloc(a->ranges, capacity, sizeof *grown);
        if (!grown) return lp_err_memory(err, capacity * sizeof *grown, "reading a file ahead");
        a->ranges = grown;
        a->capacity = capacity;
    }
    const struct lp_gguf_part *part = &a->gguf->parts[i];
    const uint64_t offset = (uint64_t)((const uint8_t *)mapped - part->data),
                   mask = LP_DIRECT_ALIGN - 1;
    const uint64_t end = (offset + n_bytes + mask) & ~mask;
    a->ranges[a->n++] =
        (struct range){i, offset & ~mask, end < part->n_bytes ? end : part->n_bytes};
    return LP_OK;
}

static int by_place(const void *a_, const void *b_) {
    const struct range *a = a_, *b = b_;
    if (a->part != b->part) return a->part < b->part ? -1 : 1;
    return a->begin < b->begin ? -1 : a->begin > b->begin;
}

// In order, none touching the next one; and the spans that they lie in.
static void join_ranges(struct lp_gguf_ahead *a) {
    size_t n = 0;
    if (a->n) qsort(a->ranges, a->n, sizeof *a->ranges, by_place);
    for (size_t i = 0; i < a->n; i++) {
        const struct range r = a->ranges[i];
        struct range *last = n ? &a->ranges[n - 1] : NULL;
        if (last && last->part == r.part && r.begin <= last->end) {
            if (r.end > last->end) last->end = r.end;
        } else {
            if (!last || last->part != r.part) a->spans[r.part].begin = r.begin;
            a->ranges[n++] = r;
        }
        a->spans[r.part].end = a->ranges[n - 1].end;
    }
    a->n = n;
}

lp_status lp_gguf_ahead_read(struct lp_gguf_ahead *a,
                             const struct lp_gguf_prefetch_options *options, struct lp_err *err) {
    join_ranges(a);
    lp_status status = read_ranges(a->gguf, a->spans, a->ranges, a->n, options, err);
    // What was looked at before may stay in the page cache, and need not be this process's: it is read again
    // where it is used.
    for (uint32_t i = 0; i < a->gguf->n_parts && !status; i++)
        lp_mapped_drop(&a->gguf->parts[i].map, 0, a->gguf->parts[i].map.n_bytes);
    return status;
}

const void *lp_gguf_ahead_at(const struct lp_gguf_ahead *a, const void *mapped) {
    const uint32_t i = part_of(a->gguf, mapped);
    if (i == a->gguf->n_parts) return mapped;
    const struct lp_gguf_part *part = &a->gguf->parts[i];
    const uint64_t offset = (uint64_t)((const uint8_t *)mapped - part->data);
    return (const uint8_t *)part->memory + (offset - a->spans[i].begin);
}
