// The server's transport: sockets, threads, limits and routes. The only file that sees the HTTP
// library.
//
// A thread per connection, in which the request is read, runs and is answered. What a client can
// hold: one of N_CONNECTIONS threads; MAX_BODY bytes, and all clients together MAX_BODIES; IDLE_S
// seconds without a byte; and the engine's turn, when it stops reading a stream, SEND_S seconds.
#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "serve/auth.h"
#include "serve/openai.h"
#include "serve/serve.h"

#define N_CONNECTIONS 256u
#define MAX_BODY ((size_t)32 << 20)
#define MAX_BODIES ((size_t)256 << 20)
#define IDLE_S 60u
#define SEND_S 20u
#define STREAM_BLOCK 16384

#define STOP_STEPS 300 // of 10 ms: how long a stop waits for running requests

struct lp_server {
    struct lp_service service;
    char *model_id, *api_key; // key NULL: open
    struct MHD_Daemon *daemon;
    int port;
    pthread_mutex_t lock; // body_bytes, n_incoming
    size_t body_bytes;    // of all requests that are being read or answered
    int n_incoming;       // those requests
};

enum route { ROUTE_HEALTH, ROUTE_MODELS, ROUTE_MODEL, ROUTE_COMPLETIONS, ROUTE_NONE };

static const struct route_row {
    const char *path;
    enum route route;
    bool is_prefix, is_post;
} routes[] = {
    {"/health", ROUTE_HEALTH, false, false},
    {"/v1/models", ROUTE_MODELS, false, false},
    {"/v1/models/", ROUTE_MODEL, true, false},
    {"/v1/completions", ROUTE_COMPLETIONS, false, true},
};

// One request on its way in; from the first sight of its head until it has been answered.
struct incoming {
    const struct route_row *route; // NULL: none has the path
    struct lp_bytes body;
    size_t reserved; // of server->body_bytes
    size_t skipped;  // body bytes that were read and thrown away
    bool refused;    // err is the answer; the body is only skipped
    struct lp_api_error err;
};

static const struct route_row *find_route(const char *path) {
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        const struct route_row *r = &routes[i];
        size_t n = strlen(r->path);
        if (r->is_prefix ? strncmp(path, r->path, n) == 0 && path[n] : strcmp(path, r->path) == 0)
            return r;
    }
    return NULL;
}

static bool take_body_bytes(struct lp_server *s, struct incoming *in, size_t n) {
    pthread_mutex_lock(&s->lock);
    bool ok = n <= MAX_BODIES - s->body_bytes;
    if (ok) s->body_bytes += n;
    pthread_mutex_unlock(&s->lock);
    if (ok) in->reserved += n;
    return ok;
}

static void drop_body(struct lp_server *s, struct incoming *in) {
    pthread_mutex_lock(&s->lock);
    s->body_bytes -= in->reserved;
    pthread_mutex_unlock(&s->lock);
    in->reserved = 0;
    lp_bytes_release(&in->body);
}

// ---- answers ----

static enum MHD_Result queue(struct MHD_Connection *connection, unsigned status,
                             struct MHD_Response *response, const char *content_type,
                             const char *allow) {
    if (!response) return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, content_type);
    if (allow) MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, allow);
    if (status == 401)
        MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result send_json(struct MHD_Connection *connection, struct lp_reply *reply,
                                 const char *allow) {
    struct MHD_Response *response =
        MHD_create_response_from_buffer(reply->body.len, reply->body.data, MHD_RESPMEM_MUST_COPY);
    return queue(connection, (unsigned)reply->status, response, "application/json", allow);
}

static enum MHD_Result send_error(struct MHD_Connection *connection, const struct lp_api_error *err,
                                  const char *allow) {
    struct lp_reply reply = {0};
    lp_openai_error(&reply, err);
    enum MHD_Result result = send_json(connection, &reply, allow);
    lp_reply_release(&reply);
    return result;
}

// The library's clock runs while we compute; only the time that the client takes shall count.
static void set_timeout(struct MHD_Connection *connection, unsigned seconds) {
    MHD_set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT, seconds);
}

struct sender {
    struct MHD_Connection *connection;
    struct lp_stream *stream;
    struct lp_bytes out;
    size_t sent;
    bool ended;
};

