// limpid serve: the HTTP server, until a signal ends it.
//
// SIGINT and SIGTERM are taken by one thread that waits for nothing else. While the model loads
// they end the program as usual; afterwards the first one stops the server, and a second one the
// program.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/args.h"
#include "serve/serve.h"

#define DEFAULT_CHUNK 512 // of limpid_engine_options

struct signals {
    sigset_t set;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool serving, stop;
};

static void *watch_signals(void *user) {
    struct signals *s = user;
    for (;;) {
        int number;
        if (sigwait(&s->set, &number)) continue;
        pthread_mutex_lock(&s->lock);
        bool first = s->serving && !s->stop;
        s->stop = true;
        pthread_cond_signal(&s->changed);
        pthread_mutex_unlock(&s->lock);
        if (first) continue;
        signal(number, SIG_DFL);
        pthread_sigmask(SIG_UNBLOCK, &s->set, NULL);
        raise(number);
    }
    return NULL;
}

// Before any other thread exists: all inherit the mask.
static int signals_init(struct signals *s) {
    *s = (struct signals){.serving = false};
    sigemptyset(&s->set);
    sigaddset(&s->set, SIGINT);
    sigaddset(&s->set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &s->set, NULL);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    int failed = pthread_create(&s->thread, NULL, watch_signals, s);
    return failed ? lp_fail_text("cannot start a thread: %s", strerror(failed)) : LP_EXIT_OK;
}

static void signals_set_serving(struct signals *s) {
    pthread_mutex_lock(&s->lock);
    s->serving = true;
    pthread_mutex_unlock(&s->lock);
}

static void signals_wait(struct signals *s) {
    pthread_mutex_lock(&s->lock);
    while (!s->stop) pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

static void signals_release(struct signals *s) {
    pthread_cancel(s->thread); // in sigwait
    pthread_join(s->thread, NULL);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
}

// The file's name without its folder, ".gguf" and "-00001-of-00003".
static char *file_stem(const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t n = strlen(name);
    if (n > 5 && strcmp(name + n - 5, ".gguf") == 0) n -= 5;
    int part, parts, used = 0;
    if (n > 15 && sscanf(name + n - 15, "-%5d-of-%5d%n", &part, &parts, &used) == 2 && used == 15)
        n -= 15;
    return lp_strndup(name, n);
}

static int serve(struct signals *signals, const struct lp_server_options *options) {
    struct lp_server *server;
    struct lp_err err;
    if (lp_server_start(&server, options, &err)) return lp_fail_text("%s", err.text);
    signals_set_serving(signals);
    const char *v6 = strchr(options->host, ':');
    printf("limpid: serving %s at http://%s%s%s:%d\n", options->model_id, v6 ? "[" : "",
           options->host, v6 ? "]" : "", lp_server_port(server));
    fflush(stdout);
    signals_wait(signals);
    lp_server_stop(server);
    return LP_EXIT_OK;
}

static int load_and_serve(const struct lp_common *common, const char *path, const char *name,
                          struct lp_server_options *options) {
    struct signals signals;
    limpid_error err;
    char *stem = NULL;
    int status = signals_init(&signals);
    if (status) return status;
    status = lp_common_open_model(common, path, &options->model);
    if (!status) status = lp_common_open_engine(common, options->model, &options->engine);
    if (!status) {
        const char *given = limpid_model_get_info(options->model).name;
        if (!name && !given[0]) stem = file_stem(path);
        options->model_id = name ? name : given[0] ? given : stem;
        if (!options->model_id) status = lp_fail_text("out of memory: the model's name");
    }
    int64_t context = status ? 0 : limpid_engine_context(options->engine);
    options->chunk = common->chunk ? common->chunk : DEFAULT_CHUNK;
    if (options->chunk > context) options->chunk = context;
    if (!status) status = serve(&signals, options);
    if (limpid_engine_free(options->engine, &err) && !status) status = lp_fail(&err);
    limpid_model_close(options->model);
    lp_free(stem);
    signals_release(&signals);
    return status;
}

static int run(int argc, char **argv) {
    struct lp_common common;
    const char *path = NULL, *name = NULL;
    struct lp_server_options server = {.host = "127.0.0.1"};
    int64_t port = 8080, max_seqs = 1;
    struct lp_option options[LP_N_COMMON + 5] = {
        {"--host", LP_OPT_TEXT, &server.host, "H",
         "name or address to listen on (default 127.0.0.1: this machine only)"},
        {"--port", LP_OPT_INT, &port, "P",
         "port (default 8080); 0 = any free one, named in the line when ready"},
        {"--api-key", LP_OPT_TEXT, &server.api_key, "K",
         "ask for 'Authorization: Bearer K' on all but /health"},
        {"--max-seqs", LP_OPT_INT, &max_seqs, "N",
         "sequences at a time; in this version requests run one after another, whatever N"},
        {"--name", LP_OPT_TEXT, &name, "NAME",
         "the model's id (default: the file's general.name, or the file's name)"},
    };
    lp_common_options(&common, options + 5);
    int status = lp_args_parse(argc, argv, &lp_cmd_serve, options, LP_N_COMMON + 5, &path, 1);
    if (status) return status < 0 ? LP_EXIT_OK : status;
    if (!path) return lp_usage(&lp_cmd_serve, "MODEL is needed");
    if (port > 65535)
        return lp_usage(&lp_cmd_serve, "--port is %lld, expected 0 to 65535", (long long)port);
    if (max_seqs < 1) return lp_usage(&lp_cmd_serve, "--max-seqs is 0, expected 1 or more");
    if (server.api_key && !server.api_key[0])
        return lp_usage(&lp_cmd_serve, "--api-key is empty; leave it out to ask for none");
    if (name && !name[0]) return lp_usage(&lp_cmd_serve, "--name is empty");
    server.port = (int)port;
    return load_and_serve(&common, path, name, &server);
}

const struct lp_command lp_cmd_serve = {"serve",
                                        "MODEL [--host H] [--port P] [--api-key K] [--name NAME]",
                                        "an HTTP server with OpenAI's completions; prints one line "
                                        "when ready, stops on SIGINT or SIGTERM",
                                        run};
