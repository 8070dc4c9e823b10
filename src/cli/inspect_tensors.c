// The tensors of a model for limpid inspect: grouped by role, by type, one by one, and what of them
// is bound.
#include <string.h>

#include "base/alloc.h"
#include "base/map.h"
#include "cli/inspect_build.h"
#include "hf/hf_names.h"

struct group {
    json_t *row; // borrowed from the list
    uint64_t count, bytes;
};

// "blk.*.attn_norm.weight": the role of a tensor, whatever its layer.
static struct lp_str role_of(struct lp_str name, char *buffer, size_t bytes) {
    size_t i = 4;
    if (name.len < 6 || memcmp(name.data, "blk.", 4) != 0) return name;
    while (i < name.len && name.data[i] >= '0' && name.data[i] <= '9') i++;
    size_t rest = name.len - i;
    if (i == 4 || rest == 0 || name.data[i] != '.' || rest + 5 > bytes) return name;
    memcpy(buffer, "blk.*", 5);
    memcpy(buffer + 5, name.data + i, rest);
    return (struct lp_str){buffer, rest + 5};
}

struct grouping {
    struct lp_map index; // role, type and shape -> group
    struct lp_arena keys;
    struct group *groups;
    uint32_t n;
};

static struct group *group_of(struct lp_inspect_builder *b, struct grouping *g,
                              const struct lp_gguf_tensor *t, json_t *list) {
    char role_buffer[96];
    struct lp_bytes key = {0};
    struct lp_str role = role_of(t->name, role_buffer, sizeof role_buffer);
    lp_bytes_append(&key, t->ne, sizeof t->ne);
    lp_bytes_append(&key, &t->type, sizeof t->type);
    lp_bytes_append(&key, role.data, role.len);
    uint32_t at = key.failed ? LP_MAP_NONE : lp_map_get(&g->index, lp_bytes_view(&key));
    if (at == LP_MAP_NONE) {
        char *kept = key.failed ? NULL : lp_arena_strndup(&g->keys, key.data, key.len);
        json_t *row = json_object();
        lp_inspect_put(b, row, "role", lp_json_build_text(role));
        lp_inspect_put(b, row, "type", lp_json_build_type(t->type));
        lp_inspect_put(b, row, "shape", lp_json_build_shape(t));
        lp_inspect_add(b, list, row);
        if (!kept || !row || !lp_map_add(&g->index, (struct lp_str){kept, key.len}, g->n, NULL))
            b->failed = true;
        at = g->n++;
        g->groups[at] = (struct group){.row = row};
    }
    lp_bytes_release(&key);
    return &g->groups[at];
}

json_t *lp_inspect_groups(struct lp_inspect_builder *b) {
    const struct lp_gguf *gguf = b->in->gguf;
    uint64_t n = lp_gguf_n_tensors(gguf);
    json_t *list = json_array();
    struct grouping g = {.groups = lp_alloc((size_t)n, sizeof *g.groups)};
    if (!g.groups) b->failed = true;
    for (uint64_t i = 0; i < n && !b->failed; i++) {
        const struct lp_gguf_tensor *t = lp_gguf_tensor_at(gguf, i);
        struct group *group = group_of(b, &g, t, list);
        group->count++;
        group->bytes += t->n_bytes;
    }
    for (uint32_t i = 0; i < g.n && !b->failed; i++) {
        lp_inspect_put(b, g.groups[i].row, "count", lp_json_build_count(g.groups[i].count));
        lp_inspect_put(b, g.groups[i].row, "bytes", lp_json_build_count(g.groups[i].bytes));
    }
    lp_map_release(&g.index);
    lp_arena_release(&g.keys);
    lp_free(g.groups);
    return list;
}

json_t *lp_inspect_types(struct lp_inspect_builder *b) {
    const struct lp_gguf *gguf = b->in->gguf;
    uint64_t count[LP_TYPE_COUNT] = {0}, bytes[LP_TYPE_COUNT] = {0}, values[LP_TYPE_COUNT] = {0};
    json_t *list = json_array();
    for (uint64_t i = 0; i < lp_gguf_n_tensors(gguf); i++) {
        const struct lp_gguf_tensor *t = lp_gguf_tensor_at(gguf, i);
        count[t->type]++;
        bytes[t->type] += t->n_bytes;
        values[t->type] += lp_inspect_values(t);
    }
    for (uint32_t type = 0; type < LP_TYPE_COUNT; type++) {
        if (!count[type]) continue;
        json_t *row = json_object();
        lp_inspect_put(b, row, "type", lp_json_build_type((lp_type)type));
        lp_inspect_put(b, row, "count", lp_json_build_count(count[type]));
        lp_inspect_put(b, row, "parameters", lp_json_build_count(values[type]));
        lp_inspect_put(b, row, "bytes", lp_json_build_count(bytes[type]));
        lp_inspect_put(
            b, row, "bits_per_weight",
            json_real(values[type] ? 8.0 * (double)bytes[type] / (double)values[type] : 0));
        lp_inspect_add(b, list, row);
    }
    return list;
}

