// A number of bytes for a person: "812 bytes", "1.2 kB", "23.9 MB", "4.50 GB".
#ifndef LP_CLI_SIZE_TEXT_H
#define LP_CLI_SIZE_TEXT_H

#include <stdint.h>

#define LP_SIZE_TEXT_BYTES 32

const char *lp_size_text(char out[LP_SIZE_TEXT_BYTES], uint64_t bytes); // returns out

#endif
