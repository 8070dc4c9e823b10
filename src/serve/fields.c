// One row per field: its APIs, type, range and place. Fields that would change the output and that
// this version lacks are rows too, with the value that asks for nothing; any other value is
// refused. Fields that no row names are ignored, as vLLM and llama-server ignore them.
#include "serve/fields.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "serve/json_scan.h"
#include "serve/structured.h"

enum field_kind { FIELD_INT, FIELD_REAL, FIELD_BOOL };

struct field {
    const char *name;
    unsigned apis;
    enum field_kind kind;
    size_t at;       // in struct lp_completion_params: int64_t, double or bool
    double min, max; // not for BOOL
    const char *range;
};

#define AT(member) offsetof(struct lp_completion_params, member)
#define TEXT LP_API_COMPLETIONS
#define CHAT LP_API_CHAT
#define RESPONSES LP_API_RESPONSES
#define MESSAGES LP_API_MESSAGES
#define OPENAI (TEXT | CHAT | RESPONSES)
#define ALL (OPENAI | MESSAGES)

static const struct field fields[] = {
    {"max_tokens", TEXT | CHAT | MESSAGES, FIELD_INT, AT(max_tokens), 0, INT32_MAX, "0 or more"},
    {"max_completion_tokens", TEXT | CHAT, FIELD_INT, AT(max_tokens), 0, INT32_MAX, "0 or more"},
    {"n_predict", TEXT | CHAT, FIELD_INT, AT(max_tokens), 0, INT32_MAX,
     "0 or more"}, // llama-server
    {"temperature", ALL, FIELD_REAL, AT(temperature), 0, 100, "0 (greedy) to 100"},
    {"max_output_tokens", RESPONSES, FIELD_INT, AT(max_tokens), 1, INT32_MAX, "1 or more"},
    {"top_p", ALL, FIELD_REAL, AT(top_p), 1e-30, 1, "more than 0 and at most 1"},
    {"top_k", ALL, FIELD_INT, AT(top_k), -1, INT32_MAX, "1 or more, or 0 or -1 (off)"},
    {"n", TEXT | CHAT, FIELD_INT, AT(n), 1, LP_MAX_CHOICES, "1 to 256"},
    {"logprobs", TEXT, FIELD_INT, AT(logprobs), 0, LP_MAX_TOP_LOGPROBS, "0 to 20"},
    {"top_logprobs", CHAT | RESPONSES, FIELD_INT, AT(top_logprobs), 0, LP_MAX_TOP_LOGPROBS,
     "0 to 20"},
    {"seed", ALL, FIELD_INT, AT(seed), (double)INT64_MIN, (double)INT64_MAX, "a 64-bit number"},
    {"min_tokens", ALL, FIELD_INT, AT(min_tokens), 0, INT32_MAX, "0 or more"},
    {"min_p", ALL, FIELD_REAL, AT(min_p), 0, 1, "0 (off) to 1"},
    {"typical_p", ALL, FIELD_REAL, AT(typical_p), 1e-30, 1, "more than 0 and at most 1 (off)"},
    {"repetition_penalty", ALL, FIELD_REAL, AT(repetition_penalty), 1e-30, 10,
     "more than 0 and at most 10; 1 is off"},
    {"repeat_penalty", ALL, FIELD_REAL, AT(repetition_penalty), 1e-30, 10,
     "more than 0 and at most 10; 1 is off"},
    {"presence_penalty", ALL, FIELD_REAL, AT(presence_penalty), -2, 2, "-2 to 2"},
    {"frequency_penalty", ALL, FIELD_REAL, AT(frequency_penalty), -2, 2, "-2 to 2"},
    {"dry_multiplier", ALL, FIELD_REAL, AT(dry_multiplier), 0, 100, "0 (off) to 100"},
    {"dry_base", ALL, FIELD_REAL, AT(dry_base), 1, 100, "1 to 100"},
    {"dry_allowed_length", ALL, FIELD_INT, AT(dry_allowed_length), 0, INT32_MAX, "0 or more"},
    {"priority", ALL, FIELD_INT, AT(priority), INT32_MIN, INT32_MAX, "a 32-bit number"},
    {"echo", TEXT, FIELD_BOOL, AT(echo), 0, 0, ""},
    {"stream", ALL, FIELD_BOOL, AT(stream), 0, 0, ""},
    {"ignore_eos", ALL, FIELD_BOOL, AT(ignore_eos), 0, 0, ""},
    {"skip_special_tokens", ALL, FIELD_BOOL, AT(skip_special_tokens), 0, 0, ""},
    {"add_special_tokens", TEXT, FIELD_BOOL, AT(add_special_tokens), 0, 0, ""},
    {"return_token_ids", TEXT | CHAT, FIELD_BOOL, AT(return_token_ids), 0, 0, ""},
};

