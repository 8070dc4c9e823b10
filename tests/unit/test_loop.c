// Engines at work: their thread, full queues, time limits, clients that go, numbers that go bad.
#include "cache_folder.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "engine/engine.h"

static limpid_model *model;

static int open_model(void **state) {
    (void)state;
    limpid_error err;
    return limpid_model_open(&model, "models/mini-glm-dsa.gguf", NULL, &err) ? -1 : 0;
}

static int close_model(void **state) {
    (void)state;
    limpid_model_close(model);
    return 0;
}

static limpid_engine *engine_with(const limpid_engine_options *given) {
    limpid_engine *engine;
    limpid_error err;
    limpid_engine_options o = given ? *given : limpid_engine_default_options();
    if (!o.n_context) o.n_context = 512;
    if (limpid_engine_new(&engine, model, &o, &err)) fail_msg("%s", err.text);
    return engine;
}

static const int32_t some_ids[] = {5, 900, 17, 33, 1200, 64,  7,   8,
                                   9, 10,  11, 12, 300,  301, 302, 303};

static limpid_request_options asking(int64_t max_tokens) {
    limpid_request_options o = limpid_request_default_options();
    o.tokens = some_ids;
    o.n_tokens = sizeof some_ids / sizeof some_ids[0];
    o.temperature = 0;
    o.max_tokens = max_tokens;
    o.ignore_eos = true;
    return o;
}

static limpid_request *submit(limpid_engine *engine, const limpid_request_options *o) {
    limpid_request *request;
    limpid_error err;
    if (limpid_request_new(&request, engine, o, &err)) fail_msg("%s", err.text);
    return request;
}

// Ids of choice `choice`; status of the end.
static limpid_status collect(limpid_request *request, int32_t choice, int32_t *ids, int *n,
                             limpid_error *err) {
    limpid_event event;
    *n = 0;
    for (;;) {
        limpid_status status = limpid_request_next(request, &event, err);
        if (status) return status;
        if (event.kind == LIMPID_EVENT_TOKEN && event.choice == choice) ids[(*n)++] = event.token;
        if (event.kind == LIMPID_EVENT_DONE && event.last) return LIMPID_OK;
    }
}

static void assert_pages_are_back(limpid_engine *engine) {
    limpid_engine_stats s = limpid_engine_get_stats(engine);
    assert_int_equal(s.n_running + s.n_waiting, 0);
    assert_int_equal(s.pages_free + s.pages_cached, s.pages);
}

struct caller {
    limpid_engine *engine;
    int32_t ids[64];
    int n;
};

static void *call(void *user) {
    struct caller *c = user;
    limpid_error err;
    limpid_request_options o = asking(24);
    limpid_request *request = submit(c->engine, &o);
    assert_int_equal(collect(request, 0, c->ids, &c->n, &err), LIMPID_OK);
    limpid_request_free(request);
    return NULL;
}

static void callers_of_a_running_engine_get_what_one_gets_alone(void **state) {
    (void)state;
    limpid_error err;
    limpid_engine_options eo = limpid_engine_default_options();
    eo.deterministic = true;
    limpid_engine *engine = engine_with(&eo);
    struct caller alone = {.engine = engine}, all[8];
    pthread_t threads[8];
    call(&alone); // without a thread: the caller makes the steps
    assert_int_equal(alone.n, 24);
    assert_int_equal(limpid_engine_start(engine, &err), LIMPID_OK);
    assert_int_equal(limpid_engine_start(engine, &err), LIMPID_INVALID);
    assert_int_equal(limpid_engine_step(engine, NULL, &err), LIMPID_INVALID);
    for (int i = 0; i < 8; i++) {
        all[i] = (struct caller){.engine = engine};
        pthread_create(&threads[i], NULL, call, &all[i]);
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(all[i].n, alone.n);
        assert_memory_equal(all[i].ids, alone.ids, (size_t)alone.n * sizeof *alone.ids);
    }
    limpid_engine_stop(engine);
    assert_int_equal(limpid_engine_step(engine, NULL, &err), LIMPID_OK);
    assert_pages_are_back(engine);
    assert_int_equal(limpid_engine_free(engine, &err), LIMPID_OK);
}

