#include "lp_test.h"

#include <float.h>
#include <math.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "engine/filters.h"

enum { MAX_VOCAB = 700 };

// ---- the definition: sort, and take from the front ---------------------------------------------

struct item {
    int32_t id;
    double logit, weight, order;
};

static int by_order(const void *a_, const void *b_) {
    const struct item *a = a_, *b = b_;
    if (a->order != b->order) return a->order < b->order ? -1 : 1;
    return a->id < b->id ? -1 : 1;
}

static int by_id(const void *a_, const void *b_) {
    const struct item *a = a_, *b = b_;
    return a->id < b->id ? -1 : 1;
}

static int take_share(struct item *items, int n, double share) {
    double total = 0, sum = 0;
    for (int i = 0; i < n; i++) total += items[i].weight;
    qsort(items, (size_t)n, sizeof *items, by_order);
    int kept = 0;
    while (kept < n && sum < share * total) sum += items[kept++].weight;
    return kept;
}

static int expected_items(const struct lp_filters *f, const float *logits, const bool *never,
                          int n_vocab, struct item *items) {
    int n = 0;
    double largest = -INFINITY;
    for (int i = 0; i < n_vocab; i++)
        if (!never[i]) largest = fmax(largest, logits[i]);
    for (int i = 0; i < n_vocab; i++) {
        double weight = exp((logits[i] - largest) / f->temperature);
        if (never[i] || logits[i] == -INFINITY || weight < f->min_p) continue;
        items[n++] = (struct item){i, logits[i], weight, -logits[i]};
    }
    if (f->top_k > 0) {
        qsort(items, (size_t)n, sizeof *items, by_order);
        if (n > f->top_k) n = f->top_k;
    }
    if (f->typical_p < 1) {
        double total = 0, entropy = 0;
        for (int i = 0; i < n; i++) total += items[i].weight;
        for (int i = 0; i < n; i++) {
            double p = items[i].weight / total;
            if (p > 0) entropy -= p * log(p);
        }
        for (int i = 0; i < n; i++) items[i].order = fabs(-log(items[i].weight / total) - entropy);
        n = take_share(items, n, f->typical_p);
        for (int i = 0; i < n; i++) items[i].order = -items[i].logit;
    }
    if (f->top_p < 1) n = take_share(items, n, f->top_p);
    qsort(items, (size_t)n, sizeof *items, by_id);
    return n;
}

// ---- against it --------------------------------------------------------------------------------

static void check(struct lp_candidates *c, const struct lp_filters *f, const float *logits,
                  const bool *never, int n_vocab) {
    struct item items[MAX_VOCAB];
    int n = expected_items(f, logits, never, n_vocab, items);
    float largest = -INFINITY;
    for (int i = 0; i < n_vocab; i++)
        if (!never[i] && logits[i] > largest) largest = logits[i];
    lp_filters_apply(c, f, logits, never, n_vocab, largest);
    assert_int_equal(c->n, n);
    for (int i = 0; i < n; i++) assert_int_equal(c->id[i], items[i].id);
    double total = 0, so_far = 0;
    for (int i = 0; i < n; i++) total += items[i].weight;
    for (int i = 0; i < n; i++) { // the middle of each one's part of [0, 1)
        double unit = (so_far + items[i].weight / 2) / total;
        so_far += items[i].weight;
        if (items[i].weight > 1e-12 * total) assert_int_equal(lp_filters_draw(c, unit), c->id[i]);
    }
    assert_true(lp_filters_draw(c, 0) == c->id[0]);
    int32_t last = lp_filters_draw(c, 1 - 0x1p-53);
    assert_true(last >= c->id[0] && last <= c->id[n - 1]);
}

// Logits as a model gives them, or from few values so that most are ties.
static void fill_logits(struct lp_rng *rng, float *logits, bool *never, int n_vocab) {
    uint64_t kind = lp_rng_u64(rng) % 5;
    for (int i = 0; i < n_vocab; i++) {
        float normal = lp_rng_normal(rng);
        logits[i] = kind == 0   ? 3 * normal
                    : kind == 1 ? rintf(2 * normal) / 2
                    : kind == 2 ? rintf(normal) * (i % 2 ? 0.0f : -1.0f) // 0 and -0
                    : kind == 3 ? 40 * normal
                                : -2.5f;
        never[i] = lp_rng_u64(rng) % 10 == 0;
        if (lp_rng_u64(rng) % 20 == 0) logits[i] = -INFINITY;
    }
    never[n_vocab / 2] = false;
    logits[n_vocab / 2] = 1.5f;
}

enum which { MIN_P = 1, TOP_K = 2, TYPICAL_P = 4, TOP_P = 8 };

