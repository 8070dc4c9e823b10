// Which fault is planted: one a run, chosen on the command line of limpid-faulty.
#include "base/fault.h"

#include <string.h>

static const char *planted = "";

bool lp_fault_plant(const char *name) {
    static const char *const names[] = {
#define FAULT(fault, meaning) fault,
#include "faults.def"
#undef FAULT
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], name) == 0) {
            planted = names[i];
            return true;
        }
    return false;
}

bool lp_fault_is(const char *name) {
    return strcmp(planted, name) == 0;
}
