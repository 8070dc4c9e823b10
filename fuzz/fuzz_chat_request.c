// Any bytes as the body of the three chat APIs: refused with a whole error of the client's, or a
// request of whole messages, tools and settings in their ranges.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "serve/anthropic_parts.h"
#include "serve/fields.h"
#include "serve/openai_chat.h"
#include "serve/responses_request.h"

#define N_CONTEXT 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) abort();
}

static void check_refused(const struct lp_api_error *err,
                          json_t *(*form)(const struct lp_api_error *)) {
    require(err->http == 400 && err->message[0] && err->type);
    json_t *json = form(err);
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL; // NULL if it could not be JSON
    require(text != NULL);
    free(text);
    json_decref(json);
}

// What chat_prompt.c relies on.
static void check_messages(const struct lp_chat_request *r) {
    require(json_array_size(r->messages) > 0);
    for (size_t i = 0; i < json_array_size(r->messages); i++)
        require(json_is_string(json_object_get(json_array_get(r->messages, i), "role")));
    char *text = json_dumps(r->messages, JSON_COMPACT);
    require(text != NULL);
    free(text);
    for (size_t i = 0; i < json_array_size(r->tools); i++) {
        const json_t *function = json_object_get(json_array_get(r->tools, i), "function");
        require(json_is_string(json_object_get(function, "name")));
    }
    require(r->tool_choice != LP_TOOLS_NAMED || (r->tool_name && r->tools));
    require(r->tool_choice != LP_TOOLS_REQUIRED || r->tools);
}

static void check_params(const struct lp_completion_params *p) {
    require(p->max_tokens >= 1 && p->max_tokens <= INT32_MAX && p->min_tokens <= p->max_tokens);
    require(p->n >= 1 && p->n <= LP_MAX_CHOICES && p->n_stop <= LP_MAX_STOPS);
    require(p->logprobs >= -1 && p->logprobs <= LP_MAX_TOP_LOGPROBS);
    require(p->temperature >= 0 && isfinite(p->temperature) && p->top_p > 0 && p->top_p <= 1);
    require(!p->grammar_kind || (p->grammar && strlen(p->grammar) <= p->n_grammar));
}

static void openai(const struct lp_service *service, const json_t *root) {
    struct lp_chat_request r = {0};
    struct lp_api_error err;
    if (lp_openai_chat_request(&r, service, root, true, &err)) {
        check_messages(&r);
        check_params(&r.params);
    } else {
        check_refused(&err, lp_api_error_json);
    }
    lp_chat_request_release(&r);
}

static void responses(const struct lp_service *service, const json_t *root) {
    struct lp_responses_request r = {0};
    struct lp_api_error err;
    if (lp_responses_request_parse(&r, service, root, &err)) {
        check_messages(&r.chat);
        check_params(&r.chat.params);
    } else {
        check_refused(&err, lp_api_error_json);
    }
    lp_responses_request_release(&r);
}

static void anthropic(const json_t *root) {
    struct lp_chat_request r = {0};
    struct lp_api_error err;
    lp_chat_request_init(&r);
    if (lp_anthropic_read(&r, root, &err) && lp_anthropic_read_params(&r, root, &err)) {
        check_messages(&r);
        check_params(&r.params);
    } else {
        check_refused(&err, lp_anthropic_error);
    }
    lp_chat_request_release(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct lp_service service = {.chat_template = "{{ reasoning_effort }} 'low'"};
    struct lp_api_error err;
    json_t *root = lp_body_parse((const char *)data, size, N_CONTEXT, &err);
    if (root) {
        openai(&service, root);
        responses(&service, root);
        anthropic(root);
    } else {
        check_refused(&err, lp_api_error_json);
    }
    json_decref(root);
    return 0;
}
