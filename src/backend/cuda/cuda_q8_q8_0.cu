// The 8-bit kernels for Q8_0.
#include "backend/cuda/cuda_q8_launch.cuh"

LP_CUDA_Q8_KERNEL(q8_0, NULL);
