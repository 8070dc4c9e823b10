// From a folder's tokenizer files to the tokenizer.* keys: read (hf_vocab.c or hf_tiktoken.c),
// recognise (hf_pretok.c or hf_spm.c), name the special ids (hf_special.c), try what a GGUF reader
// would make of it, write.
#include "hf/hf_tokenizer.h"

#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "hf/hf_vocab.h"
#include "text/tokenizer_parts.h"

// ---- reading

static lp_status no_tokenizer(const struct lp_hf_folder *folder, struct lp_err *err) {
    char path[4096];
    snprintf(path, sizeof path, "%s/tokenizer.model", folder->path ? folder->path : ".");
    if (!access(path, F_OK))
        return lp_err_set(err, LP_STATUS_UNSUPPORTED,
                          "the folder has its tokenizer as tokenizer.model alone; add the "
                          "tokenizer.json of the same model (transformers' "
                          "AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR) writes one)");
    return lp_err_set(err, LP_STATUS_FORMAT,
                      "the folder has no tokenizer.json; copy it from the model's page, with "
                      "tokenizer_config.json");
}

static lp_status read_json(struct lp_hf_vocab *v, const struct lp_hf_folder *folder,
                           struct lp_err *err) {
    const json_t *model = json_object_get(folder->tokenizer, "model");
    const json_t *type = json_object_get(model, "type"), *merges = json_object_get(model, "merges");
    // Files of the first releases do not say which model they hold; only BPE has merges.
    if (!lp_hf_text_is(type, "BPE") && !(!type && json_is_array(merges)))
        return lp_err_set(err, LP_STATUS_UNSUPPORTED,
                          "tokenizer.json: the model is %.60s; only BPE is supported",
                          json_is_string(type) ? json_string_value(type) : "of no known type");
    bool is_spm = lp_hf_spm_is(folder->tokenizer);
    lp_status status = lp_hf_vocab_json(v, model, err);
    if (!status)
        status = lp_hf_vocab_added(v, folder->tokenizer, folder->tokenizer_config, is_spm, err);
    if (!status)
        status =
            is_spm ? lp_hf_spm(v, folder->tokenizer, err) : lp_hf_pretok(v, folder->tokenizer, err);
    return status;
}

// ---- trying

static struct lp_vocab_params params_of(const struct lp_hf_vocab *v) {
    bool is_spm = v->scores != NULL;
    return (struct lp_vocab_params){
        .model = lp_str_from(v->model),
        .pre = v->pre ? lp_str_from(v->pre) : (struct lp_str){0},
        .tokens = v->texts,
        .n_tokens = v->n,
        .types = v->types,
        .scores = v->scores,
        .merges = is_spm ? NULL : v->merges,
        .n_merges = is_spm ? 0 : (uint32_t)v->n_merges,
        .bos = v->bos,
        .eos = v->eos,
        .eot = v->eot,
        .eom = v->eom,
        .unk = v->unk,
        .pad = v->pad,
        .add_bos = v->add_bos,
        .add_eos = v->add_eos,
        .add_space_prefix = v->space_prefix,
    };
}

// Tokens that merging their own bytes does not lead to. They matter where tokenizer.json takes a
// piece that is a token as it stands (ignore_merges) and the pre-tokenizer's name does not say so.
static lp_status check_reach(const struct lp_tokenizer *tok, struct lp_err *err) {
    struct lp_encode_work work = {0};
    struct lp_bytes piece = {0};
    struct lp_ids ids = {0};
    size_t n_lost = 0;
    int32_t first = 0;
    lp_status status = LP_OK;
    for (uint32_t id = 0; id < tok->n_tokens && !status; id++) {
        if (tok->types[id] != LP_TOKEN_NORMAL) continue;
        lp_bytes_clear(&piece);
        ids.n = 0;
        if (!lp_tokenizer_piece(tok, (int32_t)id, false, &piece))
            status = lp_err_memory(err, piece.len, "a token");
        if (!status) status = lp_bpe_encode(tok, &work, lp_bytes_view(&piece), &ids, err);
        if (!status && (ids.n != 1 || ids.data[0] != (int32_t)id) && !n_lost++) first = (int32_t)id;
    }
    if (!status && n_lost)
        lp_log(LP_LOG_WARN,
               "tokenizer.json: model.ignore_merges is true, which GGUF cannot say of this "
               "pre-tokenizer; no text becomes one of %zu tokens (the first is \"%.*s\")",
               n_lost, LP_STR_ARGS(tok->tokens[first]));
    lp_pair_release(&work.pairs);
    lp_pretok_work_release(&work.pretok);
    lp_bytes_release(&work.text);
    lp_bytes_release(&piece);
    lp_free(ids.data);
    return status;
}

