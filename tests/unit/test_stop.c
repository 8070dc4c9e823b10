#include "lp_test.h"

#include "base/rng.h"
#include "engine/stop.h"

// Feeds text in pieces of the given size; returns what was given out and whether a stop was met.
static int feed(const char *text, size_t piece, const char *const *stops, size_t n, char *out,
                size_t out_bytes) {
    struct lp_stop stop;
    struct lp_bytes given = {0};
    int met = -1;
    bool ok = true;
    assert_int_equal(lp_stop_init(&stop, stops, n, NULL), LP_OK);
    for (size_t at = 0, len = strlen(text); at < len && met < 0; at += piece) {
        size_t take = len - at < piece ? len - at : piece;
        met = lp_stop_push(&stop, (struct lp_str){text + at, take}, &given, &ok);
        assert_true(ok);
    }
    if (met < 0) assert_true(lp_stop_flush(&stop, &given));
    snprintf(out, out_bytes, "%s", given.data ? given.data : "");
    lp_bytes_release(&given);
    lp_stop_release(&stop);
    return met;
}

static void matches_across_piece_borders(void **state) {
    (void)state;
    const char *const stops[] = {"O P Q", "\n\n"};
    char out[64];
    for (size_t piece = 1; piece < 20; piece++) {
        assert_int_equal(feed("L M N O P Q R", piece, stops, 2, out, sizeof out), 0);
        assert_string_equal(out, "L M N ");
        assert_int_equal(feed("a\nb\n\nc", piece, stops, 2, out, sizeof out), 1);
        assert_string_equal(out, "a\nb");
    }
}

static void nothing_is_lost_or_repeated_without_a_match(void **state) {
    (void)state;
    const char *const stops[] = {"\n", "Alice:"}, *const overlap[] = {"aab"};
    char out[64];
    for (size_t piece = 1; piece < 12; piece++) {
        assert_int_equal(feed("Alice! Ali", piece, stops, 2, out, sizeof out), -1);
        assert_string_equal(out, "Alice! Ali");
        assert_int_equal(feed("aaaab", piece, overlap, 1, out, sizeof out),
                         0); // the match begins inside a failed one
        assert_string_equal(out, "aa");
    }
}

static void random_texts_agree_with_strstr(void **state) {
    (void)state;
    struct lp_rng rng;
    lp_rng_init(&rng, 3);
    for (int round = 0; round < 3000; round++) {
        char text[41] = {0}, stop_text[4] = {0}, out[64];
        for (int i = 0; i < 40; i++) text[i] = "ab"[lp_rng_u64(&rng) % 2];
        for (size_t i = 0; i < 1 + lp_rng_u64(&rng) % 3; i++)
            stop_text[i] = "abc"[lp_rng_u64(&rng) % 3];
        const char *const stops[] = {stop_text};
        int met = feed(text, 1 + lp_rng_u64(&rng) % 5, stops, 1, out, sizeof out);
        char *at = strstr(text, stop_text);
        assert_int_equal(met, at ? 0 : -1);
        if (at) *at = 0;
        assert_string_equal(out, text);
    }
}

static void an_empty_stop_text_is_refused(void **state) {
    (void)state;
    struct lp_stop stop;
    struct lp_err err;
    const char *const stops[] = {"a", ""};
    assert_int_equal(lp_stop_init(&stop, stops, 2, &err), LP_STATUS_INVALID);
    assert_string_equal(err.text, "stop text 1 is empty");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_across_piece_borders),
        cmocka_unit_test(nothing_is_lost_or_repeated_without_a_match),
        cmocka_unit_test(random_texts_agree_with_strstr),
        cmocka_unit_test(an_empty_stop_text_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
