// The most memory this process has held, in bytes.
#ifndef LP_CLI_PEAK_MEMORY_H
#define LP_CLI_PEAK_MEMORY_H

#include <stdint.h>

uint64_t lp_peak_memory(void);

#endif
