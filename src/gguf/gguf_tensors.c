// The tensor descriptors of one file, and where their data lies (6-8 of the list in gguf.h):
//
//   descriptors | padding | data 0 | padding | data 1 | padding | ... | data n-1 | (padding)
//               ^ header end        ^ data start = header end rounded up to the alignment
//
// 1. Offsets count from the data start and are exactly the running sum of padded sizes, so gaps,
//    overlaps and reordering cannot occur in an accepted file.
// 2. Every tensor's bytes lie inside its file; only the last one's padding may be missing.
// 3. Nothing follows the last padding.
#include <inttypes.h>

#include "base/checked.h"
#include "gguf/gguf_parts.h"

static lp_status cut_off(const struct lp_gguf_part *part, struct lp_str name, struct lp_err *err) {
    return lp_err_set(err, LP_STATUS_FORMAT,
                      "the file ends at byte %" PRIu64
                      " inside the descriptor of tensor %.*s; it is cut off, fetch it again",
                      part->n_bytes, LP_STR_ARGS(name));
}

static lp_status read_name(struct lp_gguf *gguf, uint32_t shard, struct lp_cursor *c, uint64_t i,
                           uint64_t n, struct lp_str *name, struct lp_err *err) {
    lp_status status = lp_gguf_read_string(c, name, "the name of tensor", i + 1, n, err);
    if (status) return status;
    if (name->len == 0)
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "the name of tensor %" PRIu64 " of %" PRIu64
                          " is empty; the tensor count is wrong or the file is damaged",
                          i + 1, n);
    if (name->len > LP_GGUF_MAX_NAME_BYTES)
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "the name of tensor %" PRIu64 " of %" PRIu64
                          " (%.*s) is %zu bytes long, at most %u are allowed",
                          i + 1, n, LP_STR_ARGS(*name), name->len, LP_GGUF_MAX_NAME_BYTES);
    if (memchr(name->data, 0, name->len))
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "the name of tensor %" PRIu64 " of %" PRIu64
                          " (%.*s...) holds a NUL byte",
                          i + 1, n, LP_STR_ARGS(*name));
    uint32_t old;
    if (!lp_map_add(&gguf->names, *name, (uint32_t)gguf->n_tensors, &old))
        return lp_err_memory(err, 0, "the table of tensor names");
    if (old == LP_MAP_NONE) return LP_OK;
    uint32_t other = gguf->tensors[old].shard;
    if (other == shard)
        return lp_err_set(err, LP_STATUS_FORMAT, "tensor %.*s occurs twice in the file",
                          LP_STR_ARGS(*name));
    return lp_err_set(
        err, LP_STATUS_FORMAT,
        "tensor %.*s is also in part %u (%s); a part is doubled or belongs to another model",
        LP_STR_ARGS(*name), other + 1, gguf->parts[other].name);
}

static lp_status read_dims(const struct lp_gguf_part *part, struct lp_cursor *c,
                           struct lp_gguf_tensor *t, struct lp_err *err) {
    if (!lp_cursor_u32(c, &t->n_dims)) return cut_off(part, t->name, err);
    if (t->n_dims < 1 || t->n_dims > 4)
        return lp_err_set(err, LP_STATUS_FORMAT, "tensor %.*s has %u dimensions, expected 1 to 4",
                          LP_STR_ARGS(t->name), t->n_dims);
    uint64_t product = 1;
    for (uint32_t d = 0; d < 4; d++) {
        t->ne[d] = 1;
        if (d >= t->n_dims) continue;
        if (!lp_cursor_u64(c, &t->ne[d])) return cut_off(part, t->name, err);
        if (t->ne[d] == 0 || t->ne[d] > INT64_MAX || !lp_mul_u64(product, t->ne[d], &product) ||
            product > INT64_MAX)
            return lp_err_set(err, LP_STATUS_FORMAT,
                              "tensor %.*s has ne[%u] = %" PRIu64
                              ", expected at least 1 and a product of all dimensions below 2^63",
                              LP_STR_ARGS(t->name), d, t->ne[d]);
    }
    return LP_OK;
}