// NEUTRAL_NUMBER: exactly this number; NEUTRAL_FALSE: false; NEUTRAL_EMPTY: "", [] or {}. null
// always.
enum neutral_kind { NEUTRAL_NUMBER, NEUTRAL_FALSE, NEUTRAL_EMPTY };

static const struct neutral {
    const char *name;
    enum neutral_kind kind;
    double number;
} neutrals[] = {
    {"suffix", NEUTRAL_EMPTY, 0},
    // vLLM
    {"length_penalty", NEUTRAL_NUMBER, 1},
    {"use_beam_search", NEUTRAL_FALSE, 0},
    {"include_stop_str_in_output", NEUTRAL_FALSE, 0},
    {"bad_words", NEUTRAL_EMPTY, 0},
    {"allowed_token_ids", NEUTRAL_EMPTY, 0},
    {"truncate_prompt_tokens", NEUTRAL_EMPTY, 0},
    {"prompt_logprobs", NEUTRAL_EMPTY, 0},
    {"prompt_embeds", NEUTRAL_EMPTY, 0},
    {"return_tokens_as_token_ids", NEUTRAL_FALSE, 0},
    // llama-server
    {"mirostat", NEUTRAL_NUMBER, 0},
    {"dynatemp_range", NEUTRAL_NUMBER, 0},
    {"xtc_probability", NEUTRAL_NUMBER, 0},
};

const char *lp_json_type_name(const json_t *j) {
    switch (json_typeof(j)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    default:
        return "null";
    }
}

const json_t *lp_json_field(const json_t *object, const char *name) {
    const json_t *j = json_object_get(object, name);
    return json_is_null(j) ? NULL : j;
}

static bool parse_int(const struct field *f, const json_t *j, int64_t *out,
                      struct lp_api_error *err) {
    if (!json_is_number(j))
        return lp_api_invalid(err, f->name, "%s is %s, expected a whole number", f->name,
                              lp_json_type_name(j));
    double value = json_number_value(j);
    if (json_is_real(j) && (value != floor(value) || fabs(value) > 9007199254740992.0))
        return lp_api_invalid(err, f->name, "%s is %g, expected a whole number", f->name, value);
    if (value < f->min || value > f->max)
        return lp_api_invalid(err, f->name, "%s is %.17g, expected %s", f->name, value, f->range);
    *out = json_is_integer(j) ? json_integer_value(j) : (int64_t)value;
    return true;
}

static bool parse_field(struct lp_completion_params *p, const struct field *f, const json_t *j,
                        struct lp_api_error *err) {
    void *to = (char *)p + f->at;
    switch (f->kind) {
    case FIELD_INT:
        return parse_int(f, j, to, err);
    case FIELD_REAL: {
        if (!json_is_number(j))
            return lp_api_invalid(err, f->name, "%s is %s, expected a number", f->name,
                                  lp_json_type_name(j));
        double value = json_number_value(j);
        if (!(value >= f->min && value <= f->max))
            return lp_api_invalid(err, f->name, "%s is %g, expected %s", f->name, value, f->range);
        *(double *)to = value;
        return true;
    }
    case FIELD_BOOL:
        if (!json_is_boolean(j))
            return lp_api_invalid(err, f->name, "%s is %s, expected true or false", f->name,
                                  lp_json_type_name(j));
        *(bool *)to = json_is_true(j);
        return true;
    }
    return false;
}

static bool is_neutral(const struct neutral *row, const json_t *j) {
    switch (row->kind) {
    case NEUTRAL_NUMBER:
        return json_is_number(j) && json_number_value(j) == row->number;
    case NEUTRAL_FALSE:
        return json_is_false(j);
    case NEUTRAL_EMPTY:
        return (json_is_string(j) && json_string_length(j) == 0) ||
               (json_is_array(j) && json_array_size(j) == 0) ||
               (json_is_object(j) && json_object_size(j) == 0);
    }
    return false;
}