static void the_queue_has_an_end(void **state) {
    (void)state;
    limpid_error err;
    limpid_engine_options eo = limpid_engine_default_options();
    eo.max_seqs = 2;
    eo.max_queue = 3;
    limpid_engine *engine = engine_with(&eo);
    limpid_request *requests[5], *refused;
    limpid_request_options o = asking(4);
    for (int i = 0; i < 5; i++) requests[i] = submit(engine, &o); // 2 that can run, 3 that wait
    assert_int_equal(limpid_request_new(&refused, engine, &o, &err), LIMPID_BUSY);
    assert_non_null(strstr(err.text, "3"));
    int32_t ids[16];
    int n;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(collect(requests[i], 0, ids, &n, &err), LIMPID_OK);
        limpid_request_free(requests[i]);
    }
    requests[0] = submit(engine, &o); // there is room again
    limpid_request_free(requests[0]); // and a request need not be waited for
    assert_int_equal(limpid_engine_get_stats(engine).rejected, 1);
    assert_pages_are_back(engine);
    limpid_engine_free(engine, &err);
}

static void a_time_limit_ends_a_request(void **state) {
    (void)state;
    limpid_error err;
    limpid_engine *engine = engine_with(NULL);
    limpid_request_options o = asking(400);
    o.timeout_ms = 1;
    limpid_request *request = submit(engine, &o);
    int32_t ids[512];
    int n;
    assert_int_equal(collect(request, 0, ids, &n, &err), LIMPID_TIMEOUT);
    assert_non_null(strstr(err.text, "1 ms"));
    assert_true(n < 400);
    limpid_event event;
    assert_int_equal(limpid_request_next(request, &event, &err), LIMPID_TIMEOUT); // and again
    limpid_request_free(request);
    assert_pages_are_back(engine);
    limpid_engine_free(engine, &err);
}

static bool gone_after(void *user) {
    int *left = user;
    return --*left < 0;
}

static void who_has_gone_is_dropped_before_the_next_step(void **state) {
    (void)state;
    limpid_error err;
    limpid_engine *engine = engine_with(NULL);
    int left = 5;
    limpid_request_options o = asking(400);
    o.is_gone = gone_after;
    o.user = &left;
    limpid_request *request = submit(engine, &o);
    int64_t n_active = 1;
    for (int step = 0; step < 5; step++) {
        assert_int_equal(limpid_engine_step(engine, &n_active, &err), LIMPID_OK);
        assert_int_equal(n_active, 1);
    }
    uint64_t steps = limpid_engine_get_stats(engine).steps;
    assert_int_equal(limpid_engine_step(engine, &n_active, &err), LIMPID_OK);
    assert_int_equal(n_active, 0);
    assert_int_equal(limpid_engine_get_stats(engine).steps, steps); // nothing ran for it
    assert_pages_are_back(engine);
    limpid_event event;
    limpid_status status;
    do status = limpid_request_poll(request, &event, 0, &err);
    while (!status && event.kind != LIMPID_EVENT_NONE);
    assert_int_equal(status, LIMPID_CANCELLED);
    limpid_request_free(request);
    limpid_engine_free(engine, &err);
}

static void cancelling_touches_nobody_else(void **state) {
    (void)state;
    limpid_error err;
    limpid_engine_options eo = limpid_engine_default_options();
    eo.deterministic = true;
    limpid_engine *engine = engine_with(&eo);
    struct caller alone = {.engine = engine};
    call(&alone);
    limpid_request_options o = asking(24), other = asking(200);
    other.n_tokens = 9;
    limpid_request *stays = submit(engine, &o), *goes = submit(engine, &other);
    for (int i = 0; i < 3; i++) limpid_engine_step(engine, NULL, &err);
    limpid_request_cancel(goes);
    int32_t ids[64];
    int n;
    assert_int_equal(collect(stays, 0, ids, &n, &err), LIMPID_OK);
    assert_int_equal(n, alone.n);
    assert_memory_equal(ids, alone.ids, (size_t)n * sizeof *ids);
    limpid_request_free(stays);
    limpid_request_free(goes);
    assert_pages_are_back(engine);
    limpid_engine_free(engine, &err);
}

