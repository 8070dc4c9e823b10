// Texts whose continuation every language model finds obvious, as tokens: what the doctor lets a
// model read. A model that cannot continue any of them is broken, whatever it was trained for.
#ifndef LP_DOCTOR_TEXTS_H
#define LP_DOCTOR_TEXTS_H

#include "gguf/gguf.h"
#include "text/tokenizer.h"

enum lp_text_kind {
    LP_TEXT_PLAIN,
    LP_TEXT_CHAT, // `given` is what the user says, `obvious` what the assistant answers
    LP_TEXT_LONG, // has a look-up over a distance: for indexers
};

struct lp_known_text {
    const char *name;
    enum lp_text_kind kind;
    bool quick;          // also read where time is short
    const char *given;   // ends where a token ends in every vocabulary: before a space, or a line
    const char *obvious; // what must follow
};
const struct lp_known_text *lp_known_texts(size_t *n);

// One text as a model reads it. Token i is predicted from those before it; the tokens from
// first_scored on are the obvious ones.
struct lp_passage {
    const char *name;
    enum lp_text_kind kind;
    int32_t *tokens; // [n_tokens]
    int32_t n_tokens, first_scored;
    int32_t n_bytes; // of the scored tokens
};

struct lp_passages {
    struct lp_passage *list;
    size_t n, capacity;
    int64_t n_tokens, n_scored, n_bytes, longest; // sums; the most tokens of one
};
void lp_passages_release(struct lp_passages *passages);

// What stands before every text.
enum lp_text_prefix {
    LP_PREFIX_FILE, // as the file asks: its BOS where it adds one; [gMASK]<sop> where the
                    // vocabulary has these
    LP_PREFIX_NONE, // nothing
    LP_PREFIX_BOS,  // BOS, whether the file asks for it or not
};

struct lp_texts_choice {
    bool quick;              // only those marked so
    bool plain, chat, longs; // kinds
    enum lp_text_prefix prefix;
    int64_t max_tokens; // of a text: longer ones are left out
    int64_t max_all;    // of all; texts behind that are left out. 0 = no limit
};

// Encodes the known texts. Chat texts are rendered with the file's own template, without thinking;
// they are left out where there is none or it cannot be rendered. Errors: MEMORY.
lp_status lp_texts_encode(struct lp_passages *out, const struct lp_tokenizer *tokenizer,
                          const struct lp_gguf *gguf, const struct lp_texts_choice *choice,
                          struct lp_err *err);
// Whether the two prefixes make different tokens of this vocabulary.
bool lp_texts_prefix_differs(const struct lp_tokenizer *tokenizer, enum lp_text_prefix prefix);

#endif
