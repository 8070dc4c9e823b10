// Products of many rows with Q2_K weights.
#include "backend/cuda/cuda_q8_small.cuh"
#include "backend/cuda/cuda_wide.cuh"

LP_CUDA_WIDE_KERNEL(q2_k, lp_cuda_q2_k, NULL);
