#include "lp_test.h"

#include <float.h>
#include <math.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "engine/dry.h"

enum { N_VOCAB = 8 };

// What one text does to logits of 0.
static void apply(const struct lp_dry *settings, const int32_t *breakers, size_t n_breakers,
                  const int32_t *tokens, int64_t n, float *logits) {
    struct lp_dry dry;
    int32_t scratch[N_VOCAB] = {0}, zeros[N_VOCAB] = {0};
    memset(logits, 0, N_VOCAB * sizeof *logits);
    assert_int_equal(lp_dry_init(&dry, settings->multiplier, settings->base,
                                 settings->allowed_length, breakers, n_breakers, N_VOCAB, NULL),
                     LP_OK);
    lp_dry_apply(&dry, logits, scratch, tokens, n);
    assert_memory_equal(scratch, zeros, sizeof zeros);
    lp_dry_release(&dry);
}

static void a_repeated_passage_costs_by_its_length(void **state) {
    (void)state;
    const struct lp_dry settings = {.multiplier = 0.5, .base = 2, .allowed_length = 2};
    // 1 2 3 is followed by 4, 2 3 alone by 5, 3 alone by 6
    const int32_t tokens[] = {1, 2, 3, 4, 7, 2, 3, 5, 3, 6, 1, 2, 3};
    float logits[N_VOCAB];
    apply(&settings, NULL, 0, tokens, 13, logits);
    const float expected[N_VOCAB] = {0, 0, 0, 0, -0.5f * 2, -0.5f, 0, 0};
    assert_memory_equal(logits, expected, sizeof expected);
    const int32_t breaker = 2; // leaves 3, too short
    apply(&settings, &breaker, 1, tokens, 13, logits);
    for (int i = 0; i < N_VOCAB; i++) assert_true(logits[i] == 0);
}

static void a_breaker_is_not_charged_and_ends_a_text(void **state) {
    (void)state;
    const struct lp_dry settings = {.multiplier = 1, .base = 2, .allowed_length = 1};
    const int32_t tokens[] = {1, 2, 1}, two = 2, one = 1;
    float logits[N_VOCAB];
    apply(&settings, NULL, 0, tokens, 3, logits);
    assert_true(logits[2] == -1);
    apply(&settings, &two, 1, tokens, 3, logits); // what follows is one
    assert_true(logits[2] == 0);
    apply(&settings, &one, 1, tokens, 3, logits); // the text ends with one
    assert_true(logits[2] == 0);
    apply(&settings, NULL, 0, tokens, 1, logits);
    apply(&settings, NULL, 0, tokens, 0, logits);
    for (int i = 0; i < N_VOCAB; i++) assert_true(logits[i] == 0);
}

// The definition, by text-generation-webui's description: every earlier place of the last token is
// extended backwards, token by token.
static void by_definition(const struct lp_dry *d, const bool *is_breaker, const int32_t *tokens,
                          int64_t n, double *amounts) {
    int64_t longest[N_VOCAB] = {0};
    for (int64_t i = 0; i + 1 < n; i++) {
        if (tokens[i] != tokens[n - 1] || is_breaker[tokens[i]] || is_breaker[tokens[i + 1]])
            continue;
        int64_t length = 1;
        while (length <= i && tokens[i - length] == tokens[n - 1 - length] &&
               !is_breaker[tokens[i - length]])
            length++;
        if (length > longest[tokens[i + 1]]) longest[tokens[i + 1]] = length;
    }
    for (int i = 0; i < N_VOCAB; i++)
        amounts[i] = longest[i] < d->allowed_length || longest[i] == 0
                         ? 0
                         : d->multiplier * pow(d->base, (double)(longest[i] - d->allowed_length));
}

static void agrees_with_the_definition(void **state) {
    (void)state;
    struct lp_rng rng;
    lp_rng_init(&rng, 7);
    int n_charged = 0;
    for (int round = 0; round < 4000; round++) {
        // few different tokens, or a repeated passage with errors: long and overlapping matches
        int32_t tokens[120], period = 1 + (int32_t)(lp_rng_u64(&rng) % 30);
        int64_t n = 1 + (int64_t)(lp_rng_u64(&rng) % 120);
        uint64_t n_ids = 1 + lp_rng_u64(&rng) % N_VOCAB, n_errors = lp_rng_u64(&rng) % 3;
        bool is_breaker[N_VOCAB] = {false}, repeat = lp_rng_u64(&rng) % 2;
        for (int64_t i = 0; i < n; i++)
            tokens[i] = repeat && i >= period && lp_rng_u64(&rng) % 40 >= n_errors
                            ? tokens[i - period]
                            : (int32_t)(lp_rng_u64(&rng) % n_ids);
        int32_t breakers[2];
        size_t n_breakers = lp_rng_u64(&rng) % 3;
        for (size_t i = 0; i < n_breakers; i++) {
            breakers[i] = (int32_t)(lp_rng_u64(&rng) % N_VOCAB);
            is_breaker[breakers[i]] = true;
        }
        const struct lp_dry settings = {.multiplier = 0.8,
                                        .base = 1 + lp_rng_unit(&rng),
                                        .allowed_length = 1 + (int32_t)(lp_rng_u64(&rng) % 4)};
        float logits[N_VOCAB];
        double amounts[N_VOCAB];
        apply(&settings, breakers, n_breakers, tokens, n, logits);
        by_definition(&settings, is_breaker, tokens, n, amounts);
        for (int i = 0; i < N_VOCAB; i++) {
            double expected = fmin(amounts[i], (double)FLT_MAX);
            assert_true(fabs(logits[i] + expected) <= 1e-6 * expected);
            n_charged += expected > 0;
        }
    }
    assert_true(n_charged > 2000); // the test has tested something
}

static void long_repetitions_are_capped_and_take_linear_time(void **state) {
    (void)state;
    enum { N = 300000 }; // token pairs are n^2 / 2: a quadratic search would take minutes
    int32_t *tokens = lp_alloc(N, sizeof *tokens);
    assert_non_null(tokens);
    float logits[N_VOCAB];
    struct lp_dry settings = {.multiplier = 3, .base = 1, .allowed_length = 2};
    apply(&settings, NULL, 0, tokens, N, logits);
    assert_true(logits[0] == -3);
    settings.base = 1.75; // 1.75^1022 > FLT_MAX
    apply(&settings, NULL, 0, tokens, N, logits);
    assert_true(logits[0] == -FLT_MAX);
    settings.base = 1.001;
    apply(&settings, NULL, 0, tokens, N, logits);
    assert_true(fabs(logits[0] + 3 * pow(1.001, LP_DRY_MAX_MATCH - 2)) < 1e-5);
    for (int i = 0; i < N; i++) tokens[i] = i % 1500 ? i % 3 : 3; // matches up to the cap, and more
    apply(&settings, NULL, 0, tokens, 1500 * 100, logits);
    assert_true(fabs(logits[3] + 3 * pow(1.001, LP_DRY_MAX_MATCH - 2)) < 1e-5);
    lp_free(tokens);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_repeated_passage_costs_by_its_length),
        cmocka_unit_test(a_breaker_is_not_charged_and_ends_a_text),
        cmocka_unit_test(agrees_with_the_definition),
        cmocka_unit_test(long_repetitions_are_capped_and_take_linear_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
