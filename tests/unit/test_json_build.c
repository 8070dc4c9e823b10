// Reports hold valid JSON whatever the values are, and remember what failed.
#include <math.h>

#include "cli/json_build.h"
#include "lp_test.h"

static void a_failure_is_remembered(void **state) {
    (void)state;
    bool failed = false;
    json_t *object = json_object(), *array = json_array();
    lp_json_build_put(&failed, object, "a", json_integer(1));
    lp_json_build_add(&failed, array, json_true());
    assert_false(failed);
    lp_json_build_put(&failed, object, "b", NULL);
    assert_true(failed);
    failed = false;
    lp_json_build_add(&failed, array, NULL);
    assert_true(failed);
    failed = false;
    lp_json_build_put(&failed, NULL, "a", json_integer(1)); // an object that could not be made
    assert_true(failed);
    assert_int_equal((int)json_object_size(object), 1);
    assert_int_equal((int)json_array_size(array), 1);
    json_decref(object);
    json_decref(array);
}

static void values_are_what_json_has(void **state) {
    (void)state;
    const struct {
        json_t *made;
        const char *text;
    } rows[] = {
        {lp_json_build_number(0.5), "0.5"},
        {lp_json_build_number(NAN), "null"},
        {lp_json_build_number(-INFINITY), "null"},
        {lp_json_build_count(7), "7"},
        {lp_json_build_count(UINT64_MAX), "9223372036854775807"},
        {lp_json_build_text((struct lp_str){"a\x01\xff", 3}), "\"a??\""},
        {lp_json_build_type(LP_TYPE_Q4_K), "\"Q4_K\""},
        {lp_json_build_shape(&(struct lp_gguf_tensor){.n_dims = 2, .ne = {4, 3, 1, 1}}), "[4, 3]"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *text = json_dumps(rows[i].made, JSON_ENCODE_ANY);
        assert_string_equal(text, rows[i].text);
        free(text);
        json_decref(rows[i].made);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failure_is_remembered),
        cmocka_unit_test(values_are_what_json_has),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
