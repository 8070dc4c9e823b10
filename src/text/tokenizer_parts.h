// What the files of the tokenizer share: the struct behind struct lp_tokenizer, and the steps of
// encoding in the order in which a text meets them.
//
//   text -> special_match.c cuts out special tokens -> fragments
//        -> pretok.c splits a fragment into pieces           (model "gpt2")
//        -> bpe.c merges the bytes of a piece -> ids
//        or spm.c merges the characters of a fragment -> ids (model "llama")
#ifndef LP_TEXT_TOKENIZER_PARTS_H
#define LP_TEXT_TOKENIZER_PARTS_H

#include "base/map.h"
#include "text/pair_merge.h"
#include "text/tokenizer.h"

// A growing list of token ids.
struct lp_ids {
    int32_t *data;
    size_t n, capacity;
};
bool lp_ids_push(struct lp_ids *ids, int32_t id); // false when out of memory

// special_match.c: literal search for special tokens, leftmost, then longest.
struct lp_special {
    struct lp_str text; // owned by the tokenizer
    int32_t id;
    bool always; // user-defined: found in any text
};
struct lp_specials {
    struct lp_special *list; // sorted by bytes, a prefix before what it begins
    uint32_t n;
    uint32_t first[257]; // list[first[b] .. first[b + 1]) begin with byte b
};
// Sorts what is in list[0..n) and fills first.
void lp_specials_index(struct lp_specials *specials);
// The first match at or after from: sets *at and returns it; NULL if there is none.
const struct lp_special *lp_special_find(const struct lp_specials *specials, struct lp_str text,
                                         size_t from, bool with_control, size_t *at);

// pretok.c: one row per tokenizer.ggml.pre.
struct lp_pretok_row {
    const char *names;           // aliases, separated by spaces
    const char *const *patterns; // applied in sequence; NULL ends the list
    const char *const *stops;    // texts of tokens that end a turn; NULL ends the list
    bool ignore_merges;          // a piece that is a token is not merged
    bool add_bos;                // when the file does not say
};
const struct lp_pretok_row *lp_pretok_find(struct lp_str name); // empty = "default"; or NULL
const struct lp_pretok_row *lp_pretok_rows(size_t *n);

struct lp_pretok; // compiled patterns; not changed by splitting
lp_status lp_pretok_new(struct lp_pretok **out, const struct lp_pretok_row *row,
                        struct lp_err *err);
void lp_pretok_free(struct lp_pretok *pretok); // NULL is allowed

// Scratch of one thread; zero-initialise. ends[0..n) are the pieces' ends as offsets in the text.
struct lp_pretok_work {
    void *match; // pcre2_match_data
    size_t *ends, *next;
    size_t n, n_next, capacity, next_capacity;
};
// text is well-formed UTF-8. Errors: MEMORY, LIMIT (the expression engine gave up).
lp_status lp_pretok_split(const struct lp_pretok *pretok, struct lp_pretok_work *work,
                          struct lp_str text, struct lp_err *err);
void lp_pretok_work_release(struct lp_pretok_work *work);

// Scratch of one call of encode.
struct lp_encode_work {
    struct lp_pair_work pairs;
    struct lp_pretok_work pretok;
    struct lp_bytes text;
};

// bpe.c
struct lp_bpe_merge {
    uint32_t left, right, rank, result; // rank LP_PAIR_NONE = empty slot
};
struct lp_bpe {
    struct lp_bpe_merge *slots; // open addressing, a power of two
    size_t n_slots;
    uint64_t seed;
    int32_t byte_ids[256]; // -1 = the vocabulary has none
};
lp_status lp_bpe_init(struct lp_tokenizer *tok, const struct lp_vocab_params *params,
                      struct lp_err *err);
lp_status lp_bpe_encode(const struct lp_tokenizer *tok, struct lp_encode_work *work,
                        struct lp_str piece, struct lp_ids *ids, struct lp_err *err);
uint32_t lp_bpe_byte_char(unsigned byte);  // the code point that stands for a byte
int lp_bpe_char_byte(uint32_t code_point); // or -1
// The character that stands for a byte as UTF-8, in the buffer.
struct lp_str lp_bpe_spell_byte(unsigned byte, char buffer[2]);

// spm.c
struct lp_spm {
    uint32_t *ranks;       // [n_tokens] lower = merged earlier; LP_PAIR_NONE = never
    int32_t byte_ids[256]; // of <0x00> ... <0xFF>
};
lp_status lp_spm_init(struct lp_tokenizer *tok, const struct lp_vocab_params *params,
                      struct lp_err *err);
lp_status lp_spm_encode(const struct lp_tokenizer *tok, struct lp_encode_work *work,
                        struct lp_str fragment, bool with_prefix, struct lp_ids *ids,
                        struct lp_err *err);
int lp_spm_byte_of(struct lp_str text); // value of "<0xNN>" with exactly two hex digits, or -1

struct lp_tokenizer {
    bool is_spm, add_bos, add_eos, add_space_prefix, ignore_merges;
    uint32_t n_tokens, max_token_bytes;
    int32_t bos, eos;
    char *token_bytes;     // all texts, one after the other
    struct lp_str *tokens; // [n_tokens] views of token_bytes
    uint8_t *types;        // [n_tokens] enum lp_token_type
    struct lp_map by_text; // text -> id
    struct lp_specials specials;
    int32_t *stops;
    size_t n_stops;
    struct lp_pretok *pretok; // gpt2
    struct lp_bpe bpe;        // gpt2
    struct lp_spm spm;        // llama
};

#endif
