// The server's start and stop: sockets, TLS, threads and limits.
//
// A thread per connection, in which the request is read, waits for the engine and is answered. What
// a client can hold: one of max_connections threads; max_body bytes, and all clients together
// N_BODIES times that; HEADER_BYTES for its head; idle_s seconds without a byte. A client that does
// not read its stream holds what the engine has generated for it, but not the engine, and is cut
// after SEND_S.
#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "serve/engine_view.h"
#include "serve/http.h"

#define N_BODIES 8
#define TREE_ROOM ((size_t)4 << 20) // beside the largest body
#define HEADER_BYTES ((size_t)32 << 10)
#define SEND_S 20u
#define OTHER_FILES 64 // descriptors for everything but connections
#define MAX_PEM ((size_t)1 << 20)
#define STOP_S 3.0 // how long a stop waits for the last words of cancelled streams

struct lp_server_options lp_server_default_options(void) {
    return (struct lp_server_options){.host = "127.0.0.1",
                                      .port = 8080,
                                      .max_connections = 256,
                                      .max_body = (size_t)32 << 20,
                                      .keepalive_ms = 5000,
                                      .idle_s = 60,
                                      .drain_s = 30,
                                      .stall_s = 300,
                                      .temperature = 1,
                                      .top_p = 1,
                                      .repetition_penalty = 1};
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *connection, const char *path,
                                  const char *method, const char *version, const char *data,
                                  size_t *n_data, void **state) {
    (void)version;
    return lp_http_on_request(user, connection, path, method, data, n_data, state) ? MHD_YES
                                                                                   : MHD_NO;
}

static void on_completed(void *user, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode code) {
    (void)connection, (void)code;
    lp_http_on_completed(user, state);
}

static void on_log(void *user, const char *format, va_list args) {
    char line[512];
    (void)user;
    vsnprintf(line, sizeof line, format, args);
    line[strcspn(line, "\r\n")] = 0;
    lp_log(LP_LOG_DEBUG, "http: %s", line);
}

// ---- start ----

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
            if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0) *out = fd;
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

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_storage room;
};

static bool is_loopback(const union address *a) {
    if (a->any.sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr) ||
               (IN6_IS_ADDR_V4MAPPED(&a->v6.sin6_addr) && a->v6.sin6_addr.s6_addr[12] == 127);
    return ntohl(a->v4.sin_addr.s_addr) >> 24 == 127;
}

// The port it is, and a word about who can reach it.
static void look_at_socket(struct lp_server *s, int fd, const char *host) {
    union address a;
    socklen_t n = sizeof a;
    if (getsockname(fd, &a.any, &n)) return;
    s->port = ntohs(a.any.sa_family == AF_INET6 ? a.v6.sin6_port : a.v4.sin_port);
    if (!s->api_key && !is_loopback(&a))
        lp_log(LP_LOG_WARN,
               "whoever reaches %s may use this server, as there is no --api-key for it", host);
}

static lp_status read_pem(char **out, const char *path, const char *option, struct lp_err *err) {
    if (!(*out = lp_alloc(MAX_PEM + 1, 1))) return lp_err_memory(err, MAX_PEM, option);
    FILE *file = fopen(path, "re");
    size_t n = file ? fread(*out, 1, MAX_PEM + 1, file) : 0;
    int saved = errno;
    bool bad = !file || ferror(file);
    if (file) fclose(file);
    if (bad)
        return lp_err_set(err, LP_STATUS_IO, "%s: cannot read '%s': %s", option, path,
                          strerror(saved));
    if (n > MAX_PEM || !memmem(*out, n, "-----BEGIN ", 11))
        return lp_err_set(err, LP_STATUS_FORMAT, "%s: '%s' is no PEM file", option, path);
    (*out)[n] = 0;
    return LP_OK;
}

