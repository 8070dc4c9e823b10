#include "engine/penalties.h"

#include <float.h>

static float to_float(double value) {
    if (value > (double)FLT_MAX) return FLT_MAX;
    if (value < -(double)FLT_MAX) return -FLT_MAX;
    return (float)value;
}

float lp_penalties_lower(float logit, double amount) {
    return to_float(logit - amount);
}

void lp_penalties_bias(float *logits, const struct lp_bias *bias, size_t n) {
    for (size_t i = 0; i < n; i++)
        logits[bias[i].id] = to_float((double)logits[bias[i].id] + (double)bias[i].add);
}

void lp_penalties_repetition(float *logits, int32_t *scratch, const int32_t *tokens, int64_t n,
                             float penalty) {
    for (int64_t i = 0; i < n; i++) {
        int32_t id = tokens[i];
        if (scratch[id]) continue; // once an id, however often it occurs
        scratch[id] = 1;
        double logit = logits[id];
        logits[id] = to_float(logit > 0 ? logit / (double)penalty : logit * (double)penalty);
    }
    for (int64_t i = 0; i < n; i++) scratch[tokens[i]] = 0;
}

void lp_penalties_count(float *logits, int32_t *scratch, const int32_t *tokens, int64_t n,
                        float presence, float frequency) {
    for (int64_t i = 0; i < n; i++) scratch[tokens[i]]++;
    for (int64_t i = 0; i < n; i++) {
        int32_t id = tokens[i];
        if (scratch[id] == 0) continue;
        double amount = scratch[id] * (double)frequency + (double)presence;
        logits[id] = lp_penalties_lower(logits[id], amount);
        scratch[id] = 0;
    }
}
