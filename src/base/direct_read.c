// The order of the reads: those that are submitted wait until fewer than `depth` are flying, a part
// that lands is followed by the rest of its read, and a whole read goes to the finished ones.
#include "base/direct_read.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/direct_parts.h"

#define MAX_DEPTH 1024
// The most bytes of one part: below what a read of Linux takes (2^31 - 4096), and a multiple of
// LP_DIRECT_ALIGN.
#define PART_BYTES ((size_t)1 << 30)

static lp_status open_file(struct lp_direct_file *file, const char *path, bool direct,
                           struct lp_err *err) {
    struct stat st;
    int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
    *file = (struct lp_direct_file){.fd = -1, .direct = direct};
    if (direct) file->fd = open(path, flags | O_DIRECT);
    if (file->fd < 0 && (!direct || errno == EINVAL)) {
        file->direct = false;
        file->fd = open(path, flags);
    }
    if (file->fd < 0)
        return lp_err_set(err, LP_STATUS_IO, "cannot open %s: %s", path, strerror(errno));
    if (fstat(file->fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        lp_direct_close(file);
        return lp_err_set(err, LP_STATUS_IO, "cannot read %s: it is not a regular file", path);
    }
    // O_NONBLOCK was for pipes, whose opening would wait. io_uring takes it as a wish not to wait for
    // the disk: on file systems that cannot promise that, reads would come back with EAGAIN for ever.
    if (fcntl(file->fd, F_SETFL, file->direct ? O_DIRECT : 0) != 0) {
        int error = errno;
        lp_direct_close(file);
        return lp_err_set(err, LP_STATUS_IO, "cannot read %s: %s", path, strerror(error));
    }
    file->n_bytes = (uint64_t)st.st_size;
    file->path = lp_strdup(path);
    if (file->path) return LP_OK;
    lp_direct_close(file);
    return lp_err_memory(err, strlen(path), "a path");
}

lp_status lp_direct_open(struct lp_direct_file *file, const char *path, struct lp_err *err) {
    return open_file(file, path, true, err);
}

lp_status lp_direct_open_cached(struct lp_direct_file *file, const char *path, struct lp_err *err) {
    return open_file(file, path, false, err);
}

void lp_direct_close(struct lp_direct_file *file) {
    if (file->fd >= 0) close(file->fd);
    lp_free(file->path);
    *file = (struct lp_direct_file){.fd = -1};
}

void lp_direct_list_add(struct lp_direct_list *list, struct lp_direct_read *read) {
    read->next = NULL;
    if (list->last)
        list->last->next = read;
    else
        list->first = read;
    list->last = read;
}

struct lp_direct_read *lp_direct_list_take(struct lp_direct_list *list) {
    struct lp_direct_read *read = list->first;
    if (!read) return NULL;
    list->first = read->next;
    if (!list->first) list->last = NULL;
    return read;
}

struct lp_direct_part lp_direct_next_part(const struct lp_direct_read *read) {
    size_t n = read->n_bytes - read->done;
    if (read->file->direct) n = lp_direct_room(n);
    return (struct lp_direct_part){.fd = read->file->fd,
                                   .to = (char *)read->buffer + read->done,
                                   .n_bytes = n < PART_BYTES ? n : PART_BYTES,
                                   .offset = read->offset + read->done};
}

// What pread gave becomes bytes that are done, or an error. True: more is to be read.
static bool take_result(struct lp_direct_read *read, int64_t result) {
    if (result == -EINTR || result == -EAGAIN) return true;
    if (result < 0) {
        read->error = (int)-result;
        return false;
    }
    size_t left = read->n_bytes - read->done, got = (size_t)result;
    read->done += got < left ? got : left;
    if (read->done == read->n_bytes) return false;
    // A direct read stops between two pages at the end of the file alone.
    bool ended = got == 0 || (read->file->direct && got % LP_DIRECT_ALIGN != 0);
    if (ended) read->error = LP_DIRECT_ENDED;
    return !ended;
}

static void launch_waiting(struct lp_direct_queue *queue) {
    while (queue->n_flying < queue->depth && queue->waiting.first) {
        queue->n_flying++;
        queue->engine->launch(queue, lp_direct_list_take(&queue->waiting));
    }
}

void lp_direct_landed(struct lp_direct_queue *queue, struct lp_direct_read *read, int64_t result) {
    if (take_result(read, result)) {
        queue->engine->launch(queue, read);
        return;
    }
    queue->n_flying--;
    lp_direct_list_add(&queue->finished, read);
    launch_waiting(queue);
}

static lp_status start(struct lp_direct_queue *queue, const struct lp_direct_engine *engine,
                       struct lp_err *err) {
    queue->engine = engine;
    return engine->start(queue, err);
}

lp_status lp_direct_queue_new(struct lp_direct_queue **out, int depth, enum lp_direct_way way,
                              struct lp_err *err) {
    *out = NULL;
    if (depth < 1 || depth > MAX_DEPTH)
        return lp_err_set(err, LP_STATUS_INVALID,
                          "the depth of a queue of reads is %d, expected 1 to %d", depth,
                          MAX_DEPTH);
    struct lp_direct_queue *queue = lp_alloc(1, sizeof *queue);
    if (!queue) return lp_err_memory(err, sizeof *queue, "a queue of reads");
    queue->depth = depth;
    lp_status status = LP_STATUS_UNSUPPORTED;
    if (way != LP_DIRECT_POOL) status = start(queue, &lp_direct_ring, err);
    if (way == LP_DIRECT_POOL || (way == LP_DIRECT_AUTO && status))
        status = start(queue, &lp_direct_pool, err);
    if (status) {
        lp_free(queue);
        return status;
    }
    *out = queue;
    return LP_OK;
}

void lp_direct_queue_free(struct lp_direct_queue *queue) {
    if (!queue) return;
    queue->waiting = (struct lp_direct_list){0};
    while (queue->n_flying && queue->engine->collect(queue, true) == 0) continue;
    queue->engine->stop(queue);
    lp_free(queue);
}

const char *lp_direct_queue_way(const struct lp_direct_queue *queue) {
    return queue->engine->name;
}

void lp_direct_submit(struct lp_direct_queue *queue, struct lp_direct_read *read) {
    read->done = 0;
    read->error = 0;
    queue->n_pending++;
    lp_direct_list_add(&queue->waiting, read);
    launch_waiting(queue);
}

size_t lp_direct_n_pending(const struct lp_direct_queue *queue) {
    return queue->n_pending;
}

static lp_status status_of(const struct lp_direct_read *read, struct lp_err *err) {
    unsigned long long end = read->offset + read->n_bytes, at = read->offset + read->done;
    if (!read->error) return LP_OK;
    if (read->error == LP_DIRECT_ENDED)
        return lp_err_set(err, LP_STATUS_IO,
                          "%s ends at byte %llu, and bytes up to %llu are to be read: it became "
                          "shorter while it was in use",
                          read->file->path, at, end);
    return lp_err_set(err, LP_STATUS_IO, "cannot read %s at byte %llu: %s", read->file->path, at,
                      strerror(read->error));
}

static lp_status give_back(struct lp_direct_queue *queue, struct lp_direct_read **out, bool wait,
                           struct lp_err *err) {
    *out = NULL;
    if (!queue->n_pending) return LP_OK;
    while (!queue->finished.first) {
        int error = queue->engine->collect(queue, wait);
        if (error)
            return lp_err_set(err, LP_STATUS_IO, "%s failed: %s", queue->engine->name,
                              strerror(error));
        if (!wait) break;
    }
    *out = lp_direct_list_take(&queue->finished);
    if (!*out) return LP_OK;
    queue->n_pending--;
    return status_of(*out, err);
}

lp_status lp_direct_wait(struct lp_direct_queue *queue, struct lp_direct_read **out,
                         struct lp_err *err) {
    return give_back(queue, out, true, err);
}

lp_status lp_direct_poll(struct lp_direct_queue *queue, struct lp_direct_read **out,
                         struct lp_err *err) {
    return give_back(queue, out, false, err);
}
