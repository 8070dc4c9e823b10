// The tokenizer of a GGUF file: byte-level BPE (tokenizer.ggml.model "gpt2") and
// SentencePiece-style BPE by score ("llama"). Vocabulary, merges and pre-tokenizer come from plain
// arrays, so that this folder needs no GGUF reader; engine/ fills struct lp_vocab_params from the
// file.
//
// Thread-safe after lp_tokenizer_new: encode and decode take no locks and change nothing.
#ifndef LP_TEXT_TOKENIZER_H
#define LP_TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/status.h"

enum lp_token_type { // tokenizer.ggml.token_type
    LP_TOKEN_NORMAL = 1,
    LP_TOKEN_UNKNOWN = 2,
    LP_TOKEN_CONTROL = 3,
    LP_TOKEN_USER_DEFINED = 4,
    LP_TOKEN_UNUSED = 5,
    LP_TOKEN_BYTE = 6,
};

struct lp_vocab_params {
    struct lp_str model;         // "gpt2" or "llama"
    struct lp_str pre;           // tokenizer.ggml.pre; empty = "default" (gpt2 only)
    const struct lp_str *tokens; // [n_tokens]
    uint32_t n_tokens;
    const int32_t *types;        // [n_tokens] or NULL = all normal
    const float *scores;         // [n_tokens] or NULL; needed by "llama"
    const struct lp_str *merges; // [n_merges] "left right"; needed by "gpt2"
    uint32_t n_merges;
    int32_t bos, eos, eot, eom, unk, pad; // -1 where the file has none
    int32_t add_bos, add_eos;             // 1, 0, or -1 = the pre-tokenizer's default
    int32_t add_space_prefix;             // SPM; -1 = default (true)
};

struct lp_tokenizer;

// Copies what it needs. Errors (FORMAT/UNSUPPORTED/LIMIT) name the key or token and its value:
// unknown model or pre, ids out of range, merges without a space or with unknown parts, doubled
// token strings that cannot be told apart, a byte token such as "<0x-1>", missing byte tokens. Some
// published gpt2 vocabularies (SmolLM2) lack rare bytes: control characters other than tab and line
// ends, first bytes of unassigned planes. Those are warned about, and left out of texts.
lp_status lp_tokenizer_new(struct lp_tokenizer **out, const struct lp_vocab_params *params,
                           struct lp_err *err);
void lp_tokenizer_free(struct lp_tokenizer *tok); // NULL is allowed

enum lp_encode_flags {
    LP_ENCODE_SPECIAL = 1, // recognise control and unknown tokens in the text, as HF and vLLM do
                           // (user-defined ones always are)
    LP_ENCODE_BOS_EOS = 2, // add BOS / EOS where the file (or the pre-tokenizer's default) says so;
                           // a BOS that the text already begins with is not doubled
};

// Appends to *ids, an array from lp_alloc of *n_ids used out of *capacity (start with NULL, 0, 0;
// free with lp_free). Invalid UTF-8 becomes U+FFFD. Time O(n log n) in the text length.
// Errors: MEMORY, LIMIT (text over 2^30 bytes).
lp_status lp_tokenizer_encode(const struct lp_tokenizer *tok, struct lp_str text, unsigned flags,
                              int32_t **ids, size_t *n_ids, size_t *capacity, struct lp_err *err);

uint32_t lp_tokenizer_n_tokens(const struct lp_tokenizer *tok);
int32_t lp_tokenizer_bos(const struct lp_tokenizer *tok); // or -1
int32_t lp_tokenizer_eos(const struct lp_tokenizer *tok); // or -1
bool lp_tokenizer_adds_bos(const struct lp_tokenizer *tok);
// The ids after which a sequence has ended: eos, eot, eom, and by text for the vocabularies that
// are known to end turns otherwise (GLM: <|endoftext|>, <|user|>, <|observation|>; Llama 3:
// <|eot_id|>, <|eom_id|>, <|end_of_text|>; Qwen: <|im_end|>, <|endoftext|>).
const int32_t *lp_tokenizer_stop_ids(const struct lp_tokenizer *tok, size_t *n);
bool lp_tokenizer_is_stop(const struct lp_tokenizer *tok, int32_t id);
// Never to be sampled: unused or padding tokens ([PAD123]), ids at or past n_tokens.
bool lp_tokenizer_is_unused(const struct lp_tokenizer *tok, int32_t id);
bool lp_tokenizer_is_special(const struct lp_tokenizer *tok, int32_t id); // control or unknown
int32_t lp_tokenizer_find(const struct lp_tokenizer *tok,
                          struct lp_str text); // token of this very text, or -1
struct lp_str lp_tokenizer_token(const struct lp_tokenizer *tok,
                                 int32_t id); // as the file spells it

// Appends the raw bytes that token id stands for (no UTF-8 guarantee: a character may span tokens).
// skip_special leaves control and unknown tokens out; user-defined ones (<think>, <tool_call>) are
// always printed. False when out of memory or id is out of range.
bool lp_tokenizer_piece(const struct lp_tokenizer *tok, int32_t id, bool skip_special,
                        struct lp_bytes *out);

// Streaming decode: holds back the tail of a UTF-8 character until it is complete; bytes that can
// never become one are given out as U+FFFD. Also drops the space that an SPM prefix added.
struct lp_detok {
    const struct lp_tokenizer *tok;
    bool skip_special, started;
    unsigned char held[4];
    uint8_t n_held;
};
void lp_detok_init(struct lp_detok *detok, const struct lp_tokenizer *tok, bool skip_special);
bool lp_detok_push(struct lp_detok *detok, int32_t id,
                   struct lp_bytes *out); // appends whole characters
bool lp_detok_finish(struct lp_detok *detok,
                     struct lp_bytes *out); // flushes a cut character as U+FFFD

#endif
