// Products of many rows with F16 weights.
#include "backend/cuda/cuda_wide.cuh"

LP_CUDA_WIDE_KERNEL(f16, lp_cuda_wide_float16, NULL);
