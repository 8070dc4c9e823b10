// What kind of token each one is: markers that text can never reach must be found in it whole, and
// words that merges make are no markers. And the ids of the metadata name what they should.
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "doctor/accuse.h"
#include "doctor/token_checks.h"
#include "text/tokenizer_parts.h"

#define MAX_NAMED 4 // tokens that are accused one by one

static bool starts(struct lp_str s, const char *with) {
    size_t n = strlen(with);
    return s.len >= n && memcmp(s.data, with, n) == 0;
}
static bool ends(struct lp_str s, const char *with) {
    size_t n = strlen(with);
    return s.len >= n && memcmp(s.data + s.len - n, with, n) == 0;
}

// <|user|>, <|User|> with full-width bars, [gMASK] and what else the family ends or begins with.
static bool looks_special(const struct lp_token_exam *x, struct lp_str text) {
    if (text.len > 4 && starts(text, "<|") && ends(text, "|>")) return true;
    if (text.len > 8 && starts(text, "<\xEF\xBD\x9C") && ends(text, "\xEF\xBD\x9C>")) return true;
    return x->family && (lp_vocab_family_list_has(x->family->starts, text) ||
                         lp_vocab_family_list_has(x->family->ends, text));
}

// ---- ids in the metadata ----

#define N_NAMED 4

struct named {
    const char *key;
    bool is_end;
    int32_t id; // -1: none
};

static int32_t id_of(const struct lp_gguf *gguf, const char *key) {
    const struct lp_gguf_kv *kv = lp_gguf_find(gguf, key);
    if (!kv || !lp_gguf_is_integral(kv->type)) return -1;
    int64_t id = lp_gguf_int_at(kv, 0);
    return id >= 0 && id <= INT32_MAX ? (int32_t)id : -1;
}

// Whether a token may be what the key says: the family's list decides; else it must be special.
static bool may_be(const struct lp_token_exam *x, const struct named *named, int32_t id) {
    if (id < 0 || (uint32_t)id >= x->tok->n_tokens) return false;
    if (x->family)
        return lp_vocab_family_list_has(named->is_end ? x->family->ends : x->family->starts,
                                        x->tok->tokens[id]);
    return !named->is_end || x->tok->types[id] != LP_TOKEN_NORMAL;
}

// All ids that are wrong would be right this many further: the tokens are shifted, not the ids.
static int32_t common_shift(const struct lp_token_exam *x, const struct named *list, size_t n) {
    for (int32_t shift = -2; shift <= 2; shift++) {
        int32_t n_wrong = 0, n_mended = 0;
        for (size_t i = 0; i < n && shift; i++) {
            if (list[i].id < 0 || may_be(x, &list[i], list[i].id)) continue;
            n_wrong++;
            n_mended += may_be(x, &list[i], list[i].id + shift);
        }
        if (n_wrong > 1 && n_mended == n_wrong) return shift;
    }
    return 0;
}

static int32_t shift_of_ids(const struct lp_token_exam *x, struct named list[N_NAMED]) {
    static const struct named keys[N_NAMED] = {{"tokenizer.ggml.bos_token_id", false, -1},
                                               {"tokenizer.ggml.eos_token_id", true, -1},
                                               {"tokenizer.ggml.eot_token_id", true, -1},
                                               {"tokenizer.ggml.eom_token_id", true, -1}};
    for (size_t i = 0; i < N_NAMED; i++) {
        list[i] = keys[i];
        list[i].id = id_of(x->exam->gguf, keys[i].key);
    }
    return common_shift(x, list, N_NAMED);
}

// ---- types ----

struct types {
    int32_t n_specials, n_split; // special tokens, those that text does not lead to
    int32_t n_mistyped, mistyped[MAX_NAMED];
    int32_t n_words, word; // control tokens that merges make of ordinary text
};

// Is `id` what its own text becomes?
static lp_status found_in_text(const struct lp_token_exam *x, int32_t id, bool *found,
                               struct lp_token_list *list, struct lp_err *err) {
    struct lp_str text = lp_tokenizer_token(x->tok, id);
    lp_status status = lp_token_encode(x, text, LP_ENCODE_SPECIAL, list, err);
    *found = !status && list->n == 1 && list->ids[0] == id;
    return status;
}