static void choices_share_the_prompt_and_differ(void **state) {
    (void)state;
    limpid_error err;
    limpid_engine *engine = engine_with(NULL);
    limpid_request_options o = asking(12);
    o.n = 4;
    o.temperature = 1;
    o.seed = 3;
    limpid_request *request = submit(engine, &o);
    limpid_event event;
    int32_t ids[4][12];
    int n[4] = {0}, n_done = 0;
    do {
        assert_int_equal(limpid_request_next(request, &event, &err), LIMPID_OK);
        assert_in_range(event.choice, 0, 3);
        if (event.kind == LIMPID_EVENT_TOKEN) ids[event.choice][n[event.choice]++] = event.token;
        if (event.kind != LIMPID_EVENT_DONE) continue;
        n_done++;
        assert_int_equal(event.n_generated, 12);
        if (event.choice > 0) assert_int_equal(event.n_cached, event.n_prompt - 1);
        assert_int_equal(event.last, n_done == 4);
    } while (n_done < 4);
    limpid_request_free(request);
    assert_memory_not_equal(ids[0], ids[1], sizeof ids[0]);
    // Choice i is the one that seed + i gives alone.
    o.n = 1;
    o.seed = 5;
    int32_t single[16];
    int n_single;
    request = submit(engine, &o);
    assert_int_equal(collect(request, 0, single, &n_single, &err), LIMPID_OK);
    assert_memory_equal(single, ids[2], sizeof ids[2]);
    limpid_request_free(request);
    limpid_engine_free(engine, &err);
}

// A NaN appears in the residual stream of the sequence whose prompt is longer than one token.
static void poison(void *user, int32_t layer, const float *h, const int32_t *selected,
                   const int32_t *n_selected, int64_t stride) {
    const atomic_bool *on = user;
    (void)selected, (void)n_selected, (void)stride;
    if (layer == 2 && *on) ((float *)h)[3] = NAN; // row 0: the most senior sequence
}

static void bad_numbers_end_one_request_and_poison_none(void **state) {
    (void)state;
    limpid_error err;
    limpid_engine_options eo = limpid_engine_default_options();
    eo.deterministic = true;
    limpid_engine *engine = engine_with(&eo);
    struct caller alone = {.engine = engine};
    call(&alone);
    atomic_bool on = false;
    engine->settings.watch = poison;
    engine->settings.watch_user = &on;
    limpid_request_options first = asking(100), second = asking(24);
    first.n_tokens = 11;
    limpid_request *bad = submit(engine, &first), *good = submit(engine, &second);
    for (int i = 0; i < 3; i++) limpid_engine_step(engine, NULL, &err);
    // Steps as traces number them; two tokens lie behind the 11 of the prompt, the next one is its row.
    char expected[96];
    snprintf(expected, sizeof expected,
             "in step %llu at position 13, first in the output of layer 2;",
             (unsigned long long)limpid_engine_get_stats(engine).steps);
    on = true;
    limpid_engine_step(engine, NULL, &err);
    on = false;
    int32_t ids[128];
    int n;
    assert_int_equal(collect(bad, 0, ids, &n, &err), LIMPID_NUMERIC);
    assert_non_null(strstr(err.text, expected));
    assert_int_equal(collect(good, 0, ids, &n, &err), LIMPID_OK);
    assert_int_equal(n, 24);
    assert_memory_equal(ids, alone.ids, (size_t)n * sizeof *ids);
    limpid_request_free(bad);
    limpid_request_free(good);
    // The same text again: nothing that the bad run left behind is used.
    bad = submit(engine, &first);
    limpid_event event;
    do assert_int_equal(limpid_request_next(bad, &event, &err), LIMPID_OK);
    while (event.kind != LIMPID_EVENT_DONE);
    limpid_request_free(bad);
    assert_pages_are_back(engine);
    limpid_engine_free(engine, &err);
}

// Drafts and how many came true, of a request on a text that counts.
static void count_drafts(limpid_engine *engine, const int32_t *ids, size_t n_ids,
                         int64_t counts[3]) {
    limpid_error err;
    limpid_event event;
    limpid_request_options o = asking(60);
    o.tokens = ids;
    o.n_tokens = n_ids;
    engine->speculation.n_steps = 0; // plain steps for the measure fall on the same ones
    limpid_request *request = submit(engine, &o);
    do assert_int_equal(limpid_request_next(request, &event, &err), LIMPID_OK);
    while (event.kind != LIMPID_EVENT_DONE);
    counts[0] = event.n_drafted;
    counts[1] = event.n_accepted;
    counts[2] = event.n_cached;
    limpid_request_free(request);
}

