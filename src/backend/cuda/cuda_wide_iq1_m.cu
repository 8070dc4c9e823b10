// Products of many rows with IQ1_M weights.
#include "backend/cuda/cuda_q8_grid.cuh"
#include "backend/cuda/cuda_wide.cuh"

LP_CUDA_WIDE_KERNEL(iq1_m, lp_cuda_iq1_m, lp_cuda_grid_prepare<lp_cuda_iq1_m>);
