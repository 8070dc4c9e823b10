#include "kv/kv_types.h"

#include <strings.h>

static const struct {
    lp_type type;
    const char *name;
} types[] = {{LP_TYPE_F32, "F32"},
             {LP_TYPE_F16, "F16"},
             {LP_TYPE_BF16, "BF16"},
             {LP_TYPE_Q8_0, "Q8_0"},
             {LP_TYPE_F8_E4M3, "FP8"}};
#define N_TYPES (sizeof types / sizeof types[0])

bool lp_kv_type_parse(const char *name, lp_type *out) {
    for (size_t i = 0; i < N_TYPES; i++)
        if (strcasecmp(name, types[i].name) == 0) {
            *out = types[i].type;
            return true;
        }
    return false;
}

const char *lp_kv_type_name(lp_type type) {
    for (size_t i = 0; i < N_TYPES; i++)
        if (types[i].type == type) return types[i].name;
    return "(unknown)";
}

bool lp_kv_type_supported(lp_type type) {
    for (size_t i = 0; i < N_TYPES; i++)
        if (types[i].type == type) return true;
    return false;
}

int32_t lp_kv_row_tail(lp_type type, const struct lp_kv_layer *layer, enum lp_kv_kind kind) {
    const int32_t width = layer->width[kind];
    if (type != LP_TYPE_F8_E4M3) return 0;
    if (kind == LP_KV_LATENT) return layer->rope;
    return kind == LP_KV_INDEX && !lp_cache_type_fits(type, width) ? width : 0;
}

size_t lp_kv_row_bytes(lp_type type, const struct lp_kv_layer *layer, enum lp_kv_kind kind) {
    size_t bytes = 0;
    lp_cache_row_bytes(type, layer->width[kind], lp_kv_row_tail(type, layer, kind), &bytes);
    return bytes;
}

// The type that takes what one of larger blocks does not.
static const char *instead_of(lp_type type, int32_t width) {
    return type != LP_TYPE_Q8_0 && lp_cache_type_fits(LP_TYPE_Q8_0, width) ? "q8_0" : "f16";
}

lp_status lp_kv_layer_check(lp_type type, const struct lp_kv_layer *layer, int32_t layer_number,
                            struct lp_err *err) {
    static const char *const names[LP_KV_N_KINDS] = {"latents", "indexer keys", "keys", "values"};
    for (int kind = 0; kind < LP_KV_N_KINDS; kind++) {
        const int32_t width = layer->width[kind],
                      n = width - lp_kv_row_tail(type, layer, (enum lp_kv_kind)kind);
        if (width == 0 || lp_kv_row_bytes(type, layer, (enum lp_kv_kind)kind) > 0) continue;
        return lp_err_set(err, LP_STATUS_INVALID,
                          "KV type %s needs rows of whole blocks of %u values, the %s of layer %d "
                          "have %d; use --kv %s",
                          lp_kv_type_name(type), lp_type_info((uint32_t)type)->block_values,
                          names[kind], layer_number, n, instead_of(type, width));
    }
    return LP_OK;
}

lp_status lp_kv_heads_check(lp_type type, int32_t head_dim, int32_t v_dim, struct lp_err *err) {
    if (lp_cache_type_fits(type, head_dim) && lp_cache_type_fits(type, v_dim)) return LP_OK;
    const int32_t worse = lp_cache_type_fits(LP_TYPE_Q8_0, head_dim) ? v_dim : head_dim;
    return lp_err_set(err, LP_STATUS_UNSUPPORTED,
                      "KV type %s needs heads of a multiple of %u values, this model's have %d and "
                      "%d; use --kv %s",
                      lp_kv_type_name(type), lp_type_info((uint32_t)type)->block_values, head_dim,
                      v_dim, instead_of(type, worse));
}
