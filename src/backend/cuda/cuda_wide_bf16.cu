// Products of many rows with BF16 weights.
#include "backend/cuda/cuda_wide.cuh"

LP_CUDA_WIDE_KERNEL(bf16, lp_cuda_wide_bfloat16, NULL);
