// IEEE binary16 <-> float32 in integer arithmetic: the same bits on every machine.
#include <string.h>

#include "quant/quant.h"

float lp_f16_to_f32(uint16_t bits) {
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = (bits >> 10) & 31;
    uint32_t mantissa = bits & 0x3ff, out;
    float value;
    if (exponent == 0) { // zero or subnormal: a multiple of 2^-24, exact in float32
        value = (float)mantissa * 0x1p-24f;
        return sign ? -value : value;
    }
    if (exponent == 31)
        out = sign | 0x7f800000u | mantissa << 13;
    else
        out = sign | (exponent + 112) << 23 | mantissa << 13;
    memcpy(&value, &out, sizeof value);
    return value;
}

uint16_t lp_f32_to_f16(float value) {
    uint32_t u;
    memcpy(&u, &value, sizeof u);
    uint16_t sign = (uint16_t)(u >> 16 & 0x8000);
    uint32_t a = u & 0x7fffffff;
    if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00 | (a >> 13 & 0x3ff)); // NaN, made quiet
    if (a >= 0x477ff000u) return sign | 0x7c00; // from 65520 up the nearest is infinity
    if (a >= 0x38800000u) { // normal; a carry of the rounding runs into the exponent, as it should
        a -= 0x38000000u;
        return (uint16_t)(sign | (a + 0xfff + (a >> 13 & 1)) >> 13);
    }
    if (a < 0x33000000u) return sign; // below 2^-25
    // subnormal: the 24-bit mantissa shifted to units of 2^-24, nearest even
    uint32_t shift = 126 - (a >> 23), mantissa = (a & 0x7fffff) | 0x800000;
    uint32_t half = (1u << (shift - 1)) - 1 + (mantissa >> shift & 1);
    return (uint16_t)(sign | (mantissa + half) >> shift);
}
