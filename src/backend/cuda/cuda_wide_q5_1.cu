// Products of many rows with Q5_1 weights.
#include "backend/cuda/cuda_q8_small.cuh"
#include "backend/cuda/cuda_wide.cuh"

LP_CUDA_WIDE_KERNEL(q5_1, lp_cuda_q5_1, NULL);
