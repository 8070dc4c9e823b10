// A file that a command writes at its end: it can be written, or the command does not begin; and it
// is there whole or not at all.
#ifndef LP_CLI_OUTPUT_FILE_H
#define LP_CLI_OUTPUT_FILE_H

#include <stdbool.h>

#include "base/bytes.h"
#include "base/status.h"

// Whether lp_output_write could write the path now; nothing is left behind. Errors: IO.
lp_status lp_output_check(const char *path, struct lp_err *err);

// Writes the bytes to a temporary file beside the path and renames it; what stood there stays until
// then, and if it fails. Links are followed. What is no regular file (a pipe, a terminal) is
// written to; "-" is standard output. Errors: IO.
lp_status lp_output_write(const char *path, struct lp_str data, struct lp_err *err);

#endif
