// Text for a terminal, in lines of at most LP_WRAP_COLUMNS.
#ifndef LP_CLI_WRAP_H
#define LP_CLI_WRAP_H

#include <stdio.h>

#define LP_WRAP_COLUMNS 100

// Prints "HEAD TEXT" and a line end. Lines are broken at spaces outside of brackets, and what
// follows the first begins at column `indent`.
void lp_wrap(FILE *to, const char *head, const char *text, size_t indent);

#endif
