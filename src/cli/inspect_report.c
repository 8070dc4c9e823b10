// struct lp_inspect -> one JSON object. A failed allocation makes the whole report fail, at its
// end: put() and add() remember it.
#include <string.h>

#include "base/alloc.h"
#include "base/map.h"
#include "base/clean.h"
#include "cli/inspect.h"

struct builder {
    const struct lp_inspect *in;
    bool failed;
};

// Both take over the value.
static json_t *clean_json(struct lp_str text) {
    char buffer[LP_CLEAN_MAX_BYTES];
    return json_string(lp_clean_text(buffer, sizeof buffer, text));
}

static void put(struct builder *b, json_t *object, const char *key, json_t *value) {
    if (!value || json_object_set_new(object, key, value)) b->failed = true;
}
static void add(struct builder *b, json_t *array, json_t *value) {
    if (!value || json_array_append_new(array, value)) b->failed = true;
}
static json_t *number(uint64_t value) {
    return json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value);
}
// The text may quote bytes of the file that are no UTF-8.
static json_t *error_text(const struct lp_err *err) {
    return err->status ? clean_json(lp_str_from(err->text)) : json_null();
}

static uint64_t values_of(const struct lp_gguf_tensor *t) {
    return t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
}
static const char *type_name(lp_type type) {
    return lp_type_info(type)->name;
}

static json_t *shape_json(struct builder *b, const struct lp_gguf_tensor *t) {
    json_t *shape = json_array();
    for (uint32_t i = 0; i < t->n_dims; i++) add(b, shape, number(t->ne[i]));
    return shape;
}

// ---- the container

static json_t *files_json(struct builder *b) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < lp_gguf_n_shards(b->in->gguf); i++) {
        json_t *file = json_object();
        put(b, file, "path", clean_json(lp_str_from(lp_gguf_shard_path(b->in->gguf, i))));
        put(b, file, "alignment", json_integer(lp_gguf_alignment(b->in->gguf, i)));
        add(b, list, file);
    }
    return list;
}

static json_t *text_or_null(const struct lp_gguf *gguf, const char *key) {
    struct lp_str text;
    bool found = false;
    return lp_gguf_get_str(gguf, key, &text, &found, NULL) == LP_OK && found ? clean_json(text)
                                                                             : json_null();
}

static void put_container(struct builder *b, json_t *root) {
    const struct lp_gguf *gguf = b->in->gguf;
    uint64_t parameters = 0;
    for (uint64_t i = 0; i < lp_gguf_n_tensors(gguf); i++)
        parameters += values_of(lp_gguf_tensor_at(gguf, i));
    put(b, root, "files", files_json(b));
    put(b, root, "bytes", number(lp_gguf_file_bytes(gguf)));
    put(b, root, "gguf_version", json_integer(lp_gguf_version(gguf)));
    put(b, root, "architecture", text_or_null(gguf, "general.architecture"));
    put(b, root, "name", text_or_null(gguf, "general.name"));
    put(b, root, "n_tensors", number(lp_gguf_n_tensors(gguf)));
    put(b, root, "parameters", number(parameters));
    put(b, root, "can_run", json_boolean(b->in->is_bound && b->in->tokenizer));
    put(b, root, "error",
        error_text(b->in->model_error.status ? &b->in->model_error : &b->in->tokenizer_error));
}

// ---- metadata

