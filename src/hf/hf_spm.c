// SentencePiece's BPE as tokenizer.json has it (Llama 2, Mistral): spaces become U+2581, characters
// without a token become byte tokens, and pairs are merged by rank. GGUF keeps scores instead, by
// which any two neighbours whose joint text is a token are merged, the highest first. The score of
// a token is minus the rank of the first merge that makes it: the same order, provided that the
// list has every way of making a token out of two. SentencePiece's models do; others are warned
// about.
#include "hf/hf_vocab.h"

#include <inttypes.h>

#include "base/log.h"
#include "base/utf8_step.h"

enum { MAX_CHECKED_BYTES = 256 }; // longer tokens are rows of spaces and the like

// What the normalizer and the pre-tokenizer do to spaces.
struct spaces {
    bool marked;         // written as U+2581
    bool prefix;         // one is put in front
    const char *unknown; // a step that is none of this
};

static void read_normalizer(struct spaces *s, const json_t *step, int depth) {
    const json_t *type = json_object_get(step, "type"),
                 *list = json_object_get(step, "normalizers");
    const json_t *pattern = json_object_get(json_object_get(step, "pattern"), "String");
    if (!step || json_is_null(step)) return;
    if (lp_hf_text_is(type, "Sequence") && depth < 4) {
        for (size_t i = 0; i < json_array_size(list); i++)
            read_normalizer(s, json_array_get(list, i), depth + 1);
    } else if (lp_hf_text_is(type, "Prepend") &&
               lp_hf_text_is(json_object_get(step, "prepend"), LP_HF_SPACE)) {
        s->prefix = true;
    } else if (lp_hf_text_is(type, "Replace") && lp_hf_text_is(pattern, " ") &&
               lp_hf_text_is(json_object_get(step, "content"), LP_HF_SPACE)) {
        s->marked = true;
    } else {
        s->unknown = json_is_string(type) ? json_string_value(type) : "a step without a type";
    }
}

static void read_metaspace(struct spaces *s, const json_t *step) {
    const json_t *scheme = json_object_get(step, "prepend_scheme");
    if (!step || json_is_null(step)) return;
    if (!lp_hf_text_is(json_object_get(step, "type"), "Metaspace")) {
        const char *type = json_string_value(json_object_get(step, "type"));
        s->unknown = type ? type : "a pre-tokenizer without a type";
        return;
    }
    if (!lp_hf_text_is(json_object_get(step, "replacement"), LP_HF_SPACE))
        s->unknown = "Metaspace with a replacement other than U+2581";
    // One that splits does not let merges cross a space; SentencePiece does.
    if (!json_is_false(json_object_get(step, "split"))) s->unknown = "Metaspace that splits";
    s->marked = true;
    if (scheme)
        s->prefix |= !lp_hf_text_is(scheme, "never");
    else
        s->prefix |= !json_is_false(json_object_get(step, "add_prefix_space"));
}

bool lp_hf_spm_is(const json_t *tokenizer) {
    struct spaces s = {0};
    const json_t *pre = json_object_get(tokenizer, "pre_tokenizer");
    read_normalizer(&s, json_object_get(tokenizer, "normalizer"), 0);
    return s.marked || lp_hf_text_is(json_object_get(pre, "type"), "Metaspace");
}

static lp_status read_spaces(struct lp_hf_vocab *v, const json_t *tokenizer, struct lp_err *err) {
    struct spaces s = {0};
    if (!json_is_true(json_object_get(json_object_get(tokenizer, "model"), "byte_fallback")))
        return lp_err_set(
            err, LP_STATUS_UNSUPPORTED,
            "tokenizer.json: model.byte_fallback is not true; a vocabulary with U+2581 "
            "for spaces needs byte tokens");
    read_normalizer(&s, json_object_get(tokenizer, "normalizer"), 0);
    if (!s.unknown) read_metaspace(&s, json_object_get(tokenizer, "pre_tokenizer"));
    if (s.unknown)
        return lp_err_set(err, LP_STATUS_UNSUPPORTED,
                          "tokenizer.json: %.60s is not supported in a vocabulary with U+2581 for "
                          "spaces (Prepend, Replace and a Metaspace that does not split are)",
                          s.unknown);
    v->space_prefix = s.prefix;
    return LP_OK;
}

// ---- scores

static uint32_t id_of(const struct lp_hf_vocab *v, struct lp_str text) {
    return lp_map_get(&v->by_text, text);
}

// Takes "left right" apart; false if it is no such thing.
static bool halves(struct lp_str merge, struct lp_str *left, struct lp_str *right) {
    const char *space = merge.len ? memchr(merge.data, ' ', merge.len) : NULL;
    if (!space) return false;
    *left = (struct lp_str){merge.data, (size_t)(space - merge.data)};
    *right = (struct lp_str){space + 1, merge.len - left->len - 1};
    return left->len && right->len && !memchr(right->data, ' ', right->len);
}