static lp_status try_it(const struct lp_hf_vocab *v, struct lp_err *err) {
    if (v->n_merges > INT32_MAX)
        return lp_err_set(err, LP_STATUS_LIMIT, "the tokenizer has %zu merges, at most %d are read",
                          v->n_merges, INT32_MAX);
    struct lp_tokenizer *tok;
    struct lp_vocab_params params = params_of(v);
    lp_status status = lp_tokenizer_new(&tok, &params, err);
    if (!status && !tok->is_spm && v->ignore_merges && !tok->ignore_merges)
        status = check_reach(tok, err);
    if (status) lp_err_context(err, "the folder's tokenizer");
    lp_tokenizer_free(tok);
    return status;
}

// ---- writing

static void write_ids(struct lp_gguf_writer *w, const struct lp_hf_vocab *v) {
    const struct {
        const char *key;
        int32_t id;
    } rows[] = {
        {"tokenizer.ggml.bos_token_id", v->bos},     {"tokenizer.ggml.eos_token_id", v->eos},
        {"tokenizer.ggml.eot_token_id", v->eot},     {"tokenizer.ggml.eom_token_id", v->eom},
        {"tokenizer.ggml.unknown_token_id", v->unk}, {"tokenizer.ggml.padding_token_id", v->pad}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].id >= 0) lp_gguf_writer_u32(w, rows[i].key, (uint32_t)rows[i].id);
    if (v->add_bos >= 0) lp_gguf_writer_bool(w, "tokenizer.ggml.add_bos_token", v->add_bos);
    if (v->add_eos >= 0) lp_gguf_writer_bool(w, "tokenizer.ggml.add_eos_token", v->add_eos);
    if (v->space_prefix >= 0)
        lp_gguf_writer_bool(w, "tokenizer.ggml.add_space_prefix", v->space_prefix);
}

static void write_keys(struct lp_gguf_writer *w, const struct lp_hf_vocab *v) {
    lp_gguf_writer_str(w, "tokenizer.ggml.model", lp_str_from(v->model));
    lp_gguf_writer_str(w, "tokenizer.ggml.pre", lp_str_from(v->pre ? v->pre : "default"));
    lp_gguf_writer_strings(w, "tokenizer.ggml.tokens", v->texts, v->n);
    if (v->scores) lp_gguf_writer_array(w, "tokenizer.ggml.scores", LP_GGUF_F32, v->scores, v->n);
    lp_gguf_writer_array(w, "tokenizer.ggml.token_type", LP_GGUF_I32, v->types, v->n);
    if (!v->scores) lp_gguf_writer_strings(w, "tokenizer.ggml.merges", v->merges, v->n_merges);
    write_ids(w, v);
}

lp_status lp_hf_tokenizer(struct lp_gguf_writer *w, const struct lp_hf_folder *folder,
                          const struct lp_hf_model *model, struct lp_err *err) {
    struct lp_hf_vocab v;
    lp_status status = lp_hf_vocab_init(&v, model->n_vocab, err);
    if (!status) {
        if (folder->tokenizer)
            status = read_json(&v, folder, err);
        else if (folder->tiktoken)
            status = lp_hf_tiktoken(&v, folder, err);
        else
            status = no_tokenizer(folder, err);
    }
    if (!status) status = lp_hf_special(&v, folder, err);
    if (!status) status = lp_hf_vocab_pad(&v, err);
    if (!status) status = try_it(&v, err);
    if (!status) {
        write_keys(w, &v);
        lp_hf_templates(w, folder);
    }
    lp_hf_vocab_release(&v);
    return status;
}
