// The fields of a request's body that say how to sample, when to stop and what to report: one row
// each, with the APIs that have it. docs/api.md lists them.
#ifndef LP_SERVE_FIELDS_H
#define LP_SERVE_FIELDS_H

#include <jansson.h>

#include "serve/completion_params.h"

enum lp_api { // bits
    LP_API_COMPLETIONS = 1,
    LP_API_CHAT = 2,
    LP_API_RESPONSES = 4,
    LP_API_MESSAGES = 8, // Anthropic's
};

// The body as a tree; NULL with the error filled: empty, no JSON, no object, nested too deep, a
// prompt of more than n_context token ids (which is refused before it takes the memory of its
// tree).
json_t *lp_body_parse(const char *body, size_t n_bytes, int64_t n_context,
                      struct lp_api_error *err);

// Values of fields that are not named: those of limpid_request_default_options.
struct lp_completion_params lp_fields_defaults(void);

// Fills all but the prompts from the object. Fields that change the output and that this version
// lacks are refused unless they ask for nothing; unknown ones are ignored. False with the error.
bool lp_fields_parse(struct lp_completion_params *p, const json_t *root, enum lp_api api,
                     struct lp_api_error *err);

// ---- for the parsers of other parts ----

const char *lp_json_type_name(const json_t *j); // "an object", "a string", ...
// A field that is there and not null.
const json_t *lp_json_field(const json_t *object, const char *name);
// True: *out is the string, a boolean, or as it was if the field is not there. path: for the error.
bool lp_json_get_string(const json_t *object, const char *name, const char *path, const char **out,
                        struct lp_api_error *err);
bool lp_json_get_bool(const json_t *object, const char *name, const char *path, bool *out,
                      struct lp_api_error *err);

#endif
