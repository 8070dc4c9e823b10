// limpid run: text to standard output; with --chat, or without -p, a conversation.
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/rng.h"
#include "cli/args.h"
#include "cli/peak_memory.h"

struct run {
    limpid_model *model;
    limpid_engine *engine;
    int64_t max_tokens, seed, top_k, speculate;
    double temperature, top_p;
    const char *stop;
    bool ignore_eos, stats;
    uint64_t load_ns, prefill_ns, decode_ns;
    int64_t n_prefill, n_decode, n_drafted, n_accepted;
};

static volatile sig_atomic_t interrupted; // Ctrl-C ends the answer, not the program

static void on_interrupt(int signal_number) {
    (void)signal_number;
    interrupted = 1;
}

// Generates behind `prompt` (tokens of the whole conversation), prints as it goes, and appends the
// text to *answer (may be NULL).
static int generate(struct run *r, const int32_t *ids, size_t n_ids, char **answer) {
    limpid_error err;
    limpid_request *request;
    limpid_event event = {0};
    int64_t room = limpid_engine_context(r->engine) - (int64_t)n_ids;
    limpid_request_options o = limpid_request_default_options();
    o.tokens = ids;
    o.n_tokens = n_ids;
    o.max_tokens = r->max_tokens >= 0 ? r->max_tokens : room > 0 ? room : 1;
    o.temperature = (float)r->temperature;
    o.top_p = (float)r->top_p;
    o.top_k = (int32_t)r->top_k;
    o.seed = (uint64_t)r->seed;
    o.ignore_eos = r->ignore_eos;
    o.stop = r->stop ? &r->stop : NULL;
    o.n_stop = r->stop ? 1 : 0;
    if (limpid_request_new(&request, r->engine, &o, &err)) return lp_fail(&err);
    uint64_t start = lp_clock_ns(), first = 0;
    char *text = NULL;
    size_t len = 0;
    FILE *copy = answer ? open_memstream(&text, &len) : NULL;
    int status = LP_EXIT_OK;
    while (!interrupted) {
        if (limpid_request_next(request, &event, &err)) {
            status = lp_fail(&err);
            break;
        }
        if (!first) first = lp_clock_ns();
        fwrite(event.text, 1, event.text_len, stdout);
        fflush(stdout);
        if (copy) fwrite(event.text, 1, event.text_len, copy);
        if (event.kind == LIMPID_EVENT_DONE) break;
    }
    if (copy) fclose(copy);
    if (answer) *answer = text;
    limpid_request_free(request);
    r->prefill_ns += (first ? first : lp_clock_ns()) - start;
    r->decode_ns += first ? lp_clock_ns() - first : 0;
    r->n_prefill += event.n_prompt - event.n_cached;
    r->n_drafted += event.n_drafted;
    r->n_accepted += event.n_accepted;
    r->n_decode +=
        event.n_generated > 0 ? event.n_generated - 1 : 0; // the first token belongs to the prefill
    return ferror(stdout) ? lp_fail_text("cannot write to standard output: %s", strerror(errno))
                          : status;
}

static int generate_text(struct run *r, const char *text, size_t n_bytes, unsigned flags,
                         char **answer) {
    limpid_error err;
    int32_t *ids;
    size_t n_ids;
    if (limpid_tokenize(r->model, text, n_bytes, flags, &ids, &n_ids, &err)) return lp_fail(&err);
    int status = generate(r, ids, n_ids, answer);
    limpid_free(ids);
    return status;
}

static int add_message(json_t *messages, const char *role, const char *text) {
    json_t *message = json_pack("{s:s, s:s}", "role", role, "content", text);
    if (!message || json_array_append_new(messages, message))
        return lp_fail_text("the text is not valid UTF-8 and cannot become a message");
    return LP_EXIT_OK;
}

