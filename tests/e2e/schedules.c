// Invariance of schedules: whatever runs beside a request, however its tokens are cut into steps,
// cached, pre-empted or drafted, its answer is bit for bit the one that it gets alone
// (--deterministic).
//
//     [mpirun -n N] schedules MODEL N_SCHEDULES SEED [trained|data|data-whole|stages]
//
// A set of requests is run one by one on a plain engine, with each type of KV cache: the expected
// tokens and log-probabilities. Then N_SCHEDULES times a random engine (threads, KV type, chunk,
// batch, slots, pages, prefix cache, its directory, speculation) gets random ones of them at random
// moments, some of which are cancelled midway. Each must equal its expectation, and all pages must
// come back. data: of several ranks each has the cache of its own sequences, and whichever a request comes to, its
// answer has the same bits; data-whole: also with experts whole on one rank each. stages: the ranks are a pipeline of
// two. Drafts of a model that was trained must be right at times; of random weights they may never be.
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "limpid.h"

#define N_SPECS 14
#define MAX_CHOICES 3
#define MAX_ANSWER 48
#define MAX_PROMPT 420
#define MAX_ACTIVE 24
#define N_KV_TYPES 5
#define N_MODELS 2
#define N_FOR_COVERAGE 40 // with that many schedules each kind of event must have been met

struct answer {
    int n;
    int32_t tokens[MAX_ANSWER];
    float logprobs[MAX_ANSWER];
    bool done;
};

struct spec {
    int32_t prompt[MAX_PROMPT];
    size_t n_prompt;
    limpid_request_options options;
    struct answer expected[N_KV_TYPES][MAX_CHOICES];
};

struct active {
    limpid_request *request;
    const struct spec *spec;
    const struct answer *expected; // [MAX_CHOICES]
    struct answer got[MAX_CHOICES];
    int cancel_after; // events; -1 = never
};

static const char *const KV_TYPES[N_KV_TYPES] = {"f32", "f16", "bf16", "q8_0", "fp8"};
static int kv_types[N_KV_TYPES], n_kv_types; // those that the model takes
static limpid_model *models[N_MODELS];       // the same, with 1 and 2 threads
static limpid_ranks *ranks;                  // that run them together; NULL: this process alone
static limpid_model_info info;
static struct spec specs[N_SPECS];
static struct lp_rng rng;
static int64_t n_context;
static char cache_dir[] = "/tmp/limpid-schedules-XXXXXX";
static struct {
    uint64_t requests, cancelled, preempted, cached, from_disk, accepted, drafted, sparse, steps;
    uint64_t kv[N_KV_TYPES]; // schedules
} seen;

static void remove_cache(void) {
    DIR *dir = opendir(cache_dir);
    struct dirent *entry;
    while (dir && (entry = readdir(dir)))
        if (entry->d_name[0] != '.') unlinkat(dirfd(dir), entry->d_name, 0);
    if (dir) closedir(dir);
    rmdir(cache_dir);
}

static void fail(const char *what, const char *detail) {
    fprintf(stderr, "schedules: %s: %s\n", what, detail);
    exit(1);
}

static int64_t below(int64_t n) {
    return (int64_t)(lp_rng_u64(&rng) % (uint64_t)n);
}

static void make_specs(int64_t most) {
    int32_t n_vocab = info.n_vocab;
    for (int i = 0; i < N_SPECS; i++) {
        struct spec *s = &specs[i];
        size_t common = 0;
        s->n_prompt = (size_t)(i % 3 == 0 ? 1 + below(5) : 1 + below(most - MAX_ANSWER));
        if (i > 0 && i % 2) { // shares a prefix with an earlier one
            const struct spec *other = &specs[below(i)];
            size_t n = other->n_prompt < s->n_prompt ? other->n_prompt : s->n_prompt;
            common = (size_t)below((int64_t)n + 1);
            memcpy(s->prompt, other->prompt, common * sizeof *s->prompt);
        }
        for (size_t k = common; k < s->n_prompt; k++)
            s->prompt[k] = (int32_t)below(n_vocab < 200 ? n_vocab : n_vocab - 100);
        s->options = limpid_request_default_options();
        s->options.tokens = s->prompt;
        s->options.n_tokens = s->n_prompt;
        s->options.max_tokens = 1 + below(MAX_ANSWER);
        s->options.n = 1 + (int32_t)below(i % 4 == 0 ? MAX_CHOICES : 1);
        s->options.temperature = i % 3 == 1 ? 0.8f : 0;
        s->options.top_p = i % 3 == 1 ? 0.9f : 1;
        s->options.repetition_penalty = i % 5 == 2 ? 1.2f : 1;
        s->options.dry_multiplier = i % 5 == 3 ? 0.8f : 0;
        s->options.seed = (uint64_t)i * 7919;
        s->options.ignore_eos = i % 2 == 0;
        s->options.n_logprobs = 0;
    }
}

