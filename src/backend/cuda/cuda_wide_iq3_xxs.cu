// Products of many rows with IQ3_XXS weights.
#include "backend/cuda/cuda_q8_grid.cuh"
#include "backend/cuda/cuda_wide.cuh"

LP_CUDA_WIDE_KERNEL(iq3_xxs, lp_cuda_iq3_xxs, lp_cuda_grid_prepare<lp_cuda_iq3_xxs>);