static int answer_messages(struct run *r, json_t *messages, const char *options) {
    limpid_error err;
    char *json = json_dumps(messages, 0), *prompt, *answer = NULL;
    size_t n_bytes;
    if (!json) return lp_fail_text("out of memory: the conversation");
    limpid_status failed = limpid_chat_prompt(r->model, json, options, &prompt, &n_bytes, &err);
    free(json);
    if (failed) return lp_fail(&err);
    int status = generate_text(r, prompt, n_bytes, LIMPID_SPECIAL, &answer);
    limpid_free(prompt);
    printf("\n");
    fflush(stdout); // who reads a pipe by lines waits for this one
    if (!status) status = add_message(messages, "assistant", answer ? answer : "");
    free(answer);
    return status;
}

static int converse(struct run *r, json_t *messages, const char *options) {
    bool terminal = isatty(0) == 1;
    char *line = NULL;
    size_t capacity = 0;
    int status = LP_EXIT_OK;
    struct sigaction action = {
        .sa_handler = on_interrupt}; // no SA_RESTART: Ctrl-C at the prompt ends the chat
    if (terminal) {
        sigaction(SIGINT, &action, NULL);
        fprintf(stderr, "Type a message; Ctrl-C stops an answer, Ctrl-D or /exit ends.\n");
    }
    while (!status) {
        if (terminal) fprintf(stderr, "> ");
        interrupted = 0;
        ssize_t n = getline(&line, &capacity, stdin);
        if (n < 0) break;
        if (n > 0 && line[n - 1] == '\n') line[--n] = 0;
        if (strlen(line) != (size_t)n) {
            status = lp_fail_text("the message holds a NUL byte");
            break;
        }
        if (strcmp(line, "/exit") == 0) break;
        if (n == 0) continue;
        status = add_message(messages, "user", line);
        if (!status) status = answer_messages(r, messages, options);
    }
    free(line);
    return status;
}

static void print_stats(const struct run *r) {
    double prefill_s = (double)r->prefill_ns * 1e-9, decode_s = (double)r->decode_ns * 1e-9;
    fprintf(stderr,
            "load    %.3f s\n"
            "prefill %lld tokens in %.3f s: %.1f tokens/s\n"
            "decode  %lld tokens in %.3f s: %.1f tokens/s\n"
            "memory  %.1f MB peak (file %.1f MB, KV cache %.1f MB, step buffers %.1f MB)\n",
            (double)r->load_ns * 1e-9, (long long)r->n_prefill, prefill_s,
            prefill_s > 0 ? (double)r->n_prefill / prefill_s : 0.0, (long long)r->n_decode,
            decode_s, decode_s > 0 ? (double)r->n_decode / decode_s : 0.0,
            (double)lp_peak_memory() * 1e-6,
            (double)limpid_model_get_info(r->model).file_bytes * 1e-6,
            (double)limpid_engine_kv_bytes(r->engine) * 1e-6,
            (double)limpid_engine_scratch_bytes(r->engine) * 1e-6);
    if (r->speculate)
        fprintf(stderr, "drafts  %lld of %lld accepted\n", (long long)r->n_accepted,
                (long long)r->n_drafted);
    if (r->temperature > 0) fprintf(stderr, "seed    %lld\n", (long long)r->seed);
}

static int run_chat(struct run *r, const char *prompt, const char *system, bool no_think) {
    json_t *messages = json_array();
    int status = messages ? LP_EXIT_OK : lp_fail_text("out of memory: the conversation");
    const char *options = no_think ? "{\"enable_thinking\": false, \"thinking\": false}" : NULL;
    if (!status && system) status = add_message(messages, "system", system);
    if (!status && prompt) {
        status = add_message(messages, "user", prompt);
        if (!status) status = answer_messages(r, messages, options);
    } else if (!status)
        status = converse(r, messages, options);
    json_decref(messages);
    return status;
}

static int open_engine(struct run *r, const struct lp_common *common) {
    limpid_error err;
    limpid_engine_options options = lp_common_engine_options(common);
    options.speculate = (int32_t)r->speculate;
    return limpid_engine_new(&r->engine, r->model, &options, &err) ? lp_fail_setting(&err)
                                                                   : LP_EXIT_OK;
}

