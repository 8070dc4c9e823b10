// The list of backends in this build.
#include "backend/backend.h"

#include <string.h>

static const struct lp_backend *const backends[] = {
    &lp_backend_cpu,
    &lp_backend_ref,
};

const struct lp_backend *lp_backend_find(const char *name) {
    for (size_t i = 0; i < sizeof backends / sizeof backends[0]; i++)
        if (strcmp(backends[i]->name, name) == 0) return backends[i];
    return NULL;
}