static ssize_t send_stream(void *user, uint64_t position, char *to, size_t max) {
    struct sender *s = user;
    (void)position;
    if (s->sent == s->out.len) {
        if (s->ended) return MHD_CONTENT_READER_END_OF_STREAM;
        lp_bytes_clear(&s->out);
        s->sent = 0;
        set_timeout(s->connection, 0);
        s->ended = !lp_stream_next(s->stream, &s->out);
        set_timeout(s->connection, SEND_S);
        if (s->out.failed || s->out.len == 0) return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    size_t n = s->out.len - s->sent < max ? s->out.len - s->sent : max;
    memcpy(to, s->out.data + s->sent, n);
    s->sent += n;
    return (ssize_t)n;
}

static void free_sender(void *user) {
    struct sender *s = user;
    lp_stream_free(s->stream);
    lp_bytes_release(&s->out);
    lp_free(s);
}

static enum MHD_Result begin_sending(struct MHD_Connection *connection, struct lp_reply *reply) {
    struct sender *s = lp_alloc(1, sizeof *s);
    if (!s) return MHD_NO;
    s->connection = connection;
    s->stream = reply->stream;
    reply->stream = NULL;
    struct MHD_Response *response = MHD_create_response_from_callback(
        MHD_SIZE_UNKNOWN, STREAM_BLOCK, send_stream, s, free_sender);
    if (!response) {
        free_sender(s);
        return MHD_NO;
    }
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    MHD_add_response_header(response, "X-Accel-Buffering",
                            "no"); // a proxy shall pass events on at once
    return queue(connection, 200, response, "text/event-stream; charset=utf-8", NULL);
}

// ---- requests ----

// The client of a socket has gone when it has closed its side. What it has sent ahead stays unread.
static bool socket_closed(void *user) {
    char byte;
    ssize_t n = recv((int)(intptr_t)user, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

static enum MHD_Result run_completions(struct lp_server *s, struct MHD_Connection *connection,
                                       struct incoming *in) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (!info) return MHD_NO;
    struct lp_client client = {socket_closed, (void *)(intptr_t)info->connect_fd};
    struct lp_reply reply = {0};
    set_timeout(connection, 0);
    lp_openai_completions(&s->service, &client, in->body.data ? in->body.data : "", in->body.len,
                          &reply);
    drop_body(s, in);
    set_timeout(connection, reply.stream ? SEND_S : IDLE_S);
    enum MHD_Result result = MHD_NO; // closes: nobody is left
    if (reply.stream)
        result = begin_sending(connection, &reply);
    else if (reply.status)
        result = send_json(connection, &reply, NULL);
    lp_reply_release(&reply);
    return result;
}

static enum MHD_Result answer(struct lp_server *s, struct MHD_Connection *connection,
                              const char *path, struct incoming *in) {
    struct lp_reply reply = {0};
    switch (in->route->route) {
    case ROUTE_HEALTH:
        lp_openai_health(&reply);
        break;
    case ROUTE_MODELS:
        lp_openai_models(&s->service, NULL, &reply);
        break;
    case ROUTE_MODEL:
        lp_openai_models(&s->service, path + strlen(in->route->path), &reply);
        break;
    case ROUTE_COMPLETIONS:
        return run_completions(s, connection, in);
    case ROUTE_NONE:
        return MHD_NO;
    }
    enum MHD_Result result = send_json(connection, &reply, NULL);
    lp_reply_release(&reply);
    return result;
}

static const char *header(struct MHD_Connection *connection, const char *name) {
    return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

static const char *allowed(const struct incoming *in) {
    return in->err.http == 405 ? in->route->is_post ? "POST" : "GET, HEAD" : NULL;
}

static bool too_large(struct lp_api_error *err) {
    return lp_api_fail(err, 413, NULL,
                       "the body is larger than %zu MiB, which is the most this server reads",
                       MAX_BODY >> 20);
}

// What can be said from the head alone. False with in->err filled.
static bool check_head(const struct lp_server *s, struct MHD_Connection *connection,
                       const char *path, const char *method, struct incoming *in) {
    bool is_get = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0,
         is_post = strcmp(method, "POST") == 0;
    in->route = find_route(path);
    bool is_open = in->route && in->route->route == ROUTE_HEALTH;
    if (s->api_key && !is_open &&
        !lp_auth_ok(s->api_key, header(connection, MHD_HTTP_HEADER_AUTHORIZATION)))
        return lp_api_fail(&in->err, 401, "invalid_api_key",
                           "the API key is missing or wrong; send 'Authorization: Bearer KEY'");
    if (!in->route)
        return lp_api_fail(
            &in->err, 404, NULL,
            "there is no %.200s; this server has /v1/completions, /v1/models and /health", path);
    if (in->route->is_post ? !is_post : !is_get)
        return lp_api_fail(&in->err, 405, NULL, "%.20s is not allowed for %.200s; use %s", method,
                           path, in->route->is_post ? "POST" : "GET");
    const char *length = header(connection, MHD_HTTP_HEADER_CONTENT_LENGTH);
    if (is_post && !length && !header(connection, MHD_HTTP_HEADER_TRANSFER_ENCODING))
        return lp_api_fail(&in->err, 411, NULL,
                           "the request has neither Content-Length nor Transfer-Encoding");
    if (length && strtoull(length, NULL, 10) > MAX_BODY) return too_large(&in->err);
    return true;
}

// Keeps a piece of the body, or says why not. An endless body ends the connection.
static enum MHD_Result read_body(struct lp_server *s, struct incoming *in, const char *data,
                                 size_t n) {
    if (!in->refused && (!in->route->is_post || n > MAX_BODY - in->body.len)) {
        in->refused = in->route->is_post;
        if (in->refused) too_large(&in->err);
    } else if (!in->refused && !take_body_bytes(s, in, n)) {
        in->refused = true;
        lp_api_fail(&in->err, 503, NULL,
                    "the server is reading too many large requests; ask again later");
    } else if (!in->refused && !lp_bytes_append(&in->body, data, n)) {
        in->refused = true;
        lp_api_out_of_memory(&in->err);
    }
    if (in->refused) drop_body(s, in);
    if (in->refused || !in->route->is_post) in->skipped += n;
    return in->skipped > MAX_BODY ? MHD_NO : MHD_YES;
}

// The library calls this with the head, with pieces of the body, and when the request is whole.
static int count_incoming(struct lp_server *s, int change) {
    pthread_mutex_lock(&s->lock);
    int n = s->n_incoming += change;
    pthread_mutex_unlock(&s->lock);
    return n;
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *connection, const char *path,
                                  const char *method, const char *version, const char *data,
                                  size_t *n_data, void **state) {
    struct lp_server *s = user;
    struct incoming *in = *state;
    (void)version;
    if (!in) {
        if (!(in = lp_alloc(1, sizeof *in))) return MHD_NO;
        *state = in;
        count_incoming(s, 1);
        in->refused = !check_head(s, connection, path, method, in);
        // Too long to be read only to be thrown away: answer at once; the library then closes.
        return in->refused && in->err.http == 413 ? send_error(connection, &in->err, NULL)
                                                  : MHD_YES;
    }
    if (*n_data) {
        size_t n = *n_data;
        *n_data = 0;
        return read_body(s, in, data, n);
    }
    return in->refused ? send_error(connection, &in->err, allowed(in))
                       : answer(s, connection, path, in);
}

static void on_completed(void *user, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode code) {
    (void)connection, (void)code;
    if (!*state) return;
    drop_body(user, *state);
    lp_free(*state);
    *state = NULL;
    count_incoming(user, -1);
}

static void on_log(void *user, const char *format, va_list args) {
    char line[512];
    (void)user;
    vsnprintf(line, sizeof line, format, args);
    line[strcspn(line, "\r\n")] = 0;
    lp_log(LP_LOG_DEBUG, "http: %s", line);
}

// ---- start and stop ----

static lp_status listen_on(const char *host, int port, int *out, struct lp_err *err) {
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE},
                    *list;
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    int failed = getaddrinfo(host, service, &hints, &list), on = 1, saved = 0;
    if (failed)
        return lp_err_set(err, LP_STATUS_IO, "host '%s' is no address to listen on: %s", host,
                          gai_strerror(failed));
    *out = -1;
    for (const struct addrinfo *a = list; a && *out < 0; a = a->ai_next) {
        int fd =
            socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
        if (fd >= 0) {
            setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on,
                       sizeof on); // inherited: each token leaves at once
            if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, (int)N_CONNECTIONS) == 0)
                *out = fd;
        }
        if (*out < 0) {
            saved = errno;
            if (fd >= 0) close(fd);
        }
    }
    freeaddrinfo(list);
    if (*out >= 0) return LP_OK;
    return lp_err_set(err, LP_STATUS_IO,
                      "cannot listen on %s port %d: %s; choose another --host or --port", host,
                      port, strerror(saved));
}