static lp_status read_tls(struct lp_server *s, const struct lp_server_options *o,
                          struct lp_err *err) {
    if (!o->tls_cert) return LP_OK;
    if (MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
        return lp_err_set(err, LP_STATUS_UNSUPPORTED,
                          "this libmicrohttpd was built without TLS; leave out --tls-cert and "
                          "--tls-key, or put a proxy in front");
    lp_status status = read_pem(&s->tls_cert, o->tls_cert, "--tls-cert", err);
    return status ? status : read_pem(&s->tls_key, o->tls_key, "--tls-key", err);
}

// A connection needs a descriptor; the soft limit is often lower than it could be.
static unsigned allowed_connections(int wanted) {
    struct rlimit limit;
    rlim_t need = (rlim_t)wanted + OTHER_FILES;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= need) return (unsigned)wanted;
    limit.rlim_cur = limit.rlim_max < need ? limit.rlim_max : need;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur >= need) return (unsigned)wanted;
    unsigned can =
        limit.rlim_cur > 2 * OTHER_FILES ? (unsigned)(limit.rlim_cur - OTHER_FILES) : OTHER_FILES;
    lp_log(LP_LOG_WARN, "at most %u connections instead of %d: this process may open %llu files",
           can, wanted, (unsigned long long)limit.rlim_cur);
    return can;
}

static lp_status start_daemon(struct lp_server *s, int fd, const struct lp_server_options *o,
                              struct lp_err *err) {
    struct MHD_OptionItem options[] = {
        {MHD_OPTION_LISTEN_SOCKET, fd, NULL},
        {MHD_OPTION_CONNECTION_LIMIT, (intptr_t)allowed_connections(o->max_connections), NULL},
        {MHD_OPTION_CONNECTION_TIMEOUT, (intptr_t)s->idle_s, NULL},
        {MHD_OPTION_CONNECTION_MEMORY_LIMIT, (intptr_t)HEADER_BYTES, NULL},
        {s->tls_cert ? MHD_OPTION_HTTPS_MEM_CERT : MHD_OPTION_END, 0, s->tls_cert},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, s->tls_key},
        {MHD_OPTION_END, 0, NULL},
    };
    unsigned flags = MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD |
                     MHD_USE_POLL | MHD_USE_ITC | MHD_USE_ERROR_LOG |
                     (s->tls_cert ? MHD_USE_TLS : 0);
    s->daemon = MHD_start_daemon(flags, 0, NULL, NULL, on_request, s, MHD_OPTION_EXTERNAL_LOGGER,
                                 on_log, NULL, MHD_OPTION_NOTIFY_COMPLETED, on_completed, s,
                                 MHD_OPTION_ARRAY, options, MHD_OPTION_END);
    if (s->daemon) return LP_OK;
    return s->tls_cert ? lp_err_set(err, LP_STATUS_FORMAT,
                                    "the HTTPS server does not start: is '%s' a certificate, and "
                                    "'%s' its key without a password?",
                                    o->tls_cert, o->tls_key)
                       : lp_err_set(err, LP_STATUS_IO, "the HTTP server does not start: %s",
                                    strerror(errno));
}

static bool copy_text(char **to, const char *from) {
    *to = from ? lp_strdup(from) : NULL;
    return !from || *to;
}

static size_t longest_token(const limpid_model *model) {
    limpid_error err;
    size_t longest = 0, n;
    char *bytes;
    for (int32_t id = 0; id < limpid_model_get_info(model).n_vocab; id++) {
        if (limpid_token_bytes(model, id, &bytes, &n, &err)) return 0;
        if (n > longest) longest = n;
        limpid_free(bytes);
    }
    return longest;
}

