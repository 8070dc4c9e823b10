// Files: read-only memory maps, and small files read whole.
#ifndef LP_BASE_FILE_H
#define LP_BASE_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct lp_mapped {
    const uint8_t *data; // NULL when the file is empty
    uint64_t n_bytes;
};

// Maps a regular file read-only and shared. The map stays valid after the file is renamed or
// deleted. Errors: IO, naming the path. Release with lp_mapped_close.
lp_status lp_mapped_open(struct lp_mapped *map, const char *path, struct lp_err *err);
void lp_mapped_close(struct lp_mapped *map);
// Takes the whole pages of a range of a map out of this process's memory, until they are read again.
void lp_mapped_drop(const struct lp_mapped *map, uint64_t offset, uint64_t n_bytes);
// Starts reading these bytes into the page cache, as far as the system wants to.
void lp_mapped_will_need(const struct lp_mapped *map, uint64_t offset, uint64_t n_bytes);

// Reads a whole file of at most max_bytes (LIMIT past it) into memory from lp_alloc, terminated.
lp_status lp_file_read(const char *path, uint64_t max_bytes, char **out, size_t *out_len,
                       struct lp_err *err);

// Whether both paths lead to one file that is there. NULL is no file.
bool lp_file_is_same(const char *a, const char *b);

#endif
