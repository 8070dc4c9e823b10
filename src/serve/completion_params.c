// The prompts of a completion's body; fields.c reads the rest.
#include "serve/completion_params.h"

#include <string.h>

#include "base/alloc.h"
#include "serve/fields.h"

static bool parse_ids(struct lp_prompt_param *prompt, const json_t *list,
                      struct lp_api_error *err) {
    prompt->n_ids = json_array_size(list);
    prompt->ids = lp_alloc(prompt->n_ids, sizeof *prompt->ids);
    if (!prompt->ids) return lp_api_out_of_memory(err);
    for (size_t i = 0; i < prompt->n_ids; i++) {
        const json_t *j = json_array_get(list, i);
        if (!json_is_integer(j) || json_integer_value(j) < 0 || json_integer_value(j) > INT32_MAX)
            return lp_api_invalid(err, "prompt",
                                  "prompt: element %zu of a list of token ids is no token id", i);
        prompt->ids[i] = (int32_t)json_integer_value(j);
    }
    return true;
}

static bool parse_one_prompt(struct lp_prompt_param *prompt, const json_t *j,
                             struct lp_api_error *err) {
    if (json_is_array(j)) return parse_ids(prompt, j, err);
    prompt->n_bytes = json_string_length(j);
    prompt->text = lp_strndup(json_string_value(j), prompt->n_bytes);
    return prompt->text ? true : lp_api_out_of_memory(err);
}

// A string, a list of ids, a list of strings, or a list of lists of ids; the first element tells
// which.
static bool parse_prompts(struct lp_completion_params *p, const json_t *j,
                          struct lp_api_error *err) {
    if (!j) return lp_api_invalid(err, "prompt", "prompt is missing");
    if (!json_is_string(j) && !json_is_array(j))
        return lp_api_invalid(err, "prompt", "prompt is %s, expected a string or an array",
                              lp_json_type_name(j));
    const json_t *first = json_array_get(j, 0);
    if (json_is_array(j) && !first)
        return lp_api_invalid(err, "prompt",
                              "prompt is an empty array; it needs at least one token");
    bool several = json_is_string(first) || json_is_array(first);
    size_t n = several ? json_array_size(j) : 1;
    if (n > LP_MAX_CHOICES)
        return lp_api_invalid(err, "prompt", "prompt holds %zu prompts, expected at most %d", n,
                              LP_MAX_CHOICES);
    p->prompts = lp_alloc(n, sizeof *p->prompts);
    if (!p->prompts) return lp_api_out_of_memory(err);
    for (size_t i = 0; i < n; i++) {
        const json_t *one = several ? json_array_get(j, i) : j;
        if (several && json_typeof(one) != json_typeof(first))
            return lp_api_invalid(err, "prompt",
                                  "prompt[%zu] is %s and prompt[0] is %s; all must be alike", i,
                                  lp_json_type_name(one), lp_json_type_name(first));
        p->n_prompts = i + 1;
        if (!parse_one_prompt(&p->prompts[i], one, err)) return false;
    }
    return true;
}

bool lp_completion_params_parse(struct lp_completion_params *out, const char *body, size_t n_bytes,
                                int64_t n_context, struct lp_api_error *err) {
    *out = lp_fields_defaults();
    json_t *root = lp_body_parse(body, n_bytes, n_context, err);
    if (!root) return false;
    bool ok = parse_prompts(out, lp_json_field(root, "prompt"), err) &&
              lp_fields_parse(out, root, LP_API_COMPLETIONS, err);
    if (ok && out->n > LP_MAX_CHOICES / (int64_t)out->n_prompts)
        ok = lp_api_invalid(err, "n", "%zu prompts with n = %d are more than %d choices",
                            out->n_prompts, (int)out->n, LP_MAX_CHOICES);
    json_decref(root);
    return ok;
}

void lp_completion_params_release(struct lp_completion_params *p) {
    for (size_t i = 0; i < p->n_prompts; i++) {
        lp_free(p->prompts[i].text);
        lp_free(p->prompts[i].ids);
    }
    for (size_t i = 0; i < p->n_stop; i++) lp_free(p->stop[i]);
    for (size_t i = 0; i < p->n_breakers; i++) lp_free(p->breakers[i]);
    lp_free(p->stop_ids);
    lp_free(p->grammar);
    lp_free(p->shown_ids);
    lp_free(p->bias_ids);
    lp_free(p->bias);
    lp_free(p->prompts);
    lp_free(p->model);
    *p = (struct lp_completion_params){0};
}
