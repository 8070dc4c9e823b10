// How much memory the machine has left for this process.
#ifndef LP_BASE_SYSTEM_MEMORY_H
#define LP_BASE_SYSTEM_MEMORY_H

#include <stdint.h>

// Bytes that may still be taken: the system's available memory, or less if a control group says so.
// 0 where neither is known.
uint64_t lp_memory_available(void);

#endif
