// VmHWM, since getrusage also counts what the parent held before exec.
#include "cli/peak_memory.h"

#include <stdio.h>
#include <sys/resource.h>

uint64_t lp_peak_memory(void) {
    unsigned long long kb = 0;
    char line[256];
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmHWM: %llu kB", &kb) == 1) break;
    if (f) fclose(f);
    struct rusage usage;
    if (kb == 0 && getrusage(RUSAGE_SELF, &usage) == 0) kb = (unsigned long long)usage.ru_maxrss;
    return (uint64_t)kb * 1024;
}
