// Metadata -> hyperparameters. One reader (struct reader) carries the first error along, so that
// the sections below read as lists of keys.
#include "model/hparams.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "model/hparams_keys.h"

void lp_hparams_fact(struct lp_hparams_reader *r, const char *name, const char *source,
                     const char *format, ...) {
    struct lp_hparams *h = r->h;
    if (h->n_facts == LP_MAX_FACTS) return;
    struct lp_fact *fact = &h->facts[h->n_facts++];
    snprintf(fact->name, sizeof fact->name, "%s", name);
    snprintf(fact->source, sizeof fact->source, "%s", source);
    va_list args;
    va_start(args, format);
    vsnprintf(fact->value, sizeof fact->value, format, args);
    va_end(args);
}

void lp_hparams_guessed(struct lp_hparams_reader *r, const char *name, const char *value,
                        const char *rule) {
    if (!r->status)
        lp_log(LP_LOG_WARN, "metadata key %s is missing; using %s: %s", lp_hparams_key(r, name),
               value, rule);
}

const char *lp_hparams_key(struct lp_hparams_reader *r, const char *suffix) {
    snprintf(r->key, sizeof r->key, "%s.%s", r->h->arch->name, suffix);
    return r->key;
}

bool lp_hparams_has(struct lp_hparams_reader *r, const char *suffix) {
    return lp_gguf_find(r->gguf, lp_hparams_key(r, suffix)) != NULL;
}

