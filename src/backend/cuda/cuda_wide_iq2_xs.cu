// Products of many rows with IQ2_XS weights.
#include "backend/cuda/cuda_q8_grid.cuh"
#include "backend/cuda/cuda_wide.cuh"

LP_CUDA_WIDE_KERNEL(iq2_xs, lp_cuda_iq2_xs, lp_cuda_grid_prepare<lp_cuda_iq2_xs>);
