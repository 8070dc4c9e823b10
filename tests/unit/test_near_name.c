// Distances are the textbook's examples.
#include "lp_test.h"

#include <stdint.h>
#include <stdlib.h>

#include "cli/near_name.h"

static void distances(void **state) {
    (void)state;
    assert_int_equal(lp_name_distance("kitten", "sitting"), 3);
    assert_int_equal(lp_name_distance("Saturday", "sunday"), 3);
    assert_int_equal(lp_name_distance("flaw", "lawn"), 2);
    assert_int_equal(lp_name_distance("", "abc"), 3);
    assert_int_equal(lp_name_distance("GLM", "glm"), 0);
    char *text = calloc(1, 300);
    memset(text, 'a', 256);
    assert_true(lp_name_distance(text, "a") == SIZE_MAX);
    text[255] = 0;
    assert_int_equal(lp_name_distance(text, "a"), 254);
    free(text);
}

static void near_and_far(void **state) {
    (void)state;
    size_t distance;
    assert_true(lp_name_is_near("glm-5.gguf", "GLM-5.gguf", &distance));
    assert_int_equal(distance, 0);
    assert_true(lp_name_is_near("GLM-5", "GLM-5-Q4_K_M.gguf", &distance));
    assert_true(lp_name_is_near("hepl", "help", &distance));
    assert_false(lp_name_is_near("kimi", "help", &distance));
    assert_false(lp_name_is_near("", "help", &distance));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(distances), cmocka_unit_test(near_and_far)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