static lp_status count_markers(const struct lp_token_exam *x, struct types *t, struct lp_err *err) {
    struct lp_token_list list = {0};
    lp_status status = LP_OK;
    for (uint32_t id = 0; id < x->tok->n_tokens && !status; id++) {
        uint8_t type = x->tok->types[id];
        bool special = type == LP_TOKEN_CONTROL || type == LP_TOKEN_USER_DEFINED;
        bool ordinary = type == LP_TOKEN_NORMAL || type == LP_TOKEN_UNUSED;
        bool found = true, looks = ordinary && looks_special(x, x->tok->tokens[id]);
        if (!looks && (!special || lp_tokenizer_is_unused(x->tok, (int32_t)id))) continue;
        status = found_in_text(x, (int32_t)id, &found, &list, err);
        t->n_specials += special || !found;
        if (found || status) continue;
        t->n_split += special;
        if (!looks) continue;
        if (t->n_mistyped < MAX_NAMED) t->mistyped[t->n_mistyped] = (int32_t)id;
        t->n_mistyped++;
    }
    lp_free(list.ids);
    return status;
}

// Merges whose result is a control token: a word that was typed as one.
static lp_status count_words(const struct lp_token_exam *x, struct types *t, struct lp_err *err) {
    const struct lp_gguf_kv *merges = lp_gguf_find(x->exam->gguf, "tokenizer.ggml.merges");
    struct lp_bytes joined = {0};
    for (uint64_t i = 0; merges && merges->strings && i < merges->count; i++) {
        struct lp_str m = merges->strings[i];
        const char *space = memchr(m.data, ' ', m.len);
        if (!space) continue;
        size_t left = (size_t)(space - m.data);
        lp_bytes_clear(&joined);
        lp_bytes_append(&joined, m.data, left);
        lp_bytes_append(&joined, space + 1, m.len - left - 1);
        int32_t id = lp_tokenizer_find(x->tok, lp_bytes_view(&joined));
        if (id < 0 || x->tok->types[id] != LP_TOKEN_CONTROL) continue;
        if (!t->n_words++) t->word = id;
    }
    bool failed = joined.failed;
    lp_bytes_release(&joined);
    return failed ? lp_err_memory(err, 256, "a merge") : LP_OK;
}

// The list is shifted or foreign: one fault with an example of each kind.
static void accuse_list(const struct lp_token_exam *x, const struct types *t) {
    char marker[160] = "", word[160] = "";
    if (t->n_mistyped)
        snprintf(marker, sizeof marker, " the marker %.*s is typed as ordinary text",
                 LP_STR_ARGS(lp_tokenizer_token(x->tok, t->mistyped[0])));
    if (t->n_words)
        snprintf(word, sizeof word, "%s the word '%.*s' as a control token",
                 t->n_mistyped ? "," : "", LP_STR_ARGS(lp_tokenizer_token(x->tok, t->word)));
    lp_report_fault(x->exam->report, LP_STAGE_TOKENS, "special tokens", -1,
                    "tokenizer.ggml.token_type",
                    "tokenizer.ggml.token_type does not belong to these tokens:%s%s. The list is "
                    "shifted or of another vocabulary: convert the model again.",
                    marker, word);
}

static void accuse_types(struct lp_token_exam *x, const struct types *t) {
    struct lp_report *r = x->exam->report;
    struct named list[N_NAMED];
    x->wrong_types = t->n_mistyped > 0 || t->n_words > 0;
    if (shift_of_ids(x, list)) return; // the tokens are at fault, and accused with their ids
    if (t->n_words || t->n_mistyped > MAX_NAMED) {
        accuse_list(x, t);
        return;
    }
    for (int32_t i = 0; i < t->n_mistyped; i++) {
        char what[LP_WHAT_BYTES];
        struct lp_str text = lp_tokenizer_token(x->tok, t->mistyped[i]);
        snprintf(what, sizeof what, "%.*s", text.len > 100 ? 100 : (int)text.len, text.data);
        lp_report_fault(
            r, LP_STAGE_TOKENS, "special tokens", -1, what,
            "Token %d, %s, is typed as ordinary text in tokenizer.ggml.token_type, so a "
            "prompt that holds it is cut into pieces that the model never saw. Its type "
            "must be 3 (control): convert the model again.",
            t->mistyped[i], what);
    }
}

