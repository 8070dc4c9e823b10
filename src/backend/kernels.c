// Choice among the candidates of an operation: a pure function of the table and the query.
#include "backend/kernels.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum verdict { OTHER, FITS, NOT_FORCED, MISSING, REJECTED };

static enum verdict judge(const struct lp_kernel *table, size_t i,
                          const struct lp_kernel_query *query) {
    const struct lp_kernel *k = &table[i];
    if (strcmp(k->op, query->op) != 0) return OTHER;
    if (k->type != LP_KERNEL_ANY_TYPE && k->type != query->type) return OTHER;
    if (query->forced && strcmp(query->forced, k->name) != 0) return NOT_FORCED;
    if (k->needs & ~query->features) return MISSING;
    if (query->rejected && query->rejected[i]) return REJECTED;
    return FITS;
}

int lp_kernel_choose(const struct lp_kernel *table, size_t n, const struct lp_kernel_query *query) {
    for (size_t i = 0; i < n; i++)
        if (judge(table, i, query) == FITS) return (int)i;
    return -1;
}

// Appends to buffer, which holds `used` characters; returns the new length, at most bytes - 1.
__attribute__((format(printf, 4, 5))) static size_t append(char *buffer, size_t bytes, size_t used,
                                                           const char *format, ...) {
    va_list args;
    va_start(args, format);
    int length = vsnprintf(buffer + used, bytes - used, format, args);
    va_end(args);
    if (length < 0) return used;
    return (size_t)length < bytes - used ? used + (size_t)length : bytes - 1;
}

const char *lp_kernel_explain(const struct lp_kernel *table, size_t n,
                              const struct lp_kernel_query *query, char *buffer,
                              size_t buffer_bytes) {
    if (buffer_bytes == 0) return buffer;
    buffer[0] = 0;
    int chosen = lp_kernel_choose(table, n, query);
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        enum verdict verdict = judge(table, i, query);
        if (verdict == OTHER) continue;
        char reason[160] = "another comes first";
        if ((int)i == chosen)
            snprintf(reason, sizeof reason, "chosen");
        else if (verdict == NOT_FORCED)
            snprintf(reason, sizeof reason, "%s is forced", query->forced);
        else if (verdict == REJECTED)
            snprintf(reason, sizeof reason, "failed its self-check");
        else if (verdict == MISSING) {
            uint32_t missing = table[i].needs & ~query->features;
            char bits[120];
            snprintf(bits, sizeof bits, "feature bits 0x%x", (unsigned)missing);
            if (query->features_text) query->features_text(missing, bits, sizeof bits);
            snprintf(reason, sizeof reason, "needs %s", bits);
        }
        used =
            append(buffer, buffer_bytes, used, "%s%s: %s", used ? "; " : "", table[i].name, reason);
    }
    if (used == 0) append(buffer, buffer_bytes, 0, "no candidate for %s", query->op);
    return buffer;
}
