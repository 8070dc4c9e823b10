// Which sieve a device uses: the first that the CPU has the instructions for and that keeps its
// promise on a few fixed values.
#include "backend/cpu/cpu_sieve.h"

#include <math.h>
#include <string.h>

#include "backend/cpu/cpu_device.h"
#include "base/log.h"
#include "base/rng.h"

static const struct candidate {
    uint32_t needs;
    const struct lp_cpu_sieve *sieve;
} candidates[] = {
#if defined(__x86_64__)
    {LP_CPU_LEVEL_AMX, &lp_cpu_sieve_amx},
    {LP_CPU_LEVEL_VNNI, &lp_cpu_sieve_vnni},
    {LP_CPU_LEVEL_AVX2, &lp_cpu_sieve_avx2},
#endif
    {0, NULL},
};

// Sizes with a rest in every loop.
#define HEADS 37
#define WIDTH 70
#define PADDED 128
#define KEYS 61

static double exact(const float *q, const float *w, const float *key) {
    double sum = 0;
    for (int h = 0; h < HEADS; h++) {
        double dot = 0;
        for (int i = 0; i < WIDTH; i++) dot += (double)q[h * WIDTH + i] * key[i];
        if (dot > 0) sum += w[h] * dot;
    }
    return sum;
}

static bool selfcheck(const struct lp_cpu_sieve *sieve) {
    float rows[KEYS * PADDED] = {0}; // zeros behind the width
    float q[HEADS * WIDTH], w[HEADS], weights[HEADS], padded[PADDED], out[LP_CPU_SIEVE_KEYS],
        out2[LP_CPU_SIEVE_KEYS];
    int8_t bytes_q[HEADS * PADDED];
    int32_t start[HEADS];
    _Alignas(64) uint8_t pieces[2][LP_CPU_SIEVE_KEYS * (PADDED + 2 * sizeof(float))] = {{0}};
    struct lp_cpu_sieve_query query = {.q = bytes_q, .start = start, .w = weights};
    // Keys packed together, and one by one from the last to the first
    const struct lp_cpu_sieve_block block = lp_cpu_sieve_block_at(pieces[0], WIDTH),
                                    again = lp_cpu_sieve_block_at(pieces[1], WIDTH);
    struct lp_rng rng;
    lp_rng_init(&rng, 23);
    for (int i = 0; i < HEADS * WIDTH; i++) q[i] = lp_rng_normal(&rng);
    for (int i = 0; i < HEADS; i++) w[i] = lp_rng_normal(&rng);
    for (int k = 0; k < KEYS; k++)
        for (int i = 0; i < WIDTH; i++) rows[k * PADDED + i] = lp_rng_normal(&rng);
    if (!sieve->pack_query(q, w, HEADS, WIDTH, padded, &query)) return false;
    for (int k = 0; k < LP_CPU_SIEVE_KEYS; k += LP_CPU_SIEVE_PACK)
        sieve->pack_keys(rows + k * PADDED, PADDED, k,
                         KEYS - k < LP_CPU_SIEVE_PACK ? KEYS - k : LP_CPU_SIEVE_PACK, WIDTH,
                         &block);
    for (int k = KEYS - 1; k >= 0; k--) sieve->pack_key(rows + k * PADDED, k, WIDTH, &again);
    sieve->score(&query, &block, HEADS, WIDTH, 1.0f, out);
    sieve->score(&query, &again, HEADS, WIDTH, 1.0f, out2);
    for (int k = 0; k < KEYS; k++) {
        double d = block.d[k],
               error = 10 * sqrt((double)query.a * block.norm2[k] + query.b * d * d);
        if (!(fabs(out[k] - exact(q, w, rows + k * PADDED)) <= error)) return false;
    }
    return memcmp(out, out2, KEYS * sizeof *out) == 0;
}

void lp_cpu_sieve_choose(struct lp_cpu_device *dev) {
    for (size_t i = 0; i < sizeof candidates / sizeof candidates[0]; i++) {
        const struct candidate *c = &candidates[i];
        if (c->needs & ~dev->features) continue;
        if (c->sieve && !selfcheck(c->sieve)) {
            lp_log(LP_LOG_WARN,
                   "%s's sieve disagrees with the definition on this CPU; it is not used",
                   c->sieve->name);
            continue;
        }
        dev->sieve = c->sieve;
        return;
    }
}
