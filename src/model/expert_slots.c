#include "model/expert_slots.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"
#include "model/expert_reader.h"

struct slot {
    int32_t layer, expert; // of its load
    const uint8_t *place[LP_EXPERT_MAX_PARTS];
    struct lp_expert_piece *pieces; // [n_pieces], room for those of any layer
    int32_t n_pieces;
    int32_t n_left; // under lock: pieces that have not ended
    bool spoilt;    // under lock: one has failed or was dropped
    _Atomic int state;
};

struct lp_expert_slots {
    const struct lp_expert_layout *layout;
    struct lp_direct_file *files; // [n_files], of the model's parts
    uint32_t n_files;
    uint8_t *memory;
    size_t memory_bytes;
    struct slot *slots;
    struct lp_expert_piece *pieces;
    int32_t n_slots, max_pieces;
    struct lp_expert_reader *reader;
    atomic_bool has_failed;

    pthread_mutex_t lock; // guards what follows
    pthread_cond_t ended;
    struct lp_err failure;
    uint64_t n_ended, read_bytes, wait_ns, wait_from_ns;
    int32_t n_loading, n_waiting;
};

// ---- reads

static void end_load(struct lp_expert_slots *s, struct slot *slot) { // under lock
    s->n_ended++;
    s->n_loading--;
    atomic_store_explicit(&slot->state, slot->spoilt ? LP_EXPERT_VOID : LP_EXPERT_READY,
                          memory_order_release);
    if (s->n_waiting) pthread_cond_broadcast(&s->ended);
}

static void note_failure(struct lp_expert_slots *s, struct slot *slot, const struct lp_err *err) {
    slot->spoilt = true;
    if (s->has_failed) return;
    s->failure = *err;
    lp_err_context(&s->failure, "expert %d of layer %d is not to be had", slot->expert,
                   slot->layer);
    s->has_failed = true;
}

static void done(void *user, struct lp_expert_piece *piece, const struct lp_err *err) {
    struct lp_expert_slots *s = user;
    struct slot *slot = piece->read.owner;
    pthread_mutex_lock(&s->lock);
    if (err)
        note_failure(s, slot, err);
    else
        s->read_bytes += piece->read.n_bytes;
    if (--slot->n_left == 0) end_load(s, slot);
    pthread_mutex_unlock(&s->lock);
}

// The pieces of one part, from `at` on in the slot. Returns how many.
static int32_t cut_part(struct lp_expert_slots *s, struct slot *slot, uint8_t *to,
                        const struct lp_expert_part *part, struct lp_expert_piece *pieces,
                        const uint8_t **place) {
    uint64_t begin = part->stack->file_offset + (uint64_t)slot->expert * part->mat_bytes;
    struct lp_direct_read whole;
    *place = to + lp_direct_place(&whole, begin, part->mat_bytes);
    int32_t n = 0;
    for (size_t at = 0; at < whole.n_bytes; at += LP_EXPERT_PIECE_BYTES) {
        size_t left = whole.n_bytes - at;
        pieces[n++] = (struct lp_expert_piece){
            .read = {.file = &s->files[part->stack->shard],
                     .offset = whole.offset + at,
                     .n_bytes = left < LP_EXPERT_PIECE_BYTES ? left : LP_EXPERT_PIECE_BYTES,
                     .buffer = to + at,
                     .owner = slot}};
    }
    return n;
}

void lp_expert_slots_load(struct lp_expert_slots *s, int32_t i, int32_t layer, int32_t expert,
                          bool ahead) {
    const struct lp_expert_layer *x = &s->layout->layers[layer];
    struct slot *slot = &s->slots[i];
    uint8_t *memory = s->memory + (size_t)i * s->layout->slot_bytes;
    slot->layer = layer;
    slot->expert = expert;
    slot->n_pieces = 0;
    for (int p = 0; p < x->n_parts; p++)
        slot->n_pieces += cut_part(s, slot, memory + x->parts[p].slot_at, &x->parts[p],
                                   slot->pieces + slot->n_pieces, &slot->place[p]);
    pthread_mutex_lock(&s->lock);
    slot->n_left = slot->n_pieces;
    slot->spoilt = false;
    s->n_loading++;
    atomic_store_explicit(&slot->state, LP_EXPERT_LOADING, memory_order_relaxed);
    pthread_mutex_unlock(&s->lock);
    lp_expert_reader_add(s->reader, slot->pieces, slot->n_pieces, ahead);
}

void lp_expert_slots_raise(struct lp_expert_slots *s, int32_t slot) {
    lp_expert_reader_raise(s->reader, s->slots[slot].pieces, s->slots[slot].n_pieces);
}

void lp_expert_slots_drop(struct lp_expert_slots *s, int32_t i) {
    struct slot *slot = &s->slots[i];
    int32_t n = lp_expert_reader_drop(s->reader, slot->pieces, slot->n_pieces);
    if (n == 0) return;
    pthread_mutex_lock(&s->lock);
    slot->spoilt = true;
    slot->n_left -= n;
    if (slot->n_left == 0) end_load(s, slot);
    pthread_mutex_unlock(&s->lock);
}

// ---- states

enum lp_expert_state lp_expert_slots_state(const struct lp_expert_slots *s, int32_t slot) {
    return (enum lp_expert_state)atomic_load_explicit(&s->slots[slot].state, memory_order_acquire);
}

const uint8_t *lp_expert_slots_place(const struct lp_expert_slots *s, int32_t slot, int part) {
    return s->slots[slot].place[part];
}

static void begin_waiting(struct lp_expert_slots *s) { // under lock
    if (s->n_waiting++ == 0) s->wait_from_ns = lp_clock_ns();
}

