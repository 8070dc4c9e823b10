#include "base/system_memory.h"

#include <stdbool.h>
#include <stdio.h>

// The first line of the file that the format takes a number from; false if there is none.
static bool read_number(const char *path, const char *format, unsigned long long *out) {
    char line[256];
    bool found = false;
    FILE *f = fopen(path, "r");
    if (!f) return false;
    while (!found && fgets(line, sizeof line, f)) found = sscanf(line, format, out) == 1;
    fclose(f);
    return found;
}

uint64_t lp_memory_available(void) {
    unsigned long long kib, max, used;
    bool known = read_number("/proc/meminfo", "MemAvailable: %llu kB", &kib);
    uint64_t available = known ? (uint64_t)kib << 10 : UINT64_MAX;
    bool limited = read_number("/sys/fs/cgroup/memory.max", "%llu", &max) && // "max": no number
                   read_number("/sys/fs/cgroup/memory.current", "%llu", &used);
    uint64_t left = limited && max > used ? max - used : 0;
    if (limited && left < available) return left;
    return known ? available : 0;
}
