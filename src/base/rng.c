#include "base/rng.h"

#include <math.h>

void lp_rng_init(struct lp_rng *rng, uint64_t seed) {
    for (int i = 0; i < 4; i++) {
        seed += 0x9e3779b97f4a7c15u;
        uint64_t z = seed;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        rng->state[i] = z ^ (z >> 31);
    }
}

static uint64_t rotl(uint64_t x, int k) {
    return (x << k) | (x >> (64 - k));
}

uint64_t lp_rng_u64(struct lp_rng *rng) {
    uint64_t *s = rng->state;
    uint64_t result = rotl(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return result;
}

double lp_rng_unit(struct lp_rng *rng) {
    return (double)(lp_rng_u64(rng) >> 11) * 0x1p-53;
}

float lp_rng_normal(struct lp_rng *rng) {
    double u = 1.0 - lp_rng_unit(rng), v = lp_rng_unit(rng);
    return (float)(sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v));
}