static const char *ignored_reason(const struct lp_inspect *in, const struct lp_map *ignored,
                                  struct lp_str name) {
    uint32_t at = lp_map_get(ignored, name);
    return at == LP_MAP_NONE ? NULL : in->binding.ignored[at].reason;
}

// What the tensor is called in a Hugging Face folder; "*" stands for an expert's number.
static json_t *checkpoint_name(const struct lp_inspect *in, struct lp_str name) {
    char other[LP_HF_NAME_BYTES];
    return lp_hf_name(in->h.arch, name, other) ? json_string(other) : json_null();
}

json_t *lp_inspect_tensors(struct lp_inspect_builder *b) {
    const struct lp_inspect *in = b->in;
    struct lp_map ignored = {0};
    json_t *list = json_array();
    for (uint64_t i = 0; in->is_bound && i < in->binding.n_ignored; i++)
        if (!lp_map_add(&ignored, in->binding.ignored[i].tensor->name, (uint32_t)i, NULL))
            b->failed = true;
    for (uint64_t i = 0; i < lp_gguf_n_tensors(in->gguf); i++) {
        const struct lp_gguf_tensor *t = lp_gguf_tensor_at(in->gguf, i);
        json_t *row = json_object();
        lp_inspect_put(b, row, "name", lp_json_build_text(t->name));
        lp_inspect_put(b, row, "type", lp_json_build_type(t->type));
        lp_inspect_put(b, row, "shape", lp_json_build_shape(t));
        lp_inspect_put(b, row, "bytes", lp_json_build_count(t->n_bytes));
        lp_inspect_put(b, row, "part", json_integer(t->shard));
        lp_inspect_put(b, row, "offset", lp_json_build_count(t->file_offset));
        if (in->is_bound) {
            const char *reason = ignored_reason(in, &ignored, t->name);
            lp_inspect_put(b, row, "bound", json_boolean(!reason));
            lp_inspect_put(b, row, "ignored_because", reason ? json_string(reason) : json_null());
            lp_inspect_put(b, row, "checkpoint_name", checkpoint_name(in, t->name));
        }
        lp_inspect_add(b, list, row);
    }
    lp_map_release(&ignored);
    return list;
}

// ---- what is bound

json_t *lp_inspect_count_reason(struct lp_inspect_builder *b, json_t *list, const char *reason) {
    json_t *row = NULL;
    for (size_t i = 0; i < json_array_size(list) && !row; i++) {
        json_t *at = json_array_get(list, i);
        if (strcmp(json_string_value(json_object_get(at, "reason")), reason) == 0) row = at;
    }
    if (!row) {
        row = json_object();
        lp_inspect_put(b, row, "reason", json_string(reason));
        lp_inspect_add(b, list, row);
        if (b->failed) return NULL;
    }
    json_int_t count = json_integer_value(json_object_get(row, "count"));
    lp_inspect_put(b, row, "count", json_integer(count + 1));
    return row;
}

static json_t *reasons_json(struct lp_inspect_builder *b) {
    const struct lp_binding *binding = &b->in->binding;
    json_t *list = json_array();
    for (uint64_t i = 0; i < binding->n_ignored && !b->failed; i++) {
        json_t *row = lp_inspect_count_reason(b, list, binding->ignored[i].reason);
        json_int_t bytes = json_integer_value(json_object_get(row, "bytes"));
        lp_inspect_put(b, row, "bytes",
                       json_integer(bytes + (json_int_t)binding->ignored[i].tensor->n_bytes));
    }
    return list;
}

json_t *lp_inspect_binding(struct lp_inspect_builder *b) {
    json_t *object = json_object();
    lp_inspect_put(b, object, "tensors", lp_json_build_count(b->in->binding.n_tensors));
    lp_inspect_put(b, object, "bound", lp_json_build_count(b->in->binding.n_bound));
    lp_inspect_put(b, object, "ignored", lp_json_build_count(b->in->binding.n_ignored));
    lp_inspect_put(b, object, "reasons", reasons_json(b));
    return object;
}
