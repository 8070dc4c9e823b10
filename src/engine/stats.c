// Histograms of what the engine counts: fixed bounds, so that adding is a short search.
#include <math.h>

#include "engine/engine.h"

static const double seconds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                 0.5,   1,      2.5,   5,    10,    30,   60,  300};

static void init_seconds(limpid_histogram *h) {
    h->n_buckets = (int32_t)(sizeof seconds / sizeof seconds[0]) + 1;
    for (int32_t i = 0; i + 1 < h->n_buckets; i++) h->bound[i] = seconds[i];
    h->bound[h->n_buckets - 1] = INFINITY;
}

static void init_powers(limpid_histogram *h, int32_t n) { // 1, 2, 4, ...
    h->n_buckets = n + 1;
    for (int32_t i = 0; i < n; i++) h->bound[i] = ldexp(1, i);
    h->bound[n] = INFINITY;
}

void lp_stats_init(limpid_engine_stats *s) {
    init_powers(&s->batch_tokens, 16);
    init_powers(&s->batch_sequences, 12);
    init_seconds(&s->step_s);
    init_seconds(&s->ttft_s);
    init_seconds(&s->token_s);
    init_seconds(&s->queue_s);
}

void lp_histogram_add(limpid_histogram *h, double value) {
    int32_t i = 0;
    while (i + 1 < h->n_buckets && value > h->bound[i]) i++;
    h->count[i]++;
    h->sum += value;
}
