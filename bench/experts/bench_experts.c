// What a memory budget costs: a model's experts on disk, decoded token by token, beside the rate at
// which the same disk gives the same file in the same minutes.
//
//     bench_experts MODEL.gguf BUDGET_BYTES [TOKENS=96] [THREADS=2] [RULES=drn]
//
// Rules: d the cache's own policy, r least recently used in its place, n no guesses at the next
// layer's experts, m all in memory (for the results, which must be those bits). Each runs the same
// random tokens; the first half fills the cache and is not measured. Which experts they choose is the
// model's matter: bench/experts/zipf_router.py gives it routers that choose by Zipf's law.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/rng.h"
#include "model/expert_cache.h"
#include "model/runner.h"

enum { SLICE_TOKENS = 8, RATE_DEPTH = 8, RATE_PIECES = 192, CONTEXT = 4096 };
#define RATE_PIECE_BYTES ((size_t)1 << 20)

struct bench {
    const char *path;
    uint64_t budget;
    int n_tokens, n_threads;
    int32_t *tokens;
    uint8_t *buffer; // [RATE_DEPTH][RATE_PIECE_BYTES]
    struct lp_rng rng;
};

struct result {
    double tokens_s, hit_rate, ahead_rate, seconds, wait_s, rate;
    uint64_t bytes, sum;
};

static void must(lp_status status, const struct lp_err *err) {
    if (!status) return;
    fprintf(stderr, "bench_experts: %s\n", err->text);
    exit(1);
}

// The disk's rate on pieces at random places of the model's file, as the cache reads them.
static double measure_rate(struct bench *b) {
    struct lp_direct_queue *queue;
    struct lp_direct_file file;
    struct lp_direct_read reads[RATE_DEPTH], *done;
    struct lp_err err;
    must(lp_direct_open(&file, b->path, &err), &err);
    must(lp_direct_queue_new(&queue, RATE_DEPTH, LP_DIRECT_AUTO, &err), &err);
    uint64_t began = lp_clock_ns();
    for (int i = 0; i < RATE_PIECES + RATE_DEPTH; i++) {
        int slot = i;
        if (i >= RATE_DEPTH) {
            must(lp_direct_wait(queue, &done, &err), &err);
            slot = (int)(done - reads);
        }
        if (i >= RATE_PIECES) continue;
        reads[slot] = (struct lp_direct_read){
            .file = &file,
            .offset = lp_rng_u64(&b->rng) % (file.n_bytes / RATE_PIECE_BYTES) * RATE_PIECE_BYTES,
            .n_bytes = RATE_PIECE_BYTES,
            .buffer = b->buffer + (size_t)slot * RATE_PIECE_BYTES};
        lp_direct_submit(queue, &reads[slot]);
    }
    double seconds = (double)(lp_clock_ns() - began) * 1e-9;
    lp_direct_queue_free(queue);
    lp_direct_close(&file);
    return (double)RATE_PIECES * (double)RATE_PIECE_BYTES / seconds;
}

static void draw_tokens(struct bench *b, int64_t n_vocab) {
    struct lp_rng rng;
    lp_rng_init(&rng, 11);
    for (int t = 0; t < b->n_tokens; t++)
        b->tokens[t] = (int32_t)(lp_rng_u64(&rng) % (uint64_t)n_vocab);
}

static struct result run(struct bench *b, char rule) {
    struct lp_gguf *gguf;
    struct lp_device *dev;
    struct lp_model *model;
    struct lp_kv *kv;
    struct lp_runner *runner;
    struct lp_kv_layer layers[LP_MAX_LAYERS];
    struct lp_page_table pages = {0};
    struct lp_err err;
    struct lp_device_options device = {.n_threads = b->n_threads, .cpu_level = "auto"};
    must(lp_gguf_open(&gguf, b->path, &err), &err);
    must(lp_backend_cpu.open(&dev, &device, &err), &err);
    must(
        lp_model_load(&model, gguf, dev, &(struct lp_load){.n_threads = 1, .check_bytes = 0}, &err),
        &err);
    struct lp_expert_options options = {.budget_bytes = b->budget,
                                        .rule = rule == 'r' ? LP_EXPERT_RULE_RECENT
                                                            : LP_EXPERT_RULE_DECAY,
                                        .no_guesses = rule == 'n'};
    if (rule != 'm') must(lp_model_limit_memory(model, &options, &err), &err);
    lp_model_kv_layers(model, false, layers);
    must(lp_kv_new(&kv, dev, layers, lp_model_kv_count(model, false), LP_TYPE_F16, CONTEXT, &err),
         &err);
    must(lp_runner_new(&runner, model, kv, 1, CONTEXT, false, &err), &err);
    draw_tokens(b, model->h.n_vocab);

