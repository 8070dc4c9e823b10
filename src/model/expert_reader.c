#include "model/expert_reader.h"

#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "base/thread_signals.h"

// Reads on their way at once. Guesses get fewer: an urgent read waits for those before it.
#define DEPTH 8
#define DEPTH_AHEAD 4

struct line { // first in, first out
    struct lp_expert_piece *first, *last;
};

struct lp_expert_reader {
    struct lp_direct_queue *queue; // the thread's
    lp_expert_done done;
    void *user;
    pthread_t thread;
    pthread_mutex_t lock; // guards what follows
    pthread_cond_t work;
    struct line urgent, ahead;
    bool stop;
};

// ---- the lines, under lock

static void append(struct line *line, struct lp_expert_piece *piece) {
    piece->next = NULL;
    if (line->last)
        line->last->next = piece;
    else
        line->first = piece;
    line->last = piece;
}

static struct lp_expert_piece *take_first(struct line *line) {
    struct lp_expert_piece *piece = line->first;
    if (!piece) return NULL;
    line->first = piece->next;
    if (!line->first) line->last = NULL;
    piece->waiting = false;
    return piece;
}

static void take_out(struct line *line, struct lp_expert_piece *piece) {
    struct lp_expert_piece *before = NULL;
    for (struct lp_expert_piece *p = line->first; p != piece; p = p->next) before = p;
    if (before)
        before->next = piece->next;
    else
        line->first = piece->next;
    if (line->last == piece) line->last = before;
    piece->waiting = false;
}

static struct lp_expert_piece *next_piece(struct lp_expert_reader *r, int n_flying) {
    if (n_flying >= DEPTH) return NULL;
    if (r->urgent.first) return take_first(&r->urgent);
    return n_flying < DEPTH_AHEAD ? take_first(&r->ahead) : NULL;
}

// ---- the thread

static void *fail_rest(struct lp_expert_reader *r, const struct lp_err *err) {
    pthread_mutex_lock(&r->lock);
    while (!r->stop) {
        struct lp_expert_piece *piece = take_first(r->urgent.first ? &r->urgent : &r->ahead);
        if (!piece) {
            pthread_cond_wait(&r->work, &r->lock);
            continue;
        }
        pthread_mutex_unlock(&r->lock);
        r->done(r->user, piece, err);
        pthread_mutex_lock(&r->lock);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

struct flying { // pieces on their way, in no order
    struct lp_expert_piece *pieces[DEPTH];
    int n;
};

// One that has come; false: the queue itself has failed, and those that fly will not come.
static bool finish_one(struct lp_expert_reader *r, struct flying *f, struct lp_err *err) {
    struct lp_direct_read *read;
    lp_status status = lp_direct_wait(r->queue, &read, err);
    if (!read) return false;
    int i = 0;
    while (&f->pieces[i]->read != read) i++;
    f->pieces[i] = f->pieces[--f->n];
    r->done(r->user, (struct lp_expert_piece *)read, status ? err : NULL);
    return true;
}

static void *run(void *user) {
    struct lp_expert_reader *r = user;
    struct lp_err err;
    struct flying f = {.n = 0};
    for (;;) {
        pthread_mutex_lock(&r->lock);
        struct lp_expert_piece *piece = r->stop ? NULL : next_piece(r, f.n);
        while (!piece && f.n == 0 && !r->stop) {
            pthread_cond_wait(&r->work, &r->lock);
            piece = next_piece(r, f.n);
        }
        bool stop = r->stop;
        pthread_mutex_unlock(&r->lock);
        if (piece) {
            f.pieces[f.n++] = piece;
            lp_direct_submit(r->queue, &piece->read);
            continue;
        }
        if (f.n == 0 && stop) return NULL;
        if (finish_one(r, &f, &err)) continue;
        while (f.n > 0) r->done(r->user, f.pieces[--f.n], &err);
        return fail_rest(r, &err);
    }
}

// ---- calls

lp_status lp_expert_reader_new(struct lp_expert_reader **out, enum lp_direct_way way,
                               lp_expert_done done, void *user, struct lp_err *err) {
    struct lp_expert_reader *r = lp_alloc(1, sizeof *r);
    if (!r) return lp_err_memory(err, sizeof *r, "the reader of experts");
    r->done = done;
    r->user = user;
    lp_status status = lp_direct_queue_new(&r->queue, DEPTH, way, err);
    if (status) {
        lp_free(r);
        return status;
    }
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->work, NULL);
    sigset_t before;
    lp_thread_signals_block(&before);
    int error = pthread_create(&r->thread, NULL, run, r);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) {
        pthread_cond_destroy(&r->work);
        pthread_mutex_destroy(&r->lock);
        lp_direct_queue_free(r->queue);
        lp_free(r);
        return lp_err_set(err, LP_STATUS_LIMIT, "no thread could be started to read experts: %s",
                          strerror(error));
    }
    *out = r;
    return LP_OK;
}

void lp_expert_reader_free(struct lp_expert_reader *r) {
    if (!r) return;
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    pthread_cond_signal(&r->work);
    pthread_mutex_unlock(&r->lock);
    pthread_join(r->thread, NULL);
    lp_direct_queue_free(r->queue);
    pthread_cond_destroy(&r->work);
    pthread_mutex_destroy(&r->lock);
    lp_free(r);
}

const char *lp_expert_reader_way(const struct lp_expert_reader *r) {
    return lp_direct_queue_way(r->queue);
}

void lp_expert_reader_add(struct lp_expert_reader *r, struct lp_expert_piece *pieces,
                          int32_t n_pieces, bool ahead) {
    pthread_mutex_lock(&r->lock);
    for (int32_t i = 0; i < n_pieces; i++) {
        pieces[i].waiting = true;
        pieces[i].ahead = ahead;
        append(ahead ? &r->ahead : &r->urgent, &pieces[i]);
    }
    pthread_cond_signal(&r->work);
    pthread_mutex_unlock(&r->lock);
}

void lp_expert_reader_raise(struct lp_expert_reader *r, struct lp_expert_piece *pieces,
                            int32_t n_pieces) {
    pthread_mutex_lock(&r->lock);
    for (int32_t i = 0; i < n_pieces; i++) {
        if (!pieces[i].waiting || !pieces[i].ahead) continue;
        take_out(&r->ahead, &pieces[i]);
        pieces[i].waiting = true;
        pieces[i].ahead = false;
        append(&r->urgent, &pieces[i]);
    }
    pthread_mutex_unlock(&r->lock);
}

int32_t lp_expert_reader_drop(struct lp_expert_reader *r, struct lp_expert_piece *pieces,
                              int32_t n_pieces) {
    int32_t n = 0;
    pthread_mutex_lock(&r->lock);
    for (int32_t i = 0; i < n_pieces; i++) {
        if (!pieces[i].waiting) continue;
        take_out(pieces[i].ahead ? &r->ahead : &r->urgent, &pieces[i]);
        n++;
    }
    pthread_mutex_unlock(&r->lock);
    return n;
}
