#include "cli/npy.h"

#include <errno.h>
#include <string.h>

static void note(struct lp_npy *npy, bool ok) {
    if (ok || npy->failed) return;
    npy->failed = true;
    npy->error = errno;
}

bool lp_npy_open(struct lp_npy *npy, const char *path, const char *descr, const int64_t *shape,
                 int n_dims) {
    char header[256];
    int n = snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                     descr);
    for (int i = 0; i < n_dims; i++)
        n += snprintf(header + n, sizeof header - (size_t)n, "%lld, ", (long long)shape[i]);
    n += snprintf(header + n, sizeof header - (size_t)n, "), }");
    while ((10 + n + 1) % 64) header[n++] = ' ';
    header[n++] = '\n';
    *npy = (struct lp_npy){.file = fopen(path, "wb"), .data_start = 10 + n};
    if (!npy->file) return false;
    const unsigned char magic[10] = {
        0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)(n & 255), (unsigned char)(n >> 8)};
    note(npy, fwrite(magic, 1, 10, npy->file) == 10 &&
                  fwrite(header, 1, (size_t)n, npy->file) == (size_t)n);
    return true;
}

void lp_npy_put(struct lp_npy *npy, int64_t at, const void *values, int64_t n) {
    if (!npy->file || npy->failed) return;
    note(npy, fseeko(npy->file, npy->data_start + at * 4, SEEK_SET) == 0 &&
                  fwrite(values, 4, (size_t)n, npy->file) == (size_t)n);
}

void lp_npy_park(struct lp_npy *npy) {
    if (!npy->file) return;
    note(npy, fclose(npy->file) == 0);
    npy->file = NULL;
}

void lp_npy_wake(struct lp_npy *npy, const char *path) {
    if (npy->file || npy->failed) return;
    npy->file = fopen(path, "r+b");
    note(npy, npy->file != NULL);
}

bool lp_npy_close(struct lp_npy *npy) {
    if (!npy->file) return true;
    bool ok = !npy->failed;
    if (fclose(npy->file) != 0) ok = false;
    npy->file = NULL;
    return ok;
}
