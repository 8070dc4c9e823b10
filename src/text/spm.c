// SentencePiece-style BPE by score: spaces become U+2581, the text is cut into characters, and the
// adjacent pair whose concatenation is the token with the highest score is joined, leftmost on
// ties, until none is a token. What is left and is no token becomes byte tokens <0x00> ... <0xFF>.
// Only normal and user-defined tokens are joined to; control tokens cannot be spelled by text.
#include <inttypes.h>
#include <math.h>

#include "base/alloc.h"
#include "text/tokenizer_parts.h"
#include "base/utf8_step.h"

#define SPACE_MARK "\xE2\x96\x81"

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

int lp_spm_byte_of(struct lp_str text) {
    if (text.len != 6 || memcmp(text.data, "<0x", 3) || text.data[5] != '>') return -1;
    int high = hex_digit(text.data[3]), low = hex_digit(text.data[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

// ---- building -------------------------------------------------------------------------------

static lp_status find_bytes(struct lp_tokenizer *tok, bool by_text_alone, struct lp_err *err) {
    int32_t *byte_ids = tok->spm.byte_ids;
    for (int i = 0; i < 256; i++) byte_ids[i] = -1;
    for (uint32_t id = 0; id < tok->n_tokens; id++) {
        int byte = lp_spm_byte_of(tok->tokens[id]);
        if (byte >= 0 && by_text_alone) tok->types[id] = LP_TOKEN_BYTE;
        if (byte < 0 || tok->types[id] != LP_TOKEN_BYTE) continue;
        if (byte_ids[byte] >= 0)
            return lp_err_set(err, LP_STATUS_FORMAT,
                              "tokens %" PRId32 " and %" PRIu32 " both stand for byte 0x%02X",
                              byte_ids[byte], id, (unsigned)byte);
        byte_ids[byte] = (int32_t)id;
    }
    for (unsigned i = 0; i < 256; i++)
        if (byte_ids[i] < 0)
            return lp_err_set(
                err, LP_STATUS_FORMAT,
                "tokenizer.ggml.tokens has no byte token <0x%02X>; the tokenizer model "
                "\"llama\" needs all 256",
                i);
    return LP_OK;
}

// Higher score, lower rank: the bits of a float, made to sort as an integer, upside down.
static uint32_t rank_of_score(float score) {
    uint32_t bits;
    score += 0.0f; // -0 and 0 tie
    memcpy(&bits, &score, sizeof bits);
    return bits & 0x80000000u ? bits : ~(bits | 0x80000000u);
}

lp_status lp_spm_init(struct lp_tokenizer *tok, const struct lp_vocab_params *params,
                      struct lp_err *err) {
    if (!params->scores)
        return lp_err_set(
            err, LP_STATUS_FORMAT,
            "tokenizer.ggml.scores is missing; the tokenizer model \"llama\" needs it");
    lp_status status = find_bytes(tok, !params->types, err);
    if (status) return status;
    tok->spm.ranks = lp_realloc(NULL, tok->n_tokens, sizeof *tok->spm.ranks);
    if (!tok->spm.ranks)
        return lp_err_memory(err, tok->n_tokens * sizeof(uint32_t), "token scores");
    for (uint32_t id = 0; id < tok->n_tokens; id++) {
        float score = params->scores[id];
        if (isnan(score))
            return lp_err_set(err, LP_STATUS_FORMAT,
                              "tokenizer.ggml.scores[%" PRIu32 "] is not a number", id);
        bool joins = tok->types[id] == LP_TOKEN_NORMAL || tok->types[id] == LP_TOKEN_USER_DEFINED;
        tok->spm.ranks[id] = joins ? rank_of_score(score) : LP_PAIR_NONE;
    }
    return LP_OK;
}

// ---- encoding -------------------------------------------------------------------------------

// The token that a stretch of text may become; LP_MAP_NONE if none.
static uint32_t find_token(const struct lp_tokenizer *tok, struct lp_str text) {
    if (text.len > tok->max_token_bytes) return LP_MAP_NONE;
    uint32_t id = lp_map_get(&tok->by_text, text);
    return id != LP_MAP_NONE && tok->spm.ranks[id] != LP_PAIR_NONE ? id : LP_MAP_NONE;
}

struct pair_context {
    const struct lp_tokenizer *tok;
    const char *text;
};

static void rank_pair(const void *ctx, struct lp_pair_symbol *left,
                      const struct lp_pair_symbol *right) {
    const struct pair_context *c = ctx;
    struct lp_str text = {c->text + left->start, (size_t)left->len + right->len};
    uint32_t id = find_token(c->tok, text);
    if (id == LP_MAP_NONE) return;
    left->rank = c->tok->spm.ranks[id];
    left->result = id;
}

static bool mark_spaces(struct lp_bytes *out, struct lp_str text, bool with_prefix) {
    lp_bytes_clear(out);
    if (with_prefix) lp_bytes_puts(out, SPACE_MARK);
    for (size_t i = 0; i < text.len;) {
        const char *space = memchr(text.data + i, ' ', text.len - i);
        size_t n = space ? (size_t)(space - text.data) - i : text.len - i;
        lp_bytes_append(out, text.data + i, n);
        if (space) lp_bytes_puts(out, SPACE_MARK);
        i += n + (space != NULL);
    }
    return !out->failed;
}

static bool push_symbol(const struct lp_tokenizer *tok, struct lp_str text, struct lp_ids *ids) {
    uint32_t id = find_token(tok, text);
    if (id != LP_MAP_NONE) return lp_ids_push(ids, (int32_t)id);
    for (size_t i = 0; i < text.len; i++)
        if (!lp_ids_push(ids, tok->spm.byte_ids[(unsigned char)text.data[i]])) return false;
    return true;
}

lp_status lp_spm_encode(const struct lp_tokenizer *tok, struct lp_encode_work *work,
                        struct lp_str fragment, bool with_prefix, struct lp_ids *ids,
                        struct lp_err *err) {
    if (!mark_spaces(&work->text, fragment, with_prefix))
        return lp_err_memory(err, fragment.len, "a text with marked spaces");
    struct lp_str text = lp_bytes_view(&work->text);
    size_t n = 0;
    for (size_t i = 0; i < text.len; i++) n += ((unsigned char)text.data[i] & 0xC0) != 0x80;
    if (!lp_pair_reserve(&work->pairs, n))
        return lp_err_memory(err, n * sizeof *work->pairs.symbols, "a piece of text");
    struct lp_pair_symbol *symbols = work->pairs.symbols;
    for (size_t i = 0, at = 0, len; at < text.len; at += len, i++) {
        lp_utf8_step((const unsigned char *)text.data + at, text.len - at, &len);
        symbols[i] = (struct lp_pair_symbol){.start = (uint32_t)at, .len = (uint32_t)len};
    }
    struct pair_context ctx = {tok, text.data};
    lp_pair_merge(&work->pairs, n, rank_pair, &ctx);
    for (uint32_t i = n ? 0 : LP_PAIR_NONE; i != LP_PAIR_NONE; i = symbols[i].next) {
        struct lp_str part = {text.data + symbols[i].start, symbols[i].len};
        if (!push_symbol(tok, part, ids)) return lp_err_memory(err, part.len, "token ids");
    }
    return LP_OK;
}
