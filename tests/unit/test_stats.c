#include "lp_test.h"

#include <math.h>

#include "engine/engine.h"

static uint64_t total(const limpid_histogram *h) {
    uint64_t n = 0;
    for (int32_t i = 0; i < h->n_buckets; i++) n += h->count[i];
    return n;
}

static void bounds_ascend_to_infinity(void **state) {
    (void)state;
    limpid_engine_stats stats = {0};
    lp_stats_init(&stats);
    const limpid_histogram *all[] = {&stats.batch_tokens, &stats.batch_sequences, &stats.step_s,
                                     &stats.ttft_s,       &stats.token_s,         &stats.queue_s};
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
        assert_in_range(all[k]->n_buckets, 2, LIMPID_HISTOGRAM_BUCKETS);
        for (int32_t i = 1; i < all[k]->n_buckets; i++)
            assert_true(all[k]->bound[i] > all[k]->bound[i - 1]);
        assert_true(isinf(all[k]->bound[all[k]->n_buckets - 1]));
        assert_int_equal(total(all[k]), 0);
    }
    // The largest step and the most sequences that settings allow have a bucket of their own size.
    assert_true(stats.batch_tokens.bound[stats.batch_tokens.n_buckets - 2] >= LP_MAX_CHUNK / 2);
    assert_true(stats.batch_sequences.bound[stats.batch_sequences.n_buckets - 2] >=
                LP_MAX_SEQS / 2);
}

// Bucket i counts values <= bound[i] and > bound[i - 1], as limpid.h says.
static void a_value_falls_into_its_bucket(void **state) {
    (void)state;
    limpid_engine_stats stats = {0};
    lp_stats_init(&stats);
    limpid_histogram *h = &stats.step_s;
    double sum = 0;
    uint64_t n = 0;
    for (int32_t i = 0; i + 1 < h->n_buckets; i++) {
        const double values[] = {h->bound[i], nextafter(h->bound[i], 0),
                                 nextafter(h->bound[i], INFINITY)};
        for (int v = 0; v < 3; v++) {
            int32_t bucket = v < 2 ? i : i + 1;
            uint64_t before = h->count[bucket];
            lp_histogram_add(h, values[v]);
            sum += values[v];
            n++;
            assert_int_equal(h->count[bucket], before + 1);
            assert_int_equal(total(h), n);
        }
    }
    assert_true(h->sum == sum);
    lp_histogram_add(h, 0);
    lp_histogram_add(h, 1e9);
    assert_int_equal(h->count[0], 3);
    assert_int_equal(h->count[h->n_buckets - 1], 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(bounds_ascend_to_infinity),
                                       cmocka_unit_test(a_value_falls_into_its_bucket)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
