#include "lp_test.h"

#include <math.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "engine/dry.h"
#include "engine/sampler.h"

enum { N_VOCAB = 6 };

static const float logits[N_VOCAB] = {1.0f, 3.0f, 2.0f, 3.0f, -1.0f, 9.0f};
static const bool never[N_VOCAB] = {false, false, false, false, false, true}; // padding is largest
static const struct lp_history empty = {0};

static struct lp_sampler_params plain(float temperature) {
    return (struct lp_sampler_params){.temperature = temperature,
                                      .top_p = 1,
                                      .typical_p = 1,
                                      .repetition_penalty = 1,
                                      .seed = 42};
}

static struct lp_sampler *new_sampler(const struct lp_sampler_params *params) {
    struct lp_sampler *s;
    struct lp_err err;
    if (lp_sampler_new(&s, params, never, N_VOCAB, &err)) fail_msg("%s", err.text);
    return s;
}

static int32_t pick_once(const struct lp_sampler_params *params, const struct lp_history *history) {
    struct lp_sampler *s = new_sampler(params);
    int32_t id = lp_sampler_pick(s, logits, history, NULL);
    lp_sampler_free(s);
    return id;
}

// ---- of the model's own probabilities ----------------------------------------------------------

static void log_probabilities_sum_to_one(void **state) {
    (void)state;
    double log_sum = lp_sampler_log_sum(logits, never, N_VOCAB), sum = 0;
    for (int i = 0; i < 5; i++) sum += exp(logits[i] - log_sum);
    assert_true(fabs(sum - 1) < 1e-12);
    assert_true(fabs(log_sum - log(exp(1) + 2 * exp(3) + exp(2) + exp(-1))) < 1e-12);
    enum { N = 1000 }; // several blocks
    float many[N];
    bool left_out[N];
    double expected = 0;
    for (int i = 0; i < N; i++) {
        many[i] = (float)(i % 37) - 200;
        left_out[i] = i % 3 == 0;
        if (!left_out[i]) expected += exp(many[i] + 200.0);
    }
    assert_true(fabs(lp_sampler_log_sum(many, left_out, N) - (log(expected) - 200)) < 1e-12);
}

static void top_is_ordered(void **state) {
    (void)state;
    int32_t ids[N_VOCAB];
    assert_int_equal(lp_sampler_top(logits, never, N_VOCAB, 3, ids), 3);
    assert_int_equal(ids[0], 1);
    assert_int_equal(ids[1], 3);
    assert_int_equal(ids[2], 2);
    assert_int_equal(lp_sampler_top(logits, never, N_VOCAB, 6, ids), 5); // there are no more
    assert_int_equal(lp_sampler_top(logits, never, N_VOCAB, 0, ids), 0);
}

// ---- picking -----------------------------------------------------------------------------------

static void greedy_skips_padding_and_breaks_ties_low(void **state) {
    (void)state;
    struct lp_sampler_params p = plain(0);
    assert_int_equal(pick_once(&p, &empty), 1);
}

static void greedy_is_the_largest_after_bias_and_penalties(void **state) {
    (void)state;
    const int32_t tokens[] = {1, 3, 1, 3, 1}; // prompt 1 3
    const struct lp_history history = {tokens, 2, 5};
    struct lp_sampler_params p = plain(0);
    p.frequency_penalty = 0.75f; // 1: 3 - 1.5, 3: 3 - 0.75: a tie with nothing
    assert_int_equal(pick_once(&p, &history), 3);
    p.presence_penalty = 0.5f; // 3: 1.75
    assert_int_equal(pick_once(&p, &history), 2);
    p = plain(0);
    p.repetition_penalty = 2; // 1 and 3: 1.5
    assert_int_equal(pick_once(&p, &history), 2);
    p = plain(0);
    p.dry_multiplier = 2, p.dry_base = 1, p.dry_allowed_length = 3; // 1 3 1 was followed by 3
    const struct lp_bias up = {3, 1.5f};
    p.bias = &up, p.n_bias = 1; // 3: 4.5 - 2
    assert_int_equal(pick_once(&p, &history), 1);
    p.dry_allowed_length = 4;
    assert_int_equal(pick_once(&p, &history), 3);
    const int32_t breaker = 3;
    p.dry_allowed_length = 3, p.dry_breakers = &breaker, p.n_dry_breakers = 1;
    assert_int_equal(pick_once(&p, &history), 3);
}

