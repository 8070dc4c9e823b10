// config.json -> lp_hf_model and metadata: the sizes here, the rest by subject in hf_config_*.c.
#include "hf/hf_config_parts.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

static lp_status find_family(struct lp_hf_config_reader *r) {
    const char *type = lp_hf_config_text(r, r->config, "", "model_type", NULL);
    if (r->status) return r->status;
    if (type) r->family = lp_hf_family_find(type);
    if (r->family) return LP_OK;
    char list[256], value[LP_HF_VALUE_BYTES];
    lp_hf_config_fail(
        r, LP_STATUS_UNSUPPORTED, "model_type is %s%s%s; this version supports %s", type ? "'" : "",
        type ? lp_hf_config_value(json_object_get(r->config, "model_type"), value) : "missing",
        type ? "'" : "", lp_hf_family_list(list, sizeof list));
    return r->status;
}

// Classifiers, embedders and draft models have a model_type too, and other tensors.
static void check_architecture(struct lp_hf_config_reader *r) {
    const json_t *list = lp_hf_config_get(r->config, "architectures");
    const char *name = json_string_value(json_array_get(list, 0));
    if (!name) return;
    static const char *const endings[] = {"ForCausalLM", "ForConditionalGeneration"};
    size_t n = strlen(name);
    for (int i = 0; i < 2; i++) {
        size_t end = strlen(endings[i]);
        if (n >= end && strcmp(name + n - end, endings[i]) == 0) return;
    }
    lp_hf_config_fail(r, LP_STATUS_UNSUPPORTED,
                      "architectures is %.60s, expected a language model (...ForCausalLM)", name);
}

static void read_ints(struct lp_hf_config_reader *r) {
    static const struct {
        const char *name, *also;
        int64_t min, max;
        unsigned types;
        bool null;
    } fields[] = {
#define ROW(name, field, also, min, max, types, null) {field, also, min, max, types, null},
        LP_HF_CONFIG_INTS(ROW)
#undef ROW
    };
    for (int i = 0; i < LP_HF_N_INTS; i++) {
        if (!(r->family->flags & fields[i].types)) continue;
        const char *name = fields[i].name;
        const json_t *value = json_object_get(r->config, name);
        if (!value && fields[i].also && json_object_get(r->config, fields[i].also)) {
            name = fields[i].also;
            value = json_object_get(r->config, name);
        }
        int64_t otherwise = value ? LP_HF_CONFIG_NONE : r->family->ints[i];
        if (otherwise == LP_HF_CONFIG_NONE && !fields[i].null && (!value || json_is_null(value)))
            lp_hf_config_fail(
                r, LP_STATUS_FORMAT, "%s is %s, expected a whole number from %lld to %lld", name,
                value ? "null" : "missing", (long long)fields[i].min, (long long)fields[i].max);
        r->v[i] =
            lp_hf_config_whole(r, r->config, "", name, fields[i].min, fields[i].max, otherwise);
    }
}

static void fill_gqa(struct lp_hf_config_reader *r) {
    struct lp_hf_model *m = r->model;
    int64_t kv = r->v[LP_HF_INT_KV_HEADS], head = r->v[LP_HF_INT_HEAD_DIM];
    m->n_kv_heads = kv == LP_HF_CONFIG_NONE ? m->n_heads : kv;
    if (head == LP_HF_CONFIG_NONE && m->n_embd % m->n_heads)
        lp_hf_config_fail(
            r, LP_STATUS_FORMAT,
            "hidden_size %lld is no multiple of num_attention_heads %lld and head_dim "
            "is missing",
            (long long)m->n_embd, (long long)m->n_heads);
    m->head_dim = head == LP_HF_CONFIG_NONE ? m->n_embd / m->n_heads : head;
    if (!r->status && (m->head_dim < 2 || m->head_dim > 4096))
        lp_hf_config_fail(r, LP_STATUS_FORMAT,
                          "hidden_size / num_attention_heads is %lld, expected 2 to 4096",
                          (long long)m->head_dim);
    if (m->n_heads % m->n_kv_heads)
        lp_hf_config_fail(r, LP_STATUS_FORMAT,
                          "num_key_value_heads is %lld, expected a divisor of num_attention_heads "
                          "(%lld)",
                          (long long)m->n_kv_heads, (long long)m->n_heads);
}

static void fill_mla(struct lp_hf_config_reader *r) {
    struct lp_hf_model *m = r->model;
    int64_t q_rank = r->v[LP_HF_INT_Q_RANK];
    m->q_rank = q_rank == LP_HF_CONFIG_NONE ? 0 : q_rank;
    m->latent = r->v[LP_HF_INT_LATENT];
    m->nope = r->v[LP_HF_INT_NOPE];
    m->rope_dim = r->v[LP_HF_INT_ROPE_DIM];
    m->v_dim = r->v[LP_HF_INT_V_DIM];
    m->n_kv_heads = 1; // of the latent form, which is what the keys describe
    m->head_dim = m->nope + m->rope_dim;
    if (m->rope_dim % 2)
        lp_hf_config_fail(r, LP_STATUS_FORMAT, "qk_rope_head_dim is %lld, expected an even number",
                          (long long)m->rope_dim);
}

static bool has_nextn(const struct lp_safetensors *weights, int64_t layer) {
    static const char *const prefixes[] = {"", "language_model.", "model.language_model."};
    for (int i = 0; i < 3; i++) {
        char name[96];
        snprintf(name, sizeof name,
                 i < 2 ? "%smodel.layers.%lld.enorm.weight" : "%slayers.%lld.enorm.weight",
                 prefixes[i], (long long)layer);
        if (lp_safetensors_find(weights, name)) return true;
    }
    return false;
}

