// What is asked of a generation: prompts, sampling, ends, reports. Here also: the body of POST
// /v1/completions, JSON in, checked values out. Knows no model: whether a prompt fits beside its
// answer is for its caller. docs/api.md lists the fields.
#ifndef LP_SERVE_COMPLETION_PARAMS_H
#define LP_SERVE_COMPLETION_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "serve/api_error.h"

#define LP_MAX_STOPS 16
#define LP_MAX_STOP_IDS 256
#define LP_MAX_BREAKERS 64
#define LP_MAX_JSON_DEPTH 128
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
    int32_t *stop_ids; // as in a prompt: may be past the vocabulary
    size_t n_stop_ids;
    int32_t *bias_ids; // [n_bias], likewise
    float *bias;
    size_t n_bias;
    char *breakers[LP_MAX_BREAKERS];
    size_t n_breakers;
    bool has_breakers; // given, though maybe none
    int64_t max_tokens, min_tokens, top_k, n;
    int64_t logprobs;     // -1 = off
    int64_t top_logprobs; // of chat APIs, which say in a field of its own whether there are any
    int64_t seed, priority, dry_allowed_length;
    double temperature, top_p, min_p, typical_p;
    double repetition_penalty, presence_penalty, frequency_penalty, dry_multiplier, dry_base;
    const char *grammar_kind; // of limpid.h; NULL: anything may be written
    char *grammar;            // n_grammar bytes, and a NUL
    size_t n_grammar;
    char grammar_param[48]; // the field that asked for it
    int32_t grammar_after;  // a token, or -1
    int32_t *shown_ids;     // control tokens whose text is shown
    size_t n_shown_ids;
    bool return_token_ids;
    bool has_temperature, has_top_p, has_top_k, has_min_p; // else the server's are taken
    bool has_repetition_penalty;                           // likewise
    bool has_seed, echo, stream, include_usage, ignore_eos, skip_special_tokens, add_special_tokens;
};

// False with the error filled; out may be released either way. Keeps nothing of body. A prompt of
// more than n_context token ids is refused before it takes the memory of its JSON tree.
bool lp_completion_params_parse(struct lp_completion_params *out, const char *body, size_t n_bytes,
                                int64_t n_context, struct lp_api_error *err);
void lp_completion_params_release(struct lp_completion_params *params);

#endif