static void take(struct answer *a, const limpid_event *e) {
    if (e->kind == LIMPID_EVENT_TOKEN && a->n < MAX_ANSWER) {
        a->tokens[a->n] = e->token;
        a->logprobs[a->n++] = e->logprob;
    }
    if (e->kind == LIMPID_EVENT_DONE) a->done = true;
}

// A block of q8_0 is 32 values, one of fp8 128: they need rows of whole blocks.
static void find_kv_types(void) {
    for (int kv = 0; kv < N_KV_TYPES; kv++) {
        limpid_error err;
        limpid_engine *engine;
        limpid_engine_options o = limpid_engine_default_options();
        o.n_context = n_context;
        o.kv_type = KV_TYPES[kv];
        if (!limpid_engine_new(&engine, models[0], &o, &err)) {
            limpid_engine_free(engine, NULL);
            kv_types[n_kv_types++] = kv;
        } else if (kv < 3 || !strstr(err.text, kv == 3 ? " of 32 values" : " of 128 values")) {
            fail("engine", err.text);
        }
    }
}

static void expect_alone(int kv) {
    limpid_engine *engine;
    limpid_error err;
    limpid_engine_options o = limpid_engine_default_options();
    o.n_context = n_context;
    o.deterministic = true;
    o.no_prefix_cache = true;
    o.kv_type = KV_TYPES[kv];
    if (limpid_engine_new(&engine, models[0], &o, &err)) fail("engine", err.text);
    for (int i = 0; i < N_SPECS; i++) {
        limpid_request *request;
        limpid_event e;
        if (limpid_request_new(&request, engine, &specs[i].options, &err))
            fail("request", err.text);
        do {
            if (limpid_request_next(request, &e, &err)) fail("next", err.text);
            take(&specs[i].expected[kv][e.choice], &e);
        } while (e.kind != LIMPID_EVENT_DONE || !e.last);
        limpid_request_free(request);
    }
    limpid_engine_free(engine, NULL);
}

static void check(const struct active *a, bool whole) {
    for (int c = 0; c < a->spec->options.n; c++) {
        const struct answer *x = &a->got[c], *y = &a->expected[c];
        char text[256];
        if (x->n > y->n || (whole && (x->n != y->n || !x->done))) {
            snprintf(text, sizeof text, "request %d choice %d has %d tokens, expected %d",
                     (int)(a->spec - specs), c, x->n, y->n);
            fail("length", text);
        }
        for (int i = 0; i < x->n; i++) {
            if (x->tokens[i] == y->tokens[i] &&
                memcmp(&x->logprobs[i], &y->logprobs[i], sizeof(float)) == 0)
                continue;
            snprintf(text, sizeof text,
                     "request %d choice %d token %d: %d (%.9g), expected %d (%.9g)",
                     (int)(a->spec - specs), c, i, x->tokens[i], (double)x->logprobs[i],
                     y->tokens[i], (double)y->logprobs[i]);
            fail("bits", text);
        }
    }
}

