// Requests in: routes, keys, bodies and their limits; then the answer, in the connection's thread.
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "serve/anthropic.h"
#include "serve/auth.h"
#include "serve/completions.h"
#include "serve/debug_probe.h"
#include "serve/debug_trace.h"
#include "serve/engine_view.h"
#include "serve/http.h"
#include "serve/openai.h"
#include "serve/openai_chat.h"
#include "serve/responses.h"
#include "serve/text_api.h"

enum route {
    ROUTE_PAGE,
    ROUTE_READY,
    ROUTE_LIVE,
    ROUTE_METRICS,
    ROUTE_ENGINE,
    ROUTE_LAST_PROMPT,
    ROUTE_TRACE,
    ROUTE_MODELS,
    ROUTE_MODEL,
    ROUTE_GENERATE, // POST: format and parse
    ROUTE_HANDLE,   // POST: handle
};

typedef void (*handler)(struct lp_service *service, const char *body, size_t n_bytes,
                        struct lp_http_reply *reply);

static const struct lp_route {
    const char *path, *label; // label: in metrics; NULL: the path
    enum route route;
    bool is_prefix;
    bool is_open;                                     // without a key
    json_t *(*error)(const struct lp_api_error *err); // NULL: OpenAI's
    const struct lp_format *format;
    lp_answer_parse parse;
    handler handle;
} routes[] = {
    {.path = "/", .route = ROUTE_PAGE, .is_open = true},
    {.path = "/health", .route = ROUTE_READY, .is_open = true},
    {.path = "/health/ready", .route = ROUTE_READY, .is_open = true},
    {.path = "/health/live", .route = ROUTE_LIVE, .is_open = true},
    {.path = "/metrics", .route = ROUTE_METRICS},
    {.path = "/engine", .route = ROUTE_ENGINE},
    {.path = "/debug/last-prompt", .route = ROUTE_LAST_PROMPT},
    {.path = "/debug/trace", .route = ROUTE_TRACE},
    {.path = "/v1/models", .route = ROUTE_MODELS},
    {.path = "/v1/models/", .route = ROUTE_MODEL, .label = "/v1/models/{id}", .is_prefix = true},
    {.path = "/v1/completions",
     .route = ROUTE_GENERATE,
     .format = &lp_completions_format,
     .parse = lp_completions_parse},
    {.path = "/v1/chat/completions",
     .route = ROUTE_GENERATE,
     .format = &lp_openai_chat_format.base,
     .parse = lp_openai_chat_parse},
    {.path = "/v1/responses",
     .route = ROUTE_GENERATE,
     .format = &lp_responses_format.base,
     .parse = lp_responses_parse},
    {.path = "/v1/messages",
     .route = ROUTE_GENERATE,
     .error = lp_anthropic_error,
     .format = &lp_anthropic_format.base,
     .parse = lp_anthropic_parse},
    {.path = "/v1/messages/count_tokens",
     .route = ROUTE_HANDLE,
     .error = lp_anthropic_error,
     .handle = lp_anthropic_count_tokens},
    {.path = "/debug/probe", .route = ROUTE_HANDLE, .handle = lp_debug_probe},
    {.path = "/tokenize", .route = ROUTE_HANDLE, .handle = lp_text_tokenize},
    {.path = "/detokenize", .route = ROUTE_HANDLE, .handle = lp_text_detokenize},
    {.path = "/apply-template", .route = ROUTE_HANDLE, .handle = lp_text_apply_template},
    {.path = "/v1/embeddings", .route = ROUTE_HANDLE, .handle = lp_text_no_embeddings},
};
#define N_ROUTES (sizeof routes / sizeof routes[0])
_Static_assert(N_ROUTES < LP_METRICS_MAX_ROUTES, "a route more needs more room in the counters");

static bool is_post(const struct lp_route *route) {
    return route->route == ROUTE_GENERATE || route->route == ROUTE_HANDLE;
}

json_t *lp_http_error_body(const struct lp_route *route, const struct lp_api_error *err) {
    return route && route->error ? route->error(err) : lp_api_error_json(err);
}