// The type, and from it the size in bytes.
static lp_status read_type(const struct lp_gguf_part *part, struct lp_cursor *c,
                           struct lp_gguf_tensor *t, struct lp_err *err) {
    uint32_t id;
    if (!lp_cursor_u32(c, &id)) return cut_off(part, t->name, err);
    const struct lp_type_info *info = lp_type_info(id);
    if (!info || (info->in_memory_only && !part->header_only)) {
        char why[256];
        return lp_err_set(err, LP_STATUS_UNSUPPORTED, "tensor %.*s cannot be read: %s",
                          LP_STR_ARGS(t->name), lp_type_explain(id, why, sizeof why));
    }
    t->type = info->id;
    if (t->ne[0] % info->block_values)
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "tensor %.*s has rows of %" PRIu64
                          " values, expected a multiple of %u, the block of its type %s",
                          LP_STR_ARGS(t->name), t->ne[0], info->block_values, info->name);
    uint64_t bytes;
    bool fits = lp_type_row_bytes(t->type, t->ne[0], &bytes);
    for (uint32_t d = 1; d < 4; d++) fits = fits && lp_mul_u64(bytes, t->ne[d], &bytes);
    if (!fits || bytes > INT64_MAX)
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "tensor %.*s of type %s and dimensions %" PRIu64 " x %" PRIu64
                          " x %" PRIu64 " x %" PRIu64 " would have 2^63 bytes or more",
                          LP_STR_ARGS(t->name), info->name, t->ne[0], t->ne[1], t->ne[2], t->ne[3]);
    t->n_bytes = bytes;
    if (bytes <= part->n_bytes || part->header_only) return LP_OK;
    return lp_err_set(err, LP_STATUS_FORMAT,
                      "tensor %.*s needs %" PRIu64 " bytes (%s, %" PRIu64 " x %" PRIu64
                      " x %" PRIu64 " x %" PRIu64 "), but the file has only %" PRIu64
                      " bytes; it is cut off (fetch it again) or the dimensions are wrong",
                      LP_STR_ARGS(t->name), bytes, info->name, t->ne[0], t->ne[1], t->ne[2],
                      t->ne[3], part->n_bytes);
}

// The offset must be the running sum; *sum moves to the next tensor's.
static lp_status read_offset(const struct lp_gguf_part *part, struct lp_cursor *c,
                             struct lp_gguf_tensor *t, uint64_t *sum, struct lp_err *err) {
    uint64_t offset;
    if (!lp_cursor_u64(c, &offset)) return cut_off(part, t->name, err);
    if (offset % part->alignment)
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "tensor %.*s has offset %" PRIu64 ", expected %" PRIu64
                          " (a multiple of the alignment %u)",
                          LP_STR_ARGS(t->name), offset, *sum, part->alignment);
    if (offset != *sum)
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "tensor %.*s has offset %" PRIu64 ", expected %" PRIu64
                          "; tensors must lie one after the other, without %s",
                          LP_STR_ARGS(t->name), offset, *sum, offset > *sum ? "gaps" : "overlaps");
    t->file_offset = offset;
    uint64_t padded;
    if (lp_align_u64(t->n_bytes, part->alignment, &padded) && lp_add_u64(*sum, padded, sum))
        return LP_OK;
    return lp_err_set(err, LP_STATUS_FORMAT,
                      "tensor %.*s at offset %" PRIu64 " with %" PRIu64
                      " bytes would end past 2^64",
                      LP_STR_ARGS(t->name), offset, t->n_bytes);
}

