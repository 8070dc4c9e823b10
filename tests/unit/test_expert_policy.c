// Replays of routing through caches of experts: this policy, least recently used, and the best that
// knows the future (the item whose next use is furthest away leaves: Belady, 1966).
//
// A trace has the traits of what routers of real models do: each layer prefers some experts (popularity
// by Zipf's law with exponent 1.1, in an order of the layer's own), a token takes n_used different ones,
// preferences drift, and change at once where the topic does.
#include "lp_test.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "model/expert_policy.h"

enum { N_LAYERS = 16, N_EXPERTS = 80, N_USED = 8, N_TOKENS = 1200, N_WARM = 200 };
enum { N_ITEMS = N_LAYERS * N_EXPERTS, N_USES = N_TOKENS * N_LAYERS * N_USED };

struct trace {
    int32_t *items; // [N_TOKENS][N_LAYERS][N_USED]
    int32_t *next;  // the same: the token of an item's next use, N_TOKENS: none
};

struct taste { // rank of popularity -> expert, of each layer
    int32_t expert[N_LAYERS][N_EXPERTS];
};

static void shuffle(struct lp_rng *rng, int32_t *list, int32_t n) {
    for (int32_t i = 0; i < n; i++) list[i] = i;
    for (int32_t i = n - 1; i > 0; i--) {
        int32_t k = (int32_t)(lp_rng_u64(rng) % (uint64_t)(i + 1)), keep = list[i];
        list[i] = list[k];
        list[k] = keep;
    }
}

// n_used different experts, drawn in proportion to 1 / rank^1.1 (the largest of log p + Gumbel).
static void draw(struct lp_rng *rng, const int32_t *expert, int32_t *out, int32_t first) {
    double key[N_USED];
    int32_t n = 0;
    for (int32_t r = 0; r < N_EXPERTS; r++) {
        double u = lp_rng_unit(rng) + 0x1p-54;
        double k = -1.1 * log(r + 1) - log(-log(u));
        int32_t at = n < N_USED ? n++ : N_USED;
        for (; at > 0 && key[at - 1] < k; at--)
            if (at < N_USED) {
                key[at] = key[at - 1];
                out[at] = out[at - 1];
            }
        if (at < N_USED) {
            key[at] = k;
            out[at] = first + expert[r];
        }
    }
}

static void drift(struct lp_rng *rng, struct taste *taste) {
    for (int32_t l = 0; l < N_LAYERS; l++) {
        int32_t r = (int32_t)(lp_rng_u64(rng) % (N_EXPERTS - 1)), keep = taste->expert[l][r];
        taste->expert[l][r] = taste->expert[l][r + 1];
        taste->expert[l][r + 1] = keep;
    }
}

static void find_next(struct trace *t) {
    int32_t *at = malloc(N_ITEMS * sizeof *at);
    for (int32_t i = 0; i < N_ITEMS; i++) at[i] = N_TOKENS;
    for (int32_t u = N_USES - 1; u >= 0; u--) {
        t->next[u] = at[t->items[u]];
        at[t->items[u]] = u / (N_LAYERS * N_USED);
    }
    free(at);
}

// A taste that agrees with another but for n_swaps exchanges of two experts of each layer.
static void vary(struct lp_rng *rng, struct taste *to, const struct taste *from, int n_swaps) {
    *to = *from;
    for (int32_t l = 0; l < N_LAYERS; l++)
        for (int i = 0; i < n_swaps; i++) {
            int32_t *a = &to->expert[l][lp_rng_u64(rng) % N_EXPERTS];
            int32_t *b = &to->expert[l][lp_rng_u64(rng) % N_EXPERTS], keep = *a;
            *a = *b;
            *b = keep;
        }
}

