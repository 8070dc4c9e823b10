// From a conversation to a prompt: what the template is given, which tokens its text becomes, and
// what the answer may look like.
#include "serve/chat_prompt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "serve/fields.h"
#include "serve/structured.h"

#define THINK "<think>"
#define END_THINK "</think>"

// ---- requests ----

void lp_chat_request_init(struct lp_chat_request *r) {
    *r = (struct lp_chat_request){.params = lp_fields_defaults()};
    r->params.max_tokens = INT32_MAX;
}

void lp_chat_request_release(struct lp_chat_request *r) {
    json_decref(r->messages);
    json_decref(r->tools);
    json_decref(r->variables);
    lp_free(r->tool_name);
    lp_completion_params_release(&r->params);
    *r = (struct lp_chat_request){0};
}

void lp_chat_prompt_release(struct lp_chat_prompt *p) {
    lp_bytes_release(&p->text);
    json_decref(p->tools);
    *p = (struct lp_chat_prompt){0};
}

bool lp_chat_set_variable(struct lp_chat_request *r, const char *name, json_t *value) {
    if (!r->variables) r->variables = json_object();
    if (r->variables) return json_object_set_new(r->variables, name, value) == 0;
    json_decref(value);
    return false;
}

bool lp_chat_set_thinking(struct lp_chat_request *r, bool on) {
    return lp_chat_set_variable(r, "enable_thinking", json_boolean(on)) &&
           lp_chat_set_variable(r, "thinking", json_boolean(on));
}

// Does the template spell this word as a literal?
static bool knows_word(const char *chat_template, const char *word) {
    char quoted[32];
    snprintf(quoted, sizeof quoted, "'%s'", word);
    if (strstr(chat_template, quoted)) return true;
    snprintf(quoted, sizeof quoted, "\"%s\"", word);
    return strstr(chat_template, quoted) != NULL;
}

// GLM-5.2 knows "high" and takes all else for the maximum; 5.3 also knows "low".
bool lp_chat_set_effort(struct lp_chat_request *r, const struct lp_service *service,
                        const char *effort, struct lp_api_error *err) {
    static const struct {
        const char *word, *wish; // wish: to be sent if the template knows it, else "high"
    } efforts[] = {{"minimal", "low"}, {"low", "low"},   {"medium", "medium"},
                   {"high", "high"},   {"xhigh", "max"}, {"max", "max"}};
    if (strcmp(effort, "none") == 0)
        return lp_chat_set_thinking(r, false) ? true : lp_api_out_of_memory(err);
    for (size_t i = 0; i < sizeof efforts / sizeof efforts[0]; i++) {
        if (strcmp(efforts[i].word, effort) != 0) continue;
        if (!strstr(service->chat_template, "reasoning_effort")) return true;
        const char *wish = efforts[i].wish;
        if (strcmp(wish, "max") != 0 && !knows_word(service->chat_template, wish)) wish = "high";
        return lp_chat_set_variable(r, "reasoning_effort", json_string(wish))
                   ? true
                   : lp_api_out_of_memory(err);
    }
    return lp_api_invalid(err, "reasoning_effort",
                          "reasoning_effort is '%.40s', expected none, minimal, low, medium, high, "
                          "xhigh or max",
                          effort);
}

// ---- the messages that are rendered ----

static struct lp_turn *turn_of(const struct lp_service *service, const json_t *message) {
    const json_t *calls = json_object_get(message, "tool_calls");
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const char *id = json_string_value(json_object_get(json_array_get(calls, i), "id"));
        struct lp_turn *turn = id ? lp_turns_find(service->turns, id) : NULL;
        if (turn) return turn;
    }
    return NULL;
}

static bool is_assistant(const json_t *message) {
    const char *role = json_string_value(json_object_get(message, "role"));
    return role && strcmp(role, "assistant") == 0;
}

// The reasoning of an assistant's message: as given under either name, else as it was generated.
static bool add_reasoning(const struct lp_service *service, json_t *message) {
    if (lp_json_field(message, "reasoning_content")) return true;
    json_t *given = json_object_get(message, "reasoning");
    if (json_is_string(given)) return json_object_set(message, "reasoning_content", given) == 0;
    struct lp_turn *turn = turn_of(service, message);
    bool ok = true;
    if (turn && turn->reasoning.len)
        ok = json_object_set_new(message, "reasoning_content",
                                 json_stringn(turn->reasoning.data, turn->reasoning.len)) == 0;
    lp_turn_put(turn);
    return ok;
}

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
                  (!is_assistant(copy) || add_reasoning(service, copy)) &&
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

static struct lp_str trimmed_end(struct lp_str text) {
    while (text.len && strchr(" \t\r\n", text.data[text.len - 1])) text.len--;
    return text;
}

