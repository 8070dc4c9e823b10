// The cache directories that tests make.
#ifndef LP_TEST_CACHE_FOLDER_H
#define LP_TEST_CACHE_FOLDER_H

#include <dirent.h>
#include <unistd.h>

#include "lp_test.h"

// Removes a folder and the files in it.
static inline void drop_cache_folder(const char *dir) {
    char path[512];
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *entry; (entry = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        unlink(path);
    }
    closedir(d);
    assert_int_equal(rmdir(dir), 0);
}

#endif
