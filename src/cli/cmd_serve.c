// limpid serve: the HTTP server, until a signal ends it.
//
// SIGINT and SIGTERM are taken by one thread that waits for nothing else. While the model loads
// they end the program as usual; afterwards the first one drains and stops the server, and a second
// one ends the program. So does the time: a step that hangs must not keep it.
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clean.h"
#include "base/clock.h"
#include "base/log.h"
#include "cli/args.h"
#include "cli/find_model.h"
#include "cli/memory_check.h"
#include "cli/program_ranks.h"
#include "cli/sample_options.h"
#include "cli/size_text.h"
#include "serve/serve.h"

// Connections that neither wait nor run: health, metrics, clients between two requests.
#define SPARE_CONNECTIONS 64
#define OPEN_CONNECTIONS 4000 // where any number may wait
#define MAX_CONNECTIONS 16384
#define KV_CONTEXTS 4     // contexts that the KV cache holds unless told otherwise,
#define KV_MEMORY_SHARE 4 // but no more than this part of what is available
#define LAST_STEP_S 10.0  // behind a drain, for the step that runs to end

struct signals {
    sigset_t set;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool serving, stop, over; // over: nothing is left to watch for
    double stop_s;            // the longest that a stop may take
};

static bool is_over(struct signals *s) {
    pthread_mutex_lock(&s->lock);
    bool over = s->over;
    pthread_mutex_unlock(&s->lock);
    return over;
}

// The first signal, or any while nothing is served. True: to be obeyed by a drain.
static bool take_first(struct signals *s, int *number) {
    while (sigwait(&s->set, number)) {
    }
    // mpirun does so when a rank dies
    if (*number == SIGTERM && !is_over(s)) limpid_ranks_doubt(lp_program_ranks);
    pthread_mutex_lock(&s->lock);
    bool serving = s->serving;
    s->stop = true;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return serving;
}

// A second signal; 0: none came within the time of a stop.
static int take_second(const struct signals *s) {
    const uint64_t until = lp_clock_ns() + (uint64_t)(s->stop_s * 1e9);
    for (uint64_t now; (now = lp_clock_ns()) < until;) {
        const uint64_t left = until - now;
        const struct timespec wait = {.tv_sec = (time_t)(left / 1000000000u),
                                      .tv_nsec = (long)(left % 1000000000u)};
        int number = sigtimedwait(&s->set, NULL, &wait);
        if (number > 0) return number;
    }
    return 0;
}

static void *watch_signals(void *user) {
    struct signals *s = user;
    int number;
    bool drains = take_first(s, &number);
    if (drains && !is_over(s)) number = take_second(s);
    if (is_over(s)) return NULL;
    if (!number)
        _exit(lp_fail_text("the engine's step has not ended %g s after the signal; the program "
                           "ends without it",
                           s->stop_s));
    signal(number, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &s->set, NULL);
    raise(number);
    _exit(128 + number); // process 1 of a container is not ended by that
}

// Before any other thread exists: all inherit the mask.
static int signals_init(struct signals *s) {
    *s = (struct signals){.serving = false};
    sigemptyset(&s->set);
    sigaddset(&s->set, SIGINT);
    sigaddset(&s->set, SIGTERM);
    if (lp_program_ranks) sigaddset(&s->set, SIGUSR1); // what mpirun passes on
    pthread_sigmask(SIG_BLOCK, &s->set, NULL);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    int failed = pthread_create(&s->thread, NULL, watch_signals, s);
    return failed ? lp_fail_text("cannot start a thread: %s", strerror(failed)) : LP_EXIT_OK;
}

static void signals_set_serving(struct signals *s, double stop_s) {
    pthread_mutex_lock(&s->lock);
    s->serving = true;
    s->stop_s = stop_s;
    pthread_mutex_unlock(&s->lock);
}

#define LOOK_S 1 // between two looks at the ranks
#define TOLD_S 3 // that those who ask may still be told of a failure

// False: the ranks that run the model have failed, for good; the reason has been printed.
static bool ranks_are_well(limpid_engine *engine, double *failed_s) {
    limpid_error err;
    if (!lp_program_ranks) return true;
    if (!limpid_engine_get_stats(engine).device_failed) return true;
    if (*failed_s == 0 && limpid_ranks_check(lp_program_ranks, &err)) lp_fail(&err);
    *failed_s += LOOK_S;
    return *failed_s <= TOLD_S;
}

