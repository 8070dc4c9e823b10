// Lists of token ids on the command line.
#ifndef LP_CLI_IDS_H
#define LP_CLI_IDS_H

#include <stddef.h>
#include <stdint.h>

// Ids separated by commas or white space, brackets allowed (as JSON prints them). *out is from
// lp_alloc. Returns an exit status; on failure it has printed what is wrong, naming `what`.
int lp_ids_parse(const char *text, const char *what, int32_t **out, size_t *n);

#endif
