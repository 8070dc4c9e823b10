// The cuda backend for the checks of operations, which keep everything in host arrays: a backend whose
// operations copy what they are given to the GPU, run the cuda backend's, and copy results back. What
// lies between the values of a result comes back as well, and behind each block on the GPU lies a
// pattern that must stay: so a write beside a result is found as on the host.
#ifndef TESTS_CUDA_STAGED_H
#define TESTS_CUDA_STAGED_H

#include "backend/backend.h"

// Where there is no GPU that can be used, opening a device says so and ends the program with status 77.
extern const struct lp_backend cuda_staged;
// The device of the cuda backend behind one of them.
struct lp_device *cuda_staged_real(struct lp_device *dev);

#endif
