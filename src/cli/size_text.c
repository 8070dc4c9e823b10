#include "cli/size_text.h"

#include <stddef.h>
#include <stdio.h>

const char *lp_size_text(char out[LP_SIZE_TEXT_BYTES], uint64_t bytes) {
    static const char *const units[] = {"kB", "MB", "GB", "TB"};
    double value = (double)bytes / 1000;
    size_t u = 0;
    for (; value >= 999.95 && u < 3; u++) value /= 1000; // 999.95 would be printed as 1000.0
    if (bytes < 1000)
        snprintf(out, LP_SIZE_TEXT_BYTES, "%u bytes", (unsigned)bytes);
    else
        snprintf(out, LP_SIZE_TEXT_BYTES, "%.*f %s", u < 2 ? 1 : 2, value, units[u]);
    return out;
}
