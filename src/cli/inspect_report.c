// struct lp_inspect -> one JSON object: the container, metadata, text and mathematics. Tensors and
// memory: inspect_tensors.c, inspect_memory.c.
#include <string.h>

#include "cli/inspect_build.h"
#include "hf/hf.h"

// What the file suggests to sample with (limpid_model_get_sampling).
#define SAMPLING_KEYS                                                                              \
    "general.sampling.temp", "general.sampling.top_p", "general.sampling.top_k",                   \
        "general.sampling.min_p", "general.sampling.penalty_repeat"

// The text may quote bytes of the file that are no UTF-8.
static json_t *error_text(const struct lp_err *err) {
    return err->status ? lp_json_build_text(lp_str_from(err->text)) : json_null();
}

// ---- the container

static json_t *files_json(struct lp_inspect_builder *b) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < lp_gguf_n_shards(b->in->gguf); i++) {
        json_t *file = json_object();
        lp_inspect_put(b, file, "path",
                       lp_json_build_text(lp_str_from(lp_gguf_shard_path(b->in->gguf, i))));
        lp_inspect_put(b, file, "alignment", json_integer(lp_gguf_alignment(b->in->gguf, i)));
        lp_inspect_add(b, list, file);
    }
    return list;
}

static json_t *text_or_null(const struct lp_gguf *gguf, const char *key) {
    struct lp_str text;
    bool found = false;
    return lp_gguf_get_str(gguf, key, &text, &found, NULL) == LP_OK && found
               ? lp_json_build_text(text)
               : json_null();
}

static json_t *element_json(const struct lp_gguf_kv *kv, uint64_t i) {
    if (kv->element_type == LP_GGUF_STRING) return lp_json_build_text(kv->strings[i]);
    if (kv->element_type == LP_GGUF_BOOL) return json_boolean(lp_gguf_int_at(kv, i));
    if (lp_gguf_is_integral(kv->element_type)) return json_integer(lp_gguf_int_at(kv, i));
    return lp_json_build_number(lp_gguf_float_at(kv, i));
}

// Arrays of the checkpoint that no tensor is made of: how many, by reason.
static json_t *folder_json(struct lp_inspect_builder *b) {
    const struct lp_hf_plan *plan = b->in->folder;
    json_t *folder = json_object(), *reasons = json_array();
    for (uint64_t i = 0; i < plan->n_ignored && !b->failed; i++)
        lp_inspect_count_reason(b, reasons, plan->ignored[i].reason);
    lp_inspect_put(b, folder, "ignored", reasons);
    return folder;
}

static json_t *sampling_json(struct lp_inspect_builder *b) {
    static const char *const keys[] = {SAMPLING_KEYS};
    json_t *out = json_object();
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const struct lp_gguf_kv *kv = lp_gguf_find(b->in->gguf, keys[i]);
        if (kv && kv->type != LP_GGUF_ARRAY)
            lp_inspect_put(b, out, strrchr(keys[i], '.') + 1, element_json(kv, 0));
    }
    return out;
}

static void put_container(struct lp_inspect_builder *b, json_t *root) {
    const struct lp_gguf *gguf = b->in->gguf;
    uint64_t parameters = 0;
    for (uint64_t i = 0; i < lp_gguf_n_tensors(gguf); i++)
        parameters += lp_inspect_values(lp_gguf_tensor_at(gguf, i));
    lp_inspect_put(b, root, "files", files_json(b));
    lp_inspect_put(b, root, "bytes", lp_json_build_count(lp_gguf_file_bytes(gguf)));
    lp_inspect_put(b, root, "gguf_version", json_integer(lp_gguf_version(gguf)));
    lp_inspect_put(b, root, "architecture", text_or_null(gguf, "general.architecture"));
    lp_inspect_put(b, root, "name", text_or_null(gguf, "general.name"));
    lp_inspect_put(b, root, "n_tensors", lp_json_build_count(lp_gguf_n_tensors(gguf)));
    lp_inspect_put(b, root, "parameters", lp_json_build_count(parameters));
    lp_inspect_put(b, root, "folder", b->in->folder ? folder_json(b) : json_null());
    lp_inspect_put(b, root, "sampling", sampling_json(b));
    lp_inspect_put(b, root, "can_run", json_boolean(b->in->is_bound && b->in->tokenizer));
    lp_inspect_put(
        b, root, "error",
        error_text(b->in->model_error.status ? &b->in->model_error : &b->in->tokenizer_error));
}

