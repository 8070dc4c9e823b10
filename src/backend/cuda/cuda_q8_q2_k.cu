// The 8-bit kernels for Q2_K.
#include "backend/cuda/cuda_q8_launch.cuh"
#include "backend/cuda/cuda_q8_small.cuh"

LP_CUDA_Q8_KERNEL(q2_k, NULL);
