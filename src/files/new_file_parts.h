// What the sources of new_file.h share.
//
// Invariant of a file with a job: bytes [0, front) are written, bytes [0, synced) are on the disk,
// synced <= front, and the state file never says more than that.
#ifndef LP_FILES_NEW_FILE_PARTS_H
#define LP_FILES_NEW_FILE_PARTS_H

#include <limits.h>
#include <pthread.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "files/new_file.h"
#include "files/on_signal.h"

// ---- new_file_state.c: the state file ----

#define LP_BOOT_BYTES 37 // "4f0d...": an id of this run of the machine, terminated

// While the machine is not started anew, what a killed process wrote is in the page cache or on the
// disk, hence `written`; afterwards only `synced` is sure.
struct lp_new_file_state {
    uint64_t synced, written;
    uint64_t inode; // of the partial file, and of the whole one after the rename
    char boot[LP_BOOT_BYTES];
};

void lp_new_file_boot(char boot[LP_BOOT_BYTES]); // "" where the system has none

enum lp_state_found {
    LP_STATE_NONE,  // there is none, or it was not written by limpid
    LP_STATE_OTHER, // of another job, or of none
    LP_STATE_SAME
};
enum lp_state_found lp_new_file_state_read(struct lp_new_file_state *state, const char *path,
                                           const char *job);
// Opens it for lp_new_file_state_put: as it is (go_on), or new. False with errno.
bool lp_new_file_state_open(int *fd, const char *path, const char *job, bool go_on);
bool lp_new_file_state_put(int fd, const struct lp_new_file_state *state);

// ---- new_file_place.c: where it goes, and what is there ----

struct lp_new_file_place {
    char *path; // behind all links
    char *partial, *state_path;
    bool exists;
    mode_t mode;     // for the new file
    uint64_t done;   // bytes that an earlier run of the job has left
    uint64_t synced; // of them, on the disk
    uint64_t there;  // bytes of disk that the partial file takes
    bool same_job;   // the state file is of this job
    bool whole;      // an earlier run finished PATH
};

lp_status lp_new_file_place_find(struct lp_new_file_place *place,
                                 const struct lp_new_file_options *options, struct lp_err *err);
void lp_new_file_place_release(struct lp_new_file_place *place);
// Whether one file may have this size, for the process and the file system. Errors: LIMIT.
lp_status lp_new_file_check_size(const char *path, uint64_t n_bytes, struct lp_err *err);

// ---- new_file.c, new_file_copy.c, new_file_sync.c ----

struct lp_new_file {
    struct lp_new_file_place place;
    const char *name; // as the user gave it, own copy
    uint64_t n_bytes, disk_bytes;
    bool resumable, keep_state, whole, finished;
    int fd, state_fd; // -1 where not open
    struct lp_new_file_state state;
    uint64_t recorded;  // what the state file says is written
    uint64_t unstarted; // bytes since writeback was last begun (no job), atomic
    pthread_t sync_thread;
    bool syncing; // the thread brings [0, sync_end) to the disk
    uint64_t sync_end;
    int sync_error;   // errno of the thread, once it is over
    bool drop_behind; // larger than what a page cache should be filled with
    bool in_kernel;   // copy_file_range has not been refused yet
    void *buffer;     // or NULL
    struct lp_on_signal on_signal;
    int slot;
};

// new_file_sync.c. Notes that [offset, offset + n) is written: writeback, state file.
lp_status lp_new_file_advance(struct lp_new_file *f, uint64_t offset, uint64_t n,
                              struct lp_err *err);
// All to the disk, then the state file. Errors: IO.
lp_status lp_new_file_sync(struct lp_new_file *f, struct lp_err *err);
void lp_new_file_sync_wait(struct lp_new_file *f); // until no thread is at work

#endif
