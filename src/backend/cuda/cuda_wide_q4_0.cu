// Products of many rows with Q4_0 weights.
#include "backend/cuda/cuda_q8_small.cuh"
#include "backend/cuda/cuda_wide.cuh"

LP_CUDA_WIDE_KERNEL(q4_0, lp_cuda_q4_0, NULL);