    struct lp_expert_stats from = {0}, to = {0};
    struct result r = {.sum = 0xcbf29ce484222325u};
    size_t n_vocab = (size_t)model->h.n_vocab;
    float *logits = lp_alloc(n_vocab, sizeof *logits);
    int n_slices = 0, half = b->n_tokens / 2;
    for (int t = 0; t < b->n_tokens; t++) {
        struct lp_span span = {.n_past = t, .n_rows = 1, .pages = &pages};
        int32_t row = 0;
        struct lp_step step = {.tokens = &b->tokens[t],
                               .spans = &span,
                               .n_spans = 1,
                               .n_rows = 1,
                               .logit_rows = &row,
                               .n_logit_rows = 1,
                               .logits = logits};
        struct lp_step_settings settings = {.deterministic = true};
        must(lp_page_table_grow(&pages, kv, t + 1, &err), &err);
        if (t >= half && t % SLICE_TOKENS == 0) {
            r.rate += 1 / measure_rate(b);
            n_slices++;
        }
        if (t == half && model->expert_cache) from = lp_expert_cache_get_stats(model->expert_cache);
        uint64_t began = lp_clock_ns();
        must(lp_runner_step(runner, &step, &settings, &err), &err);
        if (t >= half) r.seconds += (double)(lp_clock_ns() - began) * 1e-9;
        for (size_t i = 0; i < n_vocab * sizeof *logits; i++)
            r.sum = (r.sum ^ ((const uint8_t *)logits)[i]) * 0x100000001b3u;
    }
    if (model->expert_cache) to = lp_expert_cache_get_stats(model->expert_cache);
    double n =
        (double)(to.n_hits + to.n_ahead + to.n_misses - from.n_hits - from.n_ahead - from.n_misses);
    r.rate = n_slices / r.rate; // the mean time of a byte counts
    r.tokens_s = (b->n_tokens - half) / r.seconds;
    r.hit_rate = (double)(to.n_hits - from.n_hits) / n;
    r.ahead_rate = (double)(to.n_ahead - from.n_ahead) / n;
    r.bytes = to.read_bytes - from.read_bytes;
    r.wait_s = (double)(to.wait_ns - from.wait_ns) * 1e-9;
    if (rule == 'd')
        printf("%d of %d experts fit beside %.2f GB; guesses right: %.1f %%; reads by %s\n",
               to.n_slots, to.n_items, (double)to.dense_bytes * 1e-9,
               100 * (double)to.n_right_guesses / (double)to.n_guesses, to.way);
    lp_free(logits);
    lp_page_table_release(&pages, kv);
    lp_runner_free(runner);
    lp_kv_free(kv);
    lp_model_free(model);
    lp_backend_cpu.close(dev);
    lp_gguf_close(gguf);
    return r;
}

static const char *name_of(char rule) {
    return rule == 'd'   ? "policy"
           : rule == 'r' ? "least recently used"
           : rule == 'n' ? "no guesses"
                         : "in memory";
}

int main(int argc, char **argv) {
    struct bench b = {.n_tokens = 96, .n_threads = 2};
    if (argc < 3) {
        fprintf(stderr, "bench_experts MODEL.gguf BUDGET_BYTES [TOKENS] [THREADS] [RULES=drn]\n");
        return 2;
    }
    b.path = argv[1];
    b.budget = strtoull(argv[2], NULL, 10);
    if (argc > 3) b.n_tokens = atoi(argv[3]);
    if (argc > 4) b.n_threads = atoi(argv[4]);
    const char *rules = argc > 5 ? argv[5] : "drn";
    if (b.n_tokens < 2 || b.n_tokens > CONTEXT) {
        fprintf(stderr, "bench_experts: TOKENS is %d, expected 2 to %d\n", b.n_tokens, CONTEXT);
        return 2;
    }
    b.tokens = lp_alloc((size_t)b.n_tokens, sizeof *b.tokens);
    b.buffer = aligned_alloc(LP_DIRECT_ALIGN, RATE_DEPTH * RATE_PIECE_BYTES);
    if (!b.tokens || !b.buffer) return 1;
    lp_rng_init(&b.rng, 5);
    printf("%-20s %8s %8s %8s %8s %8s %8s %10s  %s\n", "", "tok/s", "hits", "ahead", "GB read",
           "GB/s", "wait", "time/disk", "sum of logits");
    for (; *rules; rules++) {
        struct result r = run(&b, *rules);
        double disk_s = (double)r.bytes / r.rate;
        printf("%-20s %8.2f %7.1f%% %7.1f%% %8.2f %8.3f %7.2fs %10.3f  %016llx\n", name_of(*rules),
               r.tokens_s, 100 * r.hit_rate, 100 * r.ahead_rate, (double)r.bytes * 1e-9,
               r.rate * 1e-9, r.wait_s, r.seconds / disk_s, (unsigned long long)r.sum);
        fflush(stdout);
    }
    lp_free(b.tokens);
    free(b.buffer);
    return 0;
}
