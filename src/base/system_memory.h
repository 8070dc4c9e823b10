// How much memory the machine has left for this process.
#ifndef LP_BASE_SYSTEM_MEMORY_H
#define LP_BASE_SYSTEM_MEMORY_H

#include <stdint.h>

// Where to look, for tests: a file as /proc/meminfo and a folder as /sys/fs/cgroup.
uint64_t lp_memory_available_by(const char *meminfo, const char *cgroup);

// Bytes that may still be taken: the system's available memory, or less if the control group (v2,
// as a container sees it at /sys/fs/cgroup) says so. Cached files count as available, as they give way:
// else a model that was read once would leave none. 0: not known.
// 1: nothing is left.
uint64_t lp_memory_available(void);

#endif