static bool check_neutrals(const json_t *root, struct lp_api_error *err) {
    for (size_t i = 0; i < sizeof neutrals / sizeof neutrals[0]; i++) {
        const json_t *j = lp_json_field(root, neutrals[i].name);
        if (j && !is_neutral(&neutrals[i], j))
            return lp_api_invalid(err, neutrals[i].name,
                                  "%s is not supported in this version; leave it out",
                                  neutrals[i].name);
    }
    return true;
}

// A text, or an array of them.
static bool parse_texts(const char *name, const json_t *j, char **to, size_t *n_to, size_t max,
                        struct lp_api_error *err) {
    if (!j) return true;
    size_t n = json_is_array(j) ? json_array_size(j) : 1;
    if (n > max)
        return lp_api_invalid(err, name, "%s has %zu texts, expected at most %zu", name, n, max);
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_is_array(j) ? json_array_get(j, i) : j;
        if (!json_is_string(one))
            return lp_api_invalid(err, name, "%s is %s, expected a string or an array of strings",
                                  name, lp_json_type_name(one));
        size_t len = json_string_length(one);
        if (len == 0)
            return lp_api_invalid(err, name, "%s holds an empty text, which would be met anywhere",
                                  name);
        if (memchr(json_string_value(one), 0, len))
            return lp_api_invalid(err, name, "%s holds a NUL character, which is not supported",
                                  name);
        if (!(to[*n_to] = lp_strndup(json_string_value(one), len)))
            return lp_api_out_of_memory(err);
        (*n_to)++;
    }
    return true;
}

static bool parse_stop_ids(struct lp_completion_params *p, const json_t *j,
                           struct lp_api_error *err) {
    static const char name[] = "stop_token_ids";
    if (!j) return true;
    if (!json_is_array(j))
        return lp_api_invalid(err, name, "%s is %s, expected an array of token ids", name,
                              lp_json_type_name(j));
    size_t n = json_array_size(j);
    if (n > LP_MAX_STOP_IDS)
        return lp_api_invalid(err, name, "%s has %zu ids, expected at most %d", name, n,
                              LP_MAX_STOP_IDS);
    if (!(p->stop_ids = lp_alloc(n, sizeof *p->stop_ids))) return lp_api_out_of_memory(err);
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(j, i);
        if (!json_is_integer(one) || json_integer_value(one) < 0 ||
            json_integer_value(one) > INT32_MAX)
            return lp_api_invalid(err, name, "%s: element %zu is no token id", name, i);
        p->stop_ids[p->n_stop_ids++] = (int32_t)json_integer_value(one);
    }
    return true;
}

// "123" and nothing else.
static bool parse_id_key(const char *key, int32_t *out) {
    int64_t id = 0;
    size_t n = strspn(key, "0123456789");
    if (n == 0 || n > 10 || key[n]) return false;
    for (size_t i = 0; i < n; i++) id = id * 10 + (key[i] - '0');
    *out = (int32_t)id;
    return id <= INT32_MAX;
}

static bool parse_bias(struct lp_completion_params *p, json_t *j, struct lp_api_error *err) {
    static const char name[] = "logit_bias";
    const char *key;
    json_t *value;
    if (!j || (json_is_array(j) && json_array_size(j) == 0)) return true;
    if (!json_is_object(j))
        return lp_api_invalid(err, name, "%s is %s, expected an object of token ids and numbers",
                              name, lp_json_type_name(j));
    size_t n = json_object_size(j);
    p->bias_ids = lp_alloc(n, sizeof *p->bias_ids);
    p->bias = lp_alloc(n, sizeof *p->bias);
    if (!p->bias_ids || !p->bias) return lp_api_out_of_memory(err);
    json_object_foreach(j, key, value) {
        int32_t id;
        if (!parse_id_key(key, &id))
            return lp_api_invalid(err, name, "%s: '%.40s' is no token id", name, key);
        double add = json_number_value(value);
        if (!json_is_number(value) || !(add >= -100 && add <= 100))
            return lp_api_invalid(err, name, "%s of token %d is no number from -100 to 100", name,
                                  id);
        p->bias_ids[p->n_bias] = id;
        p->bias[p->n_bias++] = (float)add;
    }
    return true;
}