static int port_of(int fd) {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_storage room;
    } address;
    socklen_t n = sizeof address;
    if (getsockname(fd, &address.any, &n)) return 0;
    return ntohs(address.any.sa_family == AF_INET6 ? address.v6.sin6_port : address.v4.sin_port);
}

static lp_status start_daemon(struct lp_server *s, int fd, struct lp_err *err) {
    struct MHD_OptionItem options[] = {
        {MHD_OPTION_LISTEN_SOCKET, fd, NULL},
        {MHD_OPTION_CONNECTION_LIMIT, N_CONNECTIONS, NULL},
        {MHD_OPTION_CONNECTION_TIMEOUT, IDLE_S, NULL},
        {MHD_OPTION_END, 0, NULL},
    };
    s->daemon = MHD_start_daemon(MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD |
                                     MHD_USE_POLL | MHD_USE_ITC | MHD_USE_ERROR_LOG,
                                 0, NULL, NULL, on_request, s, MHD_OPTION_EXTERNAL_LOGGER, on_log,
                                 NULL, MHD_OPTION_NOTIFY_COMPLETED, on_completed, s,
                                 MHD_OPTION_ARRAY, options, MHD_OPTION_END);
    return s->daemon ? LP_OK
                     : lp_err_set(err, LP_STATUS_IO, "the HTTP server does not start: %s",
                                  strerror(errno));
}

