// How tokens are shown and how characters are counted.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "serve/json_out.h"
#include "serve/logprobs.h"

static void shows(const char *bytes, size_t n, const char *expected) {
    struct lp_bytes out = {0};
    assert_true(lp_logprobs_show(&out, (struct lp_str){bytes, n}));
    assert_string_equal(out.data, expected);
    lp_bytes_release(&out);
}

static void tokens_that_are_no_text_are_shown_as_bytes(void **state) {
    (void)state;
    shows("", 0, "");
    shows(" 4", 2, " 4");
    shows("\xE2\x82\xAC", 3, "\xE2\x82\xAC");
    shows("\xE2\x82", 2, "bytes:\\xe2\\x82");
    shows("\xAC", 1, "bytes:\\xac");
    shows("a\xED\xA0\x80", 4, "bytes:\\x61\\xed\\xa0\\x80"); // a surrogate is no character
    shows("\0", 1, "bytes:\\x00");
}

static int64_t count(const char *bytes, size_t n, size_t piece) {
    struct lp_char_count c = {0};
    for (size_t at = 0; at < n; at += piece)
        lp_char_count_add(&c, (struct lp_str){bytes + at, n - at < piece ? n - at : piece});
    return c.n;
}

// Counts from Python: len(b.decode(errors="replace")), but for a character that is not complete at
// the end.
static void characters_are_counted_however_they_are_cut(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        int64_t expected;
    } rows[] = {
        {"abc", 3, 3},
        {"\xC3\xA9\xE2\x82\xAC\xF0\x9D\x84\x9E", 9, 3},
        {"\xE2\x82", 2, 0},                 // may still become one
        {"\xE2\x82x", 3, 2},                // U+FFFD, x
        {"\xF0\x9D\xF0\x9D\x84\x9E", 6, 2}, // U+FFFD, a clef
        {"\xFF\xFE\xC3\xA9", 4, 3},
        {"\xED\xA0\x80", 3, 3},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (size_t piece = 1; piece <= rows[i].n; piece++)
            assert_int_equal(count(rows[i].bytes, rows[i].n, piece), rows[i].expected);
}

static void the_four_arrays_have_one_length_and_finite_numbers(void **state) {
    (void)state;
    struct lp_logprobs l = {0};
    struct lp_bytes out = {0};
    assert_true(lp_logprobs_add(&l, &(struct lp_token_logprob){.text = json_string("a")}));
    assert_true(lp_logprobs_add(&l, &(struct lp_token_logprob){.text = json_string("b"),
                                                               .has_logprob = true,
                                                               .logprob = -INFINITY,
                                                               .top = json_object(),
                                                               .offset = 1}));
    json_t *object = lp_logprobs_take(&l);
    assert_true(lp_json_dump(&out, object));
    assert_string_equal(out.data, "{\"tokens\":[\"a\",\"b\"],\"token_logprobs\":[null,-9999.0],"
                                  "\"top_logprobs\":[null,{}],\"text_offset\":[0,1]}");
    json_decref(object);
    lp_bytes_release(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_that_are_no_text_are_shown_as_bytes),
        cmocka_unit_test(characters_are_counted_however_they_are_cut),
        cmocka_unit_test(the_four_arrays_have_one_length_and_finite_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
