// Rows of any type that has a quantiser, with importances of the columns for those that search.
#include "quant/quantize_search.h"

bool lp_quantize_rows(lp_type type, const float *in, void *blocks, int64_t n_rows, int64_t n_in,
                      const float *importance) {
    const struct lp_type_info *info = lp_type_info((uint32_t)type);
    if (!info || !info->quantize || n_rows < 0 || n_in < 0) return false;
    if (n_in % info->block_values) return false;
    size_t n = (size_t)n_rows * (size_t)n_in;
    lp_quantize_search_fn *search = lp_quantize_search_of(type);
    if (!search)
        info->quantize(in, blocks, n);
    else if (n)
        search(&(struct lp_quantize_job){in, importance, (size_t)n_in, n}, blocks);
    return true;
}
