// Builds a tokenizer from the arrays of a GGUF file, checks them, and answers questions about
// single tokens. What is checked here the rest relies on: token texts are unique but for unused
// ones, special tokens are well-formed UTF-8 (so cutting them out leaves well-formed text), ids are
// in range.
#include <inttypes.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "text/tokenizer_parts.h"
#include "base/utf8_step.h"

// [PAD123]: the filler that converters append to reach the embedding's row count.
static bool is_padding(struct lp_str text) {
    if (text.len < 6 || memcmp(text.data, "[PAD", 4) || text.data[text.len - 1] != ']')
        return false;
    for (size_t i = 4; i + 1 < text.len; i++)
        if (text.data[i] < '0' || text.data[i] > '9') return false;
    return true;
}

static bool is_filler(const struct lp_tokenizer *tok, uint32_t id) {
    return tok->types[id] == LP_TOKEN_UNUSED || !tok->tokens[id].len || is_padding(tok->tokens[id]);
}

static bool is_utf8(struct lp_str text) {
    for (size_t at = 0, n; at < text.len; at += n)
        if (lp_utf8_step((const unsigned char *)text.data + at, text.len - at, &n) != LP_UTF8_WHOLE)
            return false;
    return true;
}

// ---- building, in the order of lp_tokenizer_new -------------------------------------------------

static lp_status copy_texts(struct lp_tokenizer *tok, const struct lp_vocab_params *params,
                            struct lp_err *err) {
    size_t total = 0;
    for (uint32_t id = 0; id < tok->n_tokens; id++) {
        size_t len = params->tokens[id].len;
        if (len > INT32_MAX || !lp_add_size(total, len, &total))
            return lp_err_set(err, LP_STATUS_LIMIT,
                              "tokenizer.ggml.tokens[%" PRIu32 "] has %zu bytes", id, len);
        if (len > tok->max_token_bytes) tok->max_token_bytes = (uint32_t)len;
    }
    tok->tokens = lp_realloc(NULL, tok->n_tokens, sizeof *tok->tokens);
    tok->token_bytes = lp_realloc(NULL, total, 1);
    tok->types = lp_realloc(NULL, tok->n_tokens, 1);
    if (!tok->tokens || !tok->token_bytes || !tok->types)
        return lp_err_memory(err, total, "the vocabulary");
    char *at = tok->token_bytes;
    for (uint32_t id = 0; id < tok->n_tokens; id++) {
        size_t len = params->tokens[id].len;
        if (len) memcpy(at, params->tokens[id].data, len);
        tok->tokens[id] = (struct lp_str){at, len};
        at += len;
    }
    return LP_OK;
}

static lp_status check_type(const struct lp_tokenizer *tok, uint32_t id, int32_t type,
                            struct lp_err *err) {
    struct lp_str text = tok->tokens[id];
    if (type < LP_TOKEN_NORMAL || type > LP_TOKEN_BYTE)
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "tokenizer.ggml.token_type[%" PRIu32 "] is %" PRId32 ", known are 1 to 6",
                          id, type);
    if (type == LP_TOKEN_BYTE && lp_spm_byte_of(text) < 0)
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "token %" PRIu32
                          " \"%.*s\" is typed as a byte; its text must be <0xNN> with "
                          "two hexadecimal digits",
                          id, LP_STR_ARGS(text));
    bool special =
        type == LP_TOKEN_CONTROL || type == LP_TOKEN_UNKNOWN || type == LP_TOKEN_USER_DEFINED;
    if (special && !is_utf8(text))
        return lp_err_set(
            err, LP_STATUS_FORMAT,
            "special token %" PRIu32 " is not valid UTF-8, so it cannot be found in text", id);
    return LP_OK;
}

static lp_status copy_types(struct lp_tokenizer *tok, const struct lp_vocab_params *params,
                            struct lp_err *err) {
    for (uint32_t id = 0; id < tok->n_tokens; id++) {
        int32_t type = params->types ? params->types[id] : LP_TOKEN_NORMAL;
        lp_status status = check_type(tok, id, type, err);
        if (status) return status;
        tok->types[id] = (uint8_t)type;
    }
    return LP_OK;
}

// Tokens in use first, so that a filler of the same text does not hide one.
static lp_status map_texts(struct lp_tokenizer *tok, struct lp_err *err) {
    if (!lp_map_reserve(&tok->by_text, tok->n_tokens))
        return lp_err_memory(err, tok->n_tokens, "the vocabulary's index");
    for (int filler = 0; filler < 2; filler++) {
        for (uint32_t id = 0; id < tok->n_tokens; id++) {
            if (!tok->tokens[id].len || is_filler(tok, id) != filler) continue;
            uint32_t old;
            if (!lp_map_add(&tok->by_text, tok->tokens[id], id, &old))
                return lp_err_memory(err, tok->n_tokens, "the vocabulary's index");
            if (old != LP_MAP_NONE && !filler)
                return lp_err_set(err, LP_STATUS_FORMAT,
                                  "tokens %" PRIu32 " and %" PRIu32
                                  " have the same text \"%.*s\"; which "
                                  "one is meant cannot be told",
                                  old, id, LP_STR_ARGS(tok->tokens[id]));
        }
    }
    return LP_OK;
}

