// Products of many rows with Q8_0 weights.
#include "backend/cuda/cuda_wide.cuh"

LP_CUDA_WIDE_KERNEL(q8_0, lp_cuda_q8_0, NULL);
