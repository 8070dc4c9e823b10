// The 8-bit kernels for Q5_K.
#include "backend/cuda/cuda_q8_launch.cuh"

LP_CUDA_Q8_KERNEL(q5_k, NULL);
