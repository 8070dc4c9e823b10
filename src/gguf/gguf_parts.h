// What the files of this folder share: the parts of an open GGUF and the directory over them.
//
//   lp_gguf -- parts[0..n_parts)   one per file: its map, its metadata, its alignment
//           \- tensors[0..n)       all parts' descriptors, in order of part, then of the file
//           \- names               tensor name -> index
//
// Invariants: 1. every pointer into a file (keys, strings, arrays, tensor data) was checked against
// that file's size before it was stored. 2. The metadata of the set is that of parts[0]; later
// parts keep theirs for the checks of gguf_shards.c only.
#ifndef LP_GGUF_GGUF_PARTS_H
#define LP_GGUF_GGUF_PARTS_H

#include "base/alloc.h"
#include "base/file.h"
#include "base/map.h"
#include "gguf/gguf.h"
#include "gguf/gguf_cursor.h"

// Caps beside "it must fit in what is left of the file", so that a large hostile file cannot ask
// for much memory either. Real files have < 100 keys, < 50,000 tensors, < 500,000 strings in an
// array.
#define LP_GGUF_MAX_KEYS (1u << 16)
#define LP_GGUF_MAX_TENSORS (1u << 20)
#define LP_GGUF_MAX_STRINGS (1u << 24)
#define LP_GGUF_MAX_ELEMENTS (1u << 30)
#define LP_GGUF_MAX_STRING_BYTES (1u << 30)
#define LP_GGUF_MAX_KEY_BYTES 65535u
#define LP_GGUF_MAX_NAME_BYTES 63u
#define LP_GGUF_MAX_SHARDS 4096u
#define LP_GGUF_MIN_PAIR_BYTES 14u       // key length, 1 byte of key, type, 1 byte of value
#define LP_GGUF_MIN_DESCRIPTOR_BYTES 33u // name length, 1 byte of name, n_dims, ne[0], type, offset
#define LP_GGUF_MIN_ALIGNMENT 8u
#define LP_GGUF_MAX_ALIGNMENT (1u << 16)
#define LP_GGUF_DEFAULT_ALIGNMENT 32u

struct lp_gguf_part {
    char *path;
    const char *name;     // the last component of path, for messages
    struct lp_mapped map; // empty when the image is the caller's
    char *image;          // its own copy of a header (gguf_assemble.c), or NULL
    bool header_only;     // the data lies elsewhere: descriptors give sizes, no places
    void *memory;         // its tensor data, read ahead (gguf_prefetch.c), or NULL
    size_t memory_bytes;
    const uint8_t *data;
    uint64_t n_bytes;
    uint32_t version, alignment;
    struct lp_gguf_kv *kvs;
    uint64_t n_kv;
    struct lp_map keys;      // key -> index in kvs
    struct lp_arena strings; // the lp_str tables of string values
    struct lp_cursor rest;   // after the metadata: the descriptors
    uint64_t n_tensors_said; // in the header, held against the size of the file
    uint64_t n_tensors;      // read so far
};

struct lp_gguf {
    struct lp_gguf_part *parts;
    uint32_t n_parts;
    struct lp_gguf_tensor *tensors;
    uint64_t n_tensors;
    struct lp_map names;
};

// gguf_read.c: the header and metadata of a part whose path, name, data and n_bytes are set. Then
// gguf_tensors.c: its descriptors, appended to the directory, and where their data lies in the
// file. Errors carry the file's name in front.
lp_status lp_gguf_read_metadata(struct lp_gguf_part *part, struct lp_err *err);
lp_status lp_gguf_tensors_read(struct lp_gguf *gguf, uint32_t shard, struct lp_err *err);

// gguf_read.c: a string field; `what` and the 1-based index of `of` name it in the error.
lp_status lp_gguf_read_string(struct lp_cursor *c, struct lp_str *out, const char *what,
                              uint64_t index, uint64_t of, struct lp_err *err);

// gguf_get.c: as the public getters, for the metadata of one part and without the file's name.
const struct lp_gguf_kv *lp_gguf_get_part_kv(const struct lp_gguf_part *part, const char *key);
lp_status lp_gguf_get_part_u64(const struct lp_gguf_part *part, const char *key, uint64_t max,
                               uint64_t *out, bool *found, struct lp_err *err);

// gguf_shards.c: `path` is copied; n_parts entries, all empty but the first's path.
struct lp_gguf *lp_gguf_shards_new(const char *path, struct lp_err *err);

#endif
