#include "lp_test.h"

#include "base/rng.h"
#include "base/utf8_step.h"
#include "grammar/utf8_ranges.h"

// By the table of the Unicode Standard, section 3.9; by hand, so that it is no copy of what is
// tested.
static size_t encode(uint32_t c, unsigned char out[4]) {
    if (c < 0x80) return out[0] = (unsigned char)c, 1;
    if (c < 0x800)
        return out[0] = (unsigned char)(0xC0 + c / 64), out[1] = (unsigned char)(0x80 + c % 64), 2;
    if (c < 0x10000)
        return out[0] = (unsigned char)(0xE0 + c / 4096),
               out[1] = (unsigned char)(0x80 + c / 64 % 64),
               out[2] = (unsigned char)(0x80 + c % 64), 3;
    return out[0] = (unsigned char)(0xF0 + c / 262144),
           out[1] = (unsigned char)(0x80 + c / 4096 % 64),
           out[2] = (unsigned char)(0x80 + c / 64 % 64), out[3] = (unsigned char)(0x80 + c % 64), 4;
}

static int matches(const struct lp_utf8_sequence *s, size_t n, const unsigned char *text,
                   size_t len) {
    int count = 0;
    for (size_t i = 0; i < n; i++) {
        bool same = s[i].n == len;
        for (size_t j = 0; j < len && same; j++)
            same = s[i].low[j] <= text[j] && text[j] <= s[i].high[j];
        count += same;
    }
    return count;
}

static uint64_t texts_of(const struct lp_utf8_sequence *s, size_t n) {
    uint64_t all = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t texts = 1;
        for (int j = 0; j < s[i].n; j++) texts *= (uint64_t)(s[i].high[j] - s[i].low[j] + 1);
        all += texts;
    }
    return all;
}

// Each character of the range is in exactly one sequence, and there are no other texts in them.
static void check(uint32_t first, uint32_t last) {
    struct lp_utf8_sequence s[LP_UTF8_MAX_SEQUENCES];
    unsigned char text[4];
    size_t n = lp_utf8_sequences(first, last, s);
    assert_in_range(n, 1, LP_UTF8_MAX_SEQUENCES);
    assert_int_equal(texts_of(s, n), last - first + 1);
    uint32_t step = (last - first) / 5000 + 1;
    for (uint32_t c = first; c <= last; c += step)
        if (matches(s, n, text, encode(c, text)) != 1)
            fail_msg("U+%X to U+%X: U+%X", first, last, c);
    assert_int_equal(matches(s, n, text, encode(last, text)), 1);
    if (first > 0) assert_int_equal(matches(s, n, text, encode(first - 1, text)), 0);
    if (last < 0x10FFFF) assert_int_equal(matches(s, n, text, encode(last + 1, text)), 0);
}

static void borders(void **state) {
    (void)state;
    static const uint32_t points[] = {0,        1,        0x3F,    0x40,    0x7F,    0x80,
                                      0xBF,     0x7FF,    0x800,   0xFFF,   0x1000,  0xD7FF,
                                      0xE000,   0xFFFF,   0x10000, 0x3FFFF, 0x40000, 0xFFFFF,
                                      0x100000, 0x10FFFE, 0x10FFFF};
    enum { N = sizeof points / sizeof *points };
    for (int i = 0; i < N; i++)
        for (int j = i; j < N; j++)
            if (points[i] > 0xDFFF || points[j] < 0xD800) check(points[i], points[j]);
}

static void random_ranges(void **state) {
    (void)state;
    struct lp_rng rng;
    lp_rng_init(&rng, 1);
    for (int i = 0; i < 500; i++) {
        uint32_t low = i % 2 ? 0xE000 : 0, size = i % 2 ? 0x10FFFF - 0xE000 : 0xD7FF;
        uint32_t a = low + (uint32_t)(lp_rng_u64(&rng) % size),
                 b = low + (uint32_t)(lp_rng_u64(&rng) % size);
        check(a < b ? a : b, a < b ? b : a);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(borders), cmocka_unit_test(random_ranges)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
