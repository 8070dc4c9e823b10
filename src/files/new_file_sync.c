// On the way to the disk. A file with a job is written from the front:
//
//     on the disk | a thread's fdatasync | just written
//     0        synced              sync_end          written
//
// After every LP_NEW_FILE_SYNC_BYTES a thread begins to bring what is written to the disk, while
// more is written; the next one begins when it is through. So at most twice that much is dirty, the
// end has little to wait for, and writing and writeback overlap. (Tried: sync_file_range on
// windows, and reading ahead with posix_fadvise. Both were slower than leaving that to the kernel,
// and waiting with sync_file_range takes the errors that fdatasync must see.)
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "files/new_file_parts.h"

#define RECORD_BYTES ((uint64_t)8 << 20) // between two lines of the state file
#define BEGIN_BYTES ((uint64_t)64 << 20) // of a file without a job

static lp_status fail_sync(const struct lp_new_file *f, int error, struct lp_err *err) {
    return lp_err_set(err, LP_STATUS_IO, "cannot bring %s to the disk: %s", f->place.partial,
                      strerror(error));
}

static lp_status record(struct lp_new_file *f, struct lp_err *err) {
    if (!lp_new_file_state_put(f->state_fd, &f->state))
        return lp_err_set(err, LP_STATUS_IO, "cannot write %s: %s", f->place.state_path,
                          strerror(errno));
    f->recorded = f->state.written;
    return LP_OK;
}

static void *sync_in_thread(void *argument) {
    struct lp_new_file *f = argument;
    f->sync_error = fdatasync(f->fd) ? errno : 0;
    if (f->drop_behind && !f->sync_error)
        posix_fadvise(f->fd, (off_t)f->state.synced, (off_t)(f->sync_end - f->state.synced),
                      POSIX_FADV_DONTNEED);
    return NULL;
}

// Waits for the thread, if there is one.
static lp_status end_sync(struct lp_new_file *f, struct lp_err *err) {
    if (!f->syncing) return LP_OK;
    pthread_join(f->sync_thread, NULL);
    f->syncing = false;
    if (f->sync_error) return fail_sync(f, f->sync_error, err);
    f->state.synced = f->sync_end;
    return LP_OK;
}

static lp_status begin_sync(struct lp_new_file *f, struct lp_err *err) {
    lp_status status = end_sync(f, err);
    if (!status) status = record(f, err);
    if (status) return status;
    f->sync_end = f->state.written;
    f->syncing = pthread_create(&f->sync_thread, NULL, sync_in_thread, f) == 0;
    return LP_OK; // without a thread the kernel's own writeback has to do until the end
}

lp_status lp_new_file_sync(struct lp_new_file *f, struct lp_err *err) {
    lp_status status = end_sync(f, err);
    if (status) return status;
    if (fdatasync(f->fd)) return fail_sync(f, errno, err);
    f->state.synced = f->state.written;
    return record(f, err);
}

void lp_new_file_sync_wait(struct lp_new_file *f) {
    (void)end_sync(f, NULL);
}

// Written at any offset, by any thread: writeback is begun for the whole file, now and then. A
// hint: its failure is none.
static void begin_anywhere(struct lp_new_file *f, uint64_t n) {
    if (__atomic_add_fetch(&f->unstarted, n, __ATOMIC_RELAXED) < BEGIN_BYTES) return;
    if (__atomic_exchange_n(&f->unstarted, 0, __ATOMIC_RELAXED) >= BEGIN_BYTES)
        sync_file_range(f->fd, 0, 0, SYNC_FILE_RANGE_WRITE);
}

lp_status lp_new_file_advance(struct lp_new_file *f, uint64_t offset, uint64_t n,
                              struct lp_err *err) {
    if (!f->resumable) {
        begin_anywhere(f, n);
        return LP_OK;
    }
    if (offset != f->state.written) return LP_OK; // no longer from the front: resumes from there
    f->state.written += n;
    if (f->state.written - f->sync_end >= LP_NEW_FILE_SYNC_BYTES) return begin_sync(f, err);
    return f->state.written - f->recorded < RECORD_BYTES ? LP_OK : record(f, err);
}
