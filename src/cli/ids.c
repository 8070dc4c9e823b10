#include "cli/ids.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/args.h"

static const char *skip_separators(const char *p) {
    while (*p && (isspace((unsigned char)*p) || *p == ',' || *p == '[' || *p == ']')) p++;
    return p;
}

int lp_ids_parse(const char *text, const char *what, int32_t **out, size_t *n) {
    int32_t *ids = lp_alloc(strlen(text) / 2 + 1, sizeof *ids);
    *n = 0;
    *out = ids;
    if (!ids) return lp_fail_text("out of memory: %s", what);
    for (const char *p = skip_separators(text); *p; p = skip_separators(p)) {
        char *end;
        errno = 0;
        long value = strtol(p, &end, 10);
        if (end == p || errno || value < 0 || value > INT32_MAX) {
            lp_free(ids);
            *out = NULL;
            return lp_fail_text("%s: '%.12s' is no token id", what, p);
        }
        ids[(*n)++] = (int32_t)value;
        p = end;
    }
    return LP_EXIT_OK;
}
