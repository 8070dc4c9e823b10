// How much memory the machine has left for this process.
#ifndef LP_BASE_SYSTEM_MEMORY_H
#define LP_BASE_SYSTEM_MEMORY_H

#include <stdint.h>

// Bytes that may still be taken: the system's available memory, or less if the control group (v2,
// as a container sees it at /sys/fs/cgroup) says so. 0: nothing is left, or neither is known.
uint64_t lp_memory_available(void);

#endif