// The draft layer's state comes back with the rest: behind a cache hit drafts are the same.
static void drafts_behind_a_hit_are_those_of_a_cold_run(void **state) {
    (void)state;
    limpid_error err;
    limpid_engine_options eo = limpid_engine_default_options();
    eo.deterministic = true;
    eo.speculate = 2;
    limpid_engine *engine = engine_with(&eo);
    const char *text =
        "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23,";
    int32_t *ids;
    size_t n_ids;
    int64_t cold[3], warm[3];
    assert_int_equal(limpid_tokenize(model, text, strlen(text), 0, &ids, &n_ids, &err), LIMPID_OK);
    assert_true(n_ids > LP_KV_PAGE_TOKENS); // over a page's border
    count_drafts(engine, ids, n_ids, cold);
    count_drafts(engine, ids, n_ids, warm);
    assert_int_equal(cold[2], 0);
    assert_int_equal(warm[2], n_ids - 1);
    assert_true(cold[0] > 0 && cold[1] > 0);
    assert_int_equal(warm[0], cold[0]);
    assert_int_equal(warm[1], cold[1]);
    limpid_free(ids);
    limpid_engine_free(engine, &err);
}

// ---- hits of every length

#define HIT_ANSWER 6

struct answer {
    int n;
    int64_t n_cached;
    int32_t ids[HIT_ANSWER];
    float *logits; // [HIT_ANSWER, n_vocab], those that each token was chosen from
};

// Steps by hand: row i of a step's logits is what its i-th token was chosen from.
static void answer_alone(limpid_engine *engine, const int32_t *tokens, size_t n_tokens,
                         struct answer *out) {
    limpid_error err;
    limpid_event event = {.kind = LIMPID_EVENT_NONE};
    limpid_request_options o = asking(HIT_ANSWER);
    const size_t n_vocab = (size_t)engine->model->weights->h.n_vocab;
    o.tokens = tokens;
    o.n_tokens = n_tokens;
    limpid_request *request = submit(engine, &o);
    out->n = 0;
    while (event.kind != LIMPID_EVENT_DONE) {
        if (limpid_engine_step(engine, NULL, &err)) fail_msg("%s", err.text);
        for (size_t row = 0;; row++) {
            assert_int_equal(limpid_request_poll(request, &event, 0, &err), LIMPID_OK);
            if (event.kind != LIMPID_EVENT_TOKEN) break;
            memcpy(out->logits + (size_t)out->n * n_vocab, engine->logits + row * n_vocab,
                   n_vocab * sizeof *out->logits);
            out->ids[out->n++] = event.token;
        }
    }
    out->n_cached = event.n_cached;
    limpid_request_free(request);
}

// A prompt that shares n_shared tokens with any other of these, and no more.
static void make_prompt(int32_t *out, int64_t n, int64_t n_shared, int32_t n_vocab) {
    for (int64_t i = 0; i < n; i++) {
        int64_t id = (i * 37 + 11) % 1000;
        if (i >= n_shared) id += 1 + n_shared % 17;
        out[i] = (int32_t)(id % (n_vocab < 1100 ? n_vocab - 10 : 1090));
    }
}

// Hits of n_shared of n tokens on one engine, each against a cold run of another.
static void check_hits(limpid_model *of, const char *kv, int32_t speculate, int64_t n) {
    const int64_t page = LP_KV_PAGE_TOKENS,
                  shared[] = {1, page - 1, page, page + 1, 2 * page, n - 1};
    limpid_error err;
    limpid_engine *cold_engine, *engine;
    limpid_engine_options o = limpid_engine_default_options();
    const int32_t n_vocab = limpid_model_get_info(of).n_vocab;
    const size_t n_bytes = HIT_ANSWER * (size_t)n_vocab * sizeof(float);
    struct answer cold = {.logits = malloc(n_bytes)}, warm = {.logits = malloc(n_bytes)};
    int32_t *tokens = malloc((size_t)n * sizeof *tokens);
    o.kv_type = kv;
    o.deterministic = true;
    o.n_context = 2 * n;
    o.n_kv_tokens = 20 * n; // nothing is evicted
    o.no_prefix_cache = true;
    if (limpid_engine_new(&cold_engine, of, &o, &err)) fail_msg("%s", err.text);
    o.no_prefix_cache = false;
    o.speculate = speculate;
    if (limpid_engine_new(&engine, of, &o, &err)) fail_msg("%s", err.text);
    make_prompt(tokens, n, n, n_vocab);
    answer_alone(engine, tokens, (size_t)n, &warm);
    assert_int_equal(warm.n_cached, 0);
    for (size_t i = 0; i < sizeof shared / sizeof shared[0]; i++) {
        make_prompt(tokens, n, shared[i], n_vocab);
        engine->speculation.n_steps = 0; // as count_drafts
        answer_alone(cold_engine, tokens, (size_t)n, &cold);
        answer_alone(engine, tokens, (size_t)n, &warm);
        // For drafts the last known token is computed again (docs/internals/kv.md).
        assert_int_equal(warm.n_cached, speculate ? shared[i] - 1 : shared[i]);
        assert_int_equal(warm.n, HIT_ANSWER);
        assert_int_equal(cold.n, HIT_ANSWER);
        assert_memory_equal(warm.ids, cold.ids, sizeof cold.ids);
        if (memcmp(warm.logits, cold.logits, n_bytes) != 0)
            fail_msg("kv %s, speculate %d: a hit of %lld of %lld tokens gives other logits", kv,
                     speculate, (long long)shared[i], (long long)n);
    }
    make_prompt(tokens, n, n, n_vocab); // all of it is known
    answer_alone(cold_engine, tokens, (size_t)n, &cold);
    answer_alone(engine, tokens, (size_t)n, &warm);
    assert_int_equal(warm.n_cached, n - 1);
    assert_memory_equal(warm.logits, cold.logits, n_bytes);
    limpid_engine_free(cold_engine, NULL);
    limpid_engine_free(engine, NULL);
    free(cold.logits);
    free(warm.logits);
    free(tokens);
}

