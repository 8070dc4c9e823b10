// Faults on purpose, for the doctor's clinic (tests/clinic): in limpid-faulty, a build with
// LIMPID_FAULTS, places marked LP_FAULT("name") go wrong when their fault is planted (limpid-faulty
// --fault NAME COMMAND ...). In limpid itself LP_FAULT is 0 and nothing is left of them.
#ifndef LP_BASE_FAULT_H
#define LP_BASE_FAULT_H

#ifdef LIMPID_FAULTS
#include <stdbool.h>

// Plants a fault of tests/clinic/faults.def; false for another name.
bool lp_fault_plant(const char *name);
bool lp_fault_is(const char *name);
#define LP_FAULT(name) lp_fault_is(name)
#else
#define LP_FAULT(name) 0
#endif

#endif