// The text of a message: a string, or parts.
static bool content_text(const json_t *message, struct lp_bytes *out) {
    const json_t *content = json_object_get(message, "content");
    if (json_is_string(content))
        return lp_bytes_append(out, json_string_value(content), json_string_length(content));
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *part = json_array_get(content, i);
        const json_t *text = json_is_string(part) ? part : json_object_get(part, "text");
        if (!text) text = json_object_get(part, "refusal");
        if (json_is_string(text))
            lp_bytes_append(out, json_string_value(text), json_string_length(text));
    }
    return !out->failed;
}

// The answer goes on with the last message: behind the prompt for an answer, without thinking
// unless the message begins with it.
static bool append_final(const json_t *final, struct lp_chat_prompt *p, struct lp_api_error *err) {
    struct lp_bytes given = {0};
    struct lp_str at = trimmed_end(lp_bytes_view(&p->text));
    bool ok = content_text(final, &given), thinks = ends_with(at, THINK);
    struct lp_str text = lp_bytes_view(&given);
    bool given_think = text.len >= strlen(THINK) && memcmp(text.data, THINK, strlen(THINK)) == 0;
    if (thinks && given_think) {
        text.data += strlen(THINK);
        text.len -= strlen(THINK);
    } else if (thinks) {
        ok = ok && lp_bytes_puts(&p->text, END_THINK);
    }
    ok = ok && lp_bytes_append(&p->text, text.data, text.len);
    if (ok && given_think)
        p->in_reasoning = !memmem(text.data, text.len, END_THINK, strlen(END_THINK));
    lp_bytes_release(&given);
    return ok ? true : lp_api_out_of_memory(err);
}

// ---- tokens ----

static bool starts_at(struct lp_str text, size_t at, struct lp_str with) {
    return with.len <= text.len - at && memcmp(text.data + at, with.data, with.len) == 0;
}

// Arguments as an object of their own; what cannot be read equals nothing.
static json_t *arguments_of(const json_t *function) {
    const json_t *given = json_object_get(function, "arguments");
    if (json_is_object(given)) return json_incref((json_t *)given);
    if (!json_is_string(given)) return NULL;
    return json_loadb(json_string_value(given), json_string_length(given),
                      JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
}

static bool same_call(const json_t *a, const json_t *b) {
    const json_t *fa = json_object_get(a, "function"), *fb = json_object_get(b, "function");
    json_t *x = arguments_of(fa), *y = arguments_of(fb);
    bool same = x && y && json_equal(x, y) &&
                json_equal(json_object_get(fa, "name"), json_object_get(fb, "name"));
    json_decref(x);
    json_decref(y);
    return same;
}

static bool same_content(const json_t *a, const json_t *b) {
    struct lp_bytes x = {0}, y = {0};
    bool ok = content_text(a, &x) && content_text(b, &y);
    ok = ok && lp_str_equal(trimmed_end(lp_bytes_view(&x)), trimmed_end(lp_bytes_view(&y)));
    lp_bytes_release(&x);
    lp_bytes_release(&y);
    return ok;
}

// Is it what the client was given? It may have been edited.
static bool is_as_given(const json_t *message, const struct lp_turn *turn) {
    json_t *given = json_loadb(turn->message.data, turn->message.len, JSON_ALLOW_NUL, NULL);
    const json_t *a = json_object_get(message, "tool_calls"),
                 *b = json_object_get(given, "tool_calls");
    bool same = given && json_array_size(a) == json_array_size(b) && same_content(message, given);
    for (size_t i = 0; same && i < json_array_size(a); i++)
        same = same_call(json_array_get(a, i), json_array_get(b, i));
    json_decref(given);
    return same;
}

// Where in the prompt's text the turn of message i ends; 0 if it is not there as it was.
static size_t end_of_turn(struct lp_service *service, const struct lp_chat_request *r,
                          const json_t *messages, size_t i, const struct lp_turn *turn,
                          struct lp_str text) {
    struct lp_api_error ignored;
    if (!starts_at(text, 0, turn->prompt)) return 0;
    if (starts_at(text, turn->prompt.len, turn->text)) return turn->prompt.len + turn->text.len;
    if (!is_as_given(json_array_get(messages, i), turn)) return 0;
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
        struct lp_turn *turn = is_assistant(json_array_get(messages, i))
                                   ? turn_of(service, json_array_get(messages, i))
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
        p->in_reasoning = ends_with(trimmed_end(lp_bytes_view(&p->text)), THINK);
        if (final) {
            p->in_reasoning = false;
            ok = append_final(final, p, err);
        }
    }
    ok = ok && find_and_tokenize(service, r, messages, p, ids, n_ids, err);
    json_decref(messages);
    return ok;
}

// ---- what the answer may be ----