void lp_hparams_fail(struct lp_hparams_reader *r, lp_status status, const char *format, ...) {
    if (r->status) return;
    char text[LP_ERR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    r->status = lp_err_set(r->err, status, "%s", text);
}

// The value of an integer key. Some are arrays of one element per block: then all must be equal.
static bool one_value(struct lp_hparams_reader *r, const struct lp_gguf_kv *kv, const char *key,
                      int64_t *out) {
    bool array = kv->type == LP_GGUF_ARRAY;
    if (!lp_gguf_is_integral(kv->element_type) || kv->element_type == LP_GGUF_BOOL) {
        lp_hparams_fail(r, LP_STATUS_FORMAT, "metadata key %s is of type %s%s, expected an integer",
                        key, array ? "array of " : "", lp_gguf_value_type_name(kv->element_type));
        return false;
    }
    if (array && (r->h->n_blocks == 0 || kv->count != (uint64_t)r->h->n_blocks)) {
        lp_hparams_fail(r, LP_STATUS_FORMAT,
                        "metadata key %s is an array of %llu elements, expected an integer or one "
                        "element per block (%d)",
                        key, (unsigned long long)kv->count, r->h->n_blocks);
        return false;
    }
    *out = lp_gguf_int_at(kv, 0);
    for (uint64_t i = 1; i < kv->count; i++)
        if (lp_gguf_int_at(kv, i) != *out) {
            lp_hparams_fail(r, LP_STATUS_UNSUPPORTED,
                            "metadata key %s differs between layers (%lld, %lld); only equal "
                            "values are supported",
                            key, (long long)*out, (long long)lp_gguf_int_at(kv, i));
            return false;
        }
    return true;
}

int64_t lp_hparams_int(struct lp_hparams_reader *r, const char *suffix, int64_t min, int64_t max,
                       int64_t otherwise, const char *rule) {
    if (r->status) return min;
    const char *key = lp_hparams_key(r, suffix);
    const struct lp_gguf_kv *kv = lp_gguf_find(r->gguf, key);
    if (!kv && !rule) {
        lp_hparams_fail(r, LP_STATUS_FORMAT,
                        "metadata key %s is missing; the %s architecture needs it", key,
                        r->h->arch->name);
        return min;
    }
    int64_t value = otherwise;
    if (kv && !one_value(r, kv, key, &value)) return min;
    if (value < min || value > max) {
        lp_hparams_fail(r, LP_STATUS_FORMAT, "metadata key %s is %lld, expected %lld to %lld", key,
                        (long long)value, (long long)min, (long long)max);
        return min;
    }
    lp_hparams_fact(r, suffix, kv ? "file" : rule, "%lld", (long long)value);
    return value;
}

float lp_hparams_float(struct lp_hparams_reader *r, const char *suffix, double min, double max,
                       float otherwise, const char *rule) {
    if (r->status) return (float)min;
    const char *key = lp_hparams_key(r, suffix);
    bool found = false;
    float value = otherwise;
    r->status = lp_gguf_get_f32(r->gguf, key, &value, &found, r->err);
    if (r->status) return (float)min;
    if (!found && !rule) {
        lp_hparams_fail(r, LP_STATUS_FORMAT,
                        "metadata key %s is missing; the %s architecture needs it", key,
                        r->h->arch->name);
        return (float)min;
    }
    if (!((double)value >= min && (double)value <= max)) {
        lp_hparams_fail(r, LP_STATUS_FORMAT, "metadata key %s is %g, expected %g to %g", key,
                        (double)value, min, max);
        return (float)min;
    }
    lp_hparams_fact(r, suffix, found ? "file" : rule, "%g", (double)value);
    return value;
}

bool lp_hparams_bool(struct lp_hparams_reader *r, const char *suffix, bool otherwise,
                     const char *rule) {
    if (r->status) return otherwise;
    bool found = false, value = otherwise;
    r->status = lp_gguf_get_bool(r->gguf, lp_hparams_key(r, suffix), &value, &found, r->err);
    if (!r->status)
        lp_hparams_fact(r, suffix, found ? "file" : rule, "%s", value ? "true" : "false");
    return value;
}

static void read_sizes(struct lp_hparams_reader *r) {
    struct lp_hparams *h = r->h;
    h->n_blocks = (int32_t)lp_hparams_int(r, "block_count", 1, LP_MAX_LAYERS, 0, NULL);
    h->n_context = lp_hparams_int(r, "context_length", 1, INT32_MAX / 2, 0, NULL);
    h->n_embd = lp_hparams_int(r, "embedding_length", 1, 1 << 20, 0, NULL);
    h->n_heads = (int32_t)lp_hparams_int(r, "attention.head_count", 1, 4096, 0, NULL);
    h->n_kv_heads = (int32_t)lp_hparams_int(r, "attention.head_count_kv", 1, 4096, h->n_heads,
                                            "equal to attention.head_count");
    h->eps = lp_hparams_float(r, "attention.layer_norm_rms_epsilon", 1e-12, 0.1, 0, NULL);
    if (h->arch->may_have_nextn)
        h->n_nextn = (int32_t)lp_hparams_int(r, "nextn_predict_layers", 0, LP_MAX_LAYERS, 0,
                                             "none when absent");
    if (!r->status && h->n_nextn >= h->n_blocks)
        lp_hparams_fail(r, LP_STATUS_FORMAT,
                        "metadata key %s is %d, expected less than block_count (%d)",
                        lp_hparams_key(r, "nextn_predict_layers"), h->n_nextn, h->n_blocks);
    h->n_layers = h->n_blocks - h->n_nextn;
}

// feed_forward_length: a number, or one per block.
static void read_feed_forward(struct lp_hparams_reader *r) {
    if (r->status) return;
    struct lp_hparams *h = r->h;
    const char *key = lp_hparams_key(r, "feed_forward_length");
    const struct lp_gguf_kv *kv = lp_gguf_find(r->gguf, key);
    if (!kv) {
        lp_hparams_fail(r, LP_STATUS_FORMAT, "metadata key %s is missing", key);
        return;
    }
    if (!lp_gguf_is_integral(kv->element_type) || kv->element_type == LP_GGUF_BOOL) {
        lp_hparams_fail(r, LP_STATUS_FORMAT, "metadata key %s is of type %s, expected an integer",
                        key, lp_gguf_value_type_name(kv->type));
        return;
    }
    bool array = kv->type == LP_GGUF_ARRAY;
    if (array && kv->count != (uint64_t)h->n_blocks) {
        lp_hparams_fail(r, LP_STATUS_FORMAT,
                        "metadata key %s has %llu elements, expected one per block (%d)", key,
                        (unsigned long long)kv->count, h->n_blocks);
        return;
    }
    for (int32_t l = 0; l < h->n_blocks; l++) {
        int64_t value = lp_gguf_int_at(kv, array ? (uint64_t)l : 0);
        if (value < 0 || value > 1 << 22 || (value == 0 && h->n_experts == 0)) {
            lp_hparams_fail(r, LP_STATUS_FORMAT, "metadata key %s is %lld, expected 1 to %d", key,
                            (long long)value, 1 << 22);
            return;
        }
        h->n_ff[l] = value;
    }
    lp_hparams_fact(r, "feed_forward_length", "file", array ? "%lld (first block)" : "%lld",
                    (long long)h->n_ff[0]);
}

static void read_gqa(struct lp_hparams_reader *r) {
    struct lp_hparams *h = r->h;
    if (r->status) return;
    if (h->n_heads % h->n_kv_heads) {
        lp_hparams_fail(r, LP_STATUS_FORMAT,
                        "metadata key %s is %d, expected a divisor of attention.head_count (%d)",
                        lp_hparams_key(r, "attention.head_count_kv"), h->n_kv_heads, h->n_heads);
        return;
    }
    int64_t otherwise = h->n_embd / h->n_heads;
    if (!lp_hparams_has(r, "attention.key_length") && h->n_embd % h->n_heads) {
        lp_hparams_fail(r, LP_STATUS_FORMAT,
                        "embedding_length %lld is no multiple of attention.head_count %d and "
                        "attention.key_length is missing",
                        (long long)h->n_embd, h->n_heads);
        return;
    }
    h->head_dim = (int32_t)lp_hparams_int(r, "attention.key_length", 1, 4096, otherwise,
                                          "embedding_length / head_count");
    h->v_dim = (int32_t)lp_hparams_int(r, "attention.value_length", 1, 4096, otherwise,
                                       "embedding_length / head_count");
    h->rope_width = (int32_t)lp_hparams_int(r, "rope.dimension_count", 2, h->head_dim, h->head_dim,
                                            "the whole head");
}

static void read_mla(struct lp_hparams_reader *r) {
    struct lp_hparams *h = r->h;
    h->latent = (int32_t)lp_hparams_int(r, "attention.kv_lora_rank", 1, 65536, 0, NULL);
    h->q_rank = (int32_t)lp_hparams_int(r, "attention.q_lora_rank", 0, 65536, 0,
                                        "absent: queries have no latent");
    h->rope_width = (int32_t)lp_hparams_int(r, "rope.dimension_count", 2, 4096, 0, NULL);
    h->rope_dim = h->rope_width;
    if (r->status) return;
    bool mla_keys = lp_hparams_has(r, "attention.key_length_mla") &&
                    lp_hparams_has(r, "attention.value_length_mla");
    if (!mla_keys && h->arch->needs_mla_keys) {
        lp_hparams_fail(r, LP_STATUS_FORMAT,
                        "metadata key %s is missing; the %s architecture needs key_length_mla and "
                        "value_length_mla",
                        lp_hparams_key(r, lp_hparams_has(r, "attention.key_length_mla")
                                              ? "attention.value_length_mla"
                                              : "attention.key_length_mla"),
                        h->arch->name);
        return;
    }
    h->legacy_kv_b = !mla_keys;
    int64_t key = lp_hparams_int(r, mla_keys ? "attention.key_length_mla" : "attention.key_length",
                                 1, 8192, 0, NULL);
    h->v_dim = (int32_t)lp_hparams_int(
        r, mla_keys ? "attention.value_length_mla" : "attention.value_length", 1, 8192, 0, NULL);
    if (!r->status && key <= h->rope_dim)
        lp_hparams_fail(
            r, LP_STATUS_FORMAT,
            "metadata key %s is %lld, expected more than rope.dimension_count (%d)",
            lp_hparams_key(r, mla_keys ? "attention.key_length_mla" : "attention.key_length"),
            (long long)key, h->rope_dim);
    h->nope = (int32_t)key - h->rope_dim;
    if (!mla_keys || r->status) return;
    int64_t row = lp_hparams_int(r, "attention.key_length", 1, 1 << 20, h->latent + h->rope_dim,
                                 "latent + rope part");
    if (!r->status && row != h->latent + h->rope_dim)
        lp_hparams_fail(r, LP_STATUS_FORMAT,
                        "metadata key %s is %lld, expected kv_lora_rank + rope.dimension_count "
                        "(%d + %d)",
                        lp_hparams_key(r, "attention.key_length"), (long long)row, h->latent,
                        h->rope_dim);
    row = lp_hparams_int(r, "attention.value_length", 1, 1 << 20, h->latent, "the latent");
    if (!r->status && row != h->latent)
        lp_hparams_fail(r, LP_STATUS_FORMAT, "metadata key %s is %lld, expected kv_lora_rank (%d)",
                        lp_hparams_key(r, "attention.value_length"), (long long)row, h->latent);
}

static void read_experts(struct lp_hparams_reader *r) {
    struct lp_hparams *h = r->h;
    if (!h->arch->may_have_experts) return;
    h->n_experts = (int32_t)lp_hparams_int(r, "expert_count", 0, 65536, 0, "none when absent");
    if (r->status || h->n_experts == 0) return;
    h->n_used = (int32_t)lp_hparams_int(r, "expert_used_count", 1,
                                        h->n_experts < 1024 ? h->n_experts : 1024, 0, NULL);
    h->n_shared = (int32_t)lp_hparams_int(r, "expert_shared_count", 0, 1024, 0, "none when absent");
    h->n_dense = (int32_t)lp_hparams_int(r, "leading_dense_block_count", 0, h->n_blocks, 0,
                                         "none when absent");
    bool own_width =
        lp_hparams_has(r, "expert_feed_forward_length") || h->arch->attention == LP_ATTENTION_MLA;
    int64_t dense_ff =
        own_width ? 0 : lp_hparams_int(r, "feed_forward_length", 1, 1 << 22, 0, NULL);
    h->expert_ff = lp_hparams_int(r, "expert_feed_forward_length", 1, 1 << 22, dense_ff,
                                  own_width ? NULL : "equal to feed_forward_length");
    if (h->n_shared)
        h->shared_ff = lp_hparams_int(r, "expert_shared_feed_forward_length", 1, 1 << 24,
                                      h->expert_ff * h->n_shared,
                                      "expert_feed_forward_length x expert_shared_count");
    lp_hparams_read_router(r);
}

static void refuse_unsupported(struct lp_hparams_reader *r) {
    static const char *const must_be_zero[] = {
        "logit_scale", "attn_logit_softcapping", "final_logit_softcapping",
        "attention.sliding_window", "rope.dimension_sections"};
    for (size_t i = 0; i < sizeof must_be_zero / sizeof must_be_zero[0]; i++) {
        const char *key = lp_hparams_key(r, must_be_zero[i]);
        const struct lp_gguf_kv *kv = lp_gguf_find(r->gguf, key);
        for (uint64_t e = 0; kv && e < kv->count; e++) {
            bool number =
                lp_gguf_is_float(kv->element_type) || lp_gguf_is_integral(kv->element_type);
            if (!number || lp_gguf_float_at(kv, e) != 0) {
                lp_hparams_fail(
                    r, LP_STATUS_UNSUPPORTED,
                    "metadata key %s is set; limpid does not support it for architecture %s", key,
                    r->h->arch->name);
                return;
            }
        }
    }
}

static lp_status find_architecture(struct lp_hparams *h, const struct lp_gguf *gguf,
                                   struct lp_err *err) {
    struct lp_str name, type;
    bool found = false;
    lp_status status = lp_gguf_get_str(gguf, "general.type", &type, &found, err);
    if (status) return status;
    if (found && !lp_str_is(type, "model"))
        return lp_err_set(err, LP_STATUS_UNSUPPORTED,
                          "metadata key general.type is '%.*s', expected 'model': this file "
                          "is not a language model by itself",
                          LP_STR_ARGS(type));
    status = lp_gguf_get_str(gguf, "general.architecture", &name, NULL, err);
    if (status) return status;
    h->arch = lp_arch_find(name);
    if (!h->arch)
        return lp_err_set(err, LP_STATUS_UNSUPPORTED,
                          "metadata key general.architecture is '%.*s'; this version supports %s",
                          LP_STR_ARGS(name), lp_arch_list());
    return LP_OK;
}

static void read_vocab_size(struct lp_hparams_reader *r) {
    if (r->status) return;
    const struct lp_gguf_kv *tokens = lp_gguf_find(r->gguf, "tokenizer.ggml.tokens");
    int64_t n_tokens = tokens ? (int64_t)tokens->count : 0;
    r->h->n_vocab = lp_hparams_int(r, "vocab_size", 1, 1 << 24, n_tokens,
                                   n_tokens ? "the number of tokenizer.ggml.tokens" : NULL);
    if (!r->status && tokens && n_tokens != r->h->n_vocab)
        lp_hparams_fail(r, LP_STATUS_FORMAT,
                        "metadata key tokenizer.ggml.tokens has %lld elements, expected vocab_size "
                        "(%lld); padding ids need a token of type unused",
                        (long long)n_tokens, (long long)r->h->n_vocab);
}

lp_status lp_hparams_read(struct lp_hparams *h, const struct lp_gguf *gguf, struct lp_err *err) {
    *h = (struct lp_hparams){0};
    lp_status status = find_architecture(h, gguf, err);
    if (status) return status;
    struct lp_hparams_reader r = {.h = h, .gguf = gguf, .err = err};
    lp_hparams_fact(&r, "architecture", "file", "%s", h->arch->name);
    read_sizes(&r);
    read_vocab_size(&r);
    if (h->arch->attention == LP_ATTENTION_MLA)
        read_mla(&r);
    else
        read_gqa(&r);
    read_experts(&r);
    read_feed_forward(&r);
    lp_hparams_read_rope(&r);
    if (h->arch->indexer == LP_INDEXER_ALWAYS) lp_hparams_read_indexer(&r);
    refuse_unsupported(&r);
    return r.status;
}
