// Reading the rings: events of all threads in order of time, and those that concern one request.
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/grow.h"
#include "trace/trace_json.h"
#include "trace/trace_parts.h"

// ---- in order of time

// Takes the next event of a ring that is still there; those that were overwritten meanwhile are
// gone.
static void advance(struct lp_trace_cursor *c) {
    c->has_record = false;
    while (c->next < c->end && !c->has_record) {
        c->has_record = lp_trace_ring_read(c->ring, c->next++, &c->record);
        if (c->has_record) return;
        uint64_t head = atomic_load_explicit(&c->ring->head, memory_order_acquire);
        if (head > c->ring->n && c->next < head - c->ring->n) c->next = head - c->ring->n;
        if (c->next > c->end) c->next = c->end;
    }
}

void lp_trace_reader_init(struct lp_trace_reader *reader, const struct lp_trace *trace,
                          bool undrained) {
    reader->n = atomic_load_explicit(&trace->n_rings, memory_order_acquire);
    for (int i = 0; i < reader->n; i++) {
        struct lp_trace_cursor *c = &reader->cursors[i];
        c->ring = trace->rings[i];
        c->end = atomic_load_explicit(&c->ring->head, memory_order_acquire);
        uint64_t first = c->end > c->ring->n ? c->end - c->ring->n : 0;
        uint64_t tail = atomic_load_explicit(&c->ring->tail, memory_order_acquire);
        c->next = undrained && tail > first ? tail : first;
        advance(c);
    }
}

const struct lp_trace_record *lp_trace_reader_next(struct lp_trace_reader *reader) {
    struct lp_trace_cursor *first = NULL;
    for (int i = 0; i < reader->n; i++) {
        struct lp_trace_cursor *c = &reader->cursors[i];
        if (c->has_record && (!first || c->record.time_ns < first->record.time_ns)) first = c;
    }
    if (!first) return NULL;
    reader->out = first->record;
    advance(first);
    return &reader->out;
}

uint64_t lp_trace_n_overwritten(const struct lp_trace *trace) {
    uint64_t n_lost = 0;
    int n = atomic_load_explicit(&trace->n_rings, memory_order_acquire);
    for (int i = 1; i < n; i++) {
        uint64_t head = atomic_load_explicit(&trace->rings[i]->head, memory_order_acquire);
        if (head > trace->rings[i]->n) n_lost += head - trace->rings[i]->n;
    }
    return n_lost;
}

// ---- of one request

struct records {
    struct lp_trace_record *data;
    size_t n, capacity;
};

struct numbers { // a set: added in any order, sorted before it is asked
    int64_t *data;
    size_t n, capacity;
};

static bool add_number(struct numbers *set, int64_t number) {
    if (set->n && set->data[set->n - 1] == number) return true;
    if (!LP_GROW(set->data, set->capacity, set->n + 1)) return false;
    set->data[set->n++] = number;
    return true;
}

static int compare_numbers(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void sort_numbers(struct numbers *set) {
    if (set->n) qsort(set->data, set->n, sizeof *set->data, compare_numbers);
}

static bool has_number(const struct numbers *set, const int64_t *number) {
    return set->n && bsearch(number, set->data, set->n, sizeof *set->data, compare_numbers);
}

// A field of an event by its name, or NULL.
static const void *field_of(const struct lp_trace_record *record, const char *name) {
    const struct lp_trace_event_info *info = lp_trace_info((enum lp_trace_kind)record->kind);
    for (size_t i = 0; i < info->n_fields; i++)
        if (strcmp(info->fields[i].name, name) == 0)
            return (const char *)record->payload + info->fields[i].offset;
    return NULL;
}

static bool has_id(const struct lp_trace_record *record, const char *request_id) {
    const char *id = field_of(record, "id");
    return id && strncmp(id, request_id, LP_TRACE_TEXT_BYTES - 1) == 0;
}

// The sequences of the requests of this id, and the steps that they took part in.
static bool find_sequences(const struct records *all, const char *request_id,
                           struct numbers *sequences, struct numbers *steps) {
    for (size_t i = 0; i < all->n; i++) {
        const int64_t *sequence = field_of(&all->data[i], "sequence");
        if (sequence && *sequence >= 0 && has_id(&all->data[i], request_id) &&
            !add_number(sequences, *sequence))
            return false;
    }
    sort_numbers(sequences);
    for (size_t i = 0; i < all->n; i++) {
        const int64_t *sequence = field_of(&all->data[i], "sequence"),
                      *step = field_of(&all->data[i], "step");
        if (sequence && step && has_number(sequences, sequence) && !add_number(steps, *step))
            return false;
    }
    sort_numbers(steps);
    return true;
}

static bool concerns(const struct lp_trace_record *record, const char *request_id,
                     const struct numbers *sequences, const struct numbers *steps) {
    if (lp_trace_info((enum lp_trace_kind)record->kind)->level == LP_TRACE_FACT) return true;
    const int64_t *sequence = field_of(record, "sequence"), *step = field_of(record, "step");
    if (has_id(record, request_id)) return true;
    return sequence ? has_number(sequences, sequence) : step && has_number(steps, step);
}

static bool append(struct lp_bytes *out, const struct lp_trace_record *record, uint64_t start_ns) {
    char line[LP_TRACE_JSON_BYTES];
    return lp_bytes_append(out, line, lp_trace_json(record, start_ns, line));
}

static bool append_request(const struct lp_trace *trace, const struct records *all,
                           const char *request_id, struct lp_bytes *out) {
    struct numbers sequences = {0}, steps = {0};
    bool ok = find_sequences(all, request_id, &sequences, &steps);
    for (size_t i = 0; i < all->n && ok; i++)
        if (concerns(&all->data[i], request_id, &sequences, &steps))
            ok = append(out, &all->data[i], trace->start_ns);
    lp_free(sequences.data);
    lp_free(steps.data);
    return ok;
}

lp_status lp_trace_text(const struct lp_trace *trace, const char *request_id, struct lp_bytes *out,
                        struct lp_err *err) {
    const struct lp_trace_record *record;
    struct lp_trace_reader reader;
    struct records all = {0}; // taken out at once: the rings go on
    bool ok = lp_bytes_append(out, "", 0);
    if (trace)
        lp_trace_reader_init(&reader, trace, false);
    else
        reader.n = 0;
    while (ok && (record = lp_trace_reader_next(&reader)) != NULL) {
        if (!request_id) {
            ok = append(out, record, trace->start_ns);
            continue;
        }
        ok = LP_GROW(all.data, all.capacity, all.n + 1);
        if (ok) all.data[all.n++] = *record;
    }
    if (ok && request_id && trace) ok = append_request(trace, &all, request_id, out);
    lp_free(all.data);
    return ok ? LP_OK : lp_err_memory(err, out->len, "the text of the trace");
}
