// Opening: one file, or a split set as one logical file. The metadata decides: split.count > 1
// makes a file a part; its name only helps to find the others. What must hold in a set of N parts:
//
// 1. The files are PREFIX-00001-of-0000N.gguf ... PREFIX-0000N-of-0000N.gguf, all present.
// 2. Part i says split.no = i - 1 and split.count = N; all say the same split.tensors.count, which
//    is the number of tensors of all parts together. Tensor names are unique across parts.
// 3. general.architecture and general.name of a later part, where present, are part 1's.
//
// Alignment and offsets are each part's own; part 1 may hold no tensors. Only headers are read.
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "base/huge_pages.h"
#include "gguf/gguf_parts.h"

#define SUFFIX_BYTES 20 // "-00001-of-00004.gguf"

static bool part_init(struct lp_gguf_part *part, const char *path) {
    part->path = lp_strdup(path);
    if (!part->path) return false;
    const char *slash = strrchr(part->path, '/');
    part->name = slash ? slash + 1 : part->path;
    return true;
}

static void part_release(struct lp_gguf_part *part) {
    lp_free(part->kvs);
    lp_map_release(&part->keys);
    lp_arena_release(&part->strings);
    lp_mapped_close(&part->map);
    lp_huge_unmap(part->memory, part->memory_bytes);
    lp_free(part->image);
    lp_free(part->path);
    *part = (struct lp_gguf_part){0};
}

// Of the part where they are mapped, if there is one.
static void tell_system(const struct lp_gguf *gguf, const void *mapped, size_t n_bytes,
                        void (*tell)(const struct lp_mapped *, uint64_t, uint64_t)) {
    for (uint32_t i = 0; i < gguf->n_parts; i++) {
        const struct lp_mapped *map = &gguf->parts[i].map;
        uint64_t offset = (uint64_t)((uintptr_t)mapped - (uintptr_t)map->data);
        if (map->data && offset < map->n_bytes && n_bytes <= map->n_bytes - offset)
            tell(map, offset, n_bytes);
    }
}

void lp_gguf_drop_pages(const struct lp_gguf *gguf, const void *data, size_t n_bytes) {
    tell_system(gguf, data, n_bytes, lp_mapped_drop);
}

void lp_gguf_will_need(const struct lp_gguf *gguf, const void *mapped, size_t n_bytes) {
    tell_system(gguf, mapped, n_bytes, lp_mapped_will_need);
}

struct lp_gguf *lp_gguf_shards_new(const char *path, struct lp_err *err) {
    struct lp_gguf *gguf = lp_alloc(1, sizeof *gguf);
    if (gguf) gguf->parts = lp_alloc(1, sizeof *gguf->parts);
    if (gguf && gguf->parts && part_init(&gguf->parts[0], path)) {
        gguf->n_parts = 1;
        return gguf;
    }
    if (gguf) lp_free(gguf->parts);
    lp_free(gguf);
    lp_err_memory(err, sizeof *gguf + sizeof *gguf->parts + strlen(path), "opening a GGUF file");
    return NULL;
}

void lp_gguf_close(struct lp_gguf *gguf) {
    if (!gguf) return;
    for (uint32_t i = 0; i < gguf->n_parts; i++) part_release(&gguf->parts[i]);
    lp_free(gguf->parts);
    lp_free(gguf->tensors);
    lp_map_release(&gguf->names);
    lp_free(gguf);
}

static lp_status map_and_read(struct lp_gguf_part *part, struct lp_err *err) {
    lp_status status = lp_mapped_open(&part->map, part->path, err);
    if (status) return status;
    part->data = part->map.data;
    part->n_bytes = part->map.n_bytes;
    return lp_gguf_read_metadata(part, err);
}

static lp_status open_one(struct lp_gguf **out, const char *path, struct lp_err *err) {
    *out = lp_gguf_shards_new(path, err);
    if (!*out) return LP_STATUS_MEMORY;
    lp_status status = map_and_read(&(*out)->parts[0], err);
    if (!status) status = lp_gguf_tensors_read(*out, 0, err);
    if (status) {
        lp_gguf_close(*out);
        *out = NULL;
    }
    return status;
}

// ---- what a part says about its set ----

struct split {
    uint64_t no, count, n_tensors;
};

// count = 1 for a file that is no part.
static lp_status read_split(const struct lp_gguf_part *part, struct split *split,
                            struct lp_err *err) {
    bool found;
    *split = (struct split){.count = 1};
    lp_status status =
        lp_gguf_get_part_u64(part, "split.count", LP_GGUF_MAX_SHARDS, &split->count, &found, err);
    if (!status && split->count > 1) {
        status = lp_gguf_get_part_u64(part, "split.no", split->count - 1, &split->no, NULL, err);
        if (!status)
            status = lp_gguf_get_part_u64(part, "split.tensors.count", LP_GGUF_MAX_TENSORS,
                                          &split->n_tensors, NULL, err);
    }
    if (split->count == 0) split->count = 1;
    if (status) lp_err_context(err, "%s", part->name);
    return status;
}

