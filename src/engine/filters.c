#include "engine/filters.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "engine/exp_block.h"

lp_status lp_candidates_init(struct lp_candidates *c, int32_t n_vocab, struct lp_err *err) {
    *c = (struct lp_candidates){0};
    size_t n = (size_t)n_vocab, n_blocks = (n + LP_EXP_BLOCK - 1) / LP_EXP_BLOCK;
    c->id = lp_alloc(n, sizeof *c->id);
    c->logit = lp_alloc(n, sizeof *c->logit);
    c->key = lp_alloc(n, sizeof *c->key);
    c->block_sums = lp_alloc(n_blocks, sizeof *c->block_sums);
    if (c->id && c->logit && c->key && c->block_sums) return LP_OK;
    lp_candidates_release(c);
    return lp_err_memory(err, n * (sizeof *c->id + sizeof *c->logit + sizeof *c->key),
                         "the sampler's candidates");
}

void lp_candidates_release(struct lp_candidates *c) {
    lp_free(c->id);
    lp_free(c->logit);
    lp_free(c->key);
    lp_free(c->block_sums);
    *c = (struct lp_candidates){0};
}

static double exponent(const struct lp_candidates *c, int32_t i) {
    return ((double)c->logit[i] - c->largest) * c->scale;
}

static int32_t block_length(const struct lp_candidates *c, int32_t start) {
    return c->n - start < LP_EXP_BLOCK ? c->n - start : LP_EXP_BLOCK;
}

// The weights of a block of candidates; returns their sum.
static double block_weights(const struct lp_candidates *c, int32_t start, double *weights) {
    int32_t n = block_length(c, start);
    for (int32_t j = 0; j < n; j++) weights[j] = exponent(c, start + j);
    return lp_exp_block(weights, n);
}

// All ids that may be drawn and, min_p: whose weight is at least min_p.
static void gather(struct lp_candidates *c, const float *logits, const bool *never, int32_t n_vocab,
                   double min_p) {
    double least = c->largest + log(min_p) / c->scale;
    if (least < -(double)FLT_MAX) least = -(double)FLT_MAX; // which leaves -infinity out
    int32_t n = 0;
    for (int32_t i = 0; i < n_vocab; i++) { // written always, counted if kept: no branch to guess
        float logit = logits[i];
        c->logit[n] = logit;
        c->id[n] = i;
        n += !never[i] & ((double)logit >= least);
    }
    c->n = n;
}

// ---- the first ids by their keys, until enough -------------------------------------------------

// A smaller key is first: the larger number. 0 and -0 are equal.
static uint32_t key_of(float value) {
    uint32_t bits;
    float positive_zero = value + 0.0f;
    memcpy(&bits, &positive_zero, sizeof bits);
    return bits ^ (bits >> 31 ? 0 : 0x7fffffffu);
}

// What is to be kept: the first ids until they are `count`, or until their weights sum up to
// `share` of all weights.
struct enough {
    bool by_weight;
    double share;
    double all; // of all weights, if more than those of the candidates; else 0
    int32_t count;
};

enum { MAX_BUCKETS = 1 << 11 };

// Adds up, bucket by bucket, what the candidates have whose key begins with `prefix` (its bits from
// `high` on); the bucket is the bits from `low` to `high`.
static void fill_buckets(const struct lp_candidates *c, bool by_weight, int high, int low,
                         uint64_t prefix, double *buckets) {
    uint32_t mask = ((uint32_t)1 << (high - low)) - 1;
    double weights[LP_EXP_BLOCK];
    int32_t inside[LP_EXP_BLOCK];
    for (int32_t start = 0; start < c->n; start += LP_EXP_BLOCK) {
        int32_t end = start + block_length(c, start), n = 0;
        for (int32_t i = start; i < end; i++) {
            inside[n] = i;
            n += (uint64_t)c->key[i] >> high == prefix;
        }
        if (by_weight) {
            for (int32_t j = 0; j < n; j++) weights[j] = exponent(c, inside[j]);
            lp_exp_block(weights, n);
        }
        for (int32_t j = 0; j < n; j++)
            buckets[c->key[inside[j]] >> low & mask] += by_weight ? weights[j] : 1;
    }
}

// The bucket in which `target` is reached, or the last that has anything where rounding left the
// sum below the target. *before: what the ids before that bucket have.
static uint64_t find_bucket(const double *buckets, int n_buckets, double target, double *before) {
    int found = -1;
    for (int b = 0; b < n_buckets; b++) {
        if (buckets[b] == 0) continue;
        if (found >= 0) *before += buckets[found];
        found = b;
        if (*before + buckets[b] >= target) break;
    }
    return (uint64_t)found;
}

static void drop_behind(struct lp_candidates *c, uint64_t last_key) {
    int32_t n = 0;
    for (int32_t i = 0; i < c->n; i++) { // no branch, as in gather
        c->id[n] = c->id[i];
        c->logit[n] = c->logit[i];
        c->key[n] = c->key[i];
        n += c->key[i] <= last_key;
    }
    c->n = n;
}

// Of the ids with the last key, keeps the lowest until enough.
static void drop_ties(struct lp_candidates *c, bool by_weight, uint64_t last_key, double before,
                      double target) {
    int32_t n = 0;
    for (int32_t i = 0; i < c->n; i++) {
        if (c->key[i] == last_key) {
            if (before >= target) continue;
            double amount = exponent(c, i);
            before += by_weight ? lp_exp_block(&amount, 1) : 1;
        }
        c->id[n] = c->id[i];
        c->logit[n++] = c->logit[i];
    }
    c->n = n;
}

