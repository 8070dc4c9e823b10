// The types of a cache, as users name them; and what a model's state must be for one.
#ifndef LP_KV_KV_TYPES_H
#define LP_KV_KV_TYPES_H

#include "kv/pages.h"

#define LP_KV_TYPE_NAMES "f32, f16, bf16, q8_0 or fp8"

// "f32", "F16", ...; false for another name.
bool lp_kv_type_parse(const char *name, lp_type *out);
// "F32", "F16", "BF16", "Q8_0", "FP8"; "(unknown)" for a type of no cache.
const char *lp_kv_type_name(lp_type type);
bool lp_kv_type_supported(lp_type type);

// The values at the end of a row that are BF16 (lp_cache_view.n_tail): with F8_E4M3 the rotated part of a latent
// row (a ninth of GLM-5's values), and an indexer key of no whole blocks.
int32_t lp_kv_row_tail(lp_type type, const struct lp_kv_layer *layer, enum lp_kv_kind kind);
// 0: the layer has no such state, or its row does not fit the type.
size_t lp_kv_row_bytes(lp_type type, const struct lp_kv_layer *layer, enum lp_kv_kind kind);
// Whether each row of a layer fits; a sentence of number `layer_number` otherwise (INVALID).
lp_status lp_kv_layer_check(lp_type type, const struct lp_kv_layer *layer, int32_t layer_number,
                            struct lp_err *err);
// Whether a head's part of a row begins with a block, in grouped-query attention (UNSUPPORTED).
lp_status lp_kv_heads_check(lp_type type, int32_t head_dim, int32_t v_dim, struct lp_err *err);

#endif