// Keys outside the architecture's own prefix that limpid reads.
static bool is_common_key(struct lp_str key) {
    static const char *const keys[] = {"general.architecture",
                                       "general.name",
                                       "general.type",
                                       "general.alignment",
                                       "split.count",
                                       "split.no",
                                       "split.tensors.count",
                                       "tokenizer.ggml.model",
                                       "tokenizer.ggml.pre",
                                       "tokenizer.ggml.tokens",
                                       "tokenizer.ggml.merges",
                                       "tokenizer.ggml.token_type",
                                       "tokenizer.ggml.scores",
                                       "tokenizer.ggml.bos_token_id",
                                       "tokenizer.ggml.eos_token_id",
                                       "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id",
                                       "tokenizer.ggml.unknown_token_id",
                                       "tokenizer.ggml.padding_token_id",
                                       "tokenizer.ggml.add_bos_token",
                                       "tokenizer.ggml.add_eos_token",
                                       "tokenizer.ggml.add_space_prefix",
                                       "tokenizer.chat_template"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (lp_str_is(key, keys[i])) return true;
    return false;
}

static json_t *element_json(const struct lp_gguf_kv *kv, uint64_t i) {
    if (kv->element_type == LP_GGUF_STRING) return clean_json(kv->strings[i]);
    if (kv->element_type == LP_GGUF_BOOL) return json_boolean(lp_gguf_int_at(kv, i));
    if (lp_gguf_is_integral(kv->element_type)) return json_integer(lp_gguf_int_at(kv, i));
    double value = lp_gguf_float_at(kv, i);
    return value - value == 0 ? json_real(value) : json_null(); // JSON has no infinity
}

#define MAX_ELEMENTS 16 // of an array that are shown

static json_t *value_json(struct builder *b, const struct lp_gguf_kv *kv) {
    if (kv->type != LP_GGUF_ARRAY) return element_json(kv, 0);
    json_t *list = json_array();
    for (uint64_t i = 0; i < kv->count && i < MAX_ELEMENTS; i++) add(b, list, element_json(kv, i));
    return list;
}

static void put_metadata(struct builder *b, json_t *root) {
    const struct lp_gguf *gguf = b->in->gguf;
    uint64_t n = lp_gguf_n_kv(gguf), n_used = 0;
    json_t *list = json_array(), *ignored = json_array();
    for (uint64_t i = 0; i < n; i++) {
        const struct lp_gguf_kv *kv = lp_gguf_kv_at(gguf, i);
        bool used = is_common_key(kv->key) ||
                    (b->in->has_hparams && lp_hparams_knows_key(b->in->h.arch, kv->key));
        n_used += used;
        if (!used) add(b, ignored, clean_json(kv->key));
        if (!b->in->list_metadata) continue;
        json_t *entry = json_object();
        put(b, entry, "key", clean_json(kv->key));
        put(b, entry, "type", json_string(lp_gguf_value_type_name(kv->element_type)));
        if (kv->type == LP_GGUF_ARRAY) put(b, entry, "count", number(kv->count));
        put(b, entry, "value", value_json(b, kv));
        put(b, entry, "used", json_boolean(used));
        add(b, list, entry);
    }
    json_t *summary = json_object();
    put(b, summary, "keys", number(n));
    put(b, summary, "used", number(n_used));
    put(b, summary, "ignored", ignored);
    put(b, root, "metadata", summary);
    if (b->in->list_metadata)
        put(b, root, "metadata_keys", list);
    else
        json_decref(list);
}

// ---- tensors

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

static struct group *group_of(struct builder *b, struct grouping *g, const struct lp_gguf_tensor *t,
                              json_t *list) {
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
        put(b, row, "role", clean_json(role));
        put(b, row, "type", json_string(type_name(t->type)));
        put(b, row, "shape", shape_json(b, t));
        add(b, list, row);
        if (!kept || !row || !lp_map_add(&g->index, (struct lp_str){kept, key.len}, g->n, NULL))
            b->failed = true;
        at = g->n++;
        g->groups[at] = (struct group){.row = row};
    }
    lp_bytes_release(&key);
    return &g->groups[at];
}

static json_t *groups_json(struct builder *b) {
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
        put(b, g.groups[i].row, "count", number(g.groups[i].count));
        put(b, g.groups[i].row, "bytes", number(g.groups[i].bytes));
    }
    lp_map_release(&g.index);
    lp_arena_release(&g.keys);
    lp_free(g.groups);
    return list;
}

static json_t *types_json(struct builder *b) {
    const struct lp_gguf *gguf = b->in->gguf;
    uint64_t count[LP_TYPE_COUNT] = {0}, bytes[LP_TYPE_COUNT] = {0}, values[LP_TYPE_COUNT] = {0};
    json_t *list = json_array();
    for (uint64_t i = 0; i < lp_gguf_n_tensors(gguf); i++) {
        const struct lp_gguf_tensor *t = lp_gguf_tensor_at(gguf, i);
        count[t->type]++;
        bytes[t->type] += t->n_bytes;
        values[t->type] += values_of(t);
    }
    for (uint32_t type = 0; type < LP_TYPE_COUNT; type++) {
        if (!count[type]) continue;
        json_t *row = json_object();
        put(b, row, "type", json_string(type_name((lp_type)type)));
        put(b, row, "count", number(count[type]));
        put(b, row, "parameters", number(values[type]));
        put(b, row, "bytes", number(bytes[type]));
        put(b, row, "bits_per_weight",
            json_real(values[type] ? 8.0 * (double)bytes[type] / (double)values[type] : 0));
        add(b, list, row);
    }
    return list;
}

static const char *ignored_reason(const struct lp_inspect *in, const struct lp_map *ignored,
                                  struct lp_str name) {
    uint32_t at = lp_map_get(ignored, name);
    return at == LP_MAP_NONE ? NULL : in->binding.ignored[at].reason;
}

