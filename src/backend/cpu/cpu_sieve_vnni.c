// The sieve with AVX-512 VNNI.
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
#include "backend/cpu/cpu_sieve_512.h"

LP_CPU_SIEVE_TABLE(vnni, score);

#endif
