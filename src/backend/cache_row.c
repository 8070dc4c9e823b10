// A row of the cache as its operations see it: which widths a type takes, how long a row is, and its
// values as float32, on the host. (The backends have their own readers; these are the definition.)
#include "backend/backend.h"

bool lp_cache_type_fits(lp_type type, int32_t width) {
    switch (type) {
    case LP_TYPE_F32:
    case LP_TYPE_F16:
    case LP_TYPE_BF16:
    case LP_TYPE_Q8_0:
    case LP_TYPE_F8_E4M3:
        return width > 0 && width % (int32_t)lp_type_info(type)->block_values == 0;
    default:
        return false;
    }
}

bool lp_cache_row_bytes(lp_type type, int32_t width, int32_t n_tail, size_t *bytes) {
    const int32_t n = width - n_tail;
    uint64_t blocks = 0;
    if (n_tail < 0 || n < 0 || width == 0 || (n_tail > 0 && type != LP_TYPE_F8_E4M3)) return false;
    if (n > 0 && (!lp_cache_type_fits(type, n) || !lp_type_row_bytes(type, (uint64_t)n, &blocks)))
        return false;
    *bytes = (size_t)blocks + (size_t)n_tail * sizeof(uint16_t);
    return true;
}

void lp_cache_row_read(const struct lp_cache_view *cache, const void *row, float *out) {
    const int32_t n = cache->width - cache->n_tail;
    lp_type_info(cache->type)->dequant(row, out, (size_t)n);
    if (cache->n_tail)
        lp_type_info(LP_TYPE_BF16)
            ->dequant((const char *)row + lp_cache_offset(cache, n), out + n,
                      (size_t)cache->n_tail);
}

void lp_cache_row_write(const struct lp_cache_view *cache, const float *x, void *row) {
    const int32_t n = cache->width - cache->n_tail;
    lp_type_info(cache->type)->quantize(x, row, (size_t)n);
    if (cache->n_tail)
        lp_type_info(LP_TYPE_BF16)
            ->quantize(x + n, (char *)row + lp_cache_offset(cache, n), (size_t)cache->n_tail);
}
