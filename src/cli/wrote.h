// The line on standard output that a file tool ends with, the same of all:
//
//     wrote OUT: 1234 tensors, 4.50 GB, what only this tool knows, in 3.1 s (1.45 GB/s), ...
#ifndef LP_CLI_WROTE_H
#define LP_CLI_WROTE_H

#include <stdint.h>

// Up to the size, no line end; verb: "wrote", or "would write".
void lp_wrote(const char *verb, const char *out, uint64_t n_tensors, uint64_t n_bytes);
// Time and rate: n_bytes in so many seconds; `of` behind the rate, " of the source" or "".
void lp_wrote_time(double seconds, uint64_t n_bytes, const char *of);
void lp_wrote_memory(void); // the most that this process has held

#endif