// Until a signal comes (true), or the ranks fail.
static bool signals_wait(struct signals *s, limpid_engine *engine) {
    double failed_s = 0;
    bool well = true;
    pthread_mutex_lock(&s->lock);
    while (!s->stop && (well = ranks_are_well(engine, &failed_s))) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += LOOK_S;
        if (lp_program_ranks)
            pthread_cond_timedwait(&s->changed, &s->lock, &until);
        else
            pthread_cond_wait(&s->changed, &s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return well;
}

static void signals_release(struct signals *s) {
    pthread_mutex_lock(&s->lock);
    s->over = true;
    pthread_mutex_unlock(&s->lock);
    pthread_kill(s->thread, SIGTERM); // blocked, so that it ends its wait and nothing else
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

// What the command line says, beside the options of every command.
struct settings {
    struct lp_server_options server;
    struct lp_sampling sampling; // of requests that name none
    limpid_engine_options engine;
    const char *given, *name, *self_check;
    char *path; // of the model's file, found by what was given
    int64_t port, max_seqs, max_queue, speculate, cache_gib, max_body_mib, idle_s;
    double timeout_s, keepalive_s;
};

// For a person; the line on standard output is for programs.
static void print_welcome(const struct lp_server_options *o, int port) {
    limpid_model_info info = limpid_model_get_info(o->model);
    const char *host = o->host;
    if (strcmp(host, "0.0.0.0") == 0) host = "127.0.0.1"; // a browser here takes one of its own
    if (strcmp(host, "::") == 0) host = "::1";
    bool v6 = strchr(host, ':');
    char url[300], size[32], name[256];
    snprintf(url, sizeof url, "%s://%s%s%s:%d", o->tls_cert ? "https" : "http", v6 ? "[" : "", host,
             v6 ? "]" : "", port);
    fprintf(stderr,
            "limpid: %s (%s, %s) is ready\n"
            "        web page: open %s/\n"
            "        API:      %s/v1%s\n"
            "        Ctrl-C ends it\n",
            lp_clean_text(name, sizeof name, lp_str_from(o->model_id)), info.architecture,
            lp_size_text(size, info.file_bytes), url, url,
            o->api_key ? " (with the key of --api-key)" : "");
}

static int serve(struct signals *signals, const struct lp_server_options *options) {
    struct lp_server *server;
    struct lp_err err;
    if (lp_server_start(&server, options, &err)) return lp_fail_text("%s", err.text);
    signals_set_serving(signals, options->drain_s + LAST_STEP_S);
    const char *v6 = strchr(options->host, ':');
    printf("limpid: serving %s at %s://%s%s%s:%d\n", options->model_id,
           options->tls_cert ? "https" : "http", v6 ? "[" : "", options->host, v6 ? "]" : "",
           lp_server_port(server));
    fflush(stdout);
    print_welcome(options, lp_server_port(server));
    const bool well = signals_wait(signals, options->engine);
    if (!well) {
        lp_fail_text("a rank has failed, so the server ends; a supervisor may start it again "
                     "(docs/ranks.md)");
        lp_server_stop(server);
        return LP_EXIT_FAILURE;
    }
    fprintf(stderr,
            "limpid: stops: running requests may go on for %g s (--drain-timeout); a second signal "
            "ends it at once\n",
            options->drain_s);
    lp_server_stop(server);
    return LP_EXIT_OK;
}

// Several long sequences at a time, from a part of the memory.
static int choose_kv_tokens(const char *path, const limpid_model_options *model,
                            limpid_engine_options *engine) {
    limpid_memory_plan plan;
    limpid_error err;
    if (engine->n_kv_tokens) return LP_EXIT_OK;
    if (limpid_plan(&plan, path, model, engine, &err)) return lp_fail_setting(&err);
    uint64_t copied = plan.copied_weights;
    uint64_t left = plan.available > copied ? plan.available - copied : 0;
    uint64_t token_bytes = plan.kv_cache / (uint64_t)plan.n_kv_tokens;
    uint64_t fit = left / KV_MEMORY_SHARE / (token_bytes ? token_bytes : 1);
    int64_t want = plan.n_context * KV_CONTEXTS;
    if (fit < (uint64_t)want) want = (int64_t)fit;
    engine->n_kv_tokens = want > plan.n_context ? want : plan.n_context;
    return LP_EXIT_OK;
}

// The plan comes first: what does not fit is refused before any weight is read.
static int open_model(struct settings *s, const struct lp_common *common,
                      limpid_engine_options *engine) {
    limpid_error err;
    limpid_model_options options;
    int status = lp_common_model_options(common, s->path, &options);
    if (!status) status = choose_kv_tokens(s->path, &options, engine);
    if (!status)
        status = lp_memory_check(s->path, &options, engine,
                                 "lower --kv-tokens, --ctx or --max-batch-tokens", true);
    if (!status && limpid_model_open(&s->server.model, s->path, &options, &err))
        status = lp_fail_setting(&err);
    return status;
}

static int check_engine(const struct settings *s, limpid_engine *engine) {
    limpid_error err;
    char *report = NULL;
    if (strcmp(s->self_check, "off") == 0) return LP_EXIT_OK;
    bool full = strcmp(s->self_check, "full") == 0;
    int status = limpid_engine_self_check(engine, full, &report, &err)
                     ? lp_fail_text("the self-check failed, so nothing is served (--self-check off "
                                    "serves all the same): %s",
                                    err.text)
                     : LP_EXIT_OK;
    if (!status && report) lp_log(LP_LOG_INFO, "self-check: %s", report);
    limpid_free(report);
    return status;
}

static limpid_engine_options engine_options(const struct settings *s,
                                            const struct lp_common *common) {
    limpid_engine_options engine = lp_common_engine_options(common);
    engine.n_kv_tokens = s->engine.n_kv_tokens;
    engine.max_batch_tokens = s->engine.max_batch_tokens;
    engine.max_seqs = (int32_t)s->max_seqs;
    engine.max_queue = (int32_t)s->max_queue;
    engine.speculate = (int32_t)s->speculate;
    engine.no_prefix_cache = s->engine.no_prefix_cache;
    engine.cache_dir = s->engine.cache_dir;
    engine.cache_dir_bytes = (uint64_t)s->cache_gib << 30;
    return engine;
}

static int make_engine(struct settings *s, const limpid_engine_options *options) {
    limpid_error err;
    int status = LP_EXIT_OK;
    if (limpid_engine_new(&s->server.engine, s->server.model, options, &err))
        status = lp_fail_setting(&err);
    if (!status) status = check_engine(s, s->server.engine);
    if (!status && limpid_engine_start(s->server.engine, &err)) status = lp_fail(&err);
    return status;
}

// Of requests that name none: as the options say, then the model's file, else nothing is left out.
static void settle_sampling(struct lp_server_options *o, const struct lp_sampling *given) {
    struct lp_sampling s = *given;
    lp_sampling_settle(&s, 1, o->model);
    o->temperature = s.temperature;
    o->top_p = s.top_p;
    o->top_k = s.top_k;
    o->min_p = s.min_p;
    o->repetition_penalty = s.repetition_penalty;
}

static int load_and_serve(const struct lp_common *common, struct settings *s) {
    struct signals signals;
    limpid_error err;
    char *stem = NULL;
    int status = signals_init(&signals);
    if (status) return status;
    status = s->given ? lp_find_model(&s->path, s->given, &lp_cmd_serve)
                      : lp_find_builtin(&s->path, &lp_cmd_serve, "serving");
    limpid_engine_options engine = engine_options(s, common);
    if (!status) status = open_model(s, common, &engine);
    if (!status) status = make_engine(s, &engine);
    if (!status) settle_sampling(&s->server, &s->sampling);
    if (!status) {
        const char *given = limpid_model_get_info(s->server.model).name;
        if (!s->name && !given[0]) stem = file_stem(s->path);
        s->server.model_id = s->name ? s->name : given[0] ? given : stem;
        if (!s->server.model_id) status = lp_fail_text("out of memory: the model's name");
    }
    if (!status) status = serve(&signals, &s->server);
    if (limpid_engine_free(s->server.engine, &err) && !status) status = lp_fail(&err);
    limpid_model_close(s->server.model);
    lp_free(stem);
    lp_free(s->path);
    signals_release(&signals);
    return status;
}

// ---- the command line ----

static int check_range(const char *option, int64_t value, int64_t min, int64_t max) {
    if (value >= min && value <= max) return LP_EXIT_OK;
    return lp_usage(&lp_cmd_serve, "%s is %lld, expected %lld to %lld", option, (long long)value,
                    (long long)min, (long long)max);
}

static int check_seconds(const char *option, double value, bool may_be_0) {
    if (value >= 0 && value <= 1e6 && (value > 0 || may_be_0)) return LP_EXIT_OK;
    return lp_usage(&lp_cmd_serve, "%s is %g, expected seconds, %s and at most 1000000", option,
                    value, may_be_0 ? "0 or more" : "more than 0");
}

static int check_texts(const struct settings *s) {
    const struct lp_server_options *o = &s->server;
    if (o->api_key && !o->api_key[0])
        return lp_usage(&lp_cmd_serve, "--api-key is empty; leave it out to ask for none");
    if (o->debug_probes && !o->api_key)
        return lp_usage(
            &lp_cmd_serve,
            "--debug-probes needs --api-key (or LIMPID_API_KEY): whoever may ask can see "
            "all that the model computes");
    if (s->name && !s->name[0]) return lp_usage(&lp_cmd_serve, "--name is empty");
    if (!o->tls_cert != !o->tls_key)
        return lp_usage(&lp_cmd_serve, "%s is missing: TLS needs --tls-cert and --tls-key",
                        o->tls_cert ? "--tls-key" : "--tls-cert");
    if (strcmp(s->self_check, "on") != 0 && strcmp(s->self_check, "full") != 0 &&
        strcmp(s->self_check, "off") != 0)
        return lp_usage(&lp_cmd_serve, "--self-check is '%s', expected on, full or off",
                        s->self_check);
    // It goes into a header as it is.
    if (o->cors && (!o->cors[0] || strpbrk(o->cors, " \t\r\n")))
        return lp_usage(&lp_cmd_serve,
                        "--cors is '%s', expected * or an origin such as https://example.org",
                        o->cors);
    return LP_EXIT_OK;
}

static int check_settings(struct settings *s) {
    const struct {
        const char *option;
        int64_t value, min, max;
    } ranges[] = {
        {"--port", s->port, 0, 65535},
        {"--max-seqs", s->max_seqs, 1, 4096},
        {"--max-queue", s->max_queue, 0, 1000000},
        {"--speculate", s->speculate, 0, 16},
        {"--cache-dir-size", s->cache_gib, 1, 1 << 20},
        {"--max-body", s->max_body_mib, 1, 4096},
        {"--idle-timeout", s->idle_s, 1, 1000000},
    };
    int status = check_texts(s);
    if (!status) status = lp_sampling_check(&s->sampling, &lp_cmd_serve);
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0] && !status; i++)
        status = check_range(ranges[i].option, ranges[i].value, ranges[i].min, ranges[i].max);
    if (!status) status = check_seconds("--request-timeout", s->timeout_s, true);
    if (!status) status = check_seconds("--keep-alive", s->keepalive_s, true);
    if (!status) status = check_seconds("--drain-timeout", s->server.drain_s, true);
    if (!status) status = check_seconds("--stall-timeout", s->server.stall_s, false);
    return status;
}

