#include "engine/exp_block.h"

#include <string.h>

// -700 <= x <= 0. exp(x) = 2^k exp(r), k = round(x / ln 2), |r| <= ln 2 / 2; exp(r) by its Taylor
// polynomial of degree 13, whose remainder is below 2^-57.
static inline double exp_of(double x) {
    const double to_integer = 0x1.8p52; // adding it leaves k in the low bits of the sum
    double shifted = x * 0x1.71547652b82fep+0 + to_integer, k = shifted - to_integer;
    double r = x - k * 0x1.62e42feep-1; // ln 2: 32 bits, so that the product is exact,
    r -= k * 0x1.a39ef35793c76p-33;     // and the rest
    double p = 1.0 / 6227020800;
    p = p * r + 1.0 / 479001600;
    p = p * r + 1.0 / 39916800;
    p = p * r + 1.0 / 3628800;
    p = p * r + 1.0 / 362880;
    p = p * r + 1.0 / 40320;
    p = p * r + 1.0 / 5040;
    p = p * r + 1.0 / 720;
    p = p * r + 1.0 / 120;
    p = p * r + 1.0 / 24;
    p = p * r + 1.0 / 6;
    p = p * r + 0.5;
    p = p * r + 1;
    p = p * r + 1;
    uint64_t power, bits;
    memcpy(&power, &shifted, sizeof power);
    memcpy(&bits, &p, sizeof bits);
    bits += power << 52; // k into the exponent; p is in [0.7, 1.5], k >= -1010
    memcpy(&p, &bits, sizeof p);
    return p;
}

double lp_exp_block(double *x, int32_t n) {
    for (int32_t i = 0; i < n; i++) x[i] = x[i] < -700 ? -700 : x[i]; // on its own: the next
    for (int32_t i = 0; i < n; i++) x[i] = exp_of(x[i]);              // becomes vector code
    double lane[4] = {0};
    int32_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int j = 0; j < 4; j++) lane[j] += x[i + j];
    for (; i < n; i++) lane[0] += x[i];
    return (lane[0] + lane[1]) + (lane[2] + lane[3]);
}
