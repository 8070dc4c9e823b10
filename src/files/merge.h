// A split set as one file: part 1's metadata without the keys of the split, all tensors in order.
//
// The bytes of the file that was split, if limpid or llama-gguf-split did it. Memory: the headers,
// three times, and LP_NEW_FILE_BUFFER_BYTES; no tensor is ever held. Killed and run again, it goes
// on (new_file.h). Progress is drawn on standard error.
#ifndef LP_FILES_MERGE_H
#define LP_FILES_MERGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct lp_merge_options {
    const char *input; // any part
    const char *output;
    bool overwrite; // an output that exists
};

// Of a merge or a split that succeeded.
struct lp_copy_report {
    uint64_t n_tensors, n_bytes; // all that is written now
    uint64_t n_before;           // bytes of it that an earlier run has left
    uint32_t n_parts;            // read or written
    double seconds;              // of this run
};

// Errors: those of lp_gguf_open and lp_new_file_*; INVALID for a file that is no part of a set.
lp_status lp_merge(const struct lp_merge_options *options, struct lp_copy_report *report,
                   struct lp_err *err);

#endif
