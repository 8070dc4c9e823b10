// The 8-bit kernels for IQ1_M.
#include "backend/cuda/cuda_q8_grid.cuh"
#include "backend/cuda/cuda_q8_launch.cuh"

LP_CUDA_Q8_KERNEL(iq1_m, lp_cuda_grid_prepare<lp_cuda_iq1_m>);
