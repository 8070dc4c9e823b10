// The keys of a split set, and the header that a set has when it is one file again.
//
//   split.no             u16   number of the part, from 0
//   split.count          u16   of parts
//   split.tensors.count  i32   of tensors of all parts together
//   split.header_padding u8[]  limpid's own, in part 1, and only where the file that was split did
//                              not have what every known writer puts between its descriptors and its
//                              data (zeros up to the alignment; nothing without tensors): these
//                              bytes, so that merging gives back the very same file
#ifndef LP_FILES_SPLIT_KEYS_H
#define LP_FILES_SPLIT_KEYS_H

#include "files/gguf_slice.h"

#define LP_SPLIT_NO "split.no"
#define LP_SPLIT_COUNT "split.count"
#define LP_SPLIT_TENSORS "split.tensors.count"
#define LP_SPLIT_PADDING "split.header_padding"

bool lp_split_keys_any(const struct lp_gguf *gguf);                 // part 1 has one of the four
uint64_t lp_split_descriptor_bytes(const struct lp_gguf_tensor *t); // in a header

// A writer with part 1's metadata, in order, without the four. NULL without memory.
struct lp_gguf_writer *lp_split_keys_writer(const struct lp_gguf *gguf);

// The header of all tensors as one file.
struct lp_merged_header {
    struct lp_gguf_writer *writer;
    struct lp_str header, padding;
    bool odd_padding; // not what every known writer puts there
    uint8_t *own;     // or NULL
};
lp_status lp_merged_header_make(struct lp_merged_header *m, struct lp_gguf_source *s,
                                struct lp_err *err);
void lp_merged_header_release(struct lp_merged_header *m); // zeroed is allowed

// Says on standard error which keys of later parts part 1 lacks or contradicts: they are not kept.
lp_status lp_split_keys_compare(const struct lp_gguf *gguf, struct lp_err *err);

#endif
