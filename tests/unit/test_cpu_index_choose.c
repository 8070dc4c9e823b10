// The choice of the indexer's keys against a sort.
#include "backend/cpu/cpu_index_choose.h"

#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "lp_test.h"

#define N 3000

struct scored {
    float score;
    int32_t index;
};

static int by_score(const void *a_, const void *b_) {
    const struct scored *a = a_, *b = b_;
    if (a->score != b->score) return a->score < b->score ? 1 : -1;
    return (a->index > b->index) - (a->index < b->index);
}
static int by_index(const void *a_, const void *b_) {
    const struct scored *a = a_, *b = b_;
    return (a->index > b->index) - (a->index < b->index);
}

static void fill(float *scores, struct scored *sorted, uint64_t seed) {
    struct lp_rng rng;
    lp_rng_init(&rng, seed);
    for (int32_t i = 0; i < N; i++) { // many ties, both signs
        scores[i] = seed % 2 ? lp_rng_normal(&rng) : (float)(lp_rng_u64(&rng) % 9) - 4;
        sorted[i] = (struct scored){scores[i], i};
    }
    qsort(sorted, N, sizeof *sorted, by_score);
}

static void test_best_is_that_of_a_sort(void **state) {
    (void)state;
    static const int64_t ks[] = {1, 2, 700, N - 1};
    for (uint64_t seed = 0; seed < 6; seed++)
        for (size_t k = 0; k < sizeof ks / sizeof ks[0]; k++) {
            float scores[N];
            struct scored sorted[N];
            int32_t ids[N];
            fill(scores, sorted, seed);
            lp_cpu_index_best(scores, N, ks[k], ids);
            qsort(sorted, (size_t)ks[k], sizeof *sorted, by_index);
            for (int64_t i = 0; i < ks[k]; i++) assert_int_equal(ids[i], sorted[i].index);
        }
}

static void test_bounds_hold_the_threshold(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 6; seed++)
        for (int64_t k = 1; k < N; k += 113) {
            float scores[N], low, high;
            struct scored sorted[N];
            fill(scores, sorted, seed);
            const float least = sorted[N - 1].score, most = sorted[0].score;
            lp_cpu_index_bounds(scores, N, k, least, most, &low, &high);
            assert_true(low <= sorted[k - 1].score && sorted[k - 1].score <= high);
            assert_true(high - low <= 4 * (most - least) / 2048);
        }
}

static void test_merge_keeps_order(void **state) {
    (void)state;
    int32_t ids[8] = {2, 5, 9, 11};
    const int32_t more[] = {0, 6, 7, 20};
    static const int32_t expected[] = {0, 2, 5, 6, 7, 9, 11, 20};
    lp_cpu_index_merge(ids, 4, more, 4);
    assert_memory_equal(ids, expected, sizeof expected);
    lp_cpu_index_merge(ids, 8, more, 0);
    assert_memory_equal(ids, expected, sizeof expected);
    int32_t none[2];
    lp_cpu_index_merge(none, 0, more, 2);
    assert_memory_equal(none, more, sizeof none);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_best_is_that_of_a_sort),
        cmocka_unit_test(test_bounds_hold_the_threshold),
        cmocka_unit_test(test_merge_keeps_order),
    };
    return cmocka_run_group_tests_name("cpu_index_choose", tests, NULL, NULL);
}