// n_topics: how many tastes there are; the topic changes every topic_tokens. n_swaps: how far they
// are from the first (vary); -1: they have nothing in common.
static struct trace make_trace(uint64_t seed, int n_topics, int topic_tokens, int n_swaps,
                               bool drifts) {
    struct trace t = {malloc(N_USES * sizeof *t.items), malloc(N_USES * sizeof *t.next)};
    struct taste *tastes = malloc((size_t)n_topics * sizeof *tastes);
    struct lp_rng rng;
    lp_rng_init(&rng, seed);
    for (int i = 0; i < n_topics; i++) {
        for (int32_t l = 0; l < N_LAYERS; l++) shuffle(&rng, tastes[i].expert[l], N_EXPERTS);
        if (i > 0 && n_swaps >= 0) vary(&rng, &tastes[i], &tastes[0], n_swaps);
    }
    for (int32_t token = 0; token < N_TOKENS; token++) {
        struct taste *taste = &tastes[token / topic_tokens % n_topics];
        if (drifts) drift(&rng, taste);
        for (int32_t l = 0; l < N_LAYERS; l++)
            draw(&rng, taste->expert[l], t.items + (token * N_LAYERS + l) * N_USED, l * N_EXPERTS);
    }
    free(tastes);
    find_next(&t);
    return t;
}

static void free_trace(struct trace *t) {
    free(t->items);
    free(t->next);
}

struct replay {
    int32_t slots[N_ITEMS], n_slots, n_filled;
    int32_t slot_of[N_ITEMS]; // -1: absent
    int32_t next[N_ITEMS];    // token of the next use
    bool pinned[N_ITEMS];
    struct lp_expert_policy policy;
    bool knows_future;
};

static bool leaves_before(const struct replay *r, int32_t a, int32_t b) {
    return r->knows_future ? r->next[a] > r->next[b] : lp_expert_policy_before(&r->policy, a, b);
}

static void bring(struct replay *r, int32_t item) {
    int32_t best = -1;
    if (r->n_filled < r->n_slots) {
        best = r->n_filled++;
    } else {
        for (int32_t s = 0; s < r->n_slots; s++)
            if (!r->pinned[r->slots[s]] &&
                (best < 0 || leaves_before(r, r->slots[s], r->slots[best])))
                best = s;
        r->slot_of[r->slots[best]] = -1;
    }
    r->slots[best] = item;
    r->slot_of[item] = best;
}

// Hit rate in percent behind the first N_WARM tokens.
static double replay(const struct trace *t, int32_t n_slots, enum lp_expert_rule rule,
                     bool knows_future) {
    struct replay *r = calloc(1, sizeof *r);
    int64_t n_hits = 0, n = 0;
    r->n_slots = n_slots;
    r->knows_future = knows_future;
    assert_int_equal(lp_expert_policy_init(&r->policy, rule, N_ITEMS, NULL), LP_OK);
    for (int32_t i = 0; i < N_ITEMS; i++) r->slot_of[i] = -1;
    for (int32_t u = 0; u < N_USES; u += N_USED) {
        const int32_t *items = t->items + u;
        int32_t token = u / (N_LAYERS * N_USED);
        if (u % (N_LAYERS * N_USED) == 0) lp_expert_policy_pass(&r->policy, 1);
        for (int j = 0; j < N_USED; j++) {
            lp_expert_policy_use(&r->policy, items[j], 1);
            r->pinned[items[j]] = true;
            r->next[items[j]] = t->next[u + j];
        }
        for (int j = 0; j < N_USED; j++) {
            bool hit = r->slot_of[items[j]] >= 0;
            n += token >= N_WARM;
            n_hits += token >= N_WARM && hit;
            if (!hit) bring(r, items[j]);
        }
        for (int j = 0; j < N_USED; j++) r->pinned[items[j]] = false;
    }
    lp_expert_policy_release(&r->policy);
    free(r);
    return 100 * (double)n_hits / (double)n;
}

// How many points ours is above the other.
static double compare(const char *what, struct trace t) {
    int32_t n_slots = N_ITEMS * 2 / 5;
    double ours = replay(&t, n_slots, LP_EXPERT_RULE_DECAY, false);
    double recent = replay(&t, n_slots, LP_EXPERT_RULE_RECENT, false);
    double best = replay(&t, n_slots, LP_EXPERT_RULE_DECAY, true);
    print_message("%s: %.1f %%, least recently used %.1f %%, with foresight %.1f %%\n", what, ours,
                  recent, best);
    free_trace(&t);
    assert_true(ours <= best);
    return ours - recent;
}

