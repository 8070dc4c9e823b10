#include "lp_test.h"

#include "base/alloc.h"
#include "base/checked.h"

static void products_that_overflow_give_null(void **state) {
    (void)state;
    assert_null(lp_alloc(SIZE_MAX / 2, 3));
    assert_null(lp_realloc(NULL, SIZE_MAX / 2, 3));
    assert_null(lp_alloc_aligned(SIZE_MAX, 1));
}

static void memory_is_zeroed_and_aligned(void **state) {
    (void)state;
    unsigned char *a = lp_alloc(1000, 1), *b = lp_alloc_aligned(100, 4);
    for (int i = 0; i < 1000; i++) assert_int_equal(a[i], 0);
    assert_int_equal((uintptr_t)b % 64, 0);
    lp_free(a);
    lp_free(b);
}

static void nth_allocation_fails(void **state) {
    (void)state;
    lp_alloc_fail_after(2);
    void *first = lp_alloc(1, 1), *second = lp_alloc(1, 1), *third = lp_alloc(1, 1);
    lp_alloc_fail_after(0);
    assert_non_null(first);
    assert_null(second);
    assert_null(third);
    lp_free(first);
}

static void arena_keeps_its_limit(void **state) {
    (void)state;
    struct lp_arena arena = {.max_bytes = 4096};
    char *text = lp_arena_strndup(&arena, "hello", 4);
    assert_string_equal(text, "hell");
    assert_non_null(lp_arena_alloc(&arena, 1, 4000));
    assert_null(lp_arena_alloc(&arena, 1, 4000));
    assert_null(lp_arena_alloc(&arena, SIZE_MAX, 2));
    lp_arena_release(&arena);
    assert_non_null(lp_arena_alloc(&arena, 1, 4000));
    lp_arena_release(&arena);
}

static void checked_arithmetic(void **state) {
    (void)state;
    uint64_t r;
    assert_true(lp_mul_u64(1ull << 32, 1ull << 31, &r) && r == 1ull << 63);
    assert_false(lp_mul_u64(1ull << 33, 1ull << 33, &r));
    assert_false(lp_add_u64(UINT64_MAX, 1, &r));
    assert_true(lp_align_u64(33, 32, &r) && r == 64);
    assert_true(lp_align_u64(64, 32, &r) && r == 64);
    assert_false(lp_align_u64(UINT64_MAX - 3, 32, &r));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_that_overflow_give_null),
        cmocka_unit_test(memory_is_zeroed_and_aligned),
        cmocka_unit_test(nth_allocation_fails),
        cmocka_unit_test(arena_keeps_its_limit),
        cmocka_unit_test(checked_arithmetic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