static lp_status set_up(struct lp_server *s, const struct lp_server_options *o,
                        struct lp_err *err) {
    pthread_mutex_init(&s->lock, NULL); // cannot fail on Linux without attributes
    pthread_mutex_init(&s->service.parse_lock, NULL);
    s->model_id = lp_strdup(o->model_id);
    s->api_key = o->api_key ? lp_strdup(o->api_key) : NULL;
    if (!s->model_id || (o->api_key && !s->api_key))
        return lp_err_memory(err, 0, "the server's settings");
    s->service.model = o->model;
    s->service.engine = o->engine;
    s->service.model_id = s->model_id;
    s->service.created = (int64_t)time(NULL);
    s->service.chunk = o->chunk;
    int fd;
    lp_status status = listen_on(o->host, o->port, &fd, err);
    if (status) return status;
    s->port = port_of(fd);
    status = start_daemon(s, fd, err);
    if (status) close(fd);
    return status;
}

static void release(struct lp_server *s) {
    lp_turn_release(&s->service.turn);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->service.parse_lock);
    lp_free(s->model_id);
    lp_free(s->api_key);
    lp_free(s);
}

lp_status lp_server_start(struct lp_server **out, const struct lp_server_options *options,
                          struct lp_err *err) {
    struct lp_server *s = lp_alloc(1, sizeof *s);
    if (!s) return lp_err_memory(err, sizeof *s, "the server");
    lp_status status = lp_turn_init(&s->service.turn, err);
    if (status) {
        lp_free(s);
        return status;
    }
    status = set_up(s, options, err);
    if (status)
        release(s);
    else
        *out = s;
    return status;
}

int lp_server_port(const struct lp_server *server) {
    return server->port;
}

void lp_server_stop(struct lp_server *server) {
    if (!server) return;
    MHD_socket fd = MHD_quiesce_daemon(server->daemon);
    if (fd != MHD_INVALID_SOCKET) close(fd);
    lp_turn_close(&server->service.turn); // whoever generates sees it at its next token
    // Stopping the daemon cuts connections, so the last words of a stream are waited for.
    const struct timespec step = {.tv_nsec = 10 * 1000 * 1000};
    for (int i = 0; i < STOP_STEPS && count_incoming(server, 0) > 0; i++) nanosleep(&step, NULL);
    MHD_stop_daemon(server->daemon); // waits for the connections' threads
    release(server);
}
