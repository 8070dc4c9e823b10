// The part of cmocka's interface that the kernel tests use, for builds for another processor, whose
// cmocka the system does not have. A failed assertion ends the test; a test that cannot run skips.
#ifndef TESTS_CROSS_CMOCKA_H
#define TESTS_CROSS_CMOCKA_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
};

enum cross_end { CROSS_PASSED, CROSS_FAILED, CROSS_SKIPPED };
static jmp_buf cross_test;

#define cmocka_unit_test(function)                                                                 \
    { #function, function }
#define cmocka_run_group_tests(tests, setup, teardown)                                             \
    cmocka_run_group_tests_name(__FILE__, tests, setup, teardown)
#define cmocka_run_group_tests_name(group, tests, setup, teardown)                                 \
    ((void)(setup), (void)(teardown), cross_run(group, tests, sizeof(tests) / sizeof(tests)[0]))

#define print_message(...) printf(__VA_ARGS__)
#define skip() longjmp(cross_test, CROSS_SKIPPED)
#define fail_msg(...)                                                                              \
    do {                                                                                           \
        printf("%s:%d: ", __FILE__, __LINE__);                                                     \
        printf(__VA_ARGS__);                                                                       \
        printf("\n");                                                                              \
        longjmp(cross_test, CROSS_FAILED);                                                         \
    } while (0)
#define fail() fail_msg("failed")

#define assert_true(condition)                                                                     \
    do {                                                                                           \
        if (!(condition)) fail_msg("%s is false", #condition);                                     \
    } while (0)
#define assert_false(condition) assert_true(!(condition))
#define assert_non_null(pointer) assert_true((pointer) != NULL)
#define assert_null(pointer) assert_true((pointer) == NULL)
#define assert_int_equal(a, b)                                                                     \
    do {                                                                                           \
        long long a_ = (long long)(a), b_ = (long long)(b);                                        \
        if (a_ != b_) fail_msg("%s is %lld, %s is %lld", #a, a_, #b, b_);                          \
    } while (0)
#define assert_string_equal(a, b)                                                                  \
    do {                                                                                           \
        const char *a_ = (a), *b_ = (b);                                                           \
        if (strcmp(a_, b_) != 0) fail_msg("\"%s\" is not \"%s\"", a_, b_);                         \
    } while (0)
#define assert_memory_equal(a, b, n)                                                               \
    do {                                                                                           \
        if (memcmp((a), (b), (n)) != 0) fail_msg("%s and %s differ", #a, #b);                      \
    } while (0)

static inline enum cross_end cross_run_one(const struct CMUnitTest *test) {
    int end = setjmp(cross_test);
    if (end == CROSS_PASSED) test->run(&(void *){NULL});
    return (enum cross_end)end;
}

static inline int cross_run(const char *group, const struct CMUnitTest *tests, size_t n_tests) {
    static const char *const words[] = {"passed", "FAILED", "skipped"};
    int n_failed = 0;
    for (size_t i = 0; i < n_tests; i++) {
        enum cross_end end = cross_run_one(&tests[i]);
        printf("%s: %s: %s\n", group, tests[i].name, words[end]);
        fflush(stdout);
        n_failed += end == CROSS_FAILED;
    }
    return n_failed;
}

#endif
