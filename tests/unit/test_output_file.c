#include "lp_test.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "cli/output_file.h"

static char folder[64];

static int make_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/limpid-output-XXXXXX");
    return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return chdir("/") == 0 && system(command) == 0 ? 0 : -1;
}

static size_t n_files(void) {
    size_t n = 0;
    DIR *dir = opendir(".");
    for (struct dirent *e; (e = readdir(dir));) n += e->d_name[0] != '.';
    closedir(dir);
    return n;
}

static void holds(const char *path, const char *expected) {
    char *text;
    size_t n;
    struct lp_err err;
    assert_int_equal(lp_file_read(path, 1000, &text, &n, &err), LP_OK);
    assert_string_equal(text, expected);
    lp_free(text);
}

static void a_check_leaves_nothing_behind(void **state) {
    (void)state;
    struct lp_err err;
    assert_int_equal(lp_output_check("new", &err), LP_OK);
    assert_int_equal(n_files(), 0);
    assert_int_equal(lp_output_check("-", &err), LP_OK);
    assert_int_equal(lp_output_check("/dev/null", &err), LP_OK);
}

static void what_cannot_be_written_is_named(void **state) {
    (void)state;
    struct lp_err err;
    assert_int_equal(lp_output_check("no/such/folder/x", &err), LP_STATUS_IO);
    assert_non_null(strstr(err.text, "cannot write no/such/folder/x: No such file"));
    assert_int_equal(lp_output_check("/tmp", &err), LP_STATUS_IO);
    assert_non_null(strstr(err.text, "Is a directory"));
    assert_int_equal(lp_output_check("", &err), LP_STATUS_IO);
    assert_int_equal(lp_output_write("no/such/folder/x", lp_str_from("a"), &err), LP_STATUS_IO);
}

static void a_new_file_has_the_usual_permissions(void **state) {
    (void)state;
    struct lp_err err;
    struct stat st;
    mode_t old = umask(027);
    assert_int_equal(lp_output_write("new", lp_str_from("one"), &err), LP_OK);
    assert_int_equal(umask(old), 027);
    holds("new", "one");
    assert_int_equal(stat("new", &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
    assert_int_equal(n_files(), 1);
    unlink("new");
}

static void an_old_file_is_replaced_behind_its_link(void **state) {
    (void)state;
    struct lp_err err;
    struct stat st;
    assert_int_equal(lp_output_write("real", lp_str_from("one"), &err), LP_OK);
    assert_int_equal(chmod("real", 0604), 0);
    assert_int_equal(symlink("real", "link"), 0);
    assert_int_equal(lp_output_write("link", lp_str_from("two"), &err), LP_OK);
    holds("real", "two");
    assert_int_equal(lstat("link", &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(stat("real", &st), 0);
    assert_int_equal(st.st_mode & 07777, 0604);
    assert_int_equal(n_files(), 2);
    unlink("real");
    unlink("link");
}

static void a_failure_leaves_the_old_file(void **state) {
    (void)state;
    struct lp_err err;
    assert_int_equal(lp_output_write("kept", lp_str_from("one"), &err), LP_OK);
    lp_alloc_fail_after(1);
    assert_int_equal(lp_output_write("kept", lp_str_from("two"), &err), LP_STATUS_IO);
    lp_alloc_fail_after(0);
    holds("kept", "one");
    assert_int_equal(n_files(), 1);
    unlink("kept");
}

static void a_device_is_written_to_and_stays(void **state) {
    (void)state;
    struct lp_err err;
    struct stat st;
    assert_int_equal(lp_output_write("/dev/null", lp_str_from("x"), &err), LP_OK);
    assert_int_equal(stat("/dev/null", &st), 0);
    assert_true(S_ISCHR(st.st_mode));
    assert_int_equal(lp_output_write("/dev/full", lp_str_from("x"), &err), LP_STATUS_IO);
    assert_non_null(strstr(err.text, "No space left"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_check_leaves_nothing_behind),
        cmocka_unit_test(what_cannot_be_written_is_named),
        cmocka_unit_test(a_new_file_has_the_usual_permissions),
        cmocka_unit_test(an_old_file_is_replaced_behind_its_link),
        cmocka_unit_test(a_failure_leaves_the_old_file),
        cmocka_unit_test(a_device_is_written_to_and_stays),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
