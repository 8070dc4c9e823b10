// A folder of its own for the files that a test makes.
#ifndef LP_TEST_TEMP_FOLDER_H
#define LP_TEST_TEMP_FOLDER_H

#include <stdlib.h>
#include <unistd.h>

#include "lp_test.h"

static char folder[] = "/tmp/limpid-test-XXXXXX"; // its path, between make_folder and remove_folder

static inline void put_bytes(const char *name, const void *data, size_t n) {
    char path[160];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(data, 1, n, out), n);
    fclose(out);
}

static inline void put(const char *name, const char *text) {
    put_bytes(name, text, strlen(text));
}

static inline void drop(const char *name) {
    char path[160];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unlink(path);
}

// Set-up and tear-down of a group; the latter fails where a file was left.
static inline int make_folder(void **state) {
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}
static inline int remove_folder(void **state) {
    (void)state;
    return rmdir(folder);
}

#endif
