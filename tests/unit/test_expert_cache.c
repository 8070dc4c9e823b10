// Models whose experts stay on disk: every logit has the bits that the model in memory gives, for
// any budget, chunk and number of threads; and files that fail under a running model.
#include "lp_test.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "model/expert_cache.h"
#include "model/runner.h"

enum { N_TOKENS = 40, MAX_VOCAB = 8192 };

struct fixture {
    struct lp_gguf *gguf;
    const struct lp_backend *backend;
    struct lp_device *dev;
    struct lp_model *model;
    struct lp_kv *kv;
    struct lp_runner *runner;
    struct lp_page_table pages[2];
};

static void open_model(struct fixture *f, const char *path, const struct lp_backend *backend,
                       int n_threads) {
    struct lp_err err = {0};
    struct lp_device_options options = {.n_threads = n_threads, .cpu_level = "auto"};
    *f = (struct fixture){.backend = backend};
    if (lp_gguf_open(&f->gguf, path, &err)) fail_msg("%s", err.text);
    assert_int_equal(backend->open(&f->dev, &options, &err), LP_OK);
    if (lp_model_load(&f->model, f->gguf, f->dev,
                      &(struct lp_load){.n_threads = 1, .check_bytes = 0}, &err))
        fail_msg("%s", err.text);
}

static void open_runner(struct fixture *f) {
    struct lp_err err = {0};
    struct lp_kv_layer layers[LP_MAX_LAYERS];
    lp_model_kv_layers(f->model, false, layers);
    assert_int_equal(lp_kv_new(&f->kv, f->dev, layers, lp_model_kv_count(f->model, false),
                               LP_TYPE_F32, 512, &err),
                     LP_OK);
    assert_int_equal(lp_runner_new(&f->runner, f->model, f->kv, 2 * N_TOKENS, 256, false, &err),
                     LP_OK);
}

static void close_fixture(struct fixture *f) {
    for (int i = 0; f->kv && i < 2; i++) lp_page_table_release(&f->pages[i], f->kv);
    lp_runner_free(f->runner);
    lp_kv_free(f->kv);
    lp_model_free(f->model);
    f->backend->close(f->dev);
    lp_gguf_close(f->gguf);
}

static void forget(struct fixture *f) {
    for (int i = 0; i < 2; i++) lp_page_table_release(&f->pages[i], f->kv);
}

// Two sequences side by side, in steps of at most `chunk` tokens each: logits [2][N_TOKENS][n_vocab].
static lp_status run(struct fixture *f, int32_t chunk, float *logits, struct lp_err *err) {
    int64_t n_vocab = f->model->h.n_vocab;
    struct lp_step_settings settings = {.deterministic = true};
    float *out = malloc((size_t)(2 * chunk) * (size_t)n_vocab * sizeof *out);
    lp_status status = LP_OK;
    for (int32_t at = 0; at < N_TOKENS && !status; at += chunk) {
        int32_t n = N_TOKENS - at < chunk ? N_TOKENS - at : chunk;
        int32_t tokens[2 * N_TOKENS], rows[2 * N_TOKENS];
        struct lp_span spans[2];
        for (int s = 0; s < 2; s++) {
            spans[s] = (struct lp_span){.sequence = s,
                                        .n_past = at,
                                        .first_row = s * n,
                                        .n_rows = n,
                                        .pages = &f->pages[s]};
            assert_int_equal(lp_page_table_grow(&f->pages[s], f->kv, at + n, err), LP_OK);
            for (int32_t t = 0; t < n; t++) {
                tokens[s * n + t] = (int32_t)(((at + t) * 31 + s * 17 + 5) % n_vocab);
                rows[s * n + t] = s * n + t;
            }
        }
        struct lp_step step = {.tokens = tokens,
                               .spans = spans,
                               .n_spans = 2,
                               .n_rows = 2 * n,
                               .logit_rows = rows,
                               .n_logit_rows = 2 * n,
                               .logits = out};
        status = lp_runner_step(f->runner, &step, &settings, err);
        for (int s = 0; s < 2 && !status; s++)
            memcpy(logits + (s * N_TOKENS + at) * n_vocab, out + s * n * n_vocab,
                   (size_t)(n * n_vocab) * sizeof *out);
    }
    free(out);
    return status;
}

static uint64_t budget_of(const struct fixture *f, int32_t n_slots) {
    struct lp_expert_layout layout;
    assert_int_equal(
        lp_expert_layout_make(&layout, &f->model->h, &f->model->binding, f->gguf, NULL), LP_OK);
    uint64_t bytes = layout.dense_bytes + (uint64_t)n_slots * layout.slot_bytes;
    lp_expert_layout_release(&layout);
    return bytes;
}

