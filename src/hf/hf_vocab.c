// tokenizer.json's vocabulary, merges and added tokens as rows by id.
#include "hf/hf_vocab.h"

#include <inttypes.h>

#include "base/grow.h"
#include "base/log.h"

lp_status lp_hf_vocab_init(struct lp_hf_vocab *v, int64_t n_vocab, struct lp_err *err) {
    *v = (struct lp_hf_vocab){.bos = -1,
                              .eos = -1,
                              .eot = -1,
                              .eom = -1,
                              .unk = -1,
                              .pad = -1,
                              .add_bos = -1,
                              .add_eos = -1,
                              .space_prefix = -1};
    if (n_vocab < 1 || n_vocab > LP_HF_MAX_TOKENS)
        return lp_err_set(err, LP_STATUS_LIMIT,
                          "config.json: vocab_size is %" PRId64 ", expected 1 to %d", n_vocab,
                          LP_HF_MAX_TOKENS);
    v->n = (uint32_t)n_vocab;
    v->texts = lp_alloc(v->n, sizeof *v->texts);
    v->types = lp_alloc(v->n, sizeof *v->types);
    if (!v->texts || !v->types || !lp_map_reserve(&v->by_text, v->n))
        return lp_err_memory(err, v->n * sizeof *v->texts, "the vocabulary");
    return LP_OK;
}

void lp_hf_vocab_release(struct lp_hf_vocab *v) {
    lp_free(v->texts);
    lp_free(v->types);
    lp_free(v->scores);
    lp_free(v->merges);
    lp_map_release(&v->by_text);
    lp_arena_release(&v->arena);
}

lp_status lp_hf_vocab_put(struct lp_hf_vocab *v, int64_t id, struct lp_str text, int32_t type,
                          struct lp_err *err) {
    if (id < 0 || id >= v->n)
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "the token \"%.*s\" has the id %" PRId64
                          ", but the embedding has %" PRIu32 " rows (vocab_size)",
                          LP_STR_ARGS(text), id, v->n);
    struct lp_str there = v->texts[id];
    if (!text.len) return LP_OK; // no text becomes it; it is padding
    if (there.data && !lp_str_equal(there, text))
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "the id %" PRId64 " is given to two tokens, \"%.*s\" and \"%.*s\"", id,
                          LP_STR_ARGS(there), LP_STR_ARGS(text));
    v->types[id] = type;
    if (there.data) return LP_OK;
    uint32_t old;
    if (!lp_map_add(&v->by_text, text, (uint32_t)id, &old))
        return lp_err_memory(err, text.len, "the vocabulary");
    if (old != LP_MAP_NONE)
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "the token \"%.*s\" has two ids, %" PRIu32 " and %" PRId64,
                          LP_STR_ARGS(text), old, id);
    v->texts[id] = text;
    return LP_OK;
}

bool lp_hf_vocab_put_merge(struct lp_hf_vocab *v, struct lp_str merge) {
    if (!LP_GROW(v->merges, v->merges_capacity, v->n_merges + 1)) return false;
    v->merges[v->n_merges++] = merge;
    return true;
}

// ---- model

// Options of BPE that change which tokens a text becomes, with the values that change nothing.
static lp_status check_options(const json_t *model, struct lp_err *err) {
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < 2; i++) {
        struct lp_str affix = lp_hf_text(json_object_get(model, affixes[i]));
        if (affix.len)
            return lp_err_set(err, LP_STATUS_UNSUPPORTED,
                              "tokenizer.json: model.%s is \"%.*s\"; only BPE without affixes is "
                              "supported",
                              affixes[i], LP_STR_ARGS(affix));
    }
    double dropout = json_number_value(json_object_get(model, "dropout"));
    if (dropout != 0)
        return lp_err_set(
            err, LP_STATUS_UNSUPPORTED,
            "tokenizer.json: model.dropout is %g; tokens at random are not supported, "
            "set it to null",
            dropout);
    return LP_OK;
}

