// The prompts of one HTTP request and what is asked of them: tokenized, and checked against model
// and context. generation.h runs them.
#ifndef LP_SERVE_COMPLETION_H
#define LP_SERVE_COMPLETION_H

#include "base/bytes.h"
#include "serve/completion_params.h"
#include "serve/service.h"

struct lp_completion_prompt {
    int32_t *ids;
    size_t n_ids;
    struct lp_bytes text; // as given; of ids: their bytes. For echo
};

struct lp_completion {
    struct lp_service *service;
    struct lp_completion_params params;
    struct lp_completion_prompt *prompts; // [params.n_prompts]
    uint64_t seed;
    size_t n_choices; // of all prompts: choice i is one of prompt i / params.n
};

// NULL: any. False with a 404.
bool lp_completion_check_model(const struct lp_service *service, const char *model,
                               struct lp_api_error *err);
// Has a text of so many bytes more tokens than the context, whatever they are? Then it need not be
// tokenized to be refused. False with the error of param.
bool lp_completion_check_length(const struct lp_service *service, size_t n_bytes, const char *param,
                                struct lp_api_error *err);
// Takes params over (they are empty afterwards). False with the error filled; release c either way.
bool lp_completion_admit(struct lp_completion *c, struct lp_service *service,
                         struct lp_completion_params *params, struct lp_api_error *err);
void lp_completion_release(struct lp_completion *c);

static inline const struct lp_completion_prompt *lp_completion_prompt(const struct lp_completion *c,
                                                                      size_t choice) {
    return &c->prompts[choice / (size_t)c->params.n];
}

// Is the token left out of the text when special tokens are skipped?
bool lp_completion_is_hidden(const struct lp_completion *c, int32_t id);

#endif
