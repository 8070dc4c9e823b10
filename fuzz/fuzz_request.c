// Any bytes as the body of POST /v1/completions: refused with a whole error, or accepted with every
// value inside its range.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "serve/completion_params.h"

#define N_CONTEXT 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) abort();
}

static void check_prompt(const struct lp_prompt_param *prompt) {
    if (prompt->text) require(prompt->ids == NULL && prompt->text[prompt->n_bytes] == 0);
    for (size_t i = 0; !prompt->text && i < prompt->n_ids; i++) require(prompt->ids[i] >= 0);
}

static void check_accepted(const struct lp_completion_params *p) {
    require(p->n_prompts >= 1 && p->n >= 1 && p->n_prompts * (size_t)p->n <= LP_MAX_CHOICES);
    for (size_t i = 0; i < p->n_prompts; i++) check_prompt(&p->prompts[i]);
    require(p->n_stop <= LP_MAX_STOPS);
    for (size_t i = 0; i < p->n_stop; i++) require(p->stop[i][0] != 0);
    require(p->n_breakers <= LP_MAX_BREAKERS && p->n_stop_ids <= LP_MAX_STOP_IDS);
    for (size_t i = 0; i < p->n_breakers; i++) require(p->breakers[i][0] != 0);
    for (size_t i = 0; i < p->n_stop_ids; i++) require(p->stop_ids[i] >= 0);
    for (size_t i = 0; i < p->n_bias; i++) require(p->bias_ids[i] >= 0 && fabsf(p->bias[i]) <= 100);
    require(p->min_tokens >= 0 && p->min_tokens <= p->max_tokens);
    require(p->min_p >= 0 && p->min_p <= 1 && (float)p->typical_p > 0 && p->typical_p <= 1);
    require((float)p->repetition_penalty > 0 && isfinite((float)p->repetition_penalty));
    require(fabs(p->presence_penalty) <= 2 && fabs(p->frequency_penalty) <= 2);
    require(p->dry_multiplier >= 0 && isfinite((float)p->dry_multiplier));
    require(p->dry_base >= 1 && isfinite((float)p->dry_base));
    require(p->max_tokens >= 0 && p->max_tokens <= INT32_MAX && (p->max_tokens > 0 || p->echo));
    require(p->top_k >= 0 && p->top_k <= INT32_MAX);
    require(p->logprobs >= -1 && p->logprobs <= LP_MAX_TOP_LOGPROBS);
    require(p->temperature >= 0 && isfinite(p->temperature) && (float)p->top_p > 0 &&
            p->top_p <= 1);
    require(p->stream || !p->include_usage);
}

static void check_refused(const struct lp_api_error *err) {
    require(err->http == 400 && err->message[0] && err->type);
    json_t *json = lp_api_error_json(err);
    char *text =
        json ? json_dumps(json, JSON_COMPACT) : NULL; // NULL if the message could not be JSON
    require(text != NULL);
    free(text);
    json_decref(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct lp_completion_params params;
    struct lp_api_error err;
    if (lp_completion_params_parse(&params, (const char *)data, size, N_CONTEXT, &err))
        check_accepted(&params);
    else
        check_refused(&err);
    lp_completion_params_release(&params);
    return 0;
}
