// The answer's object, and the rows of the format. What it repeats of the request lies in
// lp_chat_answer.echo.
#include "serve/responses.h"

#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "serve/fields.h"
#include "serve/json_out.h"
#include "serve/openai.h"
#include "serve/responses_items.h"
#include "serve/responses_request.h"

// ---- requests ----

// Errors of what all chat APIs share name the field as it is called here.
static void rename_param(struct lp_api_error *err) {
    static const struct {
        const char *from, *to;
    } names[] = {{"messages", "input"},
                 {"prompt", "input"},
                 {"max_tokens", "max_output_tokens"},
                 {"logprobs", "top_logprobs"},
                 {"response_format", "text.format"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(err->param, names[i].from) != 0) continue;
        strcpy(err->param, names[i].to);
        return;
    }
}

static bool admit(struct lp_answer *a, struct lp_responses_request *r, struct lp_api_error *err) {
    struct lp_chat_answer *chat = lp_chat_answer_new(a);
    if (!chat || !(chat->extra = lp_alloc(1, sizeof(struct lp_responses_state))))
        return lp_api_out_of_memory(err);
    chat->release_extra = lp_responses_state_release;
    chat->echo = r->echo;
    r->echo = NULL;
    if (!lp_chat_answer_admit(a, &r->chat, err)) {
        rename_param(err);
        return false;
    }
    const struct lp_completion_params *p = &a->completion.params; // the server's defaults are in it
    return json_object_set_new(chat->echo, "temperature", json_real(p->temperature)) == 0 &&
                   json_object_set_new(chat->echo, "top_p", json_real(p->top_p)) == 0
               ? true
               : lp_api_out_of_memory(err);
}

bool lp_responses_parse(struct lp_answer *a, const char *body, size_t n_bytes,
                        struct lp_api_error *err) {
    struct lp_responses_request r = {0};
    json_t *root = lp_body_parse(body, n_bytes, limpid_engine_context(a->service->engine), err);
    if (!root) return false;
    bool ok = lp_responses_request_parse(&r, a->service, root, err) && admit(a, &r, err);
    json_decref(root);
    lp_responses_request_release(&r);
    return ok;
}

// ---- the answer's object ----

static json_t *output_json(const struct lp_answer *a) {
    const struct lp_responses_state *s = lp_responses_state(a);
    json_t *out = json_array();
    for (size_t i = 0; out && i < s->n_items; i++) {
        json_t *item = lp_responses_item_json(&s->items[i], &lp_chat_of(a)->choices[0]);
        if (json_array_append_new(out, item) == 0) continue;
        json_decref(out);
        out = NULL;
    }
    return out;
}

// cache_write_tokens counts what OpenAI bills for; here a prefix is kept without a charge.
static json_t *usage_json(const struct lp_answer *a) {
    struct lp_chat_usage u = lp_chat_answer_usage(a);
    return json_pack("{s:I, s:{s:I, s:i}, s:I, s:{s:I}, s:I}", "input_tokens", (json_int_t)u.prompt,
                     "input_tokens_details", "cached_tokens", (json_int_t)u.cached,
                     "cache_write_tokens", 0, "output_tokens", (json_int_t)u.generated,
                     "output_tokens_details", "reasoning_tokens", (json_int_t)u.reasoning,
                     "total_tokens", (json_int_t)(u.prompt + u.generated));
}

// OpenAI has few codes for answers that failed.
static json_t *error_json(const struct lp_api_error *err) {
    const char *code = err->http == 429  ? "rate_limit_exceeded"
                       : err->http < 500 ? "invalid_prompt"
                                         : "server_error";
    return json_pack("{s:s, s:o}", "code", code, "message",
                     lp_json_text(lp_str_from(err->message)));
}

json_t *lp_responses_object(const struct lp_answer *a, bool ended, const struct lp_api_error *err) {
    const struct lp_chat_answer *chat = lp_chat_of(a);
    bool cut = ended && chat->choices[0].hit_length;
    const char *status = err ? "failed" : !ended ? "in_progress" : cut ? "incomplete" : "completed";
    json_t *out = json_pack(
        "{s:s, s:s, s:I, s:s, s:o, s:o, s:o, s:o, s:o, s:b, s:n, s:b, s:o}", "id", chat->id,
        "object", "response", "created_at", (json_int_t)a->created, "status", status,
        "completed_at", ended && !cut ? json_integer((json_int_t)time(NULL)) : json_null(), "error",
        err ? error_json(err) : json_null(), "incomplete_details",
        cut ? json_pack("{s:s}", "reason", "max_output_tokens") : json_null(), "model",
        lp_json_text(lp_str_from(a->service->model_id)), "output", output_json(a), "background", 0,
        "previous_response_id", "store", 0, "usage", ended ? usage_json(a) : json_null());
    if (out && json_object_update(out, chat->echo) == 0) return out;
    json_decref(out);
    return NULL;
}

static json_t *whole(struct lp_answer *a) {
    return lp_responses_object(a, true, NULL);
}

const struct lp_chat_format lp_responses_format = {
    .base = {.event = lp_chat_answer_event,
             .end = lp_responses_end,
             .whole = whole,
             .error = lp_api_error_json,
             .stream_error = lp_responses_stream_error,
             .keep_alive = lp_openai_keep_alive,
             .release = lp_chat_answer_release},
    .id_prefix = "resp_",
    .call_prefix = "call_",
    .start = lp_responses_start,
    .piece = lp_responses_piece,
    .done = lp_responses_done,
};
