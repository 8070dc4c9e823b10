// A number of bytes as people write it: 40G, 4.5GB, 512MiB, 1000000.
#ifndef LP_CLI_BYTE_SIZE_H
#define LP_CLI_BYTE_SIZE_H

#include <stdbool.h>
#include <stdint.h>

// K, M, G, T (with or without B) are powers of 1000, Ki, Mi, Gi, Ti (with or without B) of 1024.
// False for anything else, 0, or 2^62 and more.
bool lp_byte_size_parse(const char *text, uint64_t *bytes);

#endif
