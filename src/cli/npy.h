// NumPy .npy files (format 1.0), written piece by piece in any order. A file may be parked between
// pieces: then it takes no descriptor.
#ifndef LP_CLI_NPY_H
#define LP_CLI_NPY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct lp_npy {
    FILE *file;
    long data_start;
    bool failed;
    int error; // errno of the first failure
};

// Opens for writing and puts the header. descr: "<f4" or "<i4". False (errno set) when it cannot.
bool lp_npy_open(struct lp_npy *npy, const char *path, const char *descr, const int64_t *shape,
                 int n_dims);
// Writes n values of 4 bytes at element index `at`.
void lp_npy_put(struct lp_npy *npy, int64_t at, const void *values, int64_t n);
// Closes the file for a while; the next lp_npy_wake opens it again under the same path. errno of the
// first failure stays in `error`.
void lp_npy_park(struct lp_npy *npy);
void lp_npy_wake(struct lp_npy *npy, const char *path);
bool lp_npy_close(
    struct lp_npy *npy); // false if any write failed; a file that was not opened is fine

#endif
