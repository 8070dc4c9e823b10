// The report of limpid diff as text (the keys: docs/cli.md).
#ifndef LP_CLI_DIFF_PRINT_H
#define LP_CLI_DIFF_PRINT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

// all: every key and tensor, in the order of the files; else the first keys and the worst tensors.
void lp_diff_print(const json_t *report, bool all, FILE *to);

#endif