lp_status lp_check_token_types(struct lp_token_exam *x, struct lp_err *err) {
    struct types t = {0};
    lp_status status = count_markers(x, &t, err);
    if (!status && !x->tok->is_spm) status = count_words(x, &t, err);
    if (status) return status;
    if (lp_gguf_find(x->exam->gguf, "tokenizer.ggml.token_type")) accuse_types(x, &t);
    int32_t n_wrong = x->wrong_types ? t.n_mistyped + t.n_words : 0;
    lp_accuse_counted(x->exam->report, LP_STAGE_TOKENS, "special tokens",
                      (uint64_t)(t.n_specials > n_wrong ? t.n_specials - n_wrong : 0),
                      (uint64_t)n_wrong, "special tokens that a prompt's text leads to as one id");
    return LP_OK;
}

// ---- accusing ids

static void accuse_id(const struct lp_token_exam *x, const struct named *named) {
    char better[160] = "";
    for (int32_t shift = -1; shift <= 1; shift += 2)
        if (may_be(x, named, named->id + shift))
            snprintf(better, sizeof better, " Token %d, %.*s, is one: the id is off by one.",
                     named->id + shift, LP_STR_ARGS(lp_tokenizer_token(x->tok, named->id + shift)));
    lp_report_fault(x->exam->report, LP_STAGE_TOKENS, "token ids", -1, named->key,
                    "%s is %d, which is '%.*s' and %s.%s Set it to what tokenizer_config.json "
                    "says.",
                    named->key, named->id, LP_STR_ARGS(lp_tokenizer_token(x->tok, named->id)),
                    named->is_end ? "ends nothing in this vocabulary, so answers do not stop"
                                  : "begins nothing in this vocabulary",
                    better);
}

void lp_check_token_ids(struct lp_token_exam *x) {
    struct named list[N_NAMED];
    size_t n = N_NAMED, n_stops;
    uint64_t n_right = 0, n_wrong = 0;
    struct lp_report *r = x->exam->report;
    int32_t shift = shift_of_ids(x, list);
    for (size_t i = 0; i < n; i++) {
        if (list[i].id < 0) continue;
        bool right = may_be(x, &list[i], list[i].id);
        n_right += right;
        n_wrong += !right;
        if (!right && !shift) accuse_id(x, &list[i]);
    }
    if (shift)
        lp_report_fault(
            r, LP_STAGE_TOKENS, "token ids", -1, "tokenizer.ggml.tokens",
            "All ids of special tokens name texts that stand %d place%s %s: the list of "
            "tokens is shifted against the ids and the embedding, and every token means "
            "its neighbour. Convert the model again with its own tokenizer.",
            shift < 0 ? -shift : shift, shift == 1 || shift == -1 ? "" : "s",
            shift < 0 ? "before theirs" : "behind theirs");
    (void)lp_tokenizer_stop_ids(x->tok, &n_stops);
    if (n_stops == 0) {
        n_wrong++;
        lp_report_fault(r, LP_STAGE_TOKENS, "token ids", -1, "tokenizer.ggml.eos_token_id",
                        "tokenizer.ggml.eos_token_id is missing and no other token ends a turn: "
                        "answers never stop. Set it to what tokenizer_config.json says.");
    }
    lp_accuse_counted(r, LP_STAGE_TOKENS, "token ids", n_right, n_wrong,
                      "ids that begin or end a text name tokens that do; %zu tokens end an answer",
                      n_stops);
    if (id_of(x->exam->gguf, "tokenizer.ggml.eos_token_id") < 0 && n_stops)
        lp_report_say(r, LP_STAGE_TOKENS, LP_CHECK_NOTE, "token ids",
                      "tokenizer.ggml.eos_token_id is missing; %zu tokens end answers by the rules "
                      "of the vocabulary",
                      n_stops);
}