struct named_id {
    const char *key;
    int32_t id;
};

static lp_status check_ids(const struct lp_tokenizer *tok, const struct lp_vocab_params *params,
                           struct lp_err *err) {
    const struct named_id ids[] = {
        {"bos_token_id", params->bos},     {"eos_token_id", params->eos},
        {"eot_token_id", params->eot},     {"eom_token_id", params->eom},
        {"unknown_token_id", params->unk}, {"padding_token_id", params->pad},
    };
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        if (ids[i].id < -1 || (ids[i].id >= 0 && (uint32_t)ids[i].id >= tok->n_tokens))
            return lp_err_set(err, LP_STATUS_FORMAT,
                              "tokenizer.ggml.%s is %" PRId32 ", the vocabulary has %" PRIu32
                              " tokens",
                              ids[i].key, ids[i].id, tok->n_tokens);
    return LP_OK;
}

// An SPM file that names no BOS or EOS means <s> = 1 and </s> = 2, unless its types say otherwise.
static int32_t spm_default(const struct lp_tokenizer *tok, const struct lp_vocab_params *params,
                           int32_t given, int32_t usual) {
    if (given >= 0 || !tok->is_spm || (uint32_t)usual >= tok->n_tokens) return given;
    return !params->types || tok->types[usual] == LP_TOKEN_CONTROL ? usual : given;
}

static lp_status set_ends(struct lp_tokenizer *tok, const struct lp_vocab_params *params,
                          bool default_bos, struct lp_err *err) {
    tok->bos = spm_default(tok, params, params->bos, 1);
    tok->eos = spm_default(tok, params, params->eos, 2);
    if (params->add_bos == 1 && tok->bos < 0)
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "tokenizer.ggml.add_bos_token is true, but the file has "
                          "no tokenizer.ggml.bos_token_id");
    if (params->add_eos == 1 && tok->eos < 0)
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "tokenizer.ggml.add_eos_token is true, but the file has "
                          "no tokenizer.ggml.eos_token_id");
    tok->add_bos = tok->bos >= 0 && (params->add_bos < 0 ? default_bos : params->add_bos != 0);
    tok->add_eos = tok->eos >= 0 && params->add_eos > 0;
    tok->add_space_prefix = tok->is_spm && params->add_space_prefix != 0;
    return LP_OK;
}

static bool is_found_in_text(uint8_t type) {
    return type == LP_TOKEN_CONTROL || type == LP_TOKEN_UNKNOWN || type == LP_TOKEN_USER_DEFINED;
}

static lp_status collect_specials(struct lp_tokenizer *tok, struct lp_err *err) {
    size_t n = 0;
    for (uint32_t id = 0; id < tok->n_tokens; id++) n += is_found_in_text(tok->types[id]);
    tok->specials.list = lp_realloc(NULL, n, sizeof *tok->specials.list);
    if (!tok->specials.list)
        return lp_err_memory(err, n * sizeof *tok->specials.list, "special tokens");
    for (uint32_t id = 0; id < tok->n_tokens; id++) {
        struct lp_str text = tok->tokens[id];
        // Of fillers with one text only the token that the text leads to counts.
        if (!is_found_in_text(tok->types[id]) || !text.len || lp_map_get(&tok->by_text, text) != id)
            continue;
        tok->specials.list[tok->specials.n++] =
            (struct lp_special){text, (int32_t)id, tok->types[id] == LP_TOKEN_USER_DEFINED};
    }
    lp_specials_index(&tok->specials);
    return LP_OK;
}

static void add_stop(struct lp_tokenizer *tok, int32_t id) {
    if (id >= 0 && !lp_tokenizer_is_stop(tok, id)) tok->stops[tok->n_stops++] = id;
}

static lp_status collect_stops(struct lp_tokenizer *tok, const struct lp_vocab_params *params,
                               const char *const *texts, struct lp_err *err) {
    size_t n = 3;
    for (const char *const *t = texts; *t; t++) n++;
    tok->stops = lp_alloc(n, sizeof *tok->stops);
    if (!tok->stops) return lp_err_memory(err, n * sizeof *tok->stops, "stop tokens");
    add_stop(tok, tok->eos);
    add_stop(tok, params->eot);
    add_stop(tok, params->eom);
    for (; *texts; texts++) add_stop(tok, lp_tokenizer_find(tok, lp_str_from(*texts)));
    return LP_OK;
}

