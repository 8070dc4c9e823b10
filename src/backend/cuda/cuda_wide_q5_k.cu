// Products of many rows with Q5_K weights.
#include "backend/cuda/cuda_wide.cuh"

LP_CUDA_WIDE_KERNEL(q5_k, lp_cuda_q5_k, NULL);