// Turns offsets into places in the file; sum is the padded size of all data.
static lp_status place_data(struct lp_gguf *gguf, uint32_t shard, uint64_t header_bytes,
                            uint64_t sum, struct lp_err *err) {
    struct lp_gguf_part *part = &gguf->parts[shard];
    uint64_t n_bytes = part->n_bytes, start, end;
    if (part->header_only) return LP_OK;
    if (!lp_align_u64(header_bytes, part->alignment, &start) || !lp_add_u64(start, sum, &end))
        return lp_err_set(err, LP_STATUS_FORMAT, "the tensor data would end past 2^64");
    struct lp_gguf_tensor *tensors = gguf->tensors + (gguf->n_tensors - part->n_tensors);
    for (uint64_t i = 0; i < part->n_tensors; i++) {
        struct lp_gguf_tensor *t = &tensors[i];
        t->file_offset += start; // below `end`, which did not overflow
        if (t->file_offset > n_bytes || t->n_bytes > n_bytes - t->file_offset)
            return lp_err_set(err, LP_STATUS_FORMAT,
                              "tensor %.*s needs %" PRIu64 " bytes at byte %" PRIu64
                              ", but the file has only %" PRIu64
                              " bytes; it is cut off (expected about %" PRIu64 "), fetch it again",
                              LP_STR_ARGS(t->name), t->n_bytes, t->file_offset, n_bytes, end);
        t->data = part->data + t->file_offset;
    }
    if (n_bytes <= end) return LP_OK;
    struct lp_str last = part->n_tensors ? tensors[part->n_tensors - 1].name : lp_str_from("none");
    return lp_err_set(
        err, LP_STATUS_FORMAT,
        "%" PRIu64 " bytes of trailing data follow byte %" PRIu64
        ", where the last tensor (%.*s) ends; the tensor count is wrong, or parts of a split set "
        "were joined by cat, which does not work: open part 1 of N directly",
        n_bytes - end, end, LP_STR_ARGS(last));
}

static lp_status reserve(struct lp_gguf *gguf, uint64_t n_tensors, struct lp_err *err) {
    uint64_t total = gguf->n_tensors + n_tensors; // both at most LP_GGUF_MAX_TENSORS
    if (total > LP_GGUF_MAX_TENSORS)
        return lp_err_set(err, LP_STATUS_LIMIT,
                          "the parts together have %" PRIu64 " tensors, at most %u are read", total,
                          LP_GGUF_MAX_TENSORS);
    struct lp_gguf_tensor *grown = lp_realloc(gguf->tensors, (size_t)total, sizeof *grown);
    if (!grown) return lp_err_memory(err, (size_t)total * sizeof *grown, "the tensor directory");
    gguf->tensors = grown;
    if (!lp_map_reserve(&gguf->names, (size_t)total))
        return lp_err_memory(err, (size_t)total * 48, "the table of tensor names");
    return LP_OK;
}

static lp_status read_directory(struct lp_gguf *gguf, uint32_t shard, struct lp_err *err) {
    struct lp_gguf_part *part = &gguf->parts[shard];
    struct lp_cursor *c = &part->rest;
    uint64_t n_tensors = part->n_tensors_said, sum = 0;
    lp_status status = reserve(gguf, n_tensors, err);
    if (status) return status;
    for (uint64_t i = 0; i < n_tensors; i++) {
        struct lp_gguf_tensor t = {.shard = shard};
        status = read_name(gguf, shard, c, i, n_tensors, &t.name, err);
        if (!status) status = read_dims(part, c, &t, err);
        if (!status) status = read_type(part, c, &t, err);
        if (!status) status = read_offset(part, c, &t, &sum, err);
        if (status) return status;
        gguf->tensors[gguf->n_tensors++] = t;
        part->n_tensors++;
    }
    return place_data(gguf, shard, part->n_bytes - lp_cursor_left(c), sum, err);
}

lp_status lp_gguf_tensors_read(struct lp_gguf *gguf, uint32_t shard, struct lp_err *err) {
    lp_status status = read_directory(gguf, shard, err);
    if (status) lp_err_context(err, "%s", gguf->parts[shard].name);
    return status;
}
