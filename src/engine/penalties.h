// What a request adds to single logits before ids are filtered: logit_bias, and the penalties on
// tokens that have been written before (docs/sampling.md). Results are finite: what would leave the
// range of a float stays at its end.
#ifndef LP_ENGINE_PENALTIES_H
#define LP_ENGINE_PENALTIES_H

#include <stddef.h>
#include <stdint.h>

struct lp_bias {
    int32_t id;
    float add;
};

// logit - amount, within the range of a float.
float lp_penalties_lower(float logit, double amount);

// Adds each bias to its logit; ids given twice add up.
void lp_penalties_bias(float *logits, const struct lp_bias *bias, size_t n);

// Each id in tokens[n]: a positive logit is divided by `penalty`, another multiplied (Keskar et al.
// 2019, as in Hugging Face transformers and vLLM). `scratch`, here and below: [n_vocab], zero
// before and after.
void lp_penalties_repetition(float *logits, int32_t *scratch, const int32_t *tokens, int64_t n,
                             float penalty);

// Each id that occurs c > 0 times in tokens[n]: logit - (c * frequency + presence) (OpenAI).
void lp_penalties_count(float *logits, int32_t *scratch, const int32_t *tokens, int64_t n,
                        float presence, float frequency);

#endif