static void check_random(unsigned which, uint64_t seed) {
    struct lp_rng rng;
    struct lp_candidates c;
    float logits[MAX_VOCAB];
    bool never[MAX_VOCAB];
    lp_rng_init(&rng, seed);
    assert_int_equal(lp_candidates_init(&c, MAX_VOCAB, NULL), LP_OK);
    for (int round = 0; round < 400; round++) {
        int n_vocab = 1 + (int)(lp_rng_u64(&rng) % MAX_VOCAB);
        fill_logits(&rng, logits, never, n_vocab);
        struct lp_filters f = {
            .temperature = 0.2 + 2 * lp_rng_unit(&rng), .min_p = 0, .typical_p = 1, .top_p = 1};
        if (which & MIN_P) f.min_p = round % 10 ? pow(10, -4 * lp_rng_unit(&rng)) : 1;
        if (which & TOP_K) f.top_k = 1 + (int32_t)(lp_rng_u64(&rng) % (uint64_t)n_vocab);
        if (which & TYPICAL_P) f.typical_p = round % 10 ? 1 - lp_rng_unit(&rng) : 0.9999999;
        if (which & TOP_P) f.top_p = round % 10 ? 1 - lp_rng_unit(&rng) : 1e-30;
        check(&c, &f, logits, never, n_vocab);
    }
    lp_candidates_release(&c);
}

static void without_filters_all_allowed_are_left(void **state) {
    (void)state;
    check_random(0, 1);
}

static void min_p_keeps_what_is_near_the_most_probable(void **state) {
    (void)state;
    check_random(MIN_P, 2);
}

static void top_k_keeps_k_and_the_lower_ids_of_ties(void **state) {
    (void)state;
    check_random(TOP_K, 3);
}

static void typical_p_keeps_what_is_near_the_entropy(void **state) {
    (void)state;
    check_random(TYPICAL_P, 4);
}

static void top_p_keeps_the_smallest_head(void **state) {
    (void)state;
    check_random(TOP_P, 5);
}

static void together_they_see_what_the_one_before_left(void **state) {
    (void)state;
    for (unsigned which = 1; which < 16; which++) check_random(which, 100 + which);
}

static void an_equal_share_is_enough(void **state) {
    (void)state;
    // 8 ids of one weight: half of them are exactly half of the weight
    float logits[8] = {2, 2, 2, 2, 2, 2, 2, 2};
    bool never[8] = {false};
    struct lp_candidates c;
    assert_int_equal(lp_candidates_init(&c, 8, NULL), LP_OK);
    struct lp_filters f = {.temperature = 1, .typical_p = 1, .top_p = 0.5};
    lp_filters_apply(&c, &f, logits, never, 8, 2);
    assert_int_equal(c.n, 4);
    for (int32_t i = 0; i < 4; i++) assert_int_equal(c.id[i], i);
    f.top_p = 0.51;
    lp_filters_apply(&c, &f, logits, never, 8, 2);
    assert_int_equal(c.n, 5);
    lp_candidates_release(&c);
}

static void extreme_numbers_are_fine(void **state) {
    (void)state;
    const float values[] = {FLT_MAX, -FLT_MAX, FLT_MIN, 0, -0.0f, 1e-45f, -1e-45f, 3e38f};
    const double temperatures[] = {1e-45, 1e-6, 1, 100};
    bool never[8] = {false};
    float logits[8];
    struct lp_candidates c;
    assert_int_equal(lp_candidates_init(&c, 8, NULL), LP_OK);
    for (int t = 0; t < 4; t++)
        for (int from = 0; from < 8; from++) {
            int n = 8 - from;
            float largest = -INFINITY;
            memcpy(logits, values + from, (size_t)n * sizeof *logits);
            for (int i = 0; i < n; i++) largest = fmaxf(largest, logits[i]);
            struct lp_filters f = {temperatures[t], 1e-30, 3, 0.9, 0.9};
            lp_filters_apply(&c, &f, logits, never, n, largest);
            assert_true(c.n >= 1 && c.n <= 3);
            int32_t id = lp_filters_draw(&c, 0.5);
            assert_true(id >= 0 && id < n);
            if (t == 0) assert_true(logits[id] == largest);
        }
    lp_candidates_release(&c);
}

static void init_survives_any_failing_allocation(void **state) {
    (void)state;
    struct lp_candidates c;
    lp_status status = LP_STATUS_MEMORY;
    for (size_t nth = 1; status != LP_OK; nth++) {
        lp_alloc_fail_after(nth);
        status = lp_candidates_init(&c, 1000, NULL);
        lp_alloc_fail_after(0);
        assert_true(status == LP_OK || (status == LP_STATUS_MEMORY && !c.id && !c.logit));
    }
    lp_candidates_release(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_filters_all_allowed_are_left),
        cmocka_unit_test(min_p_keeps_what_is_near_the_most_probable),
        cmocka_unit_test(top_k_keeps_k_and_the_lower_ids_of_ties),
        cmocka_unit_test(typical_p_keeps_what_is_near_the_entropy),
        cmocka_unit_test(top_p_keeps_the_smallest_head),
        cmocka_unit_test(together_they_see_what_the_one_before_left),
        cmocka_unit_test(an_equal_share_is_enough),
        cmocka_unit_test(extreme_numbers_are_fine),
        cmocka_unit_test(init_survives_any_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
