// From a conversation to a prompt: what the template is given, and which tokens its text becomes.
#include "serve/chat_prompt.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "serve/chat_parts.h"
#include "serve/fields.h"

void lp_chat_prompt_release(struct lp_chat_prompt *p) {
    lp_bytes_release(&p->text);
    json_decref(p->tools);
    *p = (struct lp_chat_prompt){0};
}

// ---- the messages that are rendered ----

// Templates know parts of type "text" only: the other names of the same become it.
static json_t *plain_part(json_t *part) {
    const char *type = json_string_value(json_object_get(part, "type"));
    const json_t *text = json_object_get(part, "text");
    if (!type || strcmp(type, "text") == 0) return json_incref(part);
    if (!text) text = json_object_get(part, "refusal");
    return json_pack("{s:s, s:O?}", "type", "text", "text", text);
}

static bool name_parts(json_t *message) {
    const json_t *content = json_object_get(message, "content");
    json_t *parts = json_is_array(content) ? json_array() : NULL;
    bool ok = !json_is_array(content) || parts;
    for (size_t i = 0; ok && i < json_array_size(content); i++)
        ok = json_array_append_new(parts, plain_part(json_array_get(content, i))) == 0;
    if (ok && parts) return json_object_set_new(message, "content", parts) == 0;
    json_decref(parts);
    return ok;
}

// A copy of the first n messages, assistants' with their reasoning. NULL without memory.
static json_t *prepare(const struct lp_service *service, const json_t *messages, size_t n) {
    json_t *out = json_array();
    for (size_t i = 0; out && i < n; i++) {
        json_t *copy = json_copy(json_array_get(messages, i));
        bool ok = copy && name_parts(copy) &&
                  (!lp_chat_is_assistant(copy) || lp_chat_add_reasoning(service, copy)) &&
                  json_array_append(out, copy) == 0;
        json_decref(copy);
        if (ok) continue;
        json_decref(out);
        out = NULL;
    }
    return out;
}

static json_t *options_json(const struct lp_chat_request *r, bool generation_prompt) {
    json_t *out = r->variables ? json_copy(r->variables) : json_object();
    bool tools = r->tools && r->tool_choice != LP_TOOLS_NONE;
    bool ok =
        out && (!tools || json_object_set(out, "tools", r->tools) == 0) &&
        (generation_prompt || json_object_set_new(out, "add_generation_prompt", json_false()) == 0);
    if (ok) return out;
    json_decref(out);
    return NULL;
}

static bool render(const struct lp_service *service, const struct lp_chat_request *r,
                   const json_t *messages, bool generation_prompt, struct lp_bytes *out,
                   struct lp_api_error *err) {
    limpid_error e;
    char *text = NULL;
    size_t n = 0;
    json_t *options = options_json(r, generation_prompt);
    char *messages_text = json_dumps(messages, JSON_COMPACT);
    char *options_text = options ? json_dumps(options, JSON_COMPACT) : NULL;
    bool ok = messages_text && options_text ? true : lp_api_out_of_memory(err);
    if (ok && limpid_chat_prompt(service->model, messages_text, options_text, &text, &n, &e))
        ok = e.status == LIMPID_FORMAT // the template does not take these messages
                 ? lp_api_invalid(err, "messages", "%s", e.text)
                 : lp_api_from_limpid(err, &e);
    if (ok && !lp_bytes_append(out, text, n)) ok = lp_api_out_of_memory(err);
    limpid_free(text);
    free(messages_text);
    free(options_text);
    json_decref(options);
    return ok;
}

static bool ends_with(struct lp_str text, const char *end) {
    size_t n = strlen(end);
    return text.len >= n && memcmp(text.data + text.len - n, end, n) == 0;
}

// The answer goes on with the last message: behind the prompt for an answer, without thinking
// unless the message begins with it.
static bool append_final(const json_t *final, struct lp_chat_prompt *p, struct lp_api_error *err) {
    struct lp_bytes given = {0};
    struct lp_str at = lp_chat_trimmed_end(lp_bytes_view(&p->text));
    bool ok = lp_chat_content_text(final, &given), thinks = ends_with(at, LP_REPLY_THINK);
    struct lp_str text = lp_bytes_view(&given);
    bool given_think = text.len >= strlen(LP_REPLY_THINK) &&
                       memcmp(text.data, LP_REPLY_THINK, strlen(LP_REPLY_THINK)) == 0;
    if (thinks && given_think) {
        text.data += strlen(LP_REPLY_THINK);
        text.len -= strlen(LP_REPLY_THINK);
    } else if (thinks) {
        ok = ok && lp_bytes_puts(&p->text, LP_REPLY_END_THINK);
    }
    ok = ok && lp_bytes_append(&p->text, text.data, text.len);
    if (ok && given_think)
        p->in_reasoning =
            !memmem(text.data, text.len, LP_REPLY_END_THINK, strlen(LP_REPLY_END_THINK));
    lp_bytes_release(&given);
    return ok ? true : lp_api_out_of_memory(err);
}

// ---- tokens ----

static bool starts_at(struct lp_str text, size_t at, struct lp_str with) {
    return with.len <= text.len - at && memcmp(text.data + at, with.data, with.len) == 0;
}

