// tokenizer.ggml.* -> the tokenizer.
#include "engine/engine.h"

#include "base/alloc.h"
#include "base/log.h"

static lp_status strings(const struct lp_gguf *gguf, const char *key, bool needed,
                         const struct lp_str **out, uint32_t *n, struct lp_err *err) {
    const struct lp_gguf_kv *kv = lp_gguf_find(gguf, key);
    *out = NULL;
    *n = 0;
    if (!kv && !needed) return LP_OK;
    if (!kv)
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "metadata key %s is missing; the file has no tokenizer", key);
    if (kv->type != LP_GGUF_ARRAY || kv->element_type != LP_GGUF_STRING)
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "metadata key %s is of type %s, expected an array of strings", key,
                          lp_gguf_value_type_name(kv->element_type));
    if (kv->count == 0 || kv->count > 1 << 24)
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "metadata key %s has %llu elements, expected 1 to %d", key,
                          (unsigned long long)kv->count, 1 << 24);
    *out = kv->strings;
    *n = (uint32_t)kv->count;
    return LP_OK;
}

static lp_status per_token(const struct lp_gguf *gguf, const char *key, uint32_t n_tokens,
                           bool floats, const struct lp_gguf_kv **out, struct lp_err *err) {
    const struct lp_gguf_kv *kv = *out = lp_gguf_find(gguf, key);
    if (!kv) return LP_OK;
    bool right =
        floats ? lp_gguf_is_float(kv->element_type) : lp_gguf_is_integral(kv->element_type);
    if (kv->type != LP_GGUF_ARRAY || !right)
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "metadata key %s has elements of type %s, expected an array of %s", key,
                          lp_gguf_value_type_name(kv->element_type), floats ? "f32" : "i32");
    if (kv->count != n_tokens)
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "metadata key %s has %llu elements, but tokenizer.ggml.tokens has %u",
                          key, (unsigned long long)kv->count, n_tokens);
    return LP_OK;
}

static lp_status token_id(const struct lp_gguf *gguf, const char *key, int32_t *out,
                          struct lp_err *err) {
    const struct lp_gguf_kv *kv = lp_gguf_find(gguf, key);
    uint64_t value = 0;
    bool found = false;
    *out = -1;
    if (kv && lp_gguf_is_integral(kv->type) && lp_gguf_int_at(kv, 0) == -1)
        return LP_OK; // "none" in some files
    if (kv && kv->type == LP_GGUF_U32 && lp_gguf_int_at(kv, 0) == UINT32_MAX) return LP_OK;
    lp_status status = lp_gguf_get_u64(gguf, key, INT32_MAX, &value, &found, err);
    if (!status && found) *out = (int32_t)value;
    return status;
}

static lp_status tri_state(const struct lp_gguf *gguf, const char *key, int32_t *out,
                           struct lp_err *err) {
    bool value = false, found = false;
    lp_status status = lp_gguf_get_bool(gguf, key, &value, &found, err);
    *out = found ? value : -1;
    return status;
}

static lp_status read_params(struct lp_vocab_params *p, const struct lp_gguf *gguf,
                             const struct lp_gguf_kv **types, const struct lp_gguf_kv **scores,
                             struct lp_err *err) {
    bool found;
    lp_status status = lp_gguf_get_str(gguf, "tokenizer.ggml.model", &p->model, NULL, err);
    if (!status) status = lp_gguf_get_str(gguf, "tokenizer.ggml.pre", &p->pre, &found, err);
    if (!status && !found && lp_str_is(p->model, "gpt2"))
        lp_log(LP_LOG_WARN,
               "tokenizer.ggml.pre is missing; texts are split by the rule \"default\", "
               "perhaps not as the model was trained");
    if (!status)
        status = strings(gguf, "tokenizer.ggml.tokens", true, &p->tokens, &p->n_tokens, err);
    if (!status)
        status = strings(gguf, "tokenizer.ggml.merges", lp_str_is(p->model, "gpt2"), &p->merges,
                         &p->n_merges, err);
    if (!status)
        status = per_token(gguf, "tokenizer.ggml.token_type", p->n_tokens, false, types, err);
    if (!status) status = per_token(gguf, "tokenizer.ggml.scores", p->n_tokens, true, scores, err);
    const struct {
        const char *key;
        int32_t *to;
    } ids[] = {
        {"tokenizer.ggml.bos_token_id", &p->bos},     {"tokenizer.ggml.eos_token_id", &p->eos},
        {"tokenizer.ggml.eot_token_id", &p->eot},     {"tokenizer.ggml.eom_token_id", &p->eom},
        {"tokenizer.ggml.unknown_token_id", &p->unk}, {"tokenizer.ggml.padding_token_id", &p->pad}};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0] && !status; i++)
        status = token_id(gguf, ids[i].key, ids[i].to, err);
    if (!status) status = tri_state(gguf, "tokenizer.ggml.add_bos_token", &p->add_bos, err);
    if (!status) status = tri_state(gguf, "tokenizer.ggml.add_eos_token", &p->add_eos, err);
    if (!status)
        status = tri_state(gguf, "tokenizer.ggml.add_space_prefix", &p->add_space_prefix, err);
    return status;
}

lp_status lp_vocab_load(struct lp_tokenizer **out, const struct lp_gguf *gguf, struct lp_err *err) {
    struct lp_vocab_params params = {0};
    const struct lp_gguf_kv *types = NULL, *scores = NULL;
    lp_status status = read_params(&params, gguf, &types, &scores, err);
    if (status) return status;
    int32_t *type_values = types ? lp_alloc(params.n_tokens, sizeof *type_values) : NULL;
    float *score_values = scores ? lp_alloc(params.n_tokens, sizeof *score_values) : NULL;
    if ((types && !type_values) || (scores && !score_values))
        status = lp_err_memory(err, params.n_tokens * sizeof *type_values, "the vocabulary");
    for (uint32_t i = 0; i < params.n_tokens && !status; i++) {
        int64_t type = types ? lp_gguf_int_at(types, i) : LP_TOKEN_NORMAL;
        if (type < LP_TOKEN_NORMAL || type > LP_TOKEN_BYTE)
            status =
                lp_err_set(err, LP_STATUS_FORMAT,
                           "metadata key tokenizer.ggml.token_type: element %u is %lld, expected "
                           "1 to 6",
                           i, (long long)type);
        if (types) type_values[i] = (int32_t)type;
        if (scores) score_values[i] = (float)lp_gguf_float_at(scores, i);
    }
    params.types = type_values;
    params.scores = score_values;
    if (!status) status = lp_tokenizer_new(out, &params, err);
    lp_free(type_values);
    lp_free(score_values);
    return status;
}