static lp_status score_merge(struct lp_hf_vocab *v, size_t rank, bool *has_score,
                             struct lp_bytes *joined, struct lp_err *err) {
    struct lp_str merge = v->merges[rank], left, right;
    if (!halves(merge, &left, &right))
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "tokenizer.json: model.merges[%zu] is \"%.*s\", expected two token texts "
                          "with one space between them",
                          rank, LP_STR_ARGS(merge));
    lp_bytes_clear(joined);
    lp_bytes_append(joined, left.data, left.len);
    if (!lp_bytes_append(joined, right.data, right.len))
        return lp_err_memory(err, merge.len, "a merge");
    uint32_t id = id_of(v, lp_bytes_view(joined));
    if (id == LP_MAP_NONE || id_of(v, left) == LP_MAP_NONE || id_of(v, right) == LP_MAP_NONE)
        return lp_err_set(
            err, LP_STATUS_FORMAT,
            "tokenizer.json: model.merges[%zu] \"%.*s\" has a part or a result that is "
            "no token of the vocabulary",
            rank, LP_STR_ARGS(merge));
    if (!has_score[id]) v->scores[id] = -(float)rank;
    has_score[id] = true;
    return LP_OK;
}

// Characters and others that no merge makes come last, as in SentencePiece.
static lp_status make_scores(struct lp_hf_vocab *v, struct lp_err *err) {
    struct lp_bytes joined = {0};
    bool *has_score = lp_alloc(v->n, sizeof *has_score);
    lp_status status = LP_OK;
    v->scores = lp_alloc(v->n, sizeof *v->scores);
    if (!v->scores || !has_score)
        status = lp_err_memory(err, v->n * sizeof *v->scores, "the scores");
    for (size_t i = 0; i < v->n_merges && !status; i++)
        status = score_merge(v, i, has_score, &joined, err);
    for (uint32_t id = 0; id < v->n && !status; id++)
        if (!has_score[id] && v->types[id] == LP_TOKEN_NORMAL) v->scores[id] = -(float)v->n_merges;
    lp_bytes_release(&joined);
    lp_free(has_score);
    return status;
}

// ---- types

static bool is_byte_token(struct lp_str text) {
    static const char digits[] = "0123456789ABCDEFabcdef";
    return text.len == 6 && !memcmp(text.data, "<0x", 3) && text.data[5] == '>' &&
           memchr(digits, text.data[3], sizeof digits - 1) &&
           memchr(digits, text.data[4], sizeof digits - 1);
}

static void set_types(struct lp_hf_vocab *v, const json_t *model) {
    struct lp_str unknown = lp_hf_text(json_object_get(model, "unk_token"));
    for (uint32_t id = 0; id < v->n; id++)
        if (v->types[id] == LP_TOKEN_NORMAL && v->texts[id].data && is_byte_token(v->texts[id]))
            v->types[id] = LP_TOKEN_BYTE;
    uint32_t id = unknown.data ? id_of(v, unknown) : LP_MAP_NONE;
    if (id == LP_MAP_NONE) return;
    v->types[id] = LP_TOKEN_UNKNOWN;
    v->unk = (int32_t)id;
}

// ---- whether scores do what the merges do

// Ways of making a token out of two others that the list lacks.
static size_t count_missing(const struct lp_hf_vocab *v, const struct lp_map *merges, uint32_t id,
                            struct lp_bytes *key) {
    struct lp_str text = v->texts[id];
    size_t missing = 0, n;
    for (size_t at = 0; at + 1 < text.len; at += n) {
        lp_utf8_step((const unsigned char *)text.data + at, text.len - at, &n);
        if (at + n >= text.len) break;
        struct lp_str left = {text.data, at + n}, right = {text.data + at + n, text.len - at - n};
        if (id_of(v, left) == LP_MAP_NONE || id_of(v, right) == LP_MAP_NONE) continue;
        lp_bytes_clear(key);
        lp_bytes_append(key, left.data, left.len);
        lp_bytes_puts(key, " ");
        lp_bytes_append(key, right.data, right.len);
        missing += lp_map_get(merges, lp_bytes_view(key)) == LP_MAP_NONE;
    }
    return missing;
}

static lp_status check_ways(const struct lp_hf_vocab *v, struct lp_err *err) {
    struct lp_map merges = {0};
    struct lp_bytes key = {0};
    size_t missing = 0;
    uint32_t first = 0;
    bool enough = lp_map_reserve(&merges, v->n_merges);
    for (size_t i = 0; i < v->n_merges && enough; i++)
        enough = lp_map_add(&merges, v->merges[i], (uint32_t)i, NULL);
    for (uint32_t id = 0; id < v->n && enough; id++) {
        if (v->types[id] != LP_TOKEN_NORMAL || v->texts[id].len > MAX_CHECKED_BYTES) continue;
        size_t of_this = count_missing(v, &merges, id, &key);
        if (of_this && !missing) first = id;
        missing += of_this;
        enough = !key.failed;
    }
    lp_map_release(&merges);
    lp_bytes_release(&key);
    if (!enough) return lp_err_memory(err, v->n_merges * 16, "the merges");
    if (missing)
        lp_log(LP_LOG_WARN,
               "tokenizer.json: model.merges lacks %zu ways of joining two tokens to a third (the "
               "first token is \"%.*s\"); GGUF's scores cannot say so, some texts get other tokens "
               "than the model's own",
               missing, LP_STR_ARGS(v->texts[first]));
    return LP_OK;
}

lp_status lp_hf_spm(struct lp_hf_vocab *v, const json_t *tokenizer, struct lp_err *err) {
    lp_status status = read_spaces(v, tokenizer, err);
    if (!status) set_types(v, json_object_get(tokenizer, "model"));
    if (!status) status = make_scores(v, err);
    if (!status) status = check_ways(v, err);
    v->model = "llama";
    v->adds_bos_by_default = true;
    return status;
}
