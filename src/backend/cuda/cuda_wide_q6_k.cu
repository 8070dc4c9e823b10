// Products of many rows with Q6_K weights.
#include "backend/cuda/cuda_wide.cuh"

LP_CUDA_WIDE_KERNEL(q6_k, lp_cuda_q6_k, NULL);
