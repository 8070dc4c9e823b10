#include "cli/copy_report.h"

#include <inttypes.h>
#include <stdio.h>

#include "cli/size_text.h"
#include "cli/wrote.h"

void lp_copy_report_print(const char *what, const struct lp_copy_report *r) {
    char size[LP_SIZE_TEXT_BYTES];
    lp_wrote("wrote", what, r->n_tensors, r->n_bytes);
    printf(" (%" PRIu64 " bytes)", r->n_bytes);
    if (r->n_before) printf(", of which %s were there", lp_size_text(size, r->n_before));
    lp_wrote_time(r->seconds, r->n_bytes - r->n_before, "");
    putchar('\n');
}
