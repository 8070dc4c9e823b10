// What an answer may be: the form that was asked for and tool calls, joined in one grammar; and which
// control tokens are shown, so that the reply parser sees its marks.
#include <string.h>

#include "base/alloc.h"
#include "serve/chat_parts.h"
#include "serve/structured.h"

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

bool lp_chat_constrain(struct lp_service *service, const struct lp_chat_request *r,
                       struct lp_completion_params *params, const struct lp_chat_prompt *p,
                       struct lp_api_error *err) {
    if (!constrain_tools(r, params, p, err)) return false;
    if (!params->grammar_kind || !p->in_reasoning) return true;
    params->grammar_after =
        limpid_token_find(service->model, LP_REPLY_END_THINK, strlen(LP_REPLY_END_THINK));
    if (params->grammar_after >= 0) return true;
    return lp_api_invalid(
        err, "response_format",
        "the model thinks first, but its vocabulary has no token " LP_REPLY_END_THINK
        " behind which the form of the answer could begin; turn thinking off "
        "(chat_template_kwargs: {\"enable_thinking\": false})");
}

// Markers that are control tokens must be seen in the text.
bool lp_chat_show_markers(const struct lp_completion *c, const struct lp_chat_prompt *p,
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