static int run(int argc, char **argv) {
    struct run r = {.max_tokens = -1, .top_p = 1.0, .seed = -1};
    struct lp_common common;
    const char *path = NULL, *prompt = NULL, *system = NULL;
    bool chat = false, no_think = false;
    struct lp_option options[LP_N_COMMON + 13] = {
        {"-p", LP_OPT_TEXT, &prompt, "TEXT", "the prompt; without it, an interactive chat"},
        {"-n", LP_OPT_INT, &r.max_tokens, "N",
         "most tokens to generate (default: to the end of the context)"},
        {"--chat", LP_OPT_FLAG, &chat, NULL, "put the prompt through the file's chat template"},
        {"--system", LP_OPT_TEXT, &system, "TEXT", "system message of the chat"},
        {"--no-think", LP_OPT_FLAG, &no_think, NULL,
         "ask the chat template for an answer without reasoning"},
        {"--temp", LP_OPT_FLOAT, &r.temperature, "T",
         "temperature; 0 (default) always takes the most probable token"},
        {"--top-p", LP_OPT_FLOAT, &r.top_p, "P",
         "sample from the most probable tokens that add up to P"},
        {"--top-k", LP_OPT_INT, &r.top_k, "K", "sample from the K most probable tokens"},
        {"--seed", LP_OPT_INT, &r.seed, "S", "same seed, same text (default: a new one each time)"},
        {"--stop", LP_OPT_TEXT, &r.stop, "TEXT", "end before this text"},
        {"--ignore-eos", LP_OPT_FLAG, &r.ignore_eos, NULL, "go on past the end tokens"},
        {"--speculate", LP_OPT_INT, &r.speculate, "N",
         "tokens to draft with the model's MTP layer, 0 (default) to 16; the text stays the same"},
        {"--stats", LP_OPT_FLAG, &r.stats, NULL,
         "print load time, tokens per second and peak memory"},
    };
    lp_common_options(&common, options + 13);
    int status = lp_args_parse(argc, argv, &lp_cmd_run, options, LP_N_COMMON + 13, &path, 1);
    if (status) return status < 0 ? LP_EXIT_OK : status;
    if (!path) return lp_usage(&lp_cmd_run, "MODEL is needed");
    if (!(r.temperature >= 0 && r.temperature <= 100))
        return lp_usage(&lp_cmd_run, "--temp is %g, expected 0 to 100", r.temperature);
    if (!(r.top_p > 0 && r.top_p <= 1))
        return lp_usage(&lp_cmd_run, "--top-p is %g, expected more than 0 and at most 1", r.top_p);
    if (r.speculate > 16)
        return lp_usage(&lp_cmd_run, "--speculate is %lld, expected 0 to 16",
                        (long long)r.speculate);
    if (r.top_k > INT32_MAX)
        return lp_usage(&lp_cmd_run, "--top-k is %lld, expected at most %d", (long long)r.top_k,
                        INT32_MAX);
    if (r.seed < 0) {
        struct lp_rng rng;
        lp_rng_init(&rng, lp_clock_ns() ^ (uint64_t)getpid());
        r.seed = (int64_t)(lp_rng_u64(&rng) >> 16);
    }
    limpid_error err;
    uint64_t start = lp_clock_ns();
    status = lp_common_open_model(&common, path, &r.model);
    if (!status) status = open_engine(&r, &common);
    r.load_ns = lp_clock_ns() - start;
    if (!status) {
        if (chat || !prompt)
            status = run_chat(&r, prompt, system, no_think);
        else {
            status = generate_text(&r, prompt, strlen(prompt), LIMPID_SPECIAL | LIMPID_BOS, NULL);
            printf("\n");
        }
        if (r.stats) print_stats(&r);
    }
    if (limpid_engine_free(r.engine, &err) && !status) status = lp_fail(&err);
    limpid_model_close(r.model);
    return status;
}

const struct lp_command lp_cmd_run = {
    "run", "MODEL [-p TEXT] [-n N] [--temp T] [--seed S] [--chat] [--ctx N] [--stats]",
    "generates text; without -p, an interactive chat", run};
