// The HTTP server over one model and one engine, whose own thread makes the steps
// (limpid_engine_start). A thread per connection; requests generate together.
#ifndef LP_SERVE_SERVE_H
#define LP_SERVE_SERVE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "limpid.h"

struct lp_server;

struct lp_server_options {
    const char *host;               // a name or address to listen on
    int port;                       // 0 = any free port
    const char *api_key;            // NULL = none asked for
    const char *cors;               // an origin, or "*", whose pages may ask; NULL = none
    const char *tls_cert, *tls_key; // PEM files; NULL = plain HTTP
    const char *access_log;         // a file, "-" for standard error; NULL = none
    const char *aliases;            // further names of the model, with commas; "*" = any; or NULL
    double temperature, top_p, min_p, repetition_penalty; // of requests that name none
    int64_t top_k;
    bool debug_prompts; // show the last prompt at /debug/last-prompt
    bool debug_probes;  // give intermediates at /debug/probe; needs a key
    const char *model_id;
    limpid_model *model; // both stay the caller's and must outlive the server
    limpid_engine *engine;
    int max_connections;
    size_t max_body;      // bytes of one request's body
    int64_t timeout_ms;   // of a generation, waiting included; 0 = none
    int64_t keepalive_ms; // a stream says that it lives after that long without an event; 0 = never
    int idle_s;           // a connection without a byte for that long is closed
    double drain_s;       // how long a stop lets running requests go on
    double stall_s;       // a step that takes longer turns health red
};

struct lp_server_options lp_server_default_options(void); // docs/api.md lists them

// Listens and answers from now on. The strings are copied. IO names the address or file that cannot
// be used; UNSUPPORTED: this libmicrohttpd has no TLS.
lp_status lp_server_start(struct lp_server **out, const struct lp_server_options *options,
                          struct lp_err *err);
int lp_server_port(const struct lp_server *server); // the one it listens on
// Drains: new requests get 503 and health says so, while those that run go on for at most drain_s.
// Then cancels what is left, closes all connections, waits for their threads. NULL is allowed.
void lp_server_stop(struct lp_server *server);

#endif