static lp_status set_up(struct lp_server *s, const struct lp_server_options *o,
                        struct lp_err *err) {
    if (!copy_text(&s->model_id, o->model_id) || !copy_text(&s->api_key, o->api_key) ||
        !copy_text(&s->cors, o->cors) || !copy_text(&s->aliases, o->aliases))
        return lp_err_memory(err, 0, "the server's settings");
    s->max_body = o->max_body;
    s->max_bodies = o->max_body * N_BODIES;
    s->idle_s = (unsigned)o->idle_s;
    s->send_s = s->idle_s && s->idle_s < SEND_S ? s->idle_s : SEND_S;
    s->drain_s = o->drain_s;
    s->service.model = o->model;
    s->service.engine = o->engine;
    s->service.model_id = s->model_id;
    s->service.created = (int64_t)time(NULL);
    s->service.timeout_ms = o->timeout_ms;
    s->service.keepalive_ms = o->keepalive_ms;
    s->service.stall_s = o->stall_s;
    s->service.aliases = s->aliases ? s->aliases : "";
    s->service.sampling =
        (struct lp_sampling_defaults){.temperature = o->temperature,
                                      .top_p = o->top_p,
                                      .min_p = o->min_p,
                                      .top_k = o->top_k,
                                      .repetition_penalty = o->repetition_penalty};
    s->service.keep_last_prompt = o->debug_prompts;
    s->service.debug_probes = o->debug_probes && o->api_key;
    atomic_flag_clear(&s->service.probing);
    const char *chat_template = limpid_model_chat_template(o->model);
    s->service.chat_template = chat_template ? chat_template : "";
    s->service.syntax = lp_reply_detect(chat_template);
    s->service.longest_token = longest_token(o->model);
    if (!(s->service.turns = lp_turns_new(LP_TURNS_BYTES)))
        return lp_err_memory(err, 0, "the server's settings");
    lp_status status = read_tls(s, o, err);
    if (!status && o->access_log) status = lp_access_log_open(&s->access_log, o->access_log, err);
    int fd;
    if (!status) status = listen_on(o->host, o->port, &fd, err);
    if (status) return status;
    look_at_socket(s, fd, o->host);
    status = start_daemon(s, fd, o, err);
    if (status) close(fd);
    return status;
}

static void release(struct lp_server *s) {
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->counts.lock);
    lp_stall_dump_end(&s->service.stall);
    lp_tree_room_release(&s->service.trees);
    lp_access_log_close(s->access_log);
    lp_turns_free(s->service.turns);
    lp_last_prompt_release(&s->service);
    pthread_mutex_destroy(&s->service.last_prompt.lock);
    lp_free(s->model_id);
    lp_free(s->api_key);
    lp_free(s->cors);
    lp_free(s->aliases);
    lp_free(s->tls_cert);
    lp_free(s->tls_key);
    lp_free(s);
}

lp_status lp_server_start(struct lp_server **out, const struct lp_server_options *options,
                          struct lp_err *err) {
    struct lp_server *s = lp_alloc(1, sizeof *s);
    if (!s) return lp_err_memory(err, sizeof *s, "the server");
    pthread_mutex_init(&s->lock, NULL); // cannot fail on Linux without attributes
    pthread_mutex_init(&s->counts.lock, NULL);
    lp_tree_room_init(&s->service.trees, options->max_body + TREE_ROOM);
    pthread_mutex_init(&s->service.last_prompt.lock, NULL);
    lp_http_init_counts(&s->counts);
    lp_status status = set_up(s, options, err);
    if (status)
        release(s);
    else
        *out = s;
    return status;
}

int lp_server_port(const struct lp_server *server) {
    return server->port;
}

// ---- stop ----

static int n_answers(struct lp_server *s) {
    return atomic_load(&s->service.n_answers);
}

static int n_incoming(struct lp_server *s) {
    return lp_http_count_incoming(s, 0);
}

static void wait_for_none(struct lp_server *s, int (*count)(struct lp_server *), double seconds) {
    const struct timespec step = {.tv_nsec = 10 * 1000 * 1000};
    const uint64_t began = lp_clock_ns();
    while (count(s) > 0 && (double)(lp_clock_ns() - began) < seconds * 1e9) nanosleep(&step, NULL);
}

void lp_server_stop(struct lp_server *server) {
    if (!server) return;
    atomic_store(&server->service.draining, true);
    wait_for_none(server, n_answers, server->drain_s);
    MHD_socket fd = MHD_quiesce_daemon(server->daemon);
    if (fd != MHD_INVALID_SOCKET) close(fd);
    atomic_store(&server->service.stopping, true); // whoever waits sees it within a moment
    // Stopping the daemon cuts connections, so the last words of a stream are waited for.
    wait_for_none(server, n_incoming, STOP_S);
    MHD_stop_daemon(server->daemon); // waits for the connections' threads
    release(server);
}
