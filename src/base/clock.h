#ifndef LP_BASE_CLOCK_H
#define LP_BASE_CLOCK_H

#include <stdint.h>

uint64_t lp_clock_ns(void);        // monotonic, from an arbitrary start
uint64_t lp_clock_thread_ns(void); // processor time of the calling thread
uint64_t lp_clock_wall_ns(void);   // since 1970, as the system has it: it may be set, and go back

#endif
