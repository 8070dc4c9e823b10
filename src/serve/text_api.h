// What a text is to the model: POST /tokenize, /detokenize and /apply-template, in the forms of
// vLLM and llama-server; and endpoints of OpenAI's that this server has a clear no for.
#ifndef LP_SERVE_TEXT_API_H
#define LP_SERVE_TEXT_API_H

#include "serve/answer.h"

// Each reads the body and sets the reply.
void lp_text_tokenize(struct lp_service *service, const char *body, size_t n_bytes,
                      struct lp_http_reply *reply);
void lp_text_detokenize(struct lp_service *service, const char *body, size_t n_bytes,
                        struct lp_http_reply *reply);
void lp_text_apply_template(struct lp_service *service, const char *body, size_t n_bytes,
                            struct lp_http_reply *reply);
void lp_text_no_embeddings(struct lp_service *service, const char *body, size_t n_bytes,
                           struct lp_http_reply *reply);

#endif
