// The tables of cpu_latent.h: which of them a cache type gets, and how much room they ask for.
#include "backend/cpu/cpu_latent.h"

#include "backend/cpu/cpu_features.h"

#if defined(__x86_64__)
extern const struct lp_cpu_latent lp_cpu_latent_avx512_f16, lp_cpu_latent_avx512_bf16,
    lp_cpu_latent_avx2_f16, lp_cpu_latent_avx2_bf16, lp_cpu_latent_bf16_bf16,
    lp_cpu_latent_vnni_q8_0, lp_cpu_latent_amx_f16, lp_cpu_latent_amx_bf16,
    lp_cpu_latent_amx_f16_rounded, lp_cpu_latent_amx_bf16_rounded, lp_cpu_latent_bf16_f16_rounded;
#endif

static const struct row {
    lp_type type;
    uint32_t needs;
    int multiple; // of which the latent part is one
    const struct lp_cpu_latent *table;
    bool rounded; // only for results that may vary
} rows[] = {
#if defined(__x86_64__)
    {LP_TYPE_F16, LP_CPU_LEVEL_AMX, 32, &lp_cpu_latent_amx_f16_rounded, true},
    {LP_TYPE_F16, LP_CPU_LEVEL_AMX, 32, &lp_cpu_latent_amx_f16, false},
    {LP_TYPE_F16, LP_CPU_LEVEL_BF16, 1, &lp_cpu_latent_bf16_f16_rounded, true},
    {LP_TYPE_F16, LP_CPU_LEVEL_AVX512, 1, &lp_cpu_latent_avx512_f16, false},
    {LP_TYPE_F16, LP_CPU_LEVEL_AVX2, 1, &lp_cpu_latent_avx2_f16, false},
    {LP_TYPE_BF16, LP_CPU_LEVEL_AMX, 32, &lp_cpu_latent_amx_bf16_rounded, true},
    {LP_TYPE_BF16, LP_CPU_LEVEL_AMX, 32, &lp_cpu_latent_amx_bf16, false},
    {LP_TYPE_BF16, LP_CPU_LEVEL_BF16, 1, &lp_cpu_latent_bf16_bf16, false},
    {LP_TYPE_BF16, LP_CPU_LEVEL_AVX512, 1, &lp_cpu_latent_avx512_bf16, false},
    {LP_TYPE_BF16, LP_CPU_LEVEL_AVX2, 1, &lp_cpu_latent_avx2_bf16, false},
    {LP_TYPE_Q8_0, LP_CPU_LEVEL_VNNI, 32, &lp_cpu_latent_vnni_q8_0, false},
#endif
    {LP_TYPE_COUNT, 0, 1, NULL, false},
};

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

static bool runs(const struct row *row, uint32_t features) {
    return row->table && (row->needs & ~features) == 0;
}

size_t lp_cpu_latent_pack_most(uint32_t features, int latent, int rope) {
    size_t most = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (runs(&rows[i], features) && rows[i].table->pack_bytes)
            most = larger(most, rows[i].table->pack_bytes(latent, rope));
    return most;
}

size_t lp_cpu_latent_query_most(uint32_t features, int n_heads, int latent, int rope) {
    size_t most = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (runs(&rows[i], features) && rows[i].table->query_bytes)
            most = larger(most, rows[i].table->query_bytes(n_heads, latent, rope));
    return most;
}

const struct lp_cpu_latent *lp_cpu_latent_find(lp_type type, int latent, uint32_t features,
                                               bool may_vary) {
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].type == type && runs(&rows[i], features) && (may_vary || !rows[i].rounded) &&
            latent % rows[i].multiple == 0)
            return rows[i].table;
    return NULL;
}