void lp_http_init_counts(struct lp_http_counts *counts) {
    for (size_t i = 0; i < N_ROUTES; i++)
        counts->routes[i] = routes[i].label ? routes[i].label : routes[i].path;
    counts->routes[N_ROUTES] = "other";
    counts->n_routes = (int)N_ROUTES + 1;
}

static const struct lp_route *find_route(const char *path) {
    for (size_t i = 0; i < N_ROUTES; i++) {
        const struct lp_route *r = &routes[i];
        size_t n = strlen(r->path);
        if (r->is_prefix ? strncmp(path, r->path, n) == 0 && path[n] : strcmp(path, r->path) == 0)
            return r;
    }
    return NULL;
}

static const char *methods_of(const struct lp_route *route) {
    return is_post(route) ? "POST" : "GET, HEAD";
}

// ---- bodies ----

static bool take_body_bytes(struct lp_server *s, struct lp_incoming *in, size_t n) {
    pthread_mutex_lock(&s->lock);
    bool ok = n <= s->max_bodies - s->body_bytes;
    if (ok) s->body_bytes += n;
    pthread_mutex_unlock(&s->lock);
    if (ok) in->reserved += n;
    return ok;
}

static void drop_body(struct lp_server *s, struct lp_incoming *in) {
    pthread_mutex_lock(&s->lock);
    s->body_bytes -= in->reserved;
    pthread_mutex_unlock(&s->lock);
    in->reserved = 0;
    lp_bytes_release(&in->body);
}

static bool too_large(const struct lp_server *s, struct lp_api_error *err) {
    return lp_api_fail(err, 413, NULL,
                       "the body is larger than %zu MiB, which is the most this server reads "
                       "(--max-body)",
                       s->max_body >> 20);
}

// Keeps a piece of the body, or says why not. An endless body ends the connection.
static int read_body(struct lp_server *s, struct lp_incoming *in, const char *data, size_t n) {
    if (!in->refused && (!is_post(in->route) || n > s->max_body - in->body.len)) {
        in->refused = is_post(in->route);
        if (in->refused) too_large(s, &in->err);
    } else if (!in->refused && !take_body_bytes(s, in, n)) {
        in->refused = true;
        lp_api_fail(&in->err, 503, NULL,
                    "the server is reading too many large requests; ask again later");
    } else if (!in->refused && !lp_bytes_append(&in->body, data, n)) {
        in->refused = true;
        lp_api_out_of_memory(&in->err);
    }
    if (in->refused) drop_body(s, in);
    if (in->refused || !is_post(in->route)) in->skipped += n;
    return in->skipped > s->max_body ? MHD_NO : MHD_YES;
}

// ---- answers ----

// The client has gone when it has closed its side, whatever it has sent ahead (a TLS client says
// goodbye first, so that looking for the end of what can be read is not enough).
static bool socket_closed(void *user) {
    struct pollfd one = {.fd = (int)(intptr_t)user, .events = POLLRDHUP};
    return poll(&one, 1, 0) > 0 && (one.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL));
}

static struct lp_str body_of(const struct lp_incoming *in) {
    return lp_bytes_view(&in->body);
}

static bool generate(struct lp_server *s, struct MHD_Connection *connection,
                     struct lp_incoming *in) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (!info) return false;
    struct lp_client client = {socket_closed, (void *)(intptr_t)info->connect_fd};
    struct lp_http_reply reply = {0};
    struct lp_str body = body_of(in);
    lp_http_set_timeout(connection, 0);
    struct lp_answer *answer = lp_answer_admit(&s->service, in->route->format, in->route->parse,
                                               &client, &in->access, body.data, body.len, &reply);
    drop_body(s, in);
    if (answer) lp_answer_run(answer, &reply);
    bool ok = lp_http_send_reply(s, connection, in, &reply); // false closes: nobody is left
    lp_http_reply_release(&reply);
    return ok;
}

static void handle(struct lp_server *s, struct lp_incoming *in, struct lp_http_reply *reply) {
    struct lp_str body = body_of(in);
    lp_tree_room_take(&s->service.trees, body.len);
    in->route->handle(&s->service, body.data, body.len, reply);
    lp_tree_room_give(&s->service.trees, body.len);
    drop_body(s, in);
}

