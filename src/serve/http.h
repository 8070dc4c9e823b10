// Inside of the transport: what http.c (start and stop), http_request.c (requests in) and
// http_send.c (answers out) share. Only these three see the HTTP library.
#ifndef LP_SERVE_HTTP_H
#define LP_SERVE_HTTP_H

#include "serve/access_log.h"
#include "serve/metrics.h"
#include "serve/answer.h"
#include "serve/serve.h"

struct MHD_Connection;
struct MHD_Daemon;
struct lp_sender;

struct lp_server {
    struct lp_service service;
    char *model_id, *aliases;
    char *api_key, *cors;     // key NULL: open; cors NULL: no header
    char *tls_cert, *tls_key; // contents; NULL: plain HTTP
    struct lp_access_log *access_log;
    struct lp_http_counts counts;
    struct MHD_Daemon *daemon;
    int port;
    size_t max_body, max_bodies;
    unsigned idle_s, send_s; // a client that sends nothing, or takes nothing of a stream, is cut
    double drain_s;
    pthread_mutex_t lock; // body_bytes, n_incoming
    size_t body_bytes;    // of all requests that are being read
    int n_incoming;       // requests from the sight of their head until they have been answered
};

struct lp_route;
// The body of an error on this route (NULL: of a path that is none).
json_t *lp_http_error_body(const struct lp_route *route, const struct lp_api_error *err);

// One request on its way in; from the first sight of its head until it has been answered.
struct lp_incoming {
    const struct lp_route *route; // NULL: none has the path
    struct lp_bytes body;
    size_t reserved; // of server->body_bytes
    size_t skipped;  // body bytes that were read and thrown away
    bool refused;    // err is the answer; the body is only skipped
    struct lp_api_error err;
    struct lp_access access;
    struct lp_sender *sender; // of its stream, while both live
};

// ---- http_request.c ----

// Fills server->counts with the routes.
void lp_http_init_counts(struct lp_http_counts *counts);
// The library calls the first with the head, with pieces of the body, and when the request is
// whole; the second when it is over. Types as in microhttpd.h; the first returns MHD_YES or MHD_NO.
int lp_http_on_request(struct lp_server *s, struct MHD_Connection *connection, const char *path,
                       const char *method, const char *data, size_t *n_data, void **state);
void lp_http_on_completed(struct lp_server *s, void **state);
int lp_http_count_incoming(struct lp_server *s, int change); // returns how many there are now

// ---- http_send.c: each queues the answer; false closes the connection ----

bool lp_http_send_reply(struct lp_server *s, struct MHD_Connection *connection,
                        struct lp_incoming *in, struct lp_http_reply *reply);
bool lp_http_send_error(struct lp_server *s, struct MHD_Connection *connection,
                        struct lp_incoming *in, const struct lp_api_error *err, const char *allow);
// The web page.
bool lp_http_send_page(struct lp_server *s, struct MHD_Connection *connection,
                       struct lp_incoming *in);
bool lp_http_send_text(struct lp_server *s, struct MHD_Connection *connection,
                       struct lp_incoming *in, const char *content_type,
                       const struct lp_bytes *text);
// The answer to a browser's question what it may ask.
bool lp_http_send_preflight(struct lp_server *s, struct MHD_Connection *connection,
                            struct lp_incoming *in, const char *methods);
// The library's clock runs while we compute; only the time that the client takes shall count.
void lp_http_set_timeout(struct MHD_Connection *connection, unsigned seconds);
// The request is over, its sender maybe not.
void lp_http_leave_sender(struct lp_incoming *in);

#endif