static void end_waiting(struct lp_expert_slots *s) {
    if (--s->n_waiting == 0) s->wait_ns += lp_clock_ns() - s->wait_from_ns;
}

void lp_expert_slots_wait(struct lp_expert_slots *s, int32_t slot) {
    if (lp_expert_slots_state(s, slot) != LP_EXPERT_LOADING) return;
    pthread_mutex_lock(&s->lock);
    begin_waiting(s);
    while (lp_expert_slots_state(s, slot) == LP_EXPERT_LOADING)
        pthread_cond_wait(&s->ended, &s->lock);
    end_waiting(s);
    pthread_mutex_unlock(&s->lock);
}

void lp_expert_slots_wait_any(struct lp_expert_slots *s, uint64_t n_ended) {
    pthread_mutex_lock(&s->lock);
    begin_waiting(s);
    while (s->n_ended == n_ended && s->n_loading > 0) pthread_cond_wait(&s->ended, &s->lock);
    end_waiting(s);
    pthread_mutex_unlock(&s->lock);
}

bool lp_expert_slots_has_failed(const struct lp_expert_slots *s) {
    return s->has_failed;
}

lp_status lp_expert_slots_failure(struct lp_expert_slots *s, struct lp_err *err) {
    if (!s->has_failed) return LP_OK;
    pthread_mutex_lock(&s->lock);
    lp_status status = s->failure.status;
    if (err) *err = s->failure;
    s->has_failed = false;
    pthread_mutex_unlock(&s->lock);
    return status;
}

struct lp_expert_slots_stats lp_expert_slots_get_stats(struct lp_expert_slots *s) {
    pthread_mutex_lock(&s->lock);
    struct lp_expert_slots_stats stats = {.n_ended = s->n_ended,
                                          .read_bytes = s->read_bytes,
                                          .wait_ns = s->wait_ns,
                                          .bytes = s->memory_bytes,
                                          .n_loading = s->n_loading,
                                          .way = lp_expert_reader_way(s->reader)};
    pthread_mutex_unlock(&s->lock);
    return stats;
}

// ---- making

static lp_status open_files(struct lp_expert_slots *s, const struct lp_gguf *gguf,
                            struct lp_err *err) {
    uint32_t n = lp_gguf_n_shards(gguf);
    s->files = lp_alloc(n, sizeof *s->files);
    if (!s->files) return lp_err_memory(err, n * sizeof *s->files, "the files of experts");
    lp_status status = LP_OK;
    while (s->n_files < n && !status) {
        status = lp_direct_open(&s->files[s->n_files], lp_gguf_shard_path(gguf, s->n_files), err);
        s->n_files += !status;
    }
    return status;
}

static int32_t most_pieces(const struct lp_expert_layout *x) {
    int32_t most = 0;
    for (int32_t l = 0; l < x->n_layers; l++) {
        int32_t n = 0;
        for (int p = 0; p < x->layers[l].n_parts; p++)
            n += (int32_t)(lp_direct_room(x->layers[l].parts[p].mat_bytes + LP_DIRECT_ALIGN) /
                           LP_EXPERT_PIECE_BYTES) +
                 1;
        if (n > most) most = n;
    }
    return most;
}

static lp_status take_memory(struct lp_expert_slots *s, struct lp_err *err) {
    size_t n = (size_t)s->n_slots, n_pieces;
    s->max_pieces = most_pieces(s->layout);
    if (!lp_mul_size(n, (size_t)s->max_pieces, &n_pieces) ||
        !lp_mul_size(n, s->layout->slot_bytes, &s->memory_bytes))
        return lp_err_set(err, LP_STATUS_LIMIT, "a cache of %d experts is too large", s->n_slots);
    s->slots = lp_alloc(n, sizeof *s->slots);
    s->pieces = lp_alloc(n_pieces, sizeof *s->pieces);
    void *memory = mmap(NULL, s->memory_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory != MAP_FAILED) s->memory = memory;
    if (!s->slots || !s->pieces || !s->memory)
        return lp_err_memory(err, s->memory_bytes, "the cache of experts");
    // Huge pages: fewer to pin for a direct read, and fewer misses of address translation. Where
    // they are not allowed, small ones do.
    madvise(s->memory, s->memory_bytes, MADV_HUGEPAGE);
    for (size_t i = 0; i < n; i++) s->slots[i].pieces = s->pieces + i * (size_t)s->max_pieces;
    return LP_OK;
}

lp_status lp_expert_slots_new(struct lp_expert_slots **out, const struct lp_expert_layout *layout,
                              const struct lp_gguf *gguf, int32_t n_slots, enum lp_direct_way way,
                              struct lp_err *err) {
    struct lp_expert_slots *s = lp_alloc(1, sizeof *s);
    if (!s) return lp_err_memory(err, sizeof *s, "the cache of experts");
    s->layout = layout;
    s->n_slots = n_slots;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->ended, NULL);
    lp_status status = open_files(s, gguf, err);
    if (!status) status = take_memory(s, err);
    if (!status) status = lp_expert_reader_new(&s->reader, way, done, s, err);
    if (status) {
        lp_expert_slots_free(s);
        return status;
    }
    *out = s;
    return LP_OK;
}

void lp_expert_slots_free(struct lp_expert_slots *s) {
    if (!s) return;
    lp_expert_reader_free(s->reader);
    for (uint32_t i = 0; i < s->n_files; i++) lp_direct_close(&s->files[i]);
    lp_free(s->files);
    if (s->memory) munmap(s->memory, s->memory_bytes);
    lp_free(s->slots);
    lp_free(s->pieces);
    pthread_cond_destroy(&s->ended);
    pthread_mutex_destroy(&s->lock);
    lp_free(s);
}
