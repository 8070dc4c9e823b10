// Products of many rows with Q4_1 weights.
#include "backend/cuda/cuda_q8_small.cuh"
#include "backend/cuda/cuda_wide.cuh"

LP_CUDA_WIDE_KERNEL(q4_1, lp_cuda_q4_1, NULL);