static void settle(struct settings *s) {
    struct lp_server_options *o = &s->server;
    int64_t connections = s->max_seqs + s->max_queue + SPARE_CONNECTIONS;
    o->port = (int)s->port;
    o->max_body = (size_t)s->max_body_mib << 20;
    o->idle_s = (int)s->idle_s;
    o->timeout_ms = (int64_t)ceil(s->timeout_s * 1000); // never down to 0, which is off
    o->keepalive_ms = (int64_t)ceil(s->keepalive_s * 1000);
    if (s->max_queue == 0) connections = OPEN_CONNECTIONS;
    o->max_connections = connections > MAX_CONNECTIONS ? MAX_CONNECTIONS : (int)connections;
}

#define N_OPTIONS 30

static int run(int argc, char **argv) {
    struct lp_common common;
    struct settings s = {.server = lp_server_default_options(),
                         .sampling = lp_sampling_unset(),
                         .self_check = "on",
                         .port = 8080,
                         .max_seqs = 32,
                         .max_queue = 1024,
                         .max_body_mib = 32,
                         .cache_gib = 8,
                         .idle_s = 60,
                         .keepalive_s = 5};
    struct lp_option options[LP_N_COMMON + N_OPTIONS] = {
        {"--host", LP_OPT_TEXT, &s.server.host, "H",
         "name or address to listen on (default 127.0.0.1: this machine only)"},
        {"--port", LP_OPT_INT, &s.port, "P",
         "port (default 8080); 0 = any free one, named in the line when ready"},
        {"--name", LP_OPT_TEXT, &s.name, "NAME",
         "the model's id (default: the file's general.name, or the file's name)"},
        {"--alias", LP_OPT_TEXT, &s.server.aliases, "NAMES",
         "further names that requests may give the model, with commas; * = any"},
        {"--api-key", LP_OPT_TEXT, &s.server.api_key, "K",
         "ask for 'Authorization: Bearer K' or 'x-api-key: K' on all but /health and the page; "
         "better in the environment as LIMPID_API_KEY, which no list of processes shows"},
        {"--temp", LP_OPT_FLOAT, &s.sampling.temperature, "T",
         "temperature of requests that name none (default: the file's, or 1)"},
        {"--top-p", LP_OPT_FLOAT, &s.sampling.top_p, "P",
         "their top_p (default: the file's, or 1: off)"},
        {"--top-k", LP_OPT_INT, &s.sampling.top_k, "K", "their top_k (the file's, or 0: off)"},
        {"--min-p", LP_OPT_FLOAT, &s.sampling.min_p, "P", "their min_p (the file's, or 0: off)"},
        {"--cors", LP_OPT_TEXT, &s.server.cors, "ORIGIN",
         "let pages of this origin ask from a browser; * = all"},
        {"--tls-cert", LP_OPT_TEXT, &s.server.tls_cert, "FILE", "serve HTTPS: certificate, PEM"},
        {"--tls-key", LP_OPT_TEXT, &s.server.tls_key, "FILE", "and its key, PEM"},
        {"--max-seqs", LP_OPT_INT, &s.max_seqs, "N",
         "sequences that generate at a time (default 32)"},
        {"--max-queue", LP_OPT_INT, &s.max_queue, "N",
         "sequences that wait beside them (default 1024); more get 429; 0 = no limit"},
        {"--max-batch-tokens", LP_OPT_INT, &s.engine.max_batch_tokens, "N",
         "most tokens of a step (default: the larger of --chunk and --max-seqs)"},
        {"--kv-tokens", LP_OPT_INT, &s.engine.n_kv_tokens, "N",
         "tokens that the KV cache holds (default: 4 contexts, at most a quarter of the memory)"},
        {"--no-prefix-cache", LP_OPT_FLAG, &s.engine.no_prefix_cache, NULL,
         "compute every prompt whole"},
        {"--cache-dir", LP_OPT_TEXT, &s.engine.cache_dir, "DIR",
         "keep known prompts on disk across runs"},
        {"--cache-dir-size", LP_OPT_INT, &s.cache_gib, "GIB", "at most that much (default 8)"},
        {"--speculate", LP_OPT_INT, &s.speculate, "N",
         "tokens to draft with the model's MTP layer (default 0: off)"},
        {"--self-check", LP_OPT_TEXT, &s.self_check, "on|full|off",
         "before serving, compare a prompt's cache and logits whole, in chunks, cached (default "
         "on; full: three pages of it however long that takes)"},
        {"--request-timeout", LP_OPT_FLOAT, &s.timeout_s, "S",
         "longest a request may take, waiting included (default 0: no limit)"},
        {"--idle-timeout", LP_OPT_INT, &s.idle_s, "S",
         "close a connection that is silent that long (default 60)"},
        {"--keep-alive", LP_OPT_FLOAT, &s.keepalive_s, "S",
         "a stream without news sends a comment that often (default 5; 0 = never)"},
        {"--drain-timeout", LP_OPT_FLOAT, &s.server.drain_s, "S",
         "how long running requests may go on after SIGTERM (default 30)"},
        {"--stall-timeout", LP_OPT_FLOAT, &s.server.stall_s, "S",
         "health turns red when a step takes longer (default 300)"},
        {"--max-body", LP_OPT_INT, &s.max_body_mib, "MIB", "largest request body (default 32)"},
        {"--debug-prompts", LP_OPT_FLAG, &s.server.debug_prompts, NULL,
         "show the tokens of the last prompt at /debug/last-prompt, to all who may use the server"},
        {"--debug-probes", LP_OPT_FLAG, &s.server.debug_probes, NULL,
         "give intermediates of any layer at POST /debug/probe; needs --api-key"},
        {"--access-log", LP_OPT_TEXT, &s.server.access_log, "FILE",
         "a JSON line for each request; - = standard error"},
    };
    lp_common_options(&common, options + N_OPTIONS);
    int status =
        lp_args_parse(argc, argv, &lp_cmd_serve, options, LP_N_COMMON + N_OPTIONS, &s.given, 1);
    if (status) return status < 0 ? LP_EXIT_OK : status;
    const char *key = getenv("LIMPID_API_KEY");
    if (!s.server.api_key && key && key[0]) s.server.api_key = key;
    status = check_settings(&s);
    if (status) return status;
    settle(&s);
    return load_and_serve(&common, &s);
}

const struct lp_command lp_cmd_serve = {
    "serve", "[MODEL] [--host H] [--port P] [--api-key K] [--max-seqs N] [--ctx N] [--kv-tokens N]",
    "an HTTP server with OpenAI's and Anthropic's APIs, of the built-in model without MODEL; "
    "prints "
    "one line when ready, drains and stops on SIGINT or SIGTERM",
    run};
