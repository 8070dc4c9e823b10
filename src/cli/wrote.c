#include "cli/wrote.h"

#include <inttypes.h>
#include <stdio.h>

#include "cli/peak_memory.h"
#include "cli/size_text.h"

void lp_wrote(const char *verb, const char *out, uint64_t n_tensors, uint64_t n_bytes) {
    char size[LP_SIZE_TEXT_BYTES];
    printf("%s %s: %" PRIu64 " tensor%s, %s", verb, out, n_tensors, n_tensors == 1 ? "" : "s",
           lp_size_text(size, n_bytes));
}

void lp_wrote_time(double seconds, uint64_t n_bytes, const char *of) {
    char rate[LP_SIZE_TEXT_BYTES];
    double per_second = seconds > 0 ? (double)n_bytes / seconds : 0;
    printf(", in %.1f s (%s/s%s)", seconds, lp_size_text(rate, (uint64_t)per_second), of);
}

void lp_wrote_memory(void) {
    char size[LP_SIZE_TEXT_BYTES];
    printf(", peak memory %s", lp_size_text(size, lp_peak_memory()));
}
