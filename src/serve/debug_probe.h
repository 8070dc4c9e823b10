// POST /debug/probe: runs tokens and gives back any intermediates of any layer (docs/probes.md), on
// a server with --debug-probes. The tokens run beside the requests of others, a step at a time.
#ifndef LP_SERVE_DEBUG_PROBE_H
#define LP_SERVE_DEBUG_PROBE_H

#include "serve/answer.h"

void lp_debug_probe(struct lp_service *service, const char *body, size_t n_bytes,
                    struct lp_http_reply *reply);

#endif