static void bias_comes_before_the_repetition_penalty(void **state) {
    (void)state;
    const int32_t token = 4;
    const struct lp_history history = {&token, 1, 1};
    const struct lp_bias up = {4, 9};
    struct lp_sampler_params p = plain(0);
    p.bias = &up, p.n_bias = 1;
    p.repetition_penalty = 2.5f; // (-1 + 9) / 2.5 = 3.2; the other order gives -1 * 2.5 + 9 = 6.5
    assert_int_equal(pick_once(&p, &history), 4);
    p.repetition_penalty = 2.75f; // 2.9, below 3
    assert_int_equal(pick_once(&p, &history), 1);
}

static void ends_wait_for_min_tokens(void **state) {
    (void)state;
    const int32_t ends[] = {1, 3}, tokens[] = {0, 0, 0};
    struct lp_sampler_params p = plain(0);
    p.ends = ends, p.n_ends = 2, p.min_tokens = 2;
    const struct lp_history one = {tokens, 1, 2}, two = {tokens, 1, 3};
    assert_int_equal(pick_once(&p, &one), 2);
    assert_int_equal(pick_once(&p, &two), 1);
    p.temperature = 1;
    struct lp_sampler *s = new_sampler(&p);
    for (int i = 0; i < 1000; i++) {
        int32_t id = lp_sampler_pick(s, logits, &one, NULL);
        assert_true(id != 1 && id != 3 && id != 5);
    }
    lp_sampler_free(s);
}

static void when_all_are_excluded_the_most_probable_is_taken(void **state) {
    (void)state;
    const int32_t ends[] = {0, 1, 2, 3, 4};
    struct lp_bias down[5];
    for (int i = 0; i < 5; i++) down[i] = (struct lp_bias){i, i == 1 ? -100 : -5};
    for (int temperature = 0; temperature < 2; temperature++) {
        struct lp_sampler_params p = plain((float)temperature);
        p.ends = ends, p.n_ends = 5, p.min_tokens = 1;
        p.bias = down, p.n_bias = 5;
        assert_int_equal(pick_once(&p, &empty), 1); // by the plain logits
        p.min_tokens = 0;
        p.bias = &down[1], p.n_bias = 1;
        p.temperature = 0;
        assert_int_equal(pick_once(&p, &empty), 3);
    }
}

// Draws many tokens and compares how often each came with its probability: Pearson's chi square,
// which exceeds 27.9 with 5 or fewer degrees of freedom in 1 of 25,000 cases.
static void check_shares(const struct lp_sampler_params *params, const struct lp_history *history,
                         const double *expected) {
    enum { N = 100000 };
    struct lp_sampler *s = new_sampler(params);
    int counts[N_VOCAB] = {0};
    for (int i = 0; i < N; i++) counts[lp_sampler_pick(s, logits, history, NULL)]++;
    lp_sampler_free(s);
    double chi = 0, sum = 0;
    for (int i = 0; i < N_VOCAB; i++) sum += expected[i];
    for (int i = 0; i < N_VOCAB; i++) {
        double n = N * expected[i] / sum;
        if (n == 0)
            assert_int_equal(counts[i], 0);
        else
            chi += (counts[i] - n) * (counts[i] - n) / n;
    }
    assert_true(chi < 27.9);
}

static void shares_follow_the_probabilities(void **state) {
    (void)state;
    double weights[N_VOCAB];
    const float temperatures[] = {0.5f, 1, 2, 100};
    for (int t = 0; t < 4; t++) {
        struct lp_sampler_params p = plain(temperatures[t]);
        for (int i = 0; i < N_VOCAB; i++)
            weights[i] = i == 5 ? 0 : exp(logits[i] / temperatures[t]);
        check_shares(&p, &empty, weights);
    }
    struct lp_sampler_params p = plain(2);
    p.top_k = 3;
    const double top_3[] = {0, exp(1.5), exp(1), exp(1.5), 0, 0};
    check_shares(&p, &empty, top_3);
    p.top_p = 0.6f; // of the three: 0.38 0.24 0.38
    const double top_2[] = {0, 1, 0, 1, 0, 0};
    check_shares(&p, &empty, top_2);
    p = plain(2);
    p.min_p = 0.3f; // exp(-1) = 0.37 is id 0's weight, exp(-2) = 0.14 id 4's
    const double first_4[] = {exp(0.5), exp(1.5), exp(1), exp(1.5), 0, 0};
    check_shares(&p, &empty, first_4);
    // at temperature 1: p = 0.054 0.397 0.146 0.397 0.007, entropy 1.21 nats; -log p is nearest to
    // it for ids 1 and 3 (0.92), then 2 (1.92), and those three hold 0.94
    p = plain(1);
    p.typical_p = 0.85f;
    const double typical[] = {0, exp(3), exp(2), exp(3), 0, 0};
    check_shares(&p, &empty, typical);
}

