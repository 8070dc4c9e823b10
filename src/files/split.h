// A GGUF as several files: PREFIX-00001-of-00004.gguf and so on, tensors in order, each part with
// the keys of split_keys.h. Part 1 has all metadata; later parts have only those keys, and the
// alignment where it is not 32 (it is each file's own). Merging gives back the same bytes.
//
// A set may be split anew. Memory: as merge.h says. Killed and run again, finished parts are kept
// and the one that was being written goes on: until the last is done each has its state file
// (new_file.h).
#ifndef LP_FILES_SPLIT_H
#define LP_FILES_SPLIT_H

#include "files/merge.h"
#include "files/split_plan.h"

struct lp_split_options {
    const char *input; // a file, or any part
    const char *prefix;
    struct lp_split_limits limits;
    bool overwrite; // parts that exist
};

// Nothing is written before all parts are known to have room. Errors: those of lp_gguf_open,
// lp_split_plan_make and lp_new_file_*.
lp_status lp_split(const struct lp_split_options *options, struct lp_copy_report *report,
                   struct lp_err *err);

#endif