static json_t *tensor_list_json(struct builder *b) {
    const struct lp_inspect *in = b->in;
    struct lp_map ignored = {0};
    json_t *list = json_array();
    for (uint64_t i = 0; in->is_bound && i < in->binding.n_ignored; i++)
        if (!lp_map_add(&ignored, in->binding.ignored[i].tensor->name, (uint32_t)i, NULL))
            b->failed = true;
    for (uint64_t i = 0; i < lp_gguf_n_tensors(in->gguf); i++) {
        const struct lp_gguf_tensor *t = lp_gguf_tensor_at(in->gguf, i);
        json_t *row = json_object();
        put(b, row, "name", clean_json(t->name));
        put(b, row, "type", json_string(type_name(t->type)));
        put(b, row, "shape", shape_json(b, t));
        put(b, row, "bytes", number(t->n_bytes));
        put(b, row, "part", json_integer(t->shard));
        put(b, row, "offset", number(t->file_offset));
        if (in->is_bound) {
            const char *reason = ignored_reason(in, &ignored, t->name);
            put(b, row, "bound", json_boolean(!reason));
            put(b, row, "ignored_because", reason ? json_string(reason) : json_null());
        }
        add(b, list, row);
    }
    lp_map_release(&ignored);
    return list;
}

// ---- the model

static json_t *facts_json(struct builder *b) {
    json_t *list = json_array();
    for (int32_t i = 0; i < b->in->h.n_facts; i++) {
        const struct lp_fact *f = &b->in->h.facts[i];
        json_t *row = json_object();
        put(b, row, "name", json_string(f->name));
        put(b, row, "value", clean_json(lp_str_from(f->value)));
        put(b, row, "source", clean_json(lp_str_from(f->source)));
        add(b, list, row);
    }
    return list;
}

static json_t *layers_json(struct builder *b) {
    const struct lp_hparams *h = &b->in->h;
    bool mla = h->arch->attention == LP_ATTENTION_MLA;
    json_t *list = json_array();
    for (int32_t l = 0; l < h->n_layers; l++) {
        enum lp_indexer_role role = mla && h->top_k ? h->index_role[l] : LP_INDEXER_NONE;
        json_t *row = json_object();
        put(b, row, "layer", json_integer(l));
        put(b, row, "attention", json_string(mla ? "mla" : "gqa"));
        put(b, row, "indexer", json_string(lp_indexer_role_name(role)));
        put(b, row, "ffn", json_string(h->n_experts && l >= h->n_dense ? "experts" : "dense"));
        add(b, list, row);
    }
    return list;
}

static json_t *reasons_json(struct builder *b) {
    const struct lp_binding *binding = &b->in->binding;
    json_t *list = json_array();
    for (uint64_t i = 0; i < binding->n_ignored; i++) {
        const char *reason = binding->ignored[i].reason;
        json_t *row = NULL, *candidate;
        size_t k;
        json_array_foreach(
            list, k, candidate) if (strcmp(json_string_value(json_object_get(candidate, "reason")),
                                           reason) == 0) row = candidate;
        if (!row) {
            row = json_object();
            put(b, row, "reason", json_string(reason));
            add(b, list, row);
            if (b->failed) break;
        }
        put(b, row, "count", json_integer(json_integer_value(json_object_get(row, "count")) + 1));
        put(b, row, "bytes",
            json_integer(json_integer_value(json_object_get(row, "bytes")) +
                         (json_int_t)binding->ignored[i].tensor->n_bytes));
    }
    return list;
}

static json_t *binding_json(struct builder *b) {
    json_t *object = json_object();
    put(b, object, "tensors", number(b->in->binding.n_tensors));
    put(b, object, "bound", number(b->in->binding.n_bound));
    put(b, object, "ignored", number(b->in->binding.n_ignored));
    put(b, object, "reasons", reasons_json(b));
    return object;
}

