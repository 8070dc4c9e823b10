// The dot product that every kernel is tested against: exact weights, double products, one double
// sum in index order.
#include <math.h>

#include "quant/quant.h"

// NaN for a type without float32 values (the integer types, F64): no weight has such a type.
double lp_dot_ref(lp_type type, const void *blocks, const float *x, size_t n) {
    const struct lp_type_info *info = lp_type_info(type);
    if (!info || !info->dequant) return NAN;
    float w[256]; // a multiple of every block
    const uint8_t *bytes = blocks;
    double sum = 0.0;
    for (size_t i = 0; i < n;) {
        size_t part = n - i < 256 ? n - i : 256;
        info->dequant(bytes, w, part);
        for (size_t j = 0; j < part; j++) sum += (double)w[j] * (double)x[i + j];
        bytes += part / info->block_values * info->block_bytes;
        i += part;
    }
    return sum;
}
