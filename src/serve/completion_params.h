// The body of POST /v1/completions: JSON in, checked values out. Knows no model: whether a prompt
// fits is for its caller. docs/api.md lists the fields.
#ifndef LP_SERVE_COMPLETION_PARAMS_H
#define LP_SERVE_COMPLETION_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "serve/api_error.h"

#define LP_MAX_STOPS 16
#define LP_MAX_CHOICES 256 // prompts x n
#define LP_MAX_TOP_LOGPROBS 20

struct lp_prompt_param {
    char *text; // n_bytes, and a NUL; NULL: ids
    size_t n_bytes;
    int32_t *ids; // 0 or more each; may be past the vocabulary
    size_t n_ids;
};

struct lp_completion_params {
    struct lp_prompt_param *prompts;
    size_t n_prompts; // 1 or more; n_prompts * n <= LP_MAX_CHOICES
    char *model;      // NULL: not given
    char *stop[LP_MAX_STOPS];
    size_t n_stop;
    int64_t max_tokens, top_k, n;
    int64_t logprobs; // -1 = off
    int64_t seed;
    double temperature, top_p;
    bool has_seed, echo, stream, include_usage, ignore_eos, skip_special_tokens, add_special_tokens;
};

// False with the error filled; out may be released either way. Keeps nothing of body.
bool lp_completion_params_parse(struct lp_completion_params *out, const char *body, size_t n_bytes,
                                struct lp_api_error *err);
void lp_completion_params_release(struct lp_completion_params *params);

#endif
