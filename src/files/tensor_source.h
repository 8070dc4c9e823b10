// Where a file tool takes tensors from: a GGUF (or split set), or a Hugging Face folder. One list
// of tensors with GGUF names; their rows as they are stored, or as float32.
//
// A row is ne[0] values; rows are counted through all matrices of a tensor. Rows are read through
// descriptors where the source is a GGUF (nothing of it stays mapped in), from the mapped
// checkpoint where it is a folder. Reading is thread-safe.
#ifndef LP_FILES_TENSOR_SOURCE_H
#define LP_FILES_TENSOR_SOURCE_H

#include "base/map.h"
#include "files/folder_files.h"
#include "gguf/gguf_write.h"

struct lp_source_tensor {
    struct lp_str name;
    lp_type type; // that its rows are stored in
    uint32_t n_dims;
    uint64_t ne[4];
    uint64_t n_rows, row_bytes;
    bool has_factor; // NAME.scale is beside it: float32 rows have it in them, stored rows have not
    const void *of;  // the source's own
    const uint8_t *factors; // GGUF: float32, unaligned
    uint64_t n_factors;     // 1, or one for each matrix
};

struct lp_source {
    struct lp_source_tensor *tensors;
    uint64_t n_tensors, n_bytes;   // bytes of all tensors
    struct lp_gguf_writer *writer; // has the metadata, without split.*; no tensors yet
    struct lp_map by_name;
    const char *const *inputs; // [n_inputs] the files, for lp_new_file
    uint32_t n_inputs;
    struct lp_gguf *gguf; // or NULL
    const char **parts;   // of its parts: paths, descriptors
    int *fds;             // [n_fds]
    uint32_t n_fds;
    struct lp_hf_plan *folder;    // or NULL
    struct lp_folder_files files; // of the folder
};

// Errors: as lp_gguf_open's or lp_hf_plan_make's; FORMAT for a NAME.scale that does not fit NAME.
// Release in any case.
lp_status lp_source_open(struct lp_source *out, const char *path, struct lp_err *err);
void lp_source_release(struct lp_source *source);

const struct lp_source_tensor *lp_source_find(const struct lp_source *source, struct lp_str name);

// Rows first .. first + n - 1 as they are stored: n * row_bytes.
lp_status lp_source_pack(const struct lp_source *source, const struct lp_source_tensor *t,
                         uint64_t first, uint64_t n, void *out, struct lp_err *err);
// The same as float32, with the tensor's factor: n * ne[0] values. scratch: n * row_bytes. The type
// must have a dequantiser.
lp_status lp_source_rows(const struct lp_source *source, const struct lp_source_tensor *t,
                         uint64_t first, uint64_t n, float *out, void *scratch, struct lp_err *err);
// What of a tensor is mapped in need not stay in this process's memory: whoever reads it again gets
// it again.
void lp_source_forget(const struct lp_source *source, const struct lp_source_tensor *t);

#endif
