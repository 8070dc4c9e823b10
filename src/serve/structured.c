#include "serve/structured.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"

static bool set(struct lp_completion_params *p, const char *kind, struct lp_str source,
                const char *param, struct lp_api_error *err) {
    if (p->grammar_kind)
        return lp_api_invalid(err, param,
                              "%s asks for a form of the answer, which another field has done "
                              "already; send one of them",
                              param);
    if (!(p->grammar = lp_strndup(source.data, source.len))) return lp_api_out_of_memory(err);
    p->n_grammar = source.len;
    snprintf(p->grammar_param, sizeof p->grammar_param, "%s", param);
    p->grammar_kind = kind;
    return true;
}

bool lp_structured_set_json(struct lp_completion_params *p, const char *kind, const json_t *value,
                            const char *param, struct lp_api_error *err) {
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    if (!text) return lp_api_out_of_memory(err);
    bool ok = set(p, kind, lp_str_from(text), param, err);
    free(text);
    return ok;
}

static bool set_text(struct lp_completion_params *p, const char *kind, const json_t *j,
                     const char *param, struct lp_api_error *err) {
    if (!json_is_string(j))
        return lp_api_invalid(err, param, "%s is %s, expected a string", param,
                              lp_json_type_name(j));
    struct lp_str source = {json_string_value(j), json_string_length(j)};
    return source.len == 0 || set(p, kind, source, param, err);
}

// A schema as an object, a boolean, or its text (older vLLM takes both).
static bool set_schema(struct lp_completion_params *p, const json_t *j, const char *param,
                       struct lp_api_error *err) {
    if (json_is_string(j)) return set_text(p, "json_schema", j, param, err);
    if (!json_is_object(j) && !json_is_boolean(j))
        return lp_api_invalid(err, param, "%s is %s, expected a JSON schema", param,
                              lp_json_type_name(j));
    return lp_structured_set_json(p, "json_schema", j, param, err);
}

static bool set_choices(struct lp_completion_params *p, const json_t *j, const char *param,
                        struct lp_api_error *err) {
    if (!json_is_array(j))
        return lp_api_invalid(err, param, "%s is %s, expected an array of strings", param,
                              lp_json_type_name(j));
    for (size_t i = 0; i < json_array_size(j); i++)
        if (!json_is_string(json_array_get(j, i)))
            return lp_api_invalid(err, param, "%s[%zu] is %s, expected a string", param, i,
                                  lp_json_type_name(json_array_get(j, i)));
    return json_array_size(j) == 0 || lp_structured_set_json(p, "choice", j, param, err);
}

static bool set_json_object(struct lp_completion_params *p, const json_t *j, const char *param,
                            struct lp_api_error *err) {
    if (!json_is_boolean(j))
        return lp_api_invalid(err, param, "%s is %s, expected true or false", param,
                              lp_json_type_name(j));
    return json_is_false(j) || set(p, "json", lp_str_from(""), param, err);
}

static bool set_regex(struct lp_completion_params *p, const json_t *j, const char *param,
                      struct lp_api_error *err) {
    return set_text(p, "regex", j, param, err);
}

static bool set_gbnf(struct lp_completion_params *p, const json_t *j, const char *param,
                     struct lp_api_error *err) {
    return set_text(p, "gbnf", j, param, err);
}

struct way {
    const char *name;
    bool (*set)(struct lp_completion_params *p, const json_t *j, const char *param,
                struct lp_api_error *err);
};

static bool is_nothing(const json_t *j) {
    return (json_is_string(j) && json_string_length(j) == 0) ||
           (json_is_object(j) && json_object_size(j) == 0) ||
           (json_is_array(j) && json_array_size(j) == 0);
}

// In vLLM's object of that name.
static bool parse_structured_outputs(struct lp_completion_params *p, const json_t *j,
                                     struct lp_api_error *err) {
    static const struct way ways[] = {
        {"json", set_schema},
        {"regex", set_regex},
        {"choice", set_choices},
        {"grammar", set_gbnf},
        {"json_object", set_json_object},
    };
    char path[48];
    if (!j) return true;
    if (!json_is_object(j))
        return lp_api_invalid(err, "structured_outputs",
                              "structured_outputs is %s, expected an object", lp_json_type_name(j));
    if (lp_json_field(j, "structural_tag"))
        return lp_api_invalid(err, "structured_outputs.structural_tag",
                              "structured_outputs.structural_tag is not supported; give a schema "
                              "(json) or a grammar");
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        const json_t *one = lp_json_field(j, ways[i].name);
        snprintf(path, sizeof path, "structured_outputs.%s", ways[i].name);
        if (one && !ways[i].set(p, one, path, err)) return false;
    }
    return true;
}

// {"type": "text" | "json_object" | "json_schema", ...}; in Responses the schema lies beside type.
static bool parse_format(struct lp_completion_params *p, const json_t *j, const char *param,
                         bool flat, struct lp_api_error *err) {
    const char *type = NULL;
    if (!j) return true;
    if (!json_is_object(j))
        return lp_api_invalid(err, param, "%s is %s, expected an object", param,
                              lp_json_type_name(j));
    if (!lp_json_get_string(j, "type", param, &type, err)) return false;
    if (!type) return lp_api_invalid(err, param, "%s has no type", param);
    if (strcmp(type, "text") == 0) return true;
    if (strcmp(type, "json_object") == 0) {
        const json_t *schema = lp_json_field(j, "schema"); // llama-server
        return schema ? set_schema(p, schema, param, err)
                      : set(p, "json", lp_str_from(""), param, err);
    }
    if (strcmp(type, "json_schema") != 0)
        return lp_api_invalid(err, param,
                              "%s.type is '%.60s', expected text, json_object or "
                              "json_schema",
                              param, type);
    const json_t *inner = flat ? j : lp_json_field(j, "json_schema");
    const json_t *schema = lp_json_field(inner, "schema");
    if (!schema)
        return lp_api_invalid(err, param, "%s has no %sschema", param, flat ? "" : "json_schema.");
    return set_schema(p, schema, param, err);
}

bool lp_structured_parse(struct lp_completion_params *p, const json_t *root, enum lp_api api,
                         struct lp_api_error *err) {
    static const struct way ways[] = {
        {"guided_json", set_schema},  {"guided_regex", set_regex}, {"guided_choice", set_choices},
        {"guided_grammar", set_gbnf}, {"grammar", set_gbnf},       {"json_schema", set_schema},
    };
    if (api == LP_API_RESPONSES) {
        const json_t *text = lp_json_field(root, "text");
        if (text && !json_is_object(text))
            return lp_api_invalid(err, "text", "text is %s, expected an object",
                                  lp_json_type_name(text));
        if (!parse_format(p, lp_json_field(text, "format"), "text.format", true, err)) return false;
    } else if (!parse_format(p, lp_json_field(root, "response_format"), "response_format", false,
                             err)) {
        return false;
    }
    if (!parse_structured_outputs(p, lp_json_field(root, "structured_outputs"), err)) return false;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        const json_t *j = lp_json_field(root, ways[i].name);
        if (j && !is_nothing(j) && !ways[i].set(p, j, ways[i].name, err)) return false;
    }
    return true;
}