static limpid_engine *random_engine(int kv) {
    static const int64_t chunks[] = {1, 2, 7, 33, 64, 65, 200, 512};
    static const int32_t seqs[] = {1, 2, 3, 5, 8, 32};
    limpid_engine *engine;
    limpid_error err;
    limpid_engine_options o = limpid_engine_default_options();
    o.n_context = n_context;
    o.deterministic = true;
    o.kv_type = KV_TYPES[kv];
    o.chunk = chunks[below(8)];
    o.max_seqs = seqs[below(6)];
    o.max_batch_tokens = o.max_seqs + below(200);
    o.n_kv_tokens = n_context + (below(2) ? 0 : below(6) * 64);
    o.no_prefix_cache = below(4) == 0;
    if (!o.no_prefix_cache && below(4) == 0) o.cache_dir = cache_dir;
    if (info.n_draft_layers && below(2)) o.speculate = 1 + (int32_t)below(4);
    if (limpid_engine_new(&engine, models[below(8) == 0], &o, &err)) fail("engine", err.text);
    return engine;
}

static void submit(limpid_engine *engine, struct active *a, int kv) {
    limpid_error err;
    memset(a, 0, sizeof *a);
    a->spec = &specs[below(N_SPECS)];
    a->expected = a->spec->expected[kv];
    a->cancel_after = below(6) == 0 ? (int)below(20) : -1;
    limpid_request_options o = a->spec->options;
    o.priority = (int32_t)below(3) - 1;
    if (limpid_request_new(&a->request, engine, &o, &err)) fail("request", err.text);
    seen.requests++;
}

// False: it has ended.
static bool advance(struct active *a) {
    limpid_event e;
    limpid_error err;
    for (;;) {
        if (a->cancel_after == 0) {
            check(a, false);
            seen.cancelled++;
            limpid_request_free(a->request);
            return false;
        }
        if (limpid_request_poll(a->request, &e, 0, &err)) fail("poll", err.text);
        if (e.kind == LIMPID_EVENT_NONE) return true;
        if (a->cancel_after > 0) a->cancel_after--;
        take(&a->got[e.choice], &e);
        if (e.kind != LIMPID_EVENT_DONE || !e.last) continue;
        check(a, true);
        limpid_request_free(a->request);
        return false;
    }
}

static void run_schedule(void) {
    int kv = kv_types[below(n_kv_types)];
    if (!seen.kv[kv]++) expect_alone(kv);
    limpid_engine *engine = random_engine(kv);
    struct active active[MAX_ACTIVE];
    int n_active = 0, n_left = 4 + (int)below(24), idle = 0;
    limpid_error err;
    while (n_left > 0 || n_active > 0) {
        while (n_left > 0 && n_active < MAX_ACTIVE && (n_active == 0 || below(4) == 0)) {
            submit(engine, &active[n_active++], kv);
            n_left--;
        }
        int64_t before = (int64_t)limpid_engine_get_stats(engine).steps;
        if (limpid_engine_step(engine, NULL, &err)) fail("step", err.text);
        bool stood = (int64_t)limpid_engine_get_stats(engine).steps == before;
        idle = stood ? idle + 1 : 0;
        if (idle > 3) fail("the engine stands still", "with requests in it");
        for (int i = 0; i < n_active; i++)
            if (!advance(&active[i])) active[i--] = active[--n_active];
    }
    limpid_engine_step(engine, NULL, &err); // what was cancelled last
    limpid_engine_stats s = limpid_engine_get_stats(engine);
    if (s.n_running || s.n_waiting || s.pages_free + s.pages_cached != s.pages)
        fail("pages", "were lost");
    seen.preempted += s.preemptions;
    seen.cached += s.cached_tokens;
    seen.from_disk += s.cached_disk_tokens;
    seen.drafted += s.draft_tokens;
    seen.accepted += s.accepted_tokens;
    seen.sparse += s.route_sparse;
    seen.steps += s.steps;
    limpid_engine_free(engine, NULL);
}

static void open_models(const char *path, const char *attention, const char *experts,
                        int32_t n_stages) {
    limpid_error err;
    limpid_model_options o = limpid_model_default_options();
    for (int i = 0; i < N_MODELS; i++) {
        o.n_threads = i + 1;
        o.ranks = ranks;
        o.attention_parallel = attention;
        o.shard_experts = experts;
        o.pipeline = n_stages;
        if (limpid_model_open(&models[i], path, &o, &err)) fail("model", err.text);
    }
    info = limpid_model_get_info(models[0]);
}