static void shares_follow_bias_and_penalties(void **state) {
    (void)state;
    const int32_t tokens[] = {1, 2, 0, 0, 4};
    const struct lp_history history = {tokens, 2, 5};
    const struct lp_bias bias[] = {{3, -1}, {4, 2}};
    struct lp_sampler_params p = plain(1);
    p.bias = bias, p.n_bias = 2;
    p.repetition_penalty = 1.25f;
    p.presence_penalty = 0.25f;
    p.frequency_penalty = -0.5f;
    const double weights[] = {exp(1 / 1.25 - 0.25 + 1),
                              exp(3 / 1.25),
                              exp(2 / 1.25),
                              exp(2),
                              exp((-1 + 2) / 1.25 - 0.25 + 0.5),
                              0};
    check_shares(&p, &history, weights);
}

// ---- random numbers ----------------------------------------------------------------------------

static void draws_are_the_inverse_of_the_distribution(void **state) {
    (void)state;
    struct lp_sampler_params p = plain(1.5f);
    struct lp_sampler *s = new_sampler(&p);
    struct lp_rng rng;
    lp_rng_init(&rng, p.seed);
    double total = 0;
    for (int i = 0; i < 5; i++) total += exp(logits[i] / 1.5);
    for (int n = 0; n < 10000; n++) {
        double target = lp_rng_unit(&rng) * total, so_far = 0;
        int32_t id = 0;
        while ((so_far += exp(logits[id] / 1.5)) <= target) id++;
        assert_int_equal(lp_sampler_pick(s, logits, &empty, NULL), id);
    }
    lp_sampler_free(s);
}

static void a_seed_gives_one_sequence(void **state) {
    (void)state;
    struct lp_sampler_params p = plain(1), other = plain(1);
    other.seed = 43;
    struct lp_sampler *a = new_sampler(&p), *b = new_sampler(&p), *c = new_sampler(&other);
    int n_different = 0;
    for (int i = 0; i < 200; i++) {
        int32_t id = lp_sampler_pick(a, logits, &empty, NULL);
        assert_int_equal(lp_sampler_pick(b, logits, &empty, NULL), id);
        n_different += lp_sampler_pick(c, logits, &empty, NULL) != id;
    }
    assert_true(n_different > 50);
    lp_sampler_free(a);
    lp_sampler_free(b);
    lp_sampler_free(c);
}

// Whatever a filter leaves, the next token is drawn with the next random number: so a filter that
// leaves all changes nothing, and the logits of one call do not shift the numbers of the next.
static void a_call_takes_one_random_number(void **state) {
    (void)state;
    struct lp_sampler_params p = plain(1), wide = plain(1);
    wide.top_k = 5, wide.min_p = 1e-6f, wide.top_p = 0.999999f, wide.typical_p = 0.999999f;
    const float certain[N_VOCAB] = {0, 0, 80, 0, 0, 0};
    struct lp_sampler *a = new_sampler(&p), *b = new_sampler(&wide);
    for (int i = 0; i < 500; i++) {
        assert_int_equal(lp_sampler_pick(a, logits, &empty, NULL),
                         lp_sampler_pick(b, logits, &empty, NULL));
        lp_sampler_pick(a, i % 2 ? certain : logits, &empty, NULL);
        assert_int_equal(lp_sampler_pick(b, certain, &empty, NULL), 2);
    }
    lp_sampler_free(a);
    lp_sampler_free(b);
}

// ---- settings ----------------------------------------------------------------------------------

static void check_refused(struct lp_sampler_params p, const char *words) {
    struct lp_sampler *s = (struct lp_sampler *)&p;
    struct lp_err err;
    assert_int_equal(lp_sampler_new(&s, &p, never, N_VOCAB, &err), LP_STATUS_INVALID);
    assert_null(s);
    if (!strstr(err.text, words)) fail_msg("\"%s\" does not say \"%s\"", err.text, words);
}

#define REFUSED(words, ...)                                                                        \
    do {                                                                                           \
        struct lp_sampler_params p = plain(1);                                                     \
        __VA_ARGS__;                                                                               \
        check_refused(p, words);                                                                   \
    } while (0)

