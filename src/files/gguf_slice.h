// A run of the tensors of an open GGUF (a file or a set), in order, as one file: what merge writes
// once for all tensors and split several times.
//
//   header | padding | tensor first: data, padding | ... | tensor first + n_tensors - 1: data, padding
//
// Tensors and the padding behind them are copied as they are. Padding is zeros where the source has
// none (at the end of a part) or another alignment; only behind the last tensor of all it is
// missing where it is missing in the source. So a file that is split and merged is the same, byte
// for byte.
//
// Data is read through descriptors, one part's at a time, never through the map: a map of a 400 GB
// file would count as memory that the process holds.
#ifndef LP_FILES_GGUF_SLICE_H
#define LP_FILES_GGUF_SLICE_H

#include "base/progress.h"
#include "files/new_file.h"
#include "gguf/gguf.h"
#include "gguf/gguf_write.h"

struct lp_gguf_source {
    const struct lp_gguf *gguf;
    uint64_t last_end; // where the last part ends
    int fd;            // of part `shard`; -1: of none
    uint32_t shard;
    uint64_t fd_bytes;
};

// The files of `gguf`, which must outlive the source. Errors: IO.
lp_status lp_gguf_source_open(struct lp_gguf_source *s, const struct lp_gguf *gguf,
                              struct lp_err *err);
void lp_gguf_source_close(struct lp_gguf_source *s); // zeroed is allowed

const char **lp_gguf_source_paths(const struct lp_gguf *gguf); // of all parts; lp_free; or NULL

// n bytes at an offset of a part. Errors: IO.
lp_status lp_gguf_source_read(struct lp_gguf_source *s, uint32_t shard, uint64_t offset, void *out,
                              uint64_t n, struct lp_err *err);

struct lp_gguf_slice {
    struct lp_str header, padding; // up to where the tensors' data begins, or to the end
    uint32_t alignment;
    uint64_t first, n_tensors;
};

uint64_t lp_gguf_slice_bytes(const struct lp_gguf_source *s, const struct lp_gguf_slice *slice);

// Writes what is behind the first `done` bytes. The bar is told base + the bytes that are there.
// Errors: IO, MEMORY.
lp_status lp_gguf_slice_write(struct lp_gguf_source *s, const struct lp_gguf_slice *slice,
                              struct lp_new_file *f, uint64_t done, struct lp_progress *bar,
                              uint64_t base, struct lp_err *err);

#endif
