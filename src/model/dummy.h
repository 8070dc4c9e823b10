#ifndef LP_MODEL_DUMMY_H
#define LP_MODEL_DUMMY_H

#include "backend/backend.h"

// Fills a block of device memory with random weights of the type and shape of w. Errors: MEMORY, INVALID (no
// type of a weight).
lp_status lp_dummy_fill(struct lp_device *dev, const struct lp_weight *w, void *block,
                        struct lp_err *err);

#endif