static void hits_of_every_length_equal_the_cold_run(void **state) {
    (void)state;
#ifdef __SANITIZE_ADDRESS__ // each takes two minutes there
    static const char *const types[] = {"q8_0"};
    const int32_t least_speculate = 2;
#else
    static const char *const types[] = {"f32", "f16", "bf16", "q8_0", "fp8"};
    const int32_t least_speculate = 0;
#endif
    const int64_t n = limpid_model_get_info(model).top_k + LP_KV_PAGE_TOKENS + 9;
    assert_true(n > 2 * LP_KV_PAGE_TOKENS + 1);
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++)
        for (int32_t speculate = least_speculate; speculate <= 2; speculate += 2)
            check_hits(model, types[t], speculate, n);
}

// Other kinds of state: no indexer, keys and values, an indexer that some layers share.
static void for_every_kind_of_state(void (*check)(limpid_model *of)) {
    static const char *const files[] = {"ds2_lite", "llama", "glm45", "dsa_shared", "ds32"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[64];
        limpid_error err;
        limpid_model *golden;
        snprintf(path, sizeof path, "tests/golden/%s.gguf", files[i]);
        if (limpid_model_open(&golden, path, NULL, &err)) fail_msg("%s", err.text);
        check(golden);
        limpid_model_close(golden);
    }
}

static void check_hits_of(limpid_model *of) {
    limpid_model_info info = limpid_model_get_info(of);
    const int64_t n = (info.top_k > 64 ? info.top_k : 64) + LP_KV_PAGE_TOKENS + 9;
    check_hits(of, "f16", 0, n);
    if (info.n_draft_layers) check_hits(of, "f16", 2, n);
}

static void hits_of_every_kind_of_state_equal_the_cold_run(void **state) {
    (void)state;
    for_every_kind_of_state(check_hits_of);
}

// ---- what comes back from disk

// Three pages and a bit, known to another engine alone, through a cache directory.
static void check_from_disk(limpid_model *of, int32_t speculate) {
    enum { N = 3 * LP_KV_PAGE_TOKENS + 9 };
    char dir[] = "/tmp/limpid-loop-XXXXXX";
    limpid_error err;
    limpid_engine *engine;
    limpid_engine_options o = limpid_engine_default_options();
    int32_t tokens[N];
    const int32_t n_vocab = limpid_model_get_info(of).n_vocab;
    const size_t n_bytes = HIT_ANSWER * (size_t)n_vocab * sizeof(float);
    struct answer cold = {.logits = malloc(n_bytes)}, warm = {.logits = malloc(n_bytes)};
    assert_non_null(mkdtemp(dir));
    o.n_context = 2 * N;
    o.deterministic = true;
    o.speculate = speculate;
    o.cache_dir = dir;
    make_prompt(tokens, N, N, n_vocab);
    for (int run = 0; run < 2; run++) {
        struct answer *answer = run ? &warm : &cold;
        if (limpid_engine_new(&engine, of, &o, &err)) fail_msg("%s", err.text);
        answer_alone(engine, tokens, N, answer);
        assert_int_equal(answer->n, HIT_ANSWER);
        assert_int_equal(answer->n_cached, run ? 3 * LP_KV_PAGE_TOKENS - (speculate > 0) : 0);
        assert_int_equal(limpid_engine_get_stats(engine).cached_disk_tokens,
                         run ? 3 * LP_KV_PAGE_TOKENS : 0);
        limpid_engine_free(engine, NULL);
    }
    assert_memory_equal(warm.ids, cold.ids, sizeof cold.ids);
    assert_memory_equal(warm.logits, cold.logits, n_bytes);
    free(cold.logits);
    free(warm.logits);
    drop_cache_folder(dir);
}