// ---- metadata

// Keys outside the architecture's own prefix that limpid reads.
static bool is_common_key(struct lp_str key) {
    static const char *const keys[] = {"general.architecture",
                                       "general.name",
                                       "general.type",
                                       "general.alignment",
                                       SAMPLING_KEYS,
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

#define MAX_ELEMENTS 16 // of an array that are shown

static json_t *value_json(struct lp_inspect_builder *b, const struct lp_gguf_kv *kv) {
    if (kv->type != LP_GGUF_ARRAY) return element_json(kv, 0);
    json_t *list = json_array();
    for (uint64_t i = 0; i < kv->count && i < MAX_ELEMENTS; i++)
        lp_inspect_add(b, list, element_json(kv, i));
    return list;
}

static void put_metadata(struct lp_inspect_builder *b, json_t *root) {
    const struct lp_gguf *gguf = b->in->gguf;
    uint64_t n = lp_gguf_n_kv(gguf), n_used = 0;
    json_t *list = json_array(), *ignored = json_array();
    for (uint64_t i = 0; i < n; i++) {
        const struct lp_gguf_kv *kv = lp_gguf_kv_at(gguf, i);
        bool used = is_common_key(kv->key) ||
                    (b->in->has_hparams && lp_hparams_knows_key(b->in->h.arch, kv->key));
        n_used += used;
        if (!used) lp_inspect_add(b, ignored, lp_json_build_text(kv->key));
        if (!b->in->list_metadata) continue;
        json_t *entry = json_object();
        lp_inspect_put(b, entry, "key", lp_json_build_text(kv->key));
        lp_inspect_put(b, entry, "type", json_string(lp_gguf_value_type_name(kv->element_type)));
        if (kv->type == LP_GGUF_ARRAY)
            lp_inspect_put(b, entry, "count", lp_json_build_count(kv->count));
        lp_inspect_put(b, entry, "value", value_json(b, kv));
        lp_inspect_put(b, entry, "used", json_boolean(used));
        lp_inspect_add(b, list, entry);
    }
    json_t *summary = json_object();
    lp_inspect_put(b, summary, "keys", lp_json_build_count(n));
    lp_inspect_put(b, summary, "used", lp_json_build_count(n_used));
    lp_inspect_put(b, summary, "ignored", ignored);
    lp_inspect_put(b, root, "metadata", summary);
    if (b->in->list_metadata)
        lp_inspect_put(b, root, "metadata_keys", list);
    else
        json_decref(list);
}

// ---- the model

static json_t *facts_json(struct lp_inspect_builder *b) {
    json_t *list = json_array();
    for (int32_t i = 0; i < b->in->h.n_facts; i++) {
        const struct lp_fact *f = &b->in->h.facts[i];
        json_t *row = json_object();
        lp_inspect_put(b, row, "name", json_string(f->name));
        lp_inspect_put(b, row, "value", lp_json_build_text(lp_str_from(f->value)));
        lp_inspect_put(b, row, "source", lp_json_build_text(lp_str_from(f->source)));
        lp_inspect_add(b, list, row);
    }
    return list;
}

static json_t *layers_json(struct lp_inspect_builder *b) {
    const struct lp_hparams *h = &b->in->h;
    bool mla = h->arch->attention == LP_ATTENTION_MLA;
    json_t *list = json_array();
    for (int32_t l = 0; l < h->n_layers; l++) {
        enum lp_indexer_role role = mla && h->top_k ? h->index_role[l] : LP_INDEXER_NONE;
        json_t *row = json_object();
        lp_inspect_put(b, row, "layer", json_integer(l));
        lp_inspect_put(b, row, "attention", json_string(mla ? "mla" : "gqa"));
        lp_inspect_put(b, row, "indexer", json_string(lp_indexer_role_name(role)));
        lp_inspect_put(b, row, "ffn",
                       json_string(h->n_experts && l >= h->n_dense ? "experts" : "dense"));
        lp_inspect_add(b, list, row);
    }
    return list;
}

static json_t *kernels_json(struct lp_inspect_builder *b) {
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
            lp_inspect_put(b, matmul, lp_type_info(type)->name,
                           kernel ? json_string(kernel) : json_null());
    }
    if (backend->fix_results) backend->fix_results(in->dev, false); // as without --deterministic
    const struct lp_gguf_tensor *const *block = in->binding.blocks[0].tensor;
    const struct lp_gguf_tensor *split = block[LP_SLOT_K_B], *joint = block[LP_SLOT_KV_B];
    lp_type up = split ? split->type : joint ? joint->type : LP_TYPE_F32;
    size_t n_ops = mla ? in->h.top_k ? 3 : 2 : 1;
    for (size_t i = 0; i < n_ops; i++) {
        const char *op = mla ? mla_ops[i] : gqa_ops[i];
        const char *kernel = backend->kernel(in->dev, op, in->kv_type, up).name;
        lp_inspect_put(b, attention, op, kernel ? json_string(kernel) : json_null());
    }
    lp_inspect_put(b, object, "backend", json_string(backend->name));
    lp_inspect_put(b, object, "matmul", matmul);
    lp_inspect_put(b, object, "attention", attention);
    return object;
}

// ---- text

static json_t *token_json(struct lp_inspect_builder *b, int32_t id) {
    if (id < 0) return json_null();
    json_t *object = json_object();
    lp_inspect_put(b, object, "id", json_integer(id));
    lp_inspect_put(b, object, "text", lp_json_build_text(lp_tokenizer_token(b->in->tokenizer, id)));
    return object;
}

static json_t *tokenizer_json(struct lp_inspect_builder *b) {
    const struct lp_inspect *in = b->in;
    json_t *object = json_object();
    lp_inspect_put(b, object, "model", text_or_null(in->gguf, "tokenizer.ggml.model"));
    lp_inspect_put(b, object, "pre", text_or_null(in->gguf, "tokenizer.ggml.pre"));
    lp_inspect_put(b, object, "error", error_text(&in->tokenizer_error));
    if (!in->tokenizer) return object;
    size_t n;
    const int32_t *stop = lp_tokenizer_stop_ids(in->tokenizer, &n);
    json_t *stops = json_array();
    for (size_t i = 0; i < n; i++) lp_inspect_add(b, stops, token_json(b, stop[i]));
    lp_inspect_put(b, object, "n_tokens", json_integer(lp_tokenizer_n_tokens(in->tokenizer)));
    lp_inspect_put(b, object, "bos", token_json(b, lp_tokenizer_bos(in->tokenizer)));
    lp_inspect_put(b, object, "eos", token_json(b, lp_tokenizer_eos(in->tokenizer)));
    lp_inspect_put(b, object, "stop", stops);
    lp_inspect_put(b, object, "adds_bos", json_boolean(lp_tokenizer_adds_bos(in->tokenizer)));
    return object;
}

static json_t *template_json(struct lp_inspect_builder *b) {
    json_t *object = json_object();
    lp_inspect_put(b, object, "present", json_boolean(b->in->has_template));
    lp_inspect_put(b, object, "usable", json_boolean(b->in->chat_template != NULL));
    lp_inspect_put(b, object, "error", error_text(&b->in->template_error));
    return object;
}

json_t *lp_inspect_report(const struct lp_inspect *in) {
    struct lp_inspect_builder b = {.in = in};
    json_t *root = json_object();
    put_container(&b, root);
    put_metadata(&b, root);
    lp_inspect_put(&b, root, "tokenizer", tokenizer_json(&b));
    lp_inspect_put(&b, root, "chat_template", template_json(&b));
    if (in->has_hparams) lp_inspect_put(&b, root, "facts", facts_json(&b));
    if (in->has_hparams) lp_inspect_put(&b, root, "layers", layers_json(&b));
    lp_inspect_put(&b, root, "tensor_groups", lp_inspect_groups(&b));
    lp_inspect_put(&b, root, "types", lp_inspect_types(&b));
    if (in->list_tensors) lp_inspect_put(&b, root, "tensors", lp_inspect_tensors(&b));
    if (in->is_bound) lp_inspect_put(&b, root, "binding", lp_inspect_binding(&b));
    if (in->is_bound) lp_inspect_put(&b, root, "kernels", kernels_json(&b));
    if (in->is_planned) lp_inspect_put(&b, root, "memory", lp_inspect_memory(&b));
    if (in->ranks) lp_inspect_put(&b, root, "ranks", lp_inspect_ranks(&b));
    if (!b.failed) return root;
    json_decref(root);
    return NULL;
}
