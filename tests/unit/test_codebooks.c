// The expanded grids against their published SHA-256: in index order, one byte an element, element 0
// first, -1 as 0xff. The hash is written here so that nothing of the generator takes part.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "quant/codebooks.h"

// ---- SHA-256 (FIPS 180-4); the constants are 32 fraction bits of cube and square roots of primes

struct sha {
    uint32_t h[8], k[64];
};

// 32 fraction bits of the square or cube root of p, by bisection in integers
static uint32_t root_fraction(unsigned p, int degree) {
    unsigned __int128 low = 0, high = (unsigned __int128)1 << 37;
    while (high - low > 1) { // for the largest r with r^2 <= p 2^64, or r^3 <= p 2^96
        unsigned __int128 r = (low + high) / 2, bound = (unsigned __int128)p << 64;
        if (degree == 3) bound = ((unsigned __int128)p << 96) / r; // r^2 <= p 2^96 / r
        if (r * r <= bound) low = r;
        else high = r;
    }
    return (uint32_t)low;
}

static void sha_init(struct sha *s) {
    int n = 0;
    for (unsigned p = 2; n < 64; p++) {
        unsigned q = 2;
        while (q * q <= p && p % q) q++;
        if (p > 3 && q * q <= p) continue;
        if (n < 8) s->h[n] = root_fraction(p, 2);
        s->k[n++] = root_fraction(p, 3);
    }
}

static uint32_t turn(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void sha_block(struct sha *s, const uint8_t *data) {
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)data[4 * i] << 24 | (uint32_t)data[4 * i + 1] << 16 |
               (uint32_t)data[4 * i + 2] << 8 | data[4 * i + 3];
    for (int i = 16; i < 64; i++)
        w[i] = w[i - 16] + (turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ w[i - 15] >> 3) + w[i - 7] +
               (turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ w[i - 2] >> 10);
    memcpy(v, s->h, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t e = v[4], a = v[0];
        uint32_t t1 = v[7] + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & v[5]) ^ (~e & v[6])) +
                      s->k[i] + w[i];
        uint32_t t2 = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) +
                      ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++) s->h[i] += v[i];
}

// For n bytes, n a multiple of 64
static void sha_hex(const uint8_t *data, size_t n, char hex[65]) {
    struct sha s;
    sha_init(&s);
    for (size_t i = 0; i < n; i += 64) sha_block(&s, data + i);
    uint8_t last[64] = {0x80};
    for (int i = 0; i < 8; i++) last[63 - i] = (uint8_t)((uint64_t)n * 8 >> 8 * i);
    sha_block(&s, last);
    for (int i = 0; i < 8; i++) snprintf(hex + 8 * i, 9, "%08x", s.h[i]);
}

static void the_hash_itself(void **state) {
    (void)state;
    char hex[65];
    sha_hex((const uint8_t *)"", 0, hex); // published for the empty message
    assert_string_equal(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

static void grids_have_their_published_hash(void **state) {
    (void)state;
    static const struct {
        const void *grid;
        int n, width;
        const char *sha256;
    } grids[] = {
        {lp_codebooks_iq2xxs, 256, 8,
         "05826b5d3e472a3a78f196be62ac78acf81df0f909626e12ab9fa2a5d490dd54"},
        {lp_codebooks_iq2xs, 512, 8,
         "06e47aaca60b4dc1d9b5a3f34540437058a6b142b4d7a59d5ded769b4d1bf1de"},
        {lp_codebooks_iq2s, 1024, 8,
         "e1aa1473412b0552c2174c30ef22ab4073f6a181b85a17056e8249bd2932fd88"},
        {lp_codebooks_iq3xxs, 256, 4,
         "46e35f5a997efdee6c99ce57854c8a0d4f0ff8ca57e5e8a60c0793ea580acf5d"},
        {lp_codebooks_iq3s, 512, 4,
         "bd1af4945a1717c65610b0284e4628b9a1ba3b306fae3a06f6e5f597356e349f"},
        {lp_codebooks_iq1s, 2048, 8,
         "07540ffc1aeaf6ad4d97e96b0fcc765aae39671d4ae4a27bbd0e796fde167c6a"},
    };
    for (size_t g = 0; g < sizeof grids / sizeof grids[0]; g++) {
        static uint8_t bytes[2048 * 8];
        for (int i = 0; i < grids[g].n; i++) {
            uint64_t entry = grids[g].width == 8 ? ((const uint64_t *)grids[g].grid)[i]
                                                 : ((const uint32_t *)grids[g].grid)[i];
            for (int j = 0; j < grids[g].width; j++)
                bytes[grids[g].width * i + j] = (uint8_t)(entry >> 8 * j);
        }
        char hex[65];
        sha_hex(bytes, (size_t)grids[g].n * (size_t)grids[g].width, hex);
        assert_string_equal(hex, grids[g].sha256);
    }
}

static void sign_bytes_have_an_even_number_of_bits(void **state) {
    (void)state;
    for (int b = 0; b < 128; b++) {
        assert_int_equal(lp_codebooks_signs[b] & 127, b);
        assert_int_equal(__builtin_popcount(lp_codebooks_signs[b]) % 2, 0);
    }
}

// Twice the value of the E2M1 code: sign, two exponent bits (bias 1), one mantissa bit
static void fp4_is_twice_e2m1(void **state) {
    (void)state;
    for (int code = 0; code < 16; code++) {
        int e = code >> 1 & 3, m = code & 1, twice = e ? (2 + m) << (e - 1) : m;
        assert_int_equal(lp_codebooks_fp4[code], code & 8 ? -twice : twice);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_hash_itself),
        cmocka_unit_test(grids_have_their_published_hash),
        cmocka_unit_test(sign_bytes_have_an_even_number_of_bits),
        cmocka_unit_test(fp4_is_twice_e2m1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
