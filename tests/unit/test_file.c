// Two names of one file.
#include "base/file.h"

#include <stdio.h>
#include <unistd.h>

#include "lp_test.h"

static void one_file_by_two_names(void **state) {
    (void)state;
    char folder[] = "/tmp/limpid-file-XXXXXX";
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chdir(folder), 0);
    for (const char *name = "ab"; *name; name++) {
        char path[] = {*name, 0};
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fputs("text", file);
        assert_int_equal(fclose(file), 0);
    }
    assert_int_equal(symlink("a", "link"), 0);
    assert_true(lp_file_is_same("a", "./a"));
    assert_true(lp_file_is_same("a", "link"));
    assert_false(lp_file_is_same("a", "b"));
    assert_false(lp_file_is_same("missing", "missing"));
    assert_false(lp_file_is_same(NULL, "a"));
    assert_int_equal(unlink("a") | unlink("b") | unlink("link") | rmdir(folder), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_file_by_two_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
