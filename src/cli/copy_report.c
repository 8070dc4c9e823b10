#include "cli/copy_report.h"

#include <inttypes.h>
#include <stdio.h>

static void print_size(uint64_t bytes) {
    if (bytes < UINT64_C(1000000000))
        printf("%.1f MB", (double)bytes * 1e-6);
    else
        printf("%.2f GB", (double)bytes * 1e-9);
}

void lp_copy_report_print(const char *what, const struct lp_copy_report *r) {
    uint64_t written = r->n_bytes - r->n_before;
    printf("wrote %s: %" PRIu64 " tensors, ", what, r->n_tensors);
    print_size(r->n_bytes);
    printf(" (%" PRIu64 " bytes)", r->n_bytes);
    if (r->n_before) {
        printf(", of which ");
        print_size(r->n_before);
        printf(" were there");
    }
    printf(", in %.1f s (%.2f GB/s)\n", r->seconds,
           r->seconds > 0 ? (double)written * 1e-9 / r->seconds : 0.0);
}
