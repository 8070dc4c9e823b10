// Opening, finishing and closing; what goes into the file is new_file_copy.c's.
#include "files/new_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "files/new_file_parts.h"

#define WAIT_US 50000
#define WAIT_STEPS 600 // 30 s

static lp_status fail(const struct lp_new_file *f, const char *doing, struct lp_err *err) {
    return lp_err_set(err, LP_STATUS_IO, "cannot %s %s: %s", doing, f->place.partial,
                      strerror(errno));
}

// ---- opening ----

static lp_status check_room(const struct lp_new_file *f, struct lp_err *err) {
    uint64_t there = f->place.there < f->disk_bytes ? f->place.there : f->disk_bytes;
    lp_status status = lp_new_file_check_size(f->place.path, f->n_bytes, err);
    return status ? status
                  : lp_new_file_room(f->place.path, f->place.path, f->disk_bytes - there, err);
}

// False when another process holds it. The same command, killed a moment ago, may still be on its
// way out (a thread in fdatasync); another one is not waited for.
static bool lock(const struct lp_new_file *f) {
    for (int i = 0; flock(f->fd, LOCK_EX | LOCK_NB); i++) {
        if (errno != EWOULDBLOCK && errno != EINTR) return true; // not every file system has locks
        if (!f->place.same_job || i == WAIT_STEPS) return false;
        usleep(WAIT_US);
    }
    return true;
}

static lp_status open_partial(struct lp_new_file *f, struct lp_err *err) {
    struct stat mine, named;
    f->fd = open(f->place.partial,
                 O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0666);
    if (f->fd < 0) return fail(f, "write", err);
    bool mine_alone = lock(f);
    if (mine_alone && (fstat(f->fd, &mine) || lstat(f->place.partial, &named)))
        return fail(f, "look at", err);
    if (!mine_alone || mine.st_ino != named.st_ino) // renamed between open and lock
        return lp_err_set(err, LP_STATUS_BUSY, "%s is being written by another process",
                          f->place.partial);
    if (!S_ISREG(mine.st_mode)) {
        errno = EINVAL;
        return fail(f, "write", err);
    }
    f->state.inode = (uint64_t)mine.st_ino;
    return LP_OK;
}

static lp_status fail_state(const struct lp_new_file *f, struct lp_err *err) {
    return lp_err_set(err, LP_STATUS_IO, "cannot write %s: %s", f->place.state_path,
                      strerror(errno));
}

// Whenever the process ends, the state file promises no more than holds: what is begun again says
// so before the partial file is cut; what goes on keeps its state file until there is more.
static lp_status begin(struct lp_new_file *f, const char *job, struct lp_err *err) {
    uint64_t done = f->place.done;
    f->state.written = f->recorded = f->sync_end = done;
    f->state.synced = f->place.synced;
    lp_status status = open_partial(f, err);
    if (status) return status;
    if (!lp_new_file_state_open(&f->state_fd, f->place.state_path, job, done > 0))
        return fail_state(f, err);
    if (ftruncate(f->fd, (off_t)done) || fchmod(f->fd, f->place.mode))
        return fail(f, "prepare", err);
    return lp_new_file_state_put(f->state_fd, &f->state) ? LP_OK : fail_state(f, err);
}

static bool watch_signals(struct lp_new_file *f) {
    struct lp_bytes note = {0};
    if (f->resumable) {
        lp_bytes_printf(&note,
                        "\nlimpid: interrupted; %s is kept, and the same command goes on from "
                        "there\n",
                        f->place.partial);
        f->on_signal.note = note.failed ? NULL : lp_strdup(note.data);
        lp_bytes_release(&note);
        if (!f->on_signal.note) return false;
    } else {
        f->on_signal.remove[0] = f->place.partial;
        f->on_signal.remove[1] = f->place.state_path;
    }
    f->slot = lp_on_signal_add(&f->on_signal);
    return true;
}

// A signal waits until the partial file that it has to remove is known. One that is kept needs no
// waiting, and may be waited for itself (lock).
static lp_status begin_watched(struct lp_new_file *f, const char *job, struct lp_err *err) {
    sigset_t ends, before;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGHUP);
    if (f->resumable) sigemptyset(&ends);
    pthread_sigmask(SIG_BLOCK, &ends, &before);
    lp_status status = begin(f, job, err);
    if (!status && !watch_signals(f)) status = lp_err_memory(err, 0, "a new file");
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}

