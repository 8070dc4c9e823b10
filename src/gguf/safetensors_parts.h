// What safetensors.c (a file) and safetensors_folder.c (its shards) share.
#ifndef LP_GGUF_SAFETENSORS_PARTS_H
#define LP_GGUF_SAFETENSORS_PARTS_H

#include "base/alloc.h"
#include "base/file.h"
#include "base/map.h"
#include "gguf/safetensors.h"

// Bytes of a header or an index. A model of 61 layers of 256 experts has 140,000 arrays: 20 MB.
#define LP_ST_MAX_JSON ((uint64_t)256 << 20)

struct lp_st_file {
    char *path;
    struct lp_mapped map;
    bool is_ours; // to be unmapped
};

struct lp_safetensors {
    struct lp_st_file *files;
    size_t n_files, files_capacity;
    struct lp_st_array *arrays;
    size_t n_arrays, arrays_capacity;
    struct lp_map by_name;
    struct lp_arena texts; // names
};

struct lp_safetensors *lp_st_new(struct lp_err *err); // NULL without memory
// Maps one more file and adds its arrays.
lp_status lp_st_add_file(struct lp_safetensors *st, const char *path, struct lp_err *err);
// The text of a JSON string with its quotes, in the arena. FORMAT where it is none, or MEMORY.
lp_status lp_st_text(struct lp_arena *arena, struct lp_str json, char **out);

// model.safetensors.index.json: which array lies in which file.
struct lp_st_index {
    char **files; // in the order of their names
    size_t n_files, files_capacity;
    struct lp_st_index_entry {
        const char *array, *file;
    } * entries;
    size_t n_entries, entries_capacity;
    struct lp_arena texts;
};
// `from` names it in messages. Release in any case.
lp_status lp_st_index_read(struct lp_st_index *out, const void *text, uint64_t n_bytes,
                           const char *from, struct lp_err *err);
void lp_st_index_release(struct lp_st_index *index);

#endif
