// The HTTP server over one model and one engine. A thread per connection; requests that generate
// take the engine one after another, in the order in which they arrived (turn.h).
#ifndef LP_SERVE_SERVE_H
#define LP_SERVE_SERVE_H

#include <stdint.h>

#include "base/status.h"
#include "limpid.h"

struct lp_server;

struct lp_server_options {
    const char *host;    // a name or address to listen on
    int port;            // 0 = any free port
    const char *api_key; // NULL = none asked for
    const char *model_id;
    limpid_model *model; // both stay the caller's and must outlive the server
    limpid_engine *engine;
    int64_t chunk; // most prompt tokens between two looks at whether the client is still there
};

// Listens and answers from now on. The strings are copied. IO names the address that cannot be
// used.
lp_status lp_server_start(struct lp_server **out, const struct lp_server_options *options,
                          struct lp_err *err);
int lp_server_port(const struct lp_server *server); // the one it listens on
// Cancels what runs, closes all connections, waits for their threads. NULL is allowed.
void lp_server_stop(struct lp_server *server);

#endif
