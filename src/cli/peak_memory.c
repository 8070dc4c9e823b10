// VmHWM, since getrusage also counts what the parent held before exec.
#include "cli/peak_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

// The value of a line such as "VmHWM:   1234 kB"; 0 where there is none.
static unsigned long long status_kb(const char *name) {
    unsigned long long kb = 0;
    char line[256];
    size_t n = strlen(name);
    FILE *f = fopen("/proc/self/status", "r");
    while (f && kb == 0 && fgets(line, sizeof line, f))
        if (strncmp(line, name, n) == 0) kb = strtoull(line + n, NULL, 10);
    if (f) fclose(f);
    return kb;
}

uint64_t lp_anonymous_memory(void) {
    return (uint64_t)status_kb("RssAnon:") * 1024;
}

uint64_t lp_peak_memory(void) {
    unsigned long long kb = status_kb("VmHWM:");
    struct rusage usage;
    if (kb == 0 && getrusage(RUSAGE_SELF, &usage) == 0) kb = (unsigned long long)usage.ru_maxrss;
    return (uint64_t)kb * 1024;
}