// ---- names ----

static bool five_digits(const char *text, uint32_t *out) {
    *out = 0;
    for (int i = 0; i < 5; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        *out = *out * 10 + (uint32_t)(text[i] - '0');
    }
    return true;
}

// "-%05d-of-%05d.gguf" at the end of a path.
static bool parse_suffix(const char *path, uint32_t *number, uint32_t *count) {
    size_t n = strlen(path);
    if (n < SUFFIX_BYTES) return false;
    const char *s = path + n - SUFFIX_BYTES;
    return s[0] == '-' && five_digits(s + 1, number) && memcmp(s + 6, "-of-", 4) == 0 &&
           five_digits(s + 10, count) && memcmp(s + 15, ".gguf", 5) == 0;
}

// The path of part `number`, from any part's; free with lp_free.
static char *part_path(const char *path, uint64_t number, uint64_t count) {
    size_t n = strlen(path), stem = n - SUFFIX_BYTES;
    char *out = lp_alloc(n + 1, 1);
    if (!out) return NULL;
    memcpy(out, path, stem);
    snprintf(out + stem, SUFFIX_BYTES + 1, "-%05u-of-%05u.gguf", (unsigned)number & 0xffff,
             (unsigned)count & 0xffff);
    return out;
}

// The name of the file must say what its metadata say, or the other parts cannot be found.
static lp_status check_name(const struct lp_gguf_part *part, const struct split *split,
                            struct lp_err *err) {
    uint32_t number, count;
    uint64_t want = split->no + 1;
    if (!parse_suffix(part->path, &number, &count))
        return lp_err_set(
            err, LP_STATUS_FORMAT,
            "%s is part %" PRIu64 " of %" PRIu64
            " of a split set (split.no, split.count), but its name does not end in -%05" PRIu64
            "-of-%05" PRIu64 ".gguf, so the other parts cannot be found; rename all parts to one "
            "prefix with that ending",
            part->name, want, split->count, want, split->count);
    if (count != split->count)
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "%s says split.count = %" PRIu64
                          ", but its name says %u parts; rename the parts to end in -%05" PRIu64
                          "-of-%05" PRIu64 ".gguf and so on",
                          part->name, split->count, count, want, split->count);
    if (number != want)
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "%s says split.no = %" PRIu64
                          ", but by its name it is part %u, expected split.no = %" PRId64
                          "; the part was swapped or renamed, rename it to end in -%05" PRIu64
                          "-of-%05" PRIu64 ".gguf",
                          part->name, split->no, number, (int64_t)number - 1, want, split->count);
    return LP_OK;
}

// ---- the set ----

// Makes room for all parts and gives each its path. Part 0 keeps its place.
static lp_status name_parts(struct lp_gguf *gguf, uint64_t count, struct lp_err *err) {
    struct lp_gguf_part *parts = lp_realloc(gguf->parts, (size_t)count, sizeof *parts);
    if (!parts)
        return lp_err_memory(err, (size_t)count * sizeof *parts, "the parts of a split set");
    gguf->parts = parts;
    memset(parts + 1, 0, (size_t)(count - 1) * sizeof *parts);
    for (uint64_t i = 1; i < count; i++) {
        char *path = part_path(parts[0].path, i + 1, count);
        bool made = path && part_init(&parts[i], path);
        lp_free(path);
        if (!made) return lp_err_memory(err, strlen(parts[0].path) + 1, "the name of a part");
        gguf->n_parts = (uint32_t)i + 1;
    }
    return LP_OK;
}

// Names every missing part of the set that `path` belongs to, in one message.
static lp_status check_presence(const char *path, uint64_t count, struct lp_err *err) {
    char list[640] = "";
    size_t used = 0;
    uint64_t n_missing = 0, n_listed = 0;
    for (uint64_t i = 0; i < count; i++) {
        char *other = part_path(path, i + 1, count);
        if (!other) return lp_err_memory(err, strlen(path) + 1, "the name of a part");
        if (access(other, F_OK) != 0) {
            const char *slash = strrchr(other, '/');
            const char *name = slash ? slash + 1 : other;
            size_t n = strlen(name);
            n_missing++;
            if (used + n + 3 < sizeof list) {
                used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "",
                                         name);
                n_listed++;
            }
        }
        lp_free(other);
    }
    if (!n_missing) return LP_OK;
    const char *slash = strrchr(path, '/');
    char more[40] = "";
    if (n_listed < n_missing)
        snprintf(more, sizeof more, " and %" PRIu64 " more", n_missing - n_listed);
    return lp_err_set(err, LP_STATUS_IO,
                      "%s belongs to a split set of %" PRIu64
                      " parts; missing from its folder (%" PRIu64 "): %s%s",
                      slash ? slash + 1 : path, count, n_missing, list, more);
}