static bool send_metrics(struct lp_server *s, struct MHD_Connection *connection,
                         struct lp_incoming *in) {
    // Not server->daemon, which is set behind the first request that may come.
    const union MHD_ConnectionInfo *of =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_DAEMON);
    const union MHD_DaemonInfo *info =
        of ? MHD_get_daemon_info(of->daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS) : NULL;
    limpid_engine_stats stats = limpid_engine_get_stats(s->service.engine);
    struct lp_bytes text = {0};
    struct lp_metrics_now now = {.n_connections = info ? (int64_t)info->num_connections : 0,
                                 .n_generating = atomic_load(&s->service.n_answers),
                                 .n_open = lp_http_count_incoming(s, 0),
                                 .healthy =
                                     lp_service_health(&s->service, NULL) < LP_HEALTH_STALLED,
                                 .draining = atomic_load(&s->service.draining),
                                 .n_repairs = atomic_load(&s->service.n_repairs),
                                 .model_id = s->model_id};
    bool ok = lp_metrics_write(&text, &stats, &s->counts, &now) &&
              lp_metrics_write_ranks(&text, s->service.engine) &&
              lp_http_send_text(s, connection, in, LP_METRICS_CONTENT_TYPE, &text);
    lp_bytes_release(&text);
    return ok;
}

static const char *argument(struct MHD_Connection *connection, const char *name) {
    return MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, name);
}

static bool send_trace(struct lp_server *s, struct MHD_Connection *connection,
                       struct lp_incoming *in) {
    struct lp_bytes text = {0};
    const char *type;
    struct lp_api_error err;
    bool ok = lp_debug_trace(&s->service, argument(connection, "request"),
                             argument(connection, "format"), &text, &type, &err)
                  ? lp_http_send_text(s, connection, in, type, &text)
                  : lp_http_send_error(s, connection, in, &err, NULL);
    lp_bytes_release(&text);
    return ok;
}

static bool answer(struct lp_server *s, struct MHD_Connection *connection, const char *path,
                   struct lp_incoming *in) {
    struct lp_http_reply reply = {0};
    switch (in->route->route) {
    case ROUTE_PAGE:
        return lp_http_send_page(s, connection, in);
    case ROUTE_METRICS:
        return send_metrics(s, connection, in);
    case ROUTE_TRACE:
        return send_trace(s, connection, in);
    case ROUTE_GENERATE:
        return generate(s, connection, in);
    case ROUTE_READY:
        lp_openai_health(&s->service, false, &reply);
        break;
    case ROUTE_LIVE:
        lp_openai_health(&s->service, true, &reply);
        break;
    case ROUTE_ENGINE:
        lp_engine_view(&s->service, argument(connection, "since"), &reply);
        break;
    case ROUTE_LAST_PROMPT:
        lp_last_prompt_view(&s->service, &reply);
        break;
    case ROUTE_MODELS:
        lp_openai_models(&s->service, NULL, &reply);
        break;
    case ROUTE_MODEL:
        lp_openai_models(&s->service, path + strlen(in->route->path), &reply);
        break;
    case ROUTE_HANDLE:
        lp_http_set_timeout(connection, 0); // what /debug/probe asks for may take a while
        handle(s, in, &reply);
        break;
    }
    bool ok = lp_http_send_reply(s, connection, in, &reply);
    lp_http_reply_release(&reply);
    return ok;
}

// ---- heads ----

