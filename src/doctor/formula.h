// Attention as docs/attention.md defines it, for one query and one head, in double: from the
// rotated query and the cache rows to the head's output. No form, no route, no kernel: what both
// forms of MLA must come to.
#ifndef LP_DOCTOR_FORMULA_H
#define LP_DOCTOR_FORMULA_H

#include "attention/attention.h"

struct lp_formula_keys {
    struct lp_cache_view latents;      // MLA: [latent, rope part]; pages: host
    struct lp_cache_view keys, values; // grouped queries
    const int32_t *ids;                // [n]: the positions that are seen; NULL: 0 .. n - 1
    int64_t n;
};

// out: [v_dim]. q: [nope + rope]. False: no memory.
bool lp_formula_mla(double *out, const struct lp_mla_layer *w, int32_t head, const float *q,
                    const struct lp_formula_keys *keys, double scale);
// q: [head_dim].
bool lp_formula_gqa(double *out, const struct lp_gqa_layer *w, int32_t head, const float *q,
                    const struct lp_formula_keys *keys, double scale);

#endif
