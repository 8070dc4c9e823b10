#include "lp_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "cli/history_file.h"

static void gather(void *user, const char *text) {
    lp_bytes_puts(user, text);
    lp_bytes_puts(user, "|");
}

static int n_lines(const char *path) {
    FILE *file = fopen(path, "r");
    int n = 0;
    for (int c; (c = fgetc(file)) != EOF;) n += c == '\n';
    fclose(file);
    return n;
}

static void entries_come_back(void **state) {
    (void)state;
    char folder[] = "/tmp/limpid-history-XXXXXX";
    struct stat st;
    assert_non_null(mkdtemp(folder));
    setenv("XDG_STATE_HOME", folder, 1);
    char *path = lp_history_path();
    assert_non_null(path);
    assert_non_null(strstr(path, "/limpid/history"));
    struct lp_bytes seen = {0};
    lp_history_load(path, 10, gather, &seen); // not there yet
    assert_int_equal(seen.len, 0);
    assert_true(lp_history_append(path, "one"));
    assert_true(lp_history_append(path, "two\nlines \"\\ \xc3\xbc"));
    assert_false(lp_history_append(path, "\xff"));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    FILE *file = fopen(path, "a");
    fputs("not JSON\n[1]\n\n\"cut", file);
    fclose(file);
    lp_history_load(path, 10, gather, &seen);
    assert_string_equal(seen.data, "one|two\nlines \"\\ \xc3\xbc|");
    unlink(path);
    for (int i = 0; i < 25; i++) {
        char text[8];
        snprintf(text, sizeof text, "%d", i);
        assert_true(lp_history_append(path, text));
    }
    lp_bytes_clear(&seen);
    lp_history_load(path, 3, gather, &seen);
    assert_string_equal(seen.data, "22|23|24|");
    assert_int_equal(n_lines(path), 3); // it had grown
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    lp_free(path);
    lp_bytes_release(&seen);
    char command[64];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    assert_int_equal(system(command), 0);
}

static void place(void **state) {
    (void)state;
    unsetenv("XDG_STATE_HOME");
    setenv("HOME", "/proc/none", 1);
    assert_null(lp_history_path());
    unsetenv("HOME");
    assert_null(lp_history_path());
    char folder[] = "/tmp/limpid-history-XXXXXX", want[64];
    assert_non_null(mkdtemp(folder));
    setenv("HOME", folder, 1);
    char *path = lp_history_path();
    snprintf(want, sizeof want, "%s/.local/state/limpid/history", folder);
    assert_string_equal(path, want);
    lp_free(path);
    snprintf(want, sizeof want, "rm -r '%s'", folder);
    assert_int_equal(system(want), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(entries_come_back),
                                       cmocka_unit_test(place)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
