// Answers out: headers that all have, JSON, and streams that the library pulls.
#include <microhttpd.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "serve/http.h"
#include "serve/page.h"

#define STREAM_BLOCK 16384

void lp_http_set_timeout(struct MHD_Connection *connection, unsigned seconds) {
    MHD_set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT, seconds);
}

static void add_cors(const struct lp_server *s, struct MHD_Response *response) {
    if (!s->cors) return;
    MHD_add_response_header(response, MHD_HTTP_HEADER_ACCESS_CONTROL_ALLOW_ORIGIN, s->cors);
    MHD_add_response_header(response, MHD_HTTP_HEADER_ACCESS_CONTROL_EXPOSE_HEADERS,
                            "X-Request-Id, Retry-After");
    if (strcmp(s->cors, "*") != 0)
        MHD_add_response_header(response, MHD_HTTP_HEADER_VARY, "Origin");
}

static bool queue(struct lp_server *s, struct MHD_Connection *connection, struct lp_incoming *in,
                  int status, struct MHD_Response *response, const char *content_type) {
    if (!response) return false;
    if (content_type) MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, content_type);
    MHD_add_response_header(response, "X-Request-Id", in->access.id);
    MHD_add_response_header(response, "request-id", in->access.id); // Anthropic's packages
    if (status == 401)
        MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    add_cors(s, response);
    bool ok = MHD_queue_response(connection, (unsigned)status, response) == MHD_YES;
    if (ok) in->access.status = status;
    MHD_destroy_response(response);
    return ok;
}

static struct MHD_Response *of_bytes(const struct lp_bytes *bytes) {
    return MHD_create_response_from_buffer(bytes->len, bytes->data, MHD_RESPMEM_MUST_COPY);
}

static bool send_json(struct lp_server *s, struct MHD_Connection *connection,
                      struct lp_incoming *in, struct lp_http_reply *reply, const char *allow) {
    struct MHD_Response *response = of_bytes(&reply->body);
    char seconds[16];
    snprintf(seconds, sizeof seconds, "%d", reply->retry_after_s);
    if (response && reply->retry_after_s)
        MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, seconds);
    if (response && allow) MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, allow);
    return queue(s, connection, in, reply->status, response, "application/json");
}

bool lp_http_send_error(struct lp_server *s, struct MHD_Connection *connection,
                        struct lp_incoming *in, const struct lp_api_error *err, const char *allow) {
    struct lp_http_reply reply = {0};
    lp_http_reply_json(&reply, err->http, lp_http_error_body(in->route, err));
    reply.retry_after_s = err->retry_after_s;
    bool ok = send_json(s, connection, in, &reply, allow);
    lp_http_reply_release(&reply);
    return ok;
}

bool lp_http_send_text(struct lp_server *s, struct MHD_Connection *connection,
                       struct lp_incoming *in, const char *content_type,
                       const struct lp_bytes *text) {
    return queue(s, connection, in, 200, of_bytes(text), content_type);
}

bool lp_http_send_page(struct lp_server *s, struct MHD_Connection *connection,
                       struct lp_incoming *in) {
    char policy[LP_PAGE_POLICY_BYTES];
    struct lp_bytes text = {0};
    struct MHD_Response *response = lp_page_write(&text, policy) ? of_bytes(&text) : NULL;
    lp_bytes_release(&text);
    if (!response) return false;
    MHD_add_response_header(response, "Content-Security-Policy", policy);
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store"); // the nonce
    return queue(s, connection, in, 200, response, "text/html; charset=utf-8");
}

bool lp_http_send_preflight(struct lp_server *s, struct MHD_Connection *connection,
                            struct lp_incoming *in, const char *methods) {
    struct MHD_Response *response = MHD_create_response_from_buffer(0, "", MHD_RESPMEM_PERSISTENT);
    const char *wanted = MHD_lookup_connection_value(
        connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCESS_CONTROL_REQUEST_HEADERS);
    if (!response) return false;
    // Any header may come: those that mean nothing here do no harm, and clients add their own.
    MHD_add_response_header(response, MHD_HTTP_HEADER_ACCESS_CONTROL_ALLOW_HEADERS,
                            wanted && wanted[0] ? wanted : "Authorization, Content-Type");
    MHD_add_response_header(response, MHD_HTTP_HEADER_ACCESS_CONTROL_ALLOW_METHODS, methods);
    MHD_add_response_header(response, MHD_HTTP_HEADER_ACCESS_CONTROL_MAX_AGE, "600");
    return queue(s, connection, in, 204, response, NULL);
}

// ---- streams ----

// The library frees a response before or behind the end of its request; the answer must end with
// the earlier of both, as it holds the client's socket and the request's access record.
struct lp_sender {
    const struct lp_server *server;
    struct MHD_Connection *connection;
    struct lp_incoming *in; // NULL: over
    struct lp_answer *answer;
    struct lp_bytes out; // whole events; the library cuts them, never we
    size_t sent;
    bool ended;
};

static ssize_t pull(void *user, uint64_t position, char *to, size_t max) {
    struct lp_sender *s = user;
    (void)position;
    if (s->sent == s->out.len) {
        if (s->ended || !s->answer) return MHD_CONTENT_READER_END_OF_STREAM;
        lp_bytes_clear(&s->out);
        s->sent = 0;
        lp_http_set_timeout(s->connection, 0);
        s->ended = !lp_answer_next(s->answer, &s->out);
        lp_http_set_timeout(s->connection, s->server->send_s);
        if (s->out.failed || s->out.len == 0) return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    size_t n = s->out.len - s->sent < max ? s->out.len - s->sent : max;
    memcpy(to, s->out.data + s->sent, n);
    s->sent += n;
    return (ssize_t)n;
}

static void free_sender(void *user) {
    struct lp_sender *s = user;
    if (s->in) s->in->sender = NULL;
    lp_answer_free(s->answer);
    lp_bytes_release(&s->out);
    lp_free(s);
}

void lp_http_leave_sender(struct lp_incoming *in) {
    if (!in->sender) return;
    lp_answer_free(in->sender->answer);
    in->sender->answer = NULL;
    in->sender->in = NULL;
    in->sender = NULL;
}

static bool send_stream(struct lp_server *server, struct MHD_Connection *connection,
                        struct lp_incoming *in, struct lp_http_reply *reply) {
    struct lp_sender *s = lp_alloc(1, sizeof *s);
    if (!s) return false;
    *s = (struct lp_sender){
        .server = server, .connection = connection, .in = in, .answer = reply->stream};
    reply->stream = NULL;
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, pull, s, free_sender);
    if (!response) {
        free_sender(s);
        return false;
    }
    in->sender = s;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    MHD_add_response_header(response, "X-Accel-Buffering",
                            "no"); // a proxy shall pass events on at once
    return queue(server, connection, in, 200, response, "text/event-stream; charset=utf-8");
}

bool lp_http_send_reply(struct lp_server *s, struct MHD_Connection *connection,
                        struct lp_incoming *in, struct lp_http_reply *reply) {
    lp_http_set_timeout(connection, reply->stream ? s->send_s : s->idle_s);
    if (reply->stream) return send_stream(s, connection, in, reply);
    return reply->status && send_json(s, connection, in, reply, NULL);
}