static void settings_out_of_range_are_named(void **state) {
    (void)state;
    REFUSED("temperature is -1, expected at least 0 and at most 100", p.temperature = -1);
    REFUSED("temperature is nan", p.temperature = NAN);
    REFUSED("temperature is inf", p.temperature = INFINITY);
    REFUSED("top_p is 0, expected more than 0 and at most 1", p.top_p = 0);
    REFUSED("top_p is 1.5", p.top_p = 1.5f);
    REFUSED("top_p is nan", p.top_p = NAN);
    REFUSED("typical_p is 0", p.typical_p = 0);
    REFUSED("min_p is -0.5", p.min_p = -0.5f);
    REFUSED("min_p is 2", p.min_p = 2);
    REFUSED("top_k is -1, expected 0 (off) or more", p.top_k = -1);
    REFUSED("repetition_penalty is 0, expected more than 0", p.repetition_penalty = 0);
    REFUSED("repetition_penalty is 11", p.repetition_penalty = 11);
    REFUSED("presence_penalty is 2.5, expected at least -2 and at most 2",
            p.presence_penalty = 2.5f);
    REFUSED("frequency_penalty is -3", p.frequency_penalty = -3);
    REFUSED("frequency_penalty is nan", p.frequency_penalty = NAN);
    REFUSED("dry_multiplier is -1", p.dry_multiplier = -1);
    REFUSED("dry_base is 0.5", p.dry_multiplier = 1, p.dry_base = 0.5f, p.dry_allowed_length = 2);
    REFUSED("dry_base is inf", p.dry_multiplier = 1, p.dry_base = INFINITY,
            p.dry_allowed_length = 2);
    REFUSED("dry_allowed_length is 0", p.dry_multiplier = 1, p.dry_base = 2);
    REFUSED("dry_allowed_length is 1025", p.dry_multiplier = 1, p.dry_base = 2,
            p.dry_allowed_length = LP_DRY_MAX_MATCH + 1);
    REFUSED("min_tokens is -2", p.min_tokens = -2);
}

static void ids_that_cannot_be_are_named(void **state) {
    (void)state;
    const int32_t outside = N_VOCAB, negative = -1;
    const struct lp_bias bad[] = {{N_VOCAB, 1}, {-1, 1}, {5, 1}, {2, NAN}, {2, 101}, {2, -101}};
    REFUSED("logit_bias has token 6, expected 0 to 5", p.bias = &bad[0], p.n_bias = 1);
    REFUSED("logit_bias has token -1", p.bias = &bad[1], p.n_bias = 1);
    REFUSED("logit_bias has token 5, which is never generated", p.bias = &bad[2], p.n_bias = 1);
    REFUSED("logit_bias of token 2 is nan, expected -100 to 100", p.bias = &bad[3], p.n_bias = 1);
    REFUSED("logit_bias of token 2 is 101", p.bias = &bad[4], p.n_bias = 1);
    REFUSED("logit_bias of token 2 is -101", p.bias = &bad[5], p.n_bias = 1);
    REFUSED("end tokens has token 6", p.ends = &outside, p.n_ends = 1);
    REFUSED("dry_breakers has token -1", p.dry_breakers = &negative, p.n_dry_breakers = 1);
}

// ---- what a grammar allows ---------------------------------------------------------------------

static void what_is_not_allowed_is_never_drawn(void **state) {
    (void)state;
    const uint32_t allowed = 1u << 0 | 1u << 2 | 1u << 4 | 1u << 5; // 5 is padding
    const struct lp_bias up = {1, 100};
    struct lp_sampler_params p = plain(0);
    p.may_be_masked = true;
    p.bias = &up, p.n_bias = 1;
    struct lp_sampler *s = new_sampler(&p);
    assert_int_equal(lp_sampler_pick(s, logits, &empty, &allowed), 2);
    assert_int_equal(lp_sampler_pick(s, logits, &empty, NULL), 1);
    lp_sampler_free(s);
    // The others keep their shares among themselves: top_p and min_p see them alone.
    p.temperature = 1;
    s = new_sampler(&p);
    enum { N = 100000 };
    int counts[N_VOCAB] = {0};
    for (int i = 0; i < N; i++) counts[lp_sampler_pick(s, logits, &empty, &allowed)]++;
    lp_sampler_free(s);
    assert_true(counts[0] + counts[2] + counts[4] == N);
    double sum = exp(1) + exp(2) + exp(-1);
    const double expected[N_VOCAB] = {exp(1) / sum, 0, exp(2) / sum, 0, exp(-1) / sum, 0};
    for (int i = 0; i < 5; i++) {
        double deviation = sqrt(N * expected[i] * (1 - expected[i]));
        assert_true(fabs(counts[i] - N * expected[i]) <= 5 * deviation);
    }
}