// The tools that may be called. NULL without memory.
static json_t *callable(const struct lp_chat_request *r) {
    if (r->tool_choice != LP_TOOLS_NAMED) return json_incref(r->tools);
    json_t *out = json_array();
    for (size_t i = 0; i < json_array_size(r->tools); i++) {
        json_t *tool = json_array_get(r->tools, i);
        const char *name =
            json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
        if (!name || strcmp(name, r->tool_name) != 0) continue;
        if (json_array_append(out, tool) == 0) continue;
        json_decref(out);
        return NULL;
    }
    return out;
}

static bool any_strict(const json_t *tools) {
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = json_object_get(json_array_get(tools, i), "function");
        if (json_is_true(json_object_get(function, "strict"))) return true;
    }
    return false;
}

// JSON is a form of what is said, beside which calls may be made; a regular expression, choice or
// grammar is one of all that is written.
static bool is_of_all(const struct lp_completion_params *params) {
    return params->grammar_kind && strncmp(params->grammar_kind, "json", 4) != 0;
}

// Tool calls join what else the answer must match in one grammar.
static bool constrain_tools(const struct lp_chat_request *r, struct lp_completion_params *params,
                            const struct lp_chat_prompt *p, struct lp_api_error *err) {
    bool required = r->tool_choice == LP_TOOLS_REQUIRED || r->tool_choice == LP_TOOLS_NAMED;
    if (!p->reads_tools) {
        if (!required) return true;
        return lp_api_invalid(err, "tool_choice",
                              "tool_choice asks for a tool call, but the model's chat template has "
                              "none that this server knows");
    }
    if (required && is_of_all(params))
        return lp_api_invalid(err, "tool_choice",
                              "tool_choice asks for a tool call and another field for an answer of "
                              "another form; leave out one of them");
    if (is_of_all(params)) return true;
    if (!required && !params->grammar_kind && !r->one_call && !any_strict(r->tools)) return true;
    json_t *tools = callable(r);
    json_t *source = json_pack("{s:s, s:o, s:b, s:b}", "syntax", lp_reply_syntax_name(p->syntax),
                               "tools", tools, "required", required, "parallel", !r->one_call);
    bool ok = source != NULL;
    if (ok && params->grammar_kind && !required)
        ok = json_object_set_new(source, "content",
                                 json_pack("{s:s, s:s%}", "kind", params->grammar_kind, "source",
                                           params->grammar, params->n_grammar)) == 0;
    lp_free(params->grammar);
    params->grammar = NULL;
    params->grammar_kind = NULL;
    ok = ok ? lp_structured_set_json(params, "tools", source, "tools", err)
            : lp_api_out_of_memory(err);
    json_decref(source);
    return ok;
}

static bool constrain(struct lp_service *service, const struct lp_chat_request *r,
                      struct lp_completion_params *params, const struct lp_chat_prompt *p,
                      struct lp_api_error *err) {
    if (!constrain_tools(r, params, p, err)) return false;
    if (!params->grammar_kind || !p->in_reasoning) return true;
    params->grammar_after = limpid_token_find(service->model, END_THINK, strlen(END_THINK));
    if (params->grammar_after >= 0) return true;
    return lp_api_invalid(err, "response_format",
                          "the model thinks first, but its vocabulary has no token " END_THINK
                          " behind which the form of the answer could begin; turn thinking off "
                          "(chat_template_kwargs: {\"enable_thinking\": false})");
}

// Markers that are control tokens must be seen in the text.
static bool show_markers(const struct lp_completion *c, const struct lp_chat_prompt *p,
                         struct lp_completion_params *params) {
    const char *const *markers = lp_reply_markers(p->syntax);
    size_t n = 0;
    while (markers[n]) n++;
    if (!(params->shown_ids = lp_alloc(n, sizeof *params->shown_ids))) return false;
    for (size_t i = 0; i < n; i++) {
        int32_t id = limpid_token_find(c->service->model, markers[i], strlen(markers[i]));
        if (id >= 0 && lp_completion_is_hidden(c, id))
            params->shown_ids[params->n_shown_ids++] = id;
    }
    return true;
}

bool lp_chat_admit(struct lp_completion *c, struct lp_service *service, struct lp_chat_request *r,
                   struct lp_chat_prompt *p, struct lp_api_error *err) {
    struct lp_completion_params *params = &r->params;
    if (!lp_completion_check_model(service, params->model, err)) return false;
    if (!(params->prompts = lp_alloc(1, sizeof *params->prompts))) return lp_api_out_of_memory(err);
    params->n_prompts = 1;
    bool ok = lp_chat_prompt_make(service, r, p, &params->prompts[0].ids, &params->prompts[0].n_ids,
                                  err) &&
              constrain(service, r, params, p, err);
    if (ok) ok = lp_completion_admit(c, service, params, err);
    if (ok && !show_markers(c, p, &c->params)) ok = lp_api_out_of_memory(err);
    if (!ok && strcmp(err->param, "prompt") == 0) strcpy(err->param, "messages");
    return ok;
}