static const char *header(struct MHD_Connection *connection, const char *name) {
    return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

static bool is_preflight(const struct lp_server *s, const struct lp_incoming *in) {
    return s->cors && in->route && strcmp(in->access.method, "OPTIONS") == 0;
}

// What can be said from the head alone. False with in->err filled.
static bool check_head(const struct lp_server *s, struct MHD_Connection *connection,
                       const char *path, const char *method, struct lp_incoming *in) {
    bool is_get = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0,
         posts = strcmp(method, "POST") == 0;
    in->route = find_route(path);
    if (is_preflight(s, in)) return true; // a browser sends it without the key
    if (s->api_key && !(in->route && in->route->is_open) &&
        !lp_auth_ok(s->api_key, header(connection, MHD_HTTP_HEADER_AUTHORIZATION)) &&
        !lp_auth_key_ok(s->api_key, header(connection, "x-api-key")))
        return lp_api_fail(&in->err, 401, "invalid_api_key",
                           "the API key is missing or wrong; send 'Authorization: Bearer KEY' or "
                           "'x-api-key: KEY'");
    if (!in->route)
        return lp_api_fail(&in->err, 404, NULL,
                           "there is no %.200s; this server has /v1/chat/completions, "
                           "/v1/completions, /v1/responses, /v1/messages, /v1/models, /tokenize, "
                           "/health, /metrics and a page at /",
                           path);
    if (is_post(in->route) ? !posts : !is_get)
        return lp_api_fail(&in->err, 405, NULL, "%.20s is not allowed for %.200s; use %s", method,
                           path, is_post(in->route) ? "POST" : "GET");
    const char *length = header(connection, MHD_HTTP_HEADER_CONTENT_LENGTH);
    if (posts && !length && !header(connection, MHD_HTTP_HEADER_TRANSFER_ENCODING))
        return lp_api_fail(&in->err, 411, NULL,
                           "the request has neither Content-Length nor Transfer-Encoding");
    if (length && strtoull(length, NULL, 10) > s->max_body) return too_large(s, &in->err);
    return true;
}

static void begin_access(struct lp_access *a, struct MHD_Connection *connection, const char *path,
                         const char *method) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    a->began_ns = lp_clock_ns();
    lp_request_id(a->id, header(connection, "X-Request-Id"));
    snprintf(a->method, sizeof a->method, "%s", method);
    snprintf(a->path, sizeof a->path, "%s", path);
    socklen_t n = info && info->client_addr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                                   : sizeof(struct sockaddr_in);
    if (!info ||
        getnameinfo(info->client_addr, n, a->client, sizeof a->client, NULL, 0, NI_NUMERICHOST))
        a->client[0] = 0;
}

int lp_http_count_incoming(struct lp_server *s, int change) {
    pthread_mutex_lock(&s->lock);
    int n = s->n_incoming += change;
    pthread_mutex_unlock(&s->lock);
    return n;
}

static bool send_refusal(struct lp_server *s, struct MHD_Connection *connection,
                         struct lp_incoming *in) {
    return lp_http_send_error(s, connection, in, &in->err,
                              in->err.http == 405 ? methods_of(in->route) : NULL);
}

int lp_http_on_request(struct lp_server *s, struct MHD_Connection *connection, const char *path,
                       const char *method, const char *data, size_t *n_data, void **state) {
    struct lp_incoming *in = *state;
    if (!in) {
        if (!(in = lp_alloc(1, sizeof *in))) return MHD_NO;
        *state = in;
        lp_http_count_incoming(s, 1);
        begin_access(&in->access, connection, path, method);
        in->refused = !check_head(s, connection, path, method, in);
        // Too long to be read only to be thrown away: answer at once; the library then closes.
        return in->refused && in->err.http == 413 ? send_refusal(s, connection, in) : MHD_YES;
    }
    if (*n_data) {
        size_t n = *n_data;
        *n_data = 0;
        return read_body(s, in, data, n);
    }
    if (in->refused) return send_refusal(s, connection, in);
    if (is_preflight(s, in))
        return lp_http_send_preflight(s, connection, in, methods_of(in->route));
    return answer(s, connection, path, in);
}

void lp_http_on_completed(struct lp_server *s, void **state) {
    struct lp_incoming *in = *state;
    if (!in) return;
    lp_http_leave_sender(in);
    drop_body(s, in);
    in->access.end_ns = lp_clock_ns();
    lp_http_counts_add(&s->counts, in->route ? (int)(in->route - routes) : -1,
                       in->access.status ? in->access.status : 499);
    lp_access_log_write(s->access_log, &in->access);
    lp_free(in);
    *state = NULL;
    lp_http_count_incoming(s, -1);
}
