#include "base/system_memory.h"

#include <stdbool.h>
#include <stdio.h>

uint64_t lp_memory_available(void) {
    unsigned long long kib = 0, max = 0, used = 0;
    char line[256];
    FILE *f = fopen("/proc/meminfo", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1) break;
    if (f) fclose(f);
    uint64_t available = (uint64_t)kib << 10;
    f = fopen("/sys/fs/cgroup/memory.max", "r");
    bool limited = f && fscanf(f, "%llu", &max) == 1;
    if (f) fclose(f);
    f = limited ? fopen("/sys/fs/cgroup/memory.current", "r") : NULL;
    limited = f && fscanf(f, "%llu", &used) == 1;
    if (f) fclose(f);
    uint64_t left = limited && max > used ? max - used : 0;
    if (limited && left < available) available = left;
    return available;
}