// Where in the prompt's text the turn of message i ends; 0 if it is not there as it was.
static size_t end_of_turn(struct lp_service *service, const struct lp_chat_request *r,
                          const json_t *messages, size_t i, const struct lp_turn *turn,
                          struct lp_str text) {
    struct lp_api_error ignored;
    if (!starts_at(text, 0, turn->prompt)) return 0;
    if (starts_at(text, turn->prompt.len, turn->text)) return turn->prompt.len + turn->text.len;
    if (!lp_chat_turn_is_given(json_array_get(messages, i), turn)) return 0;
    // The template writes it otherwise than the model: it ends where it does without what follows.
    struct lp_bytes until = {0};
    json_t *head = prepare(service, messages, i + 1);
    bool ok = head && render(service, r, head, false, &until, &ignored);
    struct lp_str shorter = lp_bytes_view(&until);
    size_t end =
        ok && shorter.len >= turn->prompt.len && starts_at(text, 0, shorter) ? shorter.len : 0;
    if (end >= turn->prompt.len + turn->end.len && turn->end.len &&
        starts_at(text, end - turn->end.len, turn->end))
        end -= turn->end.len;
    json_decref(head);
    lp_bytes_release(&until);
    return end;
}

// The last turn in the conversation whose tokens are known: *end is where it ends in the text.
static struct lp_turn *find_turn(struct lp_service *service, const struct lp_chat_request *r,
                                 const json_t *messages, struct lp_str text, size_t *end) {
    int tries = 8; // of turns that are known but do not fit
    for (size_t i = json_array_size(messages); i-- > 0 && tries > 0;) {
        struct lp_turn *turn = lp_chat_is_assistant(json_array_get(messages, i))
                                   ? lp_chat_turn_of(service, json_array_get(messages, i))
                                   : NULL;
        if (!turn) continue;
        if ((*end = end_of_turn(service, r, messages, i, turn, text)) > 0) return turn;
        lp_turn_put(turn);
        tries--;
    }
    return NULL;
}

static bool tokenize(struct lp_service *service, const struct lp_turn *turn, struct lp_str rest,
                     int32_t **ids, size_t *n_ids, struct lp_api_error *err) {
    limpid_error e;
    int32_t *tail;
    size_t n_tail, n_turn = turn ? turn->n_prompt + turn->n_answer : 0;
    if (limpid_tokenize(service->model, rest.data, rest.len, LIMPID_SPECIAL, &tail, &n_tail, &e))
        return lp_api_from_limpid(err, &e);
    *n_ids = n_turn + n_tail;
    *ids = lp_alloc(*n_ids, sizeof **ids);
    if (*ids && n_turn) memcpy(*ids, turn->ids, n_turn * sizeof **ids);
    if (*ids && n_tail) memcpy(*ids + n_turn, tail, n_tail * sizeof **ids);
    limpid_free(tail);
    return *ids ? true : lp_api_out_of_memory(err);
}

static bool find_and_tokenize(struct lp_service *service, const struct lp_chat_request *r,
                              const json_t *messages, struct lp_chat_prompt *p, int32_t **ids,
                              size_t *n_ids, struct lp_api_error *err) {
    struct lp_str text = lp_bytes_view(&p->text);
    size_t end = 0;
    struct lp_turn *turn = find_turn(service, r, messages, text, &end);
    if (turn) p->n_exact = turn->n_prompt + turn->n_answer;
    bool ok =
        tokenize(service, turn, (struct lp_str){text.data + end, text.len - end}, ids, n_ids, err);
    lp_turn_put(turn);
    return ok;
}

bool lp_chat_prompt_make(struct lp_service *service, const struct lp_chat_request *r,
                         struct lp_chat_prompt *p, int32_t **ids, size_t *n_ids,
                         struct lp_api_error *err) {
    size_t n = json_array_size(r->messages);
    const json_t *final = r->continue_final && n ? json_array_get(r->messages, n - 1) : NULL;
    json_t *messages = prepare(service, r->messages, final ? n - 1 : n);
    *ids = NULL;
    *p = (struct lp_chat_prompt){.syntax = service->syntax};
    p->reads_tools = r->tools && json_array_size(r->tools) && r->tool_choice != LP_TOOLS_NONE &&
                     p->syntax != LP_SYNTAX_PLAIN;
    p->tools = p->reads_tools ? json_incref(r->tools) : NULL;
    bool ok =
        messages ? render(service, r, messages, true, &p->text, err) : lp_api_out_of_memory(err);
    if (ok) {
        p->in_reasoning = ends_with(lp_chat_trimmed_end(lp_bytes_view(&p->text)), LP_REPLY_THINK);
        if (final) {
            p->in_reasoning = false;
            ok = append_final(final, p, err);
        }
    }
    ok = ok && lp_completion_check_length(service, p->text.len, "messages", err) &&
         find_and_tokenize(service, r, messages, p, ids, n_ids, err);
    json_decref(messages);
    return ok;
}

// ---- admission ----

bool lp_chat_admit(struct lp_completion *c, struct lp_service *service, struct lp_chat_request *r,
                   struct lp_chat_prompt *p, struct lp_api_error *err) {
    struct lp_completion_params *params = &r->params;
    if (!lp_completion_check_model(service, params->model, err)) return false;
    if (!(params->prompts = lp_alloc(1, sizeof *params->prompts))) return lp_api_out_of_memory(err);
    params->n_prompts = 1;
    bool ok = lp_chat_prompt_make(service, r, p, &params->prompts[0].ids, &params->prompts[0].n_ids,
                                  err) &&
              lp_chat_constrain(service, r, params, p, err);
    if (ok) ok = lp_completion_admit(c, service, params, err);
    if (ok && !lp_chat_show_markers(c, p, &c->params)) ok = lp_api_out_of_memory(err);
    if (!ok && strcmp(err->param, "prompt") == 0) strcpy(err->param, "messages");
    return ok;
}
