// Inside the tokens stage: its parts, and the families of vocabularies that they know.
#ifndef LP_DOCTOR_TOKEN_CHECKS_H
#define LP_DOCTOR_TOKEN_CHECKS_H

#include "doctor/exam.h"
#include "text/tokenizer.h"

// A vocabulary that is known by tokens that only it has. Lists end with NULL.
struct lp_vocab_family {
    const char *name;
    const char *has[3];              // texts of tokens
    uint32_t min_tokens, max_tokens; // 0: any
    const char *pres;                // names of its pre-tokenizer, separated by spaces; NULL: any
    const char *starts[4], *ends[6]; // what bos, and eos, eot and eom may be
    const char *prefix[3];           // what every rendered conversation begins with
    const char *assistant;           // what stands before an answer
};

struct lp_token_exam {
    struct lp_exam *exam;
    const struct lp_tokenizer *tok;
    const struct lp_vocab_family *family; // or NULL
    struct lp_str model, pre;             // pre: empty where the file has none
    bool wrong_pre, wrong_types;          // accused: what follows from it is not
};

const struct lp_vocab_family *lp_vocab_family(const struct lp_tokenizer *tok);
bool lp_vocab_family_list_has(const char *const *list, struct lp_str text);
bool lp_token_is_utf8(struct lp_str text); // whole and well-formed

// Each notes its checks and accuses. Errors: MEMORY.
lp_status lp_check_pretok(struct lp_token_exam *x, struct lp_err *err);
lp_status lp_check_token_types(struct lp_token_exam *x, struct lp_err *err);
void lp_check_token_ids(struct lp_token_exam *x);
lp_status lp_check_pieces(struct lp_token_exam *x, struct lp_err *err);
lp_status lp_check_round_trips(struct lp_token_exam *x, struct lp_err *err);
lp_status lp_check_template(struct lp_token_exam *x, struct lp_err *err);

// One text encoded; a list that grows and is used again. Free ids with lp_free.
struct lp_token_list {
    int32_t *ids;
    size_t n, capacity;
};
lp_status lp_token_encode(const struct lp_token_exam *x, struct lp_str text, unsigned flags,
                          struct lp_token_list *list, struct lp_err *err);

#endif
