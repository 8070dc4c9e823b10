// The 8-bit kernels for IQ3_XXS.
#include "backend/cuda/cuda_q8_grid.cuh"
#include "backend/cuda/cuda_q8_launch.cuh"

LP_CUDA_Q8_KERNEL(iq3_xxs, lp_cuda_grid_prepare<lp_cuda_iq3_xxs>);
