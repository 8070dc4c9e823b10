// How the file suggests to sample: llama.cpp's keys, which its converter takes from
// generation_config.json, as limpid's does.
#include <math.h>

#include "engine/engine.h"

static double number(const struct lp_gguf *gguf, const char *key) {
    const struct lp_gguf_kv *kv = lp_gguf_find(gguf, key);
    if (!kv || kv->type == LP_GGUF_ARRAY) return NAN;
    if (lp_gguf_is_integral(kv->type)) return (double)lp_gguf_int_at(kv, 0);
    double value = lp_gguf_is_float(kv->type) ? lp_gguf_float_at(kv, 0) : NAN;
    return isfinite(value) ? value : NAN;
}

limpid_model_sampling limpid_model_get_sampling(const limpid_model *m) {
    return (limpid_model_sampling){.temperature = number(m->gguf, "general.sampling.temp"),
                                   .top_p = number(m->gguf, "general.sampling.top_p"),
                                   .top_k = number(m->gguf, "general.sampling.top_k"),
                                   .min_p = number(m->gguf, "general.sampling.min_p"),
                                   .repetition_penalty =
                                       number(m->gguf, "general.sampling.penalty_repeat")};
}