static lp_status read_texts(struct lp_hf_vocab *v, const json_t *vocab, struct lp_err *err) {
    if (!json_is_object(vocab) || !json_object_size(vocab))
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "tokenizer.json: model.vocab is missing or empty, expected an object of "
                          "token texts and ids");
    json_t *table = (json_t *)vocab; // jansson's iterators take no const
    for (void *it = json_object_iter(table); it; it = json_object_iter_next(table, it)) {
        struct lp_str text = {json_object_iter_key(it), json_object_iter_key_len(it)};
        const json_t *id = json_object_iter_value(it);
        if (!json_is_integer(id))
            return lp_err_set(err, LP_STATUS_FORMAT,
                              "tokenizer.json: model.vocab has no whole number for \"%.*s\"",
                              LP_STR_ARGS(text));
        lp_status status = lp_hf_vocab_put(v, json_integer_value(id), text, LP_TOKEN_NORMAL, err);
        if (status) {
            lp_err_context(err, "tokenizer.json: model.vocab");
            return status;
        }
    }
    return LP_OK;
}

// "a b" as it is, ["a", "b"] joined; data NULL: neither. *memory: there was not enough.
static struct lp_str merge_text(struct lp_hf_vocab *v, const json_t *merge, bool *memory) {
    if (json_is_string(merge)) return lp_hf_text(merge);
    struct lp_str left = lp_hf_text(json_array_get(merge, 0));
    struct lp_str right = lp_hf_text(json_array_get(merge, 1));
    if (json_array_size(merge) != 2 || !left.data || !right.data) return (struct lp_str){0};
    size_t len = left.len + 1 + right.len; // both lie in memory
    char *text = lp_arena_alloc(&v->arena, len, 1);
    *memory = !text;
    if (!text) return (struct lp_str){0};
    memcpy(text, left.data, left.len);
    text[left.len] = ' ';
    memcpy(text + left.len + 1, right.data, right.len);
    return (struct lp_str){text, len};
}

static lp_status read_merges(struct lp_hf_vocab *v, const json_t *merges, struct lp_err *err) {
    if (!json_is_array(merges) || !json_array_size(merges))
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "tokenizer.json: model.merges is missing or empty, expected a list of "
                          "pairs of token texts");
    for (size_t i = 0; i < json_array_size(merges); i++) {
        bool memory = false;
        struct lp_str merge = merge_text(v, json_array_get(merges, i), &memory);
        if (!merge.data && !memory)
            return lp_err_set(err, LP_STATUS_FORMAT,
                              "tokenizer.json: model.merges[%zu] is neither a text nor two of them",
                              i);
        if (memory || !lp_hf_vocab_put_merge(v, merge))
            return lp_err_memory(err, merge.len, "the merges");
    }
    return LP_OK;
}

lp_status lp_hf_vocab_json(struct lp_hf_vocab *v, const json_t *model, struct lp_err *err) {
    v->ignore_merges = json_is_true(json_object_get(model, "ignore_merges"));
    lp_status status = check_options(model, err);
    if (!status) status = read_texts(v, json_object_get(model, "vocab"), err);
    if (!status) status = read_merges(v, json_object_get(model, "merges"), err);
    return status;
}

// ---- added tokens

static bool is_framed(struct lp_str text, const char *open, const char *close) {
    size_t n = strlen(open), m = strlen(close);
    return text.len >= n + m && !memcmp(text.data, open, n) &&
           !memcmp(text.data + text.len - m, close, m);
}

