// A small counter-seeded random generator (xoshiro256**, Blackman and Vigna 2018; seeded through
// splitmix64). The same seed gives the same numbers on every platform.
#ifndef LP_BASE_RNG_H
#define LP_BASE_RNG_H

#include <stdint.h>

struct lp_rng {
    uint64_t state[4];
};

void lp_rng_init(struct lp_rng *rng, uint64_t seed);
uint64_t lp_rng_u64(struct lp_rng *rng);
double lp_rng_unit(struct lp_rng *rng);  // uniform in [0, 1), 53 bits
float lp_rng_normal(struct lp_rng *rng); // mean 0, deviation 1

#endif