// With a draft layer that is idle (its state is not kept) and one that works.
static void check_from_disk_of(limpid_model *of) {
    check_from_disk(of, 0);
    if (limpid_model_get_info(of).n_draft_layers) check_from_disk(of, 2);
}

static void what_comes_back_from_disk_equals_the_cold_run(void **state) {
    (void)state;
    for_every_kind_of_state(check_from_disk_of);
}

// ---- ends

static void requests_end_on_every_route(void **state) {
    (void)state;
    static const char *const routes[] = {"auto", "expanded", "absorbed", "dense"};
    for (size_t r = 0; r < sizeof routes / sizeof routes[0]; r++) {
        limpid_error err;
        limpid_engine_options eo = limpid_engine_default_options();
        eo.route = routes[r];
        eo.max_seqs = 4;
        eo.no_prefix_cache = r % 2;
        limpid_engine *engine = engine_with(&eo);
        limpid_request *requests[20];
        int32_t ids[16];
        int n;
        for (int i = 0; i < 20; i++) {
            limpid_request_options o = asking(1 + i % 7);
            o.n_tokens = 1 + (size_t)i % 16;
            requests[i] = submit(engine, &o);
        }
        for (int i = 0; i < 20; i++) {
            assert_int_equal(collect(requests[i], 0, ids, &n, &err), LIMPID_OK);
            assert_int_equal(n, 1 + i % 7);
            limpid_request_free(requests[i]);
        }
        assert_pages_are_back(engine);
        if (eo.no_prefix_cache) assert_int_equal(limpid_engine_get_stats(engine).pages_cached, 0);
        limpid_engine_free(engine, &err);
    }
}

// A sequence that fills its context ends there, with nothing shifted, and leaves nothing behind; the
// context is whole for each, not divided by the places.
static void a_full_context_ends_and_the_next_request_works(void **state) {
    (void)state;
    enum { CONTEXT = 150 };
    for (int way = 0; way < 4; way++) {
        limpid_error err;
        limpid_event event;
        limpid_engine_options eo = limpid_engine_default_options();
        eo.n_context = CONTEXT; // and as many tokens in the cache: for one such sequence
        eo.max_seqs = 2;
        eo.deterministic = true;
        eo.no_prefix_cache = way & 1;
        eo.speculate = way & 2;
        limpid_engine *engine = engine_with(&eo);
        struct caller before = {.engine = engine}, after = before;
        call(&before);
        limpid_request_options o = asking(100000);
        limpid_request *both[2] = {submit(engine, &o), submit(engine, &o)};
        for (int i = 0; i < 2; i++) {
            int n = 0;
            do {
                if (limpid_request_next(both[i], &event, &err)) fail_msg("%s", err.text);
                n += event.kind == LIMPID_EVENT_TOKEN;
            } while (event.kind != LIMPID_EVENT_DONE);
            assert_string_equal(event.finish_reason, "length");
            assert_int_equal(event.n_prompt + event.n_generated, CONTEXT);
            assert_int_equal(n, event.n_generated);
            limpid_request_free(both[i]);
        }
        call(&after);
        assert_int_equal(after.n, before.n);
        assert_memory_equal(after.ids, before.ids, (size_t)before.n * sizeof *before.ids);
        assert_pages_are_back(engine);
        limpid_engine_free(engine, &err);
    }
}

