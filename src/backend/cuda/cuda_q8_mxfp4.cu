// The 8-bit kernels for MXFP4.
#include "backend/cuda/cuda_q8_launch.cuh"
#include "backend/cuda/cuda_q8_small.cuh"

LP_CUDA_Q8_KERNEL(mxfp4, NULL);
