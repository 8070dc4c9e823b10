// Byte-level BPE. Every byte of a piece is a token of its own to begin with; the merge list then
// joins neighbours, lowest rank first. In the file, bytes are spelled as printable characters
// (space is U+0120): those that Latin-1 prints stand for themselves, the other 68 follow from
// U+0100.
//
// Merges are looked up by the ids of the two parts. That equals the file's look-up by their texts,
// since each text names one token and vocab.c refuses a list whose parts or results are no tokens.
// A merge makes a longer token of two, so no list, however built, can run forever.
#include <inttypes.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/log.h"
#include "text/tokenizer_parts.h"

uint32_t lp_bpe_byte_char(unsigned byte) {
    if (byte <= 0x20) return 0x100 + byte;
    if (byte >= 0x7F && byte <= 0xA0) return 0x121 + (byte - 0x7F);
    return byte == 0xAD ? 0x143 : byte;
}

int lp_bpe_char_byte(uint32_t code_point) {
    if (code_point >= 0x100 && code_point <= 0x120) return (int)(code_point - 0x100);
    if (code_point >= 0x121 && code_point <= 0x142) return (int)(code_point - 0x121 + 0x7F);
    if (code_point == 0x143) return 0xAD;
    return code_point < 0x100 && lp_bpe_byte_char(code_point) == code_point ? (int)code_point : -1;
}

struct lp_str lp_bpe_spell_byte(unsigned byte, char buffer[2]) {
    uint32_t c = lp_bpe_byte_char(byte);
    if (c < 0x80) {
        buffer[0] = (char)c;
        return (struct lp_str){buffer, 1};
    }
    buffer[0] = (char)(0xC0 | c >> 6);
    buffer[1] = (char)(0x80 | (c & 0x3F));
    return (struct lp_str){buffer, 2};
}

// ---- building -------------------------------------------------------------------------------

// A trained vocabulary holds the bytes that its corpus had, so published ones lack some that hardly
// occur: control characters, and the first bytes of unassigned planes (SmolLM2: 04 06 13 14 16 1D
// F1 F2, and those that occur in no UTF-8). Any other gap is damage.
static bool may_be_missing(unsigned byte) {
    bool line_or_tab = byte >= 0x09 && byte <= 0x0D;
    return (byte < 0x20 && !line_or_tab) || byte == 0x7F || byte == 0xC0 || byte == 0xC1 ||
           byte > 0xF0;
}

static lp_status find_bytes(struct lp_tokenizer *tok, struct lp_err *err) {
    unsigned n_lost = 0, lost = 0;
    for (unsigned byte = 0; byte < 256; byte++) {
        char buffer[2];
        struct lp_str spelling = lp_bpe_spell_byte(byte, buffer);
        uint32_t id = lp_map_get(&tok->by_text, spelling);
        tok->bpe.byte_ids[byte] = id == LP_MAP_NONE ? -1 : (int32_t)id;
        if (id != LP_MAP_NONE) continue;
        if (!may_be_missing(byte))
            return lp_err_set(err, LP_STATUS_FORMAT,
                              "tokenizer.ggml.tokens has no token \"%.*s\" for byte 0x%02X; a "
                              "byte-level vocabulary needs one for every byte",
                              LP_STR_ARGS(spelling), byte);
        bool in_utf8 = byte != 0xC0 && byte != 0xC1 && byte < 0xF5;
        if (in_utf8 && !n_lost++) lost = byte;
    }
    if (n_lost)
        lp_log(LP_LOG_WARN,
               "the vocabulary has no token for %u rare bytes (the first is 0x%02X); they "
               "are left out of texts, as the model's own tokenizer does",
               n_lost, lost);
    return LP_OK;
}

static struct lp_bpe_merge *find_slot(const struct lp_bpe *bpe, uint32_t left, uint32_t right) {
    __uint128_t m = (__uint128_t)(((uint64_t)left << 32 | right) ^ bpe->seed) * 0xd6e8feb86659fd93u;
    size_t mask = bpe->n_slots - 1;
    for (size_t i = (size_t)((uint64_t)m ^ (uint64_t)(m >> 64)) & mask;; i = (i + 1) & mask) {
        struct lp_bpe_merge *slot = &bpe->slots[i];
        if (slot->rank == LP_PAIR_NONE || (slot->left == left && slot->right == right)) return slot;
    }
}

static lp_status make_slots(struct lp_bpe *bpe, uint32_t n_merges, struct lp_err *err) {
    size_t n = 16;
    while (n / 2 + n / 4 < n_merges) n *= 2; // at most three quarters full; n_merges has 32 bits
    bpe->slots = lp_realloc(NULL, n, sizeof *bpe->slots);
    if (!bpe->slots) return lp_err_memory(err, n * sizeof *bpe->slots, "the merges");
    memset(bpe->slots, 0xFF, n * sizeof *bpe->slots); // rank LP_PAIR_NONE
    bpe->n_slots = n;
    bpe->seed = lp_clock_ns() ^ (uintptr_t)bpe; // so that a file cannot aim at one slot
    return LP_OK;
}

static lp_status find_part(const struct lp_tokenizer *tok, struct lp_str merge, uint32_t index,
                           struct lp_str part, uint32_t *id, struct lp_err *err) {
    *id = lp_map_get(&tok->by_text, part);
    if (*id != LP_MAP_NONE) return LP_OK;
    return lp_err_set(err, LP_STATUS_FORMAT,
                      "tokenizer.ggml.merges[%" PRIu32
                      "] \"%.*s\" needs the token \"%.*s\", which the "
                      "vocabulary does not have",
                      index, LP_STR_ARGS(merge), LP_STR_ARGS(part));
}