// part: of all experts; 0: the fewest that work.
static void limit(struct fixture *f, double part, struct lp_expert_options options) {
    struct lp_err err = {0};
    int32_t n_moe = 0;
    for (int32_t l = 0; l < f->model->h.n_layers; l++) n_moe += f->model->layers[l].is_moe;
    int32_t n = (int32_t)(part * n_moe * f->model->h.n_experts);
    if (n < f->model->h.n_used) n = f->model->h.n_used;
    options.budget_bytes = budget_of(f, n);
    if (lp_model_limit_memory(f->model, &options, &err)) fail_msg("%s", err.text);
    assert_non_null(f->model->expert_cache);
}

static const char *const models[] = {"tests/golden/ds2_lite.gguf",   "tests/golden/ds3.gguf",
                                     "tests/golden/ds32.gguf",       "tests/golden/dsa_sparse.gguf",
                                     "tests/golden/dsa_shared.gguf", "tests/golden/glm45.gguf",
                                     "tests/golden/glm47_flash.gguf"};

static void compare(const char *path, const struct lp_backend *backend, int n_threads, double part,
                    int32_t chunk, struct lp_expert_options options, const float *want) {
    struct fixture f;
    struct lp_err err = {0};
    open_model(&f, path, backend, n_threads);
    if (options.budget_bytes != UINT64_MAX) limit(&f, part, options);
    open_runner(&f);
    size_t n = 2 * (size_t)N_TOKENS * (size_t)f.model->h.n_vocab;
    float *got = malloc(n * sizeof *got);
    for (int round = 0; round < 2; round++) { // the second time with a warm cache
        if (run(&f, chunk, got, &err)) fail_msg("%s: %s", path, err.text);
        assert_memory_equal(got, want, n * sizeof *got);
        forget(&f);
    }
    struct lp_expert_stats s = lp_expert_cache_get_stats(f.model->expert_cache);
    assert_true(s.n_misses > 0 && s.n_reads >= s.n_misses);
    assert_true(s.read_bytes >= s.n_misses * (s.expert_bytes / (uint64_t)s.n_items) / 2);
    free(got);
    close_fixture(&f);
}

static float *in_memory(const char *path, const struct lp_backend *backend) {
    struct fixture f;
    struct lp_err err = {0};
    open_model(&f, path, backend, 1);
    open_runner(&f);
    float *want = malloc(2 * (size_t)N_TOKENS * (size_t)f.model->h.n_vocab * sizeof *want);
    if (run(&f, N_TOKENS, want, &err)) fail_msg("%s: %s", path, err.text);
    close_fixture(&f);
    return want;
}

static void test_same_bits(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        float *want = in_memory(models[i], &lp_backend_cpu);
        struct lp_expert_options plain = {0}, pool = {.way = LP_DIRECT_POOL},
                                 quiet = {.no_guesses = true},
                                 recent = {.rule = LP_EXPERT_RULE_RECENT};
        compare(models[i], &lp_backend_cpu, 1, 0, 1, plain, want);
        compare(models[i], &lp_backend_cpu, 2, 0, N_TOKENS, plain, want);
        compare(models[i], &lp_backend_cpu, 2, 0.4, 1, pool, want);
        compare(models[i], &lp_backend_cpu, 1, 0.4, 7, quiet, want);
        compare(models[i], &lp_backend_cpu, 2, 0.8, N_TOKENS, recent, want);
        free(want);
    }
}

static void test_same_bits_ref(void **state) {
    (void)state;
    float *want = in_memory(models[0], &lp_backend_ref);
    compare(models[0], &lp_backend_ref, 1, 0, 10, (struct lp_expert_options){0}, want);
    compare(models[0], &lp_backend_ref, 1, 0.5, 40, (struct lp_expert_options){0}, want);
    free(want);
}

static void test_least_budget(void **state) {
    struct fixture f;
    struct lp_err err = {0};
    (void)state;
    open_model(&f, models[1], &lp_backend_cpu, 1);
    uint64_t least = budget_of(&f, f.model->h.n_used);
    struct lp_expert_options options = {.budget_bytes = least - 1};
    assert_int_equal(lp_model_limit_memory(f.model, &options, &err), LP_STATUS_INVALID);
    char number[32];
    snprintf(number, sizeof number, "at least %lluM", (unsigned long long)(least / 1000000 + 1));
    assert_non_null(strstr(err.text, number));
    options.budget_bytes = least;
    assert_int_equal(lp_model_limit_memory(f.model, &options, &err), LP_OK);
    assert_int_equal(lp_expert_cache_get_stats(f.model->expert_cache).n_slots, f.model->h.n_used);
    close_fixture(&f);
}

