// A large file that a command writes: PATH.partial until it is whole, then renamed to PATH. What
// stood at PATH stays until then, and for good if the command fails.
//
//   lp_new_file_open      checks the folder, the free space, and that no input is written over
//   lp_new_file_write / _copy    from front to back, or at any offset
//   lp_new_file_finish    fsync, rename, fsync of the folder
//   lp_new_file_close     without finish: removes the partial file, or keeps it where it can be
//                         resumed
//
// Resuming. Where the bytes of a file follow from its inputs alone and are written from front to
// back (merge, split), PATH.partial.state says which job it belongs to (`job`: a text of the
// command, the inputs' paths, sizes and times, and a hash of the header), how many bytes are
// written, and how many of them are known to be on the disk: a thread brings them there with
// fdatasync after every LP_NEW_FILE_SYNC_BYTES. A partial file of the same job goes on after what
// is written, or, if the machine went down in between, after what is on the disk; one of another
// job is begun again.
//
// A partial file without a state file is not one of limpid's and is never written over. Two
// processes cannot write one partial file (it is locked). SIGINT, SIGTERM and SIGHUP remove a
// partial file that cannot be resumed, and say that one that can is kept.
//
// Memory: one buffer of LP_NEW_FILE_BUFFER_BYTES. Writeback is begun as bytes are written, so that
// a file larger than memory neither fills the page cache with dirty pages nor waits at its end.
// One thread at a time, but lp_new_file_write at disjoint offsets may be called from several where
// there is no job.
#ifndef LP_FILES_NEW_FILE_H
#define LP_FILES_NEW_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#define LP_NEW_FILE_BUFFER_BYTES ((uint64_t)8 << 20)
#define LP_NEW_FILE_SYNC_BYTES ((uint64_t)256 << 20)

struct lp_new_file;

struct lp_new_file_options {
    const char *path;
    uint64_t n_bytes;          // what the file will have; the free space is held against it
    uint64_t disk_bytes;       // 0, or how many of them will be written: the rest are holes
    const char *job;           // resumable: see above; NULL = begun again after a kill
    const char *const *inputs; // [n_inputs] paths that must not be written over
    uint32_t n_inputs;
    bool overwrite;  // PATH may exist (--force); else that is an error
    bool keep_state; // with a job: the state file outlives finish (until lp_new_file_forget), so
                     // that one of several files of a command that was ended is known to be whole
};

// *done (may be NULL without job): bytes that are there already, from the front; n_bytes where an
// earlier run finished this very file: then there is nothing to write. Errors: IO, INVALID (exists,
// is an input, is no regular file), LIMIT (the disk has too little space: says how much is needed
// and how much is free; or it takes no file of this size), BUSY (another process writes it),
// MEMORY.
lp_status lp_new_file_open(struct lp_new_file **out, const struct lp_new_file_options *options,
                           uint64_t *done, struct lp_err *err);
lp_status lp_new_file_write(struct lp_new_file *f, uint64_t offset, const void *data, uint64_t n,
                            struct lp_err *err);
// From another file (an open descriptor; `from` names it in errors), in the kernel where it can.
lp_status lp_new_file_copy(struct lp_new_file *f, uint64_t offset, int fd, uint64_t fd_offset,
                           uint64_t n, const char *from, struct lp_err *err);
// Errors: IO; FORMAT where the file has not n_bytes.
lp_status lp_new_file_finish(struct lp_new_file *f, struct lp_err *err);
void lp_new_file_close(struct lp_new_file *f); // NULL is allowed

// What lp_new_file_open would say of path, inputs and partial file, and *done; touches nothing and
// does not look at the free space.
lp_status lp_new_file_check(const struct lp_new_file_options *options, uint64_t *done,
                            struct lp_err *err);
void lp_new_file_forget(const char *path); // removes the state file of a finished file

// Whether the file system of PATH, a file that may not exist yet, has room for n_bytes more; `what`
// needs them, as the error names it. Errors: LIMIT.
lp_status lp_new_file_room(const char *path, const char *what, uint64_t n_bytes,
                           struct lp_err *err);

#endif