static void min_tokens_yields_to_the_grammar(void **state) {
    (void)state;
    const int32_t ends[] = {0, 4};
    const uint32_t only_ends = 1u << 0 | 1u << 4, others = 1u << 0 | 1u << 2;
    for (float temperature = 0; temperature < 2; temperature++) {
        struct lp_sampler_params p = plain(temperature);
        p.may_be_masked = true;
        p.ends = ends, p.n_ends = 2, p.min_tokens = 5;
        struct lp_sampler *s = new_sampler(&p);
        for (int i = 0; i < 50; i++) {
            assert_int_equal(lp_sampler_pick(s, logits, &empty, &others), 2);
            assert_int_equal(lp_sampler_pick(s, logits, &empty, &only_ends), 0);
        }
        lp_sampler_free(s);
    }
}

static void settings_are_copied(void **state) {
    (void)state;
    struct lp_bias bias = {4, 50};
    int32_t end = 4, breaker = 1;
    struct lp_sampler_params p = plain(0);
    p.bias = &bias, p.n_bias = 1, p.ends = &end, p.n_ends = 1, p.min_tokens = 1;
    p.dry_multiplier = 1, p.dry_base = 2, p.dry_allowed_length = 2;
    p.dry_breakers = &breaker, p.n_dry_breakers = 1;
    struct lp_sampler *s = new_sampler(&p);
    bias = (struct lp_bias){0, 0}, end = 0, breaker = 0;
    assert_int_equal(lp_sampler_pick(s, logits, &empty, NULL), 1);
    const int32_t token = 0;
    assert_int_equal(lp_sampler_pick(s, logits, &(struct lp_history){&token, 0, 1}, NULL), 4);
    lp_sampler_free(s);
}

static void new_survives_any_failing_allocation(void **state) {
    (void)state;
    const struct lp_bias bias = {1, 1};
    const int32_t id = 2;
    struct lp_sampler_params p = plain(1);
    p.bias = &bias, p.n_bias = 1, p.ends = &id, p.n_ends = 1, p.min_tokens = 1;
    p.repetition_penalty = 1.1f;
    p.dry_multiplier = 1, p.dry_base = 2, p.dry_allowed_length = 2;
    p.dry_breakers = &id, p.n_dry_breakers = 1;
    struct lp_sampler *s = NULL;
    struct lp_err err;
    size_t nth = 1;
    for (;; nth++) {
        lp_alloc_fail_after(nth);
        lp_status status = lp_sampler_new(&s, &p, never, N_VOCAB, &err);
        if (status == LP_OK) break; // the hook is still on: picking allocates nothing
        assert_int_equal(status, LP_STATUS_MEMORY);
        assert_null(s);
    }
    int32_t picked = lp_sampler_pick(s, logits, &(struct lp_history){&id, 1, 1}, NULL);
    lp_alloc_fail_after(0);
    assert_true(picked >= 0 && picked < 5);
    assert_true(nth > 8);
    lp_sampler_free(s);
    lp_sampler_free(NULL);
}

// ---- from a row's largest logits ---------------------------------------------------------------

enum { MANY = 6000, DRAWS = 300 };

static struct lp_top_row top_of(const float *row, const bool *left_out, double scale) {
    static uint8_t skip[MANY];
    struct lp_top_row top = {0};
    for (int i = 0; i < MANY; i++) skip[i] = left_out[i];
    struct lp_op_top_rows op = {row, MANY, 1, MANY, skip, &scale, &top};
    lp_backend_ref.top_rows(NULL, &op);
    return top;
}

