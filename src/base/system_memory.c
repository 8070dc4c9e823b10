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

static bool read_of(const char *folder, const char *name, const char *format,
                    unsigned long long *out) {
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    return n > 0 && (size_t)n < sizeof path && read_number(path, format, out);
}

uint64_t lp_memory_available_by(const char *meminfo, const char *cgroup) {
    unsigned long long kib, max, used, file;
    bool known = read_number(meminfo, "MemAvailable: %llu kB", &kib);
    uint64_t available = known ? (uint64_t)kib << 10 : UINT64_MAX;
    bool limited = read_of(cgroup, "memory.max", "%llu", &max) && // "max": no number
                   read_of(cgroup, "memory.current", "%llu", &used);
    static const char *const cached[] = {"active_file %llu", "inactive_file %llu"};
    for (int i = 0; i < 2 && limited; i++)
        if (read_of(cgroup, "memory.stat", cached[i], &file)) used -= file < used ? file : used;
    uint64_t left = limited && max > used ? max - used : 1;
    if (limited && left < available) return left;
    return !known ? 0 : available ? available : 1;
}

uint64_t lp_memory_available(void) {
    return lp_memory_available_by("/proc/meminfo", "/sys/fs/cgroup");
}
