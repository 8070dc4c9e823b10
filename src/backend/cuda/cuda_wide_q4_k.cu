// Products of many rows with Q4_K weights.
#include "backend/cuda/cuda_wide.cuh"

LP_CUDA_WIDE_KERNEL(q4_k, lp_cuda_q4_k, NULL);