static lp_status find_kind(struct lp_tokenizer *tok, const struct lp_vocab_params *params,
                           const struct lp_pretok_row **row, struct lp_err *err) {
    tok->is_spm = lp_str_is(params->model, "llama");
    if (!tok->is_spm && !lp_str_is(params->model, "gpt2"))
        return lp_err_set(err, LP_STATUS_UNSUPPORTED,
                          "tokenizer.ggml.model is \"%.*s\"; supported are \"gpt2\" and \"llama\"",
                          LP_STR_ARGS(params->model));
    *row = tok->is_spm ? NULL : lp_pretok_find(params->pre);
    if (!tok->is_spm && !*row)
        return lp_err_set(err, LP_STATUS_UNSUPPORTED,
                          "tokenizer.ggml.pre is \"%.*s\", a pre-tokenizer that is not known; with "
                          "another one the text would be split wrongly",
                          LP_STR_ARGS(params->pre));
    if (!params->n_tokens || !params->tokens || params->n_tokens > INT32_MAX)
        return lp_err_set(err, LP_STATUS_FORMAT, "tokenizer.ggml.tokens has %" PRIu32 " tokens",
                          params->tokens ? params->n_tokens : 0);
    tok->n_tokens = params->n_tokens;
    return LP_OK;
}

static lp_status build(struct lp_tokenizer *tok, const struct lp_vocab_params *params,
                       struct lp_err *err) {
    static const char *const no_stops[] = {NULL};
    const struct lp_pretok_row *row = NULL;
    lp_status status = find_kind(tok, params, &row, err);
    if (!status) status = check_ids(tok, params, err);
    if (!status) status = copy_texts(tok, params, err);
    if (!status) status = copy_types(tok, params, err);
    if (!status) status = map_texts(tok, err);
    if (!status) status = set_ends(tok, params, row ? row->add_bos : true, err);
    if (!status) status = collect_specials(tok, err);
    if (!status) status = collect_stops(tok, params, row ? row->stops : no_stops, err);
    if (!status && row) {
        tok->ignore_merges = row->ignore_merges;
        status = lp_pretok_new(&tok->pretok, row, err);
    }
    if (!status)
        status = tok->is_spm ? lp_spm_init(tok, params, err) : lp_bpe_init(tok, params, err);
    return status;
}

lp_status lp_tokenizer_new(struct lp_tokenizer **out, const struct lp_vocab_params *params,
                           struct lp_err *err) {
    *out = NULL;
    struct lp_tokenizer *tok = lp_alloc(1, sizeof *tok);
    if (!tok) return lp_err_memory(err, sizeof *tok, "the tokenizer");
    lp_status status = build(tok, params, err);
    if (status)
        lp_tokenizer_free(tok);
    else
        *out = tok;
    return status;
}

void lp_tokenizer_free(struct lp_tokenizer *tok) {
    if (!tok) return;
    lp_free(tok->token_bytes);
    lp_free(tok->tokens);
    lp_free(tok->types);
    lp_map_release(&tok->by_text);
    lp_free(tok->specials.list);
    lp_free(tok->stops);
    lp_pretok_free(tok->pretok);
    lp_free(tok->bpe.slots);
    lp_free(tok->spm.ranks);
    lp_free(tok);
}

// ---- questions ----------------------------------------------------------------------------------

static bool in_range(const struct lp_tokenizer *tok, int32_t id) {
    return id >= 0 && (uint32_t)id < tok->n_tokens;
}

uint32_t lp_tokenizer_n_tokens(const struct lp_tokenizer *tok) {
    return tok->n_tokens;
}
int32_t lp_tokenizer_bos(const struct lp_tokenizer *tok) {
    return tok->bos;
}
int32_t lp_tokenizer_eos(const struct lp_tokenizer *tok) {
    return tok->eos;
}
bool lp_tokenizer_adds_bos(const struct lp_tokenizer *tok) {
    return tok->add_bos;
}

const int32_t *lp_tokenizer_stop_ids(const struct lp_tokenizer *tok, size_t *n) {
    *n = tok->n_stops;
    return tok->stops;
}

bool lp_tokenizer_is_stop(const struct lp_tokenizer *tok, int32_t id) {
    for (size_t i = 0; i < tok->n_stops; i++)
        if (tok->stops[i] == id) return true;
    return false;
}

bool lp_tokenizer_is_unused(const struct lp_tokenizer *tok, int32_t id) {
    return !in_range(tok, id) || is_filler(tok, (uint32_t)id);
}

bool lp_tokenizer_is_special(const struct lp_tokenizer *tok, int32_t id) {
    if (!in_range(tok, id)) return false;
    return tok->types[id] == LP_TOKEN_CONTROL || tok->types[id] == LP_TOKEN_UNKNOWN;
}

int32_t lp_tokenizer_find(const struct lp_tokenizer *tok, struct lp_str text) {
    uint32_t id = lp_map_get(&tok->by_text, text);
    return id == LP_MAP_NONE ? -1 : (int32_t)id;
}

struct lp_str lp_tokenizer_token(const struct lp_tokenizer *tok, int32_t id) {
    return in_range(tok, id) ? tok->tokens[id] : (struct lp_str){"", 0};
}