static bool larger_than_cache(uint64_t n_bytes) {
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 && n_bytes / 4 > (uint64_t)pages / 16 * (uint64_t)page;
}

lp_status lp_new_file_open(struct lp_new_file **out, const struct lp_new_file_options *options,
                           uint64_t *done, struct lp_err *err) {
    *out = NULL;
    struct lp_new_file *f = lp_alloc(1, sizeof *f);
    if (!f) return lp_err_memory(err, sizeof *f, "a new file");
    f->fd = f->state_fd = f->slot = -1;
    f->n_bytes = options->n_bytes;
    f->disk_bytes = options->disk_bytes ? options->disk_bytes : options->n_bytes;
    f->resumable = options->job != NULL;
    f->keep_state = options->keep_state;
    f->in_kernel = true;
    f->drop_behind = larger_than_cache(f->n_bytes);
    lp_status status = lp_new_file_place_find(&f->place, options, err);
    f->whole = !status && f->place.whole;
    if (!status && !f->whole) {
        lp_new_file_boot(f->state.boot);
        status = check_room(f, err);
        if (!status) status = begin_watched(f, options->job, err);
    }
    if (status) {
        lp_new_file_close(f);
        return status;
    }
    if (done) *done = f->place.done;
    *out = f;
    return LP_OK;
}

// ---- the end ----

static lp_status sync_folder(const char *path, struct lp_err *err) {
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path) + 1, path);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool ok = fd >= 0 && (fsync(fd) == 0 || errno == EINVAL); // not every file system can
    int error = errno;
    if (fd >= 0) close(fd);
    return ok ? LP_OK
              : lp_err_set(err, LP_STATUS_IO, "cannot bring the folder %s to the disk: %s", folder,
                           strerror(error));
}

static lp_status make_whole(struct lp_new_file *f, struct lp_err *err) {
    struct stat st;
    if (fstat(f->fd, &st)) return fail(f, "look at", err);
    if ((uint64_t)st.st_size != f->n_bytes)
        return lp_err_set(err, LP_STATUS_FORMAT, "%s has %llu bytes, expected %llu",
                          f->place.partial, (unsigned long long)st.st_size,
                          (unsigned long long)f->n_bytes);
    f->state.written = f->n_bytes;
    lp_status status = lp_new_file_sync(f, err);
    if (status) return status;
    if (rename(f->place.partial, f->place.path))
        return lp_err_set(err, LP_STATUS_IO, "cannot rename %s to %s: %s", f->place.partial,
                          f->place.path, strerror(errno));
    f->finished = true;
    return sync_folder(f->place.path, err);
}

lp_status lp_new_file_finish(struct lp_new_file *f, struct lp_err *err) {
    if (!f->whole) {
        lp_status status = make_whole(f, err);
        if (status) return status;
    }
    f->finished = true;
    if (!f->keep_state) unlink(f->place.state_path);
    return LP_OK;
}

// What was begun here and cannot be resumed goes; so does what holds nothing yet.
static void leave_unfinished(struct lp_new_file *f) {
    bool keep = f->resumable && f->state.written > 0;
    if (keep) {
        lp_new_file_state_put(f->state_fd, &f->state);
        return;
    }
    unlink(f->place.partial);
    unlink(f->place.state_path);
}

void lp_new_file_close(struct lp_new_file *f) {
    if (!f) return;
    lp_on_signal_drop(f->slot);
    lp_new_file_sync_wait(f);
    if (f->fd >= 0 && f->state.inode && !f->finished) leave_unfinished(f);
    if (f->fd >= 0) close(f->fd);
    if (f->state_fd >= 0) close(f->state_fd);
    lp_free((void *)f->on_signal.note);
    lp_new_file_place_release(&f->place);
    lp_free(f->buffer);
    lp_free(f);
}

void lp_new_file_forget(const char *path) {
    char resolved[PATH_MAX];
    struct lp_bytes state_path = {0};
    lp_bytes_printf(&state_path, "%s.partial.state", realpath(path, resolved) ? resolved : path);
    if (!state_path.failed) unlink(state_path.data);
    lp_bytes_release(&state_path);
}