static lp_status add_merge(struct lp_tokenizer *tok, struct lp_str merge, uint32_t index,
                           struct lp_bytes *joined, struct lp_err *err) {
    const char *space = merge.len ? memchr(merge.data, ' ', merge.len) : NULL;
    struct lp_str left = {0}, right = {0};
    if (space) {
        left = (struct lp_str){merge.data, (size_t)(space - merge.data)};
        right = (struct lp_str){space + 1, merge.len - left.len - 1};
    }
    if (!left.len || !right.len || memchr(right.data, ' ', right.len))
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "tokenizer.ggml.merges[%" PRIu32
                          "] is \"%.*s\", expected two token texts "
                          "with one space between them",
                          index, LP_STR_ARGS(merge));
    lp_bytes_clear(joined);
    if (!lp_bytes_append(joined, left.data, left.len) ||
        !lp_bytes_append(joined, right.data, right.len))
        return lp_err_memory(err, merge.len, "a merge");
    struct lp_bpe_merge found = {.rank = index};
    lp_status status = find_part(tok, merge, index, left, &found.left, err);
    if (!status) status = find_part(tok, merge, index, right, &found.right, err);
    if (!status) status = find_part(tok, merge, index, lp_bytes_view(joined), &found.result, err);
    if (status) return status;
    if (lp_tokenizer_is_special(tok, (int32_t)found.result)) {
        lp_log(LP_LOG_WARN,
               "tokenizer.ggml.merges[%" PRIu32 "] would make the control token \"%.*s\" "
               "out of ordinary text; it is left out",
               index, LP_STR_ARGS(lp_bytes_view(joined)));
        return LP_OK;
    }
    struct lp_bpe_merge *slot = find_slot(&tok->bpe, found.left, found.right);
    if (slot->rank != LP_PAIR_NONE)
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "tokenizer.ggml.merges[%" PRIu32 "] repeats merges[%" PRIu32 "] \"%.*s\"",
                          index, slot->rank, LP_STR_ARGS(merge));
    *slot = found;
    return LP_OK;
}

lp_status lp_bpe_init(struct lp_tokenizer *tok, const struct lp_vocab_params *params,
                      struct lp_err *err) {
    lp_status status = find_bytes(tok, err);
    if (status) return status;
    if (!params->merges)
        return lp_err_set(
            err, LP_STATUS_FORMAT,
            "tokenizer.ggml.merges is missing; the tokenizer model \"gpt2\" needs it");
    struct lp_bytes joined = {0};
    status = make_slots(&tok->bpe, params->n_merges, err);
    for (uint32_t i = 0; i < params->n_merges && !status; i++)
        status = add_merge(tok, params->merges[i], i, &joined, err);
    lp_bytes_release(&joined);
    return status;
}

// ---- encoding -------------------------------------------------------------------------------

static void rank_pair(const void *ctx, struct lp_pair_symbol *left,
                      const struct lp_pair_symbol *right) {
    const struct lp_bpe *bpe = ctx;
    const struct lp_bpe_merge *slot = find_slot(bpe, left->id, right->id);
    left->rank = slot->rank;
    left->result = slot->result;
}

// A piece that is a normal token as it stands; -1 if it is none. Clears *spelling before use.
static int32_t find_whole(const struct lp_tokenizer *tok, struct lp_bytes *spelling,
                          struct lp_str piece) {
    if (piece.len > tok->max_token_bytes) return -1;
    lp_bytes_clear(spelling);
    for (size_t i = 0; i < piece.len; i++) {
        char buffer[2];
        struct lp_str s = lp_bpe_spell_byte((unsigned char)piece.data[i], buffer);
        lp_bytes_append(spelling, s.data, s.len);
    }
    uint32_t id = lp_map_get(&tok->by_text, lp_bytes_view(spelling));
    return id != LP_MAP_NONE && tok->types[id] == LP_TOKEN_NORMAL ? (int32_t)id : -1;
}

lp_status lp_bpe_encode(const struct lp_tokenizer *tok, struct lp_encode_work *work,
                        struct lp_str piece, struct lp_ids *ids, struct lp_err *err) {
    if (tok->ignore_merges) {
        int32_t id = find_whole(tok, &work->text, piece);
        if (work->text.failed) return lp_err_memory(err, piece.len * 2, "a piece of text");
        if (id >= 0)
            return lp_ids_push(ids, id) ? LP_OK : lp_err_memory(err, piece.len, "token ids");
    }
    if (!lp_pair_reserve(&work->pairs, piece.len))
        return lp_err_memory(err, piece.len * sizeof *work->pairs.symbols, "a piece of text");
    struct lp_pair_symbol *symbols = work->pairs.symbols;
    size_t n = 0;
    for (size_t i = 0; i < piece.len; i++) {
        int32_t id = tok->bpe.byte_ids[(unsigned char)piece.data[i]];
        if (id < 0) continue; // no token for this byte; find_bytes has warned
        symbols[n++] = (struct lp_pair_symbol){.start = (uint32_t)i, .len = 1, .id = (uint32_t)id};
    }
    lp_pair_merge(&work->pairs, n, rank_pair, &tok->bpe);
    for (uint32_t i = n ? 0 : LP_PAIR_NONE; i != LP_PAIR_NONE; i = symbols[i].next)
        if (!lp_ids_push(ids, (int32_t)symbols[i].id))
            return lp_err_memory(err, piece.len, "token ids");
    return LP_OK;
}
