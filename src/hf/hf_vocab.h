// The tokenizer of a folder while it is read: one row per row of the embedding, filled by the file
// that has the vocabulary (hf_vocab.c, hf_tiktoken.c), checked and written by hf_tokenizer.c.
#ifndef LP_HF_HF_VOCAB_H
#define LP_HF_HF_VOCAB_H

#include "base/alloc.h"
#include "base/map.h"
#include "hf/hf_tokenizer.h"
#include "text/tokenizer.h"

#define LP_HF_MAX_TOKENS (1 << 22) // of an embedding: the largest vocabularies have 2^18
#define LP_HF_SPACE "\xE2\x96\x81" // U+2581, which SentencePiece writes for a space

struct lp_hf_vocab {
    uint32_t n;            // rows of the embedding
    struct lp_str *texts;  // [n] as GGUF spells them; data NULL: no token has this id
    int32_t *types;        // [n] enum lp_token_type
    float *scores;         // [n] for "llama", else NULL
    struct lp_str *merges; // "left right", in order of rank
    size_t n_merges, merges_capacity;
    struct lp_map by_text;                // of the tokens so far -> id
    struct lp_arena arena;                // texts that are not views of the folder's JSON
    const char *model, *pre;              // "gpt2" with a pre-tokenizer, or "llama"
    bool adds_bos_by_default;             // what a GGUF without tokenizer.ggml.add_bos_token means
    bool ignore_merges;                   // as tokenizer.json has it
    int32_t space_prefix;                 // tokenizer.ggml.add_space_prefix of "llama"; -1: no key
    int32_t bos, eos, eot, eom, unk, pad; // -1: none
    int32_t add_bos, add_eos;             // -1: not said
};

// n_vocab: rows of the embedding. Release in any case. Errors: LIMIT, MEMORY.
lp_status lp_hf_vocab_init(struct lp_hf_vocab *v, int64_t n_vocab, struct lp_err *err);
void lp_hf_vocab_release(struct lp_hf_vocab *v);

// Gives an id its text, of which a view is kept. An id that has this very text only changes its
// type; an empty text leaves the id without a token. Errors: FORMAT (an id out of range, another
// text there, another id with this text), MEMORY.
lp_status lp_hf_vocab_put(struct lp_hf_vocab *v, int64_t id, struct lp_str text, int32_t type,
                          struct lp_err *err);
// Keeps a view. False without memory.
bool lp_hf_vocab_put_merge(struct lp_hf_vocab *v, struct lp_str merge);

// model.vocab and model.merges of tokenizer.json. Errors: FORMAT, UNSUPPORTED (an option of BPE
// that limpid does not have), MEMORY.
lp_status lp_hf_vocab_json(struct lp_hf_vocab *v, const json_t *model, struct lp_err *err);

// added_tokens of tokenizer.json and added_tokens_decoder of tokenizer_config.json (either may be
// NULL); where both have a token the latter says whether it is special. Of those that are not, the
// ones that look like <|this|> or have a known name become control tokens too, as other converters
// have it. mark_spaces: a normalised token has U+2581 where the text has spaces.
lp_status lp_hf_vocab_added(struct lp_hf_vocab *v, const json_t *tokenizer, const json_t *config,
                            bool mark_spaces, struct lp_err *err);

// Ids that no token has become "[PAD<id>]" of type unused.
lp_status lp_hf_vocab_pad(struct lp_hf_vocab *v, struct lp_err *err);

// hf_pretok.c: the name of a pre-tokenizer that splits as tokenizer.json says (v->pre). Errors:
// UNSUPPORTED with the expressions in it, MEMORY.
lp_status lp_hf_pretok(struct lp_hf_vocab *v, const json_t *tokenizer, struct lp_err *err);

// hf_spm.c: whether tokenizer.json is SentencePiece's BPE (U+2581 for spaces). If so, v->model, the
// scores from the ranks of the merges, the space prefix, the types of byte tokens and of the
// unknown token. Errors: FORMAT, UNSUPPORTED, MEMORY.
bool lp_hf_spm_is(const json_t *tokenizer);
lp_status lp_hf_spm(struct lp_hf_vocab *v, const json_t *tokenizer, struct lp_err *err);

// hf_tiktoken.c: the vocabulary of tiktoken.model, with merges recovered from the ranks. Errors:
// FORMAT, UNSUPPORTED (another model's tiktoken file), LIMIT, MEMORY.
lp_status lp_hf_tiktoken(struct lp_hf_vocab *v, const struct lp_hf_folder *folder,
                         struct lp_err *err);

// hf_special.c: the ids of BOS, EOS, ... and whether they are added. Errors: FORMAT.
lp_status lp_hf_special(struct lp_hf_vocab *v, const struct lp_hf_folder *folder,
                        struct lp_err *err);
// The vocabulary is GLM's: it begins a text with [gMASK]<sop> and ends turns with the next role.
bool lp_hf_is_glm(const struct lp_hf_vocab *v);

// hf_templates.c: tokenizer.chat_template, and the named ones of a list.
void lp_hf_templates(struct lp_gguf_writer *w, const struct lp_hf_folder *folder);

// jansson reads a member of NULL or of what is no object as missing; so do these.
static inline struct lp_str lp_hf_text(const json_t *value) { // data NULL: no string
    return (struct lp_str){json_string_value(value), json_string_length(value)};
}
static inline bool lp_hf_text_is(const json_t *value, const char *text) {
    return json_is_string(value) && lp_str_is(lp_hf_text(value), text);
}

#endif