// Control tokens that some models list as ordinary ones.
static bool looks_special(struct lp_str text) {
    static const char *const known[] = {"<pad>", "<mask>", "<2mass>", "[@BOS@]"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (lp_str_is(text, known[i])) return true;
    return is_framed(text, "<|", "|>") || is_framed(text, "<\xEF\xBD\x9C", "\xEF\xBD\x9C>") ||
           is_framed(text, "<unused", ">");
}

// U+2581 as spaces; the text itself where it has none. data NULL: out of memory.
static struct lp_str without_marks(struct lp_hf_vocab *v, struct lp_str text) {
    if (!memmem(text.data, text.len, LP_HF_SPACE, 3)) return text;
    char *copy = lp_arena_strndup(&v->arena, text.data, text.len), *to = copy;
    if (!copy) return (struct lp_str){0};
    for (size_t i = 0; i < text.len; to++) {
        bool is_mark = text.len - i >= 3 && !memcmp(text.data + i, LP_HF_SPACE, 3);
        *to = is_mark ? ' ' : text.data[i];
        i += is_mark ? 3 : 1;
    }
    return (struct lp_str){copy, (size_t)(to - copy)};
}

// Renames a token of the vocabulary, so that the added one finds itself.
static void rename_token(struct lp_hf_vocab *v, int64_t id, struct lp_str from, struct lp_str to) {
    if (id >= 0 && id < v->n && lp_str_equal(v->texts[id], from)) v->texts[id] = to;
}

static lp_status add_token(struct lp_hf_vocab *v, int64_t id, const json_t *token, bool mark_spaces,
                           size_t *n_stripping, struct lp_err *err) {
    struct lp_str text = lp_hf_text(json_object_get(token, "content"));
    if (!text.data)
        return lp_err_set(err, LP_STATUS_FORMAT, "the added token %" PRId64 " has no content", id);
    bool special = json_is_true(json_object_get(token, "special")) || looks_special(text);
    *n_stripping += json_is_true(json_object_get(token, "lstrip")) ||
                    json_is_true(json_object_get(token, "rstrip")) ||
                    json_is_true(json_object_get(token, "single_word"));
    if (mark_spaces && !special && json_is_true(json_object_get(token, "normalized"))) {
        struct lp_str plain = without_marks(v, text);
        if (!plain.data) return lp_err_memory(err, text.len, "an added token");
        if (plain.data != text.data) rename_token(v, id, text, plain);
        text = plain;
    }
    int32_t type = special ? LP_TOKEN_CONTROL : LP_TOKEN_USER_DEFINED;
    return lp_hf_vocab_put(v, id, text, type, err);
}

static lp_status add_list(struct lp_hf_vocab *v, const json_t *list, bool mark_spaces,
                          size_t *n_stripping, struct lp_err *err) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *token = json_array_get(list, i), *id = json_object_get(token, "id");
        if (!json_is_integer(id))
            return lp_err_set(err, LP_STATUS_FORMAT, "tokenizer.json: added_tokens[%zu] has no id",
                              i);
        lp_status status =
            add_token(v, json_integer_value(id), token, mark_spaces, n_stripping, err);
        if (status) {
            lp_err_context(err, "tokenizer.json: added_tokens[%zu]", i);
            return status;
        }
    }
    return LP_OK;
}

static lp_status add_table(struct lp_hf_vocab *v, const json_t *table, bool mark_spaces,
                           size_t *n_stripping, struct lp_err *err) {
    json_t *tokens = (json_t *)table;
    for (void *it = json_object_iter(tokens); it; it = json_object_iter_next(tokens, it)) {
        const char *key = json_object_iter_key(it);
        size_t len = strspn(key, "0123456789");
        if (!len || len > 9 || key[len])
            return lp_err_set(err, LP_STATUS_FORMAT,
                              "tokenizer_config.json: added_tokens_decoder has the key \"%.40s\", "
                              "expected a token's id",
                              key);
        lp_status status = add_token(v, strtol(key, NULL, 10), json_object_iter_value(it),
                                     mark_spaces, n_stripping, err);
        if (status) {
            lp_err_context(err, "tokenizer_config.json: added_tokens_decoder");
            return status;
        }
    }
    return LP_OK;
}

lp_status lp_hf_vocab_added(struct lp_hf_vocab *v, const json_t *tokenizer, const json_t *config,
                            bool mark_spaces, struct lp_err *err) {
    size_t n_stripping = 0, ignored = 0;
    lp_status status =
        add_list(v, json_object_get(tokenizer, "added_tokens"), mark_spaces, &n_stripping, err);
    if (!status)
        status = add_table(v, json_object_get(config, "added_tokens_decoder"), mark_spaces,
                           tokenizer ? &ignored : &n_stripping, err);
    if (!status && n_stripping)
        lp_log(
            LP_LOG_WARN,
            "%zu added tokens are marked lstrip, rstrip or single_word; GGUF cannot say so: they "
            "are found in any place, and white space beside them stays",
            n_stripping);
    return status;
}

lp_status lp_hf_vocab_pad(struct lp_hf_vocab *v, struct lp_err *err) {
    for (uint32_t id = 0; id < v->n; id++) {
        if (v->texts[id].data) continue;
        char name[24];
        int len = snprintf(name, sizeof name, "[PAD%" PRIu32 "]", id);
        const char *text = lp_arena_strndup(&v->arena, name, (size_t)len);
        if (!text) return lp_err_memory(err, sizeof name, "padding tokens");
        v->texts[id] = (struct lp_str){text, (size_t)len};
        v->types[id] = LP_TOKEN_UNUSED;
    }
    return LP_OK;
}