static bool parse_stream_options(struct lp_completion_params *p, const json_t *j,
                                 struct lp_api_error *err) {
    if (!j) return true;
    if (!json_is_object(j))
        return lp_api_invalid(err, "stream_options", "stream_options is %s, expected an object",
                              lp_json_type_name(j));
    if (!p->stream)
        return lp_api_invalid(err, "stream_options", "stream_options needs \"stream\": true");
    const json_t *usage = lp_json_field(j, "include_usage"),
                 *continuous = lp_json_field(j, "continuous_usage_stats");
    if (usage && !json_is_boolean(usage))
        return lp_api_invalid(err, "stream_options.include_usage",
                              "include_usage is %s, expected true or false",
                              lp_json_type_name(usage));
    if (continuous && !json_is_false(continuous))
        return lp_api_invalid(
            err, "stream_options.continuous_usage_stats",
            "continuous_usage_stats is not supported in this version; leave it out");
    p->include_usage = json_is_true(usage);
    return true;
}

// llama-server's windows: here penalties see all that was written, which -1 asks for.
static bool check_windows(const struct lp_completion_params *p, const json_t *root,
                          struct lp_api_error *err) {
    const struct {
        const char *name;
        bool matters;
    } windows[] = {{"repeat_last_n", p->repetition_penalty != 1 || p->presence_penalty != 0 ||
                                         p->frequency_penalty != 0},
                   {"dry_penalty_last_n", p->dry_multiplier > 0}};
    for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i++) {
        const json_t *j = lp_json_field(root, windows[i].name);
        if (j && windows[i].matters && !(json_is_number(j) && json_number_value(j) == -1))
            return lp_api_invalid(err, windows[i].name,
                                  "%s is not supported in this version except when it is -1 (all)",
                                  windows[i].name);
    }
    return true;
}

static bool check_counts(struct lp_completion_params *p, const json_t *root, enum lp_api api,
                         struct lp_api_error *err) {
    const json_t *best_of = api & (TEXT | CHAT) ? lp_json_field(root, "best_of") : NULL;
    if (best_of && !(json_is_number(best_of) && json_number_value(best_of) == (double)p->n))
        return lp_api_invalid(
            err, "best_of", "best_of is not supported in this version except when it equals n (%d)",
            (int)p->n);
    if (p->max_tokens == 0 && !p->echo)
        return lp_api_invalid(err, "max_tokens",
                              api == TEXT
                                  ? "max_tokens is 0, which asks for nothing without \"echo\": true"
                                  : "max_tokens is 0, expected 1 or more");
    if (p->min_tokens > p->max_tokens)
        return lp_api_invalid(err, "min_tokens", "min_tokens is %d, more than max_tokens (%d)",
                              (int)p->min_tokens, (int)p->max_tokens);
    if (p->top_k < 0) p->top_k = 0;
    return true;
}

static bool parse_lists(struct lp_completion_params *p, const json_t *root, enum lp_api api,
                        struct lp_api_error *err) {
    const char *stop = api == MESSAGES ? "stop_sequences" : "stop";
    const json_t *breakers = lp_json_field(root, "dry_sequence_breakers");
    p->has_breakers = breakers != NULL;
    return parse_texts(stop, lp_json_field(root, stop), p->stop, &p->n_stop, LP_MAX_STOPS, err) &&
           parse_texts("dry_sequence_breakers", breakers, p->breakers, &p->n_breakers,
                       LP_MAX_BREAKERS, err) &&
           parse_stop_ids(p, lp_json_field(root, "stop_token_ids"), err) &&
           parse_bias(p, (json_t *)lp_json_field(root, "logit_bias"), err);
}

static bool parse_model(struct lp_completion_params *p, const json_t *root,
                        struct lp_api_error *err) {
    const char *model = NULL;
    if (!lp_json_get_string(root, "model", "model", &model, err)) return false;
    if (model && !(p->model = lp_strndup(model, strlen(model)))) return lp_api_out_of_memory(err);
    return true;
}

