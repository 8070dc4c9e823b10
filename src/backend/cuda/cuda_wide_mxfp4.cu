// Products of many rows with MXFP4 weights.
#include "backend/cuda/cuda_q8_small.cuh"
#include "backend/cuda/cuda_wide.cuh"

LP_CUDA_WIDE_KERNEL(mxfp4, lp_cuda_mxfp4, NULL);