static json_t *kernels_json(struct builder *b) {
    static const char *const mla_ops[] = {"mla_absorbed", "mla_expanded", "index_select"},
                             *const gqa_ops[] = {"gqa"};
    const struct lp_inspect *in = b->in;
    const struct lp_backend *backend = in->dev->backend;
    bool mla = in->h.arch->attention == LP_ATTENTION_MLA, seen[LP_TYPE_COUNT] = {false};
    json_t *object = json_object(), *matmul = json_object(), *attention = json_object();
    for (int32_t l = -1; l < in->h.n_layers; l++) {
        const struct lp_bound *bound = l < 0 ? &in->binding.model : &in->binding.blocks[l];
        for (int s = 0; s < LP_N_SLOTS; s++)
            if (bound->tensor[s] && bound->tensor[s]->n_dims > 1)
                seen[bound->tensor[s]->type] = true;
    }
    for (uint32_t type = 0; type < LP_TYPE_COUNT; type++) {
        const char *kernel = seen[type] ? backend->matmul_kernel(in->dev, (lp_type)type) : NULL;
        if (seen[type])
            put(b, matmul, type_name((lp_type)type), kernel ? json_string(kernel) : json_null());
    }
    size_t n_ops = mla ? in->h.top_k ? 3 : 2 : 1;
    for (size_t i = 0; i < n_ops; i++) {
        const char *op = mla ? mla_ops[i] : gqa_ops[i], *kernel = backend->kernel(in->dev, op);
        put(b, attention, op, kernel ? json_string(kernel) : json_null());
    }
    put(b, object, "backend", json_string(backend->name));
    put(b, object, "matmul", matmul);
    put(b, object, "attention", attention);
    return object;
}

static json_t *memory_json(struct builder *b) {
    const struct lp_plan *p = &b->in->plan;
    json_t *object = json_object();
    put(b, object, "context", json_integer(p->context));
    put(b, object, "chunk", json_integer(p->chunk));
    put(b, object, "kv_type", json_string(type_name(b->in->kv_type)));
    put(b, object, "mapped_bytes", number(p->mapped_bytes));
    put(b, object, "float32_bytes", number(p->float32_bytes));
    put(b, object, "kv_bytes_per_token", number(p->kv_token_bytes));
    put(b, object, "kv_bytes", number(p->kv_bytes));
    put(b, object, "step_bytes", number(p->step_bytes));
    put(b, object, "total_bytes",
        number(p->mapped_bytes + p->float32_bytes + p->kv_bytes + p->step_bytes));
    return object;
}

// ---- text

static json_t *token_json(struct builder *b, int32_t id) {
    if (id < 0) return json_null();
    json_t *object = json_object();
    put(b, object, "id", json_integer(id));
    put(b, object, "text", clean_json(lp_tokenizer_token(b->in->tokenizer, id)));
    return object;
}

static json_t *tokenizer_json(struct builder *b) {
    const struct lp_inspect *in = b->in;
    json_t *object = json_object();
    put(b, object, "model", text_or_null(in->gguf, "tokenizer.ggml.model"));
    put(b, object, "pre", text_or_null(in->gguf, "tokenizer.ggml.pre"));
    put(b, object, "error", error_text(&in->tokenizer_error));
    if (!in->tokenizer) return object;
    size_t n;
    const int32_t *stop = lp_tokenizer_stop_ids(in->tokenizer, &n);
    json_t *stops = json_array();
    for (size_t i = 0; i < n; i++) add(b, stops, token_json(b, stop[i]));
    put(b, object, "n_tokens", json_integer(lp_tokenizer_n_tokens(in->tokenizer)));
    put(b, object, "bos", token_json(b, lp_tokenizer_bos(in->tokenizer)));
    put(b, object, "eos", token_json(b, lp_tokenizer_eos(in->tokenizer)));
    put(b, object, "stop", stops);
    put(b, object, "adds_bos", json_boolean(lp_tokenizer_adds_bos(in->tokenizer)));
    return object;
}

static json_t *template_json(struct builder *b) {
    json_t *object = json_object();
    put(b, object, "present", json_boolean(b->in->has_template));
    put(b, object, "usable", json_boolean(b->in->chat_template != NULL));
    put(b, object, "error", error_text(&b->in->template_error));
    return object;
}

json_t *lp_inspect_report(const struct lp_inspect *in) {
    struct builder b = {.in = in};
    json_t *root = json_object();
    put_container(&b, root);
    put_metadata(&b, root);
    put(&b, root, "tokenizer", tokenizer_json(&b));
    put(&b, root, "chat_template", template_json(&b));
    if (in->has_hparams) put(&b, root, "facts", facts_json(&b));
    if (in->has_hparams) put(&b, root, "layers", layers_json(&b));
    put(&b, root, "tensor_groups", groups_json(&b));
    put(&b, root, "types", types_json(&b));
    if (in->list_tensors) put(&b, root, "tensors", tensor_list_json(&b));
    if (in->is_bound) put(&b, root, "binding", binding_json(&b));
    if (in->is_bound) put(&b, root, "kernels", kernels_json(&b));
    if (in->is_planned) put(&b, root, "memory", memory_json(&b));
    if (!b.failed) return root;
    json_decref(root);
    return NULL;
}
