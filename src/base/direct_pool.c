// Direct reads through a pool of threads, each of which takes the next part and calls pread: for
// systems without io_uring. A thread per part that may be flying, up to a number past which disks
// gain nothing.
#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/direct_parts.h"
#include "base/thread_signals.h"

#define MAX_THREADS 32

struct pool {
    pthread_mutex_t mutex;
    pthread_cond_t has_launched, has_landed;
    struct lp_direct_list launched, landed;
    bool stop;
    int n_threads;
    pthread_t threads[MAX_THREADS];
};

static void *read_parts(void *pool_) {
    struct pool *pool = pool_;
    pthread_mutex_lock(&pool->mutex);
    for (;;) {
        while (!pool->launched.first && !pool->stop)
            pthread_cond_wait(&pool->has_launched, &pool->mutex);
        if (pool->stop) break;
        struct lp_direct_read *read = lp_direct_list_take(&pool->launched);
        pthread_mutex_unlock(&pool->mutex);
        struct lp_direct_part part = lp_direct_next_part(read);
        ssize_t n = pread(part.fd, part.to, part.n_bytes, (off_t)part.offset);
        read->result = n < 0 ? -errno : n;
        pthread_mutex_lock(&pool->mutex);
        lp_direct_list_add(&pool->landed, read);
        pthread_cond_signal(&pool->has_landed);
    }
    pthread_mutex_unlock(&pool->mutex);
    return NULL;
}

static void pool_stop(struct lp_direct_queue *queue) {
    struct pool *pool = queue->state;
    pthread_mutex_lock(&pool->mutex);
    pool->stop = true;
    pthread_cond_broadcast(&pool->has_launched);
    pthread_mutex_unlock(&pool->mutex);
    for (int i = 0; i < pool->n_threads; i++) pthread_join(pool->threads[i], NULL);
    pthread_cond_destroy(&pool->has_launched);
    pthread_cond_destroy(&pool->has_landed);
    pthread_mutex_destroy(&pool->mutex);
    lp_free(pool);
}

static void start_threads(struct pool *pool, int n) {
    sigset_t before;
    lp_thread_signals_block(&before);
    while (pool->n_threads < n &&
           pthread_create(&pool->threads[pool->n_threads], NULL, read_parts, pool) == 0)
        pool->n_threads++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static lp_status pool_start(struct lp_direct_queue *queue, struct lp_err *err) {
    struct pool *pool = lp_alloc(1, sizeof *pool);
    if (!pool) return lp_err_memory(err, sizeof *pool, "a pool of reads");
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->has_launched, NULL);
    pthread_cond_init(&pool->has_landed, NULL);
    queue->state = pool;
    start_threads(pool, queue->depth < MAX_THREADS ? queue->depth : MAX_THREADS);
    if (pool->n_threads > 0) return LP_OK;
    pool_stop(queue);
    return lp_err_set(err, LP_STATUS_LIMIT, "cannot start a thread that reads files");
}

static void pool_launch(struct lp_direct_queue *queue, struct lp_direct_read *read) {
    struct pool *pool = queue->state;
    pthread_mutex_lock(&pool->mutex);
    lp_direct_list_add(&pool->launched, read);
    pthread_cond_signal(&pool->has_launched);
    pthread_mutex_unlock(&pool->mutex);
}

// lp_direct_landed launches and so takes the mutex: what has landed is taken out one at a time.
static int pool_collect(struct lp_direct_queue *queue, bool wait) {
    struct pool *pool = queue->state;
    for (;;) {
        pthread_mutex_lock(&pool->mutex);
        while (wait && !pool->landed.first) pthread_cond_wait(&pool->has_landed, &pool->mutex);
        struct lp_direct_read *read = lp_direct_list_take(&pool->landed);
        pthread_mutex_unlock(&pool->mutex);
        if (!read) return 0;
        lp_direct_landed(queue, read, read->result);
        wait = false;
    }
}

const struct lp_direct_engine lp_direct_pool = {.name = "pread",
                                                .start = pool_start,
                                                .stop = pool_stop,
                                                .launch = pool_launch,
                                                .collect = pool_collect};