bool lp_fields_parse(struct lp_completion_params *p, const json_t *root, enum lp_api api,
                     struct lp_api_error *err) {
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        const json_t *j = fields[i].apis & api ? lp_json_field(root, fields[i].name) : NULL;
        if (j && !parse_field(p, &fields[i], j, err)) return false;
    }
    p->has_seed = lp_json_field(root, "seed") != NULL;
    p->has_temperature = lp_json_field(root, "temperature") != NULL;
    p->has_top_p = lp_json_field(root, "top_p") != NULL;
    p->has_top_k = lp_json_field(root, "top_k") != NULL;
    p->has_min_p = lp_json_field(root, "min_p") != NULL;
    p->has_repetition_penalty = lp_json_field(root, "repetition_penalty") != NULL ||
                                lp_json_field(root, "repeat_penalty") != NULL;
    return check_neutrals(root, err) && check_windows(p, root, err) && parse_model(p, root, err) &&
           check_counts(p, root, api, err) && parse_lists(p, root, api, err) &&
           (!(api & (TEXT | CHAT)) ||
            parse_stream_options(p, lp_json_field(root, "stream_options"), err)) &&
           lp_structured_parse(p, root, api, err);
}

struct lp_completion_params lp_fields_defaults(void) {
    const limpid_request_options o = limpid_request_default_options();
    return (struct lp_completion_params){.max_tokens = o.max_tokens,
                                         .temperature = o.temperature,
                                         .top_p = o.top_p,
                                         .typical_p = o.typical_p,
                                         .repetition_penalty = o.repetition_penalty,
                                         .dry_base = o.dry_base,
                                         .dry_allowed_length = o.dry_allowed_length,
                                         .n = 1,
                                         .logprobs = -1,
                                         .grammar_after = -1,
                                         .skip_special_tokens = true,
                                         .add_special_tokens = true};
}

// ---- for other parsers ----

bool lp_json_get_string(const json_t *object, const char *name, const char *path, const char **out,
                        struct lp_api_error *err) {
    const json_t *j = lp_json_field(object, name);
    if (!j) return true;
    if (!json_is_string(j))
        return lp_api_invalid(err, path, "%s is %s, expected a string", path, lp_json_type_name(j));
    *out = json_string_value(j);
    if (strlen(*out) != json_string_length(j))
        return lp_api_invalid(err, path, "%s holds a NUL character", path);
    return true;
}

bool lp_json_get_bool(const json_t *object, const char *name, const char *path, bool *out,
                      struct lp_api_error *err) {
    const json_t *j = lp_json_field(object, name);
    if (!j) return true;
    if (!json_is_boolean(j))
        return lp_api_invalid(err, path, "%s is %s, expected true or false", path,
                              lp_json_type_name(j));
    *out = json_is_true(j);
    return true;
}

// What can be refused before the tree exists.
static bool check_text(const char *body, size_t n_bytes, int64_t n_context,
                       struct lp_api_error *err) {
    if (n_bytes == 0) return lp_api_invalid(err, "", "the body is empty, expected a JSON object");
    struct lp_json_scan scan = lp_json_scan(body, n_bytes, LP_MAX_JSON_DEPTH);
    if (scan.depth_at)
        return lp_api_invalid(
            err, "", "the body nests more than %d arrays and objects in each other (byte %zu)",
            LP_MAX_JSON_DEPTH, scan.depth_at);
    if (scan.longest_ids > (uint64_t)n_context) {
        lp_api_invalid(err, "prompt",
                       "prompt has %zu tokens; the context of %lld tokens is shorter",
                       scan.longest_ids, (long long)n_context);
        err->code = "context_length_exceeded";
        return false;
    }
    return true;
}

json_t *lp_body_parse(const char *body, size_t n_bytes, int64_t n_context,
                      struct lp_api_error *err) {
    json_error_t at;
    if (!check_text(body, n_bytes, n_context, err)) return NULL;
    json_t *root = json_loadb(body, n_bytes, JSON_ALLOW_NUL | JSON_DECODE_ANY, &at);
    if (!root) {
        lp_api_invalid(err, "", "the body is no valid JSON: %s (line %d, column %d, byte %d)",
                       at.text, at.line, at.column, at.position);
    } else if (!json_is_object(root)) {
        lp_api_invalid(err, "", "the body is %s, expected a JSON object", lp_json_type_name(root));
        json_decref(root);
        root = NULL;
    }
    return root;
}
