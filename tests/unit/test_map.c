#include "lp_test.h"

#include "base/map.h"

static void finds_what_was_added(void **state) {
    (void)state;
    enum { N = 20000 };
    static char names[N][24];
    struct lp_map map = {0};
    uint32_t old;
    for (int i = 0; i < N; i++) {
        int n = snprintf(names[i], sizeof names[i], "blk.%d.name", i);
        assert_true(lp_map_add(&map, (struct lp_str){names[i], (size_t)n}, (uint32_t)i, &old));
        assert_int_equal(old, LP_MAP_NONE);
    }
    for (int i = 0; i < N; i++) assert_int_equal(lp_map_get(&map, lp_str_from(names[i])), i);
    assert_int_equal(lp_map_get(&map, lp_str_from("blk.20000.name")), LP_MAP_NONE);
    assert_true(lp_map_add(&map, lp_str_from("blk.7.name"), 99, &old));
    assert_int_equal(old, 7);
    assert_int_equal(lp_map_get(&map, lp_str_from("blk.7.name")), 7);
    lp_map_release(&map);
}

static void empty_keys_and_keys_with_nul(void **state) {
    (void)state;
    struct lp_map map = {0};
    assert_int_equal(lp_map_get(&map, lp_str_from("x")), LP_MAP_NONE);
    assert_true(lp_map_add(&map, (struct lp_str){NULL, 0}, 1, NULL));
    assert_true(lp_map_add(&map, (struct lp_str){"a\0b", 3}, 2, NULL));
    assert_int_equal(lp_map_get(&map, (struct lp_str){"", 0}), 1);
    assert_int_equal(lp_map_get(&map, (struct lp_str){"a\0b", 3}), 2);
    assert_int_equal(lp_map_get(&map, (struct lp_str){"a\0c", 3}), LP_MAP_NONE);
    assert_int_equal(lp_map_get(&map, lp_str_from("a")), LP_MAP_NONE);
    lp_map_release(&map);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(finds_what_was_added),
                                       cmocka_unit_test(empty_keys_and_keys_with_nul)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
