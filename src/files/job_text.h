// The job of a new file (new_file.h): two runs with the same text write the same bytes.
#ifndef LP_FILES_JOB_TEXT_H
#define LP_FILES_JOB_TEXT_H

#include "base/bytes.h"
#include "gguf/gguf.h"

// A number that changes when a part of the source does: its path, size or time.
lp_status lp_job_source_hash(const struct lp_gguf *gguf, uint64_t *hash, struct lp_err *err);

// `command` and a hash of source and header. False without memory. The text is appended.
bool lp_job_text(struct lp_bytes *out, const char *command, uint64_t source_hash,
                 struct lp_str header, uint64_t n_bytes);

#endif
