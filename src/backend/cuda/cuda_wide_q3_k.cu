// Products of many rows with Q3_K weights.
#include "backend/cuda/cuda_q8_small.cuh"
#include "backend/cuda/cuda_wide.cuh"

LP_CUDA_WIDE_KERNEL(q3_k, lp_cuda_q3_k, NULL);
