#include "lp_test.h"

#include <unistd.h>

#include "base/alloc.h"
#include "base/huge_pages.h"

static bool starts_huge_page(const void *block) {
    return (uintptr_t)block % LP_HUGE_PAGE_BYTES == 0;
}

// Written and read over their whole length, by the byte; sizes around the limits.
static void blocks_of_any_size_hold_what_is_written(void **state) {
    (void)state;
    static const size_t sizes[] = {0,
                                   1,
                                   4096,
                                   LP_HUGE_MIN_BYTES - 1,
                                   LP_HUGE_MIN_BYTES,
                                   LP_HUGE_MIN_BYTES + 1,
                                   ((size_t)9 << 20) + 77};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int huge = 0; huge < 2; huge++) {
            unsigned char *block = lp_huge_alloc(sizes[i], 1, huge);
            assert_non_null(block);
            assert_int_equal((uintptr_t)block % 64, 0);
            if (huge && sizes[i] >= LP_HUGE_MIN_BYTES) assert_true(starts_huge_page(block));
            for (size_t k = 0; k < sizes[i]; k++) block[k] = (unsigned char)(k * 31 >> 3);
            for (size_t k = 0; k < sizes[i]; k++)
                if (block[k] != (unsigned char)(k * 31 >> 3)) fail_msg("byte %zu", k);
            lp_free(block);
        }
}

static void mapped_blocks_are_zero_and_given_back(void **state) {
    (void)state;
    static const size_t sizes[] = {1, LP_HUGE_PAGE_BYTES, LP_HUGE_PAGE_BYTES * 3 + 5};
    for (int round = 0; round < 3; round++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            unsigned char *block = lp_huge_map(sizes[i], round % 2 == 0);
            assert_non_null(block);
            assert_true(starts_huge_page(block));
            for (size_t k = 0; k < sizes[i]; k++) {
                assert_int_equal(block[k], 0);
                block[k] = 1;
            }
            lp_huge_unmap(block, sizes[i]);
        }
    lp_huge_unmap(NULL, 5);
}

// From a machine: two nodes, the columns of orders 0 to 10.
static void free_huge_pages_are_counted(void **state) {
    (void)state;
    static const char text[] =
        "Node 0, zone      DMA      0      0      0      0      0      0      0      0      1      "
        "1      2 \n"
        "Node 0, zone   Normal   4381   1093    257     37     11      4      2      0      1      "
        "7    300 \n"
        "Node 1, zone   Normal      9      8      7      6      5      4      3      2      1\n"
        "nothing\n";
    char path[] = "/tmp/limpid-buddy-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, sizeof text - 1), sizeof text - 1);
    close(fd);
    assert_int_equal(lp_huge_ready_bytes(path), (1 + 4 + 7 + 600) * LP_HUGE_PAGE_BYTES);
    unlink(path);
    assert_int_equal(lp_huge_ready_bytes(path), 0);
}

static void absurd_sizes_are_refused(void **state) {
    (void)state;
    assert_null(lp_huge_alloc(SIZE_MAX, 2, true));
    assert_null(lp_huge_alloc(SIZE_MAX - 5, 1, true));
    assert_null(lp_huge_map(SIZE_MAX - 5, true));
    assert_null(lp_huge_map(SIZE_MAX - LP_HUGE_PAGE_BYTES * 2, true));
    assert_null(lp_huge_map(0, true));
    lp_alloc_fail_after(1);
    assert_null(lp_huge_alloc(LP_HUGE_MIN_BYTES, 1, true));
    lp_alloc_fail_after(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(blocks_of_any_size_hold_what_is_written),
                                       cmocka_unit_test(mapped_blocks_are_zero_and_given_back),
                                       cmocka_unit_test(free_huge_pages_are_counted),
                                       cmocka_unit_test(absurd_sizes_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