// A run that never pre-empted, say, has shown nothing about pre-emption.
static void check_coverage(bool is_trained) {
    if (!seen.cancelled) fail("coverage", "no request was cancelled");
    if (!seen.preempted) fail("coverage", "no pre-emption was met");
    if (!seen.cached) fail("coverage", "no prefix was found again");
    if (!seen.from_disk) fail("coverage", "no prefix was found on disk");
    if (info.n_draft_layers && !seen.drafted) fail("coverage", "nothing was drafted");
    if (info.n_draft_layers && is_trained && !seen.accepted)
        fail("coverage", "no draft was accepted");
    if (info.top_k && info.top_k < n_context && !seen.sparse)
        fail("coverage", "sparse attention was not met");
    for (int i = 0; i < n_kv_types; i++)
        if (!seen.kv[kv_types[i]])
            fail("coverage: no schedule with a KV cache of", KV_TYPES[kv_types[i]]);
}

// Ranks behind the first do what that one says, and end here.
static void join_ranks(void) {
    limpid_error err;
    if (limpid_ranks_join(&ranks, &err)) fail("ranks", err.text);
    if (limpid_ranks_rank(ranks) == 0) return;
    if (limpid_ranks_follow(ranks, &err)) fail("a rank", err.text);
    limpid_ranks_leave(ranks);
    exit(0);
}

int main(int argc, char **argv) {
    bool is_trained = argc == 5 && strcmp(argv[4], "trained") == 0;
    bool whole = argc == 5 && strcmp(argv[4], "data-whole") == 0;
    bool data = whole || (argc == 5 && strcmp(argv[4], "data") == 0);
    bool stages = argc == 5 && strcmp(argv[4], "stages") == 0;
    if (argc != 4 && !is_trained && !data && !stages)
        fail("usage", "schedules MODEL N_SCHEDULES SEED [trained|data|data-whole|stages]");
    limpid_set_log_level("error",
                         NULL); // that others' pages lie in the directory, that drafts do not pay
    join_ranks();
    open_models(argv[1], data ? "data" : NULL, whole ? "whole" : NULL, stages ? 2 : 0);
    lp_rng_init(&rng, strtoull(argv[3], NULL, 10));
    if (!mkdtemp(cache_dir)) fail("mkdtemp", cache_dir);
    atexit(remove_cache);
    int64_t trained = info.n_context;
    n_context = trained < MAX_PROMPT + MAX_ANSWER ? trained : MAX_PROMPT + MAX_ANSWER;
    make_specs(n_context < MAX_PROMPT ? n_context : MAX_PROMPT);
    find_kv_types();
    int n = atoi(argv[2]);
    for (int i = 0; i < n; i++) run_schedule();
    printf(
        "%d schedules (KV f32 %llu, f16 %llu, bf16 %llu, q8_0 %llu, fp8 %llu), %llu requests (%llu "
        "cancelled), %llu steps: %llu pre-emptions, %llu prompt tokens from cache, %llu of them "
        "from disk, %llu of %llu drafts accepted, %llu sparse spans: all equal\n",
        n, (unsigned long long)seen.kv[0], (unsigned long long)seen.kv[1],
        (unsigned long long)seen.kv[2], (unsigned long long)seen.kv[3],
        (unsigned long long)seen.kv[4], (unsigned long long)seen.requests,
        (unsigned long long)seen.cancelled, (unsigned long long)seen.steps,
        (unsigned long long)seen.preempted, (unsigned long long)seen.cached,
        (unsigned long long)seen.from_disk, (unsigned long long)seen.accepted,
        (unsigned long long)seen.drafted, (unsigned long long)seen.sparse);
    if (n >= N_FOR_COVERAGE) check_coverage(is_trained);
    for (int i = 0; i < N_MODELS; i++) limpid_model_close(models[i]);
    limpid_ranks_leave(ranks);
    return 0;
}