// A later part's string, where present, is part 1's.
static lp_status check_same(const struct lp_gguf *gguf, uint32_t shard, const char *key,
                            struct lp_err *err) {
    const struct lp_gguf_part *part = &gguf->parts[shard], *first = &gguf->parts[0];
    const struct lp_gguf_kv *a = lp_gguf_get_part_kv(first, key),
                            *b = lp_gguf_get_part_kv(part, key);
    if (!b) return LP_OK;
    if (a && a->type == LP_GGUF_STRING && b->type == LP_GGUF_STRING &&
        lp_str_equal(a->strings[0], b->strings[0]))
        return LP_OK;
    struct lp_str none = lp_str_from("none");
    struct lp_str va = a && a->type == LP_GGUF_STRING ? a->strings[0] : none;
    struct lp_str vb = b->type == LP_GGUF_STRING ? b->strings[0] : none;
    return lp_err_set(err, LP_STATUS_FORMAT,
                      "%s is a part of another model: its %s is %.*s, that of %s is %.*s",
                      part->name, key, LP_STR_ARGS(vb), first->name, LP_STR_ARGS(va));
}

static lp_status check_part(const struct lp_gguf *gguf, uint32_t shard, const struct split *first,
                            struct lp_err *err) {
    const struct lp_gguf_part *part = &gguf->parts[shard];
    struct split split;
    lp_status status = read_split(part, &split, err);
    if (status) return status;
    if (split.count != first->count)
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "%s says split.count = %" PRIu64 ", expected %" PRIu64
                          " as in %s; it belongs to another set",
                          part->name, split.count, first->count, gguf->parts[0].name);
    if (split.no != shard)
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "%s says split.no = %" PRIu64
                          ", expected %u by its name; the parts were swapped, renamed or doubled",
                          part->name, split.no, shard);
    if (split.n_tensors != first->n_tensors)
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "%s says split.tensors.count = %" PRIu64 ", expected %" PRIu64
                          " as in %s; it belongs to another set",
                          part->name, split.n_tensors, first->n_tensors, gguf->parts[0].name);
    status = check_same(gguf, shard, "general.architecture", err);
    if (!status) status = check_same(gguf, shard, "general.name", err);
    return status;
}

// gguf holds part 1 already.
static lp_status read_set(struct lp_gguf *gguf, const struct split *first, struct lp_err *err) {
    lp_status status = name_parts(gguf, first->count, err);
    for (uint32_t i = 1; !status && i < gguf->n_parts; i++) {
        status = map_and_read(&gguf->parts[i], err);
        if (!status) status = check_part(gguf, i, first, err);
        if (!status) status = lp_gguf_tensors_read(gguf, i, err);
    }
    if (status || gguf->n_tensors == first->n_tensors) return status;
    return lp_err_set(err, LP_STATUS_FORMAT,
                      "%s says split.tensors.count = %" PRIu64
                      ", but the %u parts together hold %" PRIu64
                      " tensors; a part is damaged or of another model",
                      gguf->parts[0].name, first->n_tensors, gguf->n_parts, gguf->n_tensors);
}

// *gguf holds the part the user named; it is exchanged for part 1 when it is another one.
static lp_status open_set(struct lp_gguf **gguf, const struct split *named, struct lp_err *err) {
    struct split first = *named;
    lp_status status = check_name(&(*gguf)->parts[0], named, err);
    if (!status) status = check_presence((*gguf)->parts[0].path, named->count, err);
    if (status) return status;
    if (named->no != 0) {
        char *path = part_path((*gguf)->parts[0].path, 1, named->count);
        if (!path)
            return lp_err_memory(err, strlen((*gguf)->parts[0].path) + 1, "the name of a part");
        lp_gguf_close(*gguf);
        status = open_one(gguf, path, err);
        lp_free(path);
        if (status) return status;
        status = read_split(&(*gguf)->parts[0], &first, err);
        if (!status && first.count != named->count)
            return lp_err_set(err, LP_STATUS_FORMAT,
                              "%s says split.count = %" PRIu64 ", expected %" PRIu64 " by its name",
                              (*gguf)->parts[0].name, first.count, named->count);
        if (!status) status = check_name(&(*gguf)->parts[0], &first, err);
        if (status) return status;
    }
    return read_set(*gguf, &first, err);
}

lp_status lp_gguf_open(struct lp_gguf **out, const char *path, struct lp_err *err) {
    struct lp_gguf *gguf;
    struct split split;
    *out = NULL;
    lp_status status = open_one(&gguf, path, err);
    if (status) return status;
    status = read_split(&gguf->parts[0], &split, err);
    if (!status && split.count > 1) status = open_set(&gguf, &split, err);
    if (status)
        lp_gguf_close(gguf);
    else
        *out = gguf;
    return status;
}
