// The most memory this process has held, and what of it is its own now, in bytes.
#ifndef LP_CLI_PEAK_MEMORY_H
#define LP_CLI_PEAK_MEMORY_H

#include <stdint.h>

uint64_t lp_peak_memory(void);
uint64_t lp_anonymous_memory(void); // resident, without mapped files; 0: the system does not say

#endif
