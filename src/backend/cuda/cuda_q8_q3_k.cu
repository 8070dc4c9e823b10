// The 8-bit kernels for Q3_K.
#include "backend/cuda/cuda_q8_launch.cuh"
#include "backend/cuda/cuda_q8_small.cuh"

LP_CUDA_Q8_KERNEL(q3_k, NULL);
