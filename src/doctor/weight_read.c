// Values are decoded block by block; of the first and the last block only a part may be wanted.
#include "doctor/weight_read.h"

#include <stdio.h>
#include <string.h>

#include "base/checked.h"

#define MAX_BLOCK_VALUES 256

void lp_weight_read(const struct lp_gguf_tensor *t, uint64_t first, size_t n, float *out) {
    const struct lp_type_info *type = lp_type_info(t->type);
    uint64_t mat_values = t->ne[0] * t->ne[1];
    float block[MAX_BLOCK_VALUES];
    while (n > 0) {
        uint64_t number = first % mat_values / type->block_values;
        const uint8_t *mat = lp_gguf_tensor_mat(t, first / mat_values);
        size_t skip = (size_t)(first % type->block_values); // rows are whole blocks
        size_t take = type->block_values - skip < n ? type->block_values - skip : n;
        type->dequant(mat + number * type->block_bytes, block, type->block_values);
        memcpy(out, block + skip, take * sizeof *out);
        first += take;
        out += take;
        n -= take;
    }
}

uint64_t lp_weight_count(const struct lp_gguf_tensor *t) {
    uint64_t n = 1;
    if (!lp_type_info(t->type)->is_weight) return 0;
    for (int i = 0; i < 4; i++)
        if (!lp_mul_u64(n, t->ne[i], &n)) return 0;
    return n;
}

bool lp_weight_is_vector(const struct lp_gguf_tensor *t) {
    return t->ne[1] * t->ne[2] * t->ne[3] == 1;
}

bool lp_weight_name_ends(const struct lp_gguf_tensor *t, const char *end) {
    size_t n = strlen(end);
    return t->name.len >= n && memcmp(t->name.data + t->name.len - n, end, n) == 0;
}

const struct lp_gguf_tensor *lp_weight_find(const struct lp_gguf *gguf, int32_t layer,
                                            const char *name) {
    char full[128];
    size_t length = strlen(name);
    const char *suffix = length > 5 && strcmp(name + length - 5, ".bias") == 0 ? "" : ".weight";
    if (layer < 0)
        snprintf(full, sizeof full, "%s%s", name, suffix);
    else
        snprintf(full, sizeof full, "blk.%d.%s%s", layer, name, suffix);
    const struct lp_gguf_tensor *t = lp_gguf_find_tensor(gguf, lp_str_from(full));
    return t && lp_weight_count(t) ? t : NULL;
}
