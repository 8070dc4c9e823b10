// Any bytes as an importance matrix of either form: read or refused, and what is read can be asked
// for the means of every entry, as one matrix and as a stack.
#include <math.h>
#include <stdlib.h>

#include "files/imatrix.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) abort();
}

static void ask(const struct lp_imatrix_entry *e, uint64_t n_in, uint64_t n_mats) {
    if (!lp_imatrix_fits(e, n_in, n_mats)) return;
    float *means = malloc(n_in * sizeof *means);
    require(means != NULL);
    for (uint64_t mat = 0; mat < n_mats; mat++)
        if (lp_imatrix_means(e, n_in, n_mats, mat, means))
            for (uint64_t i = 0; i < n_in; i++) require(means[i] >= 0 && isfinite(means[i]));
    free(means);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct lp_imatrix *m;
    struct lp_err err = {0};
    lp_status status = lp_imatrix_parse(&m, data, size, "fuzz", &err);
    if (status) {
        require(m == NULL && err.status == status && err.text[0] != 0);
        return 0;
    }
    require(lp_imatrix_n_entries(m) > 0);
    for (uint64_t i = 0; i < lp_imatrix_n_entries(m); i++) {
        const struct lp_imatrix_entry *e = lp_imatrix_at(m, i);
        require(lp_imatrix_find(m, e->name) == e && e->n_values > 0 && e->n_counts > 0);
        ask(e, e->n_values, 1);
        ask(e, e->n_values, 3);
        ask(e, e->n_values / e->n_counts, e->n_counts);
        ask(e, 1, e->n_values);
    }
    lp_imatrix_close(m);
    return 0;
}