// As many draws as from the row itself, one for one.
static void draws_from_the_largest_are_the_same(void **state) {
    (void)state;
    static const struct {
        float temperature, top_p, min_p;
        int32_t top_k;
    } rows[] = {{1, 0.9f, 0, 0},       {0.6f, 0.95f, 0, 0},  {1, 1, 0.05f, 0},
                {1.5f, 1, 0, 40},      {1, 0.8f, 0, 1024},   {1, 0.5f, 0, 3},
                {0.7f, 0.9f, 0.1f, 0}, {1, 0.9f, 0.02f, 50}, {0.01f, 0.99f, 0, 0},
                {100, 1, 0, 7}};
    static float row[MANY];
    static bool left_out[MANY];
    struct lp_rng rng;
    lp_rng_init(&rng, 3);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct lp_sampler_params p = plain(rows[i].temperature);
        p.top_p = rows[i].top_p;
        p.min_p = rows[i].min_p;
        p.top_k = rows[i].top_k;
        struct lp_sampler *a, *b;
        struct lp_err err;
        for (int k = 0; k < MANY; k++) left_out[k] = k % 11 == 5;
        assert_int_equal(lp_sampler_new(&a, &p, left_out, MANY, &err), LP_OK);
        assert_int_equal(lp_sampler_new(&b, &p, left_out, MANY, &err), LP_OK);
        const double scale = lp_sampler_top_scale(b);
        assert_true(fabs(scale * p.temperature - 1) < 1e-7);
        for (int draw = 0; draw < DRAWS; draw++) {
            for (int k = 0; k < MANY; k++) row[k] = 3 * lp_rng_normal(&rng);
            row[5] = 90; // left out
            const struct lp_top_row top = top_of(row, left_out, scale);
            assert_true(lp_sampler_top_is_enough(b, &top));
            assert_int_equal(lp_sampler_pick_top(b, &top), lp_sampler_pick(a, row, &empty, NULL));
        }
        lp_sampler_free(a);
        lp_sampler_free(b);
    }
}

static void the_largest_may_not_be_enough(void **state) {
    (void)state;
    static float row[MANY];
    static bool left_out[MANY];
    struct lp_sampler_params p = plain(1);
    struct lp_sampler *s;
    struct lp_err err;
    p.top_p = 0.9f;
    assert_int_equal(lp_sampler_new(&s, &p, left_out, MANY, &err), LP_OK);
    struct lp_top_row top = top_of(row, left_out, 1); // all as probable: 90 % are 5,400 ids
    assert_false(lp_sampler_top_is_enough(s, &top));
    row[17] = 30;
    top = top_of(row, left_out, 1);
    assert_true(lp_sampler_top_is_enough(s, &top));
    assert_int_equal(lp_sampler_pick_top(s, &top), 17);
    lp_sampler_free(s);
    const struct lp_bias bias = {3, 1};
    struct lp_sampler_params others[8];
    for (int i = 0; i < 8; i++) others[i] = p;
    others[0].temperature = 0;
    others[1].top_p = 1;
    others[2].typical_p = 0.5f;
    others[3].bias = &bias;
    others[3].n_bias = 1;
    others[4].presence_penalty = 1;
    others[5].may_be_masked = true;
    others[6].top_k = LP_TOP_VALUES + 1;
    others[7].repetition_penalty = 1.1f;
    for (int i = 0; i < 8; i++) {
        assert_int_equal(lp_sampler_new(&s, &others[i], left_out, MANY, &err), LP_OK);
        assert_true(lp_sampler_top_scale(s) == 0);
        lp_sampler_free(s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_from_the_largest_are_the_same),
        cmocka_unit_test(the_largest_may_not_be_enough),
        cmocka_unit_test(log_probabilities_sum_to_one),
        cmocka_unit_test(top_is_ordered),
        cmocka_unit_test(greedy_skips_padding_and_breaks_ties_low),
        cmocka_unit_test(greedy_is_the_largest_after_bias_and_penalties),
        cmocka_unit_test(bias_comes_before_the_repetition_penalty),
        cmocka_unit_test(ends_wait_for_min_tokens),
        cmocka_unit_test(when_all_are_excluded_the_most_probable_is_taken),
        cmocka_unit_test(shares_follow_the_probabilities),
        cmocka_unit_test(shares_follow_bias_and_penalties),
        cmocka_unit_test(draws_are_the_inverse_of_the_distribution),
        cmocka_unit_test(a_seed_gives_one_sequence),
        cmocka_unit_test(a_call_takes_one_random_number),
        cmocka_unit_test(settings_out_of_range_are_named),
        cmocka_unit_test(ids_that_cannot_be_are_named),
        cmocka_unit_test(what_is_not_allowed_is_never_drawn),
        cmocka_unit_test(min_tokens_yields_to_the_grammar),
        cmocka_unit_test(settings_are_copied),
        cmocka_unit_test(new_survives_any_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