static void test_all_fits(void **state) {
    struct fixture f;
    struct lp_err err = {0};
    (void)state;
    open_model(&f, models[1], &lp_backend_cpu, 1);
    struct lp_expert_options options = {.budget_bytes = (uint64_t)1 << 40};
    assert_int_equal(lp_model_limit_memory(f.model, &options, &err), LP_OK);
    assert_null(f.model->expert_cache);
    close_fixture(&f);
}

static void test_no_experts(void **state) {
    struct fixture f;
    struct lp_err err = {0};
    (void)state;
    open_model(&f, "tests/golden/llama.gguf", &lp_backend_cpu, 1);
    struct lp_expert_options options = {.budget_bytes = (uint64_t)1 << 40};
    assert_int_equal(lp_model_limit_memory(f.model, &options, &err), LP_STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.text, "no routed experts"));
    close_fixture(&f);
}

static void copy_file(const char *from, const char *to) {
    struct lp_mapped map;
    FILE *out = fopen(to, "wb");
    assert_non_null(out);
    assert_int_equal(lp_mapped_open(&map, from, NULL), LP_OK);
    assert_int_equal(fwrite(map.data, 1, map.n_bytes, out), map.n_bytes);
    lp_mapped_close(&map);
    fclose(out);
}

// The file is cut while the model runs: the step fails in one sentence, and when the file is whole
// again the next one is right. (The dense part is mapped from a file of the same name before, since a
// mapped page that is cut off is no error that can be reported.)
static void test_file_that_is_cut(void **state) {
    char path[] = "/var/tmp/lp_cache_XXXXXX";
    struct fixture f;
    struct lp_err err = {0};
    struct stat st;
    (void)state;
    float *want = in_memory(models[0], &lp_backend_cpu);
    close(mkstemp(path));
    copy_file(models[0], path);
    open_model(&f, path, &lp_backend_cpu, 2);
    unlink(path);
    copy_file(models[0], path);
    limit(&f, 0, (struct lp_expert_options){0});
    open_runner(&f);
    size_t n = 2 * (size_t)N_TOKENS * (size_t)f.model->h.n_vocab;
    float *got = malloc(n * sizeof *got);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, st.st_size / 2), 0);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(run(&f, 5, got, &err), LP_STATUS_IO);
        assert_non_null(strstr(err.text, "expert "));
        assert_non_null(strstr(err.text, "became shorter"));
        forget(&f);
    }
    copy_file(models[0], path);
    if (run(&f, 5, got, &err)) fail_msg("%s", err.text);
    assert_memory_equal(got, want, n * sizeof *got);
    unlink(path);
    free(got);
    free(want);
    close_fixture(&f);
}

static void test_profile(void **state) {
    char path[] = "/tmp/lp_profile_XXXXXX";
    struct fixture f;
    struct lp_err err = {0};
    (void)state;
    float *want = in_memory(models[2], &lp_backend_cpu);
    close(mkstemp(path));
    unlink(path);
    struct lp_expert_options options = {.profile = path};
    uint64_t misses[2];
    for (int round = 0; round < 2; round++) {
        open_model(&f, models[2], &lp_backend_cpu, 1);
        limit(&f, 0.5, options);
        open_runner(&f);
        struct lp_expert_stats before = lp_expert_cache_get_stats(f.model->expert_cache);
        if (round) assert_int_equal(before.n_reads, before.n_slots);
        size_t n = 2 * (size_t)N_TOKENS * (size_t)f.model->h.n_vocab;
        float *got = malloc(n * sizeof *got);
        if (run(&f, 1, got, &err)) fail_msg("%s", err.text);
        assert_memory_equal(got, want, n * sizeof *got);
        misses[round] = lp_expert_cache_get_stats(f.model->expert_cache).n_misses;
        free(got);
        close_fixture(&f);
    }
    assert_true(misses[1] <= misses[0]);
    assert_int_equal(unlink(path), 0);
    free(want);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),    cmocka_unit_test(test_same_bits_ref),
        cmocka_unit_test(test_least_budget), cmocka_unit_test(test_all_fits),
        cmocka_unit_test(test_no_experts),   cmocka_unit_test(test_file_that_is_cut),
        cmocka_unit_test(test_profile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
