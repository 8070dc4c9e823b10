// The 8-bit kernels for IQ4_NL.
#include "backend/cuda/cuda_q8_launch.cuh"
#include "backend/cuda/cuda_q8_small.cuh"

LP_CUDA_Q8_KERNEL(iq4_nl, NULL);