static void keep_first(struct lp_candidates *c, struct enough enough) {
    static const int bit[] = {32, 21, 10, 0};
    uint64_t prefix = 0;
    double before = 0, target = enough.count;
    for (int level = 0; level < 3; level++) {
        double buckets[MAX_BUCKETS] = {0}, total = 0;
        int high = bit[level], low = bit[level + 1], n_buckets = 1 << (high - low);
        fill_buckets(c, enough.by_weight, high, low, prefix, buckets);
        if (level == 0 && enough.by_weight) {
            for (int b = 0; b < n_buckets; b++) total += buckets[b];
            target = enough.share * (enough.all > total ? enough.all : total);
        }
        prefix = prefix << (high - low) | find_bucket(buckets, n_buckets, target, &before);
        drop_behind(c, ((prefix + 1) << low) - 1);
    }
    drop_ties(c, enough.by_weight, prefix, before, target);
}

// ---- the filters -------------------------------------------------------------------------------

static void order_by_logit(struct lp_candidates *c) {
    for (int32_t i = 0; i < c->n; i++) c->key[i] = key_of(c->logit[i]);
}

// By the distance of an id's surprise from the entropy, |-log p - H|, the nearest first. With x =
// log weight and p = weight / Z it is |x - sum(p x)|: log Z falls out. Compared in float.
static void order_by_surprise(struct lp_candidates *c) {
    double sum = 0, sum_x = 0, weights[LP_EXP_BLOCK];
    for (int32_t start = 0; start < c->n; start += LP_EXP_BLOCK) {
        sum += block_weights(c, start, weights);
        int32_t n = block_length(c, start);
        for (int32_t j = 0; j < n; j++) sum_x += weights[j] * exponent(c, start + j);
    }
    double mean = sum_x / sum;
    for (int32_t i = 0; i < c->n; i++) {
        double nearness = -fabs(exponent(c, i) - mean);
        c->key[i] = key_of(nearness < -(double)FLT_MAX ? -FLT_MAX : (float)nearness);
    }
}

// Behind min_p. all: of the row's weights, if there are more than the candidates'; else 0
static void filter(struct lp_candidates *c, const struct lp_filters *filters, double all) {
    if (filters->top_k > 0 && filters->top_k < c->n) {
        order_by_logit(c);
        keep_first(c, (struct enough){.count = filters->top_k});
    }
    if (filters->typical_p < 1) {
        order_by_surprise(c);
        keep_first(c, (struct enough){.by_weight = true, .share = filters->typical_p});
    }
    if (filters->top_p < 1) {
        order_by_logit(c);
        keep_first(c, (struct enough){.by_weight = true, .share = filters->top_p, .all = all});
    }
}

void lp_filters_apply(struct lp_candidates *c, const struct lp_filters *filters,
                      const float *logits, const bool *never, int32_t n_vocab, float largest) {
    c->largest = largest;
    c->scale = 1 / filters->temperature;
    gather(c, logits, never, n_vocab, filters->min_p);
    filter(c, filters, 0);
}

static float largest_of(const struct lp_top_row *top) {
    float largest = top->values[0];
    for (int32_t i = 1; i < top->n; i++)
        if (top->values[i] > largest) largest = top->values[i];
    return largest;
}

void lp_filters_apply_top(struct lp_candidates *c, const struct lp_filters *filters,
                          const struct lp_top_row *top) {
    c->largest = largest_of(top);
    c->scale = 1 / filters->temperature;
    const double least = c->largest + log(filters->min_p) / c->scale;
    c->n = 0;
    for (int32_t i = 0; i < top->n; i++) {
        c->logit[c->n] = top->values[i];
        c->id[c->n] = top->ids[i];
        c->n += (double)top->values[i] >= least;
    }
    filter(c, filters, filters->min_p > 0 || filters->top_k > 0 ? 0 : top->sum);
}

bool lp_filters_need_no_more(const struct lp_filters *filters, const struct lp_top_row *top) {
    if (top->n < 1) return false;
    if (top->n < LP_TOP_VALUES || (filters->top_k > 0 && filters->top_k <= top->n)) return true;
    const double largest = largest_of(top), scale = 1 / filters->temperature,
                 least = largest + log(filters->min_p) / scale;
    double sum = 0, block[LP_EXP_BLOCK];
    int32_t n_less = 0;
    for (int32_t start = 0, n; start < top->n; start += n) {
        n = top->n - start < LP_EXP_BLOCK ? top->n - start : LP_EXP_BLOCK;
        for (int32_t i = 0; i < n; i++) {
            n_less += top->values[start + i] < least;
            block[i] = (top->values[start + i] - largest) * scale;
        }
        sum += lp_exp_block(block, n);
    }
    if (filters->min_p > 0) return n_less > 0;
    // sums are rounded: a little more than enough
    return filters->top_p < 1 && sum >= filters->top_p * top->sum * (1 + 1e-9);
}

int32_t lp_filters_draw(struct lp_candidates *c, double unit) {
    double total = 0, weights[LP_EXP_BLOCK];
    for (int32_t start = 0; start < c->n; start += LP_EXP_BLOCK)
        total += c->block_sums[start / LP_EXP_BLOCK] = block_weights(c, start, weights);
    double target = unit * total, so_far = 0;
    int32_t block = 0; // unit < 1, so one of them ends behind the target
    while (so_far + c->block_sums[block] <= target) so_far += c->block_sums[block++];
    int32_t start = block * LP_EXP_BLOCK, last = block_length(c, start) - 1, j = 0;
    block_weights(c, start, weights);
    for (; j < last; j++) // the last is not asked: the sum of the block was rounded otherwise
        if (target < (so_far += weights[j])) break;
    return c->id[start + j];
}
