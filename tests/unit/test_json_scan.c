// Depth and lists of ids are seen in the text, whatever strings and escapes hold.
#include "lp_test.h"

#include "serve/json_scan.h"

static struct lp_json_scan scan(const char *text) {
    return lp_json_scan(text, strlen(text), 8);
}

static void depth_counts_arrays_and_objects_outside_strings(void **state) {
    (void)state;
    assert_int_equal(scan("").depth, 0);
    assert_int_equal(scan("5").depth, 0);
    assert_int_equal(scan("{}").depth, 1);
    assert_int_equal(scan("[[],[[1]],[]]").depth, 3);
    assert_int_equal(scan("{\"a\": {\"b\": [{}]}}").depth, 4);
    assert_int_equal(scan("\"[[[[\"").depth, 0);
    assert_int_equal(scan("[\"\\\"[[[\", \"\\\\\", [1]]").depth, 2);
    assert_int_equal(scan("[\"\\\\\\\"[[[\"]").depth, 1);
    assert_int_equal(scan("[\"unfinished [[[[").depth, 1);
    assert_int_equal(scan("[\"ends in a backslash [[[[\\").depth, 1);
    assert_int_equal(scan("]]]]}}[").depth, 1); // never below 0
}

static void too_deep_is_found_at_its_place(void **state) {
    (void)state;
    assert_int_equal(scan("[[[[[[[[]]]]]]]]").depth_at, 0);
    assert_int_equal(scan("[[[[[[[[[").depth_at, 8);
    assert_int_equal(scan(" {\"a\":[[[[[[[{").depth_at, 13);
}

static void ids_are_counted_in_the_prompt_of_the_outermost_object_only(void **state) {
    (void)state;
    assert_int_equal(scan("{\"prompt\": [1, 2, 3]}").longest_ids, 3);
    assert_int_equal(scan("{\"prompt\" : [ 7 ]}").longest_ids, 1);
    assert_int_equal(scan("{\"prompt\": [[1], [2, 3, 4, 5], [6]]}").longest_ids, 4);
    assert_int_equal(scan("{\"prompt\": [-1, 2]}").longest_ids, 2);
    assert_int_equal(scan("{\"prompt\": []}").longest_ids, 0);
    assert_int_equal(scan("{\"prompt\": [\"1, 2\", \"3\"]}").longest_ids, 0);
    assert_int_equal(scan("{\"prompt\": \"[1, 2, 3]\"}").longest_ids, 0);
    assert_int_equal(scan("{\"prompt\": 1, \"other\": [1, 2, 3]}").longest_ids, 0);
    assert_int_equal(scan("{\"other\": {\"prompt\": [1, 2, 3]}}").longest_ids, 0);
    assert_int_equal(scan("{\"x\": \"prompt\", \"y\": [1, 2]}").longest_ids, 0);
    assert_int_equal(scan("{\"prompt\": [1, [2, 3, 4], 5]}").longest_ids,
                     3); // no ids; refused later
}

// Bytes of every kind in every order, and every cut of a body: reads stay inside.
static void any_bytes_have_an_answer(void **state) {
    (void)state;
    static const char alphabet[] = "[]{}\",:\\1- p";
    uint32_t random = 1;
    for (int i = 0; i < 20000; i++) {
        size_t n = (size_t)(i % 24);
        char *text = malloc(n ? n : 1); // its end is guarded under ASan
        for (size_t k = 0; k < n; k++) {
            random = random * 1664525u + 1013904223u;
            text[k] = alphabet[(random >> 16) % (sizeof alphabet - 1)];
        }
        struct lp_json_scan found = lp_json_scan(text, n, 4);
        assert_true(found.depth <= 5 && found.longest_ids <= n);
        free(text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(depth_counts_arrays_and_objects_outside_strings),
        cmocka_unit_test(too_deep_is_found_at_its_place),
        cmocka_unit_test(ids_are_counted_in_the_prompt_of_the_outermost_object_only),
        cmocka_unit_test(any_bytes_have_an_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