static void test_steady(void **state) {
    (void)state;
    assert_true(compare("steady", make_trace(1, 1, N_TOKENS, -1, false)) >= 5);
}

static void test_drifting(void **state) {
    (void)state;
    assert_true(compare("drifting", make_trace(2, 1, N_TOKENS, -1, true)) >= 5);
}

static void test_topics(void **state) {
    (void)state;
    assert_true(compare("topics of 200 tokens", make_trace(3, 3, 200, 20, true)) >= 5);
}

// The hardest case there is: all that was learned is worthless every 200 tokens.
static void test_foreign_topics(void **state) {
    (void)state;
    assert_true(compare("foreign topics", make_trace(3, 3, 200, -1, true)) >= 3);
}

static void test_counts_fade(void **state) {
    struct lp_expert_policy p;
    (void)state;
    assert_int_equal(lp_expert_policy_init(&p, LP_EXPERT_RULE_DECAY, 3, NULL), LP_OK);
    lp_expert_policy_use(&p, 0, 3);
    double before = lp_expert_policy_count(&p, 0);
    assert_true(fabs(before - 3) < 1e-9);
    lp_expert_policy_pass(&p, 1);
    double fade = lp_expert_policy_count(&p, 0) / before;
    assert_true(fade > 0.9 && fade < 1);
    lp_expert_policy_pass(&p, 999);
    assert_true(fabs(lp_expert_policy_count(&p, 0) / (3 * pow(fade, 1000)) - 1) < 1e-6);
    lp_expert_policy_use(&p, 1, 1); // fresh, and by now more than what has faded
    assert_true(lp_expert_policy_before(&p, 0, 1));
    assert_true(lp_expert_policy_before(&p, 2, 0)); // never used
    assert_false(lp_expert_policy_before(&p, 0, 2));
    lp_expert_policy_release(&p);
}

static void test_equal_counts_go_by_recency(void **state) {
    struct lp_expert_policy p;
    (void)state;
    assert_int_equal(lp_expert_policy_init(&p, LP_EXPERT_RULE_DECAY, 2, NULL), LP_OK);
    lp_expert_policy_use(&p, 1, 1);
    lp_expert_policy_use(&p, 0, 1);
    assert_true(lp_expert_policy_before(&p, 1, 0));
    assert_false(lp_expert_policy_before(&p, 0, 1));
    lp_expert_policy_release(&p);
}

static void test_set_is_the_count(void **state) {
    struct lp_expert_policy p;
    (void)state;
    assert_int_equal(lp_expert_policy_init(&p, LP_EXPERT_RULE_DECAY, 2, NULL), LP_OK);
    lp_expert_policy_pass(&p, 12345);
    lp_expert_policy_set(&p, 0, 2.5);
    assert_true(fabs(lp_expert_policy_count(&p, 0) - 2.5) < 1e-9);
    assert_true(lp_expert_policy_count(&p, 1) == 0);
    lp_expert_policy_release(&p);
}

static void test_out_of_memory(void **state) {
    (void)state;
    for (size_t n = 1; n <= 2; n++) {
        struct lp_expert_policy p;
        lp_alloc_fail_after(n);
        assert_int_equal(lp_expert_policy_init(&p, LP_EXPERT_RULE_DECAY, 9, NULL),
                         LP_STATUS_MEMORY);
        lp_alloc_fail_after(0);
        lp_expert_policy_release(&p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steady),           cmocka_unit_test(test_drifting),
        cmocka_unit_test(test_topics),           cmocka_unit_test(test_foreign_topics),
        cmocka_unit_test(test_counts_fade),      cmocka_unit_test(test_equal_counts_go_by_recency),
        cmocka_unit_test(test_set_is_the_count), cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
