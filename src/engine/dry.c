#include "engine/dry.h"

#include "base/alloc.h"
#include "engine/penalties.h"

lp_status lp_dry_init(struct lp_dry *dry, double multiplier, double base, int32_t allowed_length,
                      const int32_t *breakers, size_t n_breakers, int32_t n_vocab,
                      struct lp_err *err) {
    *dry =
        (struct lp_dry){.multiplier = multiplier, .base = base, .allowed_length = allowed_length};
    dry->is_breaker = lp_alloc((size_t)n_vocab, sizeof *dry->is_breaker);
    dry->overlap = lp_alloc(LP_DRY_MAX_MATCH, sizeof *dry->overlap);
    if (!dry->is_breaker || !dry->overlap) {
        lp_dry_release(dry);
        return lp_err_memory(err, (size_t)n_vocab + LP_DRY_MAX_MATCH * sizeof *dry->overlap, "DRY");
    }
    for (size_t i = 0; i < n_breakers; i++) dry->is_breaker[breakers[i]] = true;
    return LP_OK;
}

void lp_dry_release(struct lp_dry *dry) {
    lp_free(dry->is_breaker);
    lp_free(dry->overlap);
    *dry = (struct lp_dry){0};
}

// The text read backwards: at(0) is the last token.
struct reversed {
    const int32_t *last;
};

static int32_t at(struct reversed text, int64_t i) {
    return text.last[-i];
}

// How many tokens at the end may take part in a match: up to a breaker.
static int32_t tail_length(const struct lp_dry *dry, struct reversed text, int64_t n) {
    int32_t length = 0;
    while (length < n && length < LP_DRY_MAX_MATCH && !dry->is_breaker[at(text, length)]) length++;
    return length;
}

// The Z algorithm (Gusfield 1997, section 1.3) on the reversed text with the tail as the pattern:
// `length` below is the longest common prefix of the tail and the reversed text from i on. The
// token after such a match, read forwards, is at(i - 1). As a match is no longer than the tail,
// only the first n_tail lengths have to be remembered.
static void longest_matches(struct lp_dry *dry, int32_t *longest, struct reversed text, int64_t n,
                            int32_t n_tail) {
    int64_t left = 0,
            right = 0; // the match that reaches furthest: text[left, right) = tail[0, ...)
    for (int64_t i = 1; i < n; i++) {
        int32_t length = 0;
        if (i < right) {
            int32_t known = dry->overlap[i - left], rest = (int32_t)(right - i);
            length = known < rest ? known : rest;
        }
        if (i + length >= right) {
            while (length < n_tail && i + length < n && at(text, length) == at(text, i + length))
                length++;
            left = i;
            right = i + length;
        }
        if (i < n_tail) dry->overlap[i] = length;
        int32_t next = at(text, i - 1);
        if (length >= dry->allowed_length && length > longest[next]) longest[next] = length;
    }
}

// base^exponent by squaring; may be infinite, which the caller's rounding to a float takes care of.
static double power(double base, int32_t exponent) {
    double result = 1;
    for (; exponent > 0; exponent >>= 1, base *= base)
        if (exponent & 1) result *= base;
    return result;
}

void lp_dry_apply(struct lp_dry *dry, float *logits, int32_t *scratch, const int32_t *tokens,
                  int64_t n) {
    if (n == 0) return;
    struct reversed text = {tokens + n - 1};
    int32_t n_tail = tail_length(dry, text, n);
    if (n_tail < dry->allowed_length) return;
    longest_matches(dry, scratch, text, n, n_tail);
    for (int64_t i = 0; i < n; i++) {
        int32_t id = tokens[i], length = scratch[id];
        if (length == 0) continue;
        scratch[id] = 0;
        if (dry->is_breaker[id]) continue;
        double amount = dry->multiplier * power(dry->base, length - dry->allowed_length);
        logits[id] = lp_penalties_lower(logits[id], amount);
    }
}
