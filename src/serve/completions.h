// OpenAI's POST /v1/completions: text in, text out.
#ifndef LP_SERVE_COMPLETIONS_H
#define LP_SERVE_COMPLETIONS_H

#include "serve/answer.h"

bool lp_completions_parse(struct lp_answer *a, const char *body, size_t n_bytes,
                          struct lp_api_error *err); // an lp_answer_parse
extern const struct lp_format lp_completions_format;

#endif
