// Products of many rows with IQ4_XS weights.
#include "backend/cuda/cuda_q8_small.cuh"
#include "backend/cuda/cuda_wide.cuh"

LP_CUDA_WIDE_KERNEL(iq4_xs, lp_cuda_iq4_xs, NULL);
