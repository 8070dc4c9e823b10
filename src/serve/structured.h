// What an answer must match, as the fields of several APIs say it: response_format and
// structured_outputs (OpenAI, vLLM), guided_* (older vLLM), grammar and json_schema (llama-server),
// text.format (Responses).
#ifndef LP_SERVE_STRUCTURED_H
#define LP_SERVE_STRUCTURED_H

#include "serve/fields.h"

// Sets p->grammar_kind and its source, or leaves them. Two at once are refused. Whether the source
// is good is the engine's to say.
bool lp_structured_parse(struct lp_completion_params *p, const json_t *root, enum lp_api api,
                         struct lp_api_error *err);
// For others: takes the kind (a name of limpid.h) and a JSON value as its source, a copy.
bool lp_structured_set_json(struct lp_completion_params *p, const char *kind, const json_t *value,
                            const char *param, struct lp_api_error *err);

#endif
