// What ranks get: everything once, in order, evenly; and who is refused.
#include "lp_test.h"

#include "dist/sharding.h"

static void test_shares_are_everything_once(void **state) {
    (void)state;
    for (int64_t n = 0; n <= 70; n++)
        for (int64_t step = 1; step <= 33; step += 8)
            for (int32_t parts = 1; parts <= 9; parts++) {
                int64_t next = 0, least = INT64_MAX, most = 0;
                for (int32_t p = 0; p < parts; p++) {
                    const struct lp_range r = lp_share(n, step, parts, p);
                    assert_int_equal(r.first, next);
                    assert_true(r.n >= 0);
                    if (r.n) assert_int_equal(r.first % step, 0);
                    next = r.first + r.n;
                    const int64_t units = (r.n + step - 1) / step;
                    if (units < least) least = units;
                    if (units > most) most = units;
                }
                assert_int_equal(next, n);
                assert_true(most - least <= 1);
            }
}

// Each stage has a layer at least, and they follow one another.
static void check_stages(const uint64_t *bytes, int32_t n_layers, int32_t n_stages) {
    int64_t next = 0;
    struct lp_err err;
    for (int32_t s = 0; s < n_stages; s++) {
        struct lp_sharding x;
        if (lp_sharding_make(&x, s * 2 + 1, 2 * n_stages, n_stages, bytes, n_layers, &err))
            fail_msg("%s", err.text);
        assert_int_equal(x.stage, s);
        assert_int_equal(x.tensor, 1);
        assert_int_equal(x.n_tensor, 2);
        assert_int_equal(x.layers.first, next);
        assert_true(x.layers.n >= 1);
        next += x.layers.n;
    }
    assert_int_equal(next, n_layers);
}

static void test_stages_have_layers(void **state) {
    (void)state;
    const uint64_t even[8] = {1, 1, 1, 1, 1, 1, 1, 1}, heavy_first[8] = {900, 1, 1, 1, 1, 1, 1, 1},
                   heavy_last[8] = {1, 1, 1, 1, 1, 1, 1, 900},
                   heavy_middle[8] = {1, 1, 1, 900, 1, 1, 1, 1}, none[8] = {0};
    const uint64_t *const all[] = {even, heavy_first, heavy_last, heavy_middle, none};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int32_t stages = 1; stages <= 8; stages++) check_stages(all[i], 8, stages);
}

static void test_stages_are_balanced(void **state) {
    (void)state;
    // Three small layers and nine of four times their size, as models begin: 39 bytes, some 20 for each.
    const uint64_t bytes[12] = {1, 1, 1, 4, 4, 4, 4, 4, 4, 4, 4, 4};
    struct lp_sharding x;
    struct lp_err err;
    assert_int_equal(lp_sharding_make(&x, 0, 2, 2, bytes, 12, &err), LP_OK);
    assert_int_equal(x.layers.n, 7);
}

static void test_what_cannot_be_is_refused(void **state) {
    (void)state;
    const uint64_t bytes[3] = {1, 1, 1};
    struct lp_sharding x;
    struct lp_err err;
    assert_int_equal(lp_sharding_make(&x, 0, 6, 4, bytes, 3, &err), LP_STATUS_INVALID);
    assert_non_null(strstr(err.text, "the nearest is 3"));
    assert_int_equal(lp_sharding_make(&x, 0, 5, 2, bytes, 3, &err), LP_STATUS_INVALID);
    assert_non_null(strstr(err.text, "the nearest is 1"));
    assert_int_equal(lp_sharding_make(&x, 0, 8, 8, bytes, 3, &err), LP_STATUS_INVALID);
    assert_non_null(strstr(err.text, "the nearest is 2"));
    assert_int_equal(lp_sharding_make(&x, 0, 8, -1, bytes, 3, &err), LP_STATUS_INVALID);
}

static void test_names_of_divisions(void **state) {
    (void)state;
    enum lp_shard_experts how;
    assert_true(lp_shard_experts_parse("whole", &how));
    assert_int_equal(how, LP_SHARD_EXPERTS_WHOLE);
    assert_false(lp_shard_experts_parse("", &how));
    enum lp_attention_parallel attention;
    assert_true(lp_attention_parallel_parse("data", &attention));
    assert_int_equal(attention, LP_ATTENTION_PARALLEL_DATA);
    assert_false(lp_attention_parallel_parse("split", &attention));
}

static void test_names_of_exchanges(void **state) {
    (void)state;
    const struct lp_sharding alone = {.n_tensor = 1, .data_attention = true},
                             heads = {.n_tensor = 2, .whole_experts = true},
                             data = {.n_tensor = 2, .data_attention = true},
                             both = {.n_tensor = 2,
                                     .whole_experts = true,
                                     .data_attention = true,
                                     .sends_rows = true};
    assert_string_equal(lp_sharding_exchange(&alone), "none");
    assert_string_equal(lp_sharding_exchange(&heads), "sums");
    assert_string_equal(lp_sharding_exchange(&data), "rows");
    assert_string_equal(lp_sharding_exchange(&both), "experts");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares_are_everything_once),
        cmocka_unit_test(test_stages_have_layers),
        cmocka_unit_test(test_stages_are_balanced),
        cmocka_unit_test(test_what_cannot_be_is_refused),
        cmocka_unit_test(test_names_of_divisions),
        cmocka_unit_test(test_names_of_exchanges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