// MTP layers: those that config.json counts and the weights have. transformers drops their weights
// and keeps the number; some configurations lack the number.
static void count_nextn(struct lp_hf_config_reader *r) {
    struct lp_hf_model *m = r->model;
    if (!lp_hf_config_is(r, LP_HF_NEXTN)) return;
    const struct lp_safetensors *weights = r->folder->weights;
    const char *name = json_object_get(r->config, "num_nextn_predict_layers")
                           ? "num_nextn_predict_layers"
                           : "num_mtp_layers";
    bool said = lp_hf_config_get(r->config, name) != NULL;
    int64_t most = lp_hf_config_whole(r, r->config, "", name, 0, 512 - m->n_layers,
                                      said || !weights ? 0 : 512 - m->n_layers);
    if (r->status) return;
    if (!weights) {
        m->n_nextn = most;
        return;
    }
    while (m->n_nextn < most && has_nextn(weights, m->n_layers + m->n_nextn)) m->n_nextn++;
}

static void fill_model(struct lp_hf_config_reader *r) {
    struct lp_hf_model *m = r->model;
    m->arch = r->family->arch;
    snprintf(m->model_type, sizeof m->model_type, "%s", r->family->model_type);
    m->n_layers = r->v[LP_HF_INT_LAYERS];
    m->n_vocab = r->v[LP_HF_INT_VOCAB];
    m->n_embd = r->v[LP_HF_INT_EMBD];
    m->n_heads = r->v[LP_HF_INT_HEADS];
    m->is_mla = lp_hf_config_is(r, LP_HF_MLA);
    m->tied = lp_hf_config_bool(r, r->config, "", "tie_word_embeddings", false);
    if (r->status) return;
    if (m->is_mla)
        fill_mla(r);
    else
        fill_gqa(r);
    count_nextn(r);
}

static void put_sizes(struct lp_hf_config_reader *r) {
    const struct lp_hf_model *m = r->model;
    lp_hf_config_put_int(r, "block_count", m->n_layers + m->n_nextn);
    lp_hf_config_put_int(r, "context_length", r->v[LP_HF_INT_CONTEXT]);
    lp_hf_config_put_int(r, "embedding_length", m->n_embd);
    lp_hf_config_put_int(r, "feed_forward_length", r->v[LP_HF_INT_FF]);
    lp_hf_config_put_int(r, "attention.head_count", m->n_heads);
    lp_hf_config_put_int(r, "attention.head_count_kv", m->n_kv_heads);
    // The range is a bit inside that of hparams.c, so that rounding to float32 stays in it.
    lp_hf_config_put_float(
        r, "attention.layer_norm_rms_epsilon",
        lp_hf_config_number(r, r->config, "", "rms_norm_eps", 2e-12, 0.09, r->family->eps));
    if (lp_hf_config_is(r, LP_HF_VOCAB_KEY)) lp_hf_config_put_int(r, "vocab_size", m->n_vocab);
}

static void put_attention(struct lp_hf_config_reader *r) {
    const struct lp_hf_model *m = r->model;
    if (!m->is_mla) {
        // Left out where it is what every reader assumes.
        if (!lp_hf_config_get(r->config, "head_dim") && m->head_dim * m->n_heads == m->n_embd)
            return;
        lp_hf_config_put_int(r, "attention.key_length", m->head_dim);
        lp_hf_config_put_int(r, "attention.value_length", m->head_dim);
        return;
    }
    if (m->q_rank) lp_hf_config_put_int(r, "attention.q_lora_rank", m->q_rank);
    lp_hf_config_put_int(r, "attention.kv_lora_rank", m->latent);
    lp_hf_config_put_int(r, "attention.key_length", m->latent + m->rope_dim);
    lp_hf_config_put_int(r, "attention.value_length", m->latent);
    lp_hf_config_put_int(r, "attention.key_length_mla", m->nope + m->rope_dim);
    lp_hf_config_put_int(r, "attention.value_length_mla", m->v_dim);
}

static void put_nextn(struct lp_hf_config_reader *r) {
    if (r->model->n_nextn || lp_hf_config_is(r, LP_HF_NEXTN_KEY))
        lp_hf_config_put_int(r, "nextn_predict_layers", r->model->n_nextn);
}

lp_status lp_hf_config(struct lp_hf_model *out, struct lp_gguf_writer *w,
                       const struct lp_hf_folder *folder, struct lp_err *err) {
    *out = (struct lp_hf_model){0};
    struct lp_hf_config_reader r = {.config = folder->config,
                                    .model = out,
                                    .w = w,
                                    .folder = folder,
                                    .file = "config.json",
                                    .err = err};
    if (!json_is_object(folder->config))
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "config.json is no JSON object; download it again");
    if (find_family(&r)) return r.status;
    check_architecture(&r);
    lp_hf_config_refuse(&r);
    read_ints(&r);
    if (!r.status) fill_model(&r);
    static void (*const parts[])(struct lp_hf_config_reader *) = {
        lp_hf_config_general, put_sizes, lp_hf_config_rope,   lp_hf_config_router,
        put_attention,        put_nextn, lp_hf_config_indexer};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0] && !r.status; i++) parts[i](&r);
    return r.status;
}

void lp_hf_model_release(struct lp_hf_model *model) {
    lp_free(model->full);
    lp_free(model->rope_freqs);
    *model = (struct lp_hf_model){0};
}
