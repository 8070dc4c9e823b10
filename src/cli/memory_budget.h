// --memory-budget: a size (byte_size.h), or a part of the model's file: 20G, 4800M, 40%.
#ifndef LP_CLI_MEMORY_BUDGET_H
#define LP_CLI_MEMORY_BUDGET_H

#include "limpid.h"

// path: the model, looked at for a percentage alone. Errors: INVALID (names the text), and those of
// opening the model.
limpid_status lp_memory_budget_parse(const char *option, const char *text, const char *path,
                                     uint64_t *bytes, limpid_error *err);

#endif