// Whatever kind of step a sequence is in when its client goes: a prompt in pieces, an answer, drafts,
// a grammar. It is out before the next one, and so is one that never ran.
static void who_goes_in_any_kind_of_step_leaves_nothing(void **state) {
    (void)state;
    for (int way = 0; way < 8; way++)
        for (int steps = 0; steps < 7; steps++) {
            limpid_error err;
            limpid_engine_options eo = limpid_engine_default_options();
            eo.chunk = way & 1 ? 5 : 512; // 16 tokens of prompt: four steps, or one
            eo.speculate = way & 2;
            eo.max_seqs = 1;
            limpid_engine *engine = engine_with(&eo);
            limpid_request_options o = asking(400), waits = asking(4);
            int left = steps, none = 0;
            if (way & 4) {
                o.grammar_kind = "regex";
                o.grammar = "[a-z ]*";
                o.grammar_len = strlen(o.grammar);
            }
            o.is_gone = waits.is_gone = gone_after;
            o.user = &left;
            waits.user = &none;
            limpid_request *request = submit(engine, &o), *waiting = submit(engine, &waits);
            int64_t n_active = 1;
            for (int step = 0; step <= steps; step++)
                if (limpid_engine_step(engine, &n_active, &err)) fail_msg("%s", err.text);
            assert_int_equal(n_active, 0);
            assert_pages_are_back(engine);
            limpid_request_free(request);
            limpid_request_free(waiting);
            limpid_engine_free(engine, &err);
        }
}

struct told {
    limpid_engine *engine;
    int n, n_running;
};

// Under the lock of the statistics.
static void events_are_told(void *user) {
    struct told *told = user;
    told->n++;
    told->n_running += told->engine->stats.n_running;
}

static void a_caller_may_be_told_of_events(void **state) {
    (void)state;
    limpid_error err;
    limpid_engine *engine = engine_with(NULL);
    struct told told = {.engine = engine};
    limpid_request_options o = asking(5);
    o.on_event = events_are_told;
    o.user = &told;
    limpid_request *request = submit(engine, &o);
    limpid_event event;
    assert_int_equal(limpid_request_poll(request, &event, 10, &err), LIMPID_OK);
    assert_int_equal(event.kind, LIMPID_EVENT_NONE); // poll makes no steps
    int64_t n_active = 1;
    while (n_active > 0) limpid_engine_step(engine, &n_active, &err);
    assert_int_equal(told.n, 6);         // five tokens, and the end
    assert_int_equal(told.n_running, 6); // seen to run, from its first step on
    limpid_request_free(request);
    limpid_engine_free(engine, &err);
}

static void the_self_check_passes_and_leaves_nothing(void **state) {
    (void)state;
    limpid_error err;
    char *report = NULL;
    limpid_engine *engine = engine_with(NULL);
    if (limpid_engine_self_check(engine, false, &report, &err)) fail_msg("%s", err.text);
    assert_non_null(strstr(report, "bit for bit"));
    limpid_free(report);
    limpid_engine_step(engine, NULL, &err);
    limpid_engine_stats s = limpid_engine_get_stats(engine);
    assert_int_equal(s.pages_free, s.pages);
    atomic_bool on = true;
    engine->settings.watch = poison;
    engine->settings.watch_user = &on;
    assert_int_equal(limpid_engine_self_check(engine, false, NULL, &err), LIMPID_NUMERIC);
    limpid_engine_free(engine, &err);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(callers_of_a_running_engine_get_what_one_gets_alone),
        cmocka_unit_test(the_queue_has_an_end),
        cmocka_unit_test(a_time_limit_ends_a_request),
        cmocka_unit_test(who_has_gone_is_dropped_before_the_next_step),
        cmocka_unit_test(cancelling_touches_nobody_else),
        cmocka_unit_test(choices_share_the_prompt_and_differ),
        cmocka_unit_test(bad_numbers_end_one_request_and_poison_none),
        cmocka_unit_test(drafts_behind_a_hit_are_those_of_a_cold_run),
        cmocka_unit_test(hits_of_every_length_equal_the_cold_run),
        cmocka_unit_test(hits_of_every_kind_of_state_equal_the_cold_run),
        cmocka_unit_test(what_comes_back_from_disk_equals_the_cold_run),
        cmocka_unit_test(requests_end_on_every_route),
        cmocka_unit_test(a_full_context_ends_and_the_next_request_works),
        cmocka_unit_test(who_goes_in_any_kind_of_step_leaves_nothing),
        cmocka_unit_test(a_caller_may_be_told_of_events),
        cmocka_unit_test(the_self_check_passes_and_leaves_nothing)};
    return cmocka_run_group_tests(tests, open_model, close_model);
}
