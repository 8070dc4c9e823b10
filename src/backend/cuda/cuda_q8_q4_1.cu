// The 8-bit kernels for Q4_1.
#include "backend/cuda/cuda_q8_launch.cuh"
#include "backend/cuda/cuda_q8_small.cuh"

LP_CUDA_Q8_KERNEL(q4_1, NULL);
