// Products of many rows with NVFP4 weights.
#include "backend/cuda/cuda_q8_small.cuh"
#include "backend/cuda/cuda_wide.cuh"

LP_CUDA_WIDE_KERNEL(nvfp4, lp_cuda_nvfp4, NULL);
