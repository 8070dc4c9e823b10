#include "model/expert_policy.h"

#include <math.h>

#include "base/alloc.h"

// Tokens until a use counts half. On replayed traces (test_expert_policy.c) 96 gains half a point
// where preferences are steady and loses two where they turn over every 200 tokens; 32 the reverse.
#define HALF_LIFE 48.0

lp_status lp_expert_policy_init(struct lp_expert_policy *p, enum lp_expert_rule rule,
                                int32_t n_items, struct lp_err *err) {
    size_t n = (size_t)n_items;
    *p = (struct lp_expert_policy){.rule = rule, .n_items = n_items};
    p->rank = lp_alloc(n, sizeof *p->rank);
    p->last = lp_alloc(n, sizeof *p->last);
    if (!p->rank || !p->last)
        return lp_err_memory(err, n * sizeof *p->rank, "the counts of experts");
    for (size_t i = 0; i < n; i++) p->rank[i] = -INFINITY;
    return LP_OK;
}

void lp_expert_policy_release(struct lp_expert_policy *p) {
    lp_free(p->rank);
    lp_free(p->last);
    *p = (struct lp_expert_policy){0};
}

void lp_expert_policy_pass(struct lp_expert_policy *p, int64_t n_tokens) {
    p->now += (double)n_tokens;
}

void lp_expert_policy_use(struct lp_expert_policy *p, int32_t item, double n_rows) {
    lp_expert_policy_set(p, item, lp_expert_policy_count(p, item) + n_rows);
    p->last[item] = ++p->n_uses;
}

bool lp_expert_policy_before(const struct lp_expert_policy *p, int32_t a, int32_t b) {
    if (p->rule == LP_EXPERT_RULE_DECAY && p->rank[a] != p->rank[b]) return p->rank[a] < p->rank[b];
    return p->last[a] < p->last[b];
}

double lp_expert_policy_count(const struct lp_expert_policy *p, int32_t item) {
    return exp2(p->rank[item] - p->now / HALF_LIFE);
}

void lp_expert_policy_set(struct lp_expert_policy *p, int32_t item, double count) {
    p->rank[item] = count > 0 ? log2(count) + p->now / HALF_LIFE : -INFINITY;
}
